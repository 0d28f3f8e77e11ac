package memorytest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/memory"
)

func testFiles(t *testing.T, f *fixture) {
	ctx := t.Context()
	session := f.session(f.user)
	long := "# Title\n" + strings.Repeat("some words of the text\n", 8000) + "# End\n"
	outside := must(boundary.ToolSource("search"))(t)
	wrapped, _ := boundary.Wrap(outside, long, boundary.Unlimited)
	var odd memory.Block
	check(t, json.Unmarshal([]byte(`{ "type":"text", "filename":"a.md", "media_type":"text/markdown",  "text":`+string(must(json.Marshal(long))(t))+`}`), &odd))
	d := says("user", "short", 0)
	d.Blocks = append(d.Blocks, memory.Text(long), memory.External(wrapped), memory.ToolResult("c1", "search", wrapped, true), odd)
	stored := f.append(session, d)[0]
	f.reopen()
	m := must(f.store.Message(ctx, f.user, stored.ID))(t)
	equal(t, m, stored)
	equal(t, m.Blocks[0], stored.Blocks[0])
	if m.Tokens > 5*memory.MaxOutlineTokens || m.Tokens != memory.Count(m.Blocks) || m.Trust != memory.TrustExternal {
		t.Errorf("%d tokens, trust %s", m.Tokens, m.Trust)
	}
	files := must(f.store.Files(ctx, f.user, session))(t)
	if len(files) != 4 {
		t.Fatalf("%d files", len(files))
	}
	for i, place := range m.Blocks[1:] {
		came, file := d.Blocks[i+1], files[i]
		external := came.Type != memory.BlockText
		if place.File != file.ID || file.Session != session || !file.CreatedAt.Equal(m.At) || external != (place.Type == came.Type) || !external != (place.Type == memory.BlockFile) {
			t.Errorf("block %d stands as %+v for %+v", i+1, place, file)
		}
		if (file.Trust == memory.TrustExternal) != external || external && place.External.Source() != outside {
			t.Errorf("block %d: trust %s, source %s", i+1, file.Trust, place.External.Source())
		}
		if cost := tokens.Estimate(file.Outline); cost > memory.MaxOutlineTokens || !strings.Contains(file.Outline, "# Title") || !strings.Contains(memory.Shown(m.Blocks), file.ID.String()) {
			t.Errorf("block %d: outline of %d tokens: %s", i+1, cost, file.Outline)
		}
		read, block, err := f.store.File(ctx, f.user, file.ID)
		check(t, err)
		equal(t, read, file)
		equal(t, encoded(t, []memory.Block{block}), encoded(t, []memory.Block{came}))
		if file.Tokens != memory.Count([]memory.Block{came}) || file.Bytes != int64(len(encoded(t, []memory.Block{came})[0])) || !strings.HasPrefix(file.Digest, "sha256:") {
			t.Errorf("block %d: %+v", i+1, file)
		}
	}
	if files[3].Name != "a.md" || files[3].MIME != "text/markdown" || files[0].Name != "" {
		t.Errorf("names %q and %q", files[3].Name, files[0].Name)
	}

	// What is not of words, or just fits, stays.
	var image memory.Block
	check(t, json.Unmarshal([]byte(`{"type":"image","data":"`+strings.Repeat("QUJD", 1<<17)+`"}`), &image))
	fits := says("user", strings.Repeat("a", 4*memory.MaxBlockTokens), 0)
	fits.Blocks = append(fits.Blocks, image)
	f.append(session, fits)
	if now := must(f.store.Files(ctx, f.user, session))(t); len(now) != 4 {
		t.Errorf("%d files after blocks that fit", len(now))
	}
	// A context refresh is no exception.
	refresh := must(f.store.Inject(ctx, f.user, session, memory.Injection{At: at, Blocks: []boundary.Content{wrapped}}))(t)
	if refresh.Blocks[1].File.IsZero() || refresh.Blocks[1].Type != memory.BlockExternal {
		t.Errorf("a large refresh is kept as %+v", refresh.Blocks[1])
	}
	// The same event again leaves no second file.
	keyed := large("key")
	keyed.EventKey = "k"
	f.append(session, keyed, keyed)
	if now := must(f.store.Files(ctx, f.user, session))(t); len(now) != 6 {
		t.Errorf("%d files after an event came twice", len(now))
	}
}

// A block names no file but one of its session.
func testFilesAreReferredTo(t *testing.T, f *fixture) {
	ctx := t.Context()
	session, elsewhere := f.session(f.user), f.session(f.user)
	place := f.append(session, large("long"))[0].Blocks[0]
	referring := says("user", "see", 0)
	referring.Blocks = append(referring.Blocks, place)
	f.append(session, referring)
	if files := must(f.store.Files(ctx, f.user, session))(t); len(files) != 1 {
		t.Errorf("%d files", len(files))
	}
	_, err := f.store.Append(ctx, f.user, elsewhere, referring)
	wants(t, err, memory.ErrInvalid)
	if s := must(f.store.Session(ctx, f.user, elsewhere))(t); s.Messages != 0 {
		t.Errorf("%d messages name another session's file", s.Messages)
	}
	// A transcript of what was shown is known again.
	if added := must(f.store.Ingest(ctx, f.user, session, says("user", "x", 0)))(t); len(added) != 1 {
		t.Fatal("nothing to begin with")
	}
	again := []memory.Draft{referring, says("user", "x", 0)}
	if added := must(f.store.Ingest(ctx, f.user, session, again...))(t); len(added) != 0 {
		t.Errorf("what names a file is not known again: %d added", len(added))
	}
}

func testAllTexts(t *testing.T, f *fixture) {
	ctx := t.Context()
	first, second := f.session(f.user), f.session(f.user)
	agent := must(f.store.PutAgent(ctx, "second", "", at))(t).ID
	third := must(f.store.CreateSession(ctx, memory.Session{Agent: agent, User: f.user, CreatedAt: at}))(t).ID
	foreign := must(f.store.CreateSession(ctx, memory.Session{Agent: f.agent, User: f.other, CreatedAt: at}))(t).ID
	must(f.store.Append(ctx, f.other, foreign, says("user", "CANARY", 0)))(t)
	ones := f.append(first, says("user", "one", 0), says("assistant", "two", 2*time.Hour), says("assistant", "late", time.Hour))
	f.append(second, says("user", "three", 3*time.Hour))
	long := large("long")
	long.At = at.Add(4 * time.Hour)
	f.append(third, long)
	leaf := leafOf(ones[:2], "in short")
	leaf.External = content(t, "outside")
	leafID := must(f.store.CommitSummary(ctx, f.user, must(f.store.Frontier(ctx, f.user, first))(t).Revision, leaf))(t).ID
	must(f.store.CommitSummary(ctx, f.user, must(f.store.Frontier(ctx, f.user, first))(t).Revision, memory.NewSummary{
		ID: memory.NewID[memory.SummaryID](), Summaries: []memory.SummaryID{leafID}, SummaryText: memory.SummaryText{Text: "shorter", Level: memory.LevelNormal}, At: at,
	}))(t)
	read := func(q memory.TextQuery) (texts []string) {
		t.Helper()
		last := time.Time{}
		check(t, f.store.Texts(ctx, f.user, q, func(s memory.StoredText) bool {
			if !last.IsZero() && s.At.After(last) {
				t.Errorf("%v after %v", s.At, last)
			}
			last = s.At
			kinds := 0
			for _, set := range []bool{!s.Message.IsZero(), !s.Summary.IsZero(), !s.File.IsZero()} {
				if set {
					kinds++
				}
			}
			if kinds != 1 || s.Session.IsZero() {
				t.Errorf("%+v", s)
			}
			words, _, _ := strings.Cut(s.Text, " ")
			texts = append(texts, fmt.Sprintf("%s %d", words, s.Seq))
			return true
		}))
		return texts
	}
	equal(t, read(memory.TextQuery{}), []string{"Text 1", "long 0", "three 1", "two 2", "shorter 1", "in 1", "late 3", "one 1"})
	equal(t, read(memory.TextQuery{Session: second}), []string{"three 1"})
	equal(t, read(memory.TextQuery{Agent: agent}), []string{"Text 1", "long 0"})
	equal(t, read(memory.TextQuery{From: at.Add(time.Hour), To: at.Add(3 * time.Hour)}), []string{"two 2", "shorter 1", "in 1", "late 3"})
	if got := read(memory.TextQuery{Session: foreign}); len(got) != 0 {
		t.Errorf("another user's session says %q", got)
	}
	// Whoever has seen enough says so; texts of one time are all there.
	var drafts []memory.Draft
	for range 300 {
		drafts = append(drafts, says("user", "same", 5*time.Hour))
	}
	many := f.append(second, drafts...)
	seen := map[memory.MessageID]bool{}
	check(t, f.store.Texts(ctx, f.user, memory.TextQuery{From: at.Add(5 * time.Hour)}, func(s memory.StoredText) bool {
		seen[s.Message] = true
		return true
	}))
	if len(seen) != 300 || slices.ContainsFunc(many, func(m memory.Message) bool { return !seen[m.ID] }) {
		t.Errorf("%d of 300 texts of one time", len(seen))
	}
	n := 0
	check(t, f.store.Texts(ctx, f.user, memory.TextQuery{}, func(memory.StoredText) bool { n++; return n < 5 }))
	equal(t, n, 5)
	check(t, f.store.Texts(ctx, memory.NewID[memory.UserID](), memory.TextQuery{}, func(memory.StoredText) bool { t.Error("a stranger reads"); return false }))
}
