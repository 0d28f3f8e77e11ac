// Package datafile makes the files of a data directory: for their owner alone, and
// for whom the directory belongs to where root makes them, so that a server that
// runs as somebody else reads what an administrator began.
package datafile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Make makes an empty file at path with the mode 0600, if nothing is there. What is
// there, whatever it is, keeps its mode and its owner. The directory must exist.
func Make(path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(GiveToOwner(file, filepath.Dir(path)), file.Close())
}
