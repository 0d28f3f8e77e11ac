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
	"path/filepath"
	"regexp"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/gloveboxhq/glovebox/memory"
)

// Options for Run.
type Options struct {
	// Dir is an empty directory for the stores.
	Dir string
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

// createTime is about how long it takes to make a store.
const createTime = 30 * time.Millisecond

// slowest bounds how long a child is waited for.
const slowest = 2 * time.Minute

// place is a store that children write to, and what is known of it.
type place struct {
	dir    string
	ledger *ledger
	again  []batch
}

func newPlace(dir string) *place { return &place{dir: dir, ledger: newLedger()} }

// Run starts processes that write to stores of the engine, kills each at an
// instant of its own, opens the store after each and proves that all is there
// which must be, and nothing else. The error says what is not. The program must
// call Child with the same engine.
func Run(ctx context.Context, engine Engine, options Options) (Counts, error) {
	random := rand.New(rand.NewPCG(options.Seed, 0))
	var total Counts
	var lasting *place
	for round := range options.Kills {
		dir := filepath.Join(options.Dir, strconv.Itoa(round))
		if round%roundsOfAPlace == 0 {
			lasting = newPlace(dir)
		}
		p, frames, delay := lasting, 1+random.IntN(maxFrames), time.Duration(random.Int64N(int64(3*time.Millisecond)))
		switch {
		case round%roundsOfACycle == roundCreate:
			p, frames, delay = newPlace(dir), 1, time.Duration(random.Int64N(int64(createTime)))
		case round%roundsOfACycle == roundMigrate && options.Older != nil:
			var took time.Duration
			var err error
			if p, took, err = older(ctx, dir, engine, options.Older); err != nil {
				return total, fmt.Errorf("older store: %w", err)
			}
			frames, delay = 1, time.Duration(random.Int64N(int64(took)))
		}
		err := os.MkdirAll(p.dir, 0o700)
		if err == nil {
			err = p.kill(ctx, orders{Dir: p.dir, Seed: options.Seed, Round: round, Again: p.again}, frames, delay)
		}
		if err != nil {
			return total, fmt.Errorf("child %d of seed %d: %w", round+1, options.Seed, err)
		}
		if err := p.examine(ctx, engine); err != nil {
			return total, fmt.Errorf("after kill %d of seed %d: %w", round+1, options.Seed, err)
		}
		total.add(p.ledger.counts)
		p.ledger.counts = Counts{}
	}
	return total, nil
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

// older returns a place with a store of an older schema, and how long it takes
// to migrate one. What is in it is read from a second one that is migrated in
// peace.
func older(ctx context.Context, dir string, engine Engine, write func(dir string) error) (*place, time.Duration, error) {
	p, peaceful := newPlace(dir), dir+"-migrated"
	for _, dir := range []string{p.dir, peaceful} {
		if err := errors.Join(os.MkdirAll(dir, 0o700), write(dir)); err != nil {
			return nil, 0, err
		}
	}
	began := time.Now()
	store, err := engine.Open(ctx, peaceful)
	if err != nil {
		return nil, 0, err
	}
	took := time.Since(began)
	err = errors.Join(p.ledger.adopt(ctx, store), store.Close(), os.RemoveAll(peaceful))
	if err == nil && len(p.ledger.sessions) == 0 {
		err = errors.New("it is empty and proves nothing")
	}
	return p, took, err
}

// kill runs a child and kills it when delay has passed since it sent that many
// frames.
func (p *place) kill(ctx context.Context, o orders, frames int, delay time.Duration) error {
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
	ctx, cancel := context.WithTimeout(ctx, slowest)
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
		found, checkErr := engine.Check(ctx, p.dir, store)
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
			found, err := store.SearchWords(ctx, user, q)
			hits := found.Hits
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
