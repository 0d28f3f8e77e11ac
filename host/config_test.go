package host_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/host"
)

func TestParseConfig(t *testing.T) {
	c, err := host.ParseConfig([]byte(`
[store]
path = "db/sessions.db"

[model]
provider = "openai"
base_url = "http://127.0.0.1:8080/v1"
name = "local"
api_key = "env:KEY"
tokenizer = "o200k_base"

[boundary]
mode = "datamark"

[compaction]
continuous_interval = 5
gap_secs = 900
context_token_cap = 0

[[compaction.context_sources]]
hand = "calendar"
prompt = "What is on?"
users = ["default"]

[sessions]
timezone = "Europe/Berlin"

[engine]
code_mib = 256
cache_mib = 512

[server]
listen = "[::1]:0"
hosts = ["glovebox.example.com", "box:8443", "[fd00::1]:7780"]
drain_secs = 5

[server.gateway]
host_tools = true

[log]
level = "warn"
format = "json"

[[users]]
name = "anna"
is_default = true
[[users]]
name = "bert"

[[agents]]
name = "jeeves"
system_prompt = "You are Jeeves."

[hands.calendar]
module = "bundled:calendar"
users = ["anna", "bert"]
[hands.calendar.grant.files]
calendars = "calendars/{user}"
[hands.calendar.limits]
timeout_secs = 5

[hands.other]
module = "hands/other.wasm"
`), "/etc/glovebox")
	if err != nil {
		t.Fatal(err)
	}
	for got, want := range map[string]string{
		c.Store.Path: "/etc/glovebox/db/sessions.db",
		c.Hands["calendar"].Grant.Files["calendars"]: "/etc/glovebox/calendars/{user}",
		c.Hands["calendar"].Module:                   "bundled:calendar",
		c.Hands["other"].Module:                      "/etc/glovebox/hands/other.wasm",
	} {
		if filepath.ToSlash(got) != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if !c.Server.Gateway.HostTools {
		t.Error("the gateway has no tools of the host")
	}
	if c.Boundary.Mode != "datamark" {
		t.Errorf("mode %q", c.Boundary.Mode)
	}
	if c.Server.Drain() != 5*time.Second || (host.ServerConfig{}).Drain() != 30*time.Second {
		t.Errorf("drains for %s", c.Server.Drain())
	}
	var log strings.Builder
	logger := slog.New(c.Logging.Handler(&log))
	logger.Info("too little")
	logger.Warn("enough")
	if !strings.HasPrefix(log.String(), "{") || !strings.Contains(log.String(), `"msg":"enough"`) || strings.Contains(log.String(), "too little") {
		t.Errorf("logged %q", &log)
	}
	log.Reset()
	slog.New(host.LogConfig{}.Handler(&log)).Info("plain")
	slog.New(host.LogConfig{}.Handler(&log)).Debug("too little")
	if !strings.Contains(log.String(), "level=INFO msg=plain\n") || strings.Contains(log.String(), "too little") {
		t.Errorf("by default, logged %q", &log)
	}
	if notes := c.Notes(); len(notes) != 1 || !strings.Contains(notes[0], "context_token_cap") {
		t.Errorf("notes %q", notes)
	}
}

func TestLoadConfigRefuses(t *testing.T) {
	for name, test := range map[string]struct{ text, says string }{
		"unknown key":            {"\n[compaction]\ncontinous_interval = 5\n", ":3:1: compaction.continous_interval: unknown key"},
		"unknown section":        {"[plugins]\n", "plugins"},
		"wrong type":             {"[compaction]\ngap_secs = \"soon\"\n", ":2:12:"},
		"broken TOML":            {"[compaction\n", ":1:"},
		"provider":               {"[model]\nprovider = \"magic\"\n", `model.provider: "magic": use offline, anthropic or openai`},
		"no model of Anthropic":  {"[model]\nprovider = \"anthropic\"\n", "model.name: the provider anthropic needs"},
		"boundary mode":          {"[boundary]\nmode = \"magic\"\n", `boundary.mode: mode "magic" is not one of delimit, datamark, encode`},
		"unknown key of a mode":  {"[boundary]\nmodes = \"encode\"\n", "boundary.modes"},
		"a key in the file":      {"[model]\nprovider = \"openai\"\nname = \"m\"\napi_key = \"sk-1234\"\n", "model.api_key"},
		"no room":                {"[model]\ncontext_window = 100\n", "model.context_window"},
		"tokenizer":              {"[model]\ntokenizer = \"o200k\"\n", `model.tokenizer: unknown tokenizer "o200k": use cl100k_base or o200k_base`},
		"negative":               {"[compaction]\ngap_secs = -1\n", "compaction.gap_secs"},
		"time zone":              {"[sessions]\ntimezone = \"Mars/Olympus\"\n", "sessions.timezone"},
		"user name":              {"[[users]]\nname = \"Anna Smith\"\n", "users[0].name"},
		"user twice":             {"[[users]]\nname = \"a\"\n[[users]]\nname = \"a\"\n", "users[1].name"},
		"two default users":      {"[[users]]\nname = \"a\"\nis_default = true\n[[users]]\nname = \"b\"\nis_default = true\n", "is_default"},
		"user id":                {"[[users]]\nname = \"a\"\nid = \"00000000-0000-0000-0000-000000000000\"\n", "users[0].id"},
		"hand name":              {"[hands.\"../x\"]\n", "hands.../x"},
		"limit above its cap":    {"[hands.a.limits]\ntimeout_secs = 4000\n", "hands.a.limits"},
		"unknown user of a hand": {"[hands.a]\nusers = [\"zoe\"]\n", "hands.a.users"},
		"one path, two users":    {"[[users]]\nname = \"a\"\n[[users]]\nname = \"b\"\n[hands.h]\nusers = [\"a\", \"b\"]\n[hands.h.grant.files]\ncalendars = \"/c\"\n", "hands.h.grant.files.calendars"},
		"one value, two users":   {"[[users]]\nname = \"a\"\n[[users]]\nname = \"b\"\n[hands.h]\nusers = [\"a\", \"b\"]\n[hands.h.config]\naccount = \"x\"\n", "hands.h.config.account"},
		"listen without port":    {"[server]\nlisten = \"127.0.0.1\"\n", "server.listen"},
		"listen on a URL":        {"[server]\nlisten = \"http://127.0.0.1:7780\"\n", "server.listen"},
		"listen on no port":      {"[server]\nlisten = \"127.0.0.1:http\"\n", "server.listen"},
		"port out of range":      {"[server]\nlisten = \"127.0.0.1:70000\"\n", "server.listen"},
		"a URL for a host":       {"[server]\nhosts = [\"https://a.example\"]\n", "server.hosts[0]"},
		"a pattern for a host":   {"[server]\nhosts = [\"a.example\", \"*.example\"]\n", "server.hosts[1]"},
		"an empty host":          {"[server]\nhosts = [\"\"]\n", "server.hosts[0]"},
		"no room for code":       {"[engine]\ncode_mib = -1\n", "engine.code_mib"},
		"a cache of 2 TiB":       {"[engine]\ncache_mib = 2097152\n", "engine.cache_mib"},
		"never to drain":         {"[server]\ndrain_secs = 0\n", "server.drain_secs"},
		"to drain backwards":     {"[server]\ndrain_secs = -1\n", "server.drain_secs"},
		"to drain for ever":      {"[server]\ndrain_secs = 3601\n", "server.drain_secs"},
		"a level of log":         {"[log]\nlevel = \"loud\"\n", "log.level"},
		"a level in capitals":    {"[log]\nlevel = \"INFO\"\n", "log.level"},
		"a format of log":        {"[log]\nformat = \"xml\"\n", "log.format"},
		"source without hand":    {"[[compaction.context_sources]]\nhand = \"x\"\nprompt = \"p\"\n", "context_sources[0].hand"},
		"source without prompt":  {"[hands.x]\n[[compaction.context_sources]]\nhand = \"x\"\n", "context_sources[0].prompt"},
		"source for a stranger":  {"[[users]]\nname = \"a\"\n[[users]]\nname = \"b\"\n[hands.x]\n[[compaction.context_sources]]\nhand = \"x\"\nprompt = \"p\"\nusers = [\"b\"]\n", "context_sources[0].users"},
	} {
		path := filepath.Join(t.TempDir(), "glovebox.toml")
		if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := host.LoadConfig(path)
		if err == nil || !strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v, want %q", name, err, test.says)
		}
	}
	// What is impossible has its place too: that of the key, or of what stands above
	// one that is missing.
	for text, place := range map[string]string{
		"# first\n[compaction]\n  gap_secs = -1\n":                                            "3:3",
		"[server]\ndrain_secs = 0\n":                                                          "2:1",
		"server.listen = \"no\"\n":                                                            "1:8",
		"\n[model]\nprovider = \"openai\"\n":                                                  "2:2",
		"[[users]]\nname = \"a\"\n[[users]]\nname = \"B\"\n":                                  "4:1",
		"[[agents]]\nname = \"a\"\n[[agents]]\nname = \"b\"\n[agents.memory]\nsystem = \"x\"": "6:1",
		"[server]\nhosts = [\"a.example\",\n  \"*.example\"]\n":                               "2:1",
		"[hands.calendar]\n[hands.\"../x\"]\n":                                                "2:8",
		"[hands.calendar.limits]\nfuel = -1\n":                                                "1:17",
		"hands = {calendar = {users = [\"zoe\"]}}\n":                                          "1:1",
	} {
		path := filepath.Join(t.TempDir(), "glovebox.toml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := host.LoadConfig(path); err == nil || !strings.HasPrefix(err.Error(), path+":"+place+": ") {
			t.Errorf("%q: got %v, want the place %s", text, err, place)
		}
	}
	for mode, noted := range map[string]bool{"": false, "delimit": false, "datamark": true, "encode": true} {
		c, err := host.ParseConfig([]byte("[boundary]\nmode = \""+mode+"\"\n"), ".")
		if err != nil {
			t.Fatal(err)
		}
		if notes := c.Notes(); (len(notes) == 1 && strings.Contains(notes[0], "boundary.mode")) != noted {
			t.Errorf("mode %q with the offline model: notes %q", mode, notes)
		}
	}
	shared := "[[users]]\nname = \"a\"\n[[users]]\nname = \"b\"\n[hands.h]\nshared = true\nusers = [\"a\", \"b\"]\n[hands.h.grant.files]\ncalendars = \"/c\"\n"
	if _, err := host.ParseConfig([]byte(shared), "."); err != nil {
		t.Errorf("shared: %v", err)
	}
}
