package manifest_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/abi/manifest"
)

const whole = `
name = "calendar"
version = "1.2.3-rc.1+build"
abi = 1
description = "Reads calendars"
authors = ["A. Author <a@example.com>"]
license = "Apache-2.0"
homepage = "https://example.com"

[[permissions]]
capability = "files"
reason = "Reads the .ics files in the folder you name."
paths = ["calendars"]

[config.horizon_hours]
type = "integer"
default = 24
description = "How far ahead to look."

[config.ratio]
type = "number"
default = 1

[config.names]
type = "list"

[config.owner]
type = "string"
required = true

[limits]
timeout_secs = 5
`

func TestParseWhole(t *testing.T) {
	m, err := manifest.Parse([]byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	p, ok := m.Permission(abi.CapabilityFiles)
	if !ok || len(p.Paths) != 1 || p.Paths[0] != "calendars" || m.Limits.Wish().Timeout.Seconds() != 5 {
		t.Errorf("got %+v", m)
	}
	values, err := m.Configure(map[string]any{"owner": "me", "names": []any{"a", "b"}})
	if err != nil {
		t.Fatal(err)
	}
	if values["horizon_hours"] != int64(24) || values["ratio"] != float64(1) || len(values["names"].([]string)) != 2 {
		t.Errorf("configured %#v", values)
	}
}

func TestParseRefuses(t *testing.T) {
	head := "name = \"a\"\nversion = \"1.0.0\"\nabi = 1\n"
	for _, test := range []struct{ name, doc, says string }{
		{"no name", "version = \"1.0.0\"\nabi = 1", "name"},
		{"upper case name", strings.Replace(head, `"a"`, `"Calendar"`, 1), "name"},
		{"name of a path", strings.Replace(head, `"a"`, `"../x"`, 1), "name"},
		{"short version", strings.Replace(head, "1.0.0", "1.0", 1), "version"},
		{"no abi", "name = \"a\"\nversion = \"1.0.0\"", "abi is missing"},
		{"unknown key", head + "colour = \"red\"", "line 4, column 1: colour: unknown key"},
		{"a negative limit", head + "[limits]\nmemory_mib = -1", "limits.memory_mib = -1"},
		{"a limit that nobody can count to", head + "[limits]\ntimeout_secs = 18446744074", "limits.timeout_secs = 18446744074"},
		{"unknown nested key", head + "[limits]\nspeed = 1", "line 5, column 1"},
		{"wrong type", head + "description = 4", "line 4"},
		{"broken TOML", head + "description = \"", "line 4"},
		{"unknown capability", head + "[[permissions]]\ncapability = \"shell\"\nreason = \"r\"", "shell"},
		{"no reason", head + "[[permissions]]\ncapability = \"http\"\nhosts = [\"a.example\"]", "reason"},
		{"scope of another capability", head + "[[permissions]]\ncapability = \"kv\"\nreason = \"r\"\nhosts = [\"a.example\"]", "hosts belongs to"},
		{"fewer tokens than none", head + "[[permissions]]\ncapability = \"llm\"\nreason = \"r\"\nmax_tokens = -1", "max_tokens = -1"},
		{"more hosts than anybody reads", head + "[[permissions]]\ncapability = \"http\"\nreason = \"r\"\nhosts = [" + strings.Repeat("\"https://a.example\", ", 33) + "]", "33 hosts"},
		{"a longer host than anybody reads", head + "[[permissions]]\ncapability = \"http\"\nreason = \"r\"\nhosts = [\"https://a.example/" + strings.Repeat("a", 200) + "\"]", "hosts: an entry of 218 bytes"},
		{"any host and another", head + "[[permissions]]\ncapability = \"http\"\nreason = \"r\"\nhosts = [\"*\", \"https://a.example\"]", "stands alone"},
		{"files without paths", head + "[[permissions]]\ncapability = \"files\"\nreason = \"r\"", "paths"},
		{"twice", head + strings.Repeat("[[permissions]]\ncapability = \"kv\"\nreason = \"r\"\n", 2), "twice"},
		{"secret config", head + "[config.k]\ntype = \"string\"\nsecret = true", "secret"},
		{"config type", head + "[config.k]\ntype = \"date\"", "config.k"},
		{"config name that steers a terminal", head + "[config.\"a\\u001b[31m\\nb\"]\ntype = \"string\"", `config."a\x1b[31m\nb": use`},
		{"unknown key that steers a terminal", head + "[limits]\n\"a\\u001b[31m\\nb\" = 1", `limits."a\x1b[31m\nb": unknown key`},
		{"config default", head + "[config.k]\ntype = \"integer\"\ndefault = \"x\"", "config.k: default"},
		{"not UTF-8", head + "description = \"\xff\"", "UTF-8"},
		{"too long", head + "# " + strings.Repeat("x", manifest.MaxBytes), "at most"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := manifest.Parse([]byte(test.doc)); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want %q in it", err, test.says)
			}
		})
	}
	if _, err := manifest.Parse([]byte(strings.Replace(head, "abi = 1", "abi = 2", 1))); !errors.Is(err, abi.KindABIMismatch) {
		t.Errorf("abi 2: %v", err)
	}
}

func TestConfigureRefuses(t *testing.T) {
	m, err := manifest.Parse([]byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		values map[string]any
		says   string
	}{
		{map[string]any{}, "config.owner"},
		{map[string]any{"owner": int64(1)}, "config.owner"},
		{map[string]any{"owner": "me", "colour": "red"}, "config.colour"},
		{map[string]any{"owner": "me", "names": []any{int64(1)}}, "config.names"},
		{map[string]any{"owner": "me", "horizon_hours": 1.5}, "config.horizon_hours"},
	} {
		if _, err := m.Configure(test.values); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%v: got %v, want %q in it", test.values, err, test.says)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := manifest.Parse(data)
		if err == nil && !manifest.ValidName(m.Name) {
			t.Fatalf("accepted the name %q", m.Name)
		}
	})
}
