package dream_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/dream"
)

// recalling is a still store with topics and extractions, that takes one dream.
type recalling struct {
	still
	topics      []memory.Topic
	extractions []memory.Extraction
	dreamt      *memory.Dream
}

func (s recalling) Topics(_ context.Context, user memory.UserID, q memory.TopicQuery) (list []memory.Topic, r memory.TopicRevision, err error) {
	for _, t := range s.topics {
		if t.Agent == q.Agent && t.ValidAt(q.At) {
			list = append(list, t)
		}
	}
	return list, memory.NewTopicRevision(user, 1), nil
}

func (s recalling) Extractions(context.Context, memory.UserID, memory.ExtractionQuery) ([]memory.Extraction, error) {
	return s.extractions, nil
}

func (s recalling) CommitDream(_ context.Context, _ memory.UserID, _ memory.TopicRevision, d memory.Dream) ([]memory.Topic, error) {
	*s.dreamt = d
	return nil, nil
}

// Whatever a model answers: what is retired held, and was named by its handle in an
// entry that was taken; each is retired once; each row is borne out by messages of
// the user, in its canonical form, and can be stored; nothing crosses the border of
// an agent.
func TestWhateverAModelAnswers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		agent := memory.NewID[memory.AgentID]()
		session := memory.Session{ID: memory.NewID[memory.SessionID](), Agent: agent, UserMessages: 1}
		s := recalling{still: still{session: session}, dreamt: &memory.Dream{}}
		users := map[memory.MessageID]bool{}
		for i := range rapid.IntRange(1, 4).Draw(t, "messages") {
			m := memory.Message{ID: memory.NewID[memory.MessageID](), Seq: int64(i + 1), Role: memory.RoleUser, Source: memory.SourceUser, Trust: memory.TrustDirect, Blocks: []memory.Block{memory.Text("Said.")}, At: noon}
			switch rapid.SampledFrom([]string{"user", "assistant", "tick", "hand"}).Draw(t, "by") {
			case "assistant":
				m.Role, m.Source = memory.RoleAssistant, memory.SourceAssistant
			case "tick":
				m.Source = memory.SourceScheduledTick
			case "hand":
				m.Source, m.Trust = memory.SourceContextInjection, memory.TrustExternal
			default:
				users[m.ID] = true
			}
			s.messages = append(s.messages, m)
		}
		for range rapid.IntRange(0, 2).Draw(t, "notes") {
			id := memory.NewID[memory.MessageID]()
			users[id] = true
			s.extractions = append(s.extractions, memory.Extraction{ID: memory.NewID[memory.ExtractionID](), Agent: agent, Learnings: memory.Learnings{Tasks: []memory.Learned{{}, {Text: "Noted.", Sources: []memory.MessageID{id}}}}})
		}
		handles := map[string]memory.Topic{}
		names := []string{"home", "work", "Audit", "", "héllo\nworld"}
		contents := []string{"One.", "two", "TWO.", "", "\u200b", strings.Repeat("é", 3000), "a\x00b\nc"}
		for i := range rapid.IntRange(0, 5).Draw(t, "topics") {
			topic := memory.Topic{ID: memory.NewID[memory.TopicID](), Name: fmt.Sprintf("%c", 'a'+i), Content: rapid.SampledFrom(contents[:3]).Draw(t, "known"), ValidFrom: noon.Add(-time.Hour), Sources: []memory.MessageID{memory.NewID[memory.MessageID]()}}
			if rapid.Bool().Draw(t, "of agent") {
				topic.Agent = agent
			}
			if rapid.IntRange(0, 4).Draw(t, "held") == 0 {
				topic.ExpiresAt = noon.Add(-time.Minute)
			} else {
				handles[fmt.Sprintf("t%d", len(handles)+1)] = topic
			}
			s.topics = append(s.topics, topic)
			names = append(names, topic.Name)
		}
		shown := []string{"m1", "x1", "t1"}
		for i := range s.messages {
			shown = append(shown, fmt.Sprintf("m%d", i+1), fmt.Sprintf("[X%d]", i+1))
		}
		for h := range handles {
			shown = append(shown, h)
		}
		slices.Sort(shown)
		handle := rapid.OneOf(rapid.SampledFrom(shown), rapid.SampledFrom(shown), rapid.StringMatching(`[mxtMXT][0-6]`), rapid.SampledFrom([]string{"", "t", "t-1", "[t1]", "all", "t1,t2", "t99999999999", "home"}))
		entries := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) row {
			return row{
				Topic: rapid.SampledFrom(names).Draw(t, "name"), Content: rapid.SampledFrom(contents).Draw(t, "content"),
				Supersedes: rapid.SliceOfN(handle, 0, 4).Draw(t, "supersedes"), From: rapid.SliceOfN(handle, 0, 4).Draw(t, "from"),
				Expires: rapid.SampledFrom([]any{nil, "2026-03-05", "2020-01-01T00:00:00Z", "9999-12-31T23:59:59-10:00", "soon", 7, "2026-03-04T12:00:00Z"}).Draw(t, "expires"),
				Scope:   rapid.SampledFrom([]string{"user", "agent", "AGENT", ""}).Draw(t, "scope"),
			}
		}), 0, 40).Draw(t, "entries")

		model := &scripted{answer: func(context.Context, llm.Request) (llm.Response, error) {
			return llm.Response{Text: rows(entries...)}, nil
		}}
		d := dream.New(s, dream.Config{Model: model, Now: func() time.Time { return noon }})
		report, err := d.Dream(context.Background(), dream.Place{User: memory.NewID[memory.UserID](), Agent: agent, Session: session.ID})
		if err != nil {
			t.Fatal(err)
		}
		if len(model.requests()) == 0 {
			if len(s.dreamt.Topics) > 0 {
				t.Fatal("topics without an answer")
			}
			return
		}
		named := map[memory.TopicID]bool{}
		for _, e := range entries {
			for _, list := range e.Supersedes {
				for _, h := range strings.FieldsFunc(strings.ToLower(list), func(r rune) bool { return strings.ContainsRune(" ,[]", r) }) {
					if topic, ok := handles[h]; ok {
						named[topic.ID] = true
					}
				}
			}
		}
		if len(s.dreamt.Topics) > 32 || len(s.dreamt.Topics)+report.Dropped > len(entries) {
			t.Fatalf("%d topics and %d dropped of %d entries", len(s.dreamt.Topics), report.Dropped, len(entries))
		}
		retired := map[memory.TopicID]bool{}
		for _, row := range s.dreamt.Topics {
			if canonical, err := row.Canonical(noon); err != nil || canonical.Name != row.Name || canonical.Content != row.Content {
				t.Fatalf("row %+v cannot be stored as it is: %v", row, err)
			}
			ofAll := 0
			for _, id := range row.Supersedes {
				i := slices.IndexFunc(s.topics, func(t memory.Topic) bool { return t.ID == id })
				if !named[id] || retired[id] || !s.topics[i].ValidAt(noon) {
					t.Fatalf("topic %+v is retired: named %t, twice %t", s.topics[i], named[id], retired[id])
				}
				retired[id] = true
				if s.topics[i].Agent.IsZero() {
					ofAll++
				}
			}
			if len(row.Supersedes) > 0 && row.OfAgent != (ofAll == 0) {
				t.Fatalf("row %+v stands where what it retires did not", row)
			}
			if !slices.ContainsFunc(row.Sources, func(id memory.MessageID) bool { return users[id] }) {
				t.Fatalf("nobody says row %+v", row)
			}
			for _, id := range row.Sources {
				ofTopic := slices.ContainsFunc(s.topics, func(t memory.Topic) bool {
					return slices.Contains(row.Supersedes, t.ID) && slices.Contains(t.Sources, id)
				})
				if !users[id] && !ofTopic {
					t.Fatalf("row %+v has a source that is not the user's", row)
				}
			}
		}
		for _, r := range s.dreamt.Retired {
			of := func(id memory.TopicID) memory.Topic {
				return s.topics[slices.IndexFunc(s.topics, func(t memory.Topic) bool { return t.ID == id })]
			}
			old, by := of(r.Topic), of(r.By)
			if !named[r.Topic] || retired[r.Topic] || r.Topic == r.By || !old.ValidAt(noon) || !by.ValidAt(noon) || old.Agent.IsZero() && !by.Agent.IsZero() {
				t.Fatalf("topic %+v is retired by %+v: named %t, twice %t", old, by, named[r.Topic], retired[r.Topic])
			}
			retired[r.Topic] = true
		}
		if len(retired) != report.Retired {
			t.Fatalf("%d retired, and the report says %d", len(retired), report.Retired)
		}
		var seen []int64
		for _, r := range s.dreamt.Seen {
			for seq := r.First; seq <= r.Last; seq++ {
				seen = append(seen, seq)
			}
		}
		if len(seen) != len(s.messages) || len(s.dreamt.Extractions) != len(s.extractions) {
			t.Fatalf("messages %v and extractions %v were looked at", seen, s.dreamt.Extractions)
		}
	})
}

// A message that the model's server rejects keeps nothing else from being learned.
func TestDreamAroundWhatIsRejected(t *testing.T) {
	for name, rejected := range map[string]struct {
		response llm.Response
		err      error
	}{
		"refused":                {err: llm.ErrRefused},
		"ended by a filter half": {response: llm.Response{Text: `{"facts": [`, Filtered: true}},
	} {
		t.Run(name, func(t *testing.T) { dreamAroundWhatIsRejected(t, rejected.response, rejected.err) })
	}
}

func dreamAroundWhatIsRejected(t *testing.T, response llm.Response, rejection error) {
	h := newHouse(t)
	at := h.talk(h.user, "I live in Lisbon.", "Something unspeakable.", "I have a dog.")
	well := attentive()
	model := &scripted{answer: func(ctx context.Context, r llm.Request) (llm.Response, error) {
		if strings.Contains(promptText(r), "unspeakable") {
			return response, rejection
		}
		return well.answer(ctx, r)
	}}
	_, err := h.dreamer(model).Dream(t.Context(), at)
	h.check(err)
	h.remembers(h.user, "said: I live in Lisbon.", "said: I have a dog.")
	if unseen, err := h.store.Unseen(t.Context(), h.user, at.Session); err != nil || unseen.Messages != 0 {
		t.Errorf("unseen is %+v, %v", unseen, err)
	}
	// One that rejects everything is not believed.
	h.goOn(at, "I have a cat.")
	rejecting := &scripted{answer: func(context.Context, llm.Request) (llm.Response, error) { return response, rejection }}
	if _, err := h.dreamer(rejecting).Dream(t.Context(), at); err == nil {
		t.Error("nothing is rejected")
	}
	if unseen, err := h.store.Unseen(t.Context(), h.user, at.Session); err != nil || unseen.UserMessages != 1 {
		t.Errorf("unseen is %+v, %v", unseen, err)
	}
}

// A model with a small window is shown less at a time, and learns all the same.
func TestDreamInASmallWindow(t *testing.T) {
	h := newHouse(t)
	for i := range 20 {
		_, err := h.store.PutTopic(t.Context(), h.user, memory.AgentID{}, memory.TopicRevision{}, memory.NewTopic{Name: fmt.Sprintf("topic %02d", i), Content: strings.Repeat("word ", 150)}, h.now())
		h.check(err)
		h.wait(time.Minute)
	}
	var lines []string
	for i := range 12 {
		lines = append(lines, fmt.Sprintf("Line %02d. %s", i, strings.Repeat("words ", 250)))
	}
	at := h.talk(h.user, lines...)
	well := attentive()
	const window = 4500
	model := &scripted{answer: func(ctx context.Context, r llm.Request) (llm.Response, error) {
		if r.Tokens() > window {
			return llm.Response{}, llm.ErrContextTooLong
		}
		return well.answer(ctx, r)
	}}
	d := h.dreamer(model)
	for range 8 {
		_, err := d.Dream(t.Context(), at)
		h.check(err)
	}
	if got, want := len(h.valid(h.user)), 20+len(lines); got != want {
		t.Errorf("%d topics, want %d", got, want)
	}
}

// The prompt of a dream has one form, which a model's cache of it and its reader
// rely on.
func TestDreamSchemaIsStrict(t *testing.T) {
	h := newHouse(t)
	model := attentive()
	_, err := h.dreamer(model).Dream(t.Context(), h.talk(h.user, "Hello."))
	h.check(err)
	type form struct {
		Type       any             `json:"type"`
		Properties map[string]form `json:"properties"`
		Items      *form           `json:"items"`
		Required   []string        `json:"required"`
		Additional *bool           `json:"additionalProperties"`
	}
	var root form
	h.check(json.Unmarshal(model.requests()[0].Schema.JSON, &root))
	objects := 0
	var walk func(form)
	walk = func(f form) {
		if f.Items != nil {
			walk(*f.Items)
		}
		if f.Type != "object" {
			return
		}
		objects++
		if f.Additional == nil || *f.Additional || len(f.Required) != len(f.Properties) {
			t.Errorf("an object is open: %+v", f)
		}
		for _, name := range f.Required {
			walk(f.Properties[name])
		}
	}
	walk(root)
	if objects != 2 {
		t.Errorf("%d objects, want 2", objects)
	}
}
