package source_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/host/registry/source"
)

const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestParse(t *testing.T) {
	for _, test := range []struct {
		text string
		kind source.Kind
		want string // "" means as it is written
		tag  string
		pin  string
	}{
		{"hand.wasm", source.File, "", "", ""},
		{"./hand.wasm", source.File, "hand.wasm", "", ""},
		{"../build/hand.wasm", source.File, "", "", ""},
		{"/srv/hands/tickets 1.0.wasm#" + digest, source.File, "", "", digest},
		{"c#/hand.wasm", source.File, "", "", ""},
		{"./oci:x", source.File, "", "", ""},
		{"/a/../b//hand.wasm", source.File, "/b/hand.wasm", "", ""},
		{"https://example.com/hand.wasm", source.Web, "", "", ""},
		{"HTTPS://Example.COM:443/a/hand.wasm?v=1#" + digest, source.Web, "https://example.com/a/hand.wasm?v=1#" + digest, "", digest},
		{"https://[::1]:8443/hand.wasm", source.Web, "", "", ""},
		{"http://127.0.0.1:8080/hand.wasm", source.Web, "", "", ""},
		{"http://localhost/hand.wasm", source.Web, "", "", ""},
		{"oci://ghcr.io/author/tickets", source.Registry, "", "", ""},
		{"oci://ghcr.io/author/tickets:1.2.3", source.Registry, "", "1.2.3", ""},
		{"oci://GHCR.io/author/tickets@" + digest, source.Registry, "oci://ghcr.io/author/tickets@" + digest, "", digest},
		{"oci://localhost:5000/tickets:v1@" + digest, source.Registry, "", "v1", digest},
		{"oci://localhost/tickets", source.Registry, "", "", ""},
		{"oci://[::1]:5000/tickets:1", source.Registry, "", "1", ""},
		{"oci:layout", source.Layout, "", "", ""},
		{"oci:./out/layout/:1.0", source.Layout, "oci:out/layout:1.0", "1.0", ""},
		{"oci:../layout:1.0@" + digest, source.Layout, "", "1.0", digest},
		{"oci:/srv/a:b/layout", source.Layout, "", "", ""},
	} {
		ref, err := source.Parse(test.text)
		if err != nil {
			t.Error(err)
			continue
		}
		want := test.want
		if want == "" {
			want = test.text
		}
		if ref.Kind() != test.kind || ref.String() != want || ref.Tag() != test.tag || ref.Pin() != test.pin {
			t.Errorf("%s: %s %s, tag %q, pin %q", test.text, ref.Kind(), ref, ref.Tag(), ref.Pin())
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, say := range map[string]string{
		"":                                 "it is empty",
		" hand.wasm":                       "space around it",
		"hand.wasm\n":                      "space around it",
		"hand\x00.wasm":                    `'\x00'`,
		"hand\x1b[2J.wasm":                 "cannot be seen",
		"hand\u202egnp.wasm":               `'\u202e'`,
		"hand\u200b.wasm":                  "cannot be seen",
		"hand\xff.wasm":                    "not UTF-8",
		strings.Repeat("a", 2049):          "at most 2048",
		"build/":                           "names a folder",
		"hand.wasm#sha256:12":              "64 of 0-9",
		"hand.wasm#" + upper(digest):       "64 of 0-9",
		"#" + digest:                       "names no file",
		"file:///srv/hand.wasm":            "write the path of the file alone: /srv/hand.wasm",
		"ftp://example.com/hand.wasm":      "nothing is fetched by ftp",
		"docker://ghcr.io/a/b":             "oci://",
		"git+ssh://example.com/x":          "nothing is fetched by git+ssh",
		"bundled:calendar":                 "part of glovebox already",
		"http://example.com/hand.wasm":     "write https://example.com",
		"http://127.0.0.1.nip.io/x":        "write https://",
		"https://example.com":              "names no file",
		"https://example.com/":             "names no file",
		"https:///hand.wasm":               "names no host",
		"https:hand.wasm":                  "names no host",
		"https://example.com:0/x":          "port",
		"https://example.com:99999/x":      "port",
		"https://example.com:/x":           "port",
		"https://u:p@example.com/x":        "user or a password",
		"https://u@example.com/x":          "user or a password",
		"https://exаmple.com/x":            "in ASCII",
		"https://example.com/a/../x":       `".."`,
		"https://example.com/%2e%2E/x":     `".."`,
		"https://example.com/a/./x":        `"."`,
		"https://example.com/..%2fx":       "%2F",
		`https://example.com/..\x`:         "character",
		"https://example.com/%00x":         "character",
		"https://example.com/x%0d%0aY":     "character",
		"https://example.com/%ff":          "character",
		"https://example.com/x#frag":       "only a digest",
		"https://example.com/x#":           "only a digest",
		"https://example.com/%zz":          "invalid URL escape",
		"https://[fe80::1%25eth0]/x":       "%",
		"oci://":                           "names no repository",
		"oci://tickets":                    "names no repository",
		"oci://ghcr.io/":                   "names no repository",
		"oci://author/tickets:1":           "has a dot or a port",
		"oci://ghcr.io/Author/tickets":     "a-z",
		"oci://ghcr.io/a/../b":             "a-z",
		"oci://ghcr.io/a//b":               "a-z",
		"oci://ghcr.io/a:b/c":              "tag",
		"oci://ghcr.io/a:":                 "tag",
		"oci://ghcr.io/a:.x":               "tag",
		"oci://ghcr.io/a@sha256:12":        "64 of 0-9",
		"oci://ghcr.io/a@sha512:12":        "64 of 0-9",
		"oci://ghcr.io/a@" + digest + "/b": "user or a password",
		"oci://u:p@ghcr.io/a":              "user or a password",
		"oci://ghcr.io:0/a":                "host of a registry",
		"oci://ghcr.io?x/a":                "host of a registry",
		"oci://gһcr.io/a":                  "in ASCII",
		"oci:":                             "names no folder",
		"oci::1":                           "names no folder",
		"oci:dir:":                         "tag",
		"oci:dir:a b":                      "tag",
		"oci:dir@sha256:1":                 "64 of 0-9",
		"oci:a:b/":                         "colon",
	} {
		ref, err := source.Parse(text)
		if !errors.Is(err, source.ErrReference) || !strings.Contains(err.Error(), say) {
			t.Errorf("%q: %s, %v: want %q", text, ref, err, say)
		}
		if err != nil && (strings.ContainsAny(err.Error(), "\x00\x1b\n\u202e") || len(err.Error()) > 1000 || strings.Contains(err.Error(), ":p@")) {
			t.Errorf("%q: the error itself is not fit to be shown: %q", text, err)
		}
	}
}

func upper(digest string) string {
	return "sha256:" + strings.ToUpper(strings.TrimPrefix(digest, "sha256:"))
}

// What Parse takes reads back as itself, and hides nothing.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"hand.wasm", "./oci:x", "/a b/c.wasm#" + digest, "https://example.com:443/a?b#" + digest, "http://[::1]/x",
		"oci://ghcr.io/a/b:1@" + digest, "oci:dir:tag", "oci:a:b/", "oci:./a/..:t", "https://u@h/..", "\x00",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ref, err := source.Parse(text)
		if err != nil {
			if !errors.Is(err, source.ErrReference) {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		again, err := source.Parse(ref.String())
		if err != nil || again.String() != ref.String() || again.Kind() != ref.Kind() || again.Tag() != ref.Tag() || again.Pin() != ref.Pin() {
			t.Fatalf("%q reads as %q and then as %q, %v", text, ref, again, err)
		}
		if ref.Kind() != source.File && ref.Kind() != source.Layout && strings.Contains(ref.String(), "@") && ref.Kind() == source.Registry && ref.Pin() == "" {
			t.Fatalf("%q: a user in %q", text, ref)
		}
	})
}
