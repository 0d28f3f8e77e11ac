package crashtest_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/compaction"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/crashtest"
	"github.com/gloveboxhq/glovebox/memory/sqlite"
)

var monday = time.Date(2026, 3, 23, 9, 0, 0, 0, time.UTC)

var faults = []crashtest.Fault{crashtest.Lost, crashtest.Unacknowledged}

// readings are the methods of a store that change nothing.
var readings = []string{
	"DefaultUser", "Users", "Agents", "Session", "Sessions", "Places", "LastActivity", "Message", "Messages", "Frontier", "FrontierTail",
	"Summaries", "Summary", "Sources", "Expand", "SearchWords", "SearchSummaries", "Texts", "Files", "File",
	"Compactions", "Wipes", "Export", "ExportMemory", "Close",
	"PendingRuns", "NextPendingRun", "UnseenMessages", "Unseen", "Extractions", "IdleSessions", "NextIdleSession", "Topics",
}

// nowhere is a store whose every method does nothing; it counts what reaches
// it.
type nowhere struct {
	memory.Store
	reached int
}

func (n *nowhere) Append(context.Context, memory.UserID, memory.SessionID, ...memory.Draft) ([]memory.Message, error) {
	n.reached++
	return []memory.Message{{}}, nil
}

// Whatever writes can be made to fail: a method that the store gets later must
// not go round the plan.
func TestEveryWriteCanFail(t *testing.T) {
	methods := reflect.TypeFor[memory.Store]()
	for i := range methods.NumMethod() {
		method := methods.Method(i)
		if slices.Contains(readings, method.Name) {
			continue
		}
		t.Run(method.Name, func(t *testing.T) {
			faulty := crashtest.Faulty(nil, crashtest.Plan{Write: 1, Fault: crashtest.Lost})
			call := reflect.ValueOf(faulty).MethodByName(method.Name)
			arguments := []reflect.Value{reflect.ValueOf(t.Context())}
			for i := 1; i < call.Type().NumIn(); i++ {
				if in := call.Type().In(i); !call.Type().IsVariadic() || i < call.Type().NumIn()-1 {
					arguments = append(arguments, reflect.Zero(in))
				}
			}
			results := call.Call(arguments)
			if err, _ := results[len(results)-1].Interface().(error); !errors.Is(err, crashtest.ErrFault) {
				t.Errorf("got %v", err)
			}
			if failed := faulty.Failed(); !slices.Equal(failed, []string{method.Name}) {
				t.Errorf("failed: %v", failed)
			}
		})
	}
}

func TestPlan(t *testing.T) {
	for _, test := range []struct {
		plan           crashtest.Plan
		fails, reaches []int
	}{
		{crashtest.Plan{}, nil, []int{1, 2, 3, 4}},
		{crashtest.Plan{Write: 2, Fault: crashtest.Lost}, []int{2}, []int{1, 3, 4}},
		{crashtest.Plan{Write: 2, Fault: crashtest.Unacknowledged}, []int{2}, []int{1, 2, 3, 4}},
		{crashtest.Plan{Write: 2, Times: 2, Fault: crashtest.Lost}, []int{2, 3}, []int{1, 4}},
	} {
		t.Run(fmt.Sprintf("%+v", test.plan), func(t *testing.T) {
			below := &nowhere{}
			faulty := crashtest.Faulty(below, test.plan)
			var fails, reaches []int
			for i := 1; i <= 4; i++ {
				before := below.reached
				messages, err := faulty.Append(t.Context(), memory.UserID{}, memory.SessionID{})
				if err != nil {
					fails = append(fails, i)
				}
				if below.reached > before {
					reaches = append(reaches, i)
				}
				if (err == nil) != (len(messages) == 1) {
					t.Errorf("write %d: %v beside %v", i, messages, err)
				}
			}
			if !slices.Equal(fails, test.fails) || !slices.Equal(reaches, test.reaches) || faulty.Writes() != 4 {
				t.Errorf("%v fail, %v reach the store, %d counted", fails, reaches, faulty.Writes())
			}
		})
	}
}

func open(t testing.TB) *sqlite.Store {
	t.Helper()
	store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "glovebox.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

// conversation is a session with twelve exchanges on a store of its own.
type conversation struct {
	store *sqlite.Store
	turn  compaction.Turn
}

func newConversation(t *testing.T) conversation {
	t.Helper()
	store := open(t)
	user, err := store.DefaultUser(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	agent, err := store.PutAgent(t.Context(), "assistant", "", monday)
	if err != nil {
		t.Fatal(err)
	}
	session, err := store.CreateSession(t.Context(), memory.Session{Agent: agent.ID, User: user.ID, CreatedAt: monday})
	if err != nil {
		t.Fatal(err)
	}
	c := conversation{store, compaction.Turn{
		User: user.ID, Agent: agent.ID, Session: session.ID, At: monday.Add(time.Hour), Source: memory.SourceUser, Exchanges: 12,
	}}
	c.exchanges(t, monday, 12)
	return c
}

// exchanges lets user and assistant talk n times, a minute each.
func (c conversation) exchanges(t *testing.T, at time.Time, n int) []memory.Message {
	t.Helper()
	var drafts []memory.Draft
	for i := range 2 * n {
		at = at.Add(30 * time.Second)
		role, source := memory.RoleUser, memory.SourceUser
		if i%2 == 1 {
			role, source = memory.RoleAssistant, memory.SourceAssistant
		}
		text := fmt.Sprintf("Number %d: the pump in hall %d runs at %d percent since %s. ", i, i%5, i*3, at.Format(time.TimeOnly))
		drafts = append(drafts, memory.Draft{Role: role, Source: source, Blocks: []memory.Block{memory.Text(strings.Repeat(text, 20))}, At: at})
	}
	messages, err := c.store.Append(t.Context(), c.turn.User, c.turn.Session, drafts...)
	if err != nil {
		t.Fatal(err)
	}
	return messages
}

// calendar is a source with one thing to say.
type calendar struct{}

func (calendar) Name() string { return "calendar" }

func (calendar) Ask(_ context.Context, q compaction.Question) (boundary.Content, error) {
	source, err := boundary.HandSource("calendar")
	if err != nil {
		return boundary.Content{}, err
	}
	content, _ := boundary.Wrap(source, "Dentist at noon, "+q.To.Format(time.RFC3339), q.MaxTokens)
	return content, nil
}

// trigger runs one kind of compaction to its end.
type trigger struct {
	name string
	run  func(context.Context, *compaction.Engine, compaction.Turn) (compaction.Report, error)
}

var triggers = []trigger{
	{"cadence", func(ctx context.Context, e *compaction.Engine, t compaction.Turn) (compaction.Report, error) {
		return e.Cadence(ctx, t)
	}},
	{"gap", func(ctx context.Context, e *compaction.Engine, t compaction.Turn) (compaction.Report, error) {
		t.At = t.At.Add(2 * time.Hour)
		report, err := e.Gap(ctx, t)
		return report, errors.Join(err, e.Idle(ctx))
	}},
}

// C12: whichever write of a compaction fails, and however, no message is lost,
// doubled or changed, the frontier covers each once, and the next compaction
// goes on where this one stopped. At most the refresh is there twice: once from
// the run whose answer was lost, and once from the next.
func TestCompactionWithEveryWriteFailing(t *testing.T) {
	for _, trigger := range triggers {
		for _, fault := range faults {
			t.Run(trigger.name+", "+fault.String(), func(t *testing.T) {
				// By method: in which order a gap run writes is a matter of chance.
				for _, method := range []string{"Inject", "CommitSummary", "RecordCompaction"} {
					n := 1
					for compactionWithFault(t, trigger, crashtest.Plan{Method: method, Write: n, Fault: fault}) == method {
						n++
					}
					if n == 1 {
						t.Errorf("%s never failed: this test looks at the wrong thing", method)
					}
				}
			})
		}
	}
}

// compactionWithFault returns the method that was made to fail, or "" if the
// plan counts further than the writes.
func compactionWithFault(t *testing.T, trigger trigger, plan crashtest.Plan) string {
	t.Helper()
	c := newConversation(t)
	said := messagesOf(t, c.store, c.turn)
	faulty := crashtest.Faulty(c.store, plan)
	engine := compaction.New(faulty, compaction.NewOffline(),
		compaction.Config{Interval: 1, Gap: time.Hour, ContextTokenCap: 512, KeepRecent: 4},
		func(memory.UserID) []compaction.Source { return []compaction.Source{calendar{}} }, nil)
	defer engine.Close(context.WithoutCancel(t.Context()))

	report, err := trigger.run(t.Context(), engine, c.turn)
	failed := faulty.Failed()
	where := fmt.Sprintf("write %d, %v", plan.Write, failed)
	if len(failed) > 0 && (err == nil || !errors.Is(err, crashtest.ErrFault)) {
		t.Errorf("%s: the run says %v", where, err)
	}
	if len(failed) == 0 && err != nil {
		t.Fatalf("%s: without a fault: %v", where, err)
	}
	if len(failed) > 0 && slices.Contains([]string{"Inject", "CommitSummary"}, failed[0]) && report.Outcome != memory.OutcomeFailed {
		t.Errorf("%s: the outcome is %q", where, report.Outcome)
	}
	intact(t, where, c, said)

	// The next one works, and is not refused as busy.
	faulty.Heal()
	said = append(said, c.exchanges(t, c.turn.At, 4)...)
	c.turn.At = c.turn.At.Add(4 * time.Hour)
	report, err = trigger.run(t.Context(), engine, c.turn)
	if err != nil || report.Outcome != memory.OutcomeDone {
		t.Errorf("%s: the next run: %+v, %v", where, report, err)
	}
	refreshes := intact(t, where, c, said)
	want := 2
	if len(failed) > 0 && failed[0] == "Inject" && plan.Fault == crashtest.Lost {
		want = 1
	}
	if refreshes != want {
		t.Errorf("%s: %d refreshes after two runs, want %d", where, refreshes, want)
	}
	frontier, err := c.store.Frontier(t.Context(), c.turn.User, c.turn.Session)
	if err != nil {
		t.Fatal(err)
	}
	if frontier.Items[0].Summary == nil {
		t.Errorf("%s: nothing was compacted in two runs", where)
	}
	if len(failed) == 0 {
		return ""
	}
	return failed[0]
}

func messagesOf(t *testing.T, store memory.Store, turn compaction.Turn) []memory.Message {
	t.Helper()
	messages, err := store.Messages(t.Context(), turn.User, turn.Session, memory.MessageQuery{})
	if err != nil {
		t.Fatal(err)
	}
	return messages
}

// intact proves that the session has what was said, unchanged and once, beside
// refreshes, whose number it returns, and that its frontier stands for all of
// it.
func intact(t *testing.T, where string, c conversation, said []memory.Message) (refreshes int) {
	t.Helper()
	all := messagesOf(t, c.store, c.turn)
	var others []memory.Message
	for _, m := range all {
		if m.IsRefresh() {
			refreshes++
		} else {
			others = append(others, m)
		}
	}
	if !reflect.DeepEqual(others, said) {
		t.Errorf("%s: %d messages of %d, or others", where, len(others), len(said))
	}
	if err := crashtest.CheckSession(t.Context(), c.store, c.turn.User, c.turn.Session); err != nil {
		t.Errorf("%s: %v", where, err)
	}
	return refreshes
}
