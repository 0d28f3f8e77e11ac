package remote_test

import (
	"testing"

	"github.com/gloveboxhq/glovebox/host/llm/internal/remote"
)

func TestConfigNamesTheHost(t *testing.T) {
	for base, want := range map[string]string{
		"":                                    "m at the default host",
		"http://user:swordfish@x:8080/v1?k=1": "m at x:8080",
		"http://swordfish\n":                  "m at no host",
	} {
		if got := (remote.Config{Name: "m", BaseURL: base, APIKey: "swordfish"}).String(); got != want {
			t.Errorf("%q: got %q, want %q", base, got, want)
		}
	}
}
