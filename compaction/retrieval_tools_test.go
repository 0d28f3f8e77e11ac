package compaction_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/compaction"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/sqlite"
)

func (l *library) tool(name string) compaction.Tool {
	l.t.Helper()
	for _, tool := range compaction.Tools(l.retrieval) {
		if tool.Name == name {
			return tool
		}
	}
	l.t.Fatalf("no tool %s", name)
	return compaction.Tool{}
}

// call returns what the model gets.
func (l *library) call(name, input string) string {
	l.t.Helper()
	c, err := l.tool(name).Call(l.t.Context(), l.anna, l.session, json.RawMessage(input), 1<<20)
	if err != nil {
		l.t.Fatalf("%s(%s): %v", name, input, err)
	}
	if got := c.Source().String(); got != "tool://"+name {
		l.t.Errorf("%s: the source is %s", name, got)
	}
	return memory.Plain([]memory.Block{memory.External(c)})
}

func TestToolsAreWellFormed(t *testing.T) {
	names := map[string]bool{}
	for _, tool := range compaction.Tools(newLibrary(t).retrieval) {
		if !regexp.MustCompile(`^[a-z_]{1,64}$`).MatchString(tool.Name) || names[tool.Name] || tool.Description == "" {
			t.Errorf("tool %q: %q", tool.Name, tool.Description)
		}
		names[tool.Name] = true
		var schema struct {
			Type       string                     `json:"type"`
			Properties map[string]json.RawMessage `json:"properties"`
			Required   []string                   `json:"required"`
			Additional *bool                      `json:"additionalProperties"`
		}
		if err := json.Unmarshal(tool.Parameters, &schema); err != nil || schema.Type != "object" || schema.Additional == nil || *schema.Additional {
			t.Errorf("%s: %v, %+v", tool.Name, err, schema)
		}
		for _, name := range schema.Required {
			if schema.Properties[name] == nil {
				t.Errorf("%s requires %q, which is no parameter", tool.Name, name)
			}
		}
	}
}

// A model finds, describes and expands as its tools say.
func TestToolsLeadToWhatWasSaid(t *testing.T) {
	l := newLibrary(t)
	l.say("The pump in hall three was replaced by Marta.")
	l.inject("The pump costs 4711 euros.\n" + strings.Repeat("A line about the pump.\n", 600))
	s := l.summarise(2, "A pump was replaced.", fromHand(t, "mail", "A price."))
	question := l.say("Who replaced the pump?")

	found := l.call(compaction.ToolSearch, `{"words":"pump replaced"}`)
	for _, want := range []string{"replaced by Marta", "External text from the hand mail", "4711", s.ID.String(), "#1"} {
		if !strings.Contains(found, want) {
			t.Errorf("the search does not show %q:\n%s", want, found)
		}
	}
	if strings.Contains(found, question.ID.String()) {
		t.Errorf("the search finds the question:\n%s", found)
	}
	if found := l.call(compaction.ToolSearch, `{"expression":"(?i)MARTA","in":["message"],"limit":1,"session":"this","from":"2026-03-23","to":"2026-03-24T00:00:00Z"}`); !strings.Contains(found, "by Marta") {
		t.Errorf("by expression:\n%s", found)
	}
	if nothing := l.call(compaction.ToolSearch, `{"words":"zebra"}`); !strings.Contains(nothing, "Nothing was found") {
		t.Errorf("about nothing:\n%s", nothing)
	}
	described := l.call(compaction.ToolDescribe, `{"id":"`+s.ID.String()+`"}`)
	if !strings.Contains(described, "A pump was replaced.") || !strings.Contains(described, "External text from the summary") && !strings.Contains(described, "External text from the hand mail") {
		t.Errorf("described as:\n%s", described)
	}
	var all strings.Builder
	next := regexp.MustCompile(`go on with cursor (\S+)`)
	cursor, pages := "", 0
	for ; pages < 100; pages++ {
		text := l.call(compaction.ToolExpand, fmt.Sprintf(`{"id":%q,"tokens":500,"cursor":%q}`, s.ID, cursor))
		all.WriteString(text)
		m := next.FindStringSubmatch(text)
		if m == nil {
			break
		}
		cursor = m[1]
	}
	if n := strings.Count(all.String(), "A line about the pump."); n < 590 || n > 600 || pages < 5 || !strings.Contains(all.String(), "replaced by Marta") {
		t.Errorf("expanded to %d lines in %d pages", n, pages)
	}
}

// Invariant 11: what a memory tool has brought is not brought again, however
// well it matches, and everything that one brings is external.
func TestToolResultsAreNotFoundAgain(t *testing.T) {
	l := newLibrary(t)
	l.say("The canary is yellow.")
	for i := range 3 {
		source, _ := boundary.ToolSource(compaction.ToolSearch)
		c, _ := boundary.Wrap(source, "canary canary canary is yellow: recalled", boundary.Unlimited)
		id := fmt.Sprint(i)
		l.put(l.anna, l.session, memory.Draft{Role: memory.RoleAssistant, Source: memory.SourceAssistant,
			Blocks: []memory.Block{memory.Text("I shall look."), memory.ToolCall(id, compaction.ToolSearch, json.RawMessage(`{"words":"canary"}`))}})
		m := l.put(l.anna, l.session, memory.Draft{Role: memory.RoleTool, Source: memory.SourceTool, Blocks: []memory.Block{memory.ToolResult(id, compaction.ToolSearch, c, false)}})
		if m.Trust != memory.TrustExternal {
			t.Errorf("the result is stored with trust %s", m.Trust)
		}
	}
	l.say("And now?")
	for _, input := range []string{`{"words":"canary yellow"}`, `{"expression":"canary"}`, `{"words":"canary","order":"recency"}`} {
		found := l.call(compaction.ToolSearch, input)
		if strings.Contains(found, "recalled") || strings.Contains(found, "[3]") || !strings.Contains(found, "The canary is yellow.") {
			t.Errorf("%s found:\n%s", input, found)
		}
	}
	s := l.summarise(7, "sum", boundary.Content{})
	expanded := l.call(compaction.ToolExpand, `{"id":"`+s.ID.String()+`"}`)
	if strings.Contains(expanded, "recalled") || strings.Count(expanded, "I shall look.") != 3 || strings.Count(expanded, "is left out") != 3 {
		t.Errorf("expanded to:\n%s", expanded)
	}
	// Who reads with the own eyes sees everything.
	e, err := l.retrieval.Expand(t.Context(), l.anna, compaction.ExpandQuery{ID: s.ID.String()})
	if err != nil || strings.Count(e.Shown(), "recalled") != 3 {
		t.Errorf("expanded verbatim to:\n%s\n%v", e.Shown(), err)
	}
}

func TestToolsRefuse(t *testing.T) {
	l := newLibrary(t)
	m := l.say("something")
	theirs := l.put(l.bert, l.newSession(l.bert), said("secret"))
	for _, test := range []struct {
		tool, input string
		want        error
	}{
		{compaction.ToolSearch, ``, memory.ErrInvalid},
		{compaction.ToolSearch, `null`, memory.ErrInvalid},
		{compaction.ToolSearch, `[]`, memory.ErrInvalid},
		{compaction.ToolSearch, `{`, memory.ErrInvalid},
		{compaction.ToolSearch, `{}`, memory.ErrInvalid},
		{compaction.ToolSearch, `{"words":"a"} {"words":"b"}`, memory.ErrInvalid},
		{compaction.ToolSearch, `{"words":"a","user":"bert"}`, memory.ErrInvalid},
		{compaction.ToolSearch, `{"words":1}`, memory.ErrInvalid},
		{compaction.ToolSearch, `{"words":"a","limit":0}`, memory.ErrInvalid},
		{compaction.ToolSearch, `{"words":"a","limit":200}`, memory.ErrInvalid},
		{compaction.ToolSearch, `{"words":"a","from":"yesterday"}`, memory.ErrInvalid},
		{compaction.ToolSearch, `{"words":"a","session":"` + theirs.Session.String() + `"}`, memory.ErrInvalid},
		{compaction.ToolSearch, `{"expression":"(a+)+("}`, memory.ErrInvalid},
		{compaction.ToolSearch, `{"words":"` + strings.Repeat("x", 20_000) + `"}`, memory.ErrInvalid},
		{compaction.ToolDescribe, `{}`, memory.ErrInvalid},
		{compaction.ToolDescribe, `{"id":"` + theirs.ID.String() + `"}`, memory.ErrNotFound},
		{compaction.ToolExpand, `{"id":"` + theirs.ID.String() + `"}`, memory.ErrNotFound},
		{compaction.ToolExpand, `{"id":"` + m.ID.String() + `","tokens":100000}`, memory.ErrInvalid},
		{compaction.ToolExpand, `{"id":"` + m.ID.String() + `","cursor":"m2.0.0"}`, memory.ErrInvalid},
	} {
		c, err := l.tool(test.tool).Call(t.Context(), l.anna, l.session, json.RawMessage(test.input), 1<<20)
		if !errors.Is(err, test.want) {
			t.Errorf("%s(%.60s): %v, want %v", test.tool, test.input, err, test.want)
		}
		if c.IsEmpty() || c.Tokens() > 5000 {
			t.Errorf("%s(%.60s): the model is told %d tokens", test.tool, test.input, c.Tokens())
		}
	}
	// The machine's troubles are not told.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c, err := l.tool(compaction.ToolSearch).Call(ctx, l.anna, l.session, json.RawMessage(`{"words":"a"}`), 1<<20)
	if text := c.Render(); !errors.Is(err, context.Canceled) || strings.Contains(text, "glovebox.db") || c.IsEmpty() {
		t.Errorf("cancelled: %v, %s", err, text)
	}
	if err := l.store.Close(); err != nil {
		t.Fatal(err)
	}
	c, err = l.tool(compaction.ToolDescribe).Call(t.Context(), l.anna, l.session, json.RawMessage(`{"id":"`+m.ID.String()+`"}`), 1<<20)
	if text := c.Render(); err == nil || strings.Contains(text, "glovebox.db") || !strings.Contains(text, "cannot be read") {
		t.Errorf("closed: %v, %s", err, text)
	}
}

// What the model reads of input that does not fit is in its terms.
func TestToolsSayWhatDoesNotFit(t *testing.T) {
	l := newLibrary(t)
	for input, want := range map[string]string{
		`{"words":"a","limit":"3"}`:      "limit: it has to be a whole number, not a text",
		`{"words":["a"]}`:                "words: it has to be a text, not a list",
		`{"words":"a","in":["file", 1]}`: "in[1]: it has to be a text, not a number",
		`{"words":"a","Limit":3}`:        `unknown field "Limit"`,
		`{"words":"a"} {}`:               "after top-level value",
	} {
		c, err := l.tool(compaction.ToolSearch).Call(t.Context(), l.anna, l.session, json.RawMessage(input), 1<<20)
		if text := c.Render(); !errors.Is(err, memory.ErrInvalid) || !strings.Contains(text, "does not fit the parameters: ") || !strings.Contains(text, want) || strings.Contains(text, "Go ") {
			t.Errorf("%s: %v, the model reads %s", input, err, text)
		}
	}
}

// Whatever a model sends, it gets an answer in one frame.
func FuzzTools(f *testing.F) {
	for _, seed := range []string{`{"words":"pump"}`, `{"expression":"p(u|m)*p"}`, `{"id":"x"}`, `{"id":"01890000-0000-7000-8000-000000000000","cursor":"m1.0.0"}`, `{"words":"<<<EXTCONTENT_","order":"hybrid","in":["file"]}`} {
		f.Add(seed)
	}
	store, err := sqlite.Open(f.Context(), filepath.Join(f.TempDir(), "glovebox.db"), sqlite.Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { store.Close() })
	agent, err := store.PutAgent(f.Context(), "assistant", "", monday)
	if err != nil {
		f.Fatal(err)
	}
	anna, err := store.DefaultUser(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	session, err := store.CreateSession(f.Context(), memory.Session{Agent: agent.ID, User: anna.ID, CreatedAt: monday})
	if err != nil {
		f.Fatal(err)
	}
	d := said("The pump in hall three was replaced by Marta.")
	d.At = monday
	if _, err := store.Append(f.Context(), anna.ID, session.ID, d); err != nil {
		f.Fatal(err)
	}
	tools := compaction.Tools(compaction.NewRetrieval(&scanning{Store: store}, nil, compaction.ScanLimits{}))
	f.Fuzz(func(t *testing.T, input string) {
		for _, tool := range tools {
			c, _ := tool.Call(t.Context(), anna.ID, session.ID, json.RawMessage(input), 1<<20)
			text := c.Render()
			if c.IsEmpty() || strings.Count(text, "<<<EXTCONTENT_") != 1 || strings.Count(text, "<<</EXTCONTENT_") != 1 {
				t.Fatalf("%s(%q) gives %s", tool.Name, input, text)
			}
		}
	})
}

// What a tool gives without being told how much fits the room that there is: the
// input of memory_describe cannot ask for less.
func TestToolsKeepToTheRoom(t *testing.T) {
	l := newLibrary(t)
	for range 150 {
		l.say(strings.Repeat("The aardvark of hall seven is at large again today. ", 3))
	}
	id := l.summarise(150, "Aardvarks.", boundary.Content{}).ID.String()
	for name, input := range map[string]string{
		compaction.ToolSearch:   `{"words":"aardvark","limit":20}`,
		compaction.ToolDescribe: `{"id":"` + id + `"}`,
		compaction.ToolExpand:   `{"id":"` + id + `"}`,
	} {
		for _, room := range []int{300, 1000, 4096} {
			c, err := l.tool(name).Call(t.Context(), l.anna, l.session, json.RawMessage(input), room)
			if n := c.Tokens(); err != nil || n > room || n == 0 {
				t.Errorf("%s in %d tokens: %d, %v", name, room, n, err)
			}
		}
	}
}
