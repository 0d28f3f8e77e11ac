package memorytest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/memory"
)

// placed is d with the digest that stands for those words.
func placed(words string, d memory.Draft) memory.Draft {
	d.Transcript = sha256.Sum256([]byte(words))
	return d
}

func (f *fixture) named(user memory.UserID, name string) (ids []memory.SessionID) {
	f.t.Helper()
	for _, s := range must(f.store.Sessions(f.t.Context(), user, memory.SessionQuery{Name: name}))(f.t) {
		ids = append(ids, s.ID)
	}
	return ids
}

func testNames(t *testing.T, f *fixture) {
	ctx := t.Context()
	one, two := f.session(f.user), f.session(f.user)
	theirs := must(f.store.CreateSession(ctx, memory.Session{Agent: f.agent, User: f.other, Name: "not given here", CreatedAt: at}))(t)
	equal(t, theirs.Name, "")
	name := func(id memory.SessionID, name string) error { return f.store.NameSession(ctx, f.user, id, name) }
	const work = "wörk/1 \"'%_"
	check(t, name(one, work))
	check(t, name(one, work))
	check(t, f.store.NameSession(ctx, f.other, theirs.ID, work))
	f.reopen()
	equal(t, must(f.store.Session(ctx, f.user, one))(t).Name, work)
	equal(t, f.named(f.user, work), []memory.SessionID{one})
	equal(t, f.named(f.other, work), []memory.SessionID{theirs.ID})
	// It goes from one to the other, and names are compared by bytes.
	check(t, name(two, work))
	check(t, name(one, strings.ToUpper(work)))
	equal(t, f.named(f.user, work), []memory.SessionID{two})
	equal(t, must(f.store.Session(ctx, f.user, one))(t).Name, strings.ToUpper(work))
	equal(t, f.named(f.other, work), []memory.SessionID{theirs.ID})
	if got := must(f.store.Sessions(ctx, f.user, memory.SessionQuery{}))(t); len(got) != 2 {
		t.Errorf("%d sessions without a name asked for", len(got))
	}
	check(t, name(two, ""))
	check(t, name(two, ""))
	check(t, name(one, ""))
	equal(t, f.named(f.user, work), nil)
	check(t, name(one, strings.Repeat("ä", memory.MaxSessionName/2)))
	for _, wrong := range []string{strings.Repeat("a", memory.MaxSessionName+1), "a\nb", "\x00", "\x7f", "a\u0085", "\xff", "\t"} {
		wants(t, name(two, wrong), memory.ErrInvalid)
	}
	equal(t, must(f.store.Session(ctx, f.user, two))(t).Name, "")
	wants(t, name(theirs.ID, "x"), memory.ErrNotFound)
	wants(t, name(memory.NewID[memory.SessionID](), "x"), memory.ErrNotFound)
	equal(t, f.named(f.other, work), []memory.SessionID{theirs.ID})
	// A name does not hinder a deletion, and is free afterwards.
	check(t, name(one, "x"))
	check(t, f.store.DeleteSession(ctx, f.user, one))
	check(t, name(two, "x"))
	equal(t, f.named(f.user, "x"), []memory.SessionID{two})
	check(t, f.store.BeginWipe(ctx, f.user, at))
	wants(t, name(two, "y"), memory.ErrWiped)
}

func testPlaces(t *testing.T, f *fixture) {
	ctx := t.Context()
	digest := func(words string) memory.Digest { return placed(words, memory.Draft{}).Transcript }
	places := func(words string, limit int) []memory.Place {
		t.Helper()
		return must(f.store.Places(ctx, f.user, f.agent, digest(words), limit))(t)
	}
	one, two, three := f.session(f.user), f.session(f.user), f.session(f.user)
	elsewhere := must(f.store.PutAgent(ctx, "elsewhere", "", at))(t).ID
	apart := must(f.store.CreateSession(ctx, memory.Session{Agent: elsewhere, User: f.user, CreatedAt: at}))(t).ID
	theirs := f.session(f.other)
	stored := f.append(one, placed("a", says("user", "a", 0)), placed("ab", says("assistant", "b", time.Second)), placed("abc", says("user", "c", time.Hour)))
	equal(t, stored[1].Transcript, digest("ab"))
	equal(t, must(f.store.Message(ctx, f.user, stored[1].ID))(t), stored[1])
	// What the holder does not see comes after the last that has a digest.
	f.append(two, placed("a", says("user", "a", 0)), placed("ab", says("assistant", "b", time.Second)))
	f.append(two, says("tool", "unseen", 2*time.Second))
	f.append(three, says("user", "unseen", 0))
	must(f.store.Ingest(ctx, f.user, three, placed("a", says("user", "a", 0)), placed("ab", says("assistant", "b", time.Minute))))(t)
	f.append(apart, placed("ab", says("user", "b", 0)))
	must(f.store.Append(ctx, f.other, theirs, placed("ab", says("user", "b", 0))))(t)
	f.reopen()
	// The latest of those that end so, then those that went on.
	equal(t, places("ab", 9), []memory.Place{{Session: three, Seq: 3, Last: true}, {Session: two, Seq: 2, Last: true}, {Session: one, Seq: 2}})
	equal(t, places("ab", 1), []memory.Place{{Session: three, Seq: 3, Last: true}})
	equal(t, places("abc", 9), []memory.Place{{Session: one, Seq: 3, Last: true}})
	equal(t, places("nowhere", 9), nil)
	equal(t, must(f.store.Places(ctx, f.user, f.agent, memory.Digest{}, 9))(t), nil)
	equal(t, must(f.store.Places(ctx, f.user, elsewhere, digest("ab"), 9))(t), []memory.Place{{Session: apart, Seq: 1, Last: true}})
	equal(t, must(f.store.Places(ctx, f.other, f.agent, digest("ab"), 9))(t), []memory.Place{{Session: theirs, Seq: 1, Last: true}})
	equal(t, must(f.store.Places(ctx, f.other, f.agent, digest("abc"), 9))(t), nil)
	for _, limit := range []int{0, -1} {
		_, err := f.store.Places(ctx, f.user, f.agent, digest("ab"), limit)
		wants(t, err, memory.ErrInvalid)
	}
	check(t, f.store.DeleteSession(ctx, f.user, three))
	equal(t, places("ab", 1), []memory.Place{{Session: two, Seq: 2, Last: true}})
}

// fork makes one of a session and proves that it is what it has to be.
func (f *fixture) fork(t tester, user memory.UserID, parent memory.SessionID, last int64, when time.Time) memory.Session {
	t.Helper()
	ctx, store := f.t.Context(), f.store
	before := f.snapshot(t, user, parent)
	fork := must(store.Fork(ctx, user, parent, last, when))(t)
	after := f.snapshot(t, user, parent)
	equal(t, after, before)
	if fork.ID == parent || fork.ID.IsZero() {
		t.Errorf("the fork has the id %s", fork.ID)
	}
	equal(t, must(store.Session(ctx, user, fork.ID))(t), fork)
	made := f.snapshot(t, user, fork.ID)

	shared := before.messages[:last]
	model := &modelSession{user: user, id: fork.ID, messages: shared}
	want := model.session(before.session.Agent)
	// It is as old as the fork, however young its messages are.
	want.Parent, want.CreatedAt, want.LastActive = parent, when.UTC().Truncate(time.Microsecond), when.UTC().Truncate(time.Microsecond)
	if last > 0 {
		want.Title = before.session.Title
	}
	for _, m := range shared {
		if m.Source.IsActivity() && m.At.After(want.LastActive) {
			want.LastActive = m.At
		}
	}
	equal(t, fork, want)

	files := map[memory.FileID]memory.FileID{}
	if len(made.messages) != len(shared) {
		t.Fatal(fmt.Sprintf("%d messages of %d", len(made.messages), len(shared)))
	}
	for i, m := range made.messages {
		was := shared[i]
		if m.ID == was.ID || m.Session != fork.ID || m.EventKey != "" {
			t.Errorf("message %d is %s of %s with the key %q", m.Seq, m.ID, m.Session, m.EventKey)
		}
		for k, b := range m.Blocks {
			if old := was.Blocks[k].File; old != b.File {
				if known, ok := files[old]; ok && known != b.File {
					t.Errorf("one file became %s and %s", known, b.File)
				}
				files[old] = b.File
			}
		}
		got := encoded(t, m.Blocks)
		for k := range got {
			for old, file := range files {
				got[k] = strings.ReplaceAll(got[k], file.String(), old.String())
			}
		}
		equal(t, got, encoded(t, was.Blocks))
		if b := memory.Count(m.Blocks); m.Tokens != was.Tokens || b != memory.Count(was.Blocks) {
			t.Errorf("message %d costs %d, it was %d", m.Seq, m.Tokens, was.Tokens)
		}
		m.ID, m.Session, m.EventKey, m.Blocks = was.ID, was.Session, was.EventKey, was.Blocks
		equal(t, m, was)
	}
	for old, file := range files {
		had, block, err := store.File(ctx, user, old)
		check(t, err)
		has, copied, err := store.File(ctx, user, file)
		check(t, err)
		equal(t, encoded(t, []memory.Block{copied}), encoded(t, []memory.Block{block}))
		if has.ID == had.ID || has.Session != fork.ID {
			t.Errorf("file %s is of %s", has.ID, has.Session)
		}
		has.ID, has.Session = had.ID, had.Session
		equal(t, has, had)
	}
	if got := must(store.Files(ctx, user, fork.ID))(t); len(got) != len(files) {
		t.Errorf("%d files, of which %d are named", len(got), len(files))
	}

	equal(t, made.shown(t, f, user), before.shownUpTo(t, f, user, last))
	var kept []string
	for _, v := range before.summaries {
		if line := f.summarized(t, user, v); before.ends[v.ID] <= last {
			kept = append(kept, line)
		}
	}
	var copies []string
	for _, v := range made.summaries {
		copies = append(copies, f.summarized(t, user, v))
		if slices.ContainsFunc(before.summaries, func(old memory.Summary) bool { return old.ID == v.ID }) || v.Session != fork.ID {
			t.Errorf("summary %s of %s", v.ID, v.Session)
		}
	}
	equal(t, copies, kept)
	equal(t, must(store.Unseen(ctx, user, fork.ID))(t), memory.Unseen{})
	return fork
}

// snapshot is a session with all that belongs to it; ends is the number of the last
// message that a summary stands for.
type snapshot struct {
	session   memory.Session
	messages  []memory.Message
	summaries []memory.Summary
	frontier  memory.Frontier
	ends      map[memory.SummaryID]int64
	files     []memory.File
}

func (f *fixture) snapshot(t tester, user memory.UserID, id memory.SessionID) (s snapshot) {
	t.Helper()
	ctx, store := f.t.Context(), f.store
	s.session = must(store.Session(ctx, user, id))(t)
	s.messages = must(store.Messages(ctx, user, id, memory.MessageQuery{}))(t)
	s.summaries = must(store.Summaries(ctx, user, id))(t)
	s.frontier = must(store.Frontier(ctx, user, id))(t)
	s.files = must(store.Files(ctx, user, id))(t)
	s.ends = map[memory.SummaryID]int64{}
	for _, v := range s.summaries {
		for _, m := range must(store.Expand(ctx, user, v.ID, memory.MessageQuery{}))(t) {
			s.ends[v.ID] = max(s.ends[v.ID], m.Seq)
		}
	}
	return s
}

// summarized is a summary without ids, with the messages that it stands for and its
// sources.
func (f *fixture) summarized(t tester, user memory.UserID, v memory.Summary) string {
	t.Helper()
	ctx := f.t.Context()
	var seqs []int64
	for _, m := range must(f.store.Expand(ctx, user, v.ID, memory.MessageQuery{}))(t) {
		seqs = append(seqs, m.Seq)
	}
	var sources []string
	for _, item := range must(f.store.Sources(ctx, user, v.ID))(t) {
		if item.Message != nil {
			sources = append(sources, fmt.Sprint(item.Message.Seq))
		} else {
			sources = append(sources, item.Summary.Text)
		}
	}
	v.ID, v.Session = memory.SummaryID{}, memory.SessionID{}
	external := v.External.Digest()
	v.External = boundary.Content{}
	return fmt.Sprintf("%+v %q of %d from %q", v, external, seqs, sources)
}

func (s snapshot) shown(t tester, f *fixture, user memory.UserID) (lines []string) {
	t.Helper()
	for _, item := range s.frontier.Items {
		lines = append(lines, f.line(t, user, item))
	}
	return lines
}

func (f *fixture) line(t tester, user memory.UserID, item memory.Item) string {
	if item.Message != nil {
		return fmt.Sprint("message ", item.Message.Seq)
	}
	return f.summarized(t, user, *item.Summary)
}

// shownUpTo is what a fork is to show: what stands for messages on both sides is
// opened.
func (s snapshot) shownUpTo(t tester, f *fixture, user memory.UserID, last int64) (lines []string) {
	t.Helper()
	var open func(items []memory.Item)
	open = func(items []memory.Item) {
		for _, item := range items {
			switch {
			case item.Message != nil && item.Message.Seq > last:
			case item.Message != nil, s.ends[item.Summary.ID] <= last:
				lines = append(lines, f.line(t, user, item))
			default:
				open(must(f.store.Sources(f.t.Context(), user, item.Summary.ID))(t))
			}
		}
	}
	open(s.frontier.Items)
	return lines
}

// layered is a session of twelve messages under four leaves, of which the first two
// and the last two were condensed, and those again; and of three messages that
// nothing stands for. Calls and results are among them.
func (f *fixture) layered() memory.SessionID {
	f.t.Helper()
	session := must(f.store.CreateSession(f.t.Context(), memory.Session{Agent: f.agent, User: f.user, Title: "layers", CreatedAt: at}))(f.t).ID
	var drafts []memory.Draft
	for i := range 5 {
		call := placed(fmt.Sprint("call ", i), says("assistant", "calls", time.Duration(3*i+1)*time.Minute))
		call.Blocks = append(call.Blocks, memory.ToolCall(fmt.Sprint("c", i), "look", []byte(`{"q": 1}`)))
		result := placed(fmt.Sprint("result ", i), says("tool", "", time.Duration(3*i+2)*time.Minute))
		result.Blocks = []memory.Block{memory.ToolResult(fmt.Sprint("c", i), "look", content(f.t, fmt.Sprint("found ", i)), false)}
		said := placed(fmt.Sprint("said ", i), says("user", fmt.Sprint("says ", i), time.Duration(3*i)*time.Minute))
		said.EventKey = fmt.Sprint("event ", i)
		drafts = append(drafts, said, call, result)
	}
	drafts[13] = placed("answered", says("assistant", "answers", 13*time.Minute))
	messages := f.append(session, drafts...)
	var leaves []memory.Summary
	for i := range 4 {
		leaf := leafOf(messages[3*i:3*i+3], fmt.Sprint("leaf ", i))
		leaf.External = content(f.t, fmt.Sprint("outside ", i))
		if i == 3 {
			leaf.Level = memory.LevelFallback
		}
		leaves = append(leaves, f.commit(session, leaf))
	}
	left, right := f.commit(session, condensedOf(leaves[:2], "left")), f.commit(session, condensedOf(leaves[2:], "right"))
	f.commit(session, condensedOf([]memory.Summary{left, right}, "all"))
	return session
}

func testFork(t *testing.T, f *fixture) {
	ctx := t.Context()
	parent := f.layered()
	check(t, f.store.NameSession(ctx, f.user, parent, "named"))
	f.learn(parent, 2, 4, memory.Learnings{})
	when := at.Add(time.Hour)
	for last, want := range []string{
		0: "", 1: "1", 2: "1 2", 3: "leaf 0", 4: "leaf 0 4", 5: "leaf 0 4 5", 6: "left", 7: "left 7", 8: "left 7 8", 9: "left leaf 2",
		10: "left leaf 2 10", 11: "left leaf 2 10 11", 12: "all", 13: "all 13", 14: "all 13 14", 15: "all 13 14 15",
	} {
		fork := f.fork(t, f.user, parent, int64(last), when)
		var shown []string
		for _, item := range must(f.store.Frontier(ctx, f.user, fork.ID))(t).Items {
			if item.Message != nil {
				shown = append(shown, fmt.Sprint(item.Message.Seq))
			} else {
				shown = append(shown, item.Summary.Text)
			}
		}
		if got := strings.Join(shown, " "); got != want {
			t.Errorf("a fork at %d shows %s, want %s", last, got, want)
		}
	}
	// A fork is not what tells when its user was active, but for what is said in it.
	active := func() time.Time { t.Helper(); return must(f.store.LastActivity(ctx, f.user, f.agent))(t) }
	equal(t, active(), kept.Add(14*time.Minute))
	fork := f.fork(t, f.user, parent, 13, when)
	places := must(f.store.Places(ctx, f.user, f.agent, placed("said 4", memory.Draft{}).Transcript, 99))(t)
	if len(places) != 5 || places[0] != (memory.Place{Session: fork.ID, Seq: 13, Last: true}) || places[len(places)-1].Last {
		t.Errorf("places %+v", places)
	}

	// It goes on by itself, with the parent's keys for new events, and can be
	// compacted, repaired, named and forked.
	said := says("user", "on its own", 2*time.Hour)
	said.EventKey = "event 4"
	stored := must(f.store.Append(ctx, f.user, fork.ID, said))(t)
	if stored[0].Seq != 14 || stored[0].Session != fork.ID {
		t.Errorf("appended %+v", stored)
	}
	equal(t, active(), kept.Add(2*time.Hour))
	equal(t, must(f.store.Unseen(ctx, f.user, fork.ID))(t).UserMessages, 1)
	fallback := slices.IndexFunc(must(f.store.Summaries(ctx, f.user, fork.ID))(t), func(v memory.Summary) bool { return v.Level == memory.LevelFallback })
	frontier := must(f.store.Frontier(ctx, f.user, fork.ID))(t)
	must(f.store.RepairSummary(ctx, f.user, frontier.Revision, must(f.store.Summaries(ctx, f.user, fork.ID))(t)[fallback].ID, memory.SummaryText{Text: "repaired", Level: memory.LevelNormal}))(t)
	f.commit(fork.ID, leafOf([]memory.Message{*frontier.Items[1].Message, *frontier.Items[2].Message}, "the end"))
	check(t, f.store.NameSession(ctx, f.user, fork.ID, "named"))
	again := f.fork(t, f.user, fork.ID, 13, when.Add(time.Hour))
	f.whole(t, f.store, f.user)

	// What was said is found in each.
	hits := must(f.store.SearchWords(ctx, f.user, memory.WordQuery{Session: again.ID, Words: []memory.WeightedWord{{Text: "found", Weight: 1}}}))(t)
	if len(hits.Hits) == 0 {
		t.Error("nothing of a fork is found")
	}

	// Without its parent it is whole, but for what it says of it.
	before := f.snapshot(t, f.user, again.ID)
	check(t, f.store.DeleteSession(ctx, f.user, fork.ID))
	check(t, f.store.DeleteSession(ctx, f.user, parent))
	before.session.Parent = memory.SessionID{}
	f.reopen()
	equal(t, f.snapshot(t, f.user, again.ID), before)
	f.whole(t, f.store, f.user)
	f.append(again.ID, says("user", "still here", 3*time.Hour))
}

func testForkRefuses(t *testing.T, f *fixture) {
	ctx := t.Context()
	session := f.session(f.user)
	f.append(session, says("user", "one", 0))
	for _, test := range []struct {
		user memory.UserID
		id   memory.SessionID
		last int64
		at   time.Time
		want error
	}{
		{f.user, session, 2, at, memory.ErrInvalid},
		{f.user, session, -1, at, memory.ErrInvalid},
		{f.user, session, 1, time.Time{}, memory.ErrInvalid},
		{f.user, session, 1, time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC), memory.ErrInvalid},
		{f.user, memory.NewID[memory.SessionID](), 0, at, memory.ErrNotFound},
		{f.user, memory.SessionID{}, 0, at, memory.ErrNotFound},
		{f.other, session, 1, at, memory.ErrNotFound},
		{f.other, session, 0, at, memory.ErrNotFound},
	} {
		_, err := f.store.Fork(ctx, test.user, test.id, test.last, test.at)
		wants(t, err, test.want)
	}
	check(t, f.store.BeginWipe(ctx, f.user, at))
	_, err := f.store.Fork(ctx, f.user, session, 1, at)
	wants(t, err, memory.ErrWiped)
	if got := must(f.store.Sessions(ctx, f.user, memory.SessionQuery{}))(t); len(got) != 1 {
		t.Errorf("%d sessions after refusals", len(got))
	}
}

// The files of a fork are its own: they stay when the parent's have gone.
func testForkFiles(t *testing.T, f *fixture) {
	ctx := t.Context()
	parent := f.session(f.user)
	first := f.append(parent, large("early"), says("assistant", "\\u0066ile is \"file\"", 0))[0].Blocks[0]
	result := says("tool", "", 0)
	result.Blocks = []memory.Block{memory.ToolResult("c1", "search", content(t, strings.Repeat("found it\n", 25_000)), false), memory.Text("beside")}
	f.append(parent, result)
	// Blocks that name a file again, in other spellings, beside what only looks so.
	for _, text := range []string{
		fmt.Sprintf("{ \"type\" : \"file\",\n\"text\":\"see %s\", \"\\u0066ile\":\"%s\" }", first.File, first.File),
		fmt.Sprintf(`{"type":"file","File":"%s","text":"<b>","file":"%s","x":{"file":1}}`, memory.NewID[memory.FileID](), strings.ToUpper(first.File.String())),
		fmt.Sprintf(`{"type":"file","file":"%s","FILE":"%s"}`, memory.NewID[memory.FileID](), first.File),
	} {
		var b memory.Block
		check(t, b.UnmarshalJSON([]byte(text)))
		equal(t, b.File, first.File)
		again := says("user", "see", 0)
		again.Blocks = append(again.Blocks, b)
		f.append(parent, again)
	}
	f.append(parent, large("late"))
	refiled := func(fork memory.SessionID, seq int64) string {
		t.Helper()
		return encoded(t, must(f.store.Messages(ctx, f.user, fork, memory.MessageQuery{After: seq - 1, Limit: 1}))(t)[0].Blocks)[1]
	}
	fork := must(f.store.Fork(ctx, f.user, parent, 6, at))(t).ID
	files := must(f.store.Files(ctx, f.user, fork))(t)
	if len(files) != 2 || files[0].Session != fork || files[0].ID == first.File {
		t.Fatalf("files %+v", files)
	}
	own := files[0].ID.String()
	// The very bytes but for the id, also where words name it.
	if got, want := refiled(fork, 4), fmt.Sprintf("{ \"type\" : \"file\",\n\"text\":\"see %s\", \"\\u0066ile\":\"%s\" }", first.File, own); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := refiled(fork, 5); !strings.HasSuffix(got, `","text":"<b>","file":"`+own+`","x":{"file":1}}`) {
		t.Errorf("got %s", got)
	}
	if got := refiled(fork, 6); !strings.HasSuffix(got, `","FILE":"`+own+`"}`) {
		t.Errorf("got %s", got)
	}
	f.fork(t, f.user, parent, 3, at)
	f.fork(t, f.user, parent, 1, at)

	equal(t, must(f.store.Ingest(ctx, f.user, fork, large("early"), says("assistant", "\\u0066ile is \"file\"", 0)))(t), nil)
	whole := must(f.store.Messages(ctx, f.user, fork, memory.MessageQuery{}))(t)
	check(t, f.store.DeleteSession(ctx, f.user, parent))
	equal(t, must(f.store.Messages(ctx, f.user, fork, memory.MessageQuery{}))(t), whole)
	_, block, err := f.store.File(ctx, f.user, files[0].ID)
	check(t, err)
	equal(t, encoded(t, []memory.Block{block}), encoded(t, large("early").Blocks))
	_, _, err = f.store.File(ctx, f.other, files[0].ID)
	wants(t, err, memory.ErrNotFound)
}

// C12 for forks: whatever was appended, condensed, learned from, forked and deleted
// before, each fork is the beginning of what it was made of, and nothing that is
// done to either touches the other.
func testForkRandom(t *testing.T, f *fixture) {
	rapid.Check(t, func(r *rapid.T) {
		user := memory.NewID[memory.UserID]()
		check(r, f.store.PutUser(t.Context(), memory.User{ID: user, Name: user.String(), CreatedAt: at}))
		sessions := []memory.SessionID{f.session(user)}
		for range rapid.IntRange(1, 12).Draw(r, "steps") {
			if len(sessions) == 0 {
				break
			}
			i := rapid.IntRange(0, len(sessions)-1).Draw(r, "session")
			others := map[memory.SessionID]snapshot{}
			for _, id := range sessions {
				if id != sessions[i] {
					others[id] = f.snapshot(r, user, id)
				}
			}
			made := memory.SessionID{}
			switch rapid.SampledFrom([]string{"append", "append", "condense", "condense", "fork", "fork", "learn", "delete"}).Draw(r, "step") {
			case "append":
				f.appendSome(r, user, sessions[i])
			case "condense":
				f.condenseSome(r, user, sessions[i])
			case "learn":
				f.learnSome(r, user, sessions[i])
			case "fork":
				n := must(f.store.Session(t.Context(), user, sessions[i]))(r).Messages
				last := rapid.IntRange(0, n).Draw(r, "last")
				made = f.fork(r, user, sessions[i], int64(last), at.Add(time.Duration(rapid.IntRange(-10, 10).Draw(r, "minutes"))*time.Minute)).ID
				sessions = append(sessions, made)
			case "delete":
				check(r, f.store.DeleteSession(t.Context(), user, sessions[i]))
				for id, s := range others {
					if s.session.Parent == sessions[i] {
						s.session.Parent = memory.SessionID{}
						others[id] = s
					}
				}
				sessions = slices.Delete(sessions, i, i+1)
			}
			for id, before := range others {
				equal(r, f.snapshot(r, user, id), before)
			}
			f.whole(r, f.store, user)
		}
	})
}

func (f *fixture) appendSome(r *rapid.T, user memory.UserID, session memory.SessionID) {
	w := &world{f: f}
	var drafts []memory.Draft
	for range rapid.IntRange(1, 5).Draw(r, "messages") {
		d := w.draft(r, user)
		if rapid.Bool().Draw(r, "placed") {
			d = placed(rapid.SampledFrom([]string{"a", "b"}).Draw(r, "transcript"), d)
		}
		drafts = append(drafts, d)
	}
	must(f.store.Append(f.t.Context(), user, session, drafts...))(r)
}

// condenseSome puts a summary in the place of a run of the frontier, of messages or
// of summaries of one depth.
func (f *fixture) condenseSome(r *rapid.T, user memory.UserID, session memory.SessionID) {
	ctx := f.t.Context()
	frontier := must(f.store.Frontier(ctx, user, session))(r)
	if len(frontier.Items) == 0 {
		return
	}
	depth := func(item memory.Item) int {
		if item.Summary == nil {
			return -1
		}
		return item.Summary.Depth
	}
	from := rapid.IntRange(0, len(frontier.Items)-1).Draw(r, "from")
	most := rapid.IntRange(1, 4).Draw(r, "most")
	s := memory.NewSummary{ID: memory.NewID[memory.SummaryID](), SummaryText: memory.SummaryText{Text: rapid.StringN(1, 8, -1).Draw(r, "summary"), Level: memory.LevelNormal}, At: at}
	for _, item := range frontier.Items[from:min(from+most, len(frontier.Items))] {
		if depth(item) != depth(frontier.Items[from]) {
			break
		}
		if item.Message != nil {
			s.Messages = append(s.Messages, item.Message.ID)
		} else {
			s.Summaries = append(s.Summaries, item.Summary.ID)
		}
	}
	must(f.store.CommitSummary(ctx, user, frontier.Revision, s))(r)
}

func (f *fixture) learnSome(r *rapid.T, user memory.UserID, session memory.SessionID) {
	n := memory.NewExtraction{Session: session, At: at}
	for _, m := range must(f.store.UnseenMessages(f.t.Context(), user, session, memory.MessageQuery{}))(r) {
		if rapid.Bool().Draw(r, "seen") {
			n.Seen = append(n.Seen, memory.SeqRange{First: m.Seq, Last: m.Seq})
		}
	}
	if len(n.Seen) > 0 {
		must(f.store.CommitExtraction(f.t.Context(), user, n))(r)
	}
}

// M11: what was deleted does not come back from a copy of what it was learned from.
func testForkLearnsNothingTwice(t *testing.T, f *fixture) {
	ctx := t.Context()
	parent := f.session(f.user)
	messages := f.append(parent, says("user", "I have a boat", 0), says("assistant", "nice", 0), says("user", "unseen", 0))
	fork := f.fork(t, f.user, parent, 2, at.Add(time.Minute))
	x := f.learn(parent, 1, 3, fact("has a boat", messages[0]))
	f.dream(memory.Dream{Extractions: []memory.ExtractionID{x.ID}, Topics: []memory.NewTopic{{Name: "boat", Content: "has one", Sources: []memory.MessageID{messages[0].ID}}}})
	must(f.store.DeleteTopic(ctx, f.user, memory.AgentID{}, "boat"))(t)
	idle := func() []memory.IdleSession {
		t.Helper()
		return must(f.store.IdleSessions(ctx, []memory.AgentID{f.agent}, at.Add(24*time.Hour), 0))(t)
	}
	equal(t, idle(), nil)
	equal(t, must(f.store.UnseenMessages(ctx, f.user, fork.ID, memory.MessageQuery{}))(t), nil)
	// What is said in the fork alone is learned from.
	said := must(f.store.Append(ctx, f.user, fork.ID, says("user", "and a car", time.Hour)))(t)
	equal(t, must(f.store.UnseenMessages(ctx, f.user, fork.ID, memory.MessageQuery{}))(t), said)
	equal(t, idle(), []memory.IdleSession{{User: f.user, Agent: f.agent, Session: fork.ID, LastActive: kept.Add(time.Hour)}})
}

// A fork is on disk whole when it is acknowledged, and what it cannot end it does
// not begin.
func testForkIsAllOrNothing(t *testing.T, f *fixture) {
	parent := f.layered()
	ended, end := context.WithCancel(t.Context())
	end()
	_, err := f.store.Fork(ended, f.user, parent, 15, at)
	wants(t, err, context.Canceled)
	if got := must(f.store.Sessions(t.Context(), f.user, memory.SessionQuery{}))(t); len(got) != 1 {
		t.Errorf("%d sessions", len(got))
	}
	fork := f.fork(t, f.user, parent, 15, at)
	before := f.snapshot(t, f.user, fork.ID)
	f.reopen()
	equal(t, f.snapshot(t, f.user, fork.ID), before)
}
