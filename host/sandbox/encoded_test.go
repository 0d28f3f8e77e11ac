package sandbox_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/sandbox"
)

func loadBroken(t *testing.T, engine *sandbox.Engine, name string) *sandbox.Module {
	t.Helper()
	bytes, err := os.ReadFile(filepath.Join("..", "..", "testdata", "abi", "broken", name+".wasm"))
	if err != nil {
		t.Fatal(err)
	}
	module, err := engine.Load(t.Context(), bytes, sandbox.Options{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return module
}

// A query that is encoded already reaches the guest byte by byte, and its own limit
// holds.
func TestQueryEncoded(t *testing.T) {
	engine := newEngine(t, sandbox.Config{})
	size := loadBroken(t, engine, "reads-size")
	for query, want := range map[string]string{`{}`: "c", ` {"a":{"b":[]}} `: "q"} {
		result, err := size.QueryEncoded(t.Context(), []byte(query), sandbox.Ports{})
		if got := boundary.Neutral(result.Reply); err != nil || got != want {
			t.Errorf("%s: %q, %v", query, got, err)
		}
	}
	long := loadBroken(t, engine, "ignores-budget")
	result, err := long.QueryEncoded(t.Context(), []byte(`{"max_output_tokens":16}`), sandbox.Ports{})
	if err != nil || !result.Cut || result.Reply.Tokens() > 16 {
		t.Errorf("cut %t to %d tokens, %v", result.Cut, result.Reply.Tokens(), err)
	}
	if result, err := long.QueryEncoded(t.Context(), []byte(`{}`), sandbox.Ports{}); err != nil || result.Cut {
		t.Errorf("without a limit of its own it is cut: %v", err)
	}
	for _, query := range [][]byte{nil, []byte("{"), []byte("[]"), []byte(`{"max_output_tokens":"x"}`), append([]byte("{}"), bytes.Repeat([]byte(" "), abi.MaxRequestBytes-1)...)} {
		if _, err := size.QueryEncoded(t.Context(), query, sandbox.Ports{}); !errors.Is(err, abi.KindBadRequest) {
			t.Errorf("%.20q: %v", query, err)
		}
	}
}

// What a guest wrote is known to the byte, without a word of it, in a world without
// chance alone.
func TestExactDigests(t *testing.T) {
	engine := newEngine(t, sandbox.Config{})
	fixed := sandbox.Ports{Fixed: &sandbox.Fixed{Now: time.Unix(0, 0)}}
	nothing := sha256.Sum256(nil)
	result, err := loadBroken(t, engine, "not-text").Query(t.Context(), abi.Query{}, fixed)
	if err != nil || result.Exact == nil || *result.Exact != (sandbox.Exact{Reply: sha256.Sum256([]byte("\xff\xfe")), Said: nothing, Log: nothing}) {
		t.Errorf("%+v, %v", result.Exact, err)
	}
	failing := loadBroken(t, engine, "polite-failure")
	result, err = failing.Query(t.Context(), abi.Query{}, fixed)
	if !errors.Is(err, abi.KindHandFailed) || result.Exact == nil || *result.Exact != (sandbox.Exact{Reply: nothing, Said: sha256.Sum256([]byte("no such ward")), Log: nothing}) {
		t.Errorf("%+v, %v", result.Exact, err)
	}
	if result, _ := failing.Query(t.Context(), abi.Query{}, sandbox.Ports{}); result.Exact != nil {
		t.Error("there are digests in a world with chance")
	}
}
