package host_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/host"
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

// timedModel is a model server on loopback and the driver that asks it. It says
// how long the turn whose context it was called with waited for it.
type timedModel struct {
	llm.Model
	server *openaitest.Server
}

type waitedKey struct{}

func (m timedModel) Complete(ctx context.Context, r llm.Request) (llm.Response, error) {
	began := time.Now()
	response, err := m.Model.Complete(ctx, r)
	if waited, ok := ctx.Value(waitedKey{}).(*atomic.Int64); ok {
		waited.Add(int64(time.Since(began)))
	}
	return response, err
}

// newTimedModel answers after a while with the first canary that it is shown, and
// fails the test when it is shown those of two.
func newTimedModel(t testing.TB, latency time.Duration) timedModel {
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
	return timedModel{model, server}
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

// crowded is a host with so many users and agents, whose hand answers each user
// with their own canary, and all their pairs.
func crowded(t testing.TB, users, agents int, config host.Config) (*host.Host, []*talker) {
	t.Helper()
	path, digest := mirrorHand(t)
	compiler, err := registry.Self()
	if err != nil {
		t.Fatal(err)
	}
	config.Compiler, config.Cache, config.Data = compiler, cacheDir, t.TempDir()
	hand := host.HandConfig{Module: path, Digest: digest, Config: map[string]any{"mark": canary("{user}", "any")}}
	for i := range users {
		name := fmt.Sprint("user", i)
		config.Users = append(config.Users, host.UserConfig{Name: name, IsDefault: i == 0})
		hand.Users = append(hand.Users, name)
	}
	for i := range agents {
		config.Agents = append(config.Agents, host.AgentConfig{Name: fmt.Sprint("agent", i)})
	}
	config.Hands = map[string]host.HandConfig{"calendar": hand}
	if config.Compaction.GapSecs > 0 || config.Compaction.ContinuousInterval > 0 {
		config.Compaction.ContextSources = []host.ContextSource{{Hand: "calendar", Prompt: "What is on?"}}
	}
	h, err := host.New(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	var pairs []*talker
	for _, u := range config.Users {
		user, err := h.User(u.Name)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range config.Agents {
			pairs = append(pairs, &talker{user: u.Name, agent: a.Name, id: user.ID})
		}
	}
	return h, pairs
}

// talk has the pair say one thing and returns what the host took of the time until
// the answer, and whether the turn waited for a gap run.
func (p *talker) talk(ctx context.Context, h *host.Host) (own time.Duration, gap bool, err error) {
	var waited atomic.Int64
	began := time.Now()
	answer, err := h.Send(context.WithValue(ctx, waitedKey{}, &waited), host.Message{User: p.id, Agent: p.agent, Session: p.session, Text: p.says(p.turns)})
	took := time.Since(began)
	if err != nil {
		return 0, false, fmt.Errorf("%s with %s, turn %d: %w", p.user, p.agent, p.turns, err)
	}
	p.session = answer.Session
	p.turns++
	if text := memory.Shown(answer.Message.Blocks); !strings.Contains(text, canary(p.user, p.agent)) && !strings.Contains(text, canary(p.user, "any")) {
		return 0, false, fmt.Errorf("%s with %s was answered %q", p.user, p.agent, text)
	}
	return took - time.Duration(waited.Load()), answer.Gap.Outcome == memory.OutcomeDone, nil
}

// chat has every pair say so many things, each as soon as the one before is
// answered, and returns the host's own time of the turns that waited for no gap
// run. The pairs begin one after the other within spread.
func chat(t testing.TB, h *host.Host, pairs []*talker, turns int, spread time.Duration) (owns []time.Duration) {
	t.Helper()
	var mu sync.Mutex
	var group sync.WaitGroup
	for i, p := range pairs {
		group.Go(func() {
			<-time.After(spread * time.Duration(i) / time.Duration(len(pairs)))
			for range turns {
				own, gap, err := p.talk(t.Context(), h)
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
	users, agents, latency := 40, 5, 1500*time.Millisecond
	if testing.Short() || raceEnabled {
		users, agents, latency = 8, 3, 0
	}
	const rounds, perRound = 2, 3
	now := &clock{at: monday}
	ticking := func() time.Time {
		now.advance(time.Millisecond)
		return now.now()
	}
	h, pairs := crowded(t, users, agents, host.Config{
		Now: ticking, LLM: newTimedModel(t, latency),
		Compaction: host.CompactionConfig{ContinuousInterval: perRound, KeepRecent: 3, GapSecs: 900},
	})
	var owns []time.Duration
	for range rounds {
		owns = append(owns, chat(t, h, pairs, perRound, latency)...)
		if t.Failed() {
			return
		}
		// Cadence may go on while everybody comes back.
		now.advance(901 * time.Second)
	}
	if err := h.Idle(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d pairs, %d turns: host time p50 %v, p99 %v, most %v", len(pairs), len(owns), percentile(owns, 0.5), percentile(owns, 0.99), percentile(owns, 1))
	if p99 := percentile(owns, 0.99); p99 > 2*time.Second {
		t.Errorf("p99 of host time per turn is %v", p99)
	}
	counts := h.Counts().Triggers
	gap, cadence := counts[memory.TriggerGap], counts[memory.TriggerCadence]
	if gap.Fired+gap.Busy != len(pairs)*(rounds-1) || gap.Failed != 0 || gap.Fired == 0 {
		t.Errorf("gap was due %d times, counted %+v", len(pairs)*(rounds-1), gap)
	}
	if cadence.Fired+cadence.Busy != len(pairs)*rounds || cadence.Failed != 0 || cadence.Fired == 0 {
		t.Errorf("cadence was due %d times, counted %+v", len(pairs)*rounds, cadence)
	}
	refreshes := 0
	for _, p := range pairs {
		refreshes += checkTalk(t, h, p, rounds*perRound)
	}
	if refreshes != gap.Fired+cadence.Fired {
		t.Errorf("%d refreshes of %d runs", refreshes, gap.Fired+cadence.Fired)
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
// answered, to a model on loopback that takes two seconds. It reports the host's own
// time per turn, without the model: with cadence and without, in turns.
func BenchmarkTurns(b *testing.B) {
	const latency = 2 * time.Second
	type side struct {
		name  string
		host  *host.Host
		pairs []*talker
		owns  []time.Duration
	}
	var sides []*side
	for name, interval := range map[string]int{"off": 0, "on": 5} {
		h, pairs := crowded(b, 40, 5, host.Config{LLM: newTimedModel(b, latency),
			Compaction: host.CompactionConfig{GapSecs: 900, ContinuousInterval: interval}})
		sides = append(sides, &side{name: name, host: h, pairs: pairs})
		// Sessions are made, connections opened and the first cadence runs due.
		chat(b, h, pairs, 3, latency)
	}
	for b.Loop() {
		for _, s := range sides {
			s.owns = append(s.owns, chat(b, s.host, s.pairs, 3, latency)...)
			if err := s.host.Idle(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	}
	for _, s := range sides {
		b.Logf("cadence %s: %d turns, %+v", s.name, len(s.owns), s.host.Counts().Triggers)
		b.ReportMetric(percentile(s.owns, 0.5).Seconds()*1000, "p50-ms-cadence-"+s.name)
		b.ReportMetric(percentile(s.owns, 0.99).Seconds()*1000, "p99-ms-cadence-"+s.name)
	}
	b.ReportMetric(0, "ns/op")
}
