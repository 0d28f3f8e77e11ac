package main

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/abi"
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
