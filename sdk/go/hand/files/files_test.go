package files_test

import (
	"errors"
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/sdk/go/hand/files"
)

func TestRootGivenByATest(t *testing.T) {
	ctx := files.WithRoot(t.Context(), "docs", fstest.MapFS{"a.txt": {Data: []byte("hello")}})
	if data, err := fs.ReadFile(files.Root(ctx, "docs"), "a.txt"); err != nil || string(data) != "hello" {
		t.Errorf("%q, %v", data, err)
	}
}

// Outside a hand there is no host to ask, and the error says so in the terms
// of io/fs. How it behaves inside is tested in host/sandbox.
func TestRootOutsideAHand(t *testing.T) {
	fsys := files.Root(t.Context(), "docs")
	for name, call := range map[string]func() error{
		"open":     func() error { _, err := fsys.Open("a.txt"); return err },
		"stat":     func() error { _, err := fs.Stat(fsys, "."); return err },
		"readdir":  func() error { _, err := fs.ReadDir(fsys, "."); return err },
		"readfile": func() error { _, err := fs.ReadFile(fsys, "a.txt"); return err },
	} {
		if err := call(); !errors.Is(err, fs.ErrPermission) || !errors.Is(err, abi.KindDisabled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := fsys.Open("../a"); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("a path that is none: %v", err)
	}
}
