package memorytest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/memory"
)

// Invariants 6 and 10, C12 and S9 for what a store does: several users do at
// random what a store allows, each in any session, and a plain model of lists
// says after every step what each of them may see.
func testRandomOperations(t *testing.T, f *fixture) {
	third := memory.NewID[memory.UserID]()
	check(t, f.store.PutUser(t.Context(), memory.User{ID: third, Name: "third", CreatedAt: at}))
	users := []memory.UserID{f.user, f.other, third}
	rapid.Check(t, func(r *rapid.T) {
		w := &world{f: f, users: users}
		for _, u := range users {
			w.sessions = append(w.sessions, &modelSession{user: u, id: f.session(u), byKey: map[string]memory.Message{}})
		}
		// Few steps in each of many runs: every one waits for the disk.
		for range rapid.IntRange(1, 16).Draw(r, "steps") {
			rapid.SampledFrom([]func(*rapid.T){w.append, w.append, w.inject, w.commit, w.commit, w.commitTooOld}).Draw(r, "step")(r)
			w.look(r)
		}
	})
}

// world is what the stores of one run are to hold.
type world struct {
	f        *fixture
	users    []memory.UserID
	sessions []*modelSession
}

type modelSession struct {
	user      memory.UserID
	id        memory.SessionID
	messages  []memory.Message
	byKey     map[string]memory.Message
	frontier  []modelItem
	summaries []memory.Summary
	read      memory.Revision // one that a reader still has
	replaced  bool            // whether read is too old
}

// modelItem stands for the messages from first to before end; for one alone if
// summary is nil.
type modelItem struct {
	first, end int
	summary    *memory.Summary
}

// visit draws somebody and a session, which may be another's.
func (w *world) visit(r *rapid.T) (memory.UserID, *modelSession) {
	return rapid.SampledFrom(w.users).Draw(r, "user"), rapid.SampledFrom(w.sessions).Draw(r, "session")
}

func (w *world) draft(r *rapid.T, user memory.UserID) memory.Draft {
	d := memory.Draft{
		Role: rapid.SampledFrom([]memory.Role{memory.RoleUser, memory.RoleAssistant, memory.RoleTool}).Draw(r, "role"),
		Source: rapid.SampledFrom([]memory.Source{
			memory.SourceUnknown, memory.SourceUser, memory.SourceAssistant, memory.SourceTool, memory.SourceAutonomousTick,
		}).Draw(r, "source"),
		Blocks:   []memory.Block{memory.Text("canary " + user.String() + rapid.String().Draw(r, "text"))},
		EventKey: rapid.SampledFrom([]string{"", "", "", "a", "b"}).Draw(r, "key"),
		At:       at.Add(time.Duration(rapid.IntRange(0, 1e6).Draw(r, "millisecond")) * time.Millisecond),
	}
	if rapid.IntRange(0, 3).Draw(r, "external") == 0 {
		d.Blocks = append(d.Blocks, memory.External(content(r, "outside "+user.String())))
	}
	if rapid.IntRange(0, 3).Draw(r, "call") == 0 {
		d.Blocks = append(d.Blocks, memory.ToolCall("c1", "search", []byte("{}")))
	}
	if rapid.IntRange(0, 3).Draw(r, "result") == 0 {
		d.Blocks = append(d.Blocks, memory.ToolResult("c1", "search", content(r, "outside "+user.String()), false))
	}
	return d
}

func (w *world) append(r *rapid.T) {
	user, s := w.visit(r)
	var drafts []memory.Draft
	for range rapid.IntRange(0, 4).Draw(r, "messages") {
		drafts = append(drafts, w.draft(r, user))
	}
	stored, err := w.f.store.Append(w.f.t.Context(), user, s.id, drafts...)
	if user != s.user {
		wants(r, err, memory.ErrNotFound)
		return
	}
	check(r, err)
	if len(stored) != len(drafts) {
		r.Fatalf("%d drafts became %d messages", len(drafts), len(stored))
	}
	for i, d := range drafts {
		if known, ok := s.byKey[d.EventKey]; ok {
			equal(r, stored[i], known)
			continue
		}
		s.add(r, d, stored[i])
	}
}

func (w *world) inject(r *rapid.T) {
	user, s := w.visit(r)
	i := memory.Injection{At: at, Blocks: []boundary.Content{content(r, "outside "+user.String())}}
	stored, err := w.f.store.Inject(w.f.t.Context(), user, s.id, i)
	if user != s.user {
		wants(r, err, memory.ErrNotFound)
		return
	}
	check(r, err)
	s.add(r, i.Draft(), stored)
}

// add puts the message that became of d at the end.
func (s *modelSession) add(r *rapid.T, d memory.Draft, m memory.Message) {
	want := memory.Message{
		ID: m.ID, Session: s.id, Seq: int64(len(s.messages) + 1), Role: d.Role, Source: d.Source, Blocks: m.Blocks,
		Tokens: memory.Count(d.Blocks), Trust: d.Sealed(), EventKey: d.EventKey, At: d.At.UTC().Truncate(time.Microsecond),
	}
	equal(r, m, want)
	equal(r, encoded(r, m.Blocks), encoded(r, d.Blocks))
	s.messages = append(s.messages, m)
	s.frontier = append(s.frontier, modelItem{first: len(s.messages) - 1, end: len(s.messages)})
	if d.EventKey != "" {
		s.byKey[d.EventKey] = m
	}
}

func encoded(t tester, blocks []memory.Block) (all []string) {
	t.Helper()
	for _, b := range blocks {
		all = append(all, string(must(b.MarshalJSON())(t)))
	}
	return all
}

// commit replaces a run that the model draws from its own frontier.
func (w *world) commit(r *rapid.T) {
	user, s := w.visit(r)
	frontier := must(w.f.store.Frontier(w.f.t.Context(), s.user, s.id))(r)
	if rapid.Bool().Draw(r, "remember") {
		s.read, s.replaced = frontier.Revision, false
	}
	if len(s.frontier) == 0 {
		return
	}
	from := rapid.IntRange(0, len(s.frontier)-1).Draw(r, "from")
	to := from
	for to < len(s.frontier) && s.frontier[to].summary == nil && to-from < 5 {
		to++
	}
	if to > from+1 {
		to = rapid.IntRange(from+1, to).Draw(r, "to")
	}
	if to == from {
		return
	}
	first, end := s.frontier[from].first, s.frontier[to-1].end
	leaf := leafOf(s.messages[first:end], "summary of "+user.String())
	if rapid.Bool().Draw(r, "external") {
		leaf.External = content(r, "outside "+user.String())
	}
	made, err := w.f.store.CommitSummary(w.f.t.Context(), user, frontier.Revision, leaf)
	if user != s.user {
		wants(r, err, memory.ErrNotFound)
		return
	}
	check(r, err)
	s.summaries = append(s.summaries, made)
	s.frontier = slices.Replace(s.frontier, from, to, modelItem{first, end, &made})
	s.replaced = true
}

// commitTooOld comes with a revision from before the last replacement.
func (w *world) commitTooOld(r *rapid.T) {
	_, s := w.visit(r)
	if s.read == (memory.Revision{}) || !s.replaced || len(s.messages) == 0 {
		return
	}
	_, err := w.f.store.CommitSummary(w.f.t.Context(), s.user, s.read, leafOf(s.messages[len(s.messages)-1:], "late"))
	wants(r, err, memory.ErrConflict)
}

// look compares all that somebody can read of a session with the model.
func (w *world) look(r *rapid.T) {
	ctx, store := w.f.t.Context(), w.f.store
	user, s := w.visit(r)
	session, err := store.Session(ctx, user, s.id)
	if user != s.user {
		w.strangerSees(r, user, s, err)
		return
	}
	check(r, err)
	equal(r, session, s.session(w.f.agent))
	messages := must(store.Messages(ctx, user, s.id, memory.MessageQuery{}))(r)
	equalLists(r, messages, s.messages)
	equalLists(r, must(store.Summaries(ctx, user, s.id))(r), s.summaries)
	frontier := must(store.Frontier(ctx, user, s.id))(r)
	if len(frontier.Items) != len(s.frontier) {
		r.Fatalf("the frontier has %d items, want %d", len(frontier.Items), len(s.frontier))
	}
	wantsTail(ctx, r, store, user, frontier, rapid.IntRange(0, frontier.Tokens()+1).Draw(r, "tail"))
	var covered []memory.Message
	for i, item := range frontier.Items {
		if want := s.frontier[i].summary; want != nil {
			if item.Summary == nil {
				r.Fatalf("item %d is no summary", i)
			}
			equal(r, *item.Summary, *want)
			covered = append(covered, must(store.Expand(ctx, user, want.ID, memory.MessageQuery{}))(r)...)
		} else {
			covered = append(covered, *item.Message)
		}
	}
	equalLists(r, covered, s.messages)
	for _, other := range must(store.Sessions(ctx, user, memory.SessionQuery{}))(r) {
		if other.User != user {
			r.Fatalf("%s lists a session of %s", user, other.User)
		}
	}
}

// strangerSees proves that what is not the user's is as if it did not exist.
func (w *world) strangerSees(r *rapid.T, stranger memory.UserID, s *modelSession, err error) {
	ctx, store := w.f.t.Context(), w.f.store
	wants(r, err, memory.ErrNotFound)
	_, err = store.Messages(ctx, stranger, s.id, memory.MessageQuery{})
	wants(r, err, memory.ErrNotFound)
	_, err = store.Frontier(ctx, stranger, s.id)
	wants(r, err, memory.ErrNotFound)
	_, _, err = store.FrontierTail(ctx, stranger, s.id, 1)
	wants(r, err, memory.ErrNotFound)
	_, err = store.Summaries(ctx, stranger, s.id)
	wants(r, err, memory.ErrNotFound)
	for _, v := range s.summaries {
		_, err = store.Expand(ctx, stranger, v.ID, memory.MessageQuery{})
		wants(r, err, memory.ErrNotFound)
		if err != nil && strings.Contains(err.Error(), v.Text) {
			r.Errorf("the refusal tells what it refuses: %v", err)
		}
	}
}

// session is what the messages make of it.
func (s *modelSession) session(agent memory.AgentID) memory.Session {
	want := memory.Session{ID: s.id, Agent: agent, User: s.user, CreatedAt: kept, LastActive: kept, Messages: len(s.messages)}
	unanswered := 0
	for _, m := range s.messages {
		if m.Source.IsActivity() && m.At.After(want.LastActive) {
			want.LastActive = m.At
		}
		if m.Source == memory.SourceUser || m.Source == memory.SourceUnknown && m.Role == memory.RoleUser {
			want.UserMessages++
			unanswered++
		} else if m.Role == memory.RoleAssistant && unanswered > 0 && !slices.ContainsFunc(m.Blocks, func(b memory.Block) bool { return b.Type == memory.BlockToolCall }) {
			want.Exchanges++
			unanswered = 0
		}
	}
	return want
}

func equalLists[T any](t tester, got, want []T) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatal(fmt.Sprintf("%d of %d", len(got), len(want)))
	}
	for i := range got {
		equal(t, got[i], want[i])
	}
}
