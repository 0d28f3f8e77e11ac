package dream_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/dream"
)

// leastStreams is how many cases there have to be.
const leastStreams = 115

// A stream is a case of testdata/streams, whose README.md says what it means.
type stream struct {
	Name  string
	Kinds []string
	Steps []step
}

type step struct {
	User, Assistant, Injection, Tick, As string
	Session, Agent                       string
	Wait                                 string
	Extract, Dream                       json.RawMessage
	Fails                                bool
	Put, Delete                          string
	Restart                              bool
	Check                                *check
}

type check struct{ Valid, Retired, Expired []string }

// streamStart is when every case begins.
var streamStart = time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)

// M10, and the precision of supersession over all cases: what has to be retired is,
// by what has to, and nothing else.
func TestStreams(t *testing.T) {
	files, err := filepath.Glob("testdata/streams/*.json")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	kinds := map[string]int{"new": 0, "repeated": 0, "corrected": 0, "contradicted": 0, "expiring": 0, "unrelated": 0}
	var all score
	h := newHouse(t)
	for _, file := range files {
		for _, s := range readStreams(t, file) {
			if names[s.Name] {
				t.Fatalf("%s: two cases are called %q", file, s.Name)
			}
			names[s.Name] = true
			for _, kind := range s.Kinds {
				if _, known := kinds[kind]; !known {
					t.Errorf("%s: case %q is of the unknown kind %q", file, s.Name, kind)
				}
				kinds[kind]++
			}
			t.Run(strings.TrimSuffix(filepath.Base(file), ".json")+"/"+s.Name, func(t *testing.T) {
				all.add(play(t, h, len(names), s))
			})
		}
	}
	for kind, n := range kinds {
		if n == 0 {
			t.Errorf("no case is of the kind %q", kind)
		}
	}
	if len(names) < leastStreams {
		t.Errorf("%d cases, want at least %d", len(names), leastStreams)
	}
	t.Logf("%d cases %v; supersession: %d expected, %d made, precision %.3f, recall %.3f", len(names), kinds, all.expected, all.made, all.precision(), all.recall())
	if all.expected == 0 || all.precision() != 1 || all.recall() != 1 {
		t.Errorf("precision and recall of supersession are %.3f and %.3f, want 1", all.precision(), all.recall())
	}
}

// score counts supersessions.
type score struct{ expected, made, right int }

func (s *score) add(other score) {
	s.expected += other.expected
	s.made += other.made
	s.right += other.right
}

func (s score) precision() float64 { return float64(s.right) / float64(max(s.made, 1)) }
func (s score) recall() float64    { return float64(s.right) / float64(max(s.expected, 1)) }

func readStreams(t *testing.T, file string) (list []stream) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&list); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	for _, s := range list {
		if s.Name == "" || len(s.Kinds) == 0 || len(s.Steps) == 0 || s.Steps[len(s.Steps)-1].Check == nil {
			t.Fatalf("%s: case %q needs a name, a kind, and a check as its last step", file, s.Name)
		}
	}
	return list
}

// player plays one case, with a user of its own.
type player struct {
	t       *testing.T
	house   *house
	dreamer *dream.Dreamer
	model   *actor
	user    memory.UserID
	agents  map[string]memory.AgentID
	session string
	places  map[string]dream.Place
	score   score
}

func play(t *testing.T, h *house, number int, s stream) score {
	h.clock.Store(streamStart.Sub(noon).Microseconds())
	p := &player{
		t: t, house: h, model: &actor{labels: map[string]labelled{}}, user: h.person(fmt.Sprintf("user-%d", number)),
		agents: map[string]memory.AgentID{}, places: map[string]dream.Place{}, session: "main",
	}
	p.start()
	defer func() { p.check(p.dreamer.Close(context.Background())) }()
	for i, step := range s.Steps {
		p.model.at, p.model.now = fmt.Sprintf("step %d", i+1), h.now()
		p.play(step, i == len(s.Steps)-1)
		if t.Failed() {
			t.Logf("stopped at step %d", i+1)
			break
		}
	}
	return p.score
}

func (p *player) start() {
	p.dreamer = dream.New(p.house.store, dream.Config{Model: p.model, ExtractionTokens: 1, Now: p.house.now})
}

func (p *player) check(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// place returns the session of a name, which begins now if there is none.
func (p *player) place(name, agent string) dream.Place {
	p.t.Helper()
	if at, begun := p.places[name]; begun {
		return at
	}
	if agent == "" {
		agent = "helper"
	}
	if _, exists := p.agents[agent]; !exists {
		a, err := p.house.store.PutAgent(p.t.Context(), agent, "", p.house.now())
		p.check(err)
		p.agents[agent] = a.ID
	}
	session, err := p.house.store.CreateSession(p.t.Context(), memory.Session{Agent: p.agents[agent], User: p.user, CreatedAt: p.house.now()})
	p.check(err)
	at := dream.Place{User: p.user, Agent: p.agents[agent], Session: session.ID}
	p.places[name] = at
	return at
}

func (p *player) say(role memory.Role, source memory.Source, text, label string) {
	p.t.Helper()
	at := p.place(p.session, "")
	_, err := p.house.store.Append(p.t.Context(), p.user, at.Session, memory.Draft{Role: role, Source: source, Blocks: []memory.Block{memory.Text(text)}, At: p.house.now()})
	p.check(err)
	p.model.label(label, labelled{kind: 'm', text: text})
}

func (p *player) play(s step, last bool) {
	ctx := p.t.Context()
	switch {
	case s.User != "":
		p.say(memory.RoleUser, memory.SourceUser, s.User, s.As)
	case s.Assistant != "":
		p.say(memory.RoleAssistant, memory.SourceAssistant, s.Assistant, s.As)
	case s.Tick != "":
		p.say(memory.RoleUser, memory.SourceScheduledTick, s.Tick, "")
		p.model.forbidden = append(p.model.forbidden, s.Tick)
	case s.Injection != "":
		source, err := boundary.HandSource("calendar")
		p.check(err)
		text, _ := boundary.Wrap(source, s.Injection, boundary.Unlimited)
		_, err = p.house.store.Inject(ctx, p.user, p.place(p.session, "").Session, memory.Injection{At: p.house.now(), Blocks: []boundary.Content{text}})
		p.check(err)
		p.model.forbidden = append(p.model.forbidden, s.Injection)
	case s.Session != "":
		p.session = s.Session
		p.place(s.Session, s.Agent)
	case s.Wait != "":
		d, err := time.ParseDuration(s.Wait)
		p.check(err)
		p.house.wait(d)
	case s.Extract != nil:
		p.model.answers(p.t, s.Extract)
		if err := p.dreamer.AfterTurn(ctx, p.place(p.session, "")); err != nil && !s.Fails {
			p.t.Errorf("extraction: %v", err)
		}
		p.model.wasAsked(p.t)
	case s.Dream != nil:
		p.model.answers(p.t, s.Dream)
		_, err := p.dreamer.Dream(ctx, p.place(p.session, ""))
		if s.Fails != errors.Is(err, dream.ErrUnreadable) || !s.Fails && err != nil {
			p.t.Errorf("dream: %v", err)
		}
		p.model.wasAsked(p.t)
	case s.Put != "":
		name, content, _ := strings.Cut(s.Put, ": ")
		_, err := p.house.store.PutTopic(ctx, p.user, memory.AgentID{}, memory.TopicRevision{}, memory.NewTopic{Name: name, Content: content}, p.house.now())
		p.check(err)
		p.model.label(s.As, labelled{kind: 't', name: name, text: content})
	case s.Delete != "":
		_, err := p.house.store.DeleteTopic(ctx, p.user, memory.AgentID{}, s.Delete)
		p.check(err)
	case s.Restart:
		p.check(p.dreamer.Close(ctx))
		p.check(p.house.store.Close())
		p.house.open()
		p.start()
	case s.Check != nil:
		p.compare(*s.Check, last)
	default:
		p.t.Fatalf("%s does nothing", p.model.at)
	}
}

// compare holds what is remembered against a check; the last one counts.
func (p *player) compare(want check, last bool) {
	p.t.Helper()
	var rows []memory.Topic
	agentNames := map[memory.AgentID]string{}
	for name, id := range p.agents {
		agentNames[id] = name
	}
	for _, agent := range append([]memory.AgentID{{}}, keys(agentNames)...) {
		list, _, err := p.house.store.Topics(p.t.Context(), p.user, memory.TopicQuery{Agent: agent})
		p.check(err)
		rows = append(rows, list...)
	}
	shown := map[memory.TopicID]string{}
	for _, r := range rows {
		shown[r.ID] = r.Name + ": " + r.Content
		if !r.Agent.IsZero() {
			shown[r.ID] = r.Name + " (agent " + agentNames[r.Agent] + "): " + r.Content
		}
	}
	var got check
	for _, r := range rows {
		switch {
		case !r.SupersededBy.IsZero():
			got.Retired = append(got.Retired, shown[r.ID]+" => "+shown[r.SupersededBy])
		case !r.ValidAt(p.house.now()):
			got.Expired = append(got.Expired, shown[r.ID])
		default:
			got.Valid = append(got.Valid, shown[r.ID])
		}
	}
	right := 0
	for _, list := range []struct {
		what      string
		got, want []string
	}{{"valid", got.Valid, want.Valid}, {"retired", got.Retired, want.Retired}, {"expired", got.Expired, want.Expired}} {
		got, want := slices.Sorted(slices.Values(list.got)), slices.Sorted(slices.Values(list.want))
		if list.what == "retired" {
			right = common(got, want)
		}
		if !slices.Equal(got, want) {
			p.t.Errorf("%s, %s:\n got %q\nwant %q", p.model.at, list.what, got, want)
		}
	}
	if last {
		p.score = score{expected: len(want.Retired), made: len(got.Retired), right: right}
	}
}

// common counts what two sorted lists share.
func common(a, b []string) (n int) {
	for len(a) > 0 && len(b) > 0 {
		switch c := strings.Compare(a[0], b[0]); {
		case c == 0:
			n, a, b = n+1, a[1:], b[1:]
		case c < 0:
			a = a[1:]
		default:
			b = b[1:]
		}
	}
	return n
}

func keys[K comparable, V any](m map[K]V) (list []K) {
	for k := range m {
		list = append(list, k)
	}
	return list
}

// labelled is a thing that a prompt may show: a message and an extracted item by
// its text, a topic by its name and content.
type labelled struct {
	kind byte
	name string
	text string
}

// actor is a model that gives the answers of a case, with the handles of the
// prompt that it is shown.
type actor struct {
	mu     sync.Mutex
	at     string
	now    time.Time
	labels map[string]labelled
	// forbidden is what no prompt may show.
	forbidden []string
	answer    json.RawMessage
	asked     int
	failure   error
}

func (m *actor) label(name string, l labelled) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if name != "" {
		m.labels[name] = l
	}
}

func (m *actor) answers(t *testing.T, answer json.RawMessage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answer, m.asked = answer, 0
}

func (m *actor) wasAsked(t *testing.T) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failure != nil {
		t.Fatalf("%s: %v", m.at, m.failure)
	}
	if want := string(m.answer) != "null"; want != (m.asked > 0) {
		t.Fatalf("%s: the model was asked %d times, and its answer is %s", m.at, m.asked, m.answer)
	}
}

// Complete implements llm.Model.
func (m *actor) Complete(_ context.Context, r llm.Request) (llm.Response, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	prompt := r.Messages[0].Text
	for _, text := range m.forbidden {
		if strings.Contains(prompt, text) {
			m.failure = fmt.Errorf("the prompt holds %q", text)
		}
	}
	text, err := m.say(readHandles(prompt))
	if err != nil && m.failure == nil {
		m.failure = err
	}
	return llm.Response{Text: text}, nil
}

// readHandles returns the handles of what a prompt shows.
func readHandles(prompt string) map[labelled]string {
	handles := map[labelled]string{}
	for line := range strings.Lines(prompt) {
		var shown struct{ ID, Text, Topic, Content string }
		if !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &shown) != nil || shown.ID == "" {
			continue
		}
		handles[labelled{kind: shown.ID[0], name: shown.Topic, text: shown.Text + shown.Content}] = shown.ID
	}
	return handles
}

func (m *actor) say(handles map[labelled]string) (string, error) {
	var text string
	if json.Unmarshal(m.answer, &text) == nil && len(m.answer) > 0 && m.answer[0] == '"' {
		for label := range m.labels {
			if ref := "{@" + label + "}"; strings.Contains(text, ref) {
				handle, err := m.handle("@"+label, handles)
				if err != nil {
					return "", err
				}
				text = strings.ReplaceAll(text, ref, handle)
			}
		}
		return text, nil
	}
	var answer map[string]any
	if err := json.Unmarshal(m.answer, &answer); err != nil {
		return "", fmt.Errorf("the answer is neither an object nor a string: %w", err)
	}
	for field, value := range answer {
		entries, _ := value.([]any)
		for _, e := range entries {
			entry, isEntry := e.(map[string]any)
			if !isEntry {
				continue
			}
			for _, refs := range []string{"from", "supersedes"} {
				var err error
				if entry[refs], err = m.resolve(entry[refs], handles); err != nil {
					return "", err
				}
				if entry[refs] == nil {
					delete(entry, refs)
				}
			}
			if after, ok := entry["expires_at"].(string); ok && strings.HasPrefix(after, "+") {
				d, err := time.ParseDuration(after[1:])
				if err != nil {
					return "", err
				}
				entry["expires_at"] = m.now.Add(d).Format(time.RFC3339)
			}
			if label, ok := entry["as"].(string); ok {
				delete(entry, "as")
				l := labelled{kind: 'x'}
				l.text, _ = entry["text"].(string)
				if field == "topics" {
					l.kind = 't'
					name, _ := entry["topic"].(string)
					content, _ := entry["content"].(string)
					l.name, l.text = strings.ToLower(strings.Join(strings.Fields(name), " ")), strings.Join(strings.Fields(content), " ")
				}
				m.labels[label] = l
			}
		}
	}
	encoded, err := json.Marshal(answer)
	return string(encoded), err
}

// resolve replaces the labels in a list, or in one string.
func (m *actor) resolve(value any, handles map[labelled]string) (any, error) {
	switch v := value.(type) {
	case string:
		return m.handle(v, handles)
	case []any:
		for i := range v {
			var err error
			if v[i], err = m.resolve(v[i], handles); err != nil {
				return nil, err
			}
		}
	}
	return value, nil
}

func (m *actor) handle(ref string, handles map[labelled]string) (string, error) {
	label, shown := strings.CutPrefix(ref, "@")
	if !shown {
		var stale bool
		if label, stale = strings.CutPrefix(ref, "~"); !stale {
			return ref, nil
		}
	}
	l, known := m.labels[label]
	if !known {
		return "", fmt.Errorf("nothing is labelled %q", label)
	}
	handle, isShown := handles[l]
	switch {
	case isShown != shown:
		return "", fmt.Errorf("%q is shown in the prompt: %t", ref, isShown)
	case shown:
		return handle, nil
	}
	return string(l.kind) + "900", nil
}
