package host_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/control"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/host/llm/openai"
	"github.com/gloveboxhq/glovebox/host/llm/openai/openaitest"
	"github.com/gloveboxhq/glovebox/host/registry"
	"github.com/gloveboxhq/glovebox/memory"
)

// canary is a word of one user with one agent, or of a hand asked for one user
// with any.
func canary(user, agent string) string { return "canary-" + user + "-" + agent }

var canaries = regexp.MustCompile(`canary-([a-z0-9]+)-([a-z0-9]+)`)

// foreign returns what a text holds that is not of a user with an agent; "" for
// either means the one of the first canary.
func foreign(text, user, agent string) string {
	for _, found := range canaries.FindAllStringSubmatch(text, -1) {
		user = cmp.Or(user, found[1])
		if agent == "" && found[2] != "any" {
			agent = found[2]
		}
		if found[1] != user || found[2] != "any" && found[2] != agent {
			return found[0]
		}
	}
	return ""
}

// timedModel says how long the turns of each pair waited for it.
type timedModel struct {
	llm.Model
	waited sync.Map // of *atomic.Int64, by canary
}

func (m *timedModel) Complete(ctx context.Context, r llm.Request) (llm.Response, error) {
	began := time.Now()
	response, err := m.Model.Complete(ctx, r)
	// What summarises has another system text: no turn waits for that.
	if last := r.Messages[len(r.Messages)-1].Text; strings.HasPrefix(r.System, crowdPrompt) {
		for _, own := range canaries.FindAllString(last, -1) {
			if !strings.HasSuffix(own, "-any") {
				m.of(own).Add(int64(time.Since(began)))
				break
			}
		}
	}
	return response, err
}

func (m *timedModel) of(canary string) *atomic.Int64 {
	waited, _ := m.waited.LoadOrStore(canary, new(atomic.Int64))
	return waited.(*atomic.Int64)
}

// crowdPrompt is what each agent of a crowd is told.
const crowdPrompt = "You look after pumps."

// pacedModel is a model in this process that takes its time, and little else.
type pacedModel struct{ latency time.Duration }

func (m pacedModel) Complete(ctx context.Context, r llm.Request) (llm.Response, error) {
	own := canaries.FindString(r.Messages[len(r.Messages)-1].Text)
	select {
	case <-time.After(m.latency):
		return llm.Response{Text: "Noted for " + own + ": the pump runs.", Model: "paced"}, nil
	case <-ctx.Done():
		return llm.Response{}, ctx.Err()
	}
}

// watchfulModel is a model on loopback, and the driver that asks it. It answers
// after a while with the first canary that it is shown, and fails the test when it
// is shown those of two.
func watchfulModel(t testing.TB, latency time.Duration) llm.Model {
	t.Helper()
	server := openaitest.NewServer(t)
	server.Otherwise(func(w http.ResponseWriter, r *http.Request, sent openaitest.Request) {
		var shown strings.Builder
		for _, m := range sent.Messages {
			shown.WriteString(m.Content + "\n")
		}
		if stray := foreign(shown.String(), "", ""); stray != "" {
			t.Errorf("%s in a prompt of another:\n%.3000s", stray, &shown)
		}
		own := canaries.FindString(shown.String())
		if own == "" {
			t.Errorf("a prompt of nobody:\n%.1000s", &shown)
		}
		if latency > 0 {
			timer := time.NewTimer(latency)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-r.Context().Done():
				return
			}
		}
		openaitest.Text("Noted for "+own+": the pump runs.")(w, r, sent)
	})
	model, err := openai.New(openai.Config{BaseURL: server.BaseURL, APIKey: openaitest.Key, Name: "m"})
	if err != nil {
		t.Fatal(err)
	}
	return model
}

// talker is one user with one agent.
type talker struct {
	user, agent string
	id          memory.UserID
	session     memory.SessionID
	turns       int
}

func (p *talker) says(i int) string {
	return fmt.Sprintf("message %d of %s: %s", i, canary(p.user, p.agent), strings.Repeat("the pump in hall three runs at forty percent. ", 12))
}

// crowd is a host with many users and agents, whose hand answers each user with
// their own canary, and all their pairs.
type crowd struct {
	host   *host.Host
	config host.Config
	pairs  []*talker
	model  *timedModel
	// server is where the control API is served; "" means to call the host.
	server string
}

func newCrowd(t testing.TB, users, agents int, model llm.Model, config host.Config) *crowd {
	t.Helper()
	c := &crowd{model: &timedModel{Model: model}}
	path, digest := mirrorHand(t)
	compiler, err := registry.Self()
	if err != nil {
		t.Fatal(err)
	}
	config.LLM, config.Compiler, config.Cache, config.Data = c.model, compiler, cacheDir, t.TempDir()
	hand := host.HandConfig{Module: path, Digest: digest, Config: map[string]any{"mark": canary("{user}", "any")}}
	for i := range users {
		name := fmt.Sprint("user", i)
		config.Users = append(config.Users, host.UserConfig{Name: name, IsDefault: i == 0})
		hand.Users = append(hand.Users, name)
	}
	for i := range agents {
		config.Agents = append(config.Agents, host.AgentConfig{Name: fmt.Sprint("agent", i), SystemPrompt: crowdPrompt})
	}
	config.Hands = map[string]host.HandConfig{"calendar": hand}
	config.Compaction.ContextSources = []host.ContextSource{{Hand: "calendar", Prompt: "What is on?"}}
	if c.host, err = host.New(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.host.Close() })
	c.config = config
	for _, u := range config.Users {
		user, err := c.host.User(u.Name)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range config.Agents {
			c.pairs = append(c.pairs, &talker{user: u.Name, agent: a.Name, id: user.ID})
		}
	}
	return c
}

// serve lets the pairs talk to the control API from now on.
func (c *crowd) serve(t testing.TB) {
	t.Helper()
	tokens, err := control.OpenTokens(filepath.Join(t.TempDir(), "tokens.json"))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(control.New(control.Config{Host: c.host, HostConfig: c.config, Tokens: tokens, Open: true}))
	t.Cleanup(server.Close)
	c.server = server.URL
}

// talk has a pair say one thing and returns what the host took of the time until
// the answer, and whether the turn waited for a gap run.
func (c *crowd) talk(ctx context.Context, p *talker) (own time.Duration, gap bool, err error) {
	waited := c.model.of(canary(p.user, p.agent))
	before := waited.Load()
	began := time.Now()
	var text string
	if c.server != "" {
		text, gap, err = c.post(ctx, p)
	} else {
		var answer host.Answer
		answer, err = c.host.Send(ctx, host.Message{User: p.id, Agent: p.agent, Session: p.session, Text: p.says(p.turns)})
		p.session, text, gap = answer.Session, memory.Shown(answer.Message.Blocks), answer.Gap.Outcome == memory.OutcomeDone
	}
	own = time.Since(began) - time.Duration(waited.Load()-before)
	if err != nil {
		return 0, false, fmt.Errorf("%s with %s, turn %d: %w", p.user, p.agent, p.turns, err)
	}
	p.turns++
	if stray := foreign(text, p.user, p.agent); stray != "" || !canaries.MatchString(text) {
		return 0, false, fmt.Errorf("%s with %s was answered %q", p.user, p.agent, text)
	}
	return own, gap, nil
}

func (c *crowd) post(ctx context.Context, p *talker) (text string, gap bool, err error) {
	asked := map[string]any{"text": p.says(p.turns), "agent": p.agent}
	if !p.session.IsZero() {
		asked["session"] = p.session
	}
	body, err := json.Marshal(asked)
	if err != nil {
		return "", false, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.server+"/api/users/"+p.id.String()+"/chat", bytes.NewReader(body))
	if err != nil {
		return "", false, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := crowdClient.Do(request)
	if err != nil {
		return "", false, err
	}
	defer response.Body.Close()
	var answer struct {
		Session memory.SessionID `json:"session"`
		Text    string           `json:"text"`
		Refresh []string         `json:"refresh"`
		Detail  string           `json:"detail"`
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return "", false, fmt.Errorf("status %d: %w", response.StatusCode, err)
	}
	if response.StatusCode != http.StatusOK {
		return "", false, fmt.Errorf("status %d: %s", response.StatusCode, answer.Detail)
	}
	p.session = answer.Session
	return answer.Text, len(answer.Refresh) > 0, nil
}

// crowdClient keeps a connection for each who talks.
var crowdClient = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}

// chat has every pair say so many things, each as soon as the one before is
// answered, and returns the host's own time of the turns that waited for no gap
// run. The pairs begin one after the other within spread.
func (c *crowd) chat(t testing.TB, turns func(pair int) int, spread time.Duration) (owns []time.Duration) {
	t.Helper()
	var mu sync.Mutex
	var group sync.WaitGroup
	for i, p := range c.pairs {
		group.Go(func() {
			<-time.After(spread * time.Duration(i) / time.Duration(len(c.pairs)))
			for range turns(i) {
				own, gap, err := c.talk(t.Context(), p)
				if err != nil {
					t.Error(err)
					return
				}
				if !gap {
					mu.Lock()
					owns = append(owns, own)
					mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	return owns
}

// percentile of durations, which it sorts.
func percentile(of []time.Duration, p float64) time.Duration {
	slices.Sort(of)
	if len(of) == 0 {
		return 0
	}
	return of[min(int(p*float64(len(of))), len(of)-1)]
}

// C2, C3, C7, C16, invariant 10: 200 agents and users talk at once, cadence and gap
// both on, to a model on loopback. Nothing of one user is in a prompt, a refresh, a
// summary or an answer of another; every message that was acknowledged is stored
// once; every count is right; the frontiers cover everything once.
func TestManyPairsAtOnce(t *testing.T) {
	users, agents, latency := 40, 5, time.Second
	if testing.Short() || raceEnabled {
		users, agents, latency = 8, 3, 0
	}
	const rounds, perRound = 3, 3
	now := &clock{at: monday}
	ticking := func() time.Time {
		now.advance(time.Millisecond)
		return now.now()
	}
	c := newCrowd(t, users, agents, watchfulModel(t, latency), host.Config{
		Now: ticking, Model: host.ModelConfig{BackgroundCalls: 64, BackgroundCallsPerMinute: 1_000_000},
		Compaction: host.CompactionConfig{ContinuousInterval: perRound, KeepRecent: 3, GapSecs: 900},
	})
	var owns []time.Duration
	for round := range rounds {
		if round == 1 {
			// Once, all are let come to rest before everybody comes back; later,
			// cadence goes on meanwhile.
			if err := c.host.Idle(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		owns = append(owns, c.chat(t, func(int) int { return perRound }, latency)...)
		if t.Failed() {
			return
		}
		now.advance(901 * time.Second)
	}
	h, pairs := c.host, c.pairs
	if err := h.Idle(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d pairs, %d turns: host time p50 %v, p99 %v, most %v", len(pairs), len(owns), percentile(owns, 0.5), percentile(owns, 0.99), percentile(owns, 1))
	counts := h.Counts().Triggers
	gap, cadence := counts[memory.TriggerGap], counts[memory.TriggerCadence]
	if gap.Fired+gap.Busy != len(pairs)*(rounds-1) || gap.Failed != 0 || gap.Fired < len(pairs) {
		t.Errorf("gap was due %d times, counted %+v", len(pairs)*(rounds-1), gap)
	}
	// One that becomes due while the one before is pending takes its place.
	if ran := cadence.Fired + cadence.Nothing; ran > len(pairs)*rounds || ran < len(pairs) || cadence.Busy+cadence.Failed+cadence.Inactive != 0 || cadence.Fired == 0 {
		t.Errorf("cadence was due %d times, counted %+v", len(pairs)*rounds, cadence)
	}
	refreshes := 0
	for _, p := range pairs {
		refreshes += checkTalk(t, h, p, rounds*perRound)
	}
	// A run of cadence that waited finds the refresh of a gap that was due later, and
	// needs none of its own.
	if refreshes > gap.Fired+cadence.Fired || refreshes <= gap.Fired {
		t.Errorf("%d refreshes of %d runs for a gap and %d of cadence", refreshes, gap.Fired, cadence.Fired)
	}
	if pending, err := h.Store().PendingRuns(t.Context()); err != nil || len(pending) != 0 {
		t.Errorf("not over: %+v, %v", pending, err)
	}
}

// checkTalk holds what is stored of a pair against what it said, and returns the
// number of refreshes.
func checkTalk(t *testing.T, h *host.Host, p *talker, turns int) (refreshes int) {
	t.Helper()
	fail := func(format string, args ...any) {
		t.Helper()
		t.Errorf("%s with %s: %s", p.user, p.agent, fmt.Sprintf(format, args...))
	}
	session, err := h.Store().Session(t.Context(), p.id, p.session)
	if err != nil || session.Exchanges != turns || session.UserMessages != turns {
		fail("%+v, %v, want %d exchanges", session, err, turns)
	}
	messages, err := h.Store().Messages(t.Context(), p.id, p.session, memory.MessageQuery{})
	if err != nil {
		t.Fatal(err)
	}
	said, answered := 0, 0
	for i, m := range messages {
		text := memory.Shown(m.Blocks)
		if stray := foreign(text, p.user, p.agent); stray != "" || m.Seq != int64(i+1) {
			fail("message %d at place %d holds %q", m.Seq, i+1, stray)
		}
		switch {
		case m.IsRefresh():
			refreshes++
			if !strings.Contains(text, canary(p.user, "any")) {
				fail("a refresh is not the user's: %q", text)
			}
		case m.Role == memory.RoleUser:
			if text != p.says(said) {
				fail("message %d reads %q", said, text)
			}
			said++
		default:
			answered++
		}
	}
	if said != turns || answered != turns || len(messages) != session.Messages {
		fail("%d messages and %d answers of %d", said, answered, turns)
	}
	frontier, err := h.Store().Frontier(t.Context(), p.id, p.session)
	if err != nil {
		t.Fatal(err)
	}
	covered, summaries := 0, 0
	for _, item := range frontier.Items {
		if item.Message != nil {
			if covered++; item.Message.Seq != int64(covered) {
				fail("message %d stands at place %d of the frontier", item.Message.Seq, covered)
			}
			continue
		}
		summaries++
		if stray := foreign(item.Summary.Shown(), p.user, p.agent); stray != "" {
			fail("a summary holds %s", stray)
		}
		sources, err := h.Store().Expand(t.Context(), p.id, item.Summary.ID, memory.MessageQuery{})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range sources {
			if covered++; m.Seq != int64(covered) {
				fail("message %d stands at place %d of a summary", m.Seq, covered)
			}
		}
	}
	if covered != len(messages) || summaries == 0 {
		fail("%d of %d messages are covered, %d summaries", covered, len(messages), summaries)
	}
	return refreshes
}

// BenchmarkTurns has 200 agents and users talk at once, each again as soon as it is
// answered, to a model that takes two seconds: through Send, and at the socket of
// the control API. It reports the host's own time per turn, without the model, with
// cadence and without in turns. Runs of cadence are spread as they are when people
// do not all begin at once.
func BenchmarkTurns(b *testing.B) {
	const latency, interval = 2 * time.Second, 5
	for _, socket := range []bool{false, true} {
		b.Run(map[bool]string{false: "through=send", true: "through=socket"}[socket], func(b *testing.B) {
			crowds := map[string]*crowd{}
			owns := map[string][]time.Duration{}
			sides := []string{"off", "on"}
			for _, side := range sides {
				config := host.Config{
					Model:      host.ModelConfig{BackgroundCalls: 64, BackgroundCallsPerMinute: 1_000_000},
					Compaction: host.CompactionConfig{GapSecs: 900},
				}
				if side == "on" {
					config.Compaction.ContinuousInterval = interval
				}
				c := newCrowd(b, 40, 5, pacedModel{}, config)
				crowds[side] = c
				if socket {
					c.serve(b)
				}
				c.chat(b, func(pair int) int { return 1 + pair%interval }, 0)
				if err := c.host.Idle(b.Context()); err != nil {
					b.Fatal(err)
				}
				c.model.Model = pacedModel{latency}
			}
			for b.Loop() {
				for _, side := range sides {
					c := crowds[side]
					owns[side] = append(owns[side], c.chat(b, func(int) int { return 3 }, latency)...)
					if err := c.host.Idle(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
			}
			for _, side := range sides {
				b.Logf("cadence %s: %d turns, %+v", side, len(owns[side]), crowds[side].host.Counts().Triggers)
				b.ReportMetric(percentile(owns[side], 0.5).Seconds()*1000, "p50-ms-cadence-"+side)
				b.ReportMetric(percentile(owns[side], 0.99).Seconds()*1000, "p99-ms-cadence-"+side)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
