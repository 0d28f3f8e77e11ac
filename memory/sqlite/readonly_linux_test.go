package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/sqlite"
)

// nobody is a user without any rights, which root becomes to have modes apply
// to it as well.
const nobody = 65534

func init() { childTasks["read-only"] = openWithoutRights }

// openWithoutRights says how Open fails.
func openWithoutRights(dir string) int {
	if os.Geteuid() == 0 {
		if err := syscall.Setuid(nobody); err != nil {
			fmt.Println("setuid:", err)
			return 1
		}
	}
	_, err := sqlite.Open(context.Background(), database(dir), sqlite.Options{})
	fmt.Println(errors.Is(err, memory.ErrReadOnly), err)
	return 0
}

func TestReadOnlyPlaces(t *testing.T) {
	for _, test := range []struct {
		name                 string
		parent, data, stored os.FileMode
	}{
		{"the database", 0o755, 0o755, 0o444},
		{"its directory", 0o755, 0o555, 0o644},
		{"where its directory would be", 0o555, 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			// A test's own directory is inside one that is root's alone.
			dir, err := os.MkdirTemp("", "glovebox-read-only-")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = os.Chmod(dir, 0o755)
				_ = os.Chmod(filepath.Dir(database(dir)), 0o755)
				_ = os.RemoveAll(dir)
			})
			if test.data != 0 {
				store, err := sqlite.Open(t.Context(), database(dir), sqlite.Options{})
				if err != nil {
					t.Fatal(err)
				}
				if err := store.Close(); err != nil {
					t.Fatal(err)
				}
				for path, mode := range map[string]os.FileMode{database(dir): test.stored, filepath.Dir(database(dir)): test.data} {
					if err := os.Chmod(path, mode); err != nil {
						t.Fatal(err)
					}
				}
				if err := os.Remove(database(dir) + ".lock"); err != nil && os.Geteuid() == 0 {
					t.Fatal(err)
				}
			}
			if err := os.Chmod(dir, test.parent); err != nil {
				t.Fatal(err)
			}
			output, err := rerun(t, dir, "read-only").CombinedOutput()
			text := string(output)
			if err != nil || !strings.Contains(text, "true open database "+database(dir)+": "+memory.ErrReadOnly.Error()) || !strings.Contains(text, "make the directory and the file writable") {
				t.Errorf("%v, %s", err, text)
			}
		})
	}
}
