//go:build unix

package host_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/gloveboxhq/glovebox/compaction"
	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/host/registry"
	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/sqlite"
)

var (
	sendMessages = flag.String("send-messages", "1000,20000", "how many messages the stores of BenchmarkSend hold; the whole of it is 1000,100000,1000000")
	sendData     = flag.String("send-data", "", "directory where BenchmarkSend keeps its stores between runs; none means they are made for each")
)

const (
	// sendUsers is how many have a session in the store. The first of them said half of
	// all that is in it, in one session; the others share the rest. The session of the
	// last is not compacted.
	sendUsers = 100
	// sendWhole is the least that the last one's session has: more than a prompt.
	sendWhole = 400
	// sendTail is how many messages the frontiers end with, behind one summary.
	sendTail = 39
	// sendWords is how many bytes a message has.
	sendWords = 1000
)

// BenchmarkSend is the host's own time for a turn, with a model that answers at
// once, in a store of so many messages, and with so many users who talk at the same
// time, each again as soon as it is answered. The gap trigger is armed: it looks
// when its user was there last, and nobody was away.
//
// It reports the median and the 99th percentile of the host's time, what of it was on
// a processor, background work included, and the median of each stage. What of a turn
// is none of these stages is "other".
func BenchmarkSend(b *testing.B) {
	forStores(b, func(b *testing.B, s *sendStore) {
		for _, users := range []int{1, 10, 100} {
			b.Run(fmt.Sprintf("users=%d/messages=%d", users, s.messages), func(b *testing.B) { s.run(b, users, 0) })
		}
	})
}

// BenchmarkSendBack is BenchmarkSend of one user who was away before each turn: a
// hand in its box is asked, its answer is stored, and what is old is summarised,
// by a summarizer that takes no time. The turn waits for all of it.
func BenchmarkSendBack(b *testing.B) {
	forStores(b, func(b *testing.B, s *sendStore) {
		b.Run(fmt.Sprintf("users=1/messages=%d", s.messages), func(b *testing.B) { s.run(b, 1, time.Hour) })
	})
}

// BenchmarkSendWhole is BenchmarkSend of one user whose conversation was never
// compacted, as without configuration, and is longer than a prompt: the model is shown
// as much of it as there is room for.
func BenchmarkSendWhole(b *testing.B) {
	forStores(b, func(b *testing.B, s *sendStore) {
		b.Run(fmt.Sprintf("users=1/messages=%d", s.messages), func(b *testing.B) { s.run(b, -1, 0) })
	})
}

func forStores(b *testing.B, run func(*testing.B, *sendStore)) {
	for size := range strings.SplitSeq(*sendMessages, ",") {
		messages, err := strconv.Atoi(size)
		if err != nil {
			b.Fatalf("-send-messages %s: %v", *sendMessages, err)
		}
		s := &sendStore{messages: messages, filled: b.TempDir(), dir: b.TempDir()}
		if *sendData != "" {
			s.filled = filepath.Join(*sendData, size)
		}
		run(b, s)
		s.close(b)
	}
}

// sendStore is a host with a store that holds so many messages.
type sendStore struct {
	messages int
	// filled is where the store is as it was made, dir that of its copy in which turns
	// go on.
	filled, dir string
	clock       *clock
	text        *sendText
	// host is nil until it is wanted.
	host     *host.Host
	users    []memory.UserID
	sessions []memory.SessionID
}

// begin opens the host, with a store as it was made.
func (s *sendStore) begin(b *testing.B) {
	b.Helper()
	if s.host != nil {
		return
	}
	s.clock, s.text = &clock{at: monday}, &sendText{random: rand.New(rand.NewPCG(1, 2))}
	done := filepath.Join(s.filled, "filled")
	if _, err := os.Stat(done); err != nil {
		s.open(b, s.filled)
		s.fill(b)
		s.close(b)
		if err := os.WriteFile(done, nil, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	if err := os.CopyFS(s.dir, os.DirFS(s.filled)); err != nil {
		b.Fatal(err)
	}
	s.open(b, s.dir)
	s.sessions = nil
	for _, user := range s.users {
		sessions, err := s.host.Store().Sessions(context.Background(), user, memory.SessionQuery{Limit: 1})
		if err != nil || len(sessions) != 1 {
			b.Fatalf("%d sessions, %v", len(sessions), err)
		}
		s.sessions = append(s.sessions, sessions[0].ID)
		if last := sessions[0].LastActive; last.After(s.clock.at) {
			s.clock.at = last
		}
	}
	if err := s.host.Interpose(context.Background(), func(store memory.Store) memory.Store { return timedStore{store} }); err != nil {
		b.Fatal(err)
	}
}

func (s *sendStore) open(b *testing.B, dir string) {
	b.Helper()
	compiler, err := registry.Self()
	if err != nil {
		b.Fatal(err)
	}
	path, digest := mirrorHand(b)
	hand := host.HandConfig{Module: path, Digest: digest, Config: map[string]any{"mark": "{user}"}}
	config := host.Config{
		Data: dir, Cache: cacheDir, Compiler: compiler, Now: s.clock.now,
		LLM: &instantModel{text: s.text.of(sendWords)}, Summarizer: instantSummarizer{}, Tracer: stages{},
		Agents:     []host.AgentConfig{{Name: "agent", SystemPrompt: crowdPrompt}},
		Compaction: host.CompactionConfig{GapSecs: 900, KeepRecent: sendTail, ContextSources: []host.ContextSource{{Hand: "calendar", Prompt: "What is on?"}}},
	}
	for i := range sendUsers {
		name := fmt.Sprint("user", i)
		config.Users = append(config.Users, host.UserConfig{Name: name, IsDefault: i == 0})
		hand.Users = append(hand.Users, name)
	}
	config.Hands = map[string]host.HandConfig{"calendar": hand}
	if s.host, err = host.New(context.Background(), config); err != nil {
		b.Fatal(err)
	}
	s.users = nil
	for _, u := range config.Users {
		user, err := s.host.User(u.Name)
		if err != nil {
			b.Fatal(err)
		}
		s.users = append(s.users, user.ID)
	}
}

func (s *sendStore) close(b *testing.B) {
	b.Helper()
	if s.host == nil {
		return
	}
	if err := s.host.Close(); err != nil {
		b.Fatal(err)
	}
	s.host = nil
}

// fill stores the messages, and summarises all but the last ones of each session.
func (s *sendStore) fill(b *testing.B) {
	b.Helper()
	ctx := context.Background()
	began := time.Now()
	store := s.host.Store()
	agents, err := store.Agents(ctx)
	if err != nil {
		b.Fatal(err)
	}
	for i, user := range s.users {
		session, err := store.CreateSession(ctx, memory.Session{Agent: agents[0].ID, User: user, CreatedAt: s.clock.now()})
		if err != nil {
			b.Fatal(err)
		}
		left := s.messages / 2
		if i > 0 {
			left = s.messages / 2 / (sendUsers - 1)
		}
		left = max(left, sendTail+1)
		whole := i == sendUsers-1
		if whole {
			left = max(left, sendWhole)
		}
		var leaf memory.NewSummary
		var leaves []memory.SummaryID
		commit := func() {
			tail, _, err := store.FrontierTail(ctx, user, session.ID, 0)
			if err != nil {
				b.Fatal(err)
			}
			leaf.ID, leaf.At = memory.NewID[memory.SummaryID](), s.clock.now()
			leaf.SummaryText = memory.SummaryText{Text: summaryOfPumps, Level: memory.LevelNormal, Model: "test"}
			if _, err := store.CommitSummary(ctx, user, tail.Revision, leaf); err != nil {
				b.Fatal(err)
			}
			leaves = append(leaves, leaf.ID)
			leaf = memory.NewSummary{}
		}
		for left > 0 {
			drafts := make([]memory.Draft, min(500, left))
			for n := range drafts {
				drafts[n] = memory.Draft{Role: memory.RoleUser, Source: memory.SourceUser, At: s.clock.now(), Blocks: []memory.Block{memory.Text(s.text.of(sendWords))}}
				if n%2 == 1 {
					drafts[n].Role, drafts[n].Source = memory.RoleAssistant, memory.SourceAssistant
				}
			}
			s.clock.advance(time.Second)
			stored, err := store.Append(ctx, user, session.ID, drafts...)
			if err != nil {
				b.Fatal(err)
			}
			if left -= len(drafts); whole {
				continue
			}
			for _, m := range stored[:max(0, len(stored)-max(0, sendTail-left))] {
				leaf.Messages = append(leaf.Messages, m.ID)
			}
			if len(leaf.Messages) > 10_000 {
				commit()
			}
		}
		if len(leaf.Messages) > 0 {
			commit()
		}
		if len(leaves) > 1 {
			leaf.Summaries = leaves
			commit()
		}
	}
	s.indexed(b)
	b.Logf("%d messages stored and indexed in %v", s.messages, time.Since(began).Round(time.Millisecond))
}

// indexed waits until everything is in the search index: what goes on behind the
// turns is what they themselves began.
func (s *sendStore) indexed(b *testing.B) {
	b.Helper()
	store := s.host.Store()
	if timed, ok := store.(timedStore); ok {
		store = timed.Store
	}
	for {
		stats, err := store.(*sqlite.Store).Stats(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		if stats.Unindexed == 0 {
			return
		}
		<-time.After(20 * time.Millisecond)
	}
}

const summaryOfPumps = "The pumps in hall three were looked at, and what they need was agreed. "

// run has the first users talk until b.N turns are through, or the last one alone if
// they are -1. If they were away, each turn comes so long after the one before.
func (s *sendStore) run(b *testing.B, users int, away time.Duration) {
	s.begin(b)
	ctx := context.Background()
	text := s.text.of(sendWords)
	first, compacts := 0, true
	if users < 0 {
		first, users, compacts = sendUsers-1, 1, false
	}
	turn := func(i int) *turnStages {
		i += first
		t := new(turnStages)
		at := time.Now()
		answer, err := s.host.Send(context.WithValue(ctx, stagesKey{}, t), host.Message{User: s.users[i], Session: s.sessions[i], Text: text})
		if err != nil {
			b.Error(err)
			return nil
		}
		t.took[stageAfter] = time.Since(time.Unix(0, t.appended.Load()))
		t.took[stageTurn] = time.Since(at) - t.took[stageModel]
		t.refreshed = answer.Gap.Outcome == memory.OutcomeDone
		return t
	}
	// The first turn of each finds nothing in its place, and the frontiers are short
	// again, whatever was said before.
	compact := func(i int) {
		if !compacts {
			return
		}
		if _, err := s.host.Compact(ctx, s.users[i], s.sessions[i]); err != nil {
			b.Error(err)
		}
	}
	for i := range users {
		s.clock.advance(away)
		turn(i)
		compact(i)
	}
	s.indexed(b)
	runtime.GC()

	var begun atomic.Int64
	var group sync.WaitGroup
	turns := make([][]*turnStages, users)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	processor := processorTime(b)
	b.ResetTimer()
	for i := range users {
		group.Go(func() {
			for n := 1; begun.Add(1) <= int64(b.N); n++ {
				s.clock.advance(away + time.Millisecond)
				t := turn(i)
				if t == nil || t.refreshed != (away > 0) {
					b.Errorf("user %d, turn %d: refreshed %v", i, n, t != nil && t.refreshed)
					return
				}
				turns[i] = append(turns[i], t)
				// Rarely, so that frontiers are of 40 to 72 items.
				if n%16 == 0 {
					compact(i)
				}
			}
		})
	}
	group.Wait()
	b.StopTimer()
	processor = processorTime(b) - processor
	runtime.ReadMemStats(&after)

	var all []*turnStages
	for _, of := range turns {
		all = append(all, of...)
	}
	if len(all) == 0 {
		return
	}
	quantile := func(of stage, p float64) float64 {
		took := make([]time.Duration, len(all))
		for i, t := range all {
			took[i] = t.took[of]
		}
		return percentile(took, p).Seconds() * 1000
	}
	for _, t := range all {
		// The hand is asked within the refresh, as is the store when the user was there.
		t.took[stageOther] = t.took[stageTurn] - t.took[stageRefresh] - t.took[stageAppend] - t.took[stageRead] - t.took[stageAssemble] - t.took[stageAfter]
	}
	b.ReportMetric(quantile(stageTurn, 0.5), "p50-ms")
	b.ReportMetric(quantile(stageTurn, 0.99), "p99-ms")
	b.ReportMetric(processor.Seconds()*1000/float64(len(all)), "cpu-ms/turn")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(len(all)), "allocs/turn")
	b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/1000/float64(len(all)), "kB/turn")
	// What a turn waits for the disk is no fault of the host's, and most of the worst.
	b.ReportMetric(quantile(stageAppend, 0.99), "append-p99-ms")
	if away > 0 {
		b.ReportMetric(quantile(stageHand, 0.5), "hand-ms")
	}
	for name, of := range map[string]stage{"gap": stageRefresh, "append": stageAppend, "read": stageRead, "assemble": stageAssemble, "after": stageAfter, "other": stageOther} {
		b.ReportMetric(quantile(of, 0.5), name+"-ms")
	}
}

// processorTime is what this process has had of the processors.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// stage is a part of a turn.
type stage int

const (
	stageTurn     stage = iota // all of it, without the model
	stageModel                 // the model
	stageRefresh               // the gap trigger: the look, the sources, the injection
	stageHand                  // of which the hand
	stageAppend                // both messages, until they are on disk
	stageRead                  // what the turn reads of its session
	stageAssemble              // from the frontier to the request
	stageAfter                 // from the stored answer to the caller
	stageOther
	stageCount
)

// turnStages is how long the stages of one turn took.
type turnStages struct {
	took [stageCount]time.Duration
	// refreshed says that its user was away.
	refreshed bool
	// read and appended are when the frontier was read and a message stored last, in
	// nanoseconds since 1970.
	read, appended atomic.Int64
}

type stagesKey struct{}

// add counts what has gone on since began for the turn of a context, if it is one's.
func (s stage) add(ctx context.Context, began time.Time) {
	if t, ok := ctx.Value(stagesKey{}).(*turnStages); ok {
		t.took[s] += time.Since(began)
	}
}

// timedStore is a store whose time counts for the turns that it is asked in.
type timedStore struct{ memory.Store }

func (s timedStore) Session(ctx context.Context, user memory.UserID, id memory.SessionID) (memory.Session, error) {
	defer stageRead.add(ctx, time.Now())
	return s.Store.Session(ctx, user, id)
}

func (s timedStore) Messages(ctx context.Context, user memory.UserID, id memory.SessionID, q memory.MessageQuery) ([]memory.Message, error) {
	defer stageRead.add(ctx, time.Now())
	return s.Store.Messages(ctx, user, id, q)
}

func (s timedStore) FrontierTail(ctx context.Context, user memory.UserID, id memory.SessionID, tokens int) (memory.Frontier, memory.FrontierRest, error) {
	defer func(began time.Time) {
		stageRead.add(ctx, began)
		if t, ok := ctx.Value(stagesKey{}).(*turnStages); ok {
			t.read.Store(time.Now().UnixNano())
		}
	}(time.Now())
	return s.Store.FrontierTail(ctx, user, id, tokens)
}

func (s timedStore) Append(ctx context.Context, user memory.UserID, id memory.SessionID, drafts ...memory.Draft) ([]memory.Message, error) {
	defer func(began time.Time) {
		stageAppend.add(ctx, began)
		if t, ok := ctx.Value(stagesKey{}).(*turnStages); ok {
			t.appended.Store(time.Now().UnixNano())
		}
	}(time.Now())
	return s.Store.Append(ctx, user, id, drafts...)
}

// stages is a tracer that counts the time of the host's spans for their turns.
type stages struct{ noop.TracerProvider }

func (stages) Tracer(string, ...trace.TracerOption) trace.Tracer { return stageTracer{} }

type stageTracer struct{ noop.Tracer }

func (stageTracer) Start(ctx context.Context, name string, _ ...trace.SpanStartOption) (context.Context, trace.Span) {
	of, ok := map[string]stage{"refresh": stageRefresh, "hand query": stageHand, "model request": stageModel}[name]
	if !ok {
		return ctx, noop.Span{}
	}
	began := time.Now()
	if t, ok := ctx.Value(stagesKey{}).(*turnStages); ok && of == stageModel {
		t.took[stageAssemble] += began.Sub(time.Unix(0, t.read.Load()))
	}
	return ctx, stageSpan{ctx: ctx, of: of, began: began}
}

type stageSpan struct {
	noop.Span
	ctx   context.Context
	of    stage
	began time.Time
}

func (s stageSpan) End(...trace.SpanEndOption) { s.of.add(s.ctx, s.began) }

// instantModel says the same at once.
type instantModel struct{ text string }

func (m *instantModel) Complete(context.Context, llm.Request) (llm.Response, error) {
	return llm.Response{Text: m.text, Model: "instant"}, nil
}

// instantSummarizer makes the same of everything.
type instantSummarizer struct{}

func (instantSummarizer) Local() bool { return true }

func (instantSummarizer) Summarize(_ context.Context, r compaction.SummaryRequest) (compaction.SummaryResult, error) {
	return compaction.SummaryResult{Text: summaryOfPumps, Model: "test"}, nil
}

// sendText makes texts of words that people could use.
type sendText struct {
	random *rand.Rand
	words  []string
}

func (t *sendText) of(size int) string {
	for len(t.words) < 10_000 {
		word := make([]byte, 3+t.random.IntN(8))
		for i := range word {
			word[i] = byte('a' + t.random.IntN(26))
		}
		t.words = append(t.words, string(word))
	}
	var s strings.Builder
	for s.Len() < size {
		s.WriteString(cmp.Or(t.words[int(float64(len(t.words))*t.random.Float64()*t.random.Float64())], "pump") + " ")
	}
	return s.String()[:size]
}
