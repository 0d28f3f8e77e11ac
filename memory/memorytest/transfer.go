package memorytest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/memory"
)

// lines is a user's export, one line a record.
func (f *fixture) lines(t tester, store memory.Store, user memory.UserID) []string {
	t.Helper()
	var lines []string
	check(t, store.Export(f.t.Context(), user, func(r memory.Record) error {
		line, err := r.MarshalJSON()
		lines = append(lines, string(line))
		return err
	}))
	return lines
}

func parsed(lines []string) iter.Seq2[memory.Record, error] {
	return func(yield func(memory.Record, error) bool) {
		for i, line := range lines {
			var r memory.Record
			err := json.Unmarshal([]byte(line), &r)
			if err != nil {
				err = fmt.Errorf("record %d: %w", i+1, err)
			}
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// second opens another, empty store and returns it with its default user.
func (f *fixture) second(t testing.TB) (memory.Store, memory.UserID) {
	t.Helper()
	store := f.open(f.t, f.t.TempDir())
	f.t.Cleanup(func() { store.Close() })
	return store, must(store.DefaultUser(f.t.Context()))(t).ID
}

// rich gives the user something of every kind of record.
func (f *fixture) rich() memory.SessionID {
	f.t.Helper()
	ctx := f.t.Context()
	parent := f.session(f.user)
	f.append(parent, says("user", "before", 0))
	child := must(f.store.CreateSession(ctx, memory.Session{Agent: f.agent, User: f.user, Parent: parent, Title: "tîtle\x00 <&>", CreatedAt: at.Add(-time.Hour)}))(f.t).ID
	keyed := says("assistant", "keyed", time.Second)
	keyed.EventKey = "event <1>"
	derived := says("assistant", "derived", 2*time.Second)
	derived.Trust = memory.TrustDerived
	odd := says("assistant", "", 3*time.Second)
	odd.Blocks = nil
	for _, text := range []string{
		`{"type":"hologram","payload":{"b":1,  "a":[1,2]},"x":"<&>\u0041"}`, "{ \"signature\":\"abc==\",\n \"type\":\"thinking\", \"text\":\"hm\" }",
		"{\"type\":\"text\",\"text\":\"\u2028<&>\"}",
	} {
		var b memory.Block
		check(f.t, json.Unmarshal([]byte(text), &b))
		odd.Blocks = append(odd.Blocks, b)
	}
	odd.Blocks = append(odd.Blocks, memory.ToolCall("c1", "search", []byte(`{"q": "<x>"}`)))
	result := says("tool", "", 4*time.Second)
	result.Blocks = []memory.Block{memory.ToolResult("c1", "search", content(f.t, strings.Repeat("found it\n", 11_500)), true), memory.External(content(f.t, "outside"))}
	messages := f.append(child, says("user", "a", 0), keyed, derived, odd, result, large("long"), says("user", "b", 0), says("user", "b", 0))
	check(f.t, injectErr(f, child, at.Add(time.Minute)))
	var leaves []memory.SummaryID
	for i, run := range [][]memory.Message{messages[0:2], messages[2:5], messages[5:6]} {
		leaf := leafOf(run, fmt.Sprintf("leaf %d", i))
		leaf.Level = []memory.Level{memory.LevelNormal, memory.LevelAggressive, memory.LevelFallback}[i]
		if i == 1 {
			leaf.External = content(f.t, "outside, in short")
		}
		leaves = append(leaves, leaf.ID)
		must(f.store.CommitSummary(ctx, f.user, must(f.store.Frontier(ctx, f.user, child))(f.t).Revision, leaf))(f.t)
	}
	must(f.store.CommitSummary(ctx, f.user, must(f.store.Frontier(ctx, f.user, child))(f.t).Revision, memory.NewSummary{
		ID: memory.NewID[memory.SummaryID](), Summaries: leaves[:2], SummaryText: memory.SummaryText{Text: "both", Level: memory.LevelNormal}, At: at,
	}))(f.t)
	run := memory.CompactionRun{Session: child, Agent: f.agent, Trigger: memory.TriggerManual, Outcome: memory.OutcomeDone, StartedAt: at, Took: time.Second, Summaries: 4}
	check(f.t, f.store.RecordCompaction(ctx, f.user, run))
	check(f.t, f.store.RecordCompaction(ctx, f.user, run))
	f.learn(child, 2, 4, memory.Learnings{})
	f.learn(child, 1, 1, fact("says <a>", messages[0]))
	must(f.store.CommitExtraction(ctx, f.user, memory.NewExtraction{Session: child, Seen: []memory.SeqRange{{First: 6, Last: 6}, {First: 8, Last: 8}}, At: at}))(f.t)
	newer, older, mine := memory.NewID[memory.TopicID](), memory.NewID[memory.TopicID](), memory.NewID[memory.TopicID]()
	f.imports(
		memory.Record{Kind: memory.RecordExtraction, Extraction: &memory.ExtractionRecord{ID: memory.NewID[memory.ExtractionID](), Agent: "assistant", Session: child, CreatedAt: at, MergedAt: at.Add(time.Minute),
			Learnings: memory.Learnings{Facts: []memory.Learned{{Text: "has a <boat>", Sources: []memory.MessageID{messages[0].ID}}, {}}, Tasks: []memory.Learned{{Text: "paint it", Sources: []memory.MessageID{messages[6].ID, messages[0].ID}}}}}},
		memory.Record{Kind: memory.RecordExtraction, Extraction: &memory.ExtractionRecord{ID: memory.NewID[memory.ExtractionID](), Agent: "gone", Session: memory.NewID[memory.SessionID](), CreatedAt: at.Add(time.Hour)}},
		memory.Record{Kind: memory.RecordTopic, Topic: &memory.TopicRecord{ID: newer, Topic: "boat", Content: "Aurelia", Embedding: []byte{0, 1, 255}, ExpiresAt: at.Add(time.Hour), ValidFrom: at, UpdatedAt: at,
			Sources: []memory.MessageID{messages[1].ID, messages[0].ID}}},
		memory.Record{Kind: memory.RecordTopic, Topic: &memory.TopicRecord{ID: older, Topic: "boat", Content: "Boreas", SupersededBy: newer, ValidFrom: at, UpdatedAt: at.Add(-time.Hour)}},
		memory.Record{Kind: memory.RecordTopic, Topic: &memory.TopicRecord{ID: mine, Agent: "assistant", Topic: "tone", Content: "brief", ValidFrom: at, UpdatedAt: at}},
	)
	check(f.t, f.store.NameSession(ctx, f.user, child, "näme <&>"))
	// The last one stands on both sides, what was said after is younger.
	f.append(must(f.store.Fork(ctx, f.user, child, 4, at.Add(time.Minute)))(f.t).ID, placed("said", says("user", "forked", time.Hour)))
	must(f.store.Fork(ctx, f.user, child, 6, at.Add(time.Hour)))(f.t)
	return child
}

func (f *fixture) imports(records ...memory.Record) memory.ImportReport {
	f.t.Helper()
	return must(f.store.Import(f.t.Context(), f.user, recordsOf(records...)))(f.t)
}

func recordsOf(records ...memory.Record) iter.Seq2[memory.Record, error] {
	return func(yield func(memory.Record, error) bool) {
		for _, r := range records {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// S8, S9
func testExportImport(t *testing.T, f *fixture) {
	ctx := t.Context()
	session := f.rich()
	foreign := must(f.store.CreateSession(ctx, memory.Session{Agent: f.agent, User: f.other, CreatedAt: at}))(t).ID
	must(f.store.Append(ctx, f.other, foreign, says("user", "CANARY", 0)))(t)
	before := f.lines(t, f.store, f.user)
	if again := f.lines(t, f.store, f.user); !slices.Equal(again, before) {
		t.Error("the same content gives other records")
	}
	for _, line := range before {
		if strings.Contains(line, "CANARY") || strings.Contains(line, f.user.String()) {
			t.Errorf("%.200s names a user or is another's", line)
		}
		if strings.Contains(line, "\n") {
			t.Errorf("%.200q is not one line", line)
		}
	}

	other, user := f.second(t)
	report := must(other.Import(ctx, user, parsed(before)))(t)
	for kind, n := range map[memory.RecordKind]int{
		memory.RecordSession: 4, memory.RecordMessage: 21, memory.RecordFile: 4, memory.RecordSummary: 9, memory.RecordCompaction: 2, memory.RecordExtraction: 5, memory.RecordTopic: 3,
	} {
		if report.Added[kind] != n || report.Skipped[kind] != 0 {
			t.Errorf("%s: added %d, skipped %d, want %d added", kind, report.Added[kind], report.Skipped[kind], n)
		}
	}
	same := func(what string) {
		t.Helper()
		after := f.lines(t, other, user)
		for i := range min(len(before), len(after)) {
			if before[i] != after[i] {
				t.Errorf("%s: record %d\nwas %.2000s\nis  %.2000s", what, i+1, before[i], after[i])
			}
		}
		if len(after) != len(before) {
			t.Errorf("%s: %d records of %d", what, len(after), len(before))
		}
	}
	same("imported")

	// What the model is shown, and what is counted, is what it was.
	had, has := must(f.store.Frontier(ctx, f.user, session))(t), must(other.Frontier(ctx, user, session))(t)
	equalLists(t, has.Items, had.Items)
	was, is := must(f.store.Session(ctx, f.user, session))(t), must(other.Session(ctx, user, session))(t)
	is.User, is.Agent = was.User, was.Agent
	equal(t, is, was)
	equal(t, must(other.Messages(ctx, user, session, memory.MessageQuery{}))(t), must(f.store.Messages(ctx, f.user, session, memory.MessageQuery{}))(t))
	// So is what there is to learn.
	equal(t, must(other.Unseen(ctx, user, session))(t), must(f.store.Unseen(ctx, f.user, session))(t))
	agents, still := must(other.Agents(ctx))(t), func(store memory.Store, agent memory.AgentID) (ids []memory.SessionID) {
		for _, s := range must(store.IdleSessions(ctx, []memory.AgentID{agent}, at.Add(time.Hour), 0))(t) {
			if s.User != f.other {
				ids = append(ids, s.Session)
			}
		}
		return ids
	}
	mine := slices.IndexFunc(agents, func(a memory.Agent) bool { return a.Name == "assistant" })
	equal(t, still(other, agents[mine].ID), still(f.store, f.agent))

	// A second time adds nothing; nor does it where it came from.
	for _, again := range []struct {
		store memory.Store
		user  memory.UserID
	}{{other, user}, {f.store, f.user}} {
		report := must(again.store.Import(ctx, again.user, parsed(before)))(t)
		if len(report.Added) != 0 {
			t.Errorf("again: %+v", report)
		}
	}
	same("imported twice")
	// The conversation goes on, and what is older is still known.
	must(other.Append(ctx, user, session, says("user", "more", 0)))(t)
	must(other.Import(ctx, user, parsed(before)))(t)

	// What is the first user's is taken for anybody else of that store.
	_, err := f.store.Import(ctx, f.other, parsed(before))
	wants(t, err, memory.ErrConflict)
	_, err = f.store.Import(ctx, f.other, parsed(before[len(before)-1:]))
	wants(t, err, memory.ErrConflict)
	_, err = f.store.Import(ctx, memory.NewID[memory.UserID](), parsed(before))
	wants(t, err, memory.ErrNotFound)
	wants(t, f.store.Export(ctx, memory.NewID[memory.UserID](), func(memory.Record) error { return nil }), memory.ErrNotFound)
	stop := errors.New("stop")
	wants(t, f.store.Export(ctx, f.user, func(memory.Record) error { return stop }), stop)
}

// S8 and S9, for whatever a user may have.
func testExportImportRandom(t *testing.T, f *fixture) {
	ctx := t.Context()
	other, _ := f.second(t)
	newUser := func(r *rapid.T, store memory.Store) memory.UserID {
		id := memory.NewID[memory.UserID]()
		check(r, store.PutUser(ctx, memory.User{ID: id, Name: id.String(), CreatedAt: at}))
		return id
	}
	rapid.Check(t, func(r *rapid.T) {
		one, user := newUser(r, f.store), newUser(r, other)
		w := &world{f: f, users: []memory.UserID{one, f.other}}
		for _, u := range []memory.UserID{one, one, f.other} {
			w.sessions = append(w.sessions, &modelSession{user: u, id: f.session(u), byKey: map[string]memory.Message{}})
		}
		// Somebody looks at a part of what was not looked at.
		learn := func(r *rapid.T) {
			session := w.sessions[rapid.IntRange(0, 1).Draw(r, "session")].id
			n := memory.NewExtraction{Session: session, At: at}
			for _, m := range must(f.store.UnseenMessages(ctx, one, session, memory.MessageQuery{}))(r) {
				if rapid.Bool().Draw(r, "seen") {
					n.Seen = append(n.Seen, memory.SeqRange{First: m.Seq, Last: m.Seq})
				}
				if m.Source == memory.SourceUser && rapid.Bool().Draw(r, "learned") {
					n.Tasks = append(n.Tasks, fact("x", m).Facts...)
				}
			}
			if len(n.Seen) > 0 {
				must(f.store.CommitExtraction(ctx, one, n))(r)
			}
		}
		for range rapid.IntRange(1, 8).Draw(r, "steps") {
			rapid.SampledFrom([]func(*rapid.T){w.append, w.append, w.inject, w.commit, w.commit, learn}).Draw(r, "step")(r)
		}
		lines := f.lines(r, f.store, one)
		for _, line := range lines {
			if strings.Contains(line, "canary "+f.other.String()) || strings.Contains(line, "of "+f.other.String()) {
				r.Errorf("another user's: %s", line)
			}
		}
		// First a part, then the whole.
		must(other.Import(ctx, user, parsed(lines[:rapid.IntRange(0, len(lines)).Draw(r, "cut")])))(r)
		f.whole(r, other, user)
		must(other.Import(ctx, user, parsed(lines)))(r)
		f.whole(r, other, user)
		equalLists(r, f.lines(r, other, user), lines)
	})
}

// whole proves that each session's frontier covers its messages, once, in order.
func (f *fixture) whole(t tester, store memory.Store, user memory.UserID) {
	t.Helper()
	ctx := f.t.Context()
	for _, s := range must(store.Sessions(ctx, user, memory.SessionQuery{}))(t) {
		var covered []memory.MessageID
		frontier := must(store.Frontier(ctx, user, s.ID))(t)
		wantsTail(ctx, t, store, user, frontier, frontier.Tokens()/2)
		for _, item := range frontier.Items {
			if item.Message != nil {
				covered = append(covered, item.Message.ID)
				continue
			}
			for _, m := range must(store.Expand(ctx, user, item.Summary.ID, memory.MessageQuery{}))(t) {
				covered = append(covered, m.ID)
			}
		}
		messages := must(store.Messages(ctx, user, s.ID, memory.MessageQuery{}))(t)
		if len(messages) != s.Messages || len(covered) != len(messages) {
			t.Errorf("session %s counts %d messages, has %d and shows %d", s.ID, s.Messages, len(messages), len(covered))
			continue
		}
		for i, m := range messages {
			if m.Seq != int64(i+1) || covered[i] != m.ID {
				t.Errorf("session %s: message %d is %d, shown is %s", s.ID, i+1, m.Seq, covered[i])
			}
		}
	}
}

// What a hostile or broken document holds is refused, by its number, and what
// stands before it is whole.
func testImportRefuses(t *testing.T, f *fixture) {
	ctx := t.Context()
	f.rich()
	lines := f.lines(t, f.store, f.user)
	index := func(part string) int {
		t.Helper()
		i := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, part) })
		if i < 0 {
			t.Fatalf("no record has %s", part)
		}
		return i
	}
	// edit replaces in the first line that has the part.
	edit := func(part, with string) []string {
		i := index(part)
		edited := slices.Clone(lines)
		edited[i] = strings.Replace(edited[i], part, with, 1)
		return edited
	}
	without := func(part string) []string {
		i := index(part)
		return slices.Delete(slices.Clone(lines), i, i+1)
	}
	for _, test := range []struct {
		name  string
		lines []string
	}{
		{"a user", edit(`{"kind":"session","session":{`, `{"kind":"session","session":{"user_id":"`+f.user.String()+`",`)},
		{"an unknown kind", edit(`"kind":"session"`, `"kind":"sessions"`)},
		{"an unknown field", edit(`{"kind":"topic"`, `{"x":1,"kind":"topic"`)},
		{"another kind's field", edit(`"kind":"summary"`, `"kind":"message"`)},
		{"nothing", []string{`{"kind":"message"}`}},
		{"text that is not neutral", edit(`"text":"outside"`, `"text":"outside\u202e"`)},
		{"another digest", edit(`"digest":"sha256:`, `"digest":"sha256:0`)},
		{"a role", edit(`"role":"assistant"`, `"role":"wizard"`)},
		{"a trust", edit(`"trust":"derived"`, `"trust":"sure"`)},
		{"a level", edit(`"level":"aggressive"`, `"level":"best"`)},
		{"a trigger", edit(`"trigger":"manual"`, `"trigger":"whim"`)},
		{"a gap", without(`"event_key"`)},
		{"no session", without(`"kind":"session"`)},
		{"no file", without(`"kind":"file"`)},
		{"a file alone", slices.Insert(slices.Clone(lines), index(`"kind":"summary"`), strings.Replace(lines[index(`"kind":"file"`)], `"id":"`, `"id":"`, 1))},
		{"a missing source", without(`"text":"leaf 0"`)},
		{"a refresh that is none", edit(`[Context refresh — `, `[Kontext refresh — `)},
		{"a topic before its heir", without(`"content":"Aurelia"`)},
		{"something after it", edit(`{"kind":"extraction"`, `{} {"kind":"extraction"`)},
		{"an agent's name", edit(`"agent":"gone"`, `"agent":"../gone"`)},
		{"a run that ends before it begins", edit(`"learned":[{"first":1,"last":4}`, `"learned":[{"first":1,"last":0}`)},
		{"runs that touch", edit(`"learned":[{"first":1,"last":4}`, `"learned":[{"first":1,"last":5}`)},
		{"a run of nothing", edit(`"learned":[{"first":1,`, `"learned":[{"first":0,`)},
		{"a list of texts", edit(`"tasks":[{`, `"tasks":["x",{`)},
		{"another list", edit(`"tasks":[`, `"wishes":[`)},
		{"a thing with another field", edit(`"text":"paint it"`, `"text":"paint it","x":1`)},
		{"a thing that says nothing", edit(`"text":"paint it"`, `"text":" "`)},
		{"a thing that says too much", edit(`"text":"paint it"`, `"text":"`+longText(memory.MaxTopicContent+1)+`"`)},
		{"a topic without a name", edit(`"topic":"tone"`, `"topic":"\u200b"`)},
		{"a topic that says nothing", edit(`"content":"brief"`, `"content":"\n"`)},
		{"a topic that says too much", edit(`"content":"brief"`, `"content":"`+longText(memory.MaxTopicContent+1)+`"`)},
	} {
		store, user := f.second(t)
		if _, err := store.Import(ctx, user, parsed(test.lines)); !errors.Is(err, memory.ErrInvalid) && !isSyntax(err) {
			t.Errorf("%s: %v", test.name, err)
		} else if !strings.Contains(err.Error(), "record ") {
			t.Errorf("%s: %v names no record", test.name, err)
		}
		f.whole(t, store, user)
		// What stayed is part of what was whole, though summaries may come late.
		must(store.Import(ctx, user, parsed(lines)))(t)
		if after := f.lines(t, store, user); !slices.Equal(slices.Sorted(slices.Values(after)), slices.Sorted(slices.Values(lines))) {
			t.Errorf("%s: after the refusal the whole document cannot be imported", test.name)
		}
		check(t, store.Close())
	}
}

// isSyntax reports whether the line could not be read at all, which is its
// reader's error.
func isSyntax(err error) bool {
	_, ok := errors.AsType[*json.SyntaxError](err)
	return ok || errors.Is(err, boundary.ErrNotNeutral)
}

// What another program wrote, or an older version, gets the form that it has here,
// once; and what was looked at on either side was looked at.
func testImportMemory(t *testing.T, f *fixture) {
	ctx := t.Context()
	session := memory.NewID[memory.SessionID]()
	x, y, topic := memory.NewID[memory.ExtractionID](), memory.NewID[memory.ExtractionID](), memory.NewID[memory.TopicID]()
	lines := []string{`{"kind":"session","session":{"id":"` + session.String() + `","agent":"assistant","created_at":"2026-03-23T08:00:00Z","learned":[{"first":2,"last":2},{"first":5,"last":9007199254740991}]}}`}
	for i, text := range []string{"one", "two", "three"} {
		lines = append(lines, fmt.Sprintf(`{"kind":"message","message":{"id":"%s","session_id":"%s","seq":%d,"role":"user","source":"user","content":[{"type":"text","text":"%s"}],"tokens":1,"trust":"direct","created_at":"2026-03-23T08:00:00Z"}}`,
			memory.NewID[memory.MessageID](), session, i+1, text))
	}
	lines = append(lines,
		`{"kind":"extraction","extraction":{"id":"`+x.String()+`","agent":"assistant","session_id":"`+session.String()+`","facts":"[\"has a boat\",\n \"and a dog\"]","preferences":"","decisions":"[]","tasks":null,"open_items":[{"text":""},{"text":" a  b"}],"created_at":"2026-03-23T08:00:00Z"}}`,
		`{"kind":"extraction","extraction":{"id":"`+y.String()+`","agent":"assistant","session_id":"`+session.String()+`","facts":[{"text":""}],"created_at":"2026-03-23T08:00:01Z"}}`,
		`{"kind":"topic","topic":{"id":"`+topic.String()+`","topic":" The BOAT","content":"is\nred","valid_from":"2026-03-23T08:00:00Z","updated_at":"2026-03-23T08:00:00Z"}}`)
	report := must(f.store.Import(ctx, f.user, parsed(lines)))(t)
	equal(t, report.Skipped, map[memory.RecordKind]int{})
	first := f.lines(t, f.store, f.user)
	report = must(f.store.Import(ctx, f.user, parsed(lines)))(t)
	equal(t, report.Added, map[memory.RecordKind]int{})
	equalLists(t, f.lines(t, f.store, f.user), first)

	got := f.extractions(memory.ExtractionQuery{})
	none := []memory.Learned{}
	equal(t, got[0].Learnings, memory.Learnings{Facts: []memory.Learned{{Text: `["has a boat", "and a dog"]`}}, Preferences: none, Decisions: none, Tasks: none, OpenItems: []memory.Learned{{}, {Text: "a b"}}})
	equal(t, got[0].MergedAt.IsZero(), true)
	equal(t, got[1].MergedAt, got[1].CreatedAt)
	equal(t, names(f.topics(memory.TopicQuery{})), []string{"the boat: is red"})
	equal(t, must(f.store.Unseen(ctx, f.user, session))(t).Messages, 2)
	// What the session did not have when it was imported is not looked at.
	f.append(session, says("user", "four", 0), says("user", "five", 0))
	equal(t, must(f.store.Unseen(ctx, f.user, session))(t).Messages, 4)
	f.learn(session, 3, 3, memory.Learnings{})
	lines[0] = strings.Replace(lines[0], `{"first":2,"last":2}`, `{"first":1,"last":2}`, 1)
	must(f.store.Import(ctx, f.user, parsed(lines)))(t)
	var unseen []int64
	for _, m := range must(f.store.UnseenMessages(ctx, f.user, session, memory.MessageQuery{}))(t) {
		unseen = append(unseen, m.Seq)
	}
	equal(t, unseen, []int64{4})
	wants(t, f.store.ExportMemory(ctx, memory.NewID[memory.UserID](), func(memory.Record) error { return nil }), memory.ErrNotFound)
	// One kind of topic takes the place of the other, that of an agent never that of
	// another's.
	heir := memory.TopicRecord{ID: memory.NewID[memory.TopicID](), Agent: "assistant", Topic: "x", Content: "x", ValidFrom: at, UpdatedAt: at}
	stranger := memory.TopicRecord{ID: memory.NewID[memory.TopicID](), Agent: "another", Topic: "x", Content: "x", SupersededBy: heir.ID, ValidFrom: at, UpdatedAt: at}
	_, err := f.store.Import(ctx, f.user, recordsOf(memory.Record{Kind: memory.RecordTopic, Topic: &heir}, memory.Record{Kind: memory.RecordTopic, Topic: &stranger}))
	wants(t, err, memory.ErrInvalid)
	stranger.Agent = ""
	equal(t, f.imports(memory.Record{Kind: memory.RecordTopic, Topic: &stranger}).Added[memory.RecordTopic], 1)
	var kinds []memory.RecordKind
	check(t, f.store.ExportMemory(ctx, f.user, func(r memory.Record) error { kinds = append(kinds, r.Kind); return nil }))
	equal(t, slices.Compact(kinds), []memory.RecordKind{memory.RecordExtraction, memory.RecordTopic})
}

// A memory that was exported earlier comes back to what became of it: what was
// merged, superseded or deleted since stays so, and what is gone is there again.
func testImportEarlierMemory(t *testing.T, f *fixture) {
	ctx := t.Context()
	session := f.session(f.user)
	boat, dog := f.append(session, says("user", "I have a boat", 0))[0], f.append(session, says("user", "and a dog", 0))[0]
	f.learn(session, 1, 1, fact("has a boat", boat))
	x := f.learn(session, 2, 2, fact("has a dog", dog))
	first := f.dream(memory.Dream{Topics: []memory.NewTopic{{Name: "boat", Content: "has a boat", Sources: []memory.MessageID{boat.ID}}, {Name: "home", Content: "lives in Rome"}}})
	var records []memory.Record
	check(t, f.store.ExportMemory(ctx, f.user, func(r memory.Record) error { records = append(records, r); return nil }))
	f.dream(memory.Dream{Extractions: []memory.ExtractionID{x.ID}, Topics: []memory.NewTopic{{Name: "home", Content: "lives in Bonn", Supersedes: []memory.TopicID{first[1].ID}}}})
	must(f.store.DeleteTopic(ctx, f.user, memory.AgentID{}, "boat"))(t)
	report := f.imports(records...)
	equal(t, report.Added, map[memory.RecordKind]int{memory.RecordTopic: 1})
	f.remembers(t, at, "boat: has a boat", "home: lives in Bonn")
	all := f.extractions(memory.ExtractionQuery{})
	if len(all) != 2 || all[0].Facts[0].Text != "" || all[1].MergedAt.IsZero() {
		t.Errorf("the extractions are %+v", all)
	}
	// Another one is another one all the same.
	for i := range records {
		if r := records[i].Extraction; r != nil {
			changed := *r
			changed.Facts = []memory.Learned{{Text: "has a cat", Sources: []memory.MessageID{dog.ID}}}
			records[i].Extraction = &changed
		}
	}
	_, err := f.store.Import(ctx, f.user, recordsOf(records[1]))
	wants(t, err, memory.ErrConflict)
}

// What a document says of trust and cost is not believed.
func testImportRecomputes(t *testing.T, f *fixture) {
	ctx := t.Context()
	f.rich()
	lines := f.lines(t, f.store, f.user)
	var changed []string
	for _, line := range lines {
		line = strings.ReplaceAll(line, `"trust":"external"`, `"trust":"direct"`)
		changed = append(changed, strings.ReplaceAll(line, `"tokens":`, `"tokens":1`))
	}
	store, user := f.second(t)
	must(store.Import(ctx, user, parsed(changed)))(t)
	if after := f.lines(t, store, user); !slices.Equal(after, lines) {
		t.Error("trust or tokens of the document were believed")
	}

	// A block that another program left too large becomes a file, once.
	id := memory.NewID[memory.SessionID]()
	m := memory.Message{ID: memory.NewID[memory.MessageID](), Session: id, Seq: 1, Role: memory.RoleUser, Source: memory.SourceUser, Blocks: large("long").Blocks, At: at}
	records := recordsOf(memory.Record{Kind: memory.RecordSession, Session: &memory.SessionRecord{ID: id, Agent: "assistant", CreatedAt: at}}, memory.Record{Kind: memory.RecordMessage, Message: &m})
	for range 2 {
		must(store.Import(ctx, user, records))(t)
		if files := must(store.Files(ctx, user, id))(t); len(files) != 1 {
			t.Errorf("%d files", len(files))
		}
	}
	if stored := must(store.Message(ctx, user, m.ID))(t); stored.Blocks[0].File.IsZero() || stored.Tokens > memory.MaxOutlineTokens+100 {
		t.Errorf("stored %d tokens", stored.Tokens)
	}

	// Words of a hand do not become a user's by standing before a file of theirs.
	for i := range lines {
		if strings.Contains(lines[i], `"kind":"file"`) && strings.Contains(lines[i], `"type":"tool_result"`) {
			var r memory.Record
			check(t, json.Unmarshal([]byte(lines[i+1]), &r))
			b := r.Message.Blocks[0]
			r.Message.Blocks[0] = memory.Block{Type: memory.BlockFile, Text: memory.Plain([]memory.Block{b}), File: b.File}
			changed := slices.Clone(lines)
			changed[i+1] = string(must(r.MarshalJSON())(t))
			fresh, user := f.second(t)
			_, err := fresh.Import(ctx, user, parsed(changed))
			wants(t, err, memory.ErrInvalid)
			return
		}
	}
	t.Error("no file of a tool's result was exported")
}

// A large document is stored as it comes, so that turns go on meanwhile, and an
// end in the middle leaves what was stored.
func testImportStops(t *testing.T, f *fixture) {
	ctx := t.Context()
	session := f.session(f.user)
	var drafts []memory.Draft
	for i := range 1000 {
		drafts = append(drafts, says("user", fmt.Sprint("message ", i), time.Duration(i)*time.Second))
	}
	f.append(session, drafts...)
	lines := f.lines(t, f.store, f.user)
	store, user := f.second(t)
	stop := errors.New("stop")
	cancelled, cancel := context.WithCancel(ctx)
	for name, test := range map[string]struct {
		ctx  context.Context
		end  func(yield func(memory.Record, error) bool)
		want error
	}{
		"an error":   {ctx, func(yield func(memory.Record, error) bool) { yield(memory.Record{}, stop) }, stop},
		"a context":  {cancelled, func(yield func(memory.Record, error) bool) { cancel(); yield(memory.Record{}, ctx.Err()) }, context.Canceled},
		"an invalid": {ctx, func(yield func(memory.Record, error) bool) { yield(memory.Record{Kind: "x"}, nil) }, memory.ErrInvalid},
	} {
		_, err := store.Import(test.ctx, user, func(yield func(memory.Record, error) bool) {
			for r, err := range parsed(lines[:600]) {
				if !yield(r, err) {
					return
				}
			}
			test.end(yield)
		})
		if !errors.Is(err, test.want) {
			t.Errorf("%s: %v", name, err)
		}
		f.whole(t, store, user)
		if n := must(store.Session(ctx, user, session))(t).Messages; n < 511 || n > 599 {
			t.Errorf("%s: %d messages stayed", name, n)
		}
	}
	report := must(store.Import(ctx, user, parsed(lines)))(t)
	if report.Added[memory.RecordMessage] != 401 || report.Skipped[memory.RecordMessage] != 599 {
		t.Errorf("the rest: %+v", report)
	}
	if after := f.lines(t, store, user); !slices.Equal(after, lines) {
		t.Error("after all it is not what was exported")
	}
}

// The bytes of a block survive the line that they travel in.
func testRecordsKeepBytes(t *testing.T, _ *fixture) {
	rapid.Check(t, func(r *rapid.T) {
		space := func(name string) string { return rapid.StringMatching(`[ \t\r\n]{0,3}`).Draw(r, name) }
		text := string(must(json.Marshal(rapid.String().Draw(r, "text")))(r))
		raw := "{" + space("a") + `"type"` + space("b") + `:"` + rapid.SampledFrom([]string{"text", "thinking", "hologram"}).Draw(r, "type") + `",` + space("c") + `"text":` + text + space("d") + "}"
		var b memory.Block
		check(r, b.UnmarshalJSON([]byte(raw)))
		m := memory.Message{ID: memory.NewID[memory.MessageID](), Session: memory.NewID[memory.SessionID](), Seq: 1, Blocks: []memory.Block{b}, At: kept}
		line := must(memory.Record{Kind: memory.RecordMessage, Message: &m}.MarshalJSON())(r)
		if bytes.ContainsAny(line, "\r\n") {
			r.Fatalf("%q is not one line", line)
		}
		var read memory.Record
		check(r, json.Unmarshal(line, &read))
		if got := string(must(read.Message.Blocks[0].MarshalJSON())(r)); got != raw {
			r.Fatalf("%q came back as %q", raw, got)
		}
	})
}

// Invariant 9: who reads an export slowly, or sends an import slowly, keeps nobody
// from writing, not even themselves.
func testTransferHoldsNothing(t *testing.T, f *fixture) {
	ctx := t.Context()
	f.rich()
	lines := f.lines(t, f.store, f.user)
	store, user := f.second(t)
	agent := must(store.PutAgent(ctx, "assistant", "", at))(t).ID
	beside := must(store.CreateSession(ctx, memory.Session{Agent: agent, User: user, CreatedAt: at.Add(time.Hour)}))(t).ID
	turns := 0
	turn := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		must(store.Append(ctx, user, beside, says("user", "meanwhile", 0)))(t)
		turns++
	}
	must(store.Import(ctx, user, func(yield func(memory.Record, error) bool) {
		for r, err := range parsed(lines) {
			turn()
			if !yield(r, err) {
				return
			}
		}
	}))(t)
	exported := 0
	check(t, store.Export(ctx, user, func(r memory.Record) error {
		turn()
		if r.Kind == memory.RecordMessage && r.Message.Session == beside {
			exported++
		}
		return nil
	}))
	// What was said before the session's turn came is in it.
	if exported < len(lines) || exported > turns {
		t.Errorf("%d of %d turns were exported", exported, turns)
	}
	check(t, store.Texts(ctx, user, memory.TextQuery{Session: beside}, func(memory.StoredText) bool {
		turn()
		return turns%50 != 0
	}))
	if s := must(store.Session(ctx, user, beside))(t); s.Messages != turns {
		t.Errorf("%d messages of %d turns", s.Messages, turns)
	}
	f.whole(t, store, user)
}
