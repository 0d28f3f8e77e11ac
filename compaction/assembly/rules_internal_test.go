package assembly

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestWireName(t *testing.T) {
	for name, want := range map[string]string{
		"look_up": "look_up", "": "unknown", "files.read": "files_read", "grüße": "gr__e", "日本": "__",
		"3d": "_3d", "-x": "_-x", ".x": "_x", "\xff\xfe": "__",
		strings.Repeat("a", 70):       strings.Repeat("a", 64),
		"1" + strings.Repeat("a", 63): "_1" + strings.Repeat("a", 62),
	} {
		if got := wireName(name); got != want {
			t.Errorf("wireName(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestWireFormsAreValid(t *testing.T) {
	any := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z0-9_.-]{0,80}`), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }))
	rapid.Check(t, func(r *rapid.T) {
		s := any.Draw(r, "s")
		name := wireName(s)
		if !ValidName(name) || ValidName(s) && name != s || wireName(name) != name {
			r.Errorf("wireName(%q) = %q", s, name)
		}
	})
}
