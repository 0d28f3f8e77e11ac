package crashtest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/memory"
)

// Options for Kill.
type Options struct {
	// Seed chooses what the children do and when they die. The same seed gives
	// the same choices; how far a process comes meanwhile is the machine's.
	Seed uint64
	// Kills is how many processes to kill.
	Kills int
	// Older, if not nil, puts a store of an older schema into an empty
	// directory, the same each time. Some children die while they migrate it.
	Older func(dir string) error
}

// Of eight children, one dies while it makes a store, one while it migrates
// one, and the others while they write to what all before them have written.
const (
	roundsOfACycle = 8
	roundCreate    = 2
	roundMigrate   = 5
)

// maxFrames is the most that a child says before it is killed; a few percent
// of the children are not yet past their opening by then.
const maxFrames = 400

// roundsOfAPlace is how many children write to one store, before it becomes so
// large that to compare it takes longer than to write it.
const roundsOfAPlace = 2 * roundsOfACycle

// slowest bounds how long a child is waited for.
const slowest = 2 * time.Minute

// place is a store that children write to, and what is known of it.
type place struct {
	dir    string
	ledger *ledger
	again  []batch
}

func newPlace(t *testing.T) *place {
	return &place{dir: t.TempDir(), ledger: newLedger()}
}

// Kill starts processes that write to stores of the engine, kills each at an
// instant of its own, opens the store after each and proves that all is there
// which must be, and nothing else. TestMain must call Child with the same
// engine.
func Kill(t *testing.T, engine Engine, options Options) Counts {
	t.Helper()
	t.Logf("seed %d", options.Seed)
	random := rand.New(rand.NewPCG(options.Seed, 0))
	lasting := newPlace(t)
	var total Counts
	for round := range options.Kills {
		if round > 0 && round%roundsOfAPlace == 0 {
			total.add(lasting.ledger.counts)
			lasting = newPlace(t)
		}
		p, whileOpening := lasting, false
		switch {
		case round%roundsOfACycle == roundCreate:
			p, whileOpening = newPlace(t), true
		case round%roundsOfACycle == roundMigrate && options.Older != nil:
			p, whileOpening = older(t, engine, options.Older), true
		}
		frames, delay := 1, time.Duration(random.Int64N(int64(40*time.Millisecond)))
		if !whileOpening {
			frames, delay = 1+random.IntN(maxFrames), time.Duration(random.Int64N(int64(3*time.Millisecond)))
		}
		if err := p.kill(t, orders{Dir: p.dir, Seed: options.Seed, Round: round, Again: p.again}, frames, delay); err != nil {
			t.Fatalf("round %d of seed %d: %v", round, options.Seed, err)
		}
		if err := p.examine(t.Context(), engine); err != nil {
			t.Fatalf("after kill %d of seed %d: %v", round+1, options.Seed, err)
		}
		if p != lasting {
			total.add(p.ledger.counts)
		}
	}
	total.add(lasting.ledger.counts)
	return total
}

func (c *Counts) add(other Counts) {
	c.Kills += other.Kills
	c.Opening += other.Opening
	c.Messages += other.Messages
	c.Summaries += other.Summaries
	c.Repairs += other.Repairs
	c.Deletes += other.Deletes
	c.Wipes += other.Wipes
	c.Scrubs += other.Scrubs
	c.Kept += other.Kept
	c.Dropped += other.Dropped
}

// older returns a place with a store of an older schema. What is in it is read
// from a second one that is migrated in peace.
func older(t *testing.T, engine Engine, write func(dir string) error) *place {
	t.Helper()
	p, peaceful := newPlace(t), t.TempDir()
	if err := errors.Join(write(p.dir), write(peaceful)); err != nil {
		t.Fatal(err)
	}
	store, err := engine.Open(t.Context(), peaceful)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.ledger.adopt(t.Context(), store), store.Close()); err != nil {
		t.Fatal(err)
	}
	if len(p.ledger.sessions) == 0 {
		t.Fatal("the older store is empty: it proves nothing")
	}
	return p
}

// kill runs a child and kills it when delay has passed since it sent that many
// frames.
func (p *place) kill(t *testing.T, o orders, frames int, delay time.Duration) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	from, to, err := os.Pipe()
	if err != nil {
		return err
	}
	defer from.Close()
	ctx, cancel := context.WithTimeout(t.Context(), slowest)
	defer cancel()
	command := exec.CommandContext(ctx, self)
	command.Env = append(os.Environ(), childOrders+"="+string(text))
	command.ExtraFiles = []*os.File{to}
	var stderr bytes.Buffer
	command.Stderr = &stderr
	err = command.Start()
	if err = errors.Join(err, to.Close()); err != nil {
		return err
	}
	var killed atomic.Bool
	opened := false
	reports := bufio.NewReader(from)
	for n := 1; ; n++ {
		e, err := receive(reports)
		if err == nil {
			opened = opened || e.Step == stepOpened
			err = p.ledger.record(e)
		}
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			_ = command.Process.Kill()
			_ = command.Wait()
			return err
		}
		if n == frames {
			timer := time.AfterFunc(delay, func() {
				killed.Store(true)
				_ = command.Process.Kill()
			})
			defer timer.Stop()
		}
	}
	_ = command.Wait()
	if ctx.Err() != nil {
		return fmt.Errorf("the child was not done after %v: %s", slowest, stderr.String())
	}
	if !killed.Load() {
		return fmt.Errorf("the child ended before it was killed: %s", stderr.String())
	}
	if !opened {
		p.ledger.counts.Opening++
	}
	p.again = p.ledger.bury()
	return nil
}

// examine opens the store and compares it with what is known.
func (p *place) examine(ctx context.Context, engine Engine) error {
	if engine.Files != nil {
		paths, err := engine.Files(p.dir)
		if err == nil {
			err = p.ledger.checkFiles(paths)
		}
		if err != nil {
			return err
		}
	}
	store, err := engine.Open(ctx, p.dir)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	err = p.ledger.settle(ctx, store)
	if err == nil {
		err = p.ledger.searchFinds(ctx, store)
	}
	if engine.Check != nil {
		found, checkErr := engine.Check(ctx, store)
		err = errors.Join(err, checkErr)
		for _, finding := range found {
			err = errors.Join(err, fmt.Errorf("the store's own check: %s", finding))
		}
	}
	return errors.Join(err, store.Close())
}

var uniqueWord = regexp.MustCompile(`\bu[0-9a-f]{16}\b`)

// searchFinds looks whether the index has what the messages say, and gives it
// to nobody else.
func (l *ledger) searchFinds(ctx context.Context, store memory.Store) error {
	for _, s := range l.sample(5) {
		m, err := store.Message(ctx, s.user, s.message)
		if err != nil {
			return err
		}
		word := ""
		if m.Blocks[0].Type == memory.BlockText {
			word = uniqueWord.FindString(m.Blocks[0].Text)
		}
		if word == "" || m.IsRefresh() {
			continue
		}
		q := memory.WordQuery{Words: []memory.WeightedWord{{Text: word, Weight: 1}}}
		for user := range l.users {
			hits, err := store.SearchWords(ctx, user, q)
			switch {
			case errors.Is(err, errors.ErrUnsupported):
				return nil
			case errors.Is(err, memory.ErrNotFound) && user != s.user:
			case err != nil:
				return err
			case user != s.user && len(hits) > 0:
				return fmt.Errorf("user %s finds a message of user %s", user, s.user)
			case user == s.user && (len(hits) == 0 || hits[0].Message.ID != m.ID || hits[0].Own <= 0):
				return fmt.Errorf("a search for %s finds %d messages, and not %s of session %s first", word, len(hits), m.ID, m.Session)
			}
		}
	}
	return nil
}
