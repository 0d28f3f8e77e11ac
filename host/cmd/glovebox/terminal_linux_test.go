package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gloveboxhq/glovebox/plugins"
)

// terminal returns both ends of a terminal.
func terminal(t *testing.T) (keys, screen *os.File) {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no terminals here: ", err)
	}
	t.Cleanup(func() { keys.Close() })
	if err := unix.IoctlSetPointerInt(int(keys.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Skip(err)
	}
	fd, err := unix.IoctlRetInt(int(keys.Fd()), unix.TIOCGPTPEER)
	if err != nil {
		t.Skip(err)
	}
	screen = os.NewFile(uintptr(fd), "terminal")
	t.Cleanup(func() { screen.Close() })
	return keys, screen
}

// A person at a terminal is shown the hand, and asked; only yes is an agreement.
func TestInstallAsks(t *testing.T) {
	module, err := plugins.Module("calendar")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file, home := filepath.Join(dir, "calendar.wasm"), filepath.Join(dir, "home")
	write(t, file, string(module))
	for _, test := range []struct {
		types, json string
		code        int
	}{{"n\n", "", exitFailed}, {"\n", "", exitFailed}, {"yes please\n", "", exitFailed}, {"y\n", "--json", 0}, {"Y\n", "", 0}} {
		keys, screen := terminal(t)
		if _, err := keys.WriteString(test.types); err != nil {
			t.Fatal(err)
		}
		arguments := []string{"hand", "install", file, "--name", "agenda", "--unsigned", "--files", "calendars=" + dir, "--data", home}
		if test.json != "" {
			arguments = append(arguments, test.json)
		}
		var out, errs bytes.Buffer
		code := run(arguments, screen, &out, &errs)
		shown := out.String()
		if test.json != "" {
			shown = errs.String()
		}
		if code != test.code || !strings.Contains(errs.String(), "Agree to this? [y/N] ") || !strings.Contains(shown, "asks for    files calendars\n            because: Reads the .ics files") {
			t.Errorf("%q: %d, %s%s", test.types, code, out.String(), errs.String())
		}
		_, err := os.Stat(filepath.Join(home, "glovebox.lock"))
		if (err == nil) != (test.code == 0) {
			t.Errorf("%q: %v", test.types, err)
		}
	}
}
