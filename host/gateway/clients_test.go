package gateway_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gloveboxhq/glovebox/host/llm/openai/openaitest"
)

// run runs a script of testdata/clients against a server and decodes what it tells.
func (s *system) run(name string, told any) {
	s.t.Helper()
	const dir = "testdata/clients"
	node, err := exec.LookPath("node")
	if err != nil {
		s.t.Skip("there is no node: the official JavaScript clients are left out")
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules")); err != nil {
		s.t.Skipf("run npm ci in host/gateway/%s: the official JavaScript clients are left out", dir)
	}
	command := exec.CommandContext(s.t.Context(), node, name)
	command.Dir = dir
	command.Env = append(os.Environ(), "GATEWAY_URL="+s.url+"/v1", "GATEWAY_TOKEN="+s.byAnna)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		s.t.Fatalf("%s: %v\n%s", name, err, &stderr)
	}
	if err := json.Unmarshal(output, told); err != nil {
		s.t.Fatalf("%s: %v in %s", name, err, output)
	}
}

// U3: OpenAI's JavaScript client talks, streams, calls tools in parallel, shows a
// picture, and knows the errors by their classes.
func TestChatByJavaScript(t *testing.T) {
	s := serve(t, withOracle)
	var told map[string]json.RawMessage
	s.run("chat.mjs", &told)
	want := map[string]string{
		"run tools": `"It rains, say 2 tools."`,
		"models":    `["jeeves","plain","scripted"]`,
		"model":     `"plain"`,
		"no model":  `{"error":"NotFoundError","status":404,"code":"model_not_found","param":"model"}`,
		"left":      `"chat.completion.chunk"`,
	}
	for _, way := range []string{"whole", "stream"} {
		want[way+": talk"] = fmt.Sprintf(`{"text":"You said: Good morning.","finish":"stop","total":%d,"model":"jeeves"}`, openaitest.InputTokens+openaitest.OutputTokens)
		want[way+": tools"] = `{"finish":"tool_calls","calls":["weather {\"city\":\"Oslo\"}","weather {\"city\":\"Rome\"}"],"text":"It rains, say 2 tools."}`
		want[way+": image"] = `{"finish":"stop"}`
		want[way+": Please slow down."] = `{"error":"RateLimitError","status":429,"code":"rate_limit_exceeded"}`
		want[way+": This is too long."] = `{"error":"BadRequestError","status":400,"code":"context_length_exceeded"}`
		want[way+": Are you overloaded?"] = `{"error":"InternalServerError","status":503,"code":"upstream_unavailable"}`
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got := string(told[name]); got != want[name] {
			t.Errorf("%s:\n got %s\nwant %s", name, got, want[name])
		}
	}
	if len(told) != len(want) {
		t.Errorf("it tells %d things, want %d", len(told), len(want))
	}
}
