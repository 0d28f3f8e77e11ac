package sqlite_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/internal/index"
	"github.com/gloveboxhq/glovebox/memory/sqlite"
	"pgregory.net/rapid"
)

// searched is a store with a user who has a session.
type searched struct {
	*sqlite.Store
	user    memory.UserID
	agent   memory.AgentID
	session memory.SessionID
}

func openSearched(t testing.TB, dir string) searched {
	t.Helper()
	s := searched{Store: open(t, dir).(*sqlite.Store)}
	var err error
	if s.user, s.agent, err = people(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	s.session = s.create(t, s.user, s.agent)
	return s
}

func (s searched) create(t testing.TB, user memory.UserID, agent memory.AgentID) memory.SessionID {
	t.Helper()
	session, err := s.CreateSession(t.Context(), memory.Session{Agent: agent, User: user, CreatedAt: at})
	if err != nil {
		t.Fatal(err)
	}
	return session.ID
}

// say appends texts, a minute apart.
func (s searched) say(t testing.TB, texts ...string) {
	t.Helper()
	session, err := s.Session(t.Context(), s.user, s.session)
	if err != nil {
		t.Fatal(err)
	}
	for i, text := range texts {
		d := said(text)
		d.At = at.Add(time.Duration(session.Messages+i) * time.Minute)
		if _, err := s.Append(t.Context(), s.user, s.session, d); err != nil {
			t.Fatal(err)
		}
	}
}

func words(texts ...string) memory.WordQuery {
	var q memory.WordQuery
	for _, text := range texts {
		q.Words = append(q.Words, memory.WeightedWord{Text: text, Weight: 1})
	}
	return q
}

func (s searched) search(t testing.TB, q memory.WordQuery) []memory.WordHit {
	t.Helper()
	found, err := s.SearchWords(t.Context(), s.user, q)
	if err != nil {
		t.Fatal(err)
	}
	return found.Hits
}

// found returns the texts of hits that have a word themselves.
func found(hits []memory.WordHit) (texts []string) {
	for _, h := range hits {
		if h.Own > 0 {
			texts = append(texts, memory.Plain(h.Message.Blocks))
		}
	}
	return texts
}

// everywhere runs a test with all that was said behind the index, in it, and
// after another open.
func everywhere(t *testing.T, dir string, s searched, f func(t *testing.T, s searched)) {
	t.Helper()
	s.StopIndexer()
	t.Run("tail", func(t *testing.T) { f(t, s) })
	if err := s.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Run("index", func(t *testing.T) { f(t, s) })
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s.Store = open(t, dir).(*sqlite.Store)
	t.Run("reopened", func(t *testing.T) { f(t, s) })
}

func TestSearchWords(t *testing.T) {
	dir := t.TempDir()
	s := openSearched(t, dir)
	s.StopIndexer()
	source, err := boundary.HandSource("weather")
	if err != nil {
		t.Fatal(err)
	}
	outside, _ := boundary.Wrap(source, "Hailstorms over Zürich", 1000)
	s.say(t, "We walked the dogs along the river", "It rained", "Nothing else happened", "We had supper", "Then the walking stopped")
	if _, err := s.Inject(t.Context(), s.user, s.session, memory.Injection{At: at.Add(time.Hour), Blocks: []boundary.Content{outside}}); err != nil {
		t.Fatal(err)
	}
	other, err := s.PutAgent(t.Context(), "other", "", at)
	if err != nil {
		t.Fatal(err)
	}
	first := s.session
	s.session = s.create(t, s.user, other.ID)
	s.say(t, "A walk with another agent")
	second := s.session

	everywhere(t, dir, s, func(t *testing.T, s searched) {
		for _, test := range []struct {
			name   string
			query  memory.WordQuery
			change func(*memory.WordQuery)
			want   []string
		}{
			{"stems", words("walks"), nil, []string{"Then the walking stopped", "A walk with another agent", "We walked the dogs along the river"}},
			{"several words in one", words("dogs supper"), nil, []string{"We had supper", "We walked the dogs along the river"}},
			{"outside", words("zurich"), nil, []string{memory.RefreshHeading(at.Add(time.Hour)) + "\nHailstorms over Zürich"}},
			{"absent", words("volcano"), nil, nil},
			{"no word", words("", " ,.!"), nil, nil},
			{"nothing", words(), nil, nil},
			{"session", words("walk"), func(q *memory.WordQuery) { q.Session = second }, []string{"A walk with another agent"}},
			{"agent", words("walk"), func(q *memory.WordQuery) { q.Agent = other.ID }, []string{"A walk with another agent"}},
			{"session of another agent", words("walk"), func(q *memory.WordQuery) { q.Agent, q.Session = other.ID, first }, nil},
			{"unknown session", words("walk"), func(q *memory.WordQuery) { q.Session = memory.NewID[memory.SessionID]() }, nil},
			{"from", words("walk"), func(q *memory.WordQuery) { q.From = at.Add(4 * time.Minute) }, []string{"Then the walking stopped"}},
			{"to", words("walk"), func(q *memory.WordQuery) { q.To, q.Session = at.Add(4*time.Minute), first }, []string{"We walked the dogs along the river"}},
			{"limit", words("walk"), func(q *memory.WordQuery) { q.Limit = 1 }, []string{"Then the walking stopped"}},
		} {
			t.Run(test.name, func(t *testing.T) {
				if test.change != nil {
					test.change(&test.query)
				}
				if got := found(s.search(t, test.query)); !slices.Equal(got, test.want) {
					t.Errorf("%q, want %q", got, test.want)
				}
			})
		}
		t.Run("neighbours", func(t *testing.T) {
			near := make(map[int64]memory.WordHit)
			for _, h := range s.search(t, words("supper")) {
				near[h.Message.Seq] = h
			}
			own := near[4].Own
			for seq := int64(1); seq <= 6; seq++ {
				h, hit := near[seq]
				if want := seq >= 2; hit != want {
					t.Errorf("message %d is a hit: %t", seq, hit)
				}
				if hit && seq != 4 && (h.Own != 0 || h.Near != own) || seq == 4 && h.Near != 0 {
					t.Errorf("message %d: own %v, near %v of %v", seq, h.Own, h.Near, own)
				}
			}
		})
	})
}

func TestSearchRefuses(t *testing.T) {
	s := openSearched(t, t.TempDir())
	many := strings.Fields(strings.Repeat("word ", 33))
	for name, q := range map[string]memory.WordQuery{
		"33 words":     words(many...),
		"no weight":    {Words: []memory.WeightedWord{{Text: "a"}}},
		"negative":     {Words: []memory.WeightedWord{{Text: "a", Weight: -1}}},
		"not a number": {Words: []memory.WeightedWord{{Text: "a", Weight: math.NaN()}}},
		"infinite":     {Words: []memory.WeightedWord{{Text: "a", Weight: math.Inf(1)}}},
		"many terms":   words(strings.Repeat("a b c d ", 33)),
	} {
		if _, err := s.SearchWords(t.Context(), s.user, q); !errors.Is(err, memory.ErrInvalid) {
			t.Errorf("messages, %s: %v", name, err)
		}
		if _, err := s.SearchSummaries(t.Context(), s.user, q); !errors.Is(err, memory.ErrInvalid) {
			t.Errorf("summaries, %s: %v", name, err)
		}
	}
	if hits, err := s.SearchWords(t.Context(), s.user, words(many[:32]...)); err != nil || len(hits.Hits) > 0 {
		t.Errorf("32 words: %v, %v", hits, err)
	}
}

func TestSearchSummaries(t *testing.T) {
	dir := t.TempDir()
	s := openSearched(t, dir)
	s.StopIndexer()
	source, err := boundary.SummarySource(memory.NewID[memory.SummaryID]().String())
	if err != nil {
		t.Fatal(err)
	}
	outside, _ := boundary.Wrap(source, "a flood warning", 1000)
	for i, text := range []string{"they planned the garden", "the garden was dug up, and the garden gate repaired", "winter"} {
		s.say(t, "one", "two")
		frontier, err := s.Frontier(t.Context(), s.user, s.session)
		if err != nil {
			t.Fatal(err)
		}
		leaf := memory.NewSummary{ID: memory.NewID[memory.SummaryID](), SummaryText: memory.SummaryText{Text: text, Level: memory.LevelNormal, Model: "test"}, At: at}
		if i == 2 {
			leaf.External = outside
		}
		for _, item := range frontier.Items[len(frontier.Items)-2:] {
			leaf.Messages = append(leaf.Messages, item.Message.ID)
		}
		if _, err := s.CommitSummary(t.Context(), s.user, frontier.Revision, leaf); err != nil {
			t.Fatal(err)
		}
	}
	everywhere(t, dir, s, func(t *testing.T, s searched) {
		for query, want := range map[string][]string{
			"gardens": {"the garden was dug up, and the garden gate repaired", "they planned the garden"},
			"flood":   {"winter"},
			"one":     nil,
		} {
			hits, err := s.SearchSummaries(t.Context(), s.user, words(query))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, h := range hits {
				got = append(got, h.Summary.Text)
				if h.Score <= 0 || h.Summary.Session != s.session {
					t.Errorf("%+v", h)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", query, got, want)
			}
		}
		q := words("garden")
		q.From = at.Add(2 * time.Minute)
		if hits, err := s.SearchSummaries(t.Context(), s.user, q); err != nil || len(hits) != 1 {
			t.Errorf("from: %v, %v", hits, err)
		}
	})
}

// I10: a search sees nothing of another user, not even how frequent a word is
// with them.
func TestSearchIsOfOneUser(t *testing.T) {
	dir := t.TempDir()
	s := openSearched(t, dir)
	s.StopIndexer()
	texts := []string{"the blue canary", "a canary sang", "blue", "blue skies", "nothing"}
	s.say(t, texts...)
	alone := s.search(t, words("canary", "blue"))
	if len(alone) != 5 {
		t.Fatalf("%d hits", len(alone))
	}
	other := s
	other.user = memory.NewID[memory.UserID]()
	if err := s.PutUser(t.Context(), memory.User{ID: other.user, Name: "other", CreatedAt: at}); err != nil {
		t.Fatal(err)
	}
	other.session = other.create(t, other.user, s.agent)
	for range 20 {
		other.say(t, "canary canary secret")
	}
	s.Store = other.Store
	everywhere(t, dir, s, func(t *testing.T, s searched) {
		if got := s.search(t, words("canary", "blue")); !slices.EqualFunc(got, alone, func(a, b memory.WordHit) bool {
			return a.Message.ID == b.Message.ID && a.Own == b.Own && a.Near == b.Near
		}) {
			t.Errorf("hits changed: %v, %v", found(got), found(alone))
		}
		q := words("secret")
		if hits := s.search(t, q); len(hits) > 0 {
			t.Errorf("found %q", found(hits))
		}
		q.Session = other.session
		if hits := s.search(t, q); len(hits) > 0 {
			t.Errorf("found %q in another's session", found(hits))
		}
	})
}

// Whatever becomes of the index, between whichever steps the store is closed, a
// search finds what one segment of all that was said holds.
func TestSearchModel(t *testing.T) {
	vocabulary := strings.Fields("apple pear plum quince the of and river mountain valley")
	rapid.Check(t, func(r *rapid.T) {
		ctx := t.Context()
		path := filepath.Join(t.TempDir(), "store.db")
		openStore := func() *sqlite.Store {
			store, err := sqlite.Open(ctx, path, sqlite.Options{})
			if err != nil {
				r.Fatal(err)
			}
			return store
		}
		store := openStore()
		defer func() { store.Close() }()
		defaultUser, agent, err := people(ctx, store)
		if err != nil {
			r.Fatal(err)
		}
		users := []memory.UserID{defaultUser, memory.NewID[memory.UserID]()}
		if err := store.PutUser(ctx, memory.User{ID: users[1], Name: "second", CreatedAt: at}); err != nil {
			r.Fatal(err)
		}
		sessions := make([][]memory.SessionID, len(users))
		documents := make([][]index.Document, len(users))
		var tokenizer index.Tokenizer
		user := func(r *rapid.T) int { return rapid.IntRange(0, 1).Draw(r, "user") }
		check := func(err error) {
			if err != nil {
				r.Fatal(err)
			}
		}
		search := func(r *rapid.T) {
			u := user(r)
			q := memory.WordQuery{Limit: rapid.IntRange(1, 40).Draw(r, "limit")}
			want := index.Query{Limit: q.Limit, From: math.MinInt64, To: math.MaxInt64, Near: true}
			for _, w := range rapid.SliceOfN(rapid.SampledFrom(vocabulary), 1, 4).Draw(r, "words") {
				q.Words = append(q.Words, memory.WeightedWord{Text: w, Weight: 2})
				want.Terms = append(want.Terms, index.Term{Text: tokenizer.Terms(w)[0], Weight: 2})
			}
			head, pages, err := index.Build(slices.Clone(documents[u]))
			check(err)
			segment, err := index.Decode(head)
			check(err)
			expected, err := index.Search(ctx, []index.Source{{Segment: segment, Pages: func(n int) ([]byte, error) { return pages[n], nil }}}, want)
			check(err)
			found, err := store.SearchWords(ctx, users[u], q)
			check(err)
			hits, wanted := found.Hits, expected.Hits
			if len(hits) != len(wanted) {
				r.Fatalf("%d hits, want %d", len(hits), len(wanted))
			}
			for i, h := range hits {
				if w := wanted[i]; math.Abs(h.Own+h.Near/2-w.Rank()) > 1e-4 {
					r.Fatalf("hit %d: %v + %v/2, want %v", i, h.Own, h.Near, w.Rank())
				}
			}
		}
		r.Repeat(map[string]func(*rapid.T){
			"say": func(r *rapid.T) {
				u := user(r)
				if len(sessions[u]) == 0 || rapid.IntRange(0, 5).Draw(r, "new session") == 0 {
					session, err := store.CreateSession(ctx, memory.Session{Agent: agent, User: users[u], CreatedAt: at})
					check(err)
					sessions[u] = append(sessions[u], session.ID)
				}
				session := rapid.SampledFrom(sessions[u]).Draw(r, "session")
				var drafts []memory.Draft
				for range rapid.IntRange(1, 12).Draw(r, "messages") {
					drafts = append(drafts, said(strings.Join(rapid.SliceOfN(rapid.SampledFrom(vocabulary), 1, 6).Draw(r, "text"), " ")))
				}
				messages, err := store.Append(ctx, users[u], session, drafts...)
				check(err)
				for _, m := range messages {
					documents[u] = append(documents[u], index.Document{Session: session, Seq: m.Seq, At: at.UnixMicro(), Terms: tokenizer.Terms(memory.Plain(m.Blocks))})
				}
			},
			"search":  search,
			"catchUp": func(*rapid.T) { check(store.CatchUp(ctx)) },
			"rebuild": func(r *rapid.T) { check(store.MarkRebuild(ctx, users[user(r)])) },
			"reindex": func(r *rapid.T) { check(store.Reindex(ctx, users[user(r)])) },
			"reopen": func(*rapid.T) {
				check(store.Close())
				store = openStore()
			},
			"check": func(*rapid.T) {
				findings, err := store.CheckIndex(ctx)
				check(err)
				if len(findings) > 0 {
					r.Fatal(findings)
				}
			},
		})
	})
}

// Every message a batch of its own makes the most segments there can be: they
// are merged to a few, and nothing is left of those that were.
func TestSegmentsAreMerged(t *testing.T) {
	dir := t.TempDir()
	s := openSearched(t, dir)
	s.StopIndexer()
	const messages = 300
	for i := range messages {
		s.say(t, fmt.Sprintf("common word%d", i))
		if err := s.CatchUp(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if findings, err := s.CheckIndex(t.Context()); err != nil || len(findings) > 0 {
		t.Error(findings, err)
	}
	for _, i := range []int{0, 1, 150, messages - 1} {
		if got, want := found(s.search(t, words(fmt.Sprintf("word%d", i)))), fmt.Sprintf("common word%d", i); !slices.Equal(got, []string{want}) {
			t.Errorf("found %q, want %q", got, want)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n := query(t, database(dir), "SELECT count(*) < 25 FROM index_segments"); n != "1" {
		t.Errorf("%s segments", query(t, database(dir), "SELECT count(*) FROM index_segments"))
	}
	for _, q := range []string{"SELECT count(*) FROM index_segments WHERE NOT live", "SELECT count(*) FROM index_pages WHERE id >> 20 NOT IN (SELECT id FROM index_segments)"} {
		if n := query(t, database(dir), q); n != "0" {
			t.Errorf("%s: %s", q, n)
		}
	}
}

// S4: what a wipe takes away is taken out of the index, of one user alone, and
// out of the file. A number that is given again is indexed again.
func TestDropIndex(t *testing.T) {
	dir := t.TempDir()
	s := openSearched(t, dir)
	s.say(t, "kept words")
	if err := s.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := s
	other.user = memory.NewID[memory.UserID]()
	if err := s.PutUser(t.Context(), memory.User{ID: other.user, Name: "other", CreatedAt: at}); err != nil {
		t.Fatal(err)
	}
	other.session = other.create(t, other.user, s.agent)
	other.say(t, "canaryxyzzy sings", "the canaryxyzzy again")
	if err := s.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.StopIndexer()
	meddle(t, dir, "DELETE FROM frontier WHERE session_id = ?", other.session[:])
	meddle(t, dir, "DELETE FROM messages WHERE session_id = ?", other.session[:])
	meddle(t, dir, "UPDATE sessions SET messages = 0 WHERE id = ?", other.session[:])
	if err := s.DropIndex(t.Context(), other.user); err != nil {
		t.Fatal(err)
	}
	other.say(t, "said afterwards")
	if err := s.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := found(other.search(t, words("afterwards", "canaryxyzzy"))); !slices.Equal(got, []string{"said afterwards"}) {
		t.Errorf("found %q", got)
	}
	if got := found(s.search(t, words("kept"))); !slices.Equal(got, []string{"kept words"}) {
		t.Errorf("found %q", got)
	}
	if findings, err := s.CheckIndex(t.Context()); err != nil || len(findings) > 0 {
		t.Error(findings, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(database(dir) + "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(data, []byte("naryxyzz")) {
			t.Errorf("a word of the other user is left in %s", filepath.Base(name))
		}
	}
}

// meddle changes the database of a store that is open, as another process
// could.
func meddle(t *testing.T, dir, statement string, arguments ...any) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+database(dir)+"?_pragma=secure_delete(ON)&_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	changed, err := db.ExecContext(t.Context(), statement, arguments...)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := changed.RowsAffected(); err != nil || n == 0 {
		t.Fatalf("%s: changed %d rows, %v", statement, n, err)
	}
}

// Damage is found, said, and mended: by hand, and by the merge that meets it.
func TestDamagedIndex(t *testing.T) {
	for name, damage := range map[string]string{
		"page":          "UPDATE index_pages SET data = zeroblob(length(data))",
		"missing page":  "DELETE FROM index_pages",
		"head":          "UPDATE index_segments SET head = x'ffff'",
		"missing":       "DELETE FROM index_segments",
		"cursor beyond": "UPDATE index_state SET cursor = cursor + 10 WHERE kind = 0",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := openSearched(t, dir)
			s.say(t, "a word that was said")
			if err := s.CatchUp(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			meddle(t, dir, damage)
			s.Store = open(t, dir).(*sqlite.Store)
			findings, err := s.CheckIndex(t.Context())
			if err != nil || len(findings) == 0 {
				t.Errorf("findings %q, %v", findings, err)
			}
			if _, err := s.SearchWords(t.Context(), s.user, words("word")); err == nil && !strings.Contains(name, "missing") && name != "cursor beyond" {
				t.Error("the search was answered")
			}
			if err := s.Reindex(t.Context(), s.user); err != nil {
				t.Fatal(err)
			}
			if findings, err := s.CheckIndex(t.Context()); err != nil || len(findings) > 0 {
				t.Errorf("after Reindex: %q, %v", findings, err)
			}
			if got := found(s.search(t, words("word"))); len(got) != 1 {
				t.Errorf("after Reindex: found %q", got)
			}
		})
	}
	t.Run("merge", func(t *testing.T) {
		dir := t.TempDir()
		s := openSearched(t, dir)
		for range 7 {
			s.say(t, "a word that was said")
			if err := s.CatchUp(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		s.StopIndexer()
		meddle(t, dir, "DELETE FROM index_pages WHERE id = (SELECT min(id) FROM index_pages)")
		s.say(t, "a word that was said")
		if err := s.CatchUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := found(s.search(t, words("word"))); len(got) != 8 {
			t.Errorf("found %d of 8", len(got))
		}
		if findings, err := s.CheckIndex(t.Context()); err != nil || len(findings) > 0 {
			t.Error(findings, err)
		}
	})
}

// An index of another version of the format is not read, but made anew.
func TestIndexOfAnotherVersion(t *testing.T) {
	dir := t.TempDir()
	s := openSearched(t, dir)
	s.say(t, "a word that was said")
	if err := s.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	meddle(t, dir, "UPDATE index_segments SET version = 0, head = x'00'")
	reader, err := sqlite.Open(t.Context(), database(dir), sqlite.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if _, err := reader.SearchWords(t.Context(), s.user, words("word")); !errors.Is(err, memory.ErrReadOnly) {
		t.Errorf("reading: %v", err)
	}
	s.Store = open(t, dir).(*sqlite.Store)
	if got := found(s.search(t, words("word"))); len(got) != 1 {
		t.Errorf("before the rebuild: found %q", got)
	}
	if err := s.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if findings, err := s.CheckIndex(t.Context()); err != nil || len(findings) > 0 {
		t.Error(findings, err)
	}
	if hits, err := reader.SearchWords(t.Context(), s.user, words("word")); err != nil || len(hits.Hits) != 1 {
		t.Errorf("reading after the rebuild: %v, %v", hits, err)
	}
}

// A reader beside the writer finds what was acknowledged, indexed or not.
func TestReadOnlySearch(t *testing.T) {
	dir := t.TempDir()
	s := openSearched(t, dir)
	reader, err := sqlite.Open(t.Context(), database(dir), sqlite.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for i := range 50 {
		s.say(t, fmt.Sprintf("word%d and more", i))
		if i%10 == 5 {
			if err := s.CatchUp(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		hits, err := reader.SearchWords(t.Context(), s.user, words(fmt.Sprintf("word%d", i)))
		if err != nil || len(found(hits.Hits)) != 1 {
			t.Fatalf("message %d: %v, %v", i, found(hits.Hits), err)
		}
	}
	if err := reader.Reindex(t.Context(), s.user); !errors.Is(err, memory.ErrReadOnly) {
		t.Errorf("reindex: %v", err)
	}
}

// Close does not wait for what is behind the index; the next open goes on.
func TestCloseLeavesTheRest(t *testing.T) {
	dir := t.TempDir()
	s := openSearched(t, dir)
	for range 20 {
		drafts := make([]memory.Draft, 100)
		for i := range drafts {
			drafts[i] = said("one of many words")
		}
		if _, err := s.Append(t.Context(), s.user, s.session, drafts...); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
	s.Store = open(t, dir).(*sqlite.Store)
	if err := s.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if findings, err := s.CheckIndex(t.Context()); err != nil || len(findings) > 0 {
		t.Error(findings, err)
	}
}

func init() {
	childTasks["index"] = func(dir string) int {
		ctx := context.Background()
		store, err := sqlite.Open(ctx, database(dir), sqlite.Options{})
		if err != nil {
			fmt.Println("open:", err)
			return 1
		}
		user, agent, err := people(ctx, store)
		if err != nil {
			fmt.Println("people:", err)
			return 1
		}
		session, err := store.CreateSession(ctx, memory.Session{Agent: agent, User: user, CreatedAt: at})
		if err != nil {
			fmt.Println("session:", err)
			return 1
		}
		for i := 0; ; i++ {
			m, err := store.Append(ctx, user, session.ID, said(fmt.Sprintf("words of message %d", i)))
			if err == nil && i%3 == 0 {
				err = store.CatchUp(ctx)
			}
			if err != nil {
				fmt.Println("index:", err)
				return 1
			}
			fmt.Println("stored", m[0].ID)
		}
	}
}

// S5: a process that is killed while it indexes and merges leaves an index that
// the next can go on with.
func TestIndexSurvivesAKill(t *testing.T) {
	dir := t.TempDir()
	stored := 0
	for round := range *kills {
		command := rerun(t, dir, "index")
		stdout, err := command.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		last := stored + 1 + round*37%100
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			word, _, _ := strings.Cut(lines.Text(), " ")
			switch word {
			case "opening":
			case "stored":
				if stored++; stored >= last {
					_ = command.Process.Kill()
				}
			default:
				t.Fatalf("child: %s", lines.Text())
			}
		}
		_ = command.Wait()
	}
	store := open(t, dir).(*sqlite.Store)
	user, err := store.DefaultUser(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		q := words("words")
		q.Limit = 1000
		result, err := store.SearchWords(t.Context(), user.ID, q)
		hits := result.Hits
		// One more than was read may have been stored in each round.
		if err != nil || len(hits) < min(stored, q.Limit) || len(hits) > stored+*kills {
			t.Errorf("found %d of %d, %v", len(hits), stored, err)
		}
		if findings, err := store.CheckIndex(t.Context()); err != nil || len(findings) > 0 {
			t.Error(findings, err)
		}
		if err := store.CatchUp(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// The highest numbers are given again after their rows were removed: what has one
// comes after the cursor, and not into a rebuild that was begun before, too.
func TestNumbersGivenAgainAreIndexedOnce(t *testing.T) {
	s := openSearched(t, t.TempDir())
	s.StopIndexer()
	s.say(t, "alpha", "beta")
	other := memory.NewID[memory.UserID]()
	if err := s.PutUser(t.Context(), memory.User{ID: other, Name: "other", CreatedAt: at}); err != nil {
		t.Fatal(err)
	}
	theirs := s.create(t, other, s.agent)
	for range 8 {
		if _, err := s.Append(t.Context(), other, theirs, said("theirs")); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.MarkRebuild(t.Context(), s.user); err != nil {
		t.Fatal(err)
	}
	if _, err := s.WipeUser(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	s.say(t, "gamma")
	for range 2 {
		if hits := s.search(t, words("gamma")); len(hits) != 3 {
			t.Errorf("one that has it and two beside it are %d hits", len(hits))
		}
		if err := s.CatchUp(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if wrong, err := s.CheckIndex(t.Context()); err != nil || len(wrong) > 0 {
		t.Errorf("the index: %q, %v", wrong, err)
	}
}
