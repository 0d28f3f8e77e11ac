// Package sdk carries the sources of the SDKs, so that programs can build with them
// and write them into projects.
package sdk

import (
	"embed"
	"io/fs"
)

//go:embed go/hand
//go:embed rust/Cargo.toml rust/README.md rust/LICENSE rust/src
//go:embed c/glovebox.h c/glovebox.c
//go:embed assemblyscript/package.json assemblyscript/README.md assemblyscript/*.ts assemblyscript/asconfig.json assemblyscript/assembly assemblyscript/testing
var sources embed.FS

// Sources returns what a project needs of each SDK, in a folder for each language: go,
// rust, c and assemblyscript.
func Sources() fs.FS { return sources }
