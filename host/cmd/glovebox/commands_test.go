package main

import (
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/gloveboxhq/glovebox/plugins"
)

// commandsOf are all commands that do something, by what is typed behind glovebox.
func commandsOf(c *cobra.Command) (all []string) {
	if !c.HasSubCommands() {
		_, typed, _ := strings.Cut(c.CommandPath(), " ")
		return []string{typed}
	}
	for _, sub := range c.Commands() {
		all = append(all, commandsOf(sub)...)
	}
	return all
}

// U2: every command says what it does, and refuses what it does not know.
func TestCommandsHelp(t *testing.T) {
	glovebox := commandOn(filepath.Join(t.TempDir(), "home"))
	for _, command := range commandsOf((&app{}).root()) {
		words := strings.Fields(command)
		code, out, errs := glovebox(append(words, "--help")...)
		if code != 0 || errs != "" || !strings.Contains(out, "Usage:\n  glovebox "+command) || !strings.Contains(out, "--json") || strings.HasPrefix(out, "Usage:") {
			t.Errorf("%s --help: %d, %s%s", command, code, out, errs)
		}
		code, out, errs = glovebox(append(words, "--no-such-flag")...)
		if code != exitUsage || out != "" || !strings.HasPrefix(errs, "glovebox: error: unknown flag: --no-such-flag") {
			t.Errorf("%s --no-such-flag: %d, %s%s", command, code, out, errs)
		}
	}
}

// U2: every command that prints data prints JSON for --json, one value or one a line.
func TestCommandsJSON(t *testing.T) {
	dir := t.TempDir()
	home := filepath.Join(dir, "home")
	in := func(name string) string { return filepath.Join(dir, name) }
	calendar, err := plugins.Module("calendar")
	if err != nil {
		t.Fatal(err)
	}
	write(t, in("calendar.wasm"), string(calendar))
	write(t, filepath.Join(home, "glovebox.toml"), "[[agents]]\nname = \"assistant\"\n[agents.memory]\nsystem = \"structured\"\n")
	write(t, in("talk.json"), `{"messages": [{"role": "user", "content": "Hello?"}, {"role": "assistant", "content": "Yes."}]}`)
	glovebox := commandOn(home)
	covered := map[string]bool{
		"serve":        true, // TestServe
		"mcp":          true, // which speaks a protocol
		"hand embed":   true, // prints nothing; testdata/hand.txt
		"memory dream": true, // needs a model that could remember; testdata/memory.txt
	}
	ask := func(arguments ...string) string {
		t.Helper()
		glovebox := glovebox
		if arguments[0] == "demo" {
			glovebox = commandOn(in("demo")) // which has no conversations yet
		}
		code, out, errs := glovebox(append(arguments, "--json")...)
		decoder := json.NewDecoder(strings.NewReader(out))
		values, err := 0, error(nil)
		for ; err == nil; values++ {
			var value any
			err = decoder.Decode(&value)
		}
		if code != 0 || !errors.Is(err, io.EOF) || values < 2 {
			t.Errorf("%v --json: %d, %v: %s%s", arguments, code, err, out, errs)
		}
		covered[arguments[0]] = true
		if len(arguments) > 1 {
			covered[arguments[0]+" "+arguments[1]] = true
		}
		return out
	}
	field := func(text, name string) string {
		t.Helper()
		var value map[string]any
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			t.Fatal(err)
		}
		found, _ := value[name].(string)
		return found
	}

	session := field(ask("chat"), "session")
	for _, words := range [][]string{
		{"session", "list"}, {"session", "show", "last"}, {"session", "status", session}, {"session", "context", "last"},
		{"session", "search", "hello"}, {"session", "compact", "last"}, {"session", "export", "last"}, {"session", "import", in("talk.json")},
		{"memory", "set", "tea", "Likes it green."}, {"memory", "list"}, {"memory", "show", "tea"}, {"memory", "audit"},
		{"agent", "list"}, {"user", "list"}, {"config", "check"}, {"doctor"}, {"version"}, {"backup", in("copy.db")},
		{"hand", "list"}, {"hand", "inspect", "bundled:calendar"},
		{"hand", "query", "bundled:calendar", "--files", "calendars=" + filepath.Join("..", "..", "..", "testdata", "demo", "calendars"), "--prompt", "What is on?"},
		{"hand", "test", "bundled:calendar", "--files", "calendars=" + filepath.Join("..", "..", "..", "testdata", "demo", "calendars")},
		{"hand", "push", in("calendar.wasm"), "oci:" + in("layout") + ":1"}, {"hand", "pull", "oci:" + in("layout"), "-o", in("pulled.wasm")},
		{"token", "list"}, {"demo"},
	} {
		ask(words...)
	}
	var shown struct{ Messages []struct{ ID string } }
	if err := json.Unmarshal([]byte(ask("session", "show", session)), &shown); err != nil || len(shown.Messages) == 0 {
		t.Fatalf("%v: %+v", err, shown)
	}
	ask("session", "expand", shown.Messages[0].ID)
	ask("hand", "new", "my-hand", "--lang", "go", "--dir", in("my-hand"))
	ask("hand", "build", in("my-hand"))
	module, err := plugins.Module("calendar")
	if err != nil {
		t.Fatal(err)
	}
	write(t, in("calendar.wasm"), string(module))
	ask("hand", "keygen", "-o", in("me"), "--no-password")
	ask("hand", "sign", in("calendar.wasm"), "--key", in("me.key"))
	ask("hand", "verify", in("calendar.wasm"), "--key", in("me.pub"))
	ask("hand", "install", in("calendar.wasm"), "--name", "agenda", "--unsigned", "--yes-permissions", "files", "--files", "calendars="+dir)
	ask("hand", "revoke", "agenda")
	ask("hand", "grant", "agenda", "--unsigned", "--yes-permissions", "files")
	ask("hand", "remove", "agenda", "--yes")
	ask("token", "revoke", field(ask("token", "create"), "id"))
	write(t, in("memory.json"), ask("memory", "export"))
	ask("memory", "import", in("memory.json"))
	ask("memory", "delete", "tea")
	ask("memory", "wipe", "--yes")
	write(t, in("user.jsonl"), ask("user", "export", "default"))
	ask("user", "import", "default", in("user.jsonl"))
	write(t, in("prompt.json"), ask("session", "context", session, "--dump"))
	ask("assemble", "--from", in("prompt.json"))
	ask("session", "delete", session, "--yes")
	ask("user", "wipe", "default", "--yes")

	all := commandsOf((&app{}).root())
	for _, command := range all {
		if !covered[command] {
			t.Errorf("glovebox %s is not tried with --json", command)
		}
	}
	if len(all) < 35 || !slices.Contains(all, "session show") {
		t.Errorf("the commands are %q", all)
	}
	// What fails and what nobody understands have exit codes of their own.
	if code, out, _ := glovebox("memory", "show", "no such topic", "--json"); code != exitFailed || out != "" {
		t.Errorf("a topic that there is not: %d, %s", code, out)
	}
	if code, out, _ := glovebox("session", "show", "--json"); code != exitUsage || out != "" {
		t.Errorf("nothing to show: %d, %s", code, out)
	}
}
