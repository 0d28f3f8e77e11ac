package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An export replaces a file, also behind a link, but never one of glovebox's own, and what
// is no file is written to.
func TestExportReplacesFilesOnly(t *testing.T) {
	home, dir := t.TempDir(), t.TempDir()
	glovebox := commandOn(home)
	if code, _, errs := glovebox("chat"); code != 0 {
		t.Fatal(errs)
	}
	if code, _, errs := glovebox("token", "create"); code != 0 {
		t.Fatal(errs)
	}
	if err := os.WriteFile(filepath.Join(home, "glovebox.toml"), []byte("[server]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"glovebox.db", "glovebox.db.lock", "hands.db", "tokens.json", "tokens.json.lock", "glovebox.toml"} {
		path := filepath.Join(home, name)
		link := filepath.Join(dir, name)
		if err := os.Symlink(path, link); err != nil {
			t.Skip(err)
		}
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, output := range []string{path, link} {
			if code, _, errs := glovebox("user", "export", "default", "-o", output); code != exitFailed || !strings.Contains(errs, "own files") {
				t.Errorf("export to %s ended with %d: %s", output, code, errs)
			}
			if code, _, errs := glovebox("memory", "export", "-o", output); code != exitFailed {
				t.Errorf("export of memory to %s ended with %d: %s", output, code, errs)
			}
		}
		if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
			t.Errorf("%s changed: %v", name, err)
		}
	}
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(file, []byte("old"), 0o600), os.Symlink(file, link)); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := glovebox("user", "export", "default", "-o", link); code != 0 {
		t.Fatal(errs)
	}
	if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), "hello") {
		t.Errorf("the file behind the link has %q, %v", text, err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link was replaced: %v, %v", info, err)
	}
	// A directory stands for all that is no file: nobody's device is at stake.
	if err := writeFile(dir, func(io.Writer) error { return nil }); err == nil {
		t.Error("a directory was written")
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(dir), ".*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
