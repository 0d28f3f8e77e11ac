package memorytest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/memory"
)

// transcript are messages of these texts, the speakers taking turns.
func transcript(texts ...string) (drafts []memory.Draft) {
	for i, text := range texts {
		role := memory.RoleUser
		if i%2 == 1 {
			role = memory.RoleAssistant
		}
		drafts = append(drafts, says(role, text, time.Duration(i)*time.Second))
	}
	return drafts
}

// texts is what the session's messages say, refreshes left out.
func (f *fixture) texts(t tester, session memory.SessionID) (texts []string) {
	t.Helper()
	for _, m := range must(f.store.Messages(f.t.Context(), f.user, session, memory.MessageQuery{}))(t) {
		if !m.IsRefresh() {
			texts = append(texts, memory.Plain(m.Blocks))
		}
	}
	return texts
}

// S10
func testIngest(t *testing.T, f *fixture) {
	ctx := t.Context()
	whole := transcript("hi", "hello", "ok", "ok", "ok", "ok", "bye", "see you")
	result := func() memory.Draft {
		// Wrapped anew, in a frame of another id, as whoever reads it again does.
		d := says("tool", "", time.Minute)
		d.Blocks = []memory.Block{memory.ToolResult("c", "search", content(t, "found"), false)}
		return d
	}
	longResult := func() memory.Draft {
		d := result()
		source := must(boundary.ToolSource("search"))(t)
		c, _ := boundary.Wrap(source, memory.Plain(large("word").Blocks), boundary.Unlimited)
		d.Blocks = append(d.Blocks, memory.ToolResult("d", "search", c, false))
		return d
	}
	other := whole[1]
	other.Role = memory.RoleUser
	keyed := transcript("hi")[0]
	keyed.EventKey = "k"
	for _, test := range []struct {
		name          string
		stored, again []memory.Draft
		added         int
	}{
		{"nothing", whole, nil, 0},
		{"new", nil, whole, 8},
		{"the same", whole, whole, 0},
		{"a tail", whole, whole[5:], 0},
		{"the last", whole, whole[7:], 0},
		{"more", whole[:5], whole, 3},
		{"a tail and more", whole[:6], whole[4:], 2},
		{"an old beginning", whole, whole[:3], 0},
		{"the first alone, which is a greeting", whole, whole[:1], 1},
		{"equal ones said twice", transcript("a", "a", "a"), transcript("a", "a", "a", "a"), 1},
		{"the same words of another", whole[:2], []memory.Draft{other}, 1},
		{"a middle", whole, whole[2:5], 3},
		{"a result read again", []memory.Draft{result()}, []memory.Draft{result(), whole[0]}, 1},
		{"large blocks", []memory.Draft{large("long"), longResult()}, []memory.Draft{large("long"), longResult(), whole[0]}, 1},
		{"other large blocks", []memory.Draft{large("long")}, []memory.Draft{large("wide")}, 1},
		{"a key", append([]memory.Draft{keyed}, whole[1:]...), []memory.Draft{whole[2], keyed, whole[3]}, 2},
	} {
		session := f.session(f.user)
		f.append(session, test.stored...)
		check(t, injectErr(f, session, at))
		added := must(f.store.Ingest(ctx, f.user, session, test.again...))(t)
		if len(added) != test.added {
			t.Errorf("%s: added %d, want %d", test.name, len(added), test.added)
		}
		s := must(f.store.Session(ctx, f.user, session))(t)
		if want := len(test.stored) + 1 + test.added; s.Messages != want {
			t.Errorf("%s: %d messages, want %d", test.name, s.Messages, want)
		}
		if again := must(f.store.Ingest(ctx, f.user, session, test.again...))(t); len(again) > 0 && test.name != "a key" && test.name != "a middle" {
			t.Errorf("%s: a second time added %d", test.name, len(again))
		}
		for i, m := range added {
			equal(t, must(f.store.Message(ctx, f.user, m.ID))(t), added[i])
		}
	}
	injection := memory.Injection{At: at, Blocks: []boundary.Content{content(t, "x")}}.Draft()
	_, err := f.store.Ingest(ctx, f.user, f.session(f.user), injection)
	wants(t, err, memory.ErrInvalid)
}

// S10: a transcript that comes whole, in part, again, and longer each time, with
// refreshes in between, is in the end what was said. Its texts are few, so that
// equal ones stand side by side; a mark now and then tells the places apart,
// without which no reader of "ok, ok" could say whether it is news.
func testIngestRandom(t *testing.T, f *fixture) {
	ctx := t.Context()
	rapid.Check(t, func(r *rapid.T) {
		session := f.session(f.user)
		var said []memory.Draft
		var want []string
		for step := range rapid.IntRange(1, 6).Draw(r, "steps") {
			known := len(said)
			for i := range rapid.IntRange(0, 5).Draw(r, "more") {
				text := rapid.SampledFrom([]string{"ok", "ok", "yes"}).Draw(r, "text")
				if i == 0 {
					text = fmt.Sprint("mark ", step)
				}
				d := says(rapid.SampledFrom([]memory.Role{memory.RoleUser, memory.RoleAssistant}).Draw(r, "role"), text, time.Duration(len(said))*time.Second)
				if rapid.IntRange(0, 4).Draw(r, "outside") == 0 {
					d.Blocks = append(d.Blocks, memory.External(content(r, "outside")))
				}
				said, want = append(said, d), append(want, memory.Plain(d.Blocks))
			}
			// What is known of it comes from a mark on, or whole.
			from := rapid.IntRange(0, known).Draw(r, "from")
			for from > 0 && (from == known || said[from].Blocks[0].Text[0] != 'm') {
				from--
			}
			if known < len(said) && rapid.Bool().Draw(r, "news alone") {
				from = known
			}
			again := slices.Clone(said[from:])
			for i := range again {
				again[i].At = again[i].At.Add(time.Hour)
				again[i].Blocks = slices.Clone(again[i].Blocks)
				if len(again[i].Blocks) > 1 {
					again[i].Blocks[1] = memory.External(content(r, "outside"))
				}
			}
			added := must(f.store.Ingest(ctx, f.user, session, again...))(r)
			if len(added) != len(said)-known {
				r.Errorf("%d were new, %d were added", len(said)-known, len(added))
			}
			if rapid.Bool().Draw(r, "refresh") {
				must(f.store.Inject(ctx, f.user, session, memory.Injection{At: at, Blocks: []boundary.Content{content(r, "event")}}))(r)
			}
			if got := f.texts(r, session); !slices.Equal(got, want) {
				r.Fatalf("stored %q\nsaid   %q", got, want)
			}
		}
	})
}
