package crashtest

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/gloveboxhq/glovebox/memory"
)

// ErrFault is what a write of a Faulty store fails with.
var ErrFault = errors.New("a fault of the store, made for a test")

// Fault is a way in which a write fails.
type Fault int

// The faults.
const (
	// Lost fails without storing anything.
	Lost Fault = iota + 1
	// Unacknowledged stores everything and fails then, as when a connection
	// breaks before the answer is through.
	Unacknowledged
)

// String returns the fault's name.
func (f Fault) String() string {
	switch f {
	case Lost:
		return "lost"
	case Unacknowledged:
		return "unacknowledged"
	}
	return "no fault"
}

// Plan says which writes fail.
type Plan struct {
	// Method, if not "", is whose writes alone are counted and fail.
	Method string
	// Write is the number of the first write that fails, from 1 on. 0 is none.
	Write int
	// Times is how many writes fail one after the other; 0 means 1.
	Times int
	Fault Fault
}

// FaultyStore is a store of which some writes fail by plan. Whatever it does
// not fail is done by the store below. It is safe for concurrent use.
type FaultyStore struct {
	memory.Store

	mu sync.Mutex
	// guarded by mu
	plan   Plan
	writes int
	failed []string
}

var _ memory.Store = (*FaultyStore)(nil)

// Faulty returns a store that keeps everything in store and fails by plan.
// Closing it closes store; Close is no write.
func Faulty(store memory.Store, plan Plan) *FaultyStore {
	return &FaultyStore{Store: store, plan: plan}
}

// Heal lets all further writes through.
func (f *FaultyStore) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan.Write = 0
}

// Writes returns how many writes that count were tried so far.
func (f *FaultyStore) Writes() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.writes
}

// Failed returns the names of the methods that were made to fail, in order.
func (f *FaultyStore) Failed() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.failed...)
}

// next counts a write and returns how it is to fail, or 0.
func (f *FaultyStore) next(method string) Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.plan.Method != "" && f.plan.Method != method {
		return 0
	}
	f.writes++
	if first := f.plan.Write; first == 0 || f.writes < first || f.writes >= first+max(f.plan.Times, 1) {
		return 0
	}
	f.failed = append(f.failed, method)
	return f.plan.Fault
}

// write does one write that returns nothing but an error.
func (f *FaultyStore) write(method string, do func() error) error {
	_, err := write(f, method, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

// write does one write by plan. A caller who is told that it failed gets
// nothing of its result.
func write[T any](f *FaultyStore, method string, do func() (T, error)) (T, error) {
	var none T
	switch f.next(method) {
	case Lost:
		return none, ErrFault
	case Unacknowledged:
		if _, err := do(); err != nil {
			return none, err
		}
		return none, ErrFault
	}
	return do()
}

// PutUser implements memory.Store.
func (f *FaultyStore) PutUser(ctx context.Context, u memory.User) error {
	return f.write("PutUser", func() error { return f.Store.PutUser(ctx, u) })
}

// PutAgent implements memory.Store.
func (f *FaultyStore) PutAgent(ctx context.Context, name, manifest string, at time.Time) (memory.Agent, error) {
	return write(f, "PutAgent", func() (memory.Agent, error) { return f.Store.PutAgent(ctx, name, manifest, at) })
}

// CreateSession implements memory.Store.
func (f *FaultyStore) CreateSession(ctx context.Context, s memory.Session) (memory.Session, error) {
	return write(f, "CreateSession", func() (memory.Session, error) { return f.Store.CreateSession(ctx, s) })
}

// NameSession implements memory.Store.
func (f *FaultyStore) NameSession(ctx context.Context, user memory.UserID, id memory.SessionID, name string) error {
	return f.write("NameSession", func() error { return f.Store.NameSession(ctx, user, id, name) })
}

// Fork implements memory.Store.
func (f *FaultyStore) Fork(ctx context.Context, user memory.UserID, id memory.SessionID, last int64, at time.Time) (memory.Session, error) {
	return write(f, "Fork", func() (memory.Session, error) { return f.Store.Fork(ctx, user, id, last, at) })
}

// Append implements memory.Store.
func (f *FaultyStore) Append(ctx context.Context, user memory.UserID, session memory.SessionID, drafts ...memory.Draft) ([]memory.Message, error) {
	return write(f, "Append", func() ([]memory.Message, error) { return f.Store.Append(ctx, user, session, drafts...) })
}

// Inject implements memory.Store.
func (f *FaultyStore) Inject(ctx context.Context, user memory.UserID, session memory.SessionID, i memory.Injection) (memory.Message, error) {
	return write(f, "Inject", func() (memory.Message, error) { return f.Store.Inject(ctx, user, session, i) })
}

// Ingest implements memory.Store.
func (f *FaultyStore) Ingest(ctx context.Context, user memory.UserID, session memory.SessionID, drafts ...memory.Draft) ([]memory.Message, error) {
	return write(f, "Ingest", func() ([]memory.Message, error) { return f.Store.Ingest(ctx, user, session, drafts...) })
}

// CommitSummary implements memory.Store.
func (f *FaultyStore) CommitSummary(ctx context.Context, user memory.UserID, r memory.Revision, s memory.NewSummary) (memory.Summary, error) {
	return write(f, "CommitSummary", func() (memory.Summary, error) { return f.Store.CommitSummary(ctx, user, r, s) })
}

// RepairSummary implements memory.Store.
func (f *FaultyStore) RepairSummary(ctx context.Context, user memory.UserID, r memory.Revision, id memory.SummaryID, text memory.SummaryText) (memory.Summary, error) {
	return write(f, "RepairSummary", func() (memory.Summary, error) { return f.Store.RepairSummary(ctx, user, r, id, text) })
}

// RecordCompaction implements memory.Store.
func (f *FaultyStore) RecordCompaction(ctx context.Context, user memory.UserID, run memory.CompactionRun) error {
	return f.write("RecordCompaction", func() error { return f.Store.RecordCompaction(ctx, user, run) })
}

// PutPendingRun implements memory.Store.
func (f *FaultyStore) PutPendingRun(ctx context.Context, run memory.PendingRun) error {
	return f.write("PutPendingRun", func() error { return f.Store.PutPendingRun(ctx, run) })
}

// EndPendingRun implements memory.Store.
func (f *FaultyStore) EndPendingRun(ctx context.Context, user memory.UserID, session memory.SessionID, trigger memory.Trigger, until time.Time) error {
	return f.write("EndPendingRun", func() error { return f.Store.EndPendingRun(ctx, user, session, trigger, until) })
}

// CommitExtraction implements memory.Store.
func (f *FaultyStore) CommitExtraction(ctx context.Context, user memory.UserID, x memory.NewExtraction) (memory.Extraction, error) {
	return write(f, "CommitExtraction", func() (memory.Extraction, error) { return f.Store.CommitExtraction(ctx, user, x) })
}

// CommitDream implements memory.Store.
func (f *FaultyStore) CommitDream(ctx context.Context, user memory.UserID, r memory.TopicRevision, d memory.Dream) ([]memory.Topic, error) {
	return write(f, "CommitDream", func() ([]memory.Topic, error) { return f.Store.CommitDream(ctx, user, r, d) })
}

// PutTopic implements memory.Store.
func (f *FaultyStore) PutTopic(ctx context.Context, user memory.UserID, agent memory.AgentID, r memory.TopicRevision, t memory.NewTopic, at time.Time) (memory.Topic, error) {
	return write(f, "PutTopic", func() (memory.Topic, error) { return f.Store.PutTopic(ctx, user, agent, r, t, at) })
}

// DeleteTopic implements memory.Store.
func (f *FaultyStore) DeleteTopic(ctx context.Context, user memory.UserID, agent memory.AgentID, name string) (int, error) {
	return write(f, "DeleteTopic", func() (int, error) { return f.Store.DeleteTopic(ctx, user, agent, name) })
}

// DeleteSession implements memory.Store.
func (f *FaultyStore) DeleteSession(ctx context.Context, user memory.UserID, id memory.SessionID) error {
	return f.write("DeleteSession", func() error { return f.Store.DeleteSession(ctx, user, id) })
}

// WipeMemory implements memory.Store.
func (f *FaultyStore) WipeMemory(ctx context.Context, user memory.UserID) (memory.WipeCounts, error) {
	return write(f, "WipeMemory", func() (memory.WipeCounts, error) { return f.Store.WipeMemory(ctx, user) })
}

// WipeAgentMemory implements memory.Store.
func (f *FaultyStore) WipeAgentMemory(ctx context.Context, user memory.UserID, agent memory.AgentID) (memory.WipeCounts, error) {
	return write(f, "WipeAgentMemory", func() (memory.WipeCounts, error) { return f.Store.WipeAgentMemory(ctx, user, agent) })
}

// WipeUser implements memory.Store.
func (f *FaultyStore) WipeUser(ctx context.Context, user memory.UserID) (memory.WipeCounts, error) {
	return write(f, "WipeUser", func() (memory.WipeCounts, error) { return f.Store.WipeUser(ctx, user) })
}

// Scrub implements memory.Store.
func (f *FaultyStore) Scrub(ctx context.Context) (bool, error) {
	return write(f, "Scrub", func() (bool, error) { return f.Store.Scrub(ctx) })
}

// BeginWipe implements memory.Store.
func (f *FaultyStore) BeginWipe(ctx context.Context, user memory.UserID, at time.Time) error {
	return f.write("BeginWipe", func() error { return f.Store.BeginWipe(ctx, user, at) })
}

// EndWipe implements memory.Store.
func (f *FaultyStore) EndWipe(ctx context.Context, user memory.UserID) error {
	return f.write("EndWipe", func() error { return f.Store.EndWipe(ctx, user) })
}

// Import implements memory.Store. It counts as one write, however many records
// there are.
func (f *FaultyStore) Import(ctx context.Context, user memory.UserID, records iter.Seq2[memory.Record, error]) (memory.ImportReport, error) {
	return write(f, "Import", func() (memory.ImportReport, error) { return f.Store.Import(ctx, user, records) })
}
