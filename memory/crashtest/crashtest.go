// Package crashtest breaks stores: it kills a process that writes at any
// instant, or fails any one write, and proves that what was acknowledged is
// there, that nothing is half there, and that every rule of package memory
// holds.
//
// The process to be killed is the test's own program, run once more. It says on
// a pipe what it is going to write before it does, and what the store said
// after; whoever is at the other end knows therefore what must be there, what
// may be, and what must not.
package crashtest

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"github.com/gloveboxhq/glovebox/memory"
)

// Engine is a store to be broken.
type Engine struct {
	// Open opens the store that lives in dir, and makes it the first time.
	Open func(ctx context.Context, dir string) (memory.Store, error)
	// Check returns what the engine itself finds to be wrong with the store,
	// which is open and lives in dir. Nil means that it has no such thing.
	Check func(ctx context.Context, dir string, store memory.Store) ([]string, error)
	// Files returns the paths of all files that a store in dir has. Nil means
	// that they cannot be looked into.
	Files func(dir string) ([]string, error)
}

// childOrders is the name of the variable that makes a program the child.
const childOrders = "GLOVEBOX_CRASHTEST_ORDERS"

// reportsFile is the child's end of the pipe.
const reportsFile = 3

// orders are what the child is to do.
type orders struct {
	Dir   string `json:"dir"`
	Seed  uint64 `json:"seed"`
	Round int    `json:"round"`
	// Again are the writes with event keys of which the one before did not
	// learn how they ended.
	Again []batch `json:"again,omitempty"`
}

// batch is drafts that can be made anew, each from its own seed.
type batch struct {
	User    memory.UserID    `json:"user"`
	Session memory.SessionID `json:"session"`
	Seeds   []uint64         `json:"seeds"`
}

// step is how far a write has come.
type step string

const (
	stepOpened step = "opened"
	stepIntent step = "intent"
	// stepDone says that the store returned without an error.
	stepDone step = "done"
	// stepRefused says that the store refused, as it may while others write:
	// nothing is stored.
	stepRefused step = "refused"
	// stepFailed says that the store failed where it should not have.
	stepFailed step = "failed"
)

// kind is what is written.
type kind string

const (
	kindUser    kind = "user"
	kindSession kind = "session"
	kindAppend  kind = "append" // also ingest and inject
	kindCommit  kind = "commit"
	kindRepair  kind = "repair"
	kindDelete  kind = "delete"
	kindBegin   kind = "begin wipe"
	kindWipe    kind = "wipe"
	kindScrub   kind = "scrub"
	kindEnd     kind = "end wipe"
	// kindOther changes nothing that is looked at afterwards.
	kindOther kind = "other"
)

// event is one frame on the pipe.
type event struct {
	// Op pairs an intent with its end, within one child.
	Op      int64            `json:"op"`
	Step    step             `json:"step"`
	Kind    kind             `json:"kind,omitempty"`
	User    memory.UserID    `json:"user,omitzero"`
	Session memory.SessionID `json:"session,omitzero"`
	// Digests are of the drafts that are going to be written, and are not known
	// to be there already. Seeds make them anew if they have event keys.
	Digests  []string `json:"digests,omitempty"`
	Seeds    []uint64 `json:"seeds,omitempty"`
	Messages []stored `json:"messages,omitempty"`
	// Summary is the one to be made or repaired, Text its text, and State the
	// digest of it as it was stored.
	Summary memory.SummaryID `json:"summary,omitzero"`
	Text    string           `json:"text,omitempty"`
	State   string           `json:"state,omitempty"`
	// Finished says that a scrub was not kept from finishing.
	Finished bool   `json:"finished,omitempty"`
	Error    string `json:"error,omitempty"`
}

// stored is a message that the store has acknowledged.
type stored struct {
	ID     memory.MessageID `json:"id"`
	Seq    int64            `json:"seq"`
	Digest string           `json:"digest"`
}

// maxFrame bounds what one frame can be, in bytes.
const maxFrame = 1 << 20

// pipe writes frames. It is safe for concurrent use.
type pipe struct {
	mu sync.Mutex
	to io.Writer
	op atomic.Int64
}

// send writes one frame: four bytes of length, most significant first, and JSON.
// It returns when the other end can read all of it, whatever happens then.
func (p *pipe) send(e event) error {
	frame, err := json.Marshal(e)
	if err != nil {
		return err
	}
	frame = append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err = p.to.Write(frame)
	return err
}

// receive reads one frame; io.EOF also for one that was cut by a death.
func receive(from *bufio.Reader) (e event, err error) {
	var length [4]byte
	if _, err := io.ReadFull(from, length[:]); err != nil {
		return e, ended(err)
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > maxFrame {
		return e, fmt.Errorf("a frame of %d bytes", n)
	}
	frame := make([]byte, n)
	if _, err := io.ReadFull(from, frame); err != nil {
		return e, ended(err)
	}
	return e, json.Unmarshal(frame, &e)
}

func ended(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return io.EOF
	}
	return err
}

// Child does what the parent ordered and does not return, if this program was
// started to be killed; else it returns at once. Call it first in TestMain.
func Child(engine Engine) {
	text := os.Getenv(childOrders)
	if text == "" {
		return
	}
	var o orders
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		reports := &pipe{to: os.NewFile(reportsFile, "reports")}
		if err = work(context.Background(), engine, o, reports); err != nil {
			_ = reports.send(event{Step: stepFailed, Error: err.Error()})
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// digestOf identifies what was said, all of it, wherever it is stored.
func digestOf(role memory.Role, source memory.Source, trust memory.Trust, key string, micros int64, blocks []memory.Block) (string, error) {
	hash := sha256.New()
	fmt.Fprintf(hash, "%q %q %q %q %d\n", role, source, trust, key, micros)
	for _, b := range blocks {
		encoded, err := b.MarshalJSON()
		if err != nil {
			return "", err
		}
		fmt.Fprintf(hash, "%d %s\n", len(encoded), encoded)
	}
	return hex.EncodeToString(hash.Sum(nil)[:16]), nil
}

func draftDigest(d memory.Draft) (string, error) {
	return digestOf(d.Role, d.Source, d.Sealed(), d.EventKey, d.At.UnixMicro(), d.Blocks)
}

// messageDigest is that of the draft that m was made from: blocks that were
// moved to files are taken from there.
func messageDigest(ctx context.Context, store memory.Store, user memory.UserID, m memory.Message) (string, error) {
	blocks := make([]memory.Block, len(m.Blocks))
	for i, b := range m.Blocks {
		blocks[i] = b
		if b.File.IsZero() {
			continue
		}
		_, whole, err := store.File(ctx, user, b.File)
		if err != nil {
			return "", fmt.Errorf("block %d of message %s: %w", i+1, m.ID, err)
		}
		blocks[i] = whole
	}
	return digestOf(m.Role, m.Source, m.Trust, m.EventKey, m.At.UnixMicro(), blocks)
}

func summaryState(v memory.Summary) (string, error) {
	encoded, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(encoded)
	return hex.EncodeToString(sum[:16]), nil
}

// canary is in every text of a session, so that it can be sought in files.
func canary(session memory.SessionID) string {
	return canaryPrefix + hex.EncodeToString(session[:])
}

const canaryPrefix = "canary"
