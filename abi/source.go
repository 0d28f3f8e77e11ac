//go:build !wasm

package abi

import (
	"embed"
	"io/fs"
)

//go:embed abi.go errors.go limits.go tokens/tokens.go
var source embed.FS

// Source returns the Go files of this package and of tokens, as far as a hand needs
// them: what the command line writes into a new project beside the SDK. A hand itself
// does not have them.
func Source() fs.FS { return source }
