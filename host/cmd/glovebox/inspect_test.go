package main

import (
	"encoding/hex"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/sandbox/wasm"
)

// Whatever an author writes into a manifest is shown as plain text, also what a parser
// of rules has not seen yet; and nothing of what is asked for is left out.
func TestInspectShowsAllAsPlainText(t *testing.T) {
	// It imports glovebox_http.fetch, and exports a memory and the entry.
	fetching, err := hex.DecodeString("0061736d01000000010b0260027f7f017f6000017f0217010d676c6f7665626f785f687474700566657463680000030201010503010001071e02066d656d6f7279020011676c6f7665626f785f71756572795f763100010a0601040041000b")
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := wasm.Decode(fetching)
	if err != nil {
		t.Fatal(err)
	}
	seen, err := inspect(decoded.WithCustom(abi.ManifestSection, []byte("name = \"hand\"\nversion = \"1.0.0\"\nabi = 1\n[[permissions]]\ncapability = \"http\"\n"+
		"hosts = [\"https://a.example\\u001b[31m\", \"b\\u202eb\\nadmitted    yes\"]\nsecrets = [\"token\\u001b]0;x\\u0007\"]\nreason = \"r\"\n")))
	if err != nil {
		t.Fatal(err)
	}
	var shown strings.Builder
	(&app{stdout: &shown}).printInspection(seen)
	if text := shown.String(); strings.ContainsAny(text, "\x1b\u202e\a") || strings.Contains(text, "\nadmitted    yes\nadmitted") || !strings.Contains(text, "secret token") {
		t.Errorf("it shows %q", text)
	}
	if text := fmt.Sprint(seen.Permissions); strings.ContainsAny(text, "\x1b\u202e\a\n") {
		t.Errorf("it tells %q", text)
	}
}

// What keeps a module from an image is shown by its name.
func TestInspectTellsWhatAnImageCannotCarry(t *testing.T) {
	// It exports a memory and the entry, and has a passive data segment.
	const plain = "0061736d010000000105016000017f03020100050301000107" + "1e02066d656d6f7279020011676c6f7665626f785f71756572795f76310000" + "0a0601040041000b"
	for module, want := range map[string]string{
		plain:                  "yes",
		plain + "0b0401010178": "no, each query begins from nothing: data segment 0 is",
	} {
		decoded, err := hex.DecodeString(module)
		if err != nil {
			t.Fatal(err)
		}
		seen, err := inspect(decoded)
		if err != nil {
			t.Fatal(err)
		}
		var shown strings.Builder
		(&app{stdout: &shown}).printInspection(seen)
		if !regexp.MustCompile(`(?m)^image +` + want).MatchString(shown.String()) {
			t.Errorf("want %q:\n%s", want, shown.String())
		}
	}
}

// A hand that is named on the command line is compiled into the user's cache, and keeps to
// the bounds that it has.
func TestQueryOfAModuleKeepsToTheUsersEngine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "glovebox.toml")
	write(t, path, "[engine]\ncache_mib = 30\n")
	a := &app{configPath: path, stderr: io.Discard}
	config, cleanup, err := a.queryConfig("bundled:notes", "", grantFlags{}, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer cleanup()
	if want := (host.EngineConfig{CacheMiB: 30}); config.Engine != want {
		t.Errorf("%+v, want %+v", config.Engine, want)
	}
	write(t, path, "[engine]\ncache_mib = -1\n")
	if _, _, err := a.queryConfig("bundled:notes", "", grantFlags{}, nil, 0); err == nil || !strings.Contains(err.Error(), "cache_mib") {
		t.Error(err)
	}
}
