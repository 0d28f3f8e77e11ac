package host_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/gloveboxhq/glovebox/compaction"
	"github.com/gloveboxhq/glovebox/compaction/assembly"
	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/dream"
)

// mind is a model that is asked for answers, extractions and dreams, and keeps
// what it was asked.
type mind struct {
	// Each is nil for "ok", for nothing that is worth remembering, and for no
	// topics. They are called without a lock.
	answers, extracts, dreams func(ctx context.Context, r llm.Request) (llm.Response, error)

	mu    sync.Mutex
	asked map[string][]llm.Request
}

const nothingLearned = `{"facts":[],"preferences":[],"decisions":[],"tasks":[],"open_items":[]}`

// kindOf tells what a request is for.
func kindOf(r llm.Request) string {
	switch {
	case r.Schema == nil:
		return "answer"
	case r.Schema.Name == "topics":
		return "dream"
	}
	return "extraction"
}

func (m *mind) Complete(ctx context.Context, r llm.Request) (llm.Response, error) {
	kind := kindOf(r)
	m.mu.Lock()
	if m.asked == nil {
		m.asked = map[string][]llm.Request{}
	}
	m.asked[kind] = append(m.asked[kind], r)
	m.mu.Unlock()
	does, text := m.answers, "ok"
	switch kind {
	case "extraction":
		does, text = m.extracts, nothingLearned
	case "dream":
		does, text = m.dreams, `{"topics":[]}`
	}
	if does != nil {
		return does(ctx, r)
	}
	return llm.Response{Text: text, Model: "test"}, nil
}

// requests are those of a kind, in their order.
func (m *mind) requests(kind string) []llm.Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.asked[kind])
}

// saying answers the same every time.
func saying(text string) func(context.Context, llm.Request) (llm.Response, error) {
	return func(context.Context, llm.Request) (llm.Response, error) {
		return llm.Response{Text: text, Model: "test"}, nil
	}
}

// hanging answers nothing before its context is done. It tells entered of each
// time.
func hanging(entered chan<- struct{}) func(context.Context, llm.Request) (llm.Response, error) {
	return func(ctx context.Context, _ llm.Request) (llm.Response, error) {
		entered <- struct{}{}
		<-ctx.Done()
		return llm.Response{}, ctx.Err()
	}
}

func factOf(text, message string) string {
	return fmt.Sprintf(`{"facts":[{"text":%q,"from":[%q]}],"preferences":[],"decisions":[],"tasks":[],"open_items":[]}`, text, message)
}

func topicOf(name, content, from string) string {
	return fmt.Sprintf(`{"topics":[{"topic":%q,"content":%q,"supersedes":[],"from":[%q],"expires_at":null,"scope":"user"}]}`, name, content, from)
}

// wordsOf is all that a request says.
func wordsOf(r llm.Request) string {
	var b strings.Builder
	b.WriteString(r.System + "\n")
	for _, m := range r.Messages {
		b.WriteString(m.Text + "\n")
		for _, result := range m.ToolResults {
			b.WriteString(result.Text + "\n")
		}
	}
	return b.String()
}

// structured is a host whose first agent has structured memory.
func structured(t *testing.T, config host.Config) *host.Host {
	t.Helper()
	config.Agents = append([]host.AgentConfig{{Name: "jeeves", Memory: host.AgentMemoryConfig{System: host.MemoryStructured}}}, config.Agents...)
	return open(t, config)
}

// put writes a topic of the default user.
func put(t *testing.T, h *host.Host, agent memory.AgentID, name, content string) {
	t.Helper()
	user, err := h.User("")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Store().PutTopic(t.Context(), user.ID, agent, memory.TopicRevision{}, memory.NewTopic{Name: name, Content: content}, monday); err != nil {
		t.Fatal(err)
	}
}

// contents are what is remembered of the default user, with every agent, now.
func contents(t *testing.T, h *host.Host, at time.Time) (all []string) {
	t.Helper()
	user, err := h.User("")
	if err != nil {
		t.Fatal(err)
	}
	topics, _, err := h.Store().Topics(t.Context(), user.ID, memory.TopicQuery{At: at})
	if err != nil {
		t.Fatal(err)
	}
	for _, topic := range topics {
		all = append(all, topic.Content)
	}
	return all
}

// tollStore is a store that counts the calls to what structured memory keeps.
type tollStore struct {
	memory.Store

	mu    sync.Mutex
	calls map[string]int
}

func (c *tollStore) count(method string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[method]++
}

// counts returns the calls since the last time.
func (c *tollStore) counts() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := maps.Clone(c.calls)
	clear(c.calls)
	return counts
}

func (c *tollStore) UnseenMessages(ctx context.Context, user memory.UserID, session memory.SessionID, q memory.MessageQuery) ([]memory.Message, error) {
	c.count("UnseenMessages")
	return c.Store.UnseenMessages(ctx, user, session, q)
}

func (c *tollStore) Unseen(ctx context.Context, user memory.UserID, session memory.SessionID) (memory.Unseen, error) {
	c.count("Unseen")
	return c.Store.Unseen(ctx, user, session)
}

func (c *tollStore) CommitExtraction(ctx context.Context, user memory.UserID, x memory.NewExtraction) (memory.Extraction, error) {
	c.count("CommitExtraction")
	return c.Store.CommitExtraction(ctx, user, x)
}

func (c *tollStore) Extractions(ctx context.Context, user memory.UserID, q memory.ExtractionQuery) ([]memory.Extraction, error) {
	c.count("Extractions")
	return c.Store.Extractions(ctx, user, q)
}

func (c *tollStore) NextIdleSession(ctx context.Context, q memory.DueQuery) (memory.IdleSession, error) {
	c.count("NextIdleSession")
	return c.Store.NextIdleSession(ctx, q)
}

func (c *tollStore) Topics(ctx context.Context, user memory.UserID, q memory.TopicQuery) ([]memory.Topic, memory.TopicRevision, error) {
	c.count("Topics")
	return c.Store.Topics(ctx, user, q)
}

func (c *tollStore) CommitDream(ctx context.Context, user memory.UserID, r memory.TopicRevision, d memory.Dream) ([]memory.Topic, error) {
	c.count("CommitDream")
	return c.Store.CommitDream(ctx, user, r, d)
}

// counted puts a tollStore into a host.
func counted(t *testing.T, h *host.Host) *tollStore {
	t.Helper()
	c := &tollStore{calls: map[string]int{}}
	if err := h.Interpose(t.Context(), func(s memory.Store) memory.Store {
		c.Store = s
		return c
	}); err != nil {
		t.Fatal(err)
	}
	return c
}

// M1: an agent that has not opted in makes no query of what is remembered, asks
// the model for nothing but answers and has no section, though there are topics,
// the loop runs, a prompt overflows and there is much to extract. M2: one that
// opts in has all of it from its next turn on, and nothing after it opts out.
func TestWhoHasNotOptedInPaysNothing(t *testing.T) {
	ticks := make(chan time.Time)
	at := &clock{at: monday}
	model := &mind{}
	refuse := true
	model.answers = func(context.Context, llm.Request) (llm.Response, error) {
		if refuse = !refuse; !refuse {
			return llm.Response{}, fmt.Errorf("test: %w", llm.ErrContextTooLong)
		}
		return llm.Response{Text: "ok", Model: "test"}, nil
	}
	h := open(t, host.Config{LLM: model, Now: at.now, Ticks: ticks, Memory: host.MemoryConfig{ExtractionTokens: 1, ExtractionToolCalls: 1}})
	put(t, h, memory.AgentID{}, "pump", "The pump is blue.")
	session := longSession(t, h)
	store := counted(t, h)
	turns := func() (sections int) {
		before := len(model.requests("answer"))
		for range 12 {
			send(t, h, host.Message{Session: session, Text: "How does the pump do?"})
			at.advance(time.Hour)
			ticks <- at.now()
		}
		ticks <- at.now() // the tick before it is over
		for _, r := range model.requests("answer")[before:] {
			if strings.Contains(wordsOf(r), dream.Heading) {
				sections++
			}
		}
		return sections
	}
	choose := func(system string) {
		if _, err := h.SetMemorySystem(t.Context(), "", system); err != nil {
			t.Fatal(err)
		}
	}
	if sections, counts := turns(), store.counts(); sections > 0 || len(counts) > 0 || len(model.requests("extraction"))+len(model.requests("dream")) > 0 {
		t.Errorf("%d sections, %v", sections, counts)
	}
	choose("structured")
	if sections, counts := turns(), store.counts(); sections != 24 || counts["Topics"] == 0 || counts["NextIdleSession"] == 0 || counts["Unseen"] == 0 || len(model.requests("extraction")) == 0 {
		t.Errorf("with structured memory: %d sections, %v", sections, counts)
	}
	choose("")
	ticks <- at.now() // the last tick from before is over
	store.counts()
	model.mu.Lock()
	clear(model.asked)
	model.mu.Unlock()
	if sections, counts := turns(), store.counts(); sections > 0 || len(counts) > 0 || len(model.requests("extraction"))+len(model.requests("dream")) > 0 {
		t.Errorf("after opting out: %d sections, %v", sections, counts)
	}
}

// embedder finds that everything has to do with the topic "pump 3", or fails.
type embedder struct{ err error }

func (e embedder) Embed(_ context.Context, texts []string) ([][]float32, error) {
	vectors := make([][]float32, len(texts))
	for i, text := range texts {
		if vectors[i] = []float32{0, 1}; i == 0 || strings.HasPrefix(text, "pump 3:") {
			vectors[i] = []float32{1, 0}
		}
	}
	return vectors, e.err
}

// Where there is no room for all topics, the input says which: by its words, or by
// its meaning where there is an embedder that works.
func TestTheSectionFollowsTheInput(t *testing.T) {
	for name, test := range map[string]struct {
		embedder dream.Embedder
		want     string
	}{
		"by words":                    {nil, "allergic to peanuts"},
		"by meaning":                  {embedder{}, "- pump 3: "},
		"by an embedder that is down": {embedder{errors.New("down")}, "allergic to peanuts"},
	} {
		t.Run(name, func(t *testing.T) {
			model := &mind{}
			h := structured(t, host.Config{LLM: model, Embedder: test.embedder, Memory: host.MemoryConfig{TopicTokenCap: 160}})
			put(t, h, memory.AgentID{}, "allergy", "Is allergic to peanuts, and whoever eats with them has to know where the red bag is kept.")
			for i := range 20 {
				put(t, h, memory.AgentID{}, fmt.Sprintf("pump %d", i), "Is green, and is to stay so whatever the people of the other halls may have to say of it.")
			}
			send(t, h, host.Message{Text: "Are there peanuts in this?"})
			requests := model.requests("answer")
			last := requests[len(requests)-1].Messages
			if text := last[len(last)-1].Text; !strings.Contains(text, test.want) {
				t.Errorf("shown is %s", text)
			}
		})
	}
}

// M3: with topics and the opt-in the section is there, beside the last input and
// nowhere else; without topics, and for a sub-agent, it is not. It is shown by
// ContextOf, and never stored.
func TestWhatIsRememberedIsShown(t *testing.T) {
	model := &mind{}
	config := host.Config{LLM: model, Agents: []host.AgentConfig{{Name: "butler", Memory: host.AgentMemoryConfig{System: host.MemoryStructured}}}}
	h := structured(t, config)
	config.Agents = append([]host.AgentConfig{{Name: "jeeves", Memory: host.AgentMemoryConfig{System: host.MemoryStructured}}}, config.Agents...)
	user, err := h.User("")
	if err != nil {
		t.Fatal(err)
	}
	session := newSession(t, h)
	wasShown := false
	shown := func(m host.Message) string {
		t.Helper()
		m.Session = session
		answer := send(t, h, m)
		requests := model.requests("answer")
		r := requests[len(requests)-1]
		if strings.Contains(r.System, dream.Heading) {
			t.Errorf("it stands in the system text: %q", r.System)
		}
		last := r.Messages[len(r.Messages)-1].Text
		if all := wordsOf(r); strings.Count(all, dream.Heading) != strings.Count(last, dream.Heading) {
			t.Errorf("it does not stand at the end:\n%s", all)
		}
		_, section, found := strings.Cut(last, dream.Heading)
		// What was said with it in view may be repeated by every later answer.
		wasShown = wasShown || found
		if found != (answer.Report.Totals.Beside > 0) || wasShown != (answer.Message.Trust == memory.TrustDerived) {
			t.Errorf("%d tokens beside, trust %s, for %q", answer.Report.Totals.Beside, answer.Message.Trust, last)
		}
		return section
	}
	if got := shown(host.Message{Text: "Hello."}); got != "" {
		t.Errorf("without topics %q", got)
	}
	agents := h.Agents()
	put(t, h, memory.AgentID{}, "pump", "The pump is blue.")
	put(t, h, agents[0].ID, "tone", "Jeeves is to be brief.")
	put(t, h, agents[1].ID, "tone", "The butler is to be verbose.")
	if got := shown(host.Message{Text: "Hello?"}); !strings.Contains(got, "The pump is blue.") || !strings.Contains(got, "Jeeves is to be brief.") || strings.Contains(got, "butler") {
		t.Errorf("it says %q", got)
	}
	if got := shown(host.Message{Text: "Do this.", Source: memory.SourceInterSession}); got != "" {
		t.Errorf("to a sub-agent it says %q", got)
	}
	in, err := host.PromptOf(t.Context(), config, h.Store(), user.ID, session, 0)
	if err != nil || in.Beside != nil {
		t.Errorf("to a sub-agent it will say %+v, %v", in.Beside, err)
	}
	if got := shown(host.Message{Text: "It is time.", Source: memory.SourceScheduledTick}); got == "" {
		t.Error("a tick is answered without it")
	}
	if got := shown(host.Message{Text: "And now?"}); got == "" {
		t.Error("the last turn is answered without it")
	}
	prompt, report, err := host.ContextOf(t.Context(), config, h.Store(), user.ID, session, 0)
	if err != nil {
		t.Fatal(err)
	}
	if last := prompt.Messages[len(prompt.Messages)-1].Text(); !strings.Contains(last, "The pump is blue.") || report.Totals.Beside == 0 {
		t.Errorf("the context ends with %q", last)
	}
	// The user's own words in the same place are not it.
	config.Agents[0].Memory.System = ""
	if prompt, _, err = host.ContextOf(t.Context(), config, h.Store(), user.ID, session, 0); err != nil || strings.Contains(prompt.Messages[len(prompt.Messages)-1].Text(), dream.Heading) {
		t.Errorf("without structured memory %+v, %v", prompt.Messages[len(prompt.Messages)-1], err)
	}
	messages, _ := stored(t, h, session)
	for _, m := range messages {
		if strings.Contains(memory.Plain(m.Blocks), dream.Heading) {
			t.Errorf("it was stored: %+v", m)
		}
	}
}

// A4: the prompt of a turn, up to its last input, begins the next one, though what
// is remembered is another thing in every turn, and many.
func TestThePrefixStaysWhileTopicsChange(t *testing.T) {
	model := &mind{}
	h := structured(t, host.Config{LLM: model})
	h.Offer(time.Minute, &testTool{name: "search"})
	calls := 0
	model.answers = func(context.Context, llm.Request) (llm.Response, error) {
		if calls++; calls%3 == 1 {
			return llm.Response{ToolCalls: []llm.ToolCall{toolCall(fmt.Sprint("c", calls), "search", "{}")}, Model: "test"}, nil
		}
		if calls%3 == 2 {
			// What changes while tools run is shown in the next turn.
			put(t, h, memory.AgentID{}, "meanwhile", fmt.Sprint("Something new: ", calls))
			return llm.Response{ToolCalls: []llm.ToolCall{toolCall(fmt.Sprint("c", calls), "search", "{}")}, Model: "test"}, nil
		}
		return llm.Response{Text: "ok", Model: "test"}, nil
	}
	session := newSession(t, h)
	for i := range 10 {
		put(t, h, memory.AgentID{}, fmt.Sprint("topic ", i), strings.Repeat("It is so. ", i+1))
		send(t, h, host.Message{Session: session, Text: fmt.Sprint("Question ", i)})
	}
	requests := model.requests("answer")
	if len(requests) != 30 {
		t.Fatalf("%d requests", len(requests))
	}
	written := func(r llm.Request, upTo int) string {
		messages := slices.Clone(r.Messages[:upTo])
		for i := range messages {
			messages[i].Breakpoint = false // it is no part of what the model reads
		}
		return marshalled(t, struct {
			System   string
			Tools    []llm.Tool
			Messages []llm.Message
		}{r.System, r.Tools, messages})
	}
	for i := 1; i < len(requests); i++ {
		before, now := requests[i-1], requests[i]
		if i%3 != 0 {
			// A round of the same turn: all of it stays.
			if written(now, len(before.Messages)) != written(before, len(before.Messages)) {
				t.Errorf("request %d changes the turn that it goes on with", i)
			}
			continue
		}
		// The input of the turn before stands at 4 from the end: two rounds are
		// behind it.
		input := len(before.Messages) - 5
		if written(now, input) != written(before, input) {
			t.Errorf("request %d does not begin as the one before", i)
		}
		if !strings.Contains(before.Messages[input].Text, dream.Heading) || strings.Contains(now.Messages[input].Text, dream.Heading) || !strings.HasSuffix(before.Messages[input].Text, now.Messages[input].Text) {
			t.Errorf("the input was %q and is %q", before.Messages[input].Text, now.Messages[input].Text)
		}
	}
}

// leftOut are the messages that recovery left out of a prompt.
func leftOut(r assembly.Report) (ids []string) {
	for _, e := range r.Entries {
		if e.Reason == assembly.ReasonRecovery && e.Kind == assembly.KindMessage && e.ID != (uuid.UUID{}) {
			ids = append(ids, e.ID.String())
		}
	}
	return ids
}

// forgetful is a Dreamer that keeps what it is shown, and learns nothing.
type forgetful struct {
	mini  func(ctx context.Context, leaving []memory.Message) (changed bool)
	after func(at dream.Place) error

	mu      sync.Mutex
	leaving [][]memory.Message
}

func (f *forgetful) AfterTurn(_ context.Context, at dream.Place) error {
	if f.after == nil {
		return nil
	}
	return f.after(at)
}
func (f *forgetful) Dream(context.Context, dream.Place) (dream.Report, error) {
	return dream.Report{}, nil
}
func (f *forgetful) Tick(context.Context) error  { return nil }
func (f *forgetful) Counts() dream.Counts        { return dream.Counts{} }
func (f *forgetful) Close(context.Context) error { return nil }

func (f *forgetful) Mini(ctx context.Context, _ dream.Place, leaving []memory.Message) bool {
	f.mu.Lock()
	f.leaving = append(f.leaving, leaving)
	f.mu.Unlock()
	return f.mini != nil && f.mini(ctx, leaving)
}

// refusing is a mind whose server refuses the first so many prompts of each turn.
func refusing(refusals int) *mind {
	m, n := &mind{}, 0
	m.answers = func(context.Context, llm.Request) (llm.Response, error) {
		if n++; n <= refusals {
			return llm.Response{}, fmt.Errorf("test: %w", llm.ErrContextTooLong)
		}
		n = 0
		return llm.Response{Text: "It still does.", Model: "test"}, nil
	}
	return m
}

// M8: what a stage of recovery is about to leave out, exactly that and before it is
// left out, is looked at: once a stage, and no message twice.
func TestTheMiniDreamSeesWhatRecoveryLeavesOut(t *testing.T) {
	for refusals := range 4 {
		t.Run(fmt.Sprint(refusals, " refusals"), func(t *testing.T) {
			model := refusing(refusals)
			h := structured(t, host.Config{LLM: model, Summarizer: compaction.NewOffline(), Compaction: host.CompactionConfig{KeepRecent: 14}})
			put(t, h, memory.AgentID{}, "pump", "The pump is blue.")
			session := longSession(t, h)
			f := &forgetful{}
			var asked []int // how many prompts were refused when it looked
			f.mini = func(context.Context, []memory.Message) bool {
				asked = append(asked, len(model.requests("answer")))
				put(t, h, memory.AgentID{}, "pump", fmt.Sprint("The pump is red. ", len(asked)))
				return true
			}
			h.Learn(f)
			answer := send(t, h, host.Message{Session: session, Text: "And now?"})
			if answer.Report.Recovery != assembly.Recovery(refusals) {
				t.Fatalf("recovery: %v", answer.Report.Recovery)
			}
			var saw []string
			for _, leaving := range f.leaving {
				for _, m := range leaving {
					saw = append(saw, m.ID.String())
				}
			}
			want := leftOut(answer.Report)
			slices.Sort(saw)
			slices.Sort(want)
			if !slices.Equal(saw, want) || (len(want) > 0) != (refusals > 0) {
				t.Errorf("looked at %d messages in %d times, %d were left out", len(saw), len(f.leaving), len(want))
			}
			for i, n := range asked {
				if n != i+1 {
					t.Errorf("look %d came after %d prompts", i, n)
				}
			}
			// What the mini-dream changed is in the next prompt.
			says := "The pump is blue."
			if n := len(asked); n > 0 {
				says = fmt.Sprint("The pump is red. ", n)
			}
			if text := promptText(answer); !strings.Contains(text, says) || strings.Count(text, "The pump is") != 1 {
				t.Errorf("the prompt does not say %q:\n%s", says, text)
			}
		})
	}
}

// M8, whole: what overflows is learned before it is dropped, and the answer has it.
func TestAnOverflowIsLearnedFrom(t *testing.T) {
	model := refusing(1)
	model.extracts = saying(factOf("The pump in hall 3 is Anna's.", "m1"))
	model.dreams = saying(topicOf("pump", "The pump in hall 3 is Anna's.", "x1"))
	h := structured(t, host.Config{LLM: model, Summarizer: compaction.NewOffline(), Compaction: host.CompactionConfig{KeepRecent: 14}})
	session := longSession(t, h)
	user, err := h.User("")
	if err != nil {
		t.Fatal(err)
	}
	before, err := h.Store().Unseen(t.Context(), user.ID, session)
	if err != nil {
		t.Fatal(err)
	}
	answer := send(t, h, host.Message{Session: session, Text: "And now?"})
	if text := promptText(answer); !strings.Contains(text, "The pump in hall 3 is Anna's.") {
		t.Errorf("the answer was given to\n%s", text)
	}
	after, err := h.Store().Unseen(t.Context(), user.ID, session)
	if err != nil {
		t.Fatal(err)
	}
	left := leftOut(answer.Report)
	if seen := before.Messages + 2 - after.Messages; len(left) == 0 || seen != len(left) {
		t.Errorf("%d messages were looked at, %d were left out", seen, len(left))
	}
	extractions := model.requests("extraction")
	for i := range 20 {
		// m10 to m14 leave at the first stage: what is older is summarised.
		leaves := i >= 10 && i < 15
		if got := strings.Contains(wordsOf(extractions[0]), fmt.Sprintf("m%02d. ", i)); got != leaves {
			t.Errorf("m%02d is in the extraction: %v", i, got)
		}
	}
	if counts := h.Counts().Memory; len(extractions) != 1 || counts.MiniDreams != 1 || counts.Extractions != 1 {
		t.Errorf("%d extractions, %+v", len(extractions), counts)
	}
}

// A mini-dream whose model never answers holds the turn for MiniTimeout, once in a
// turn, and harms nothing.
func TestAMiniDreamThatHangs(t *testing.T) {
	model := refusing(3)
	entered := make(chan struct{}, 8)
	model.extracts = hanging(entered)
	h := structured(t, host.Config{LLM: model, Summarizer: compaction.NewOffline(), Compaction: host.CompactionConfig{KeepRecent: 14}})
	if err := h.Dreaming(t.Context(), func(c *dream.Config) { c.MiniTimeout, c.ExtractionTokens = time.Second, -1 }); err != nil {
		t.Fatal(err)
	}
	session := longSession(t, h)
	began := time.Now()
	answer := send(t, h, host.Message{Session: session, Text: "And now?"})
	if took := time.Since(began); answer.Message.Blocks[0].Text != "It still does." || took > 10*time.Second {
		t.Errorf("answered %+v after %s", answer.Message, took)
	}
	if n := len(entered); n != 1 {
		t.Errorf("the model was asked %d times", n)
	}
	if counts := h.Counts().Memory; counts.MiniDreamsFailed == 0 || counts.Extractions > 0 {
		t.Errorf("%+v", counts)
	}
}

// Who gives up in a mini-dream waits for nothing, and the session answers the next
// message.
func TestCancelInAMiniDream(t *testing.T) {
	model := refusing(1)
	entered := make(chan struct{}, 8)
	model.extracts = hanging(entered)
	h := structured(t, host.Config{LLM: model, Summarizer: compaction.NewOffline(), Compaction: host.CompactionConfig{KeepRecent: 14}})
	session := longSession(t, h)
	ctx, cancel := context.WithCancel(t.Context())
	sent := make(chan error, 1)
	go func() {
		_, err := h.Send(ctx, host.Message{Session: session, Text: "And now?"})
		sent <- err
	}()
	<-entered
	cancel()
	if err := <-sent; !errors.Is(err, context.Canceled) {
		t.Errorf("the turn: %v", err)
	}
	model.extracts, model.answers = nil, nil
	if answer := send(t, h, host.Message{Session: session, Text: "Hello?"}); !strings.Contains(promptText(answer), "And now?\n\nHello?") {
		t.Errorf("the next prompt is\n%s", promptText(answer))
	}
}

// What is remembered keeps nobody from being answered: where it has no room beside
// the input, it is left out.
func TestTheSectionMakesRoomAtLast(t *testing.T) {
	model := &mind{}
	h := structured(t, host.Config{LLM: model, Model: host.ModelConfig{ContextWindow: 3000, MaxOutputTokens: 1000}})
	h.Offer(time.Minute)
	for i := range 40 {
		put(t, h, memory.AgentID{}, fmt.Sprint("topic ", i), strings.Repeat("pump ", 10))
	}
	answer := send(t, h, host.Message{Text: "Hello."})
	if n := answer.Report.Totals.Beside; n < 100 || n > 2000/4+8 {
		t.Errorf("%d tokens beside the input", n)
	}
	long := strings.Repeat("pump ", (2000-answer.Report.Totals.System-200)*4/5)
	answer = send(t, h, host.Message{Session: answer.Session, Text: long})
	if answer.Report.OverBudget || answer.Report.Totals.Beside != 0 || answer.Report.Recovery != assembly.RecoverShorten {
		t.Errorf("%v: %d tokens beside, %d of %d", answer.Report.Recovery, answer.Report.Totals.Beside, answer.Report.Tokens, answer.Report.Budget)
	}
}

// broken is a store of which nothing that structured memory needs works.
type broken struct{ memory.Store }

var errBroken = errors.New("the disk is on fire")

func (broken) UnseenMessages(context.Context, memory.UserID, memory.SessionID, memory.MessageQuery) ([]memory.Message, error) {
	return nil, errBroken
}

func (broken) Unseen(context.Context, memory.UserID, memory.SessionID) (memory.Unseen, error) {
	return memory.Unseen{}, errBroken
}

func (broken) NextIdleSession(context.Context, memory.DueQuery) (memory.IdleSession, error) {
	return memory.IdleSession{}, errBroken
}

func (broken) IdleSessions(context.Context, []memory.AgentID, time.Time, int) ([]memory.IdleSession, error) {
	return nil, errBroken
}

func (broken) Topics(context.Context, memory.UserID, memory.TopicQuery) ([]memory.Topic, memory.TopicRevision, error) {
	return nil, memory.TopicRevision{}, errBroken
}

// A turn never fails for its memory: not for the topics, an overflow, the
// extraction after it, nor a look at what is due.
func TestATurnWithoutItsMemory(t *testing.T) {
	ticks, at := make(chan time.Time), &clock{at: monday}
	h := structured(t, host.Config{LLM: refusing(3), Now: at.now, Ticks: ticks, Summarizer: compaction.NewOffline(), Compaction: host.CompactionConfig{KeepRecent: 14}})
	put(t, h, memory.AgentID{}, "pump", "The pump is blue.")
	session := longSession(t, h)
	if err := h.Interpose(t.Context(), func(s memory.Store) memory.Store { return broken{s} }); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		answer := send(t, h, host.Message{Session: session, Text: "And now?"})
		if answer.Message.Blocks[0].Text != "It still does." || strings.Contains(promptText(answer), dream.Heading) {
			t.Errorf("answered %+v to\n%s", answer.Message, promptText(answer))
		}
		at.advance(time.Hour)
		ticks <- at.now()
	}
	ticks <- at.now()
	if counts := h.Counts().Memory; counts.MiniDreamsFailed == 0 {
		t.Errorf("%+v", counts)
	}
	if _, err := h.Dream(t.Context(), memory.UserID{}, ""); !errors.Is(err, errBroken) {
		t.Errorf("a dream by hand: %v", err)
	}
}
