package build_test

import (
	"os"
	"testing"
)

var temporaries []string

// temporary makes a folder that is there until the last test has run.
func temporary() (string, error) {
	dir, err := os.MkdirTemp("", "glovebox-c-")
	temporaries = append(temporaries, dir)
	return dir, err
}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, dir := range temporaries {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}
