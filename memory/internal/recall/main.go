// Recall measures how much of what answers a question a search brings back: by
// plain FTS5, by FTS5 with a column for a turn's neighbours, and by package
// search over the store. Its data are conversations with questions whose evidence
// somebody has marked, such as LoCoMo (Maharana et al., 2024).
//
//	go run ./memory/internal/recall -data FILE [-json]
package main

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	_ "modernc.org/sqlite"

	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/search"
	"github.com/gloveboxhq/glovebox/memory/sqlite"
)

func main() {
	data := flag.String("data", "", "JSON file of the conversations")
	asJSON := flag.Bool("json", false, "print JSON")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *data, *asJSON, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "recall:", err)
		os.Exit(1)
	}
}

type conversation struct {
	ID       string `json:"id"`
	Sessions []struct {
		Date  string `json:"date"`
		Turns []turn `json:"turns"`
	} `json:"sessions"`
	Questions []struct {
		Question string   `json:"question"`
		Category int      `json:"category"`
		Evidence []string `json:"evidence"`
	} `json:"questions"`
}

type turn struct {
	ID      string `json:"id"`
	Speaker string `json:"speaker"`
	Text    string `json:"text"`
}

// said is the turn as it is stored and as it is given back: who speaks is part
// of what a budget pays for.
func (t turn) said() string { return t.Speaker + ": " + t.Text }

// categories are the names of LoCoMo's numbers.
var categories = []string{1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}

// Cuts at which recall is taken, and budgets in tokens of four characters.
var (
	cuts    = []int{5, 10, 25, 50}
	budgets = []int{512, 1024, 2048, 4096, 8192}
)

// searcher ranks the turns of one conversation.
type searcher interface {
	// search returns ids of turns, the best first.
	search(ctx context.Context, question string) ([]string, error)
	io.Closer
}

// measured is the sum over questions, to be divided by their number.
type measured struct {
	Name       string                     `json:"name"`
	Recall     map[int]float64            `json:"recall_at"`
	Within     map[int]float64            `json:"within_tokens"`
	Categories map[string]map[int]float64 `json:"recall_at_by_category"`
	questions  map[string]int
}

func run(ctx context.Context, path string, asJSON bool, out io.Writer) error {
	if path == "" {
		return errors.New("-data names no file")
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	var conversations []conversation
	if err := json.NewDecoder(bufio.NewReader(file)).Decode(&conversations); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	dir, err := os.MkdirTemp("", "recall-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var results []measured
	for _, method := range methods {
		m := measured{Name: method.name, Recall: map[int]float64{}, Within: map[int]float64{}, Categories: map[string]map[int]float64{}, questions: map[string]int{}}
		for i, c := range conversations {
			s, err := method.open(ctx, filepath.Join(dir, fmt.Sprintf("%d.db", i)), c)
			if err != nil {
				return fmt.Errorf("%s: conversation %s: %w", method.name, c.ID, err)
			}
			err = m.ask(ctx, s, c)
			if err := errors.Join(err, s.Close()); err != nil {
				return fmt.Errorf("%s: conversation %s: %w", method.name, c.ID, err)
			}
		}
		results = append(results, m.mean())
	}
	if asJSON {
		return json.NewEncoder(out).Encode(results)
	}
	return table(out, results)
}

// methods are compared in this order.
var methods = []struct {
	name string
	open func(context.Context, string, conversation) (searcher, error)
}{
	{"plain FTS5", func(ctx context.Context, _ string, c conversation) (searcher, error) { return openFTS(ctx, c, false) }},
	{"FTS5, neighbour column", func(ctx context.Context, _ string, c conversation) (searcher, error) { return openFTS(ctx, c, true) }},
	{"search", openStore},
}

const overall = "all"

func (m *measured) ask(ctx context.Context, s searcher, c conversation) error {
	size := map[string]int{}
	for _, session := range c.Sessions {
		for _, t := range session.Turns {
			size[t.ID] = utf8.RuneCountInString(t.said())
		}
	}
	for _, q := range c.Questions {
		wanted := map[string]bool{}
		for _, id := range q.Evidence {
			wanted[id] = true
		}
		if len(wanted) == 0 || q.Category < 1 || q.Category >= len(categories) {
			continue
		}
		ids, err := s.search(ctx, q.Question)
		if err != nil {
			return fmt.Errorf("%q: %w", q.Question, err)
		}
		m.questions[overall]++
		m.questions[categories[q.Category]]++
		share := func(ids []string) float64 {
			found := 0
			for _, id := range ids {
				if wanted[id] {
					found++
				}
			}
			return float64(found) / float64(len(wanted))
		}
		of := m.Categories[categories[q.Category]]
		if of == nil {
			of = map[int]float64{}
			m.Categories[categories[q.Category]] = of
		}
		for _, k := range cuts {
			recall := share(ids[:min(k, len(ids))])
			m.Recall[k] += recall
			of[k] += recall
		}
		for _, budget := range budgets {
			m.Within[budget] += share(within(ids, size, 4*budget))
		}
	}
	return nil
}

// within returns the first turns that have room together; one that has none is
// passed over.
func within(ids []string, size map[string]int, room int) (kept []string) {
	for _, id := range ids {
		if size[id] <= room {
			room -= size[id]
			kept = append(kept, id)
		}
	}
	return kept
}

func (m measured) mean() measured {
	divide := func(sums map[int]float64, n int) {
		for k := range sums {
			sums[k] = 100 * sums[k] / float64(max(n, 1))
		}
	}
	divide(m.Recall, m.questions[overall])
	divide(m.Within, m.questions[overall])
	for category, sums := range m.Categories {
		divide(sums, m.questions[category])
	}
	return m
}

func table(out io.Writer, results []measured) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, of func(measured) float64) {
		fmt.Fprintf(w, "%s\t", name)
		for _, m := range results {
			fmt.Fprintf(w, "%.1f\t", of(m))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprint(w, "\t")
	for _, m := range results {
		fmt.Fprintf(w, "%s\t", m.Name)
	}
	fmt.Fprintln(w)
	for _, k := range cuts {
		row(fmt.Sprintf("evidence recall@%d, %%", k), func(m measured) float64 { return m.Recall[k] })
	}
	for _, category := range categories[1:] {
		for _, k := range cuts {
			row(fmt.Sprintf("%s @%d", category, k), func(m measured) float64 { return m.Categories[category][k] })
		}
	}
	for _, budget := range budgets {
		row(fmt.Sprintf("within %d tokens, %%", budget), func(m measured) float64 { return m.Within[budget] })
	}
	return w.Flush()
}

// fts ranks by bm25 over an FTS5 table.
type fts struct {
	db     *sql.DB
	ids    []string
	column int
}

func openFTS(ctx context.Context, c conversation, neighbours bool) (searcher, error) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	f := &fts{db: db}
	if _, err := db.ExecContext(ctx, "CREATE VIRTUAL TABLE turns USING fts5 (own, near, tokenize = 'porter unicode61')"); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	for _, session := range c.Sessions {
		for i, t := range session.Turns {
			var near []string
			if neighbours {
				for _, other := range append(slices.Clone(session.Turns[max(i-2, 0):i]), session.Turns[i+1:min(i+3, len(session.Turns))]...) {
					near = append(near, other.Text)
				}
			}
			f.ids = append(f.ids, t.ID)
			if _, err := db.ExecContext(ctx, "INSERT INTO turns (rowid, own, near) VALUES (?, ?, ?)", len(f.ids), t.said(), strings.Join(near, "\n")); err != nil {
				return nil, errors.Join(err, db.Close())
			}
		}
	}
	return f, nil
}

func (f *fts) search(ctx context.Context, question string) ([]string, error) {
	var terms []string
	for _, word := range strings.FieldsFunc(question, func(r rune) bool { return !isWord(r) }) {
		terms = append(terms, `"`+word+`"`)
	}
	if len(terms) == 0 {
		return nil, nil
	}
	rows, err := f.db.QueryContext(ctx, "SELECT rowid FROM turns WHERE turns MATCH ? ORDER BY bm25(turns, 1.0, 0.5), rowid DESC LIMIT ?", strings.Join(terms, " OR "), search.MaxHits)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var ids []string
	for rows.Next() {
		var n int
		if err := rows.Scan(&n); err != nil {
			return nil, err
		}
		ids = append(ids, f.ids[n-1])
	}
	return ids, rows.Err()
}

func isWord(r rune) bool {
	return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r > 127
}

func (f *fts) Close() error { return f.db.Close() }

// stored ranks by package search over a store.
type stored struct {
	*sqlite.Store
	user memory.UserID
	ids  map[memory.MessageID]string
}

func openStore(ctx context.Context, path string, c conversation) (searcher, error) {
	store, err := sqlite.Open(ctx, path, sqlite.Options{})
	if err != nil {
		return nil, err
	}
	s := &stored{Store: store, ids: map[memory.MessageID]string{}}
	if err := s.fill(ctx, c); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return s, nil
}

func (s *stored) fill(ctx context.Context, c conversation) error {
	user, err := s.DefaultUser(ctx)
	if err != nil {
		return err
	}
	s.user = user.ID
	agent, err := s.PutAgent(ctx, "recall", "", user.CreatedAt)
	if err != nil {
		return err
	}
	for _, session := range c.Sessions {
		at, err := time.Parse("3:04 pm on 2 January, 2006", session.Date)
		if err != nil {
			return err
		}
		v, err := s.CreateSession(ctx, memory.Session{Agent: agent.ID, User: user.ID, CreatedAt: at})
		if err != nil {
			return err
		}
		var drafts []memory.Draft
		for i, t := range session.Turns {
			role := memory.RoleUser
			if t.Speaker != session.Turns[0].Speaker {
				role = memory.RoleAssistant
			}
			drafts = append(drafts, memory.Draft{Role: role, Source: memory.Source(role), Blocks: []memory.Block{memory.Text(t.said())}, At: at.Add(time.Duration(i) * time.Minute)})
		}
		messages, err := s.Append(ctx, user.ID, v.ID, drafts...)
		if err != nil {
			return err
		}
		for i, m := range messages {
			s.ids[m.ID] = session.Turns[i].ID
		}
	}
	return nil
}

func (s *stored) search(ctx context.Context, question string) ([]string, error) {
	hits, err := search.Messages(ctx, s.Store, s.user, search.Question{Text: question, Limit: search.MaxHits})
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(hits))
	for i, h := range hits {
		ids[i] = s.ids[h.Message.ID]
	}
	return ids, nil
}
