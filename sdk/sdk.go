// Package sdk carries the SDKs for languages other than Go, so that programs can
// build with them and write them into projects.
package sdk

import "embed"

// C holds the SDK for C in the folder c: glovebox.h and glovebox.c.
//
//go:embed c/glovebox.h c/glovebox.c
var C embed.FS
