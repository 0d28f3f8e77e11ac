package host_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/compaction"
	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/memory"
)

var weather = llm.Tool{Name: "weather", Description: "Tells the weather.", Parameters: []byte(`{"type":"object"}`)}

func idsOf(calls []llm.ToolCall) (ids []string) {
	for _, c := range calls {
		ids = append(ids, c.ID)
	}
	return ids
}

// resultsOf returns the texts of the results in a prompt, by id.
func resultsOf(r llm.Request) map[string]string {
	all := map[string]string{}
	for _, m := range r.Messages {
		for _, result := range m.ToolResults {
			all[result.ID] = result.Text
		}
	}
	return all
}

func TestRelayOfAClientsTools(t *testing.T) {
	c, model := relaying(t, host.Config{})
	c.conv.Tools = []llm.Tool{weather}
	model.script(
		calling("Let me see.", toolCall("a", "weather", `{"at":"Rome", "n":1.0}`), toolCall("b", "weather", `{"at":"Oslo"}`)),
		llm.Response{Text: "Rome is warm."},
		llm.Response{Text: "Good night."})
	asks := c.say(fromUser("weather?"))
	if !slices.Equal(idsOf(asks.Calls), []string{"a", "b"}) || len(asks.Message.Blocks) != 3 || string(asks.Calls[0].Input) != `{"at":"Rome", "n":1.0}` {
		t.Errorf("the client gets %+v with %+v", asks.Message.Blocks, asks.Calls)
	}
	// Results in another order, and the calls as a program writes them that read them.
	c.upTo(1)
	c.conv.Messages = append(c.conv.Messages, fromModel("Let me see.", toolCall("a", "weather", `{"n":1,"at":"Rome"}`), toolCall("b", "weather", `{"at": "Oslo"}`)))
	answer := c.say(fromTool("b", "cold"), fromTool("a", "warm"))
	if answer.Session != asks.Session || answer.New || answer.Added != 2 || len(answer.Calls) != 0 {
		t.Errorf("the results are placed in %+v", answer.Placed)
	}
	c.holds("user/user weather?", "assistant/assistant Let me see. call a call b", "tool/tool result b", "tool/tool result a", "assistant/assistant Rome is warm.")
	asked := model.requests()
	results := resultsOf(asked[1])
	if !strings.Contains(results["a"], "warm") || !strings.Contains(results["a"], "EXTCONTENT") || !strings.Contains(results["b"], "cold") {
		t.Errorf("the model reads the results %q", results)
	}
	if answer.Message.Trust != memory.TrustDerived {
		t.Errorf("an answer with a tool's words in view is %s", answer.Message.Trust)
	}
	if _, s := transcriptOf(t, c.h, c.session); s.Exchanges != 1 {
		t.Errorf("%d exchanges", s.Exchanges)
	}
	c.say(fromUser("bye"))
}

func TestRelaySettlesWhatTheClientDoesNotAnswer(t *testing.T) {
	c, model := relaying(t, host.Config{})
	c.conv.Tools = []llm.Tool{weather}
	model.script(
		calling("", toolCall("a", "weather", `{}`), toolCall("b", "weather", `{}`)),
		llm.Response{Text: "Never mind."}, llm.Response{Text: "Warm."})
	asks := c.say(fromUser("weather?"))
	c.say(fromTool("b", "warm"), fromUser("forget it"))
	c.holds("user/user weather?", "assistant/assistant call a call b", "tool/tool result a failed", "tool/tool result b", "user/user forget it", "assistant/assistant Never mind.")
	// The client has thought better of it.
	c.upTo(2)
	back := c.say(fromTool("a", "warm"), fromTool("b", "cold"))
	if !back.New || back.Parent != asks.Session {
		t.Errorf("placed in %+v", back.Placed)
	}
	c.holds("user/user weather?", "assistant/assistant call a call b", "tool/tool result a", "tool/tool result b", "assistant/assistant Warm.")
}

// The id of a call that another has already is not the one that the client gets.
func TestRelayGivesOutTheIDsThatItStores(t *testing.T) {
	c, model := relaying(t, host.Config{})
	c.conv.Tools = []llm.Tool{weather}
	call := toolCall("call_0", "weather", `{}`)
	model.script(calling("", call), calling("", call), llm.Response{Text: "Warm."})
	first := c.say(fromUser("weather?"))
	second := c.say(fromTool(first.Calls[0].ID, "cold"))
	if id := second.Calls[0].ID; id == "call_0" || second.Message.Blocks[0].ID != id {
		t.Errorf("the second call is %q, stored as %q", id, second.Message.Blocks[0].ID)
	}
	if last := c.say(fromTool(second.Calls[0].ID, "warm")); last.Session != first.Session || last.Added != 1 {
		t.Errorf("placed in %+v", last.Placed)
	}
}

// Nor is the id of one that was summarised since, which the client still has.
func TestRelayGivesOutNoIDThatTheClientHas(t *testing.T) {
	runs := make(chan compaction.Report, 8)
	c, model := relaying(t, host.Config{
		Summarizer:   compaction.NewOffline(),
		Compaction:   host.CompactionConfig{ContinuousInterval: 1, KeepRecent: 1},
		OnCompaction: func(r compaction.Report) { runs <- r },
	})
	c.conv.Tools = []llm.Tool{weather}
	call := toolCall("call_0", "weather", `{}`)
	model.script(calling("", call), llm.Response{Text: "Warm."}, calling("", call), llm.Response{Text: "Cold."})
	first := c.say(fromUser("weather?"))
	c.say(fromTool(first.Calls[0].ID, strings.Repeat("warm ", 200)))
	if r := <-runs; r.Outcome != memory.OutcomeDone || len(r.Sweep.Summaries) == 0 {
		t.Fatalf("nothing was summarised: %+v", r)
	}
	second := c.say(fromUser("and now?"))
	if id := second.Calls[0].ID; id == first.Calls[0].ID {
		t.Errorf("two calls of a conversation have the id %q", id)
	}
	if last := c.say(fromTool(second.Calls[0].ID, "cold")); last.Session != first.Session || last.Added != 1 {
		t.Errorf("placed in %+v", last.Placed)
	}
}

func withHostTools() host.Config {
	return host.Config{Server: host.ServerConfig{Gateway: host.GatewayConfig{HostTools: true}}}
}

func TestRelayAnswersTheHostsToolsInside(t *testing.T) {
	c, model := relaying(t, withHostTools())
	search, shadowed := &testTool{name: "search"}, &testTool{name: "weather"}
	c.h.Offer(time.Minute, search, shadowed)
	c.conv.Tools = []llm.Tool{weather}
	var events heard
	c.conv.OnEvent = events.tell
	model.script(
		calling("Let me search.", toolCall("a", "search", `{"n":1}`)),
		llm.Response{Text: "Found it.", InputTokens: 5, OutputTokens: 1},
		calling("Both.", toolCall("b", "search", `{"n":2}`), toolCall("c", "weather", `{}`)),
		llm.Response{Text: "Warm."}, llm.Response{Text: "Cold."})
	first := c.say(fromUser("one"))
	if len(first.Calls) != 0 || len(first.Message.Blocks) != 1 || first.Response.InputTokens != 15 || first.Response.OutputTokens != 3 {
		t.Errorf("the client gets %+v, calls %v, %+v", first.Message.Blocks, first.Calls, first.Response)
	}
	if got, want := events.lines(), []string{"tool search", "Found it."}; !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
	if tools := model.requests()[0].Tools; len(tools) != 2 || tools[0].Name != "search" || tools[1].Description != weather.Description {
		t.Errorf("offered %+v", tools)
	}
	// One answer with calls of both: the host's is answered at once.
	events.events = nil
	both := c.say(fromUser("two"))
	if both.Session != first.Session || !slices.Equal(idsOf(both.Calls), []string{"c"}) || len(both.Message.Blocks) != 2 {
		t.Errorf("the client gets %+v, calls %v", both.Message.Blocks, both.Calls)
	}
	if got, want := events.lines(), []string{"Both.", "tool search"}; !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
	last := c.say(fromTool("c", "warm"))
	if last.Session != first.Session || last.Added != 1 {
		t.Errorf("placed in %+v", last.Placed)
	}
	c.holds("user/user one", "assistant/assistant Let me search. call a", "tool/tool result a", "assistant/assistant Found it.",
		"user/user two", "assistant/assistant Both. call b call c", "tool/tool result b", "tool/tool result c", "assistant/assistant Warm.")
	if uses := search.uses(); len(uses) != 2 || len(shadowed.uses()) != 0 {
		t.Errorf("the host's tools ran %v, %v", uses, shadowed.uses())
	}
	// What the host did beside the client's call comes along into a fork.
	c.upTo(len(c.conv.Messages) - 2)
	fork := c.say(fromTool("c", "cold"))
	if !fork.New || fork.Parent != first.Session {
		t.Errorf("placed in %+v", fork.Placed)
	}
	c.holds("user/user one", "assistant/assistant Let me search. call a", "tool/tool result a", "assistant/assistant Found it.",
		"user/user two", "assistant/assistant Both. call b call c", "tool/tool result b", "tool/tool result c", "assistant/assistant Cold.")
}

// Behind an answer that the client names, what the host did beside it is there too.
func TestRelayBehindAnAnswerWithCallsOfBoth(t *testing.T) {
	c, model := relaying(t, withHostTools())
	c.h.Offer(time.Minute, &testTool{name: "search"})
	c.conv.Tools, c.conv.AnswerKey = []llm.Tool{weather}, "resp_1"
	model.script(
		calling("", toolCall("a", "search", `{}`), toolCall("b", "weather", `{}`), toolCall("c", "weather", `{}`)),
		llm.Response{Text: "Warm."}, llm.Response{Text: "Cold."}, llm.Response{Text: "As you like."})
	first := c.say(fromUser("one"))
	for _, test := range []struct {
		say  []memory.Draft
		want []string
	}{
		{[]memory.Draft{fromTool("b", "warm"), fromTool("c", "warm")}, []string{"tool/tool result b", "tool/tool result c", "assistant/assistant Warm."}},
		{[]memory.Draft{fromTool("b", "cold"), fromTool("c", "cold")}, []string{"tool/tool result b", "tool/tool result c", "assistant/assistant Cold."}},
		{[]memory.Draft{fromUser("never mind")}, []string{"tool/tool result b failed", "tool/tool result c failed", "user/user never mind", "assistant/assistant As you like."}},
	} {
		c.conv = host.Conversation{Session: first.Session.String(), After: "resp_1", Tools: []llm.Tool{weather}}
		c.say(test.say...)
		c.holds(append([]string{"user/user one", "assistant/assistant call a call b call c", "tool/tool result a"}, test.want...)...)
	}
}

func TestRelayOffersTheHostsToolsIfItIsConfigured(t *testing.T) {
	c, model := relaying(t, host.Config{})
	c.h.Offer(time.Minute, &testTool{name: "search"})
	c.say(fromUser("one"))
	c.conv.Tools = []llm.Tool{weather}
	// A call of what nobody offered is the client's, as it would be without a host.
	model.script(calling("", toolCall("a", "search", `{}`)))
	if out := c.say(fromUser("two")); len(out.Calls) != 1 || out.Calls[0].Name != "search" {
		t.Errorf("the client gets %+v", out.Calls)
	}
	for i, r := range model.requests() {
		if len(r.Tools) != i {
			t.Errorf("request %d offers %v", i, r.Tools)
		}
	}

	with, model := relaying(t, withHostTools())
	with.h.Offer(time.Minute, &testTool{name: "search"})
	with.say(fromUser("one"))
	with.conv.Tools = []llm.Tool{weather}
	with.conv.Ask.Choice.Required = true
	with.say(fromUser("two"))
	with.conv.Ask = llm.Request{NoCalls: true}
	with.say(fromUser("three"))
	var offers []int
	for _, r := range model.requests() {
		offers = append(offers, len(r.Tools))
	}
	if !slices.Equal(offers, []int{1, 1, 2}) {
		t.Errorf("tools offered %v", offers)
	}
}

func TestRelayAsksAsTheClientDoes(t *testing.T) {
	c, model := relaying(t, host.Config{Agents: []host.AgentConfig{{Name: "cook", SystemPrompt: "You cook."}}, Model: host.ModelConfig{MaxOutputTokens: 100}})
	half := 0.5
	c.conv.Tools = []llm.Tool{weather}
	c.conv.System = "Be brief."
	c.conv.Ask = llm.Request{
		System: "not this", Messages: []llm.Message{{Text: "nor this"}}, Tools: []llm.Tool{{Name: "nor_this"}}, CacheSystem: true,
		MaxOutputTokens: 7, Choice: llm.ToolChoice{Required: true, Name: "weather", One: true}, TopP: &half, Temperature: &half, Stop: []string{"END"}, Effort: "low",
	}
	c.say(fromUser("one"))
	c.conv.Ask = llm.Request{MaxOutputTokens: 5000}
	c.say(fromUser("two"))
	asked := model.requests()
	r := asked[0]
	if !strings.HasPrefix(r.System, "You cook.\n\nBe brief.\n\n") || len(r.Messages) != 1 || r.Messages[0].Text != "one" || len(r.Tools) != 1 {
		t.Errorf("asked with %+v", r)
	}
	got := llm.Request{MaxOutputTokens: r.MaxOutputTokens, Choice: r.Choice, TopP: r.TopP, Temperature: r.Temperature, Stop: r.Stop, Effort: r.Effort}
	want := llm.Request{MaxOutputTokens: 7, Choice: llm.ToolChoice{Required: true, Name: "weather", One: true}, TopP: &half, Temperature: &half, Stop: []string{"END"}, Effort: "low"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("asked with %+v, want %+v", got, want)
	}
	if n := asked[1].MaxOutputTokens; n != 100 {
		t.Errorf("more than is configured becomes %d", n)
	}
}

func TestRelayOfCallsThatCannotBePassedOn(t *testing.T) {
	for name, test := range map[string]struct {
		response llm.Response
		want     error
		text     string
		kept     bool // the question is stored in either case; this says that the answer is
	}{
		"arguments that are none":     {calling("Hm.", toolCall("a", "weather", `[`)), llm.ErrUnavailable, "", false},
		"cut off within them":         {llm.Response{Text: "Hm.", ToolCalls: []llm.ToolCall{toolCall("a", "weather", `{"x`)}, Truncated: true}, nil, "Hm.", true},
		"cut off before anything":     {llm.Response{ToolCalls: []llm.ToolCall{toolCall("a", "weather", `{"x`)}, Truncated: true}, llm.ErrEmpty, "", false},
		"one of two within the limit": {llm.Response{ToolCalls: []llm.ToolCall{toolCall("a", "weather", `{}`), toolCall("b", "weather", `{`)}, Truncated: true}, nil, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			c, model := relaying(t, host.Config{})
			c.conv.Tools, c.conv.Messages = []llm.Tool{weather}, []memory.Draft{fromUser("one")}
			model.script(test.response)
			out, err := c.h.Relay(t.Context(), &c.conv)
			if !errors.Is(err, test.want) || err == nil && test.want != nil {
				t.Fatalf("it ends with %v", err)
			}
			if out.Response.Truncated != test.response.Truncated {
				t.Errorf("the response is %+v", out.Response)
			}
			if err == nil && test.text != "" && (len(out.Message.Blocks) != 1 || out.Message.Blocks[0].Text != test.text) {
				t.Errorf("the client gets %+v", out.Message.Blocks)
			}
			lines, _ := transcriptOf(t, c.h, out.Session)
			if stored := len(lines) == 2; stored != test.kept {
				t.Errorf("the session holds %q", lines)
			}
		})
	}
}

func TestRelayStreams(t *testing.T) {
	tooLong := errors.Join(errors.New("test"), llm.ErrContextTooLong)
	for name, test := range map[string]struct {
		script []spoken
		want   []string
		fails  error
	}{
		"pieces":                    {[]spoken{says("It ", "does", ".")}, []string{"It ", "does", "."}, nil},
		"words before a call":       {[]spoken{{pieces: []string{"Let me ", "see."}, calls: []llm.ToolCall{toolCall("a", "weather", "{}")}}}, []string{"Let me ", "see."}, nil},
		"a call alone":              {[]spoken{{calls: []llm.ToolCall{toolCall("a", "weather", "{}")}}}, nil, nil},
		"too long before a word":    {[]spoken{{err: tooLong}, says("It does.")}, []string{"It does."}, nil},
		"too long after a word":     {[]spoken{{pieces: []string{"It"}, err: tooLong}, says("It does.")}, []string{"It"}, llm.ErrContextTooLong},
		"a driver that loses some":  {[]spoken{{pieces: []string{"It do"}, text: "It does."}}, []string{"It do", "es."}, nil},
		"a driver that is confused": {[]spoken{{pieces: []string{"It do"}, text: "They do."}}, []string{"It do"}, llm.ErrUnavailable},
		"a driver that says none":   {[]spoken{{text: "It does."}}, []string{"It does."}, nil},
		"it breaks off":             {[]spoken{{pieces: []string{"It "}, err: llm.ErrUnavailable}}, []string{"It "}, llm.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := relaying(t, host.Config{LLM: &streaming{script: test.script}})
			c.h.Offer(time.Minute, &testTool{name: "search"})
			// Something that recovery can leave out.
			c.conv.Session = longSession(t, c.h).String()
			var events heard
			c.conv.OnEvent, c.conv.Tools, c.conv.Messages = events.tell, []llm.Tool{weather}, []memory.Draft{fromUser("Does it?")}
			out, err := c.h.Relay(t.Context(), &c.conv)
			if !errors.Is(err, test.fails) || err == nil && test.fails != nil {
				t.Fatalf("it ends with %v", err)
			}
			if got := events.lines(); !slices.Equal(got, test.want) {
				t.Errorf("told %q, want %q", got, test.want)
			}
			if err == nil && len(test.want) > 0 && out.Message.Blocks[0].Text != events.told() {
				t.Errorf("stored %q, told %q", out.Message.Blocks[0].Text, events.told())
			}
		})
	}
}

// A client that goes away cancels the model, and finds its question when it comes
// back.
func TestRelayIsCancelled(t *testing.T) {
	begun := make(chan struct{})
	model := &streaming{script: []spoken{says("One."), {pieces: []string{"It "}, hangs: true, begun: begun}, says("It does.")}}
	c, _ := relaying(t, host.Config{LLM: model})
	c.conv.OnEvent = func(host.Event) {}
	first := c.say(fromUser("one"))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-begun
		cancel()
	}()
	c.conv.Messages = append(c.conv.Messages, fromUser("Does it?"))
	if _, err := c.h.Relay(ctx, &c.conv); !errors.Is(err, context.Canceled) {
		t.Fatalf("it ends with %v", err)
	}
	c.holds("user/user one", "assistant/assistant One.", "user/user Does it?")
	if again := c.say(); again.Session != first.Session || again.New || again.Added != 0 {
		t.Errorf("placed in %+v", again.Placed)
	}
	c.holds("user/user one", "assistant/assistant One.", "user/user Does it?", "assistant/assistant It does.")
}

func TestAWipeEndsRelays(t *testing.T) {
	data := t.TempDir()
	model := waitingModel{make(chan struct{})}
	h := open(t, host.Config{Data: data, LLM: model})
	user, err := h.User("")
	if err != nil {
		t.Fatal(err)
	}
	const text = "xq7aurelia"
	ended := make(chan error)
	go func() {
		_, err := h.Relay(t.Context(), &host.Conversation{Session: "mine", Messages: []memory.Draft{fromUser("It is " + text)}})
		ended <- err
	}()
	<-model.asked
	report := make(chan error)
	go func() {
		_, err := h.WipeUser(t.Context(), user.ID)
		report <- err
	}()
	if err := <-ended; !errors.Is(err, memory.ErrWiped) {
		t.Errorf("the turn ended with %v", err)
	}
	if err := <-report; err != nil {
		t.Error(err)
	}
	if found := traces(t, data, text); len(found) > 0 {
		t.Errorf("it is still in %v", found)
	}
}

// Pictures reach the model in their places, and are known again by what they show.
func TestRelayOfPictures(t *testing.T) {
	c, model := relaying(t, host.Config{})
	picture := func(data string) memory.Block { return memory.Image("image/png", []byte(data), "") }
	shows := said(memory.RoleUser, memory.Text("What is "), picture("a cat"), memory.Text("this?"), memory.Image("", nil, "https://example.org/dog.png"))
	first := c.say(shows)
	images := model.requests()[0].Messages[0].Images
	if len(images) != 2 || string(images[0].Data) != "a cat" || images[0].MediaType != "image/png" || images[1].URL != "https://example.org/dog.png" || images[0].At >= images[1].At {
		t.Errorf("the model is shown %+v", images)
	}
	if next := c.say(fromUser("And now?")); next.Session != first.Session || next.Added != 1 {
		t.Errorf("placed in %+v", next.Placed)
	}
	// A tool may return one.
	c.conv.Tools = []llm.Tool{weather}
	model.script(calling("", toolCall("a", "weather", `{}`)), llm.Response{Text: "Clouds."})
	c.say(fromUser("and the sky?"))
	c.say(said(memory.RoleTool, memory.ToolResult("a", "weather", framed("see"), false), picture("the sky")))
	asked := model.requests()
	last := asked[len(asked)-1].Messages
	if images := last[len(last)-1].Images; len(images) != 1 || string(images[0].Data) != "the sky" {
		t.Errorf("of a tool's the model is shown %+v", images)
	}
	model.answer = nil
	c.conv.Messages[0] = said(memory.RoleUser, memory.Text("What is "), picture("a dog"), memory.Text("this?"), memory.Image("", nil, "https://example.org/dog.png"))
	if other := c.say(fromUser("Sure?")); !other.New || other.Added == 1 {
		t.Errorf("with another picture placed in %+v", other.Placed)
	}
}
