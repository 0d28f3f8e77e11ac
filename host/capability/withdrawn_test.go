package capability_test

import (
	"context"
	"errors"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/capability"
	"github.com/gloveboxhq/glovebox/host/llm"
)

// A port whose grant is withdrawn allows nothing more, also not what it allowed a
// moment ago, tells nobody of what was wanted, and records each refusal.
func TestWithdrawnGrant(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.txt"), "inside")
	ledger := openLedger(t, filepath.Join(t.TempDir(), "hands.db"))
	why, outside := "", 0
	caller := capability.Caller{Hand: "fetcher", Subject: "s", Withdrawn: func() string { return why }}
	files := capability.NewFiles(ledger, caller, map[string]string{"docs": dir})
	t.Cleanup(func() { files.Close() })
	kv := capability.NewKV(ledger, caller, abi.Limits{KVTotalBytes: 100, KVValueBytes: 10})
	model := capability.NewLLM(ledger, caller, scriptedModel(func(context.Context, llm.Request) (llm.Response, error) {
		outside++
		return llm.Response{Text: "x"}, nil
	}))
	requests := capability.NewHTTP(ledger, caller, grantHTTP(t, capability.HTTPConfig{Hosts: []string{"https://a.example"}}), &capability.Egress{
		Lookup: func(context.Context, string) ([]netip.Addr, error) {
			outside++
			return nil, errors.New("nobody knows")
		}})
	t.Cleanup(func() { requests.Close() })
	calls := map[capability.Action]func() error{
		capability.ActionFilesRead: func() error {
			_, err := files.Read(t.Context(), abi.FilesReadRequest{Root: "docs", Path: "a.txt", Length: 10})
			return err
		},
		capability.ActionKVSet: func() error {
			return kv.Set(t.Context(), abi.KVSetRequest{Key: "k", Value: []byte("v")})
		},
		capability.ActionLLMComplete: func() error {
			_, err := model.Complete(t.Context(), abi.LLMCompleteRequest{Prompt: "p", MaxOutputTokens: 1})
			return err
		},
		capability.ActionHTTPFetch: func() error {
			_, _, err := get(t, requests, "https://a.example/")
			return err
		},
	}
	for action, call := range calls {
		if err := call(); errors.Is(err, abi.KindDisabled) {
			t.Errorf("%s before: %v", action, err)
		}
	}
	why = "it was taken back"
	before := outside
	for action, call := range calls {
		if err := call(); !errors.Is(err, abi.KindDisabled) {
			t.Errorf("%s after: %v", action, err)
		}
		if d := lastDecision(t, ledger); d.Action != action || d.Allowed || d.Reason != why {
			t.Errorf("%s: recorded is %+v", action, d)
		}
	}
	if before != 2 || outside != before {
		t.Errorf("%d went out before, %d after", before, outside-before)
	}
}
