package constants_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/sdk/internal/constants"
)

var update = flag.Bool("update", false, "write the files")

func TestFilesAgree(t *testing.T) {
	files, err := constants.Files()
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for name, want := range files {
		file := filepath.Join("..", "..", filepath.FromSlash(name))
		if *update {
			if err := os.WriteFile(file, want, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Errorf("%v: run go generate ./sdk/internal/constants", err)
			continue
		}
		if !bytes.Equal(got, want) {
			t.Errorf("sdk/%s is not what the contract says: run go generate ./sdk/internal/constants", name)
		}
	}
}

func TestTable(t *testing.T) {
	table := constants.Of()
	if n := len(table.Kinds); n == 0 || table.Kinds[n-1] != (constants.Number{Name: "unavailable", Value: int64(abi.KindUnavailable.Code())}) {
		t.Errorf("kinds %v", table.Kinds)
	}
	if n := len(table.Modules); n != 1+len(abi.Capabilities()) {
		t.Errorf("modules %v", table.Modules)
	}
	if n := len(table.Levels); n != 4 || table.Levels[3].Name != "error" {
		t.Errorf("levels %v", table.Levels)
	}
	// A text of every code point costs what the ranges say.
	total, inRanges := 0, 0
	var text []byte
	for _, r := range table.Weights {
		if r.First > r.Last || r.Quarters == table.PlainQuarters {
			t.Errorf("range %+v", r)
		}
		for c := r.First; c <= r.Last; c++ {
			text = append(text, string(c)...)
			total += r.Quarters
			inRanges++
		}
	}
	if got := tokens.Estimate(string(text)); got != (total+table.QuartersPerToken-1)/table.QuartersPerToken || inRanges == 0 {
		t.Errorf("%d code points cost %d tokens, by the ranges %d quarters", inRanges, got, total)
	}
}
