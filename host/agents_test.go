package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/memory"
)

// systemsOf tells of each agent what is in force, and who chose that.
func systemsOf(agents []host.AgentInfo) string {
	var parts []string
	for _, a := range agents {
		chosen := "nobody"
		if a.Manifest.Memory != nil {
			chosen = a.Manifest.Memory.System
		}
		parts = append(parts, fmt.Sprintf("%s: %s, %s chose", a.Name, a.MemorySystem, chosen))
	}
	return strings.Join(parts, "; ")
}

// M2: the choice is flat and nested, and survives a restart; what is no system is
// refused and changes nothing. The choice of the configuration is in force where
// none is stored.
func TestMemorySystems(t *testing.T) {
	config := host.Config{Data: t.TempDir(), LLM: &model{}, Agents: []host.AgentConfig{
		{Name: "jeeves", SystemPrompt: "You are Jeeves."},
		{Name: "butler", Memory: host.AgentMemoryConfig{System: host.MemoryStructured}},
	}}
	h := open(t, config)
	choose := func(agent, system, want string) {
		t.Helper()
		info, err := h.SetMemorySystem(t.Context(), agent, system)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			all := h.Agents()
			if got := systemsOf(all); got != want {
				t.Errorf("the agents are %q, want %q", got, want)
			}
			for _, a := range all {
				if a.Name == agent && marshalled(t, a) != marshalled(t, info) {
					t.Errorf("SetMemorySystem returned %+v, Agents %+v", info, a)
				}
			}
			// The same where no host runs, but the store is read.
			apart, err := host.AgentsOf(t.Context(), config, h.Store())
			if err != nil || marshalled(t, apart) != marshalled(t, all) {
				t.Errorf("AgentsOf %+v, %v; Agents %+v", apart, err, all)
			}
			if err := h.Close(); err != nil {
				t.Fatal(err)
			}
			h = open(t, config)
		}
	}
	start := "jeeves: summarization, nobody chose; butler: structured, structured chose"
	if got := systemsOf(h.Agents()); got != start {
		t.Errorf("at first %q", got)
	}
	choose("jeeves", "structured", "jeeves: structured, structured chose; butler: structured, structured chose")
	choose("butler", "summarization", "jeeves: structured, structured chose; butler: summarization, summarization chose")
	for _, bad := range []struct {
		agent, system string
		is            error
	}{
		{"jeeves", "Structured", memory.ErrInvalid},
		{"jeeves", "structured\n[x]", memory.ErrInvalid},
		{"jeeves", `"`, memory.ErrInvalid},
		{"nobody", "structured", memory.ErrNotFound},
	} {
		if _, err := h.SetMemorySystem(t.Context(), bad.agent, bad.system); !errors.Is(err, bad.is) {
			t.Errorf("%q for %s: %v", bad.system, bad.agent, err)
		}
	}
	choose("jeeves", "", "jeeves: summarization, nobody chose; butler: summarization, summarization chose")
	choose("butler", "", start)

	info := h.Agents()[0]
	if info.ID.IsZero() || info.Manifest.SystemPrompt != "You are Jeeves." {
		t.Errorf("%+v", info)
	}
	var flat map[string]any
	if err := json.Unmarshal([]byte(marshalled(t, h.Agents()[1])), &flat); err != nil {
		t.Fatal(err)
	}
	nested, _ := flat["manifest"].(map[string]any)
	if table, _ := nested["memory"].(map[string]any); flat["memory_system"] != "structured" || table["system"] != "structured" {
		t.Errorf("as JSON %v", flat)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := h.SetMemorySystem(t.Context(), "jeeves", "structured"); !errors.Is(err, host.ErrClosed) {
		t.Errorf("of a host that is closed: %v", err)
	}
}

// M1: a manifest stays as it is, but for the choice. One that nobody can read keeps
// no agent from answering.
func TestManifestsAreKept(t *testing.T) {
	for name, test := range map[string]struct {
		manifest string
		// system is in force at first; chosen is the manifest after structured was
		// chosen, cleared the one after that is taken back; "" if choosing fails.
		system, chosen, cleared string
	}{
		"other keys":                  {"color = 'red'\n", "summarization", "color = 'red'\n\n[memory]\nsystem = 'structured'\n", "color = 'red'\n"},
		"other keys of memory":        {"[memory]\ncolor = 'red'\n", "summarization", "[memory]\ncolor = 'red'\nsystem = 'structured'\n", "[memory]\ncolor = 'red'\n"},
		"a choice":                    {"[memory]\nsystem = 'structured'\n", "structured", "[memory]\nsystem = 'structured'\n", "\n"},
		"a system of another version": {"[memory]\nsystem = 'telepathy'\n", "summarization", "[memory]\nsystem = 'structured'\n", "\n"},
		"a system that is no string":  {"[memory]\nsystem = 3\n", "summarization", "[memory]\nsystem = 'structured'\n", "\n"},
		"memory that is no table":     {"memory = 3\n", "summarization", "[memory]\nsystem = 'structured'\n", "\n"},
		"no TOML":                     {"{not TOML", "summarization", "", ""},
		"too long":                    {"# " + strings.Repeat("x", 70_000), "summarization", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			config := host.Config{Data: t.TempDir(), LLM: &model{}}
			h := open(t, config)
			stored := func() string {
				t.Helper()
				agents, err := h.Store().Agents(t.Context())
				if err != nil || len(agents) != 1 {
					t.Fatalf("%+v, %v", agents, err)
				}
				return agents[0].Manifest
			}
			if _, err := h.Store().PutAgent(t.Context(), host.DefaultAgent, test.manifest, monday); err != nil {
				t.Fatal(err)
			}
			if err := h.Close(); err != nil {
				t.Fatal(err)
			}
			h = open(t, config)
			if got := stored(); got != test.manifest {
				t.Errorf("opening made it %q", got)
			}
			if got := h.Agents()[0].MemorySystem; got != test.system {
				t.Errorf("in force: %q", got)
			}
			_, err := h.SetMemorySystem(t.Context(), "", "structured")
			if test.chosen == "" {
				if !errors.Is(err, memory.ErrInvalid) || stored() != test.manifest {
					t.Errorf("chosen: %v, %q", err, stored())
				}
			} else {
				if err != nil || stored() != test.chosen {
					t.Errorf("chosen: %v, %q", err, stored())
				}
				if _, err := h.SetMemorySystem(t.Context(), "", ""); err != nil || stored() != strings.TrimPrefix(test.cleared, "\n") {
					t.Errorf("taken back: %v, %q", err, stored())
				}
			}
			send(t, h, host.Message{Text: "Hello."})
		})
	}
}

// An agent that no host has seen has no ID, and opening a host makes none that is
// there another one.
func TestAgentsOfAFreshStore(t *testing.T) {
	data := t.TempDir()
	h := open(t, host.Config{Data: data, LLM: &model{}, Agents: []host.AgentConfig{{Name: "jeeves"}}})
	id := h.Agents()[0].ID
	config := host.Config{Data: data, LLM: &model{}, Agents: []host.AgentConfig{{Name: "butler", Memory: host.AgentMemoryConfig{System: "structured"}}, {Name: "jeeves"}}}
	agents, err := host.AgentsOf(t.Context(), config, h.Store())
	if err != nil || len(agents) != 2 || !agents[0].ID.IsZero() || agents[0].MemorySystem != "structured" || agents[1].ID != id {
		t.Fatalf("%+v, %v", agents, err)
	}
	if text := marshalled(t, agents[0]); strings.Contains(text, `"id"`) {
		t.Errorf("as JSON %s", text)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	h = open(t, config)
	if got := h.Agents(); got[0].ID.IsZero() || got[1].ID != id {
		t.Errorf("%+v", got)
	}
}

// Choices at the same time leave the one that is in force, beside turns.
func TestChoicesAtTheSameTime(t *testing.T) {
	h := open(t, host.Config{LLM: &model{}})
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			system := []string{"structured", "summarization", ""}[i%3]
			if _, err := h.SetMemorySystem(context.Background(), "", system); err != nil {
				t.Error(err)
			}
		})
		all.Go(func() { h.Agents() })
	}
	all.Wait()
	apart, err := host.AgentsOf(t.Context(), host.Config{}, h.Store())
	if err != nil || marshalled(t, apart) != marshalled(t, h.Agents()) {
		t.Errorf("stored %+v, in force %+v, %v", apart, h.Agents(), err)
	}
}

// gated is a model that holds each answer until it is let through.
type gated struct {
	entered chan string // the last input
	through chan struct{}
}

func (g *gated) Complete(ctx context.Context, r llm.Request) (llm.Response, error) {
	last := r.Messages[len(r.Messages)-1].Text
	select {
	case g.entered <- last:
	case <-ctx.Done():
		return llm.Response{}, ctx.Err()
	}
	select {
	case <-g.through:
		return llm.Response{Text: "ok", Model: "test"}, nil
	case <-ctx.Done():
		return llm.Response{}, ctx.Err()
	}
}

// Turns of one user with one agent go one after the other, in whichever sessions;
// another user, and another agent, does not wait for them.
func TestTurnsOfAPairTakeTurns(t *testing.T) {
	g := &gated{entered: make(chan string), through: make(chan struct{})}
	h := open(t, host.Config{LLM: g, Users: []host.UserConfig{{Name: "anna"}, {Name: "bert"}}, Agents: []host.AgentConfig{{Name: "jeeves"}, {Name: "butler"}}})
	bert, err := h.User("bert")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	say := func(m host.Message) {
		all.Go(func() {
			if _, err := h.Send(t.Context(), m); err != nil {
				t.Errorf("%q: %v", m.Text, err)
			}
		})
	}
	say(host.Message{Text: "anna"})
	if got := <-g.entered; got != "anna" {
		t.Fatalf("first came %q", got)
	}
	say(host.Message{Text: "anna again"}) // in a session of its own
	say(host.Message{Text: "bert", User: bert.ID})
	say(host.Message{Text: "to the butler", Agent: "butler"})
	// All three are in the model at the same time, and none is anna's second one.
	others := map[string]bool{<-g.entered: true, <-g.entered: true}
	if !others["bert"] || !others["to the butler"] {
		t.Errorf("beside anna's turn: %v", others)
	}
	for range 3 {
		g.through <- struct{}{}
	}
	if got := <-g.entered; got != "anna again" {
		t.Errorf("then came %q", got)
	}
	g.through <- struct{}{}
	all.Wait()
}

func TestMemoryConfig(t *testing.T) {
	c, err := host.ParseConfig([]byte("[sessions]\ngap_secs = 0\n[memory]\ntopic_token_cap = 64\nextraction_tokens = 1\n[[agents]]\nname = \"a\"\n[agents.memory]\nsystem = \"structured\"\n"), "")
	if err != nil || *c.Sessions.GapSecs != 0 || c.Memory.TopicTokenCap != 64 || c.Agents[0].Memory.System != host.MemoryStructured {
		t.Errorf("%+v, %v", c, err)
	}
	for text, says := range map[string]string{
		"[[agents]]\nname = \"a\"\n[agents.memory]\nsystem = \"telepathy\"": `agents[0].memory.system: "telepathy": use summarization or structured`,
		"[[agents]]\nname = \"a\"\nmemory = \"structured\"":                 "agents.memory",
		"[memory]\nsystem = \"structured\"":                                 "memory.system: unknown key",
		"[memory]\ntopic_token_cap = 0":                                     "memory.topic_token_cap: 0 would say nothing",
		"[memory]\ntopic_token_cap = 63":                                    "memory.topic_token_cap: 63 tokens say nothing",
		"[memory]\ntopic_token_cap = -1":                                    "memory.topic_token_cap: -1 is out of range",
		"[memory]\nextraction_tokens = 0":                                   "memory.extraction_tokens: 0 is neither",
		"[memory]\nextraction_tokens = -1":                                  "memory.extraction_tokens: -1 is out of range",
		"[memory]\nextraction_tool_calls = 0":                               "memory.extraction_tool_calls: 0 is neither",
		"[memory]\nextraction_tool_calls = 2000000000":                      "memory.extraction_tool_calls: 2000000000 is out of range",
		"[sessions]\ngap_secs = -1":                                         "sessions.gap_secs: -1 is out of range",
		"[sessions]\ngap_secs = 9223372036854775807":                        "sessions.gap_secs: 9223372036854775807 is out of range",
	} {
		if _, err := host.ParseConfig([]byte(text), ""); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s\n%v, want %q", text, err, says)
		}
	}
	zero, structured := 0, []host.AgentConfig{{Name: "a", Memory: host.AgentMemoryConfig{System: host.MemoryStructured}}}
	online := host.ModelConfig{Provider: "openai", Name: "m"}
	for _, test := range []struct {
		config host.Config
		says   string // "" if there is nothing to say
	}{
		{host.Config{}, ""},
		{host.Config{Agents: structured}, "the offline model, which learns nothing"},
		{host.Config{Agents: structured, Model: online}, ""},
		{host.Config{Agents: structured, Model: online, Sessions: host.SessionsConfig{GapSecs: &zero}}, "sessions.gap_secs is 0"},
		{host.Config{Model: online, Sessions: host.SessionsConfig{GapSecs: &zero}}, ""},
	} {
		notes := test.config.Notes()
		if len(notes) > 1 || (len(notes) == 1) != (test.says != "") || len(notes) == 1 && !strings.Contains(notes[0], test.says) {
			t.Errorf("%+v: notes %q, want %q", test.config, notes, test.says)
		}
	}
}
