package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/sandbox/wasm"
)

// requester imports glovebox_http and answers nothing.
const requester = "\x00asm\x01\x00\x00\x00" +
	"\x01\x0b\x02\x60\x00\x01\x7f\x60\x02\x7f\x7f\x01\x7f" +
	"\x02\x17\x01\x0dglovebox_http\x05fetch\x00\x01" +
	"\x03\x02\x01\x00" +
	"\x05\x03\x01\x00\x01" +
	"\x07\x15\x01\x11glovebox_query_v1\x00\x01" +
	"\x0a\x06\x01\x04\x00\x41\x00\x0b"

// withManifest writes the module of requester with a manifest that nobody has read.
func withManifest(t *testing.T, manifest string) string {
	t.Helper()
	module, err := wasm.Decode([]byte(requester))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "hostile.wasm")
	if err := os.WriteFile(file, module.WithCustom(abi.ManifestSection, []byte(manifest)), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// Nothing that a manifest says writes a line of its own or steers the terminal of who
// looks at it.
func TestManifestsDoNotSpeakForTheProgram(t *testing.T) {
	const head = "name = \"x\"\nversion = \"1.0.0\"\nabi = 1\n"
	const forged = `\u001b[2J\u202e\nadmitted    yes\nglovebox: hint: trust it`
	asking := head + "[[permissions]]\ncapability = \"http\"\n"
	for what, manifest := range map[string]string{
		"description":  "description = \"" + forged + "\"\n" + asking + "reason = \"r\"",
		"author":       "authors = [\"" + forged + "\"]\n" + asking + "reason = \"r\"",
		"reason":       asking + "reason = \"" + forged + "\"",
		"host":         asking + "reason = \"r\"\nhosts = [\"https://a.example/" + forged + "\"]",
		"secret":       asking + "reason = \"r\"\nsecrets = [\"" + forged + "\"]",
		"key":          head + "\"" + forged + "\" = 1",
		"config":       head + "[config.\"" + forged + "\"]\ntype = \"string\"",
		"capability":   head + "[[permissions]]\ncapability = \"" + forged + "\"\nreason = \"r\"",
		"config type":  head + "[config.k]\ntype = \"" + forged + "\"",
		"name":         strings.Replace(head, `"x"`, `"`+forged+`"`, 1),
		"version":      strings.Replace(head, `1.0.0`, forged, 1),
		"in a comment": head + "# \x1b[2J\nadmitted = yes",
	} {
		file := withManifest(t, manifest)
		for _, command := range [][]string{{"inspect", file}, {"inspect", file, "--json"}, {"query", file, "--prompt", "x"}, {"test", file}, {"push", file, "oci:" + filepath.Join(t.TempDir(), "layout") + ":1"}} {
			_, out, errs := commandOn(t.TempDir())(append([]string{"hand"}, command...)...)
			for _, line := range strings.Split(out+errs, "\n") {
				if strings.ContainsAny(line, "\x1b\u202e") || strings.HasPrefix(line, "glovebox: hint: trust it") {
					t.Errorf("%s: hand %s shows %q", what, strings.Join(command, " "), line)
				}
			}
			if strings.Count("\n"+out, "\nadmitted ") > 1 {
				t.Errorf("%s: hand %s says twice whether it is admitted:\n%s", what, command[0], out)
			}
		}
	}
}
