// Package golden holds whole replies of a bundled hand against the archives in its
// testdata, in its tests.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "write the replies of testdata/*.txtar anew")

// Replies has ask answer with each archive of testdata, in a subtest of its name, and
// compares that with the archive's file "reply", which ends with a newline that the
// reply does not have. With -update it writes that file instead. Ask is given the
// other files.
func Replies(t *testing.T, ask func(t *testing.T, files []txtar.File) string) {
	t.Helper()
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(archives) == 0 {
		t.Fatalf("no archives: %v", err)
	}
	for _, name := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			var files []txtar.File
			var reply *txtar.File
			for i, f := range archive.Files {
				if f.Name == "reply" {
					reply = &archive.Files[i]
				} else {
					files = append(files, f)
				}
			}
			if reply == nil {
				t.Fatal("the archive has no reply")
			}
			got := ask(t, files) + "\n"
			if *update {
				reply.Data = []byte(got)
				if err := os.WriteFile(name, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(reply.Data) {
				t.Errorf("reply:\n%s\nwant:\n%s", got, reply.Data)
			}
		})
	}
}
