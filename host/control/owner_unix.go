//go:build unix

package control

import (
	"fmt"
	"os"
	"syscall"
)

// giveToOwner has a file that root made belong to whom the directory belongs to: the
// user that the server runs as reads what an administrator changes. The file is
// named by its descriptor, since that user may put another one in its place.
func giveToOwner(file *os.File, dir string) error {
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
