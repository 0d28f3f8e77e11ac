//go:build !unix

package sandbox

import "io/fs"

func reserve(bytes uint64) ([]byte, error) { return make([]byte, bytes), nil }

func release([]byte) {}

func discard([]byte) bool { return false }

// atOnceNoLink is nothing here.
const atOnceNoLink = 0

// ofAnother cannot be told either.
func ofAnother(fs.FileInfo) bool { return false }

// writableByOthers cannot be told from a mode here: access lists decide.
func writableByOthers(fs.FileInfo) bool { return false }
