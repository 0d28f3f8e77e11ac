package registry_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/registry"
	"github.com/gloveboxhq/glovebox/host/sandbox"
)

// The operator's word is for one file.
func TestUnsignedNeedsADigest(t *testing.T) {
	engine, err := sandbox.New(sandbox.Config{CacheDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	r := registry.Request{Name: "hand", Module: module(1, nil), Unsigned: true}
	if _, err := registry.Open(t.Context(), engine, r); !errors.Is(err, abi.KindNotGranted) || !strings.Contains(err.Error(), "digest") {
		t.Errorf("without a digest: %v", err)
	}
	r.Digest = sandbox.Digest(r.Module)
	if _, err := registry.Open(t.Context(), engine, r); err != nil {
		t.Error(err)
	}
}
