package datafile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Replace writes a file as a whole, with the permissions of mode. Who reads it, and
// a process that dies here, sees the file before or the one after; when Replace has
// returned nil, a machine that stops has the one after. The directory must exist.
func Replace(path string, data []byte, mode fs.FileMode) error {
	dir := filepath.Dir(path)
	file, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	_, err = file.Write(data)
	if err == nil {
		err = GiveToOwner(file, dir)
	}
	if err == nil {
		err = file.Chmod(mode)
	}
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), path); err != nil {
		return err
	}
	// The new name is on disk too, where directories can be synced.
	if d, err := os.Open(dir); err == nil {
		_ = d.Sync()
		_ = d.Close()
	}
	return nil
}
