// Package memorytest is the suite that every memory.Store passes: SQLite today,
// another engine unchanged.
package memorytest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/memory"
)

// Open opens the store that lives in dir, which is empty the first time. The
// suite closes what it opens and opens the same directory again to see what
// was kept.
type Open func(t *testing.T, dir string) memory.Store

// TestStore runs the whole suite.
func TestStore(t *testing.T, open Open) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, *fixture)
	}{
		{"Users", testUsers},
		{"Agents", testAgents},
		{"Sessions", testSessions},
		{"AppendAndRead", testAppendAndRead},
		{"AppendIsAllOrNothing", testAppendIsAllOrNothing},
		{"EventKeys", testEventKeys},
		{"Activity", testActivity},
		{"BlocksRoundTrip", testBlocksRoundTrip},
		{"Texts", testTexts},
		{"Times", testTimes},
		{"Injections", testInjections},
		{"FrontierTail", testFrontierTail},
		{"FrontierTailKeepsPairs", testFrontierTailKeepsPairs},
		{"CommitSummary", testCommitSummary},
		{"CommitSummaryRefuses", testCommitSummaryRefuses},
		{"Condensed", testCondensed},
		{"CondensedRefuses", testCondensedRefuses},
		{"RepairSummary", testRepairSummary},
		{"RandomOperations", testRandomOperations},
		{"Compactions", testCompactions},
		{"PendingRuns", testPendingRuns},
		{"Extractions", testExtractions},
		{"ExtractionRefuses", testExtractionRefuses},
		{"Unseen", testUnseen},
		{"UnseenRandom", testUnseenRandom},
		{"SeenOnce", testSeenOnce},
		{"IdleSessions", testIdleSessions},
		{"RunsAreDueWithAMessage", testRunsAreDueWithAMessage},
		{"TurnsOfUsers", testTurnsOfUsers},
		{"IdleSessionsRandom", testIdleSessionsRandom},
		{"Dream", testDream},
		{"DreamRefuses", testDreamRefuses},
		{"DreamsOneAfterTheOther", testDreamsOneAfterTheOther},
		{"TopicsAsOf", testTopicsAsOf},
		{"Supersession", testSupersession},
		{"Retirement", testRetirement},
		{"PutTopic", testPutTopic},
		{"DeleteTopic", testDeleteTopic},
		{"DeleteTopicWithHistory", testDeleteTopicWithHistory},
		{"WipeMemory", testWipeMemory},
		{"WipeAgentMemory", testWipeAgentMemory},
		{"LearnedOutlivesSession", testLearnedOutlivesSession},
		{"WipeUser", testWipeUser},
		{"BegunWipes", testBegunWipes},
		{"DeleteSession", testDeleteSession},
		{"Names", testNames},
		{"Places", testPlaces},
		{"Fork", testFork},
		{"ForkRefuses", testForkRefuses},
		{"ForkFiles", testForkFiles},
		{"ForkRandom", testForkRandom},
		{"ForkLearnsNothingTwice", testForkLearnsNothingTwice},
		{"ForkIsAllOrNothing", testForkIsAllOrNothing},
		{"EveryMethodIsListed", testEveryMethodIsListed},
		{"UsersAreApart", testUsersAreApart},
		{"NoForeignWord", testNoForeignWord},
		{"WritersAndReaders", testWritersAndReaders},
		{"OneSessionManyWriters", testOneSessionManyWriters},
		{"CancelledContext", testCancelledContext},
		{"CancelledMeanwhile", testCancelledMeanwhile},
		{"EverythingSurvivesOpen", testEverythingSurvivesOpen},
		{"Closed", testClosed},
		{"Ingest", testIngest},
		{"IngestRandom", testIngestRandom},
		{"Files", testFiles},
		{"FilesAreReferredTo", testFilesAreReferredTo},
		{"AllTexts", testAllTexts},
		{"ExportImport", testExportImport},
		{"ExportImportRandom", testExportImportRandom},
		{"ImportRefuses", testImportRefuses},
		{"ImportMemory", testImportMemory},
		{"ImportEarlierMemory", testImportEarlierMemory},
		{"ImportRecomputes", testImportRecomputes},
		{"ImportStops", testImportStops},
		{"RecordsKeepBytes", testRecordsKeepBytes},
		{"TransferHoldsNothing", testTransferHoldsNothing},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, newFixture(t, open)) })
	}
}

// at is when everything begins: with more precision than stores keep.
var at = time.Date(2026, 3, 23, 9, 0, 0, 123_456_789, time.FixedZone("", 3600))

// kept is at as a store gives it back.
var kept = at.UTC().Truncate(time.Microsecond)

type fixture struct {
	t     *testing.T
	dir   string
	open  Open
	store memory.Store
	agent memory.AgentID
	user  memory.UserID // the default user
	other memory.UserID
}

func newFixture(t *testing.T, open Open) *fixture {
	t.Helper()
	f := &fixture{t: t, dir: t.TempDir(), open: open}
	f.store = open(t, f.dir)
	t.Cleanup(func() { f.store.Close() })
	agent := must(f.store.PutAgent(t.Context(), "assistant", "", at))(t)
	f.agent = agent.ID
	f.user = must(f.store.DefaultUser(t.Context()))(t).ID
	f.other = memory.NewID[memory.UserID]()
	check(t, f.store.PutUser(t.Context(), memory.User{ID: f.other, Name: "other", CreatedAt: at}))
	return f
}

func (f *fixture) reopen() {
	f.t.Helper()
	check(f.t, f.store.Close())
	f.store = f.open(f.t, f.dir)
}

func (f *fixture) session(user memory.UserID) memory.SessionID {
	f.t.Helper()
	return must(f.store.CreateSession(f.t.Context(), memory.Session{Agent: f.agent, User: user, CreatedAt: at}))(f.t).ID
}

func (f *fixture) append(session memory.SessionID, drafts ...memory.Draft) []memory.Message {
	f.t.Helper()
	return must(f.store.Append(f.t.Context(), f.user, session, drafts...))(f.t)
}

// tester is what *testing.T and *rapid.T have in common.
type tester interface {
	Helper()
	Errorf(format string, args ...any)
	Fatal(args ...any)
}

func must[T any](v T, err error) func(tester) T {
	return func(t tester) T {
		t.Helper()
		check(t, err)
		return v
	}
}

func check(t tester, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wants(t tester, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got error %v, want %v", err, want)
	}
}

func equal[T any](t tester, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// says is what the role itself says, so that its source is the role's; a system's
// is unknown.
func says(role memory.Role, text string, after time.Duration) memory.Draft {
	source := memory.Source(role)
	if role == memory.RoleSystem {
		source = memory.SourceUnknown
	}
	return memory.Draft{Role: role, Source: source, Blocks: []memory.Block{memory.Text(text)}, At: at.Add(after)}
}

func content(t tester, text string) boundary.Content {
	t.Helper()
	source := must(boundary.HandSource("calendar"))(t)
	c, _ := boundary.Wrap(source, text, boundary.Unlimited)
	if c.IsEmpty() {
		t.Fatal("wrapping gives nothing of " + text)
	}
	return c
}

// large is a message that is kept as a file.
func large(word string) memory.Draft {
	return says("user", strings.Repeat(word+" ", 4*memory.MaxBlockTokens/len(word)+1000), 0)
}

func leafOf(messages []memory.Message, text string) memory.NewSummary {
	leaf := memory.NewSummary{ID: memory.NewID[memory.SummaryID](), SummaryText: memory.SummaryText{Text: text, Level: memory.LevelNormal, Model: "test"}, At: at}
	for _, m := range messages {
		leaf.Messages = append(leaf.Messages, m.ID)
	}
	return leaf
}

// S1
func testUsers(t *testing.T, f *fixture) {
	ctx := t.Context()
	first := must(f.store.DefaultUser(ctx))(t)
	if !first.IsDefault || first.ID.IsZero() || first.Name != memory.DefaultUserName {
		t.Errorf("default user %+v", first)
	}
	f.reopen()
	equal(t, must(f.store.DefaultUser(ctx))(t), first)
	for _, name := range []string{"zoe", "anna", "a.b-c_d", "9"} {
		check(t, f.store.PutUser(ctx, memory.User{ID: memory.NewID[memory.UserID](), Name: name, CreatedAt: at}))
	}
	var names []string
	for _, u := range must(f.store.Users(ctx))(t) {
		names = append(names, u.Name)
		if u.IsDefault != (u.ID == first.ID) {
			t.Errorf("flag of %+v", u)
		}
	}
	// By bytes, after the default one.
	equal(t, names, []string{"default", "9", "a.b-c_d", "anna", "other", "zoe"})

	check(t, f.store.PutUser(ctx, memory.User{ID: first.ID, Name: "renamed"}))
	renamed := must(f.store.DefaultUser(ctx))(t)
	if renamed.Name != "renamed" || renamed.ID != first.ID || !renamed.IsDefault || !renamed.CreatedAt.Equal(first.CreatedAt) {
		t.Errorf("renamed to %+v", renamed)
	}
	wants(t, f.store.PutUser(ctx, memory.User{ID: f.other, Name: "renamed"}), memory.ErrConflict)
	wants(t, f.store.PutUser(ctx, memory.User{Name: "nobody"}), memory.ErrInvalid)
	wants(t, f.store.PutUser(ctx, memory.User{ID: memory.NewID[memory.UserID](), Name: "second", IsDefault: true}), memory.ErrInvalid)
	for _, name := range []string{"", "UPPER", "-a", ".a", "a/b", "a b", "ä", strings.Repeat("a", 64)} {
		wants(t, f.store.PutUser(ctx, memory.User{ID: memory.NewID[memory.UserID](), Name: name}), memory.ErrInvalid)
	}
}

func testAgents(t *testing.T, f *fixture) {
	ctx := t.Context()
	again := must(f.store.PutAgent(ctx, "assistant", "new manifest", at.Add(time.Hour)))(t)
	if again.ID != f.agent || again.Manifest != "new manifest" || !again.CreatedAt.Equal(kept) {
		t.Errorf("got %+v", again)
	}
	must(f.store.PutAgent(ctx, "abacus", "", at))(t)
	agents := must(f.store.Agents(ctx))(t)
	if len(agents) != 2 || agents[0].Name != "abacus" || !reflect.DeepEqual(agents[1], again) {
		t.Errorf("agents %+v", agents)
	}
	_, err := f.store.PutAgent(ctx, "No Name", "", at)
	wants(t, err, memory.ErrInvalid)
}

func testSessions(t *testing.T, f *fixture) {
	ctx := t.Context()
	first := must(f.store.CreateSession(ctx, memory.Session{Agent: f.agent, User: f.user, Title: "tîtle", CreatedAt: at}))(t)
	equal(t, first, memory.Session{ID: first.ID, Agent: f.agent, User: f.user, Title: "tîtle", CreatedAt: kept, LastActive: kept})
	equal(t, must(f.store.Session(ctx, f.user, first.ID))(t), first)
	child := must(f.store.CreateSession(ctx, memory.Session{Agent: f.agent, User: f.user, Parent: first.ID, CreatedAt: at}))(t)
	equal(t, child.Parent, first.ID)

	// The last active first, ties by id, newest first.
	f.append(first.ID, says("user", "hello", time.Hour))
	third := f.session(f.user)
	var order []memory.SessionID
	for _, s := range must(f.store.Sessions(ctx, f.user, memory.SessionQuery{}))(t) {
		order = append(order, s.ID)
	}
	equal(t, order, []memory.SessionID{first.ID, third, child.ID})
	if got := must(f.store.Sessions(ctx, f.user, memory.SessionQuery{Limit: 1}))(t); len(got) != 1 || got[0].ID != first.ID {
		t.Errorf("limited to %+v", got)
	}
	if got := must(f.store.Sessions(ctx, f.user, memory.SessionQuery{Agent: memory.NewID[memory.AgentID]()}))(t); len(got) != 0 {
		t.Errorf("of an unknown agent: %+v", got)
	}

	for name, s := range map[string]memory.Session{
		"user":           {Agent: f.agent, User: memory.NewID[memory.UserID](), CreatedAt: at},
		"agent":          {Agent: memory.NewID[memory.AgentID](), User: f.user, CreatedAt: at},
		"parent":         {Agent: f.agent, User: f.user, Parent: memory.NewID[memory.SessionID](), CreatedAt: at},
		"other's parent": {Agent: f.agent, User: f.other, Parent: first.ID, CreatedAt: at},
	} {
		if _, err := f.store.CreateSession(ctx, s); !errors.Is(err, memory.ErrNotFound) {
			t.Errorf("unknown %s: %v", name, err)
		}
	}
	_, err := f.store.CreateSession(ctx, memory.Session{ID: first.ID, Agent: f.agent, User: f.user, CreatedAt: at})
	wants(t, err, memory.ErrConflict)
	_, err = f.store.CreateSession(ctx, memory.Session{Agent: f.agent, User: f.user})
	wants(t, err, memory.ErrInvalid)
}

func testAppendAndRead(t *testing.T, f *fixture) {
	ctx := t.Context()
	session := f.session(f.user)
	if got := must(f.store.Messages(ctx, f.user, session, memory.MessageQuery{}))(t); len(got) != 0 {
		t.Errorf("a new session has %+v", got)
	}
	stored := f.append(session, says("user", "one", 0), says("assistant", "two", time.Second), says("tool", "three", 2*time.Second), says("system", "four", 2*time.Second))
	for i, m := range stored {
		if m.Seq != int64(i+1) || m.Session != session || m.ID.IsZero() || m.Trust != memory.TrustDirect || m.Tokens == 0 || m.At.Location() != time.UTC {
			t.Errorf("message %d is %+v", i, m)
		}
	}
	if !stored[0].At.Equal(kept) {
		t.Errorf("stored at %v, want %v", stored[0].At, kept)
	}
	equal(t, must(f.store.Messages(ctx, f.user, session, memory.MessageQuery{}))(t), stored)
	equal(t, must(f.store.Messages(ctx, f.user, session, memory.MessageQuery{After: 1, Limit: 2}))(t), stored[1:3])
	if got := f.append(session); len(got) != 0 {
		t.Errorf("no drafts: %+v", got)
	}
	frontier := must(f.store.Frontier(ctx, f.user, session))(t)
	if len(frontier.Items) != 4 || frontier.Tokens() != stored[0].Tokens+stored[1].Tokens+stored[2].Tokens+stored[3].Tokens {
		t.Errorf("frontier %+v", frontier)
	}
	for i, item := range frontier.Items {
		equal(t, *item.Message, stored[i])
	}
}

func testAppendIsAllOrNothing(t *testing.T, f *fixture) {
	session := f.session(f.user)
	for name, bad := range map[string]memory.Draft{
		"role":       {Role: "wizard", Blocks: []memory.Block{memory.Text("x")}, At: at},
		"blocks":     {Role: memory.RoleUser, At: at},
		"time":       {Role: memory.RoleUser, Blocks: []memory.Block{memory.Text("x")}},
		"injection":  {Role: memory.RoleUser, Source: memory.SourceContextInjection, Blocks: []memory.Block{memory.Text("x")}, At: at},
		"external":   {Role: memory.RoleUser, Blocks: []memory.Block{memory.Text("x")}, Trust: memory.TrustExternal, At: at},
		"block type": {Role: memory.RoleUser, Blocks: []memory.Block{{Type: "image"}}, At: at},
		"tool input": {Role: memory.RoleAssistant, Blocks: []memory.Block{memory.ToolCall("1", "t", []byte("{broken"))}, At: at},
	} {
		if _, err := f.store.Append(t.Context(), f.user, session, says("user", "good", 0), bad); !errors.Is(err, memory.ErrInvalid) {
			t.Errorf("bad %s: %v", name, err)
		}
	}
	if got := must(f.store.Messages(t.Context(), f.user, session, memory.MessageQuery{}))(t); len(got) != 0 {
		t.Errorf("stored %+v", got)
	}
}

func testEventKeys(t *testing.T, f *fixture) {
	session := f.session(f.user)
	keyed := says("user", "hello", 0)
	keyed.EventKey = "event-1"
	first := f.append(session, keyed, says("user", "hello", 0), keyed)
	if first[0].ID != first[2].ID || first[0].ID == first[1].ID {
		t.Errorf("ids %v %v %v", first[0].ID, first[1].ID, first[2].ID)
	}
	again := f.append(session, keyed, says("user", "hello", 0))
	equal(t, again[0], first[0])
	messages := must(f.store.Messages(t.Context(), f.user, session, memory.MessageQuery{}))(t)
	if len(messages) != 3 || messages[2].Seq != 3 {
		t.Errorf("%d messages: equal ones said twice are two, one event is one", len(messages))
	}
	found := must(f.store.Messages(t.Context(), f.user, session, memory.MessageQuery{EventKey: "event-1"}))(t)
	if len(found) != 1 {
		t.Fatalf("%d messages with the key", len(found))
	}
	equal(t, found[0], first[0])
	for _, q := range []memory.MessageQuery{{EventKey: "event-2"}, {EventKey: "event-1", After: 1}} {
		if got := must(f.store.Messages(t.Context(), f.user, session, q))(t); len(got) != 0 {
			t.Errorf("%+v finds %+v", q, got)
		}
	}
	elsewhere := f.session(f.user)
	if got := must(f.store.Messages(t.Context(), f.user, elsewhere, memory.MessageQuery{EventKey: "event-1"}))(t); len(got) != 0 {
		t.Errorf("a key of one session is found in another: %+v", got)
	}
	if got := f.append(elsewhere, keyed); got[0].ID == first[0].ID {
		t.Error("a key of one session is known in another")
	}
}

func testActivity(t *testing.T, f *fixture) {
	ctx := t.Context()
	if got := must(f.store.LastActivity(ctx, f.user, f.agent))(t); !got.IsZero() {
		t.Errorf("before anything: %v", got)
	}
	session := f.session(f.user)
	if got := must(f.store.LastActivity(ctx, f.user, f.agent))(t); !got.IsZero() {
		t.Errorf("an empty session: %v", got)
	}
	tick := says("user", "tick", time.Hour)
	tick.Source = memory.SourceAutonomousTick
	f.append(session, tick)
	check(t, injectErr(f, session, at.Add(2*time.Hour)))
	if got := must(f.store.LastActivity(ctx, f.user, f.agent))(t); !got.IsZero() {
		t.Errorf("ticks and injections: %v", got)
	}
	s := must(f.store.Session(ctx, f.user, session))(t)
	if s.HasRealUserActivity() || s.Exchanges != 0 || s.Messages != 2 || !s.LastActive.Equal(kept) {
		t.Errorf("after ticks: %+v", s)
	}
	unknown := says("user", "old", 3*time.Hour)
	unknown.Source = memory.SourceUnknown
	f.append(session, unknown, says("assistant", "a", 4*time.Hour), says("assistant", "b", 4*time.Hour), says("user", "c", 5*time.Hour), says("user", "d", 5*time.Hour), says("assistant", "e", 6*time.Hour))
	if s = must(f.store.Session(ctx, f.user, session))(t); s.Exchanges != 2 {
		t.Errorf("%d exchanges", s.Exchanges)
	}
	// Whoever calls a tool has not answered yet.
	searching := says("assistant", "Let me see.", 6*time.Hour)
	searching.Blocks = append(searching.Blocks, memory.ToolCall("c1", "search", []byte("{}")))
	f.append(session, says("user", "f", 6*time.Hour), searching)
	if s = must(f.store.Session(ctx, f.user, session))(t); s.Exchanges != 2 {
		t.Errorf("%d exchanges after a tool call", s.Exchanges)
	}
	f.append(session, says("tool", "found", 6*time.Hour), says("assistant", "g", 6*time.Hour))
	// A late message does not turn the clock back.
	f.append(session, says("user", "late", time.Minute))
	s = must(f.store.Session(ctx, f.user, session))(t)
	if s.UserMessages != 5 || s.Exchanges != 3 || s.Messages != 13 || !s.HasRealUserActivity() {
		t.Errorf("counts %+v", s)
	}
	want := kept.Add(6 * time.Hour)
	if got := must(f.store.LastActivity(ctx, f.user, f.agent))(t); !got.Equal(want) || !s.LastActive.Equal(want) {
		t.Errorf("last activity %v, session %v, want %v", got, s.LastActive, want)
	}
	if got := must(f.store.LastActivity(ctx, f.other, f.agent))(t); !got.IsZero() {
		t.Errorf("of another user: %v", got)
	}
}

func injectErr(f *fixture, session memory.SessionID, when time.Time) error {
	_, err := f.store.Inject(f.t.Context(), f.user, session, memory.Injection{At: when, Blocks: []boundary.Content{content(f.t, "event")}})
	return err
}

func testBlocksRoundTrip(t *testing.T, f *fixture) {
	session := f.session(f.user)
	d := says("assistant", "", 0)
	d.Blocks = []memory.Block{
		memory.Text("words"), memory.ToolCall("c1", "search", []byte(`{"q":"<x>"}`)),
		memory.ToolResult("c1", "search", content(t, "found"), true), memory.External(content(t, "outside")),
	}
	for _, text := range []string{
		`{"type":"hologram","payload":{"b":1,  "a":[1,2]},"x":"<&>\u0041"}`,
		`{ "signature":"abc==", "type":"thinking", "text":"hm" }`,
		`{"type":"image","data":"` + strings.Repeat("QUJD", 1<<16) + `"}`,
	} {
		var b memory.Block
		check(t, json.Unmarshal([]byte(text), &b))
		d.Blocks = append(d.Blocks, b)
	}
	stored := f.append(session, d)[0]
	f.reopen()
	read := must(f.store.Messages(t.Context(), f.user, session, memory.MessageQuery{}))(t)[0]
	if read.Trust != memory.TrustExternal {
		t.Errorf("trust %s", read.Trust)
	}
	equal(t, read, stored)
	equal(t, encoded(t, read.Blocks), encoded(t, d.Blocks))
	equal(t, memory.Shown(read.Blocks), memory.Shown(d.Blocks))
}

func testTexts(t *testing.T, f *fixture) {
	ctx := t.Context()
	session := f.session(f.user)
	for i, test := range []struct{ text, want string }{
		{"", ""},
		{"plain", "plain"},
		{"日本語 😀 \u202e", "日本語 😀 \u202e"},
		{"NUL \x00 inside", "NUL \x00 inside"},
		{"\x00", "\x00"},
		{"<script>&'\"\\", "<script>&'\"\\"},
		{"lone \xff byte", "lone \ufffd byte"},
		{"line\r\nbreaks\u2028 ", "line\r\nbreaks\u2028 "},
		{"\ufeffa\u0301 is not \u00e1", "\ufeffa\u0301 is not \u00e1"},
		{strings.Repeat("ä", 1<<16), strings.Repeat("ä", 1<<16)},
	} {
		same := func(what, got string) {
			t.Helper()
			if got != test.want {
				t.Errorf("%s %.20q came back as %.20q", what, test.text, got)
			}
		}
		stored := f.append(session, says("user", test.text, 0))[0]
		same("message", stored.Blocks[0].Text)
		same("message", must(f.store.Messages(ctx, f.user, session, memory.MessageQuery{After: stored.Seq - 1}))(t)[0].Blocks[0].Text)

		titled := must(f.store.CreateSession(ctx, memory.Session{Agent: f.agent, User: f.user, Title: test.text, CreatedAt: at}))(t)
		same("title", titled.Title)
		same("title", must(f.store.Session(ctx, f.user, titled.ID))(t).Title)

		agent := must(f.store.PutAgent(ctx, fmt.Sprintf("agent%d", i), test.text, at))(t)
		same("manifest", agent.Manifest)
		agents := must(f.store.Agents(ctx))(t)
		same("manifest", agents[slices.IndexFunc(agents, func(a memory.Agent) bool { return a.ID == agent.ID })].Manifest)

		r := must(f.store.Frontier(ctx, f.user, session))(t).Revision
		summary := must(f.store.CommitSummary(ctx, f.user, r, leafOf([]memory.Message{stored}, test.text)))(t)
		same("summary", summary.Text)
		summaries := must(f.store.Summaries(ctx, f.user, session))(t)
		equal(t, summaries[len(summaries)-1], summary)

		run := memory.CompactionRun{Session: session, Agent: f.agent, Reason: test.text, StartedAt: at}
		check(t, f.store.RecordCompaction(ctx, f.user, run))
		runs := must(f.store.Compactions(ctx, f.user, session, 0))(t)
		same("reason", runs[len(runs)-1].Reason)
	}
}

func testTimes(t *testing.T, f *fixture) {
	session := f.session(f.user)
	zone := time.FixedZone("", -5*3600)
	for _, when := range []time.Time{
		time.Date(2026, 3, 23, 9, 0, 0, 999_999_999, zone), time.Date(1969, 12, 31, 23, 59, 59, 123_456_789, time.UTC),
		time.Unix(0, 0), time.Date(1, 1, 1, 0, 0, 1, 1, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC),
	} {
		d := says("user", "x", 0)
		d.At = when
		m := f.append(session, d)[0]
		equal(t, m.At, when.UTC().Truncate(time.Microsecond))
		equal(t, must(f.store.Messages(t.Context(), f.user, session, memory.MessageQuery{After: m.Seq - 1}))(t)[0].At, m.At)
	}
}

func testInjections(t *testing.T, f *fixture) {
	session := f.session(f.user)
	one, two := content(t, "first"), content(t, "second")
	m := must(f.store.Inject(t.Context(), f.user, session, memory.Injection{At: at, Blocks: []boundary.Content{one, {}, two}}))(t)
	if m.Role != memory.RoleUser || m.Source != memory.SourceContextInjection || m.Trust != memory.TrustExternal || !m.IsRefresh() {
		t.Errorf("injected %+v", m)
	}
	want := "[Context refresh — 2026-03-23T08:00:00Z]\n" + one.Render() + "\n" + two.Render()
	read := must(f.store.Messages(t.Context(), f.user, session, memory.MessageQuery{}))(t)[0]
	equal(t, memory.Shown(read.Blocks), want)
	equal(t, read, m)
	for _, blocks := range [][]boundary.Content{nil, {{}}, {{}, {}}} {
		_, err := f.store.Inject(t.Context(), f.user, session, memory.Injection{At: at, Blocks: blocks})
		wants(t, err, memory.ErrInvalid)
	}
}

func testCommitSummary(t *testing.T, f *fixture) {
	ctx := t.Context()
	session := f.session(f.user)
	messages := f.append(session, says("user", "a", 0), says("assistant", "b", time.Second), says("user", "c", 2*time.Second), says("assistant", "d", 3*time.Second))
	read := must(f.store.Frontier(ctx, f.user, session))(t)
	// A message that comes while a summary is made is no conflict.
	last := f.append(session, says("user", "e", 4*time.Second))[0]
	leaf := leafOf(messages[1:3], "b and c")
	leaf.External = content(t, "outside")
	s := must(f.store.CommitSummary(ctx, f.user, read.Revision, leaf))(t)
	if s.ID != leaf.ID || s.Session != session || s.Depth != 0 || s.Text != "b and c" || s.Descendants != 2 || s.Level != memory.LevelNormal ||
		!s.Earliest.Equal(messages[1].At) || !s.Latest.Equal(messages[2].At) || s.Tokens == 0 || !s.CreatedAt.Equal(kept) {
		t.Errorf("summary %+v", s)
	}
	frontier := must(f.store.Frontier(ctx, f.user, session))(t)
	if len(frontier.Items) != 4 || frontier.Items[0].Message.ID != messages[0].ID || frontier.Items[1].Summary == nil ||
		frontier.Items[2].Message.ID != messages[3].ID || frontier.Items[3].Message.ID != last.ID {
		t.Fatalf("frontier %+v", frontier.Items)
	}
	equal(t, *frontier.Items[1].Summary, s)
	equal(t, must(f.store.Summaries(ctx, f.user, session))(t), []memory.Summary{s})
	equal(t, must(f.store.Expand(ctx, f.user, s.ID, memory.MessageQuery{}))(t), messages[1:3])
	if frontier.Revision == read.Revision {
		t.Error("the revision did not change")
	}
	_, err := f.store.CommitSummary(ctx, f.user, read.Revision, leafOf(messages[3:], "d"))
	wants(t, err, memory.ErrConflict)
}

func testCommitSummaryRefuses(t *testing.T, f *fixture) {
	ctx := t.Context()
	session, elsewhere := f.session(f.user), f.session(f.user)
	messages := f.append(session, says("user", "a", 0), says("assistant", "b", 0), says("user", "c", 0))
	foreign := f.append(elsewhere, says("user", "x", 0))
	read := must(f.store.Frontier(ctx, f.user, session))(t)
	for name, run := range map[string][]memory.Message{
		"none":              {},
		"a gap":             {messages[0], messages[2]},
		"the wrong order":   {messages[1], messages[0]},
		"one twice":         {messages[0], messages[0]},
		"another session's": {foreign[0]},
		"unknown":           {{ID: memory.NewID[memory.MessageID]()}},
	} {
		if _, err := f.store.CommitSummary(ctx, f.user, read.Revision, leafOf(run, "s")); !errors.Is(err, memory.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	noID := leafOf(messages[:1], "s")
	noID.ID = memory.SummaryID{}
	_, err := f.store.CommitSummary(ctx, f.user, read.Revision, noID)
	wants(t, err, memory.ErrInvalid)
	equal(t, must(f.store.Frontier(ctx, f.user, session))(t), read)
	if got := must(f.store.Summaries(ctx, f.user, session))(t); len(got) != 0 {
		t.Errorf("refused leaves left %+v", got)
	}
}

func testCompactions(t *testing.T, f *fixture) {
	session := f.session(f.user)
	run := memory.CompactionRun{
		Session: session, Agent: f.agent, Trigger: memory.TriggerGap, Outcome: memory.OutcomeFailed, Reason: "the model is down", ItemsBefore: 9, ItemsAfter: 8,
		TokensBefore: 7, TokensAfter: 6, Summaries: 5, RefreshBlocks: 4, RefreshTokens: 3, RefreshSkipped: 2, StartedAt: kept, Took: time.Second,
	}
	second := run
	second.Trigger, second.Outcome, second.Reason = memory.TriggerCadence, memory.OutcomeDone, ""
	check(t, f.store.RecordCompaction(t.Context(), f.user, run))
	check(t, f.store.RecordCompaction(t.Context(), f.user, second))
	f.reopen()
	equal(t, must(f.store.Compactions(t.Context(), f.user, session, 0))(t), []memory.CompactionRun{run, second})
	equal(t, must(f.store.Compactions(t.Context(), f.user, session, 1))(t), []memory.CompactionRun{second})
	equal(t, must(f.store.Compactions(t.Context(), f.user, session, 3))(t), []memory.CompactionRun{run, second})
	_, err := f.store.Compactions(t.Context(), f.user, session, -1)
	wants(t, err, memory.ErrInvalid)
}

// holding is a session with something of everything.
type holding struct {
	session  memory.SessionID
	messages []memory.Message
	summary  memory.Summary
	fallback memory.Summary
	revision memory.Revision
	file     memory.FileID
	learned  memory.Extraction
	topic    memory.Topic
}

func (f *fixture) holding() holding {
	f.t.Helper()
	h := holding{session: f.session(f.user)}
	h.messages = f.append(h.session, says("user", "secret", 0), says("assistant", "secret", 0), says("user", "secret", 0), large("secret"))
	first := must(f.store.Frontier(f.t.Context(), f.user, h.session))(f.t)
	h.summary = must(f.store.CommitSummary(f.t.Context(), f.user, first.Revision, leafOf(h.messages[:1], "secret")))(f.t)
	second := must(f.store.Frontier(f.t.Context(), f.user, h.session))(f.t)
	cut := leafOf(h.messages[2:3], "secret")
	cut.Level = memory.LevelFallback
	h.fallback = must(f.store.CommitSummary(f.t.Context(), f.user, second.Revision, cut))(f.t)
	h.file = h.messages[3].Blocks[0].File
	h.revision = must(f.store.Frontier(f.t.Context(), f.user, h.session))(f.t).Revision
	h.learned = f.learn(h.session, 1, 1, fact("secret", h.messages[0]))
	h.topic = f.dream(memory.Dream{Topics: []memory.NewTopic{{Name: "secret", Content: "secret", Sources: []memory.MessageID{h.messages[0].ID}}}})[0]
	return h
}

// within is every method that reaches into a session, by name.
func (f *fixture) within(user memory.UserID, h holding) map[string]func(context.Context) error {
	refresh := memory.Injection{At: at, Blocks: []boundary.Content{content(f.t, "x")}}
	run := memory.CompactionRun{Session: h.session, Agent: f.agent, Trigger: memory.TriggerGap, Outcome: memory.OutcomeDone, StartedAt: at}
	// Each commit changes what the next one has to have read.
	revision := func(ctx context.Context) memory.Revision {
		if frontier, err := f.store.Frontier(ctx, f.user, h.session); err == nil {
			return frontier.Revision
		}
		return h.revision
	}
	return map[string]func(context.Context) error{
		"Session": func(ctx context.Context) error { _, err := f.store.Session(ctx, user, h.session); return err },
		"CreateSession": func(ctx context.Context) error {
			_, err := f.store.CreateSession(ctx, memory.Session{Agent: f.agent, User: user, Parent: h.session, CreatedAt: at})
			return err
		},
		"NameSession": func(ctx context.Context) error { return f.store.NameSession(ctx, user, h.session, "x") },
		"Fork":        func(ctx context.Context) error { _, err := f.store.Fork(ctx, user, h.session, 1, at); return err },
		"Append": func(ctx context.Context) error {
			_, err := f.store.Append(ctx, user, h.session, says("user", "x", 0))
			return err
		},
		"Inject": func(ctx context.Context) error { _, err := f.store.Inject(ctx, user, h.session, refresh); return err },
		"Messages": func(ctx context.Context) error {
			_, err := f.store.Messages(ctx, user, h.session, memory.MessageQuery{})
			return err
		},
		"Frontier": func(ctx context.Context) error { _, err := f.store.Frontier(ctx, user, h.session); return err },
		"FrontierTail": func(ctx context.Context) error {
			_, _, err := f.store.FrontierTail(ctx, user, h.session, 1)
			return err
		},
		"CommitSummary": func(ctx context.Context) error {
			_, err := f.store.CommitSummary(ctx, user, revision(ctx), leafOf(h.messages[1:2], "x"))
			return err
		},
		"Summaries": func(ctx context.Context) error { _, err := f.store.Summaries(ctx, user, h.session); return err },
		"Summary":   func(ctx context.Context) error { _, _, err := f.store.Summary(ctx, user, h.summary.ID); return err },
		"Sources":   func(ctx context.Context) error { _, err := f.store.Sources(ctx, user, h.summary.ID); return err },
		"Expand": func(ctx context.Context) error {
			_, err := f.store.Expand(ctx, user, h.summary.ID, memory.MessageQuery{})
			return err
		},
		"RepairSummary": func(ctx context.Context) error {
			_, err := f.store.RepairSummary(ctx, user, revision(ctx), h.fallback.ID, memory.SummaryText{Text: "x", Level: memory.LevelNormal})
			return err
		},
		"Message": func(ctx context.Context) error { _, err := f.store.Message(ctx, user, h.messages[0].ID); return err },
		"Ingest": func(ctx context.Context) error {
			_, err := f.store.Ingest(ctx, user, h.session, says("user", "x", 0))
			return err
		},
		"Files":            func(ctx context.Context) error { _, err := f.store.Files(ctx, user, h.session); return err },
		"File":             func(ctx context.Context) error { _, _, err := f.store.File(ctx, user, h.file); return err },
		"RecordCompaction": func(ctx context.Context) error { return f.store.RecordCompaction(ctx, user, run) },
		"Compactions":      func(ctx context.Context) error { _, err := f.store.Compactions(ctx, user, h.session, 0); return err },
		"PutPendingRun": func(ctx context.Context) error {
			return f.store.PutPendingRun(ctx, memory.PendingRun{User: user, Agent: f.agent, Session: h.session, Trigger: memory.TriggerGap, At: at})
		},
		"Unseen": func(ctx context.Context) error { _, err := f.store.Unseen(ctx, user, h.session); return err },
		"UnseenMessages": func(ctx context.Context) error {
			_, err := f.store.UnseenMessages(ctx, user, h.session, memory.MessageQuery{})
			return err
		},
		"CommitExtraction": func(ctx context.Context) error {
			_, err := f.store.CommitExtraction(ctx, user, memory.NewExtraction{Session: h.session, Seen: []memory.SeqRange{{First: 2, Last: 2}}, Learnings: fact("x", h.messages[0]), At: at})
			return err
		},
		"CommitDream": func(ctx context.Context) error { return f.dreamOf(ctx, user, memory.Dream{Session: h.session}) },
		"CommitDream of an extraction": func(ctx context.Context) error {
			return f.dreamOf(ctx, user, memory.Dream{Extractions: []memory.ExtractionID{h.learned.ID}})
		},
		"CommitDream that supersedes": func(ctx context.Context) error {
			return f.dreamOf(ctx, user, memory.Dream{Topics: []memory.NewTopic{{Name: "secret", Content: "secret", Supersedes: []memory.TopicID{h.topic.ID}}}})
		},
		"DeleteTopic": func(ctx context.Context) error {
			_, err := f.store.DeleteTopic(ctx, user, memory.AgentID{}, "secret")
			return err
		},
	}
}

// dreamOf commits d for the user, by what is remembered of them now.
func (f *fixture) dreamOf(ctx context.Context, user memory.UserID, d memory.Dream) error {
	_, r, err := f.store.Topics(ctx, user, memory.TopicQuery{})
	if err != nil {
		return err
	}
	d.Agent, d.At = f.agent, at
	_, err = f.store.CommitDream(ctx, user, r, d)
	return err
}

// beside is every other method but Close.
func (f *fixture) beside() map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"DefaultUser": func(ctx context.Context) error { _, err := f.store.DefaultUser(ctx); return err },
		"Users":       func(ctx context.Context) error { _, err := f.store.Users(ctx); return err },
		"PutUser": func(ctx context.Context) error {
			return f.store.PutUser(ctx, memory.User{ID: memory.NewID[memory.UserID](), Name: "late", CreatedAt: at})
		},
		"PutAgent": func(ctx context.Context) error { _, err := f.store.PutAgent(ctx, "late", "", at); return err },
		"Agents":   func(ctx context.Context) error { _, err := f.store.Agents(ctx); return err },
		"Sessions": func(ctx context.Context) error {
			_, err := f.store.Sessions(ctx, f.user, memory.SessionQuery{})
			return err
		},
		"Places": func(ctx context.Context) error {
			_, err := f.store.Places(ctx, f.user, f.agent, placed("x", memory.Draft{}).Transcript, 1)
			return err
		},
		"LastActivity": func(ctx context.Context) error { _, err := f.store.LastActivity(ctx, f.user, f.agent); return err },
		"SearchWords": func(ctx context.Context) error {
			_, err := f.store.SearchWords(ctx, f.user, memory.WordQuery{Words: []memory.WeightedWord{{Text: "secret", Weight: 1}}})
			return err
		},
		"SearchSummaries": func(ctx context.Context) error {
			_, err := f.store.SearchSummaries(ctx, f.user, memory.WordQuery{Words: []memory.WeightedWord{{Text: "secret", Weight: 1}}})
			return err
		},
		"Texts": func(ctx context.Context) error {
			return f.store.Texts(ctx, f.user, memory.TextQuery{}, func(memory.StoredText) bool { return true })
		},
		"Export": func(ctx context.Context) error {
			return f.store.Export(ctx, f.user, func(memory.Record) error { return nil })
		},
		"Import": func(ctx context.Context) error {
			_, err := f.store.Import(ctx, f.user, func(yield func(memory.Record, error) bool) {
				yield(memory.Record{Kind: memory.RecordSession, Session: &memory.SessionRecord{ID: memory.NewID[memory.SessionID](), Agent: "late", CreatedAt: at}}, nil)
			})
			return err
		},
		"PendingRuns": func(ctx context.Context) error { _, err := f.store.PendingRuns(ctx); return err },
		"EndPendingRun": func(ctx context.Context) error {
			return f.store.EndPendingRun(ctx, f.other, memory.NewID[memory.SessionID](), memory.TriggerGap, at)
		},
		"NextPendingRun": func(ctx context.Context) error {
			_, err := f.store.NextPendingRun(ctx, memory.UserID{})
			return err
		},
		"NextIdleSession": func(ctx context.Context) error {
			_, err := f.store.NextIdleSession(ctx, memory.DueQuery{Agents: []memory.AgentID{f.agent}, IdleSince: at})
			return err
		},
		"Extractions": func(ctx context.Context) error {
			_, err := f.store.Extractions(ctx, f.user, memory.ExtractionQuery{})
			return err
		},
		"IdleSessions": func(ctx context.Context) error {
			_, err := f.store.IdleSessions(ctx, []memory.AgentID{f.agent}, at, 1)
			return err
		},
		"Topics": func(ctx context.Context) error {
			_, _, err := f.store.Topics(ctx, f.user, memory.TopicQuery{})
			return err
		},
		"PutTopic": func(ctx context.Context) error {
			_, err := f.store.PutTopic(ctx, f.other, f.agent, memory.TopicRevision{}, memory.NewTopic{Name: "late", Content: "x"}, at)
			return err
		},
		"ExportMemory": func(ctx context.Context) error {
			return f.store.ExportMemory(ctx, f.user, func(memory.Record) error { return nil })
		},
		"WipeAgentMemory": func(ctx context.Context) error {
			_, err := f.store.WipeAgentMemory(ctx, f.other, f.agent)
			return err
		},
		"DeleteSession": func(ctx context.Context) error {
			return f.store.DeleteSession(ctx, f.other, memory.NewID[memory.SessionID]())
		},
		"Wipes":      func(ctx context.Context) error { _, err := f.store.Wipes(ctx); return err },
		"BeginWipe":  func(ctx context.Context) error { return f.store.BeginWipe(ctx, f.other, at) },
		"EndWipe":    func(ctx context.Context) error { return f.store.EndWipe(ctx, f.other) },
		"WipeMemory": func(ctx context.Context) error { _, err := f.store.WipeMemory(ctx, f.other); return err },
		"WipeUser":   func(ctx context.Context) error { _, err := f.store.WipeUser(ctx, f.other); return err },
		"Scrub":      func(ctx context.Context) error { _, err := f.store.Scrub(ctx); return err },
	}
}

func testEveryMethodIsListed(t *testing.T, f *fixture) {
	listed := f.within(f.user, holding{})
	maps.Copy(listed, f.beside())
	listed["Close"] = nil
	methods := reflect.TypeFor[memory.Store]()
	for i := range methods.NumMethod() {
		if _, ok := listed[methods.Method(i).Name]; !ok {
			t.Errorf("the suite knows nothing of %s: who may call it, and what a cancelled context does to it", methods.Method(i).Name)
		}
	}
}

// Invariant 10: what is another user's does not exist, by any method.
func testUsersAreApart(t *testing.T, f *fixture) {
	ctx := t.Context()
	h := f.holding()
	before := f.everything(h.session)
	for _, stranger := range []memory.UserID{f.other, memory.NewID[memory.UserID](), {}} {
		for name, call := range f.within(stranger, h) {
			if err := call(ctx); !errors.Is(err, memory.ErrNotFound) {
				t.Errorf("%s by %s: %v", name, stranger, err)
			}
		}
	}
	if got := must(f.store.Sessions(ctx, f.other, memory.SessionQuery{}))(t); len(got) != 0 {
		t.Errorf("another user lists %+v", got)
	}
	if got := must(f.store.LastActivity(ctx, f.other, f.agent))(t); !got.IsZero() {
		t.Errorf("another user was active at %v", got)
	}
	equal(t, f.everything(h.session), before)
	// In order: what is deleted cannot be superseded.
	own := f.within(f.user, h)
	for _, name := range slices.Sorted(maps.Keys(own)) {
		if err := own[name](ctx); err != nil {
			t.Errorf("%s by its own user: %v", name, err)
		}
	}
}

// everything is all that its user can read of a session, and of what is beside.
func (f *fixture) everything(session memory.SessionID) []any {
	f.t.Helper()
	ctx := f.t.Context()
	all := []any{
		must(f.store.Users(ctx))(f.t), must(f.store.Agents(ctx))(f.t), must(f.store.Sessions(ctx, f.user, memory.SessionQuery{}))(f.t),
		must(f.store.Messages(ctx, f.user, session, memory.MessageQuery{}))(f.t), must(f.store.Frontier(ctx, f.user, session))(f.t),
		must(f.store.Compactions(ctx, f.user, session, 0))(f.t), must(f.store.Extractions(ctx, f.user, memory.ExtractionQuery{}))(f.t),
		f.topics(memory.TopicQuery{}), must(f.store.Unseen(ctx, f.user, session))(f.t), must(f.store.PendingRuns(ctx))(f.t),
	}
	for _, v := range must(f.store.Summaries(ctx, f.user, session))(f.t) {
		all = append(all, v, must(f.store.Expand(ctx, f.user, v.ID, memory.MessageQuery{}))(f.t))
	}
	return all
}

func testWritersAndReaders(t *testing.T, f *fixture) {
	const workers, each = 8, 25
	var group sync.WaitGroup
	sessions := make([]memory.SessionID, workers)
	for i := range sessions {
		sessions[i] = f.session(f.user)
	}
	for i := range workers {
		group.Go(func() {
			for n := range each {
				if _, err := f.store.Append(t.Context(), f.user, sessions[i], says("user", fmt.Sprint(n), 0)); err != nil {
					t.Errorf("write: %v", err)
					return
				}
			}
		})
		group.Go(func() {
			seen := 0
			for range each {
				frontier, err := f.store.Frontier(t.Context(), f.user, sessions[i])
				if err != nil {
					t.Errorf("read: %v", err)
					return
				}
				if len(frontier.Items) < seen {
					t.Errorf("a later read sees %d items, an earlier saw %d", len(frontier.Items), seen)
				}
				seen = len(frontier.Items)
			}
		})
	}
	group.Wait()
	for _, session := range sessions {
		messages := must(f.store.Messages(t.Context(), f.user, session, memory.MessageQuery{}))(t)
		if len(messages) != each {
			t.Fatalf("%d of %d messages", len(messages), each)
		}
		for n, m := range messages {
			if m.Seq != int64(n+1) || m.Blocks[0].Text != fmt.Sprint(n) {
				t.Errorf("message %d is %+v", n, m)
			}
		}
	}
}

// Eight writers of one session, among them two that compact it: each message
// has a place of its own, and of two compactions that read the same frontier one
// is told so.
func testOneSessionManyWriters(t *testing.T, f *fixture) {
	const writers, each = 6, 20
	ctx := t.Context()
	session := f.session(f.user)
	var group sync.WaitGroup
	for i := range writers {
		group.Go(func() {
			for n := range each {
				d := says("user", fmt.Sprintf("%d.%d", i, n), 0)
				d.EventKey = fmt.Sprint(n) // the same of every writer
				if _, err := f.store.Append(ctx, f.user, session, d, says("assistant", "answer", 0)); err != nil {
					t.Errorf("append: %v", err)
					return
				}
			}
		})
	}
	for range 2 {
		group.Go(func() {
			for range each {
				frontier, err := f.store.Frontier(ctx, f.user, session)
				if err != nil {
					t.Errorf("frontier: %v", err)
					return
				}
				i := slices.IndexFunc(frontier.Items, func(item memory.Item) bool { return item.Message != nil })
				if i < 0 {
					continue
				}
				if _, err := f.store.CommitSummary(ctx, f.user, frontier.Revision, leafOf([]memory.Message{*frontier.Items[i].Message}, "s")); err != nil && !errors.Is(err, memory.ErrConflict) {
					t.Errorf("commit: %v", err)
				}
			}
		})
	}
	group.Wait()
	messages := must(f.store.Messages(ctx, f.user, session, memory.MessageQuery{}))(t)
	// Each key once, each answer every time.
	if want := each + writers*each; len(messages) != want {
		t.Errorf("%d messages, want %d", len(messages), want)
	}
	for i, m := range messages {
		if m.Seq != int64(i+1) {
			t.Fatalf("message %d has place %d", i, m.Seq)
		}
	}
	equalLists(t, f.covered(session), messages)
}

// covered is what the frontier stands for.
func (f *fixture) covered(session memory.SessionID) (messages []memory.Message) {
	f.t.Helper()
	for _, item := range must(f.store.Frontier(f.t.Context(), f.user, session))(f.t).Items {
		if item.Message != nil {
			messages = append(messages, *item.Message)
		} else {
			messages = append(messages, must(f.store.Expand(f.t.Context(), f.user, item.Summary.ID, memory.MessageQuery{}))(f.t)...)
		}
	}
	return messages
}

func testCancelledContext(t *testing.T, f *fixture) {
	h := f.holding()
	before := f.everything(h.session)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	calls := f.within(f.user, h)
	maps.Copy(calls, f.beside())
	for name, call := range calls {
		if err := call(cancelled); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	late, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	if _, err := f.store.Users(late); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after its deadline: %v", err)
	}
	equal(t, f.everything(h.session), before)
}

// A context may end while a message is being written: then the store may have it
// or not, but never half, and what it acknowledged it has.
func testCancelledMeanwhile(t *testing.T, f *fixture) {
	session := f.session(f.user)
	var acknowledged []memory.Message
	for n := range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			// Another number of turns of the scheduler each time.
			for range n % 40 {
				runtime.Gosched()
			}
			cancel()
			close(ended)
		}()
		stored, err := f.store.Append(ctx, f.user, session, says("user", "question", 0), says("assistant", "answer", 0))
		<-ended
		if err == nil {
			acknowledged = append(acknowledged, stored...)
		} else if !errors.Is(err, context.Canceled) {
			t.Fatalf("append %d: %v", n, err)
		}
	}
	messages := must(f.store.Messages(t.Context(), f.user, session, memory.MessageQuery{}))(t)
	equalLists(t, f.covered(session), messages)
	s := must(f.store.Session(t.Context(), f.user, session))(t)
	if s.Messages != len(messages) || s.Messages != 2*s.Exchanges || s.UserMessages != s.Exchanges {
		t.Errorf("%d messages are counted as %+v", len(messages), s)
	}
	known := map[memory.MessageID]bool{}
	for _, m := range messages {
		known[m.ID] = true
	}
	for _, m := range acknowledged {
		if !known[m.ID] {
			t.Errorf("message %s was acknowledged and is not there", m.ID)
		}
	}
	f.append(session, says("user", "the store goes on", 0))
}

// Invariant 5, without a crash.
func testEverythingSurvivesOpen(t *testing.T, f *fixture) {
	h := f.holding()
	check(t, injectErr(f, h.session, at))
	check(t, f.within(f.user, h)["RecordCompaction"](t.Context()))
	check(t, f.within(f.user, h)["PutPendingRun"](t.Context()))
	before := f.everything(h.session)
	f.reopen()
	equal(t, f.everything(h.session), before)
}

func testClosed(t *testing.T, f *fixture) {
	h := f.holding()
	check(t, f.store.Close())
	check(t, f.store.Close())
	calls := f.within(f.user, h)
	maps.Copy(calls, f.beside())
	for name, call := range calls {
		if call(t.Context()) == nil {
			t.Errorf("%s of a closed store does not fail", name)
		}
	}
}
