package memorytest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/memory"
)

// wantsTail reads the tail of a frontier that was read whole: it is the end of
// that, as short as it can be, and together with the rest all of it. No result
// has its call shortly before the tail.
func wantsTail(ctx context.Context, t tester, store memory.Store, user memory.UserID, whole memory.Frontier, tokens int) memory.FrontierRest {
	t.Helper()
	tail, older, err := store.FrontierTail(ctx, user, whole.Revision.Session(), tokens)
	check(t, err)
	start := len(whole.Items) - len(tail.Items)
	if start < 0 || tail.Revision != whole.Revision {
		t.Fatal(fmt.Sprintf("a tail of %d items, revision %d, of %d items, revision %d", len(tail.Items), tail.Revision.Number(), len(whole.Items), whole.Revision.Number()))
	}
	equalLists(t, tail.Items, whole.Items[start:])
	equal(t, older, memory.FrontierRest{Items: start, Tokens: whole.Tokens() - tail.Tokens()})
	from := len(whole.Items)
	for sum := 0; from > 0 && sum < tokens; from-- {
		sum += whole.Items[from-1].Tokens()
	}
	if start > from || from-start > memory.MaxTailReach {
		t.Errorf("the tail of %d tokens begins at item %d, the last to reach them is item %d", tokens, start, from)
	}
	calls := map[string]int{}
	needed := start == from
	for i, item := range whole.Items {
		if item.Message == nil {
			continue
		}
		for _, b := range item.Message.Blocks {
			call, called := calls[b.ID]
			switch {
			case b.Type == memory.BlockToolCall:
				calls[b.ID] = i
			case b.Type != memory.BlockToolResult || !called || i < start:
			case call < start && from-call <= memory.MaxTailReach:
				t.Errorf("the tail begins at item %d, between the call of item %d and the result of item %d", start, call, i)
			case call == start:
				needed = true
			}
		}
	}
	if next := start + 1; !needed && (next >= len(whole.Items) || whole.Items[next].Message == nil || whole.Items[next].Message.Role != memory.RoleTool) {
		t.Errorf("the tail of %d tokens begins at item %d, and needs nothing before item %d", tokens, start, from)
	}
	return older
}

func testFrontierTail(t *testing.T, f *fixture) {
	session := f.session(f.user)
	empty := must(f.store.Frontier(t.Context(), f.user, session))(t)
	wantsTail(t.Context(), t, f.store, f.user, empty, 10)
	everyTail := func() {
		t.Helper()
		whole := must(f.store.Frontier(t.Context(), f.user, session))(t)
		for tokens := -1; tokens <= whole.Tokens()+1; tokens++ {
			older := wantsTail(t.Context(), t, f.store, f.user, whole, tokens)
			if all := tokens > whole.Tokens()-whole.Items[0].Tokens(); all != (older.Items == 0) {
				t.Errorf("%d of %d tokens leave out %+v", tokens, whole.Tokens(), older)
			}
		}
	}
	messages := f.spoken(session, "a", "b and c", "d", "e and f and g", "h")
	everyTail()
	fallback := leafOf(messages[:1], "of a")
	fallback.Level = memory.LevelFallback
	first := f.commit(session, fallback)
	second := f.commit(session, leafOf(messages[1:3], "of b to d"))
	everyTail()
	f.append(session, says("user", "i", time.Minute))
	everyTail()
	repair := func(id memory.SummaryID, text string) {
		t.Helper()
		read := must(f.store.Frontier(t.Context(), f.user, session))(t)
		must(f.store.RepairSummary(t.Context(), f.user, read.Revision, id, memory.SummaryText{Text: text, Level: memory.LevelNormal}))(t)
	}
	repair(first.ID, "of a, and of more words than before")
	everyTail()
	again := leafOf(messages[3:4], "of e")
	again.Level = memory.LevelFallback
	third := f.commit(session, again)
	f.commit(session, condensedOf([]memory.Summary{first, second, third}, "of a to g"))
	everyTail()
	// It is repaired where it is not shown.
	repair(third.ID, "of e, f and g, in many words")
	everyTail()
	must(f.store.Ingest(t.Context(), f.user, session, says("user", "quite new", time.Hour)))(t)
	f.reopen()
	everyTail()
}

func testFrontierTailKeepsPairs(t *testing.T, f *fixture) {
	words := says("user", "words", 0)
	call := func(ids ...string) memory.Draft {
		d := says("assistant", "let me see", 0)
		for _, id := range ids {
			d.Blocks = append(d.Blocks, memory.ToolCall(id, "search", []byte("{}")))
		}
		return d
	}
	result := func(id string) memory.Draft {
		d := says("tool", "", 0)
		d.Blocks = []memory.Block{memory.ToolResult(id, "search", content(t, "found"), false)}
		return d
	}
	bare := says("tool", "found", 0)
	many := func(n int) (drafts []memory.Draft) {
		for range n {
			drafts = append(drafts, words)
		}
		return drafts
	}
	for name, test := range map[string]struct {
		drafts []memory.Draft
		// last is how many items are asked for, by their tokens; want how many
		// there are.
		last, want int
	}{
		"nothing to keep":               {[]memory.Draft{words, call("a"), result("a"), words}, 1, 1},
		"a call and its result":         {[]memory.Draft{words, call("a"), result("a"), words}, 2, 3},
		"from the call on":              {[]memory.Draft{words, call("a"), result("a"), words}, 3, 3},
		"two results":                   {[]memory.Draft{words, call("a", "b"), result("a"), result("b")}, 1, 3},
		"something in between":          {[]memory.Draft{words, call("a"), words, words, result("a")}, 1, 4},
		"a pair in between":             {[]memory.Draft{words, call("a"), call("b"), result("b"), result("a")}, 1, 4},
		"pairs that overlap":            {[]memory.Draft{words, call("a"), call("b"), result("a"), result("b")}, 1, 4},
		"one leads to another":          {[]memory.Draft{call("a"), words, result("a"), call("b"), result("a"), result("b")}, 1, 6},
		"an id given again":             {[]memory.Draft{call("a"), result("a"), call("a"), result("a")}, 1, 2},
		"no call":                       {[]memory.Draft{words, words, result("a"), words}, 2, 2},
		"no call, but another's":        {[]memory.Draft{words, call("b"), result("a"), result("b")}, 1, 3},
		"a result that names none":      {[]memory.Draft{words, call("a"), bare, words}, 2, 3},
		"many that name none":           {[]memory.Draft{words, call("a"), bare, bare, bare}, 1, 4},
		"none before one that names no": {[]memory.Draft{bare, words}, 2, 2},
		"a result that comes first":     {[]memory.Draft{result("a"), words, call("a")}, 3, 3},
		"as far as one looks":           {append(append([]memory.Draft{words, call("a")}, many(memory.MaxTailReach-1)...), result("a")), 1, memory.MaxTailReach + 1},
		"farther than one looks":        {append(append([]memory.Draft{words, call("a")}, many(memory.MaxTailReach)...), result("a")), 1, 1},
		"one near, one far":             {append(append([]memory.Draft{call("a")}, many(memory.MaxTailReach)...), call("b"), words, result("b"), result("a")), 2, 4},
	} {
		session := f.session(f.user)
		stored := f.append(session, test.drafts...)
		tokens := 0
		for _, m := range stored[len(stored)-test.last:] {
			tokens += m.Tokens
		}
		whole := must(f.store.Frontier(t.Context(), f.user, session))(t)
		if older := wantsTail(t.Context(), t, f.store, f.user, whole, tokens); len(stored)-older.Items != test.want {
			t.Errorf("%s: %d items, want %d", name, len(stored)-older.Items, test.want)
		}
	}
	// A call that was summarised away is not looked for in the summary.
	session := f.session(f.user)
	stored := f.append(session, words, call("a"), result("a"))
	f.commit(session, leafOf(stored[:2], "somebody called"))
	whole := must(f.store.Frontier(t.Context(), f.user, session))(t)
	if older := wantsTail(t.Context(), t, f.store, f.user, whole, 1); older.Items != 1 {
		t.Errorf("%+v is left out", older)
	}
}
