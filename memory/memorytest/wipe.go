package memorytest

import (
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/memory"
)

// S7, what every engine keeps: a wipe counts, takes everything of one user and
// nothing of another, and finds nothing the second time.
func testWipeUser(t *testing.T, f *fixture) {
	ctx := t.Context()
	own, others := f.session(f.user), f.session(f.other)
	child := must(f.store.CreateSession(ctx, memory.Session{Agent: f.agent, User: f.user, Parent: own, CreatedAt: at}))(t)
	messages := f.append(own, says(memory.RoleUser, "one", 0), says(memory.RoleAssistant, "two", time.Second))
	f.append(child.ID, says(memory.RoleUser, "three", 0))
	frontier := must(f.store.Frontier(ctx, f.user, own))(t)
	must(f.store.CommitSummary(ctx, f.user, frontier.Revision, memory.NewSummary{
		ID: memory.NewID[memory.SummaryID](), Messages: []memory.MessageID{messages[0].ID, messages[1].ID},
		SummaryText: memory.SummaryText{Text: "both", Level: memory.LevelNormal, Model: "test"}, At: at,
	}))(t)
	check(t, f.store.RecordCompaction(ctx, f.user, memory.CompactionRun{Session: own, Agent: f.agent, Trigger: "manual", Outcome: "done", StartedAt: at}))
	kept := must(f.store.Append(ctx, f.other, others, says(memory.RoleUser, "theirs", 0)))(t)

	equal(t, must(f.store.WipeMemory(ctx, f.user))(t), memory.WipeCounts{})
	equal(t, len(must(f.store.Sessions(ctx, f.user, memory.SessionQuery{}))(t)), 2)
	equal(t, must(f.store.WipeUser(ctx, f.user))(t), memory.WipeCounts{Sessions: 2, Messages: 3, Summaries: 1, Compactions: 1})
	for range 2 {
		equal(t, must(f.store.WipeUser(ctx, f.user))(t), memory.WipeCounts{})
		if !must(f.store.Scrub(ctx))(t) {
			t.Error("nobody reads, and yet the scrub is not done")
		}
		_, err := f.store.Session(ctx, f.user, own)
		wants(t, err, memory.ErrNotFound)
		_, err = f.store.Message(ctx, f.user, messages[0].ID)
		wants(t, err, memory.ErrNotFound)
		equal(t, must(f.store.Messages(ctx, f.other, others, memory.MessageQuery{}))(t), kept)
		f.reopen()
	}
	// The default user is emptied and can begin anew, by the first name.
	user := must(f.store.DefaultUser(ctx))(t)
	equal(t, user.ID, f.user)
	equal(t, user.Name, memory.DefaultUserName)
	f.append(f.session(f.user), says(memory.RoleUser, "again", 0))
	// Another one is gone.
	equal(t, must(f.store.WipeUser(ctx, f.other))(t), memory.WipeCounts{Sessions: 1, Messages: 1, Users: 1})
	equal(t, len(must(f.store.Users(ctx))(t)), 1)
	_, err := f.store.CreateSession(ctx, memory.Session{Agent: f.agent, User: f.other, CreatedAt: at})
	wants(t, err, memory.ErrNotFound)
	equal(t, must(f.store.WipeUser(ctx, memory.NewID[memory.UserID]()))(t), memory.WipeCounts{})
}

// While a wipe stands nothing is written for its user, and everything for others.
func testBegunWipes(t *testing.T, f *fixture) {
	ctx := t.Context()
	session, others := f.session(f.other), f.session(f.user)
	wants(t, f.store.BeginWipe(ctx, memory.NewID[memory.UserID](), at), memory.ErrNotFound)
	message := must(f.store.Append(ctx, f.other, session, says(memory.RoleUser, "theirs", 0)))(t)[0]
	frontier := must(f.store.Frontier(ctx, f.other, session))(t)
	check(t, f.store.BeginWipe(ctx, f.other, at))
	check(t, f.store.BeginWipe(ctx, f.other, at.Add(time.Hour)))
	check(t, f.store.BeginWipe(ctx, f.user, at.Add(-time.Hour)))
	check(t, f.store.EndWipe(ctx, f.user))
	f.reopen()
	equal(t, must(f.store.Wipes(ctx))(t), []memory.Wipe{{User: f.other, BegunAt: kept}})
	summary := memory.NewSummary{ID: memory.NewID[memory.SummaryID](), Messages: []memory.MessageID{message.ID}, SummaryText: memory.SummaryText{Text: "x", Level: memory.LevelFallback}, At: at}
	for name, write := range map[string]func() error{
		"Append": func() error {
			_, err := f.store.Append(ctx, f.other, session, says(memory.RoleUser, "x", 0))
			return err
		},
		"Inject": func() error {
			_, err := f.store.Inject(ctx, f.other, session, memory.Injection{Blocks: []boundary.Content{content(t, "x")}, At: at})
			return err
		},
		"Ingest": func() error {
			_, err := f.store.Ingest(ctx, f.other, session, says(memory.RoleUser, "x", 0))
			return err
		},
		"CreateSession": func() error {
			_, err := f.store.CreateSession(ctx, memory.Session{Agent: f.agent, User: f.other, CreatedAt: at})
			return err
		},
		"CommitSummary": func() error {
			_, err := f.store.CommitSummary(ctx, f.other, frontier.Revision, summary)
			return err
		},
		"RecordCompaction": func() error {
			return f.store.RecordCompaction(ctx, f.other, memory.CompactionRun{Session: session, Agent: f.agent, StartedAt: at})
		},
		"PutPendingRun": func() error {
			return f.store.PutPendingRun(ctx, memory.PendingRun{User: f.other, Agent: f.agent, Session: session, Trigger: memory.TriggerGap, At: at})
		},
		"CommitExtraction": func() error {
			_, err := f.store.CommitExtraction(ctx, f.other, memory.NewExtraction{Session: session, Seen: []memory.SeqRange{{First: 1, Last: 1}}, At: at})
			return err
		},
		"CommitDream": func() error { return f.dreamOf(ctx, f.other, memory.Dream{Session: session}) },
		"PutTopic": func() error {
			_, err := f.store.PutTopic(ctx, f.other, memory.AgentID{}, memory.TopicRevision{}, memory.NewTopic{Name: "x", Content: "x"}, at)
			return err
		},
		"PutUser": func() error {
			return f.store.PutUser(ctx, memory.User{ID: f.other, Name: "renamed", CreatedAt: at})
		},
	} {
		if err := write(); err == nil {
			t.Errorf("%s writes for a user who is being wiped", name)
		} else {
			wants(t, err, memory.ErrWiped)
		}
	}
	f.append(others, says(memory.RoleUser, "mine", 0))
	equal(t, must(f.store.WipeUser(ctx, f.other))(t), memory.WipeCounts{Sessions: 1, Messages: 1, Users: 1})
	// The row stands until the wipe is ended, whoever is gone.
	equal(t, len(must(f.store.Wipes(ctx))(t)), 1)
	wants(t, f.store.PutUser(ctx, memory.User{ID: f.other, Name: "other", CreatedAt: at}), memory.ErrWiped)
	check(t, f.store.EndWipe(ctx, f.other))
	check(t, f.store.EndWipe(ctx, f.other))
	equal(t, len(must(f.store.Wipes(ctx))(t)), 0)
	check(t, f.store.PutUser(ctx, memory.User{ID: f.other, Name: "other", CreatedAt: at}))
}

func testDeleteSession(t *testing.T, f *fixture) {
	ctx := t.Context()
	parent, other := f.session(f.user), f.session(f.user)
	child := must(f.store.CreateSession(ctx, memory.Session{Agent: f.agent, User: f.user, Parent: parent, CreatedAt: at}))(t)
	message := f.append(parent, says(memory.RoleUser, "one", 0))[0]
	kept := f.append(other, says(memory.RoleUser, "two", 0))
	wants(t, f.store.DeleteSession(ctx, f.other, parent), memory.ErrNotFound)
	check(t, f.store.DeleteSession(ctx, f.user, parent))
	wants(t, f.store.DeleteSession(ctx, f.user, parent), memory.ErrNotFound)
	f.reopen()
	_, err := f.store.Message(ctx, f.user, message.ID)
	wants(t, err, memory.ErrNotFound)
	equal(t, must(f.store.Session(ctx, f.user, child.ID))(t).Parent, memory.SessionID{})
	equal(t, must(f.store.Messages(ctx, f.user, other, memory.MessageQuery{}))(t), kept)
	f.append(child.ID, says(memory.RoleUser, "three", 0))
}
