package memorytest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/memory"
)

// fact is one fact that messages say.
func fact(text string, messages ...memory.Message) memory.Learnings {
	item := memory.Learned{Text: text}
	for _, m := range messages {
		item.Sources = append(item.Sources, m.ID)
	}
	return memory.Learnings{Facts: []memory.Learned{item}}
}

// learn stores an extraction of the default user's session.
func (f *fixture) learn(session memory.SessionID, first, last int64, l memory.Learnings) memory.Extraction {
	f.t.Helper()
	return must(f.store.CommitExtraction(f.t.Context(), f.user, memory.NewExtraction{Session: session, Seen: []memory.SeqRange{{First: first, Last: last}}, Learnings: l, At: at}))(f.t)
}

// topics are those of the default user.
func (f *fixture) topics(q memory.TopicQuery) []memory.Topic {
	f.t.Helper()
	topics, r, err := f.store.Topics(f.t.Context(), f.user, q)
	check(f.t, err)
	equal(f.t, r.User(), f.user)
	return topics
}

// dream commits d for the default user and the fixture's agent.
func (f *fixture) dream(d memory.Dream) []memory.Topic {
	f.t.Helper()
	_, r, err := f.store.Topics(f.t.Context(), f.user, memory.TopicQuery{})
	check(f.t, err)
	d.Agent = f.agent
	if d.At.IsZero() {
		d.At = at
	}
	return must(f.store.CommitDream(f.t.Context(), f.user, r, d))(f.t)
}

func (f *fixture) extractions(q memory.ExtractionQuery) []memory.Extraction {
	f.t.Helper()
	return must(f.store.Extractions(f.t.Context(), f.user, q))(f.t)
}

// mixed appends one message of each kind, the user's first and last.
func (f *fixture) mixed(session memory.SessionID) []memory.Message {
	f.t.Helper()
	tick := says("user", "tick", 2*time.Second)
	tick.Source = memory.SourceScheduledTick
	unknown := says("user", "of an older time", 3*time.Second)
	unknown.Source = memory.SourceUnknown
	result := says("tool", "", 4*time.Second)
	result.Blocks = []memory.Block{memory.ToolResult("c1", "search", content(f.t, "found"), false)}
	f.append(session, says("user", "I have a boat", 0), says("assistant", "a boat", time.Second), tick, unknown, result)
	must(f.store.Inject(f.t.Context(), f.user, session, memory.Injection{At: at, Blocks: []boundary.Content{content(f.t, "outside")}}))(f.t)
	f.append(session, says("user", "and a dog", 5*time.Second))
	return must(f.store.Messages(f.t.Context(), f.user, session, memory.MessageQuery{}))(f.t)
}

func testPendingRuns(t *testing.T, f *fixture) {
	ctx := t.Context()
	one, two, others := f.session(f.user), f.session(f.user), f.session(f.other)
	equal(t, len(must(f.store.PendingRuns(ctx))(t)), 0)
	run := func(user memory.UserID, session memory.SessionID, trigger memory.Trigger, exchanges int, after time.Duration) memory.PendingRun {
		return memory.PendingRun{User: user, Agent: f.agent, Session: session, Trigger: trigger, Exchanges: exchanges, At: kept.Add(after)}
	}
	runs := []memory.PendingRun{
		run(f.other, others, memory.TriggerCadence, 3, time.Second), run(f.user, one, memory.TriggerGap, 0, time.Minute),
		run(f.user, two, memory.TriggerCadence, 1, 2*time.Minute), run(f.user, one, memory.TriggerCadence, 5, time.Hour),
	}
	check(t, f.store.PutPendingRun(ctx, run(f.user, one, memory.TriggerCadence, 4, 0)))
	for _, r := range slices.Backward(runs) {
		check(t, f.store.PutPendingRun(ctx, r))
	}
	f.reopen()
	equal(t, must(f.store.PendingRuns(ctx))(t), runs)

	wants(t, f.store.PutPendingRun(ctx, run(f.other, one, memory.TriggerGap, 0, 0)), memory.ErrNotFound)
	stranger := run(f.user, one, memory.TriggerGap, 0, 0)
	stranger.Agent = must(f.store.PutAgent(ctx, "stranger", "", at))(t).ID
	wants(t, f.store.PutPendingRun(ctx, stranger), memory.ErrNotFound)
	wants(t, f.store.PutPendingRun(ctx, run(f.user, one, "whim", 0, 0)), memory.ErrInvalid)
	wants(t, f.store.PutPendingRun(ctx, memory.PendingRun{User: f.user, Agent: f.agent, Session: one, Trigger: memory.TriggerGap}), memory.ErrInvalid)

	// Another user ends nothing, and what is over is over once.
	check(t, f.store.EndPendingRun(ctx, f.user, others, memory.TriggerCadence, kept.Add(time.Hour)))
	check(t, f.store.EndPendingRun(ctx, f.user, one, memory.TriggerManual, kept.Add(time.Hour)))
	// What became due later than what is over stays.
	check(t, f.store.EndPendingRun(ctx, f.user, one, memory.TriggerCadence, kept.Add(time.Hour-time.Microsecond)))
	equal(t, must(f.store.PendingRuns(ctx))(t), runs)
	for range 2 {
		check(t, f.store.EndPendingRun(ctx, f.user, one, memory.TriggerCadence, kept.Add(time.Hour)))
		equal(t, must(f.store.PendingRuns(ctx))(t), runs[:3])
	}
	// Nor does what became due while it went on end with it if the clock was set back
	// meanwhile. What is put again is the same run.
	late := run(f.user, one, memory.TriggerCadence, 10, -time.Hour)
	for _, begun := range []memory.PendingRun{runs[3], runs[3], late} {
		check(t, f.store.PutPendingRun(ctx, begun))
	}
	check(t, f.store.EndPendingRun(ctx, f.user, one, memory.TriggerCadence, runs[3].At))
	pending := must(f.store.PendingRuns(ctx))(t)
	late.At = runs[3].At.Add(time.Microsecond)
	equal(t, pending[len(pending)-1], late)
	check(t, f.store.EndPendingRun(ctx, f.user, one, memory.TriggerCadence, late.At))
	equal(t, must(f.store.PendingRuns(ctx))(t), runs[:3])
	check(t, f.store.DeleteSession(ctx, f.user, one))
	equal(t, must(f.store.PendingRuns(ctx))(t), []memory.PendingRun{runs[0], runs[2]})
	must(f.store.WipeUser(ctx, f.other))(t)
	equal(t, must(f.store.PendingRuns(ctx))(t), runs[2:3])
}

// A run is due with the message that makes it so, or not at all, and an answer that
// is stored again makes none.
func testRunsAreDueWithAMessage(t *testing.T, f *fixture) {
	ctx := t.Context()
	session := f.session(f.user)
	say := func(after time.Duration, key string) {
		t.Helper()
		answer := says("assistant", "y", after)
		answer.EventKey = key
		answer.Runs = []memory.DueRun{
			{Trigger: memory.TriggerCadence, Every: 2}, {Trigger: memory.TriggerThreshold, Budget: 4000, System: 100},
		}
		must(f.store.Append(ctx, f.user, session, says("user", "x", after), answer))(t)
	}
	cadence := func(exchanges int, after time.Duration) memory.PendingRun {
		return memory.PendingRun{User: f.user, Agent: f.agent, Session: session, Trigger: memory.TriggerCadence, Exchanges: exchanges, At: kept.Add(after)}
	}
	threshold := func(exchanges int, after time.Duration) memory.PendingRun {
		run := cadence(exchanges, after)
		run.Trigger, run.Budget, run.System = memory.TriggerThreshold, 4000, 100
		return run
	}
	say(0, "first")
	equal(t, must(f.store.PendingRuns(ctx))(t), []memory.PendingRun{threshold(1, 0)})
	say(time.Minute, "")
	equal(t, must(f.store.PendingRuns(ctx))(t), []memory.PendingRun{cadence(2, time.Minute), threshold(2, time.Minute)})
	check(t, f.store.EndPendingRun(ctx, f.user, session, memory.TriggerThreshold, kept.Add(time.Minute)))
	say(2*time.Minute, "first")
	f.reopen()
	equal(t, must(f.store.PendingRuns(ctx))(t), []memory.PendingRun{cadence(2, time.Minute)})
	// A call is no answer yet: the exchange goes on.
	call := memory.Draft{Role: memory.RoleAssistant, Source: memory.SourceAssistant, Blocks: []memory.Block{memory.ToolCall("c", "look", []byte("{}"))}, At: at.Add(3 * time.Minute), Runs: []memory.DueRun{{Trigger: memory.TriggerCadence, Every: 1}}}
	must(f.store.Append(ctx, f.user, session, says("user", "x", 3*time.Minute), call))(t)
	equal(t, must(f.store.PendingRuns(ctx))(t), []memory.PendingRun{cadence(2, time.Minute)})
	for _, run := range []memory.DueRun{{Trigger: memory.TriggerGap}, {Trigger: memory.TriggerCadence, Every: -1}, {Trigger: memory.TriggerThreshold, Budget: -1}} {
		refused := says("assistant", "y", 4*time.Minute)
		refused.Runs = []memory.DueRun{run}
		_, err := f.store.Append(ctx, f.user, session, refused)
		wants(t, err, memory.ErrInvalid)
	}
}

// Each user has a turn, with what was due first, however much another has.
func testTurnsOfUsers(t *testing.T, f *fixture) {
	ctx := t.Context()
	users := []memory.UserID{f.user, f.other}
	for i := range 3 {
		id := memory.NewID[memory.UserID]()
		check(t, f.store.PutUser(ctx, memory.User{ID: id, Name: fmt.Sprint("turn", i), CreatedAt: at}))
		users = append(users, id)
	}
	slices.SortFunc(users, func(a, b memory.UserID) int { return slices.Compare(a[:], b[:]) })
	nextRun := func(after memory.UserID) (memory.UserID, memory.SessionID) {
		t.Helper()
		run, err := f.store.NextPendingRun(ctx, after)
		if !errors.Is(err, memory.ErrNotFound) {
			check(t, err)
		}
		return run.User, run.Session
	}
	except := []memory.SessionID{}
	nextIdle := func(after memory.UserID) (memory.UserID, memory.SessionID) {
		t.Helper()
		idle, err := f.store.NextIdleSession(ctx, memory.DueQuery{Agents: []memory.AgentID{f.agent}, IdleSince: at.Add(time.Hour), After: after, Except: except})
		if !errors.Is(err, memory.ErrNotFound) {
			check(t, err)
			equal(t, idle.LastActive, must(f.store.Session(ctx, idle.User, idle.Session))(t).LastActive)
		}
		return idle.User, idle.Session
	}
	for _, next := range []func(memory.UserID) (memory.UserID, memory.SessionID){nextRun, nextIdle} {
		if user, _ := next(memory.UserID{}); !user.IsZero() {
			t.Errorf("of nothing, %s is next", user)
		}
	}
	// The first has much, and the second nothing.
	due := map[memory.UserID][]memory.SessionID{}
	for i, user := range users {
		for n := range []int{5, 0, 2, 1, 2}[i] {
			// The later a session was made, the earlier it was due.
			session := f.session(user)
			first := time.Duration(60-10*n-i) * time.Second
			answer := says("assistant", "y", first)
			answer.Runs = []memory.DueRun{{Trigger: memory.TriggerCadence}}
			must(f.store.Append(ctx, user, session, says("user", "x", first), answer))(t)
			due[user] = append([]memory.SessionID{session}, due[user]...)
		}
	}
	for _, next := range []func(memory.UserID) (memory.UserID, memory.SessionID){nextRun, nextIdle} {
		after := memory.UserID{}
		for _, i := range []int{0, 2, 3, 4} {
			user, session := next(after)
			equal(t, user, users[i])
			equal(t, session, due[user][0])
			after = user
		}
		user, _ := next(after)
		equal(t, user, memory.UserID{})
	}
	// What is over, or left alone, lets the next one of its user come.
	most := users[0]
	check(t, f.store.EndPendingRun(ctx, most, due[most][0], memory.TriggerCadence, at.Add(time.Hour)))
	_, session := nextRun(memory.UserID{})
	equal(t, session, due[most][1])
	except = due[most][:2]
	_, session = nextIdle(memory.UserID{})
	equal(t, session, due[most][2])
	except = due[most]
	user, _ := nextIdle(memory.UserID{})
	equal(t, user, users[2])
	except = nil
	// One that is due again keeps its place, unless it becomes due while it goes on:
	// then it is behind the others.
	again := func(session memory.SessionID, after time.Duration) {
		t.Helper()
		check(t, f.store.PutPendingRun(ctx, memory.PendingRun{User: most, Agent: f.agent, Session: session, Trigger: memory.TriggerCadence, Exchanges: 2, At: at.Add(after)}))
	}
	again(due[most][1], time.Hour)
	_, session = nextRun(memory.UserID{})
	equal(t, session, due[most][1])
	check(t, f.store.EndPendingRun(ctx, most, due[most][1], memory.TriggerCadence, at.Add(time.Minute)))
	_, session = nextRun(memory.UserID{})
	equal(t, session, due[most][2])
	// Who has not rested, is with another agent or is being wiped has no turn.
	rested := func(since time.Duration, agents ...memory.AgentID) memory.UserID {
		t.Helper()
		idle, err := f.store.NextIdleSession(ctx, memory.DueQuery{Agents: agents, IdleSince: at.Add(since)})
		if !errors.Is(err, memory.ErrNotFound) {
			check(t, err)
		}
		return idle.User
	}
	equal(t, rested(25*time.Second, f.agent), most)
	equal(t, rested(25*time.Second), memory.UserID{})
	equal(t, rested(25*time.Second, memory.NewID[memory.AgentID]()), memory.UserID{})
	check(t, f.store.BeginWipe(ctx, most, at))
	equal(t, rested(25*time.Second, f.agent), memory.UserID{})
	equal(t, rested(time.Hour, f.agent), users[2])
	user, _ = nextRun(memory.UserID{})
	equal(t, user, users[2])
	check(t, f.store.EndWipe(ctx, most))
	equal(t, rested(time.Hour, f.agent), most)
	// It is the same turn with whichever agent there is something to learn.
	second := must(f.store.PutAgent(ctx, "second", "", at))(t).ID
	withSecond := func(user memory.UserID, after time.Duration) memory.SessionID {
		t.Helper()
		session := must(f.store.CreateSession(ctx, memory.Session{Agent: second, User: user, CreatedAt: at}))(t).ID
		must(f.store.Append(ctx, user, session, says("user", "x", after)))(t)
		return session
	}
	earlier, alone := withSecond(users[2], 40*time.Second), withSecond(users[1], 70*time.Second)
	for _, agents := range [][]memory.AgentID{{f.agent, second}, {second, f.agent}} {
		next := func(after memory.UserID) memory.IdleSession {
			t.Helper()
			return must(f.store.NextIdleSession(ctx, memory.DueQuery{Agents: agents, IdleSince: at.Add(time.Hour), After: after}))(t)
		}
		idle := next(users[0])
		equal(t, []any{idle.Session, idle.Agent}, []any{alone, second})
		idle = next(users[1])
		equal(t, []any{idle.Session, idle.Agent}, []any{earlier, second})
		idle = next(users[2])
		equal(t, []any{idle.Session, idle.Agent}, []any{due[users[3]][0], f.agent})
	}
	equal(t, must(f.store.NextIdleSession(ctx, memory.DueQuery{Agents: []memory.AgentID{f.agent}, IdleSince: at.Add(time.Hour), After: users[1]}))(t).Session, due[users[2]][0])
}

func testExtractions(t *testing.T, f *fixture) {
	ctx := t.Context()
	session := f.session(f.user)
	messages := f.mixed(session)
	boat, dog := messages[0].ID, messages[6].ID
	equal(t, len(f.extractions(memory.ExtractionQuery{})), 0)
	first := must(f.store.CommitExtraction(ctx, f.user, memory.NewExtraction{
		Session: session, Seen: []memory.SeqRange{{First: 5, Last: 5}, {First: 1, Last: 2}}, At: at,
		Learnings: memory.Learnings{
			Facts:     []memory.Learned{{Text: "  has a\n\u202eboat\x00 ", Sources: []memory.MessageID{dog, boat, dog}}, {Text: "has\xff \t a dog", Sources: []memory.MessageID{dog}}},
			OpenItems: []memory.Learned{{Text: "name of the boat", Sources: []memory.MessageID{boat}}},
		},
	}))(t)
	if first.ID.IsZero() {
		t.Error("it has no id")
	}
	none := []memory.Learned{}
	equal(t, first, memory.Extraction{ID: first.ID, Agent: f.agent, Session: session, CreatedAt: kept, Learnings: memory.Learnings{
		Facts:       []memory.Learned{{Text: "has a boat", Sources: []memory.MessageID{dog, boat}}, {Text: "has\ufffd a dog", Sources: []memory.MessageID{dog}}},
		Preferences: none, Decisions: none, Tasks: none, OpenItems: []memory.Learned{{Text: "name of the boat", Sources: []memory.MessageID{boat}}},
	}})
	// What teaches nothing is recorded, and no dream is to look at it.
	nothing := must(f.store.CommitExtraction(ctx, f.user, memory.NewExtraction{Session: session, Seen: []memory.SeqRange{{First: 3, Last: 3}}, At: at.Add(time.Minute)}))(t)
	equal(t, nothing.MergedAt, nothing.CreatedAt)
	other := must(f.store.PutAgent(ctx, "other", "", at))(t)
	elsewhere := must(f.store.CreateSession(ctx, memory.Session{Agent: other.ID, User: f.user, CreatedAt: at}))(t)
	said := f.append(elsewhere.ID, says("user", "I row", 0))
	third := must(f.store.CommitExtraction(ctx, f.user, memory.NewExtraction{Session: elsewhere.ID, Seen: []memory.SeqRange{{First: 1, Last: 1}}, Learnings: fact("rows", said...), At: at.Add(-time.Hour)}))(t)
	equal(t, third.Agent, other.ID)

	f.reopen()
	all := []memory.Extraction{third, first, nothing}
	for _, test := range []struct {
		q    memory.ExtractionQuery
		want []memory.Extraction
	}{
		{memory.ExtractionQuery{}, all},
		{memory.ExtractionQuery{Limit: 2}, all[:2]},
		{memory.ExtractionQuery{After: third.ID}, all[1:]},
		{memory.ExtractionQuery{After: nothing.ID}, nil},
		{memory.ExtractionQuery{After: memory.NewID[memory.ExtractionID]()}, all},
		{memory.ExtractionQuery{Agent: f.agent}, all[1:]},
		{memory.ExtractionQuery{Pending: true}, all[:2]},
		{memory.ExtractionQuery{Agent: f.agent, Pending: true, After: third.ID, Limit: 1}, all[1:2]},
		{memory.ExtractionQuery{Agent: memory.NewID[memory.AgentID]()}, nil},
	} {
		if got := f.extractions(test.q); len(got)+len(test.want) > 0 {
			equal(t, got, test.want)
		}
	}
	equal(t, len(must(f.store.Extractions(ctx, f.other, memory.ExtractionQuery{}))(t)), 0)
	equal(t, len(must(f.store.Extractions(ctx, memory.NewID[memory.UserID](), memory.ExtractionQuery{}))(t)), 0)
}

func testExtractionRefuses(t *testing.T, f *fixture) {
	ctx := t.Context()
	session, second := f.session(f.user), f.session(f.user)
	messages := f.mixed(session)
	elsewhere := f.append(second, says("user", "elsewhere", 0))
	theirs := f.session(f.other)
	foreign := must(f.store.Append(ctx, f.other, theirs, says("user", "theirs", 0)))(t)
	f.learn(session, 3, 3, memory.Learnings{})
	seen := func(runs ...int64) (list []memory.SeqRange) {
		for i := 0; i < len(runs); i += 2 {
			list = append(list, memory.SeqRange{First: runs[i], Last: runs[i+1]})
		}
		return list
	}
	sources := make([]memory.MessageID, memory.MaxTopicSources+1)
	for i := range sources {
		sources[i] = memory.NewID[memory.MessageID]()
	}
	before := f.everything(session)
	for _, test := range []struct {
		name string
		n    memory.NewExtraction
		want error
	}{
		{"nothing looked at", memory.NewExtraction{}, memory.ErrInvalid},
		{"before the first", memory.NewExtraction{Seen: seen(0, 1)}, memory.ErrInvalid},
		{"after the last", memory.NewExtraction{Seen: seen(4, 8)}, memory.ErrInvalid},
		{"the end before the beginning", memory.NewExtraction{Seen: seen(5, 4)}, memory.ErrInvalid},
		{"one that was looked at", memory.NewExtraction{Seen: seen(1, 1, 3, 3)}, memory.ErrConflict},
		{"a run around it", memory.NewExtraction{Seen: seen(1, 7)}, memory.ErrConflict},
		{"a blank text", memory.NewExtraction{Seen: seen(1, 1), Learnings: fact(" \n\u200b", messages[0])}, memory.ErrInvalid},
		{"a long text", memory.NewExtraction{Seen: seen(1, 1), Learnings: fact(longText(memory.MaxTopicContent+1), messages[0])}, memory.ErrInvalid},
		{"no source", memory.NewExtraction{Seen: seen(1, 1), Learnings: fact("x")}, memory.ErrInvalid},
		{"the zero source", memory.NewExtraction{Seen: seen(1, 1), Learnings: fact("x", memory.Message{})}, memory.ErrInvalid},
		{"the assistant's message", memory.NewExtraction{Seen: seen(1, 1), Learnings: fact("x", messages[1])}, memory.ErrInvalid},
		{"a tick", memory.NewExtraction{Seen: seen(1, 1), Learnings: fact("x", messages[2])}, memory.ErrInvalid},
		{"an unknown source", memory.NewExtraction{Seen: seen(1, 1), Learnings: fact("x", messages[3])}, memory.ErrInvalid},
		{"a tool's result", memory.NewExtraction{Seen: seen(1, 1), Learnings: fact("x", messages[4])}, memory.ErrInvalid},
		{"an injection", memory.NewExtraction{Seen: seen(1, 1), Learnings: fact("x", messages[0], messages[5])}, memory.ErrInvalid},
		{"a message of another session", memory.NewExtraction{Seen: seen(1, 1), Learnings: fact("x", elsewhere...)}, memory.ErrInvalid},
		{"a message of another user", memory.NewExtraction{Seen: seen(1, 1), Learnings: fact("x", foreign...)}, memory.ErrInvalid},
		{"too many sources", memory.NewExtraction{Seen: seen(1, 1), Learnings: memory.Learnings{Tasks: []memory.Learned{{Text: "x", Sources: sources}}}}, memory.ErrInvalid},
		{"too much", memory.NewExtraction{Seen: seen(1, 1), Learnings: memory.Learnings{Facts: slices.Repeat(fact("x", messages[0]).Facts, memory.MaxLearned+1)}}, memory.ErrInvalid},
		{"a time that cannot be written", memory.NewExtraction{Seen: seen(1, 1), At: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)}, memory.ErrInvalid},
		{"another user's session", memory.NewExtraction{Session: theirs, Seen: seen(1, 1)}, memory.ErrNotFound},
	} {
		n := test.n
		if n.Session.IsZero() {
			n.Session = session
		}
		if n.At.IsZero() {
			n.At = at
		}
		if _, err := f.store.CommitExtraction(ctx, f.user, n); !errors.Is(err, test.want) {
			t.Errorf("%s: got %v, want %v", test.name, err, test.want)
		}
	}
	_, err := f.store.CommitExtraction(ctx, f.user, memory.NewExtraction{Session: session, Seen: seen(1, 1)})
	wants(t, err, memory.ErrInvalid)
	equal(t, f.everything(session), before)
	// As much as there may be.
	f.learn(session, 1, 1, memory.Learnings{Facts: slices.Repeat(fact(longText(memory.MaxTopicContent), messages[0]).Facts, 40)})
}

func longText(bytes int) string {
	text := make([]byte, bytes)
	for i := range text {
		text[i] = 'a' + byte(i%26)
	}
	return string(text)
}

func testUnseen(t *testing.T, f *fixture) {
	ctx := t.Context()
	session := f.session(f.user)
	equal(t, must(f.store.Unseen(ctx, f.user, session))(t), memory.Unseen{})
	equal(t, len(must(f.store.UnseenMessages(ctx, f.user, session, memory.MessageQuery{}))(t)), 0)
	messages := f.mixed(session)
	sum := 0
	for _, m := range messages {
		sum += m.Tokens
	}
	equal(t, must(f.store.Unseen(ctx, f.user, session))(t), memory.Unseen{Messages: 7, Tokens: sum, ToolResults: 1, UserMessages: 3})
	f.learn(session, 2, 3, memory.Learnings{})
	f.learn(session, 5, 5, memory.Learnings{})
	f.reopen()
	equal(t, must(f.store.Unseen(ctx, f.user, session))(t), memory.Unseen{
		Messages: 4, Tokens: messages[0].Tokens + messages[3].Tokens + messages[5].Tokens + messages[6].Tokens, UserMessages: 3})
	unseen := []memory.Message{messages[0], messages[3], messages[5], messages[6]}
	for _, test := range []struct {
		q    memory.MessageQuery
		want []memory.Message
	}{
		{memory.MessageQuery{}, unseen}, {memory.MessageQuery{After: 1}, unseen[1:]}, {memory.MessageQuery{After: 2, Limit: 2}, unseen[1:3]},
		{memory.MessageQuery{After: 6}, unseen[3:]}, {memory.MessageQuery{Limit: 1}, unseen[:1]}, {memory.MessageQuery{After: 3, Limit: 1}, unseen[1:2]},
		{memory.MessageQuery{After: -5, Limit: 100}, unseen},
	} {
		equal(t, must(f.store.UnseenMessages(ctx, f.user, session, test.q))(t), test.want)
	}
	for _, after := range []int64{7, 1 << 40, 1<<63 - 1} {
		equal(t, len(must(f.store.UnseenMessages(ctx, f.user, session, memory.MessageQuery{After: after}))(t)), 0)
	}
	// A dream looks too.
	f.dream(memory.Dream{Session: session, Seen: []memory.SeqRange{{First: 6, Last: 7}, {First: 1, Last: 1}, {First: 4, Last: 4}}})
	equal(t, must(f.store.Unseen(ctx, f.user, session))(t), memory.Unseen{})
	f.append(session, says("user", "more", 0))
	equal(t, must(f.store.Unseen(ctx, f.user, session))(t).Messages, 1)
}

// What is unseen is what nobody looked at, whoever looked at what in which order;
// and nobody looks at a message that somebody has looked at.
func testUnseenRandom(t *testing.T, f *fixture) {
	ctx := t.Context()
	rapid.Check(t, func(r *rapid.T) {
		session := f.session(f.user)
		var seen []bool
		for range rapid.IntRange(1, 25).Draw(r, "steps") {
			if rapid.Bool().Draw(r, "append") || len(seen) == 0 {
				for range rapid.IntRange(1, 6).Draw(r, "messages") {
					role := rapid.SampledFrom([]memory.Role{"user", "assistant"}).Draw(r, "role")
					must(f.store.Append(ctx, f.user, session, says(role, "x", 0)))(r)
					seen = append(seen, false)
				}
				continue
			}
			var runs []memory.SeqRange
			want := error(nil)
			looked := slices.Clone(seen)
			for range rapid.IntRange(1, 3).Draw(r, "runs") {
				first := rapid.IntRange(1, len(seen)).Draw(r, "first")
				run := memory.SeqRange{First: int64(first), Last: int64(rapid.IntRange(first, min(first+3, len(seen))).Draw(r, "last"))}
				runs = append(runs, run)
				for i := run.First - 1; i < run.Last; i++ {
					if seen[i] {
						want = memory.ErrConflict
					}
					looked[i] = true
				}
			}
			var err error
			if rapid.Bool().Draw(r, "dream") {
				err = f.dreamOf(ctx, f.user, memory.Dream{Session: session, Seen: runs})
			} else {
				_, err = f.store.CommitExtraction(ctx, f.user, memory.NewExtraction{Session: session, Seen: runs, At: at})
			}
			wants(r, err, want)
			if want == nil {
				seen = looked
			}
		}
		var unseen []int64
		for i, was := range seen {
			if !was {
				unseen = append(unseen, int64(i+1))
			}
		}
		after, limit := rapid.IntRange(0, len(seen)).Draw(r, "after"), rapid.IntRange(0, len(seen)).Draw(r, "limit")
		page := slices.DeleteFunc(slices.Clone(unseen), func(seq int64) bool { return seq <= int64(after) })
		if limit > 0 && len(page) > limit {
			page = page[:limit]
		}
		equal(r, must(f.store.Unseen(ctx, f.user, session))(r).Messages, len(unseen))
		var got []int64
		for _, m := range must(f.store.UnseenMessages(ctx, f.user, session, memory.MessageQuery{After: int64(after), Limit: limit}))(r) {
			got = append(got, m.Seq)
		}
		if !slices.Equal(got, page) {
			r.Errorf("unseen after %d, at most %d: %v, want %v", after, limit, got, page)
		}
	})
}

// Many look at one session at the same time, while it goes on: each message is
// looked at once, and what was learned from it is there once.
func testSeenOnce(t *testing.T, f *fixture) {
	const workers, messages = 6, 60
	ctx := t.Context()
	session := f.session(f.user)
	for i := range messages / 2 {
		f.append(session, says("user", fmt.Sprint(i), 0))
	}
	var mu sync.Mutex
	conflicts := 0
	learned := map[string]int{}
	var group sync.WaitGroup
	group.Go(func() {
		for i := range messages / 2 {
			if _, err := f.store.Append(ctx, f.user, session, says("user", fmt.Sprint(messages/2+i), 0)); err != nil {
				t.Errorf("append: %v", err)
			}
		}
	})
	for worker := range workers {
		group.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(worker)))
			for done := 0; done < messages; {
				unseen, err := f.store.UnseenMessages(ctx, f.user, session, memory.MessageQuery{Limit: 1 + random.IntN(4)})
				if err != nil {
					t.Errorf("read: %v", err)
					return
				}
				s, err := f.store.Session(ctx, f.user, session)
				if err != nil {
					t.Errorf("read: %v", err)
					return
				}
				if len(unseen) == 0 {
					if s.Messages == messages {
						return
					}
					continue
				}
				n := memory.NewExtraction{Session: session, At: at}
				for _, m := range unseen {
					n.Seen = append(n.Seen, memory.SeqRange{First: m.Seq, Last: m.Seq})
					n.Facts = append(n.Facts, memory.Learned{Text: m.Blocks[0].Text, Sources: []memory.MessageID{m.ID}})
				}
				x, err := f.store.CommitExtraction(ctx, f.user, n)
				mu.Lock()
				switch {
				case err == nil:
					for _, item := range x.Facts {
						learned[item.Text]++
					}
				case errors.Is(err, memory.ErrConflict):
					conflicts++
				default:
					t.Errorf("commit: %v", err)
					done = messages
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	if len(learned) != messages {
		t.Errorf("%d of %d messages were learned from, with %d conflicts", len(learned), messages, conflicts)
	}
	stored := map[string]int{}
	for _, x := range f.extractions(memory.ExtractionQuery{}) {
		for _, item := range x.Facts {
			stored[item.Text]++
		}
	}
	if !maps.Equal(stored, learned) {
		t.Errorf("stored is %v, acknowledged %v", stored, learned)
	}
	for text, n := range stored {
		if n != 1 {
			t.Errorf("%s was learned %d times", text, n)
		}
	}
	equal(t, must(f.store.Unseen(ctx, f.user, session))(t), memory.Unseen{})
}

// M9
func testIdleSessions(t *testing.T, f *fixture) {
	ctx := t.Context()
	other := must(f.store.PutAgent(ctx, "other", "", at))(t).ID
	session := func(user memory.UserID, agent memory.AgentID, drafts ...memory.Draft) memory.IdleSession {
		s := must(f.store.CreateSession(ctx, memory.Session{Agent: agent, User: user, CreatedAt: at}))(t)
		if len(drafts) > 0 {
			must(f.store.Append(ctx, user, s.ID, drafts...))(t)
		}
		return memory.IdleSession{User: user, Agent: agent, Session: s.ID, LastActive: must(f.store.Session(ctx, user, s.ID))(t).LastActive}
	}
	tick := says("user", "tick", 0)
	tick.Source = memory.SourceAutonomousTick
	third := session(f.user, f.agent, says("user", "x", 3*time.Minute), says("assistant", "y", 4*time.Minute))
	first := session(f.other, f.agent, says("user", "x", time.Minute))
	second := session(f.user, other, says("user", "x", 2*time.Minute))
	late := session(f.user, f.agent, says("user", "x", time.Hour))
	session(f.user, f.agent)
	session(f.user, f.agent, tick, says("assistant", "on my own", time.Second))
	idle := func(limit int, since time.Duration, agents ...memory.AgentID) []memory.IdleSession {
		t.Helper()
		return must(f.store.IdleSessions(ctx, agents, at.Add(since), limit))(t)
	}
	is := func(got []memory.IdleSession, want ...memory.IdleSession) {
		t.Helper()
		if len(got)+len(want) > 0 {
			equal(t, got, want)
		}
	}
	is(idle(0, 30*time.Minute, f.agent, other, f.agent), first, second, third)
	is(idle(2, 30*time.Minute, f.agent, other), first, second)
	is(idle(1, 30*time.Minute, other), second)
	is(idle(9, 2*time.Hour, f.agent), first, third, late)
	is(idle(9, time.Minute, f.agent, other))
	is(idle(9, 30*time.Minute))
	is(idle(9, 30*time.Minute, memory.NewID[memory.AgentID]()))

	// What was looked at, and taught nothing, is not due; nor is a new tick.
	f.learn(third.Session, 1, 1, memory.Learnings{})
	is(idle(9, 30*time.Minute, f.agent), first)
	f.append(third.Session, tick)
	is(idle(9, 30*time.Minute, f.agent), first)
	// What taught something waits for a dream.
	messages := f.append(third.Session, says("user", "z", 5*time.Minute))
	third.LastActive = kept.Add(5 * time.Minute)
	is(idle(9, 30*time.Minute, f.agent), first, third)
	x := f.learn(third.Session, 4, 4, fact("z", messages...))
	is(idle(9, 30*time.Minute, f.agent), first, third)
	f.dream(memory.Dream{Extractions: []memory.ExtractionID{x.ID}})
	is(idle(9, 30*time.Minute, f.agent), first)
	f.reopen()
	is(idle(9, 30*time.Minute, f.agent), first)
	// Somebody who is being wiped is left alone.
	check(t, f.store.BeginWipe(ctx, f.other, at))
	is(idle(9, 30*time.Minute, f.agent))
	check(t, f.store.EndWipe(ctx, f.other))
	is(idle(9, 30*time.Minute, f.agent), first)
	check(t, f.store.DeleteSession(ctx, f.other, first.Session))
	is(idle(9, 30*time.Minute, f.agent))
}

// Whatever came in which order, those that are due are found, and those that have
// rested longest first.
func testIdleSessionsRandom(t *testing.T, f *fixture) {
	ctx := t.Context()
	rapid.Check(t, func(r *rapid.T) {
		agents := make([]memory.AgentID, 2)
		for i := range agents {
			agents[i] = must(f.store.PutAgent(ctx, "a"+memory.NewID[memory.AgentID]().String(), "", at))(r).ID
		}
		type rested struct {
			memory.IdleSession
			due, pending bool
		}
		var sessions []*rested
		for range rapid.IntRange(1, 40).Draw(r, "steps") {
			if len(sessions) == 0 || rapid.IntRange(0, 3).Draw(r, "begin") == 0 {
				s := must(f.store.CreateSession(ctx, memory.Session{Agent: rapid.SampledFrom(agents).Draw(r, "agent"), User: f.user, CreatedAt: at}))(r)
				sessions = append(sessions, &rested{IdleSession: memory.IdleSession{User: f.user, Agent: s.Agent, Session: s.ID, LastActive: s.LastActive}})
				continue
			}
			s := rapid.SampledFrom(sessions).Draw(r, "session")
			if rapid.Bool().Draw(r, "say") {
				after := time.Duration(rapid.IntRange(0, 20).Draw(r, "after")) * time.Second
				role := rapid.SampledFrom([]memory.Role{"user", "assistant"}).Draw(r, "role")
				must(f.store.Append(ctx, f.user, s.Session, says(role, "x", after)))(r)
				s.due = s.due || role == memory.RoleUser
				if t := kept.Add(after); t.After(s.LastActive) {
					s.LastActive = t
				}
				continue
			}
			unseen := must(f.store.UnseenMessages(ctx, f.user, s.Session, memory.MessageQuery{}))(r)
			n := memory.NewExtraction{Session: s.Session, At: at}
			for _, m := range unseen {
				n.Seen = append(n.Seen, memory.SeqRange{First: m.Seq, Last: m.Seq})
				if m.Source == memory.SourceUser {
					n.Facts = fact("x", m).Facts
				}
			}
			if len(unseen) == 0 {
				var d memory.Dream
				for _, x := range must(f.store.Extractions(ctx, f.user, memory.ExtractionQuery{Agent: s.Agent, Pending: true}))(r) {
					if x.Session == s.Session {
						d.Extractions = append(d.Extractions, x.ID)
					}
				}
				_, revision, err := f.store.Topics(ctx, f.user, memory.TopicQuery{})
				check(r, err)
				d.Agent, d.At = s.Agent, at
				must(f.store.CommitDream(ctx, f.user, revision, d))(r)
				s.pending = false
				continue
			}
			must(f.store.CommitExtraction(ctx, f.user, n))(r)
			s.due, s.pending = false, s.pending || len(n.Facts) > 0
		}
		since := at.Add(time.Duration(rapid.IntRange(0, 22).Draw(r, "since")) * time.Second)
		var want []memory.IdleSession
		for _, s := range sessions {
			if (s.due || s.pending) && s.LastActive.Before(since.Truncate(time.Microsecond)) {
				want = append(want, s.IdleSession)
			}
		}
		slices.SortFunc(want, func(a, b memory.IdleSession) int {
			if n := a.LastActive.Compare(b.LastActive); n != 0 {
				return n
			}
			return slices.Compare(a.Session[:], b.Session[:])
		})
		limit := rapid.IntRange(0, 5).Draw(r, "limit")
		if limit > 0 && len(want) > limit {
			want = want[:limit]
		}
		if got := must(f.store.IdleSessions(ctx, agents, since, limit))(r); !slices.Equal(got, want) {
			r.Errorf("idle since %v, at most %d:\ngot  %+v\nwant %+v", since, limit, got, want)
		}
	})
}
