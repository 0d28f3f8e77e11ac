// Package plugins carries the bundled hands: modules built from the folders
// beside this file, compressed with Brotli.
package plugins

import (
	"bytes"
	"embed"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/andybalholm/brotli"
)

//go:generate go test -run TestBundledHandsAreBuiltFromSource -update .

//go:embed bundled/*.wasm.br
var bundled embed.FS

// extension is that of the embedded files.
const extension = ".wasm.br"

// Names returns the names of the bundled hands in order.
func Names() []string {
	entries, err := fs.ReadDir(bundled, "bundled")
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), extension))
	}
	return names
}

// Module returns the module of a bundled hand. The error names those that
// there are.
func Module(name string) ([]byte, error) {
	compressed, err := bundled.ReadFile("bundled/" + name + extension)
	if err != nil {
		return nil, fmt.Errorf("no bundled hand %q: there are %s", name, strings.Join(Names(), ", "))
	}
	module, err := io.ReadAll(brotli.NewReader(bytes.NewReader(compressed)))
	if err != nil {
		return nil, fmt.Errorf("unpack bundled hand %q: %w", name, err)
	}
	return module, nil
}
