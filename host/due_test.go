package host_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/compaction"
	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/host/llm/openai"
	"github.com/gloveboxhq/glovebox/host/llm/openai/openaitest"
	"github.com/gloveboxhq/glovebox/host/registry"
	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/sqlite"
)

var due = flag.Int("due", 200, "sessions of TestManyDueAtOnce; 10000 is the whole of it")

// dueMark is in each message of a session: whose it is and which.
var dueMark = regexp.MustCompile(`due-u(\d+)-s(\d+)`)

// dueModel is a model on loopback. It answers each session in words of its own, counts
// what it is asked for whom, and can be made to hold what it is asked.
type dueModel struct {
	llm.Model

	mu sync.Mutex
	// All below is guarded by mu. answered counts the answers by mark, order has the
	// marks in the order of the answers.
	answered  map[string]int
	order     []string
	atOnce    int
	most      int
	cancelled int
	// hold, if not negative, is how many more answers there are before it holds all
	// others; held is told of each that it holds.
	hold int
	held chan struct{}
	// ended is told of each run of compaction that is over.
	ended chan struct{}
	// each, if not nil, is called with each answer. forgetful says that there is
	// nothing to remember.
	each      func()
	forgetful bool
}

func newDueModel(t testing.TB) *dueModel {
	t.Helper()
	m := &dueModel{answered: map[string]int{}, hold: -1, held: make(chan struct{}, 1024), ended: make(chan struct{}, 100_000)}
	// One that keeps nothing of what it is sent: memory is measured.
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var sent openaitest.Request
		if err := json.NewDecoder(r.Body).Decode(&sent); err != nil || len(sent.Messages) == 0 {
			t.Errorf("asked %+v, %v", sent, err)
			return
		}
		m.serve(w, r, sent)
	}))
	t.Cleanup(server.Close)
	var err error
	if m.Model, err = openai.New(openai.Config{BaseURL: server.URL + "/v1", APIKey: openaitest.Key, Name: "m"}); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *dueModel) serve(w http.ResponseWriter, r *http.Request, sent openaitest.Request) {
	system, said := sent.Messages[0].Content, sent.Messages[len(sent.Messages)-1].Content
	// What is remembered of other sessions stands before what is new.
	mark, text := "", ""
	if marks := dueMark.FindAllString(said, -1); len(marks) > 0 {
		mark = strings.Clone(marks[len(marks)-1]) // of the whole prompt, it would keep it alive
	}
	switch {
	case strings.HasPrefix(system, "You write the memory"):
		text = mark + " was said."
	case strings.HasPrefix(system, "You keep what"):
		if text = `{"topics":[]}`; !m.forgetful {
			text = fmt.Sprintf(`{"topics":[{"topic":%q,"content":%q,"supersedes":[],"from":["m1"],"expires_at":null,"scope":"user"}]}`, mark, "Says "+mark+".")
		}
	default:
		openaitest.Text("It does.")(w, r, sent)
		return
	}
	m.mu.Lock()
	m.atOnce++
	m.most = max(m.most, m.atOnce)
	holds := m.hold == 0
	if m.hold > 0 {
		m.hold--
	}
	m.mu.Unlock()
	if holds {
		m.held <- struct{}{}
		<-r.Context().Done()
	}
	m.mu.Lock()
	m.atOnce--
	if holds {
		m.cancelled++
	} else {
		m.answered[mark]++
		m.order = append(m.order, mark)
		if m.each != nil {
			m.each()
		}
	}
	m.mu.Unlock()
	if !holds {
		openaitest.Text(text)(w, r, sent)
	}
}

// holdAfter has the model answer n more calls and hold the others; less than 0 holds
// none.
func (m *dueModel) holdAfter(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hold = n
}

// duePlace is a data directory in which a run of compaction, or a dream, is due for
// each of many sessions. Every other one is the first user's.
type duePlace struct {
	config   host.Config
	now      *clock
	ticks    chan time.Time
	dreams   bool
	sessions []dueSession
}

type dueSession struct {
	user    memory.UserID
	session memory.SessionID
	mark    string
}

// dueCalls is how many calls go on at once, dueWorkers how many runs.
const dueCalls, dueWorkers = 4, 8

func newDue(t testing.TB, dreams bool, sessions int) *duePlace {
	t.Helper()
	compiler, err := registry.Self()
	if err != nil {
		t.Fatal(err)
	}
	p := &duePlace{dreams: dreams, now: &clock{at: monday}, ticks: make(chan time.Time)}
	agent := host.AgentConfig{Name: "jeeves"}
	if dreams {
		agent.Memory.System = host.MemoryStructured
	}
	p.config = host.Config{
		Data: t.TempDir(), Cache: cacheDir, Compiler: compiler, Now: p.now.now, Ticks: p.ticks, Agents: []host.AgentConfig{agent},
		Model: host.ModelConfig{BackgroundCalls: dueCalls, BackgroundCallsPerMinute: 1_000_000},
	}
	if !dreams {
		p.config.Compaction = host.CompactionConfig{Threshold: 0.5}
	}
	users := min(500, max(sessions/10, 2))
	for i := range users {
		p.config.Users = append(p.config.Users, host.UserConfig{Name: fmt.Sprint("u", i), IsDefault: i == 0})
	}
	p.config.LLM = newDueModel(t)
	// The host makes the users and the agent.
	h, err := host.New(t.Context(), p.config)
	if err != nil {
		t.Fatal(err)
	}
	path, err := p.config.DatabasePath()
	if err != nil {
		t.Fatal(err)
	}
	agents, err := h.Store().Agents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]memory.UserID, users)
	for i := range ids {
		u, err := h.User(fmt.Sprint("u", i))
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = u.ID
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	store, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}()
	for n := range sessions {
		who := 0
		if n%2 == 1 {
			who = 1 + (n/2)%(users-1)
		}
		s := dueSession{user: ids[who], mark: fmt.Sprintf("due-u%d-s%d", who, n)}
		created, err := store.CreateSession(t.Context(), memory.Session{Agent: agents[0].ID, User: s.user, CreatedAt: monday})
		if err != nil {
			t.Fatal(err)
		}
		s.session = created.ID
		p.sessions = append(p.sessions, s)
		var drafts []memory.Draft
		for range 10 {
			text := s.mark + strings.Repeat(" says that the pump in hall three runs at forty percent.", 6)
			drafts = append(drafts,
				memory.Draft{Role: memory.RoleUser, Source: memory.SourceUser, Blocks: []memory.Block{memory.Text(text)}, At: p.now.now()},
				memory.Draft{Role: memory.RoleAssistant, Source: memory.SourceAssistant, Blocks: []memory.Block{memory.Text(text)}, At: p.now.now()})
		}
		if !dreams {
			// The prompts of these turns had a small window.
			drafts[len(drafts)-1].Runs = []memory.DueRun{{Trigger: memory.TriggerThreshold, Budget: 800}}
		}
		if _, err := store.Append(t.Context(), s.user, s.session, drafts...); err != nil {
			t.Fatal(err)
		}
		p.now.advance(time.Second)
	}
	p.now.advance(time.Hour)
	return p
}

// open opens a host there, or in a copy of it, and has what is due begin.
func (p *duePlace) open(t testing.TB, data string, model *dueModel) *host.Host {
	t.Helper()
	config := p.config
	config.Data, config.LLM = data, model
	config.OnCompaction = func(compaction.Report) { model.ended <- struct{}{} }
	h, err := host.New(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	if p.dreams {
		p.ticks <- p.now.now()
	}
	return h
}

// finish waits until nothing is due.
func (p *duePlace) finish(t testing.TB, h *host.Host) {
	t.Helper()
	if p.dreams {
		p.ticks <- p.now.now() // the look before it is over
	}
	if err := h.Idle(t.Context()); err != nil {
		t.Fatal(err)
	}
	pending, err := h.Store().PendingRuns(t.Context())
	if err != nil || len(pending) != 0 {
		t.Errorf("%d runs are pending, %v", len(pending), err)
	}
	idle, err := h.Store().NextIdleSession(t.Context(), memory.DueQuery{Agents: agentsOf(t, h), IdleSince: p.now.now()})
	if p.dreams && err == nil {
		t.Errorf("%+v is due", idle)
	}
}

func agentsOf(t testing.TB, h *host.Host) (ids []memory.AgentID) {
	t.Helper()
	agents, err := h.Store().Agents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range agents {
		ids = append(ids, a.ID)
	}
	return ids
}

// dump is what is shown of all sessions, and what is remembered of all users, in words
// and without ids.
func (p *duePlace) dump(t testing.TB, h *host.Host) string {
	t.Helper()
	var lines []string
	topics := map[memory.UserID]bool{}
	for _, s := range p.sessions {
		frontier, err := h.Store().Frontier(t.Context(), s.user, s.session)
		if err != nil {
			t.Fatal(err)
		}
		line := s.mark
		for _, item := range frontier.Items {
			if item.Summary != nil {
				line += fmt.Sprintf(" [%d: %s]", item.Summary.Descendants, item.Summary.Text)
			} else {
				line += fmt.Sprintf(" %d", item.Message.Seq)
			}
		}
		lines = append(lines, line)
		if topics[s.user] {
			continue
		}
		topics[s.user] = true
		remembered, _, err := h.Store().Topics(t.Context(), s.user, memory.TopicQuery{})
		if err != nil {
			t.Fatal(err)
		}
		for _, topic := range remembered {
			lines = append(lines, fmt.Sprintf("topic %s: %s %d", topic.Name, topic.Content, len(topic.Sources)))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// checkTurns holds the order of the answers to turns of the users: of those who have
// something due, none is more than one behind another, but for those whose call goes
// on.
func (p *duePlace) checkTurns(t testing.TB, order []string) {
	t.Helper()
	userOf := func(mark string) string { return dueMark.FindStringSubmatch(mark)[1] }
	due, had := map[string]int{}, map[string]int{}
	for _, s := range p.sessions {
		due[userOf(s.mark)]++
	}
	for i, mark := range order {
		user := userOf(mark)
		had[user]++
		behind := 0
		for other, n := range due {
			if had[other] < n && had[user] > had[other]+1 {
				behind++
			}
		}
		if behind >= dueWorkers {
			t.Errorf("answer %d is number %d of user %s, and %d users had less: %v of %v", i, had[user], user, behind, had, due)
			return
		}
	}
}

// Whatever is due at once, in compaction or in dreams: all of it is done once, by turns
// of the users, with a bounded number of calls at once; a turn does not wait for it;
// and a host that is closed or killed in the middle is followed by one that does what
// is left, and pays again for no more than what was cut off.
func TestManyDueAtOnce(t *testing.T) {
	for name, dreams := range map[string]bool{"compaction": false, "dreams": true} {
		t.Run(name, func(t *testing.T) {
			p := newDue(t, dreams, *due)
			untouched := killed(t, p.config.Data)
			model := newDueModel(t)
			h := p.open(t, untouched, model)
			p.finish(t, h)
			model.check(t, p)
			if model.cancelled > 0 || model.most > dueCalls {
				t.Errorf("%d calls at once, %d cancelled", model.most, model.cancelled)
			}
			p.checkTurns(t, model.order)
			want := p.dump(t, h)
			if err := h.Close(); err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(want, map[bool]string{false: " was said.", true: "topic "}[dreams]); n != len(p.sessions) {
				t.Fatalf("%d of %d are done:\n%.2000s", n, len(p.sessions), want)
			}

			for _, end := range []string{"closed", "killed"} {
				t.Run(end, func(t *testing.T) {
					data := killed(t, p.config.Data)
					model := newDueModel(t)
					model.holdAfter(len(p.sessions) / 2)
					h := p.open(t, data, model)
					for range dueCalls {
						<-model.held
					}
					if answer, err := h.Send(t.Context(), host.Message{User: p.sessions[1].user, Text: "Does it run?"}); err != nil || memory.Plain(answer.Message.Blocks) != "It does." {
						t.Errorf("a turn beside it: %+v, %v", answer, err)
					}
					if end == "killed" {
						// What was answered is committed; a kill before that costs one more
						// call. Dreams begin one when the one before is.
						for range map[bool]int{false: len(p.sessions) / 2}[dreams] {
							<-model.ended
						}
						// What is committed at one instant is what a kill leaves; files that
						// are copied one after the other need not be of one instant.
						left := t.TempDir()
						if err := h.Store().(*sqlite.Store).Backup(t.Context(), filepath.Join(left, "glovebox.db")); err != nil {
							t.Fatal(err)
						}
						data = left
					}
					began := time.Now()
					if err := h.Close(); err != nil {
						t.Error(err)
					}
					// The figure is 2 s, and ten times as much is held.
					if took := time.Since(began); took > 20*time.Second {
						t.Errorf("closing took %v", took)
					}
					if n := len(model.order); n != len(p.sessions)/2 {
						t.Errorf("%d answers, %d were to be", n, len(p.sessions)/2)
					}
					model.holdAfter(-1)
					h = p.open(t, data, model)
					p.finish(t, h)
					model.check(t, p)
					if model.cancelled != dueCalls || model.most != dueCalls {
						t.Errorf("%d calls were cancelled, and %d went on at once", model.cancelled, model.most)
					}
					if got := p.dump(t, h); got != want {
						t.Errorf("it came to something else: %s", firstDifference(got, want))
					}
					if found, err := h.Store().(*sqlite.Store).Check(t.Context()); err != nil || len(found) > 0 {
						t.Errorf("the doctor finds %+v, %v", found, err)
					}
				})
			}
		})
	}
}

// check holds that each session had one answer.
func (m *dueModel) check(t testing.TB, p *duePlace) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range p.sessions {
		if n := m.answered[s.mark]; n != 1 {
			t.Errorf("%s was answered %d times", s.mark, n)
		}
	}
	if len(m.answered) != len(p.sessions) {
		t.Errorf("%d sessions were answered: %v", len(m.answered), slices.Sorted(maps.Keys(m.answered)))
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("got  %s\nwant %s", g[i], w[i])
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(g), len(w))
}

// liveHeap is what the last collection found alive.
func liveHeap() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// BenchmarkDue has a run of compaction, or a dream, due for each of so many sessions,
// one half of them one user's, and a model on loopback that answers at once. It
// reports the time per pass, the most heap alive meanwhile and how much the host
// added to what there was before it, and how long it took to close half-way with all
// its calls going on. The dreams find nothing to remember: what a user has thousands of
// topics for is another question.
func BenchmarkDue(b *testing.B) {
	for _, dreams := range []bool{false, true} {
		for _, sessions := range []int{100, 1000, 10_000} {
			b.Run(fmt.Sprintf("of=%s/sessions=%d", map[bool]string{false: "compaction", true: "dreams"}[dreams], sessions), func(b *testing.B) {
				p := newDue(b, dreams, sessions)
				var passes, closings []time.Duration
				var most, added uint64
				for b.Loop() {
					b.StopTimer()
					data := killed(b, p.config.Data)
					model := newDueModel(b)
					model.forgetful = true
					runtime.GC()
					before := liveHeap()
					most = max(most, before)
					last, answers := time.Now(), 0
					model.each = func() {
						now := time.Now()
						passes = append(passes, now.Sub(last))
						last = now
						// Ten times in all, whatever there is to do.
						if answers++; answers%(sessions/10) == 0 {
							runtime.GC()
							alive := liveHeap()
							most, added = max(most, alive), max(added, alive-min(alive, before))
							last = time.Now()
						}
					}
					model.holdAfter(sessions / 2)
					b.StartTimer()
					h := p.open(b, data, model)
					for range dueCalls {
						<-model.held
					}
					began := time.Now()
					if err := h.Close(); err != nil {
						b.Fatal(err)
					}
					closings = append(closings, time.Since(began))
					model.holdAfter(-1)
					h = p.open(b, data, model)
					p.finish(b, h)
					model.check(b, p)
					b.StopTimer()
					if err := h.Close(); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
				}
				b.ReportMetric(percentile(passes, 0.5).Seconds()*1000, "p50-ms/pass")
				b.ReportMetric(percentile(passes, 0.99).Seconds()*1000, "p99-ms/pass")
				b.ReportMetric(float64(most)/(1<<20), "live-MiB")
				b.ReportMetric(float64(added)/(1<<20), "added-MiB")
				b.ReportMetric(percentile(closings, 1).Seconds()*1000, "close-ms")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
