// Package tokenizer counts what a text costs a model whose vocabulary is public.
// It needs no network and no model.
//
// The vocabularies are those of github.com/tiktoken-go/tokenizer. Its own
// splitting is not used: as of v0.10.0 it takes quadratic time in a run of line
// breaks and blanks, half a second for 16 KiB, and splits such runs otherwise
// than OpenAI does.
package tokenizer

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/tiktoken-go/tokenizer/codec"
)

// ErrUnknown says that there is no tokenizer of that name.
var ErrUnknown = errors.New("unknown tokenizer")

// counters are made when they are first wanted.
var counters = []struct {
	name string
	get  func() *Counter
}{
	{"cl100k_base", sync.OnceValue(func() *Counter { return newCounter(splitCL100K, codec.NewCl100kBase()) })},
	{"o200k_base", sync.OnceValue(func() *Counter { return newCounter(splitO200K, codec.NewO200kBase()) })},
}

// Names lists what Named knows, in the order of the alphabet.
func Names() []string {
	var names []string
	for _, c := range counters {
		names = append(names, c.name)
	}
	return names
}

// Known returns an error that wraps ErrUnknown and lists Names, unless name is
// among them. It loads nothing.
func Known(name string) error {
	if !slices.Contains(Names(), name) {
		return fmt.Errorf("%w %q: use %s", ErrUnknown, name, strings.Join(Names(), " or "))
	}
	return nil
}

// Counter counts tokens by one vocabulary. It is safe for concurrent use.
type Counter struct {
	split      func(text string) int
	vocabulary *vocabulary
	mergers    sync.Pool // of *merger
	counts     cache
}

// Named returns the counter of a vocabulary, one for all who ask; the error wraps
// ErrUnknown. The first time takes some 100 ms, and up to 16 MB until the process
// ends.
func Named(name string) (*Counter, error) {
	if err := Known(name); err != nil {
		return nil, err
	}
	return counters[slices.Index(Names(), name)].get(), nil
}

func newCounter(split func(text string) int, c *codec.Codec) *Counter {
	return &Counter{split: split, vocabulary: loaded(c), mergers: sync.Pool{New: func() any { return new(merger) }}}
}

const (
	// maxPiece bounds the bytes that are merged together. No word of a language
	// is that long. A longer run of one kind is cut, which counts at most a few
	// tokens more for each 4 KiB of it, and keeps the time linear.
	maxPiece = 4 << 10
	// minCached is how long a text is whose count is worth keeping.
	minCached = 256
)

// Count returns the number of tokens of text. What looks like a special token
// is counted as the plain text that it is. A byte that is not UTF-8 counts as
// the U+FFFD that it becomes in a request. It takes time linear in len(text);
// the counts of the last texts of 256 bytes or more are kept, by their hash, so
// that a prompt which grows is not counted anew.
func (c *Counter) Count(text string) int {
	if len(text) < minCached {
		return c.count(text)
	}
	sum := sha256.Sum256([]byte(text))
	k := key(sum[:len(key{})])
	if n, ok := c.counts.get(k); ok {
		return n
	}
	n := c.count(text)
	c.counts.put(k, n)
	return n
}

func (c *Counter) count(text string) int {
	if !utf8.ValidString(text) {
		text = string([]rune(text))
	}
	m := c.mergers.Get().(*merger)
	defer c.mergers.Put(m)
	n := 0
	for text != "" {
		end := c.split(text)
		for piece := text[:end]; piece != ""; {
			whole := cut(piece)
			n += m.count(c.vocabulary, piece[:whole])
			piece = piece[whole:]
		}
		text = text[end:]
	}
	return n
}

// cut returns how much of a piece is merged together.
func cut(piece string) int {
	if len(piece) <= maxPiece {
		return len(piece)
	}
	n := maxPiece
	for !utf8.RuneStart(piece[n]) {
		n--
	}
	return n
}

// cachedCounts bounds the counts that are kept: those of the longest
// conversation that is assembled at once, some times over, in less than 2 MB.
const cachedCounts = 16_384

type key [16]byte

// cache keeps the counts of texts by half of their SHA-256, which nobody can
// make equal for two texts. What was not asked for while half of cachedCounts
// were put in is dropped.
type cache struct {
	mu          sync.Mutex
	recent, old map[key]int // each at most half of cachedCounts
}

func (c *cache) get(k key) (int, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, ok := c.recent[k]
	if !ok {
		if n, ok = c.old[k]; ok {
			c.keep(k, n)
		}
	}
	return n, ok
}

func (c *cache) put(k key, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keep(k, n)
}

// keep is called with mu held.
func (c *cache) keep(k key, n int) {
	if c.recent == nil || len(c.recent) >= cachedCounts/2 {
		c.old, c.recent = c.recent, map[key]int{}
	}
	c.recent[k] = n
}
