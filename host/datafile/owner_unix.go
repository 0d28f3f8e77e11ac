//go:build unix

package datafile

import (
	"fmt"
	"os"
	"syscall"
)

// GiveToOwner has a file in dir that root has just made belong to whom dir belongs
// to; made by anybody else it stays theirs. The file is named by its descriptor,
// since that user may put another one in its place.
func GiveToOwner(file *os.File, dir string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("%s: whose it is cannot be told", dir)
	}
	return file.Chown(int(owner.Uid), int(owner.Gid))
}
