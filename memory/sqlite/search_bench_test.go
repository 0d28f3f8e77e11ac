package sqlite_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/sqlite"
)

// A larger corpus takes its time to be made; it is kept and used again with
//
//	go test ./memory/sqlite -run - -bench Search -messages 1000000 -corpus DIR
var (
	benchMessages = flag.Int("messages", 100_000, "how many messages of 1 KB the search benchmarks look through")
	benchUsers    = flag.Int("users", 1, "how many users they belong to")
	benchCorpus   = flag.String("corpus", "", "directory to keep the databases of the search benchmarks in")
	benchFTS      = flag.Bool("fts", true, "measure FTS5 over the same messages too")
)

// chatter makes texts of a vocabulary of 60,000 words, as frequent as those of
// a language: by Zipf's law.
type chatter struct {
	random     *rand.Rand
	zipf       *rand.Zipf
	vocabulary []string
}

func newChatter(seed uint64) *chatter {
	c := &chatter{random: rand.New(rand.NewPCG(seed, 7))}
	const words = 60_000
	c.zipf = rand.NewZipf(c.random, 1.07, 2, words-1)
	names := rand.New(rand.NewPCG(3, 4))
	known := make(map[string]bool)
	for len(c.vocabulary) < words {
		var b strings.Builder
		for range 1 + names.IntN(3) + len(c.vocabulary)/20_000 {
			b.WriteByte("bcdfghjklmnpqrstvwz"[names.IntN(19)])
			b.WriteByte("aeiou"[names.IntN(5)])
		}
		if w := b.String(); !known[w] || len(c.vocabulary) < 90 {
			known[w] = true
			c.vocabulary = append(c.vocabulary, w)
		}
	}
	return c
}

func (c *chatter) word() string { return c.vocabulary[c.zipf.Uint64()] }

// text is about 1 KB.
func (c *chatter) text() string {
	var b strings.Builder
	for b.Len() < 1000 {
		b.WriteString(c.word())
		b.WriteByte(' ')
	}
	return b.String()
}

// words are n different words of a text: a question about it.
func (c *chatter) words(n int) []memory.WeightedWord {
	said := strings.Fields(c.text())
	c.random.Shuffle(len(said), func(i, j int) { said[i], said[j] = said[j], said[i] })
	slices.Sort(said[:n])
	var words []memory.WeightedWord
	for _, w := range slices.Compact(said[:n]) {
		words = append(words, memory.WeightedWord{Text: w, Weight: 1})
	}
	return words
}

// corpusOf returns the path of a database with so many messages, in sessions
// of 50 of which each user has several at a time.
func corpusOf(b *testing.B, messages, users int) string {
	dir := *benchCorpus
	if dir == "" {
		dir = b.TempDir()
	}
	path := filepath.Join(dir, fmt.Sprintf("corpus-%d-%d.db", messages, users))
	if _, err := os.Stat(path); err != nil {
		makeCorpus(b, path, messages, users)
	}
	before := fileSize(b, path)
	store, err := sqlite.Open(b.Context(), path, sqlite.Options{})
	if err != nil {
		b.Fatal(err)
	}
	start := time.Now()
	if err := store.CatchUp(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.Logf("indexed %d messages in %v", messages, time.Since(start))
	if err := store.Close(); err != nil {
		b.Fatal(err)
	}
	b.Logf("%d bytes before, %d with the index: %.2f × 1 KB a message", before, fileSize(b, path), float64(fileSize(b, path))/float64(messages)/1000)
	return path
}

func makeCorpus(b *testing.B, path string, messages, users int) {
	ctx := b.Context()
	store, err := sqlite.Open(ctx, path, sqlite.Options{})
	if err != nil {
		b.Fatal(err)
	}
	agent, err := store.PutAgent(ctx, "agent", "", at)
	if err != nil {
		b.Fatal(err)
	}
	all := benchmarkUsers(b, store, users)
	type talk struct {
		session memory.SessionID
		seq     int
	}
	talks := make([]talk, users*3)
	if err := store.Close(); err != nil {
		b.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=synchronous(OFF)")
	if err != nil {
		b.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	defer db.Close()
	c := newChatter(1)
	for done := 0; done < messages; {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			b.Fatal(err)
		}
		insert, err := tx.PrepareContext(ctx, "INSERT INTO messages (id, session_id, seq, role, source, content, tokens, trust, created_at) VALUES (?, ?, ?, 'user', 'user', ?, 250, 'direct', ?)")
		if err != nil {
			b.Fatal(err)
		}
		for range min(10_000, messages-done) {
			n := c.random.IntN(len(talks))
			when := at.Add(time.Duration(done) * time.Second).UnixMicro()
			if t := &talks[n]; t.seq%50 == 0 {
				*t = talk{session: memory.NewID[memory.SessionID]()}
				if _, err := tx.ExecContext(ctx, "INSERT INTO sessions (id, agent_id, user_id, title, created_at, last_active_at) VALUES (?, ?, ?, '', ?4, ?4)", t.session[:], agent.ID[:], all[n%users][:], when); err != nil {
					b.Fatal(err)
				}
			}
			talks[n].seq++
			content, _ := json.Marshal([]map[string]string{{"type": "text", "text": c.text()}})
			id := memory.NewID[memory.MessageID]()
			if _, err := insert.ExecContext(ctx, id[:], talks[n].session[:], talks[n].seq, string(content), when); err != nil {
				b.Fatal(err)
			}
			done++
		}
		if err := tx.Commit(); err != nil {
			b.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		b.Fatal(err)
	}
}

func benchmarkUsers(b *testing.B, store memory.Store, n int) []memory.UserID {
	first, err := store.DefaultUser(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	users := []memory.UserID{first.ID}
	for i := 1; i < n; i++ {
		id := memory.UserID{15: byte(i), 14: byte(i >> 8), 0: 1}
		if err := store.PutUser(b.Context(), memory.User{ID: id, Name: fmt.Sprintf("user%d", i), CreatedAt: at}); err != nil {
			b.Fatal(err)
		}
		users = append(users, id)
	}
	return users
}

func fileSize(b *testing.B, path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}
	return info.Size()
}

// measure runs f b.N times and reports how long it took, by percentiles.
func measure(b *testing.B, f func(i int)) {
	took := make([]time.Duration, 0, b.N)
	b.ResetTimer()
	for i := 0; b.Loop(); i++ {
		start := time.Now()
		f(i)
		took = append(took, time.Since(start))
	}
	b.StopTimer()
	slices.Sort(took)
	for _, p := range []int{50, 95, 99} {
		b.ReportMetric(float64(took[(len(took)-1)*p/100].Microseconds())/1000, fmt.Sprintf("p%d-ms", p))
	}
}

func BenchmarkSearch(b *testing.B) {
	path := corpusOf(b, *benchMessages, *benchUsers)
	ctx := b.Context()
	store, err := sqlite.Open(ctx, path, sqlite.Options{ReadOnly: true})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	users, err := store.Users(ctx)
	if err != nil {
		b.Fatal(err)
	}
	text, postings := sizes(b, path)
	size := func(name string, bytes int64) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
			}
			b.ReportMetric(float64(bytes)/float64(text), "bytes/text")
		})
	}
	size("index/size", postings)
	for _, n := range []int{1, 4, 8, 16} {
		b.Run(fmt.Sprintf("index/words=%d", n), func(b *testing.B) {
			c := newChatter(5)
			search := func(i int) {
				found, err := store.SearchWords(ctx, users[i%len(users)].ID, memory.WordQuery{Words: c.words(n), Limit: 20})
				if err != nil || len(found.Hits) == 0 {
					b.Fatal(len(found.Hits), err)
				}
			}
			search(0)
			measure(b, search)
		})
	}
	if !*benchFTS {
		return
	}
	db, build := ftsOf(b, path)
	defer db.Close()
	b.Logf("FTS5 built in %v", build)
	size("fts5/size", fileSize(b, path+".fts"))
	for _, n := range []int{1, 4, 8, 16} {
		b.Run(fmt.Sprintf("fts5/words=%d", n), func(b *testing.B) {
			c := newChatter(5)
			measure(b, func(i int) {
				var words []string
				for _, w := range c.words(n) {
					words = append(words, w.Text)
				}
				query := "(" + strings.Join(words, " OR ") + ")"
				if len(users) > 1 {
					query += fmt.Sprintf(" AND user%d", i%len(users))
				}
				rows, err := db.QueryContext(ctx, "SELECT rowid FROM fts WHERE fts MATCH ? ORDER BY rank LIMIT 20", query)
				if err != nil {
					b.Fatal(err)
				}
				for rows.Next() {
				}
				if err := rows.Close(); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}

// sizes returns how many bytes the messages of a database say and how many the
// index of them has.
func sizes(b *testing.B, path string) (text, postings int64) {
	b.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro")
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRowContext(b.Context(), `SELECT (SELECT sum(length(json_extract(content, '$[0].text'))) FROM messages),
		(SELECT sum(length(data)) FROM index_pages) + (SELECT sum(length(head)) FROM index_segments)`).Scan(&text, &postings); err != nil {
		b.Fatal(err)
	}
	return text, postings
}

// ftsOf makes a table of FTS5 of all messages, each with a word for its user.
func ftsOf(b *testing.B, path string) (*sql.DB, time.Duration) {
	_, statErr := os.Stat(path + ".fts")
	db, err := sql.Open("sqlite", "file:"+path+".fts?_pragma=synchronous(OFF)")
	if err != nil {
		b.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	if statErr == nil {
		return db, 0
	}
	start := time.Now()
	for _, statement := range []string{
		"PRAGMA journal_mode = WAL",
		"ATTACH '" + path + "' AS store",
		"CREATE VIRTUAL TABLE fts USING fts5(text, user, content='', tokenize='porter unicode61')",
		`INSERT INTO fts (rowid, text, user) SELECT m.number, json_extract(m.content, '$[0].text'), 'user' || (u.rowid - 1)
			FROM messages m JOIN sessions s ON s.id = m.session_id JOIN users u ON u.id = s.user_id`,
		"DETACH store",
		"PRAGMA wal_checkpoint(TRUNCATE)",
	} {
		if _, err := db.ExecContext(b.Context(), statement); err != nil {
			b.Fatal(statement, err)
		}
	}
	return db, time.Since(start)
}

// BenchmarkIndexBehind appends at full speed with and without the indexer, and
// at 1,000 messages a second for its lag.
func BenchmarkIndexBehind(b *testing.B) {
	c := newChatter(9)
	var drafts []memory.Draft
	for range 2000 {
		drafts = append(drafts, said(c.text()))
	}
	for _, indexing := range []bool{false, true} {
		b.Run(fmt.Sprintf("append/indexing=%t", indexing), func(b *testing.B) {
			store, user, session := appendTo(b)
			if !indexing {
				store.StopIndexer()
			}
			measure(b, func(i int) {
				if _, err := store.Append(b.Context(), user, session, drafts[i%len(drafts)]); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
	b.Run("lag", func(b *testing.B) {
		store, user, session := appendTo(b)
		var worst int64
		var watching sync.WaitGroup
		ctx, stop := context.WithCancel(b.Context())
		var mu sync.Mutex
		appended := int64(0)
		watching.Go(func() {
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
				case <-ctx.Done():
					return
				}
				mu.Lock()
				now := appended
				mu.Unlock()
				if indexed, err := store.Indexed(ctx); err == nil {
					worst = max(worst, now-indexed)
				}
			}
		})
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		measure(b, func(i int) {
			<-tick.C
			if _, err := store.Append(b.Context(), user, session, drafts[i%len(drafts)]); err != nil {
				b.Fatal(err)
			}
			mu.Lock()
			appended++
			mu.Unlock()
		})
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
		stop()
		watching.Wait()
		b.ReportMetric(float64(worst), "lag-messages")
	})
}

func appendTo(b *testing.B) (*sqlite.Store, memory.UserID, memory.SessionID) {
	store, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "store.db"), sqlite.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { store.Close() })
	user, agent, err := people(b.Context(), store)
	if err != nil {
		b.Fatal(err)
	}
	session, err := store.CreateSession(b.Context(), memory.Session{Agent: agent, User: user, CreatedAt: at})
	if err != nil {
		b.Fatal(err)
	}
	return store, user, session.ID
}

// BenchmarkDropIndex takes one user after another out of the index and of FTS5,
// both with secure deletion.
func BenchmarkDropIndex(b *testing.B) {
	users := max(*benchUsers, 10)
	path := corpusOf(b, *benchMessages, users)
	copied := filepath.Join(b.TempDir(), "copy.db")
	from, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	to, err := os.Create(copied)
	if err != nil {
		b.Fatal(err)
	}
	_, err = io.Copy(to, from)
	if err := errors.Join(err, from.Close(), to.Close()); err != nil {
		b.Fatal(err)
	}
	b.Run("index", func(b *testing.B) {
		store, err := sqlite.Open(b.Context(), copied, sqlite.Options{})
		if err != nil {
			b.Fatal(err)
		}
		defer store.Close()
		all, err := store.Users(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		measure(b, func(i int) {
			if err := store.DropIndex(b.Context(), all[i%len(all)].ID); err != nil {
				b.Fatal(err)
			}
		})
	})
	if !*benchFTS {
		return
	}
	b.Run("fts5", func(b *testing.B) {
		db, _ := ftsOf(b, copied)
		defer db.Close()
		for _, statement := range []string{"ATTACH '" + copied + "' AS store", "PRAGMA secure_delete = ON", "INSERT INTO fts (fts, rank) VALUES ('secure-delete', 1)"} {
			if _, err := db.ExecContext(b.Context(), statement); err != nil {
				b.Fatal(statement, err)
			}
		}
		measure(b, func(i int) {
			if _, err := db.ExecContext(b.Context(), `INSERT INTO fts (fts, rowid, text, user) SELECT 'delete', m.number, json_extract(m.content, '$[0].text'), 'user' || (u.rowid - 1)
				FROM messages m JOIN sessions s ON s.id = m.session_id JOIN users u ON u.id = s.user_id WHERE u.rowid = ?`, i%users+1); err != nil {
				b.Fatal(err)
			}
		})
	})
}
