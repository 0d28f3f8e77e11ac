package gateway_test

import (
	"slices"
	"testing"

	"github.com/gloveboxhq/glovebox/host/gateway"
)

// Who counts requests by their pattern tells the routes apart.
func TestPatterns(t *testing.T) {
	for _, pattern := range []string{"/v1/", "GET /v1/models", "POST /v1/chat/completions", "POST /v1/responses", "POST /v1/messages"} {
		if !slices.Contains(gateway.Patterns, pattern) {
			t.Errorf("no %s among %q", pattern, gateway.Patterns)
		}
	}
}
