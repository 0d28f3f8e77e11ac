// Prefixsim measures what keeping the beginning of a prompt is worth: it lets
// people talk under several policies of making room, assembles every prompt of
// theirs, and tells how much of each a provider has read before, and what the
// prompts cost where a token that a provider's cache has is cheaper and one that
// it is to keep is dearer.
//
// The chats are generated, and those of a file of conversations such as LoCoMo's
// (Maharana et al., 2024) if there is one. Store, engine and assembly are the
// real ones; summaries are cut, not written.
//
//	go run ./compaction/internal/prefixsim [-data FILE] [-exchanges N] [-budget N] [-interval 0,5] [-json]
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"text/tabwriter"

	"golang.org/x/sync/errgroup"
)

// defaultBudget is what a prompt may cost in the host's default window: 32,768
// tokens without the 1,024 of an answer.
const defaultBudget = 32_768 - 1_024

func main() {
	var o options
	data := flag.String("data", "", "JSON file of conversations; without it, only generated chats")
	exchanges := flag.Int("exchanges", 300, "length of each generated chat")
	flag.IntVar(&o.budget, "budget", defaultBudget, "what a prompt may cost, in tokens")
	intervals := flag.String("interval", "0,5", "exchanges between two compactions beside the thresholds; 0 is none")
	asJSON := flag.Bool("json", false, "print JSON")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := func() error {
		for _, field := range strings.Split(*intervals, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(field))
			if err != nil || n < 0 {
				return fmt.Errorf("-interval %q is no list of numbers", *intervals)
			}
			o.policies = append(o.policies, ours(n))
		}
		o.policies = append(o.policies, others...)
		if *exchanges < 1 || o.budget < 2000 {
			return errors.New("-exchanges is at least 1, -budget 2000")
		}
		sets := generated(*exchanges)
		if *data != "" {
			read, err := readConversations(*data)
			if err != nil {
				return err
			}
			sets = append(sets, read)
		}
		return run(ctx, o, sets, *asJSON, os.Stdout)
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "prefixsim:", err)
		os.Exit(1)
	}
}

type options struct {
	budget   int
	policies []policy
}

// measured is the sum over the chats of a set.
type measured struct {
	Policy string `json:"policy"`
	Set    string `json:"set"`
	Turns  int    `json:"turns"`
	// Prompts are more than turns where the assistant calls tools.
	Prompts int `json:"prompts"`
	// Tokens are those of all prompts.
	Tokens int `json:"tokens"`
	// Changes counts the prompts that do not begin with what should have stayed
	// of the prompt before.
	Changes int `json:"changes"`
	// Reused are the tokens that the prompt before began with, as the report of
	// assembly says.
	Reused int `json:"reused"`
	// Read, Written and Plain are what the cache of a provider makes of them.
	Read    int `json:"read"`
	Written int `json:"written"`
	Plain   int `json:"plain"`
	// Over counts the prompts over the budget.
	Over int `json:"over"`
	// Shares of Tokens, and the price of one where one without a cache costs 1.
	ReusePart float64 `json:"reuse"`
	ReadPart  float64 `json:"read_part"`
	Cost      float64 `json:"cost"`
	// AtMost is what ReusePart would be if prompts of this length only ever
	// grew at their end: the rest is said or remembered in the turn itself. It is
	// 0 if no prompt ever grew.
	AtMost float64 `json:"reuse_at_most"`

	// new are the tokens that were not reused in the grown prompts, those that
	// begin with what should have stayed.
	new, grown int
}

func (m *measured) finish() {
	of := float64(max(m.Tokens, 1))
	m.ReusePart, m.ReadPart = float64(m.Reused)/of, float64(m.Read)/of
	if m.grown > 0 {
		m.AtMost = 1 - float64(m.new)/float64(m.grown)*float64(m.Prompts)/of
	}
	m.Cost = (priceRead*float64(m.Read) + priceWritten*float64(m.Written) + float64(m.Plain)) / of
}

func run(ctx context.Context, o options, sets []set, asJSON bool, out io.Writer) error {
	dir, err := os.MkdirTemp("", "prefixsim-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	results := make([]measured, len(sets)*len(o.policies))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, s := range sets {
		for j, p := range o.policies {
			n := i*len(o.policies) + j
			group.Go(func() error {
				m := &results[n]
				m.Policy, m.Set = p.name, s.name
				for k, c := range s.chats {
					if err := m.chat(ctx, filepath.Join(dir, fmt.Sprintf("%d-%d.db", n, k)), p, c, o.budget); err != nil {
						return fmt.Errorf("%s, %s: %w", s.name, p.name, err)
					}
				}
				m.finish()
				return nil
			})
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(out).Encode(results)
	}
	return table(out, results)
}

func table(out io.Writer, results []measured) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "chats\tpolicy\tturns\tprompts\ttokens each\tchanges\treused %\tat most\tread %\twritten %\tcost\tcost each\tover\t")
	for _, m := range results {
		percent := func(n int) float64 { return 100 * float64(n) / float64(max(m.Tokens, 1)) }
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%.1f\t%.1f\t%.1f\t%.1f\t%.3f\t%.0f\t%d\t\n", m.Set, m.Policy, m.Turns, m.Prompts,
			m.Tokens/max(m.Prompts, 1), m.Changes, percent(m.Reused), 100*m.AtMost, percent(m.Read), percent(m.Written), m.Cost, m.Cost*float64(m.Tokens)/float64(max(m.Prompts, 1)), m.Over)
	}
	return w.Flush()
}

// conversation is one of the file.
type conversation struct {
	Sessions []struct {
		Date  string `json:"date"`
		Turns []struct {
			Speaker string `json:"speaker"`
			Text    string `json:"text"`
		} `json:"turns"`
	} `json:"sessions"`
}

func readConversations(path string) (set, error) {
	file, err := os.Open(path)
	if err != nil {
		return set{}, err
	}
	defer file.Close()
	var conversations []conversation
	if err := json.NewDecoder(bufio.NewReader(file)).Decode(&conversations); err != nil {
		return set{}, fmt.Errorf("read %s: %w", path, err)
	}
	s := set{name: "LoCoMo"}
	for _, c := range conversations {
		chat, err := chatOf(c)
		if err != nil {
			return set{}, fmt.Errorf("read %s: %w", path, err)
		}
		s.chats = append(s.chats, chat)
	}
	return s, nil
}
