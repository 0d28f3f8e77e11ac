//go:build !unix

package datafile

import "os"

// GiveToOwner does nothing where files take the permissions of their directory.
func GiveToOwner(*os.File, string) error { return nil }
