package memorytest

import (
	"errors"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/memory"
)

// condensedOf is a summary of summaries.
func condensedOf(summaries []memory.Summary, text string) memory.NewSummary {
	n := memory.NewSummary{ID: memory.NewID[memory.SummaryID](), SummaryText: memory.SummaryText{Text: text, Level: memory.LevelAggressive, Model: "test"}, At: at}
	for _, v := range summaries {
		n.Summaries = append(n.Summaries, v.ID)
	}
	return n
}

// leaves makes one leaf of each message.
func (f *fixture) leaves(session memory.SessionID, messages []memory.Message) (leaves []memory.Summary) {
	f.t.Helper()
	for _, m := range messages {
		leaves = append(leaves, f.commit(session, leafOf([]memory.Message{m}, "of "+m.Blocks[0].Text)))
	}
	return leaves
}

func (f *fixture) commit(session memory.SessionID, n memory.NewSummary) memory.Summary {
	f.t.Helper()
	read := must(f.store.Frontier(f.t.Context(), f.user, session))(f.t)
	return must(f.store.CommitSummary(f.t.Context(), f.user, read.Revision, n))(f.t)
}

func (f *fixture) spoken(session memory.SessionID, texts ...string) []memory.Message {
	f.t.Helper()
	var drafts []memory.Draft
	for i, text := range texts {
		drafts = append(drafts, says("user", text, time.Duration(i)*time.Second))
	}
	return f.append(session, drafts...)
}

// Invariant 6: a summary of summaries stands for all that they stand for, and
// gives it back in any pages; what is in it is reached from it alone.
func testCondensed(t *testing.T, f *fixture) {
	ctx := t.Context()
	session := f.session(f.user)
	messages := f.spoken(session, "a", "b", "c", "d", "e")
	leaves := f.leaves(session, messages[:4])
	left := f.commit(session, condensedOf(leaves[:2], "a and b"))
	right := f.commit(session, condensedOf(leaves[2:], "c and d"))
	outside := condensedOf([]memory.Summary{left, right}, "a to d")
	outside.External = content(t, "outside")
	top := f.commit(session, outside)
	f.reopen()

	if left.Depth != 1 || top.Depth != 2 || top.Descendants != 4 || !top.Earliest.Equal(messages[0].At) || !top.Latest.Equal(messages[3].At) ||
		top.Trust != memory.TrustExternal || left.Trust != memory.TrustDirect || top.Level != memory.LevelAggressive || top.Tokens == 0 {
		t.Errorf("left %+v\ntop %+v", left, top)
	}
	frontier := must(f.store.Frontier(ctx, f.user, session))(t)
	equalLists(t, frontier.Items, []memory.Item{{Summary: &top}, {Message: &messages[4]}})
	equalLists(t, must(f.store.Sources(ctx, f.user, top.ID))(t), []memory.Item{{Summary: &left}, {Summary: &right}})
	equalLists(t, must(f.store.Sources(ctx, f.user, left.ID))(t), []memory.Item{{Summary: &leaves[0]}, {Summary: &leaves[1]}})
	equalLists(t, must(f.store.Sources(ctx, f.user, leaves[3].ID))(t), []memory.Item{{Message: &messages[3]}})
	equalLists(t, must(f.store.Summaries(ctx, f.user, session))(t), append(append([]memory.Summary{}, leaves...), left, right, top))
	for child, parent := range map[memory.SummaryID]memory.SummaryID{leaves[0].ID: left.ID, leaves[3].ID: right.ID, left.ID: top.ID, top.ID: {}} {
		if v, got, err := f.store.Summary(ctx, f.user, child); err != nil || got != parent || v.ID != child {
			t.Errorf("summary %s is part of %s, want %s, %v", child, got, parent, err)
		}
	}
	for _, page := range []struct {
		q    memory.MessageQuery
		want []memory.Message
	}{
		{memory.MessageQuery{}, messages[:4]}, {memory.MessageQuery{Limit: 3}, messages[:3]}, {memory.MessageQuery{After: 1, Limit: 2}, messages[1:3]},
		{memory.MessageQuery{After: 3}, messages[3:4]}, {memory.MessageQuery{After: 4}, nil},
	} {
		equalLists(t, must(f.store.Expand(ctx, f.user, top.ID, page.q))(t), page.want)
	}
	equalLists(t, f.covered(session), messages)
	for name, err := range map[string]error{
		"Sources": second(f.store.Sources(ctx, f.other, top.ID)), "Expand": second(f.store.Expand(ctx, f.other, top.ID, memory.MessageQuery{})),
		"unknown": second(f.store.Sources(ctx, f.user, memory.NewID[memory.SummaryID]())),
	} {
		if !errors.Is(err, memory.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// Only neighbours of one depth are condensed; what is refused changes nothing.
func testCondensedRefuses(t *testing.T, f *fixture) {
	ctx := t.Context()
	session, elsewhere := f.session(f.user), f.session(f.user)
	messages := f.spoken(session, "a", "b", "c", "d", "e", "f")
	leaves := f.leaves(session, messages[:4])
	deep := f.commit(session, condensedOf(leaves[:2], "a and b"))
	last := f.commit(session, leafOf(messages[5:], "f"))
	foreign := f.leaves(elsewhere, f.spoken(elsewhere, "x"))[0]
	// The frontier is deep, two leaves, a message, a leaf.
	before := must(f.store.Frontier(ctx, f.user, session))(t)
	both := condensedOf(leaves[2:], "both")
	both.Messages = []memory.MessageID{messages[4].ID}
	twice := condensedOf(leaves[2:], "twice")
	twice.Summaries = append(twice.Summaries, leaves[3].ID)
	message := condensedOf(nil, "a message")
	message.Summaries = []memory.SummaryID{memory.SummaryID(messages[4].ID)}
	for name, n := range map[string]memory.NewSummary{
		"two depths":           condensedOf([]memory.Summary{deep, leaves[2]}, "s"),
		"a message between":    condensedOf([]memory.Summary{leaves[3], last}, "s"),
		"the wrong order":      condensedOf([]memory.Summary{leaves[3], leaves[2]}, "s"),
		"condensed already":    condensedOf(leaves[:2], "s"),
		"another session's":    condensedOf([]memory.Summary{foreign}, "s"),
		"unknown":              condensedOf([]memory.Summary{{ID: memory.NewID[memory.SummaryID]()}}, "s"),
		"messages too":         both,
		"one twice":            twice,
		"a message's id":       message,
		"nothing":              condensedOf(nil, "s"),
		"summarised messages":  leafOf(messages[2:4], "s"),
		"a message in a place": leafOf(messages[3:5], "s"),
	} {
		if _, err := f.store.CommitSummary(ctx, f.user, before.Revision, n); !errors.Is(err, memory.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	taken := condensedOf(leaves[2:], "s")
	taken.ID = deep.ID
	_, err := f.store.CommitSummary(ctx, f.user, before.Revision, taken)
	wants(t, err, memory.ErrConflict)
	equal(t, must(f.store.Frontier(ctx, f.user, session))(t), before)
	equalLists(t, f.covered(session), messages)
	// A revision is one session's.
	_, err = f.store.CommitSummary(ctx, f.user, must(f.store.Frontier(ctx, f.user, elsewhere))(t).Revision, condensedOf(leaves[2:], "s"))
	wants(t, err, memory.ErrInvalid)
}

// C10: a summary that was cut down gets another text, in the frontier or below
// it, once; its place, sources and times stay.
func testRepairSummary(t *testing.T, f *fixture) {
	ctx := t.Context()
	session := f.session(f.user)
	messages := f.spoken(session, "a", "b", "c")
	cut := leafOf(messages[:1], "cut")
	cut.Level, cut.Model = memory.LevelFallback, "none"
	first := f.commit(session, cut)
	second := f.commit(session, leafOf(messages[1:2], "b"))
	read := func() memory.Revision { return must(f.store.Frontier(ctx, f.user, session))(t).Revision }
	old := read()
	deep := condensedOf([]memory.Summary{first, second}, "cut too")
	deep.Level = memory.LevelFallback
	top := f.commit(session, deep)
	better := memory.SummaryText{Text: "a, in full\x00 \xff", External: content(t, "outside"), Level: memory.LevelNormal, Model: "m"}

	refused := func(r memory.Revision, id memory.SummaryID, text memory.SummaryText, want error) {
		t.Helper()
		_, err := f.store.RepairSummary(ctx, f.user, r, id, text)
		wants(t, err, want)
	}
	refused(old, first.ID, better, memory.ErrConflict)
	refused(read(), second.ID, better, memory.ErrConflict)
	refused(read(), memory.NewID[memory.SummaryID](), better, memory.ErrNotFound)
	refused(read(), first.ID, memory.SummaryText{Text: "s", Level: memory.LevelFallback}, memory.ErrInvalid)
	refused(read(), first.ID, memory.SummaryText{Text: "s"}, memory.ErrInvalid)
	elsewhere := f.session(f.user)
	refused(must(f.store.Frontier(ctx, f.user, elsewhere))(t).Revision, first.ID, better, memory.ErrNotFound)

	for _, v := range []memory.Summary{first, top} {
		r := read()
		got := must(f.store.RepairSummary(ctx, f.user, r, v.ID, better))(t)
		want := v
		want.Text, want.External, want.Level, want.Model, want.Trust, want.Tokens = "a, in full\x00 \ufffd", better.External, memory.LevelNormal, "m", memory.TrustExternal, got.Tokens
		equal(t, got, want)
		if got.Tokens == v.Tokens {
			t.Error("the cost did not change")
		}
		if read() == r {
			t.Error("the revision did not change")
		}
		refused(read(), v.ID, better, memory.ErrConflict)
		f.reopen()
		if stored, _, err := f.store.Summary(ctx, f.user, v.ID); err != nil {
			t.Error(err)
		} else {
			equal(t, stored, got)
		}
	}
	frontier := must(f.store.Frontier(ctx, f.user, session))(t)
	if len(frontier.Items) != 2 || frontier.Items[0].Summary == nil || frontier.Items[0].Summary.ID != top.ID {
		t.Errorf("frontier %+v", frontier.Items)
	}
	equalLists(t, f.covered(session), messages)
}
