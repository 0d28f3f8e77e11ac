package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The figures that a change must not lose; docs/search.md has the real ones.
func TestRecall(t *testing.T) {
	data := filepath.Join("..", "..", "..", "..", "shared", "data", "locomo_dev.json")
	if _, err := os.Stat(data); errors.Is(err, fs.ErrNotExist) {
		t.Skip("the conversations with questions are not beside the project: " + data)
	}
	if testing.Short() {
		t.Skip("it asks a thousand questions three times")
	}
	var out bytes.Buffer
	if err := run(t.Context(), data, true, &out); err != nil {
		t.Fatal(err)
	}
	var results []measured
	if err := json.Unmarshal(out.Bytes(), &results); err != nil {
		t.Fatal(err)
	}
	plain, neighbours, ours := results[0], results[1], results[2]
	for _, test := range []struct {
		what        string
		got, atMost float64
	}{
		{"all @10", ours.Recall[10], 100}, {"plain FTS5 @10", plain.Recall[10], 62}, {"FTS5 with neighbours @10", neighbours.Recall[10], 78},
	} {
		if test.got > test.atMost {
			t.Errorf("%s: %.1f is more than can be", test.what, test.got)
		}
	}
	for _, test := range []struct {
		what         string
		got, atLeast float64
	}{
		{"all @10", ours.Recall[10], 80}, {"multi-hop @10", ours.Categories["multi-hop"][10], 47},
		{"open-domain @10", ours.Categories["open-domain"][10], 41}, {"within 2,048 tokens", ours.Within[2048], 90},
	} {
		if test.got < test.atLeast {
			t.Errorf("%s: %.1f %% of the evidence, want %.0f", test.what, test.got, test.atLeast)
		}
	}
}

const small = `[{"id":"c","sessions":[{"date":"1:56 pm on 8 May, 2023","turns":[
	{"id":"1","speaker":"Anna","text":"What did you plant in the garden?"},
	{"id":"2","speaker":"Bert","text":"Two apple trees and a hedge."},
	{"id":"3","speaker":"Anna","text":"Lovely."}]}],
	"questions":[{"question":"What did Bert plant?","category":4,"evidence":["2"]}]}]`

func TestEachMethodRanks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data.json")
	if err := os.WriteFile(path, []byte(small), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run(t.Context(), path, true, &out); err != nil {
		t.Fatal(err)
	}
	var results []measured
	if err := json.Unmarshal(out.Bytes(), &results); err != nil {
		t.Fatal(err)
	}
	// The answer has none of the words: only what stands beside it does.
	if plain, ours := results[0], results[2]; plain.Recall[5] != 0 && plain.Recall[5] != 100 || ours.Recall[5] != 100 || ours.Within[512] != 100 {
		t.Errorf("%+v", results)
	}
	out.Reset()
	if err := run(t.Context(), path, false, &out); err != nil || !strings.Contains(out.String(), "evidence recall@10") {
		t.Errorf("%v: %s", err, out.String())
	}
	for name, content := range map[string]string{"no JSON": "{", "no date": strings.Replace(small, "1:56 pm on 8 May, 2023", "yesterday", 1)} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := run(t.Context(), path, true, &out); err == nil {
			t.Errorf("%s is read", name)
		}
	}
	if err := run(t.Context(), "", true, &out); err == nil {
		t.Error("no file is read")
	}
}
