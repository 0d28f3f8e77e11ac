package sqlite_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/sqlite"
)

var (
	scale      = flag.Int("scale", 20_000, "messages of BenchmarkScale; 1000000 is the whole of it")
	scaleUsers = flag.Int("scale-users", 10, "users of BenchmarkScale, who share the messages")
	scaleBytes = flag.Int("scale-bytes", 1000, "bytes of text of each message of BenchmarkScale")
)

// BenchmarkScale fills a database and reports what grows with it and what must
// not: opening, reading a frontier, searching, the size on disk, a wipe.
func BenchmarkScale(b *testing.B) {
	ctx := b.Context()
	metrics := map[string]float64{}
	dir := b.TempDir()
	store := open(b, dir)
	words := newVocabulary()
	users, sessions := peopleAndSessions(b, store)
	each := *scale / len(users)
	text, began := 0, time.Now()
	for i, user := range users {
		for stored := 0; stored < each; {
			drafts := make([]memory.Draft, min(500, each-stored))
			for n := range drafts {
				drafts[n] = said(words.text(*scaleBytes))
				drafts[n].At = at.Add(time.Duration(stored+n) * time.Minute)
				text += *scaleBytes
			}
			if _, err := store.Append(ctx, user, sessions[i], drafts...); err != nil {
				b.Fatal(err)
			}
			stored += len(drafts)
		}
		shrink(b, store, user, sessions[i])
	}
	metrics["appended/s"] = float64(*scale) / time.Since(began).Seconds()
	if err := store.(*sqlite.Store).CatchUp(ctx); err != nil {
		b.Fatal(err)
	}
	metrics["indexed/s"] = float64(*scale) / time.Since(began).Seconds()
	if err := store.Close(); err != nil {
		b.Fatal(err)
	}
	metrics["disk/text"] = float64(bytesUnder(b, dir)) / float64(text)

	began = time.Now()
	store = open(b, dir)
	metrics["open-ms"] = float64(time.Since(began).Microseconds()) / 1000

	var frontiers, searches []time.Duration
	for n := range 1000 {
		i := n % len(users)
		frontiers = append(frontiers, took(b, func() error {
			_, err := store.Frontier(ctx, users[i], sessions[i])
			return err
		}))
		query := memory.WordQuery{Limit: 50}
		for range 6 {
			query.Words = append(query.Words, memory.WeightedWord{Text: words.word(), Weight: 1})
		}
		searches = append(searches, took(b, func() error {
			_, err := store.SearchWords(ctx, users[i], query)
			return err
		}))
	}
	percentiles(metrics, "frontier", frontiers)
	percentiles(metrics, "search", searches)

	if len(users) > 1 {
		wiped := took(b, func() error {
			if _, err := store.WipeUser(ctx, users[len(users)-1]); err != nil {
				return err
			}
			done, err := store.Scrub(ctx)
			if err == nil && !done {
				err = fmt.Errorf("nobody reads, but the scrub did not end")
			}
			return err
		})
		metrics["wipe-s"] = wiped.Seconds()
	}
	for b.Loop() {
		if _, err := store.Frontier(ctx, users[0], sessions[0]); err != nil {
			b.Fatal(err)
		}
	}
	// Beginning the loop forgets what was reported before it.
	for name, value := range metrics {
		b.ReportMetric(value, name)
	}
}

func peopleAndSessions(b *testing.B, store memory.Store) (users []memory.UserID, sessions []memory.SessionID) {
	b.Helper()
	ctx := b.Context()
	user, agent, err := people(ctx, store)
	if err != nil {
		b.Fatal(err)
	}
	users = append(users, user)
	for n := 1; n < *scaleUsers; n++ {
		users = append(users, memory.NewID[memory.UserID]())
		if err := store.PutUser(ctx, memory.User{ID: users[n], Name: fmt.Sprintf("user%d", n), CreatedAt: at}); err != nil {
			b.Fatal(err)
		}
	}
	for _, user := range users {
		session, err := store.CreateSession(ctx, memory.Session{Agent: agent, User: user, CreatedAt: at})
		if err != nil {
			b.Fatal(err)
		}
		sessions = append(sessions, session.ID)
	}
	return users, sessions
}

// shrink leaves one summary and 39 messages in the frontier.
func shrink(b *testing.B, store memory.Store, user memory.UserID, session memory.SessionID) {
	b.Helper()
	frontier, err := store.Frontier(b.Context(), user, session)
	if err != nil {
		b.Fatal(err)
	}
	if len(frontier.Items) <= 40 {
		return
	}
	leaf := memory.NewSummary{ID: memory.NewID[memory.SummaryID](), SummaryText: memory.SummaryText{Text: sentences, Level: memory.LevelNormal, Model: "test"}, At: at}
	for _, item := range frontier.Items[:len(frontier.Items)-39] {
		leaf.Messages = append(leaf.Messages, item.Message.ID)
	}
	if _, err := store.CommitSummary(b.Context(), user, frontier.Revision, leaf); err != nil {
		b.Fatal(err)
	}
}

func took(b *testing.B, f func() error) time.Duration {
	b.Helper()
	began := time.Now()
	if err := f(); err != nil {
		b.Fatal(err)
	}
	return time.Since(began)
}

func percentiles(metrics map[string]float64, what string, times []time.Duration) {
	slices.Sort(times)
	for _, p := range []int{50, 95, 99} {
		metrics[fmt.Sprintf("%s-p%d-ms", what, p)] = float64(times[len(times)*p/100].Microseconds()) / 1000
	}
}

func bytesUnder(b *testing.B, dir string) (sum int64) {
	b.Helper()
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		sum += info.Size()
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return sum
}

// vocabulary draws words as often as people use them.
type vocabulary struct {
	zipf  *rand.Zipf
	words []string
}

func newVocabulary() *vocabulary {
	random := rand.New(rand.NewPCG(1, 2))
	v := &vocabulary{zipf: rand.NewZipf(random, 1.1, 2.7, 59_999)}
	for range 60_000 {
		word := make([]byte, 3+random.IntN(8))
		for i := range word {
			word[i] = byte('a' + random.IntN(26))
		}
		v.words = append(v.words, string(word))
	}
	return v
}

func (v *vocabulary) word() string { return v.words[v.zipf.Uint64()] }

func (v *vocabulary) text(size int) string {
	var s strings.Builder
	for s.Len() < size {
		s.WriteString(v.word() + " ")
	}
	return s.String()[:size]
}
