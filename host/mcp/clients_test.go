package mcp_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/control/controltest"
	"github.com/gloveboxhq/glovebox/host/mcp"
)

// clients is where the official JavaScript clients are.
const clients = "testdata/clients"

// node runs a script there by an interpreter and decodes what it prints.
func node(t *testing.T, told any, interpreter string, arguments []string, environment ...string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(clients, "node_modules")); err != nil {
		t.Skipf("run npm ci in host/mcp/%s: the official JavaScript clients are left out", clients)
	}
	path, err := exec.LookPath(interpreter)
	if err != nil {
		t.Skipf("there is no %s: the official JavaScript clients are left out", interpreter)
	}
	command := exec.CommandContext(t.Context(), path, arguments...)
	command.Dir = clients
	command.Env = append(os.Environ(), environment...)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(arguments, " "), err, output, &stderr)
	}
	if err := json.Unmarshal(output, told); err != nil {
		t.Fatalf("%s: %v in %s", strings.Join(arguments, " "), err, output)
	}
}

// build builds glovebox, once.
var build = sync.OnceValues(func() (path string, err error) {
	path = filepath.Join(controltest.Cache(), "glovebox")
	if runtime.GOOS == "windows" {
		path += ".exe"
	}
	if output, err := exec.Command("go", "build", "-o", path, "../cmd/glovebox").CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, output)
	}
	return path, nil
})

// program returns the path of glovebox.
func program(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("it takes a while to build the program")
	}
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// home is the data directory of a host that has ended, configured for the program.
func home(t *testing.T) string {
	t.Helper()
	data := t.TempDir()
	s := serve(t, func(c *host.Config, _ *mcp.Config) { c.Data = data })
	hand := s.hand
	if err := s.host.Close(); err != nil {
		t.Fatal(err)
	}
	path, err := json.Marshal(hand.Module)
	if err != nil {
		t.Fatal(err)
	}
	config := "[[users]]\nname = \"anna\"\nis_default = true\n[[users]]\nname = \"bert\"\n" +
		"[hands.calendar]\nmodule = " + string(path) + "\ndigest = \"" + hand.Digest + "\"\nusers = [\"anna\"]\nprompts.today = \"What is on today?\"\n"
	if err := os.WriteFile(filepath.Join(data, "glovebox.toml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return data
}

// toldText is one result as the TypeScript client has it.
type toldText struct {
	Text       string
	IsError    bool
	Structured json.RawMessage
}

// U4: the official TypeScript client talks over HTTP and with the program itself.
func TestByTypeScript(t *testing.T) {
	type telling struct {
		Server                                                 struct{ Name, Version string }
		Instructions                                           string
		Tools                                                  []struct{ Name string }
		Hands, Hand, Search, Describe, Expand, Topics, Refused toldText
		Stranger                                               string
	}
	check := func(t *testing.T, told telling) {
		t.Helper()
		var names []string
		for _, tool := range told.Tools {
			names = append(names, tool.Name)
		}
		if len(names) != 6 || told.Server.Name != "glovebox" || !strings.Contains(told.Instructions, "never an instruction") {
			t.Errorf("%v of %+v: %s", names, told.Server, told.Instructions)
		}
		for source, result := range map[string]toldText{
			"hand://calendar": told.Hand, "tool://memory_search": told.Search, "tool://memory_describe": told.Describe,
			"tool://memory_expand": told.Expand, "tool://memory_topics": told.Topics,
		} {
			if inside, outside := framed(t, result.Text); inside[source] == "" || outside != "" || result.IsError {
				t.Errorf("%s: %+v", source, result)
			}
		}
		if !strings.Contains(string(told.Hands.Structured), `"prompt":"today"`) {
			t.Errorf("the hands are %s", told.Hands.Structured)
		}
		if !told.Refused.IsError || !strings.Contains(told.Refused.Text, "unknown field") {
			t.Errorf("it was not refused: %+v", told.Refused)
		}
	}
	t.Run("http", func(t *testing.T) {
		s := serve(t)
		var told telling
		node(t, &told, "node", []string{"sdk.mjs"}, "MCP_URL="+s.url+"/mcp", "MCP_TOKEN="+s.byAnna)
		check(t, told)
		if !strings.Contains(told.Stranger, "401") && !strings.Contains(told.Stranger, "token is not known") {
			t.Errorf("a wrong token: %s", told.Stranger)
		}
		settle(t, "its session is left", func() bool { return s.handler.Sessions() == 0 })
	})
	t.Run("stdio", func(t *testing.T) {
		command, err := json.Marshal([]string{program(t), "mcp", "--data", home(t)})
		if err != nil {
			t.Fatal(err)
		}
		var told telling
		node(t, &told, "node", []string{"sdk.mjs"}, "MCP_COMMAND="+string(command))
		check(t, told)
	})
}

// U4: the inspector's command line lists and calls the tools. It needs a newer node
// than many have, which npm ci puts beside it.
func TestByInspector(t *testing.T) {
	s := serve(t)
	const inspector = "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"
	arch := map[string]string{"amd64": "x64"}[runtime.GOARCH]
	if arch == "" {
		arch = runtime.GOARCH
	}
	interpreter, err := filepath.Abs(filepath.Join(clients, "node_modules", "node-"+runtime.GOOS+"-"+arch, "bin", "node"))
	if err != nil {
		t.Fatal(err)
	}
	ask := func(told any, method ...string) {
		t.Helper()
		arguments := append([]string{inspector, "--cli", s.url + "/mcp", "--transport", "http", "--header", "Authorization: Bearer " + s.byAnna, "--method"}, method...)
		node(t, told, interpreter, arguments, "HOME="+t.TempDir())
	}
	var listed struct{ Tools []struct{ Name string } }
	ask(&listed, "tools/list", "--strict") // which fails for schemas that some clients do not take
	if len(listed.Tools) != 6 || !slices.ContainsFunc(listed.Tools, func(t struct{ Name string }) bool { return t.Name == "hand_query" }) {
		t.Errorf("listed are %v", listed.Tools)
	}
	var result struct{ Content []struct{ Text string } }
	ask(&result, "tools/call", "--tool-name", "hand_query", "--tool-arg", "hand=calendar", "--tool-arg", "prompt=today", "--tool-arg", "hours_back=6")
	if len(result.Content) != 1 {
		t.Fatalf("told %+v", result)
	}
	if inside, outside := framed(t, result.Content[0].Text); inside["hand://calendar"] == "" || outside != "" {
		t.Errorf("the hand said %q", result.Content[0].Text)
	}
}

// U4: the program on standard input and output, by the official Go client: nothing
// else is on standard output, and it ends when the client does.
func TestProgram(t *testing.T) {
	data := home(t)
	command := exec.Command(program(t), "mcp", "--user", "anna", "--data", data)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	session, err := sdk.NewClient(clientInfo, nil).Connect(t.Context(), &sdk.CommandTransport{Command: command}, nil)
	if err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}
	text, isError := call(t, session, "hand_query", `{"hand": "calendar", "prompt": "today"}`)
	if inside, outside := framed(t, text); isError || inside["hand://calendar"] == "" || outside != "" {
		t.Errorf("the hand said %q", text)
	}
	if err := session.Close(); err != nil {
		t.Errorf("its end: %v: %s", err, &stderr)
	}
	if stderr.Len() > 0 {
		t.Errorf("on standard error: %s", &stderr)
	}
}

// The program ends cleanly on a signal.
func TestProgramIsInterrupted(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot be sent an interrupt here")
	}
	command := exec.CommandContext(t.Context(), program(t), "mcp", "--data", home(t))
	var stderr bytes.Buffer
	command.Stderr = &stderr
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write([]byte(strings.ReplaceAll(initialize, "\n", "") + "\n")); err != nil {
		t.Fatal(err)
	}
	var greeted struct {
		Result struct{ ServerInfo struct{ Name string } }
	}
	if err := json.NewDecoder(out).Decode(&greeted); err != nil || greeted.Result.ServerInfo.Name != "glovebox" {
		t.Fatalf("greeted with %+v: %v: %s", greeted, err, &stderr)
	}
	if err := command.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := command.Wait(); err != nil || stderr.Len() > 0 {
		t.Errorf("its end: %v: %s", err, &stderr)
	}
}

// The way in of README.md works as it stands there.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var said struct {
		Servers map[string]struct {
			Command string   `json:"command"`
			Args    []string `json:"args"`
		} `json:"mcpServers"`
	}
	_, after, _ := strings.Cut(string(text), "\n```json\n{\"mcpServers\"")
	block, _, ended := strings.Cut(after, "\n```\n")
	if err := json.Unmarshal([]byte("{\"mcpServers\""+block), &said); err != nil || !ended {
		t.Fatalf("README.md has no configuration of an MCP client: %v", err)
	}
	server := said.Servers["glovebox"]
	if server.Command != "glovebox" || strings.Count(block, "\n") > 8 {
		t.Fatalf("README.md has a client run %+v", server)
	}
	command := exec.Command(program(t), server.Args...)
	command.Env = append(os.Environ(), "GLOVEBOX_HOME="+home(t))
	session, err := sdk.NewClient(clientInfo, nil).Connect(t.Context(), &sdk.CommandTransport{Command: command}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	if text, isError := call(t, session, "memory_search", `{"words": "heating pump"}`); isError || !strings.Contains(text, "hall 4") {
		t.Errorf("it found %q", text)
	}
}
