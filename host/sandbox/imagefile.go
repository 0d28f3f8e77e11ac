package sandbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/sandbox/wasm"
)

// imageVersion changes with the file's format and with what an image is taken of.
const imageVersion = 2

// An image's file is vouched for, and its content is two parts:
//
//	{"Name": …, "Stage": …, …}\n       an imageHeader
//	<pages>                            those of Runs, 4 KiB each, in order
//
// Whoever reads it believes nothing of it: a file that is cut short, changed,
// another module's or from another version is as good as absent.
type imageHeader struct {
	// Name is the compiledFolder's.
	Name string
	image
}

func (f compiledFolder) writeImage(i *image) error {
	header, err := json.Marshal(imageHeader{Name: f.name, image: *i})
	if err != nil {
		return err
	}
	rest := append(append(header, '\n'), i.content...)
	file, err := os.CreateTemp(f.path, imagePrefix)
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	_, err = file.Write(vouched(rest))
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return os.Rename(file.Name(), filepath.Join(f.path, imageFile))
}

// readImage returns the image of a program that was loaded from the folder.
func (f compiledFolder) readImage(p *program, limits abi.Limits) (*image, error) {
	path := filepath.Join(f.path, imageFile)
	rest, err := readVouched(path)
	if err != nil {
		return nil, err
	}
	encoded, content, _ := bytes.Cut(rest, []byte("\n"))
	var header imageHeader
	if err := json.Unmarshal(encoded, &header); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	i := header.image
	i.content = content
	if header.Name != f.name || !i.fits(p, limits) {
		return nil, fmt.Errorf("%s is not of this module", path)
	}
	return &i, nil
}

// fits reports whether an image that was read can be one of the program's.
func (i *image) fits(p *program, limits abi.Limits) bool {
	if i.Size > uint64(limits.MemoryBytes) || i.Size%wasm.PageBytes != 0 {
		return false
	}
	at := 0
	for _, r := range i.Runs {
		if r.First < at || r.Count < 1 || r.Count > maxImageBytes/imagePage || r.First > int(i.Size/imagePage)-r.Count {
			return false
		}
		at = r.end()
	}
	calls := p.calls[len(p.calls)-1:]
	switch {
	case i.Stage == StageData:
		calls = p.calls
	case i.Stage == StageInitialised, i.Stage == StageWarmed && len(p.warm) > 0:
	default:
		return false
	}
	return int64(len(i.content)) == i.bytes() && slices.Equal(i.Calls, calls) && len(i.Globals) == len(p.globals)
}
