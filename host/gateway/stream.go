package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/memory"
)

const (
	// keepAlive is how long a stream is silent before it says that it lives.
	keepAlive = 15 * time.Second
	// writeTimeout is how long a reader may take for one piece of an answer, of at
	// most pieceBytes.
	writeTimeout = 30 * time.Second
	pieceBytes   = 64 << 10

	eventStream = "text/event-stream; charset=utf-8"
)

// teller tells a turn in the form of one API's stream. One goroutine at a time calls
// it. What it is told is the text of an answer, in pieces, then end or fail.
type teller interface {
	// text tells a piece, which is not empty.
	text(out *events, piece string)
	// end tells how the turn ended, when its text has been told.
	end(out *events, done *host.Relayed)
	// fail tells that there will be no answer after all. It is called only when
	// something was written before; else the answer has a status of its own.
	fail(out *events, f *fault)
	// alive says something that clients pass over.
	alive(out *events)
}

// answer answers a conversation whole, by what of makes of what came of it.
func (s *server) answer(w http.ResponseWriter, r *http.Request, c *host.Conversation, of func(*host.Relayed) any) error {
	c.OnPlaced = func(at host.Placed) { setSession(w, at) }
	done, err := s.host.Relay(r.Context(), c)
	if err != nil && !endedEarly(done, err) {
		return err
	}
	writeJSON(w, http.StatusOK, of(done))
	return nil
}

// endedEarly reports whether a turn failed only because the answer ended before its
// first word: APIs have an answer for that, which says why. It is not stored.
func endedEarly(done *host.Relayed, err error) bool {
	return errors.Is(err, llm.ErrEmpty) && done.Response.Truncated || errors.Is(err, llm.ErrRefused) && done.Response.Filtered
}

// stream answers a conversation while the model speaks. A turn that fails before
// anything was written is the error that is returned.
func (s *server) stream(w http.ResponseWriter, r *http.Request, c *host.Conversation, to teller) error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	box := newMailbox()
	c.OnPlaced, c.OnEvent = box.place, box.put
	n := &narrator{out: newEvents(w), to: to}
	turn := s.begin(ctx, c, box)
	// Nobody reads: the turn ends, and is waited for.
	n.tell(box, s.alive, cancel)
	done, err := turn()
	if err == nil || endedEarly(done, err) {
		if err = n.finish(done); err == nil {
			return nil
		}
	}
	if !n.out.begun {
		return err
	}
	f, known := faultOf(err)
	if r.Context().Err() == nil && n.out.err == nil {
		s.report(r, f, known, err)
		to.fail(n.out, f)
		return nil
	}
	// Who only closed its half reads on. To return would say that the answer was given.
	to.fail(n.out, f)
	panic(http.ErrAbortHandler)
}

// begin has the host take a turn in a goroutine of its own, so that the stack on which
// a stream waits for it stays small, and returns what waits for its outcome. Its box is
// closed when it is over. A panic of the host is one of who waits.
func (s *server) begin(ctx context.Context, c *host.Conversation, box *mailbox) (outcome func() (*host.Relayed, error)) {
	var done *host.Relayed
	var err error
	var panicked any
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer box.close()
		defer func() {
			if p := recover(); p != nil {
				panicked = fmt.Sprintf("%v\n\n%s", p, debug.Stack())
			}
		}()
		done, err = s.host.Relay(ctx, c)
	}()
	return func() (*host.Relayed, error) {
		<-over
		if panicked != nil {
			panic(panicked)
		}
		return done, err
	}
}

func setSession(w http.ResponseWriter, at host.Placed) {
	w.Header().Set(SessionHeader, at.Session.String())
}

// narrator passes on what happens in a turn.
type narrator struct {
	out *events
	to  teller
	// told is what was told so far.
	told strings.Builder
}

// errTakenBack says that a client was told what then was no part of the answer:
// nothing can be taken back in a stream, and the answer that is stored is another.
var errTakenBack = errors.New("the answer is not what was told of it")

// tell passes on until the box is closed. Gone is called when nobody reads.
func (n *narrator) tell(box *mailbox, every time.Duration, gone func()) {
	alive := time.NewTicker(every)
	defer alive.Stop()
	placed := false
	for open := true; open; {
		select {
		case <-box.ready:
			var batch happened
			batch, open = box.take()
			if batch.placed != nil {
				placed = true
				n.out.placed = *batch.placed
				setSession(n.out.to, n.out.placed)
			}
			if batch.text != "" {
				n.say(batch.text)
				alive.Reset(every)
			}
		case <-alive.C:
			// The head of the answer, which the first byte sends, names the session.
			if placed {
				n.to.alive(n.out)
			}
		}
		if n.out.err != nil {
			gone()
		}
	}
}

func (n *narrator) say(text string) {
	n.told.WriteString(text)
	n.to.text(n.out, text)
}

// finish tells what is left to be told.
func (n *narrator) finish(done *host.Relayed) error {
	rest, ok := strings.CutPrefix(textOf(done.Message), n.told.String())
	if !ok {
		return errTakenBack
	}
	if rest != "" {
		n.say(rest)
	}
	n.to.end(n.out, done)
	return nil
}

// textOf is what an answer says.
func textOf(m memory.Message) string {
	var b strings.Builder
	for _, block := range m.Blocks {
		if block.Type == memory.BlockText {
			b.WriteString(block.Text)
		}
	}
	return b.String()
}

// happened is what happened since somebody looked.
type happened struct {
	placed *host.Placed
	text   string
}

// mailbox takes what happens in a turn without ever blocking it, and holds no more
// than the answer.
type mailbox struct {
	// ready has a token when there is something to take.
	ready chan struct{}

	mu     sync.Mutex
	placed *host.Placed // guarded by mu, as all below
	text   strings.Builder
	closed bool
}

func newMailbox() *mailbox { return &mailbox{ready: make(chan struct{}, 1)} }

func (m *mailbox) place(at host.Placed) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.placed = &at
	m.wake()
}

// put takes text. A tool of the host's is none of the client's business.
func (m *mailbox) put(e host.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.text.WriteString(e.Text)
	m.wake()
}

func (m *mailbox) wake() {
	select {
	case m.ready <- struct{}{}:
	default:
	}
}

func (m *mailbox) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.wake()
}

// take returns what happened, and whether more may.
func (m *mailbox) take() (_ happened, open bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	batch := happened{m.placed, m.text.String()}
	m.placed = nil
	m.text.Reset()
	return batch, !m.closed
}

// pieces writes an answer piece by piece, each with its time: who reads nothing is
// not waited for.
type pieces struct {
	to         http.ResponseWriter
	connection *http.ResponseController
}

func newPieces(w http.ResponseWriter) pieces {
	return pieces{w, http.NewResponseController(w)}
}

func (p pieces) Write(b []byte) (written int, err error) {
	for piece := range slices.Chunk(b, pieceBytes) {
		_ = p.connection.SetWriteDeadline(time.Now().Add(writeTimeout))
		n, err := p.to.Write(piece)
		if written += n; err != nil {
			return written, err
		}
	}
	return written, nil
}

// events writes server-sent events. After an error it writes nothing.
type events struct {
	pieces
	// placed is where the conversation is kept: known before anything is written.
	placed host.Placed
	// begun says that the status is on its way.
	begun bool
	err   error
}

func newEvents(w http.ResponseWriter) *events { return &events{pieces: newPieces(w)} }

// send writes one event, whose data is one line of JSON; "" is an event without a
// name.
func (e *events) send(name string, data any) {
	encoded, err := json.Marshal(data)
	if err != nil {
		e.err = errors.Join(e.err, err)
		return
	}
	e.line(name, string(encoded))
}

// line writes one event, whose data has no line break in it.
func (e *events) line(name, data string) {
	if name != "" {
		e.raw("event: " + name + "\ndata: " + data + "\n\n")
		return
	}
	e.raw("data: " + data + "\n\n")
}

// comment writes what every client passes over.
func (e *events) comment() { e.raw(":\n\n") }

func (e *events) raw(text string) {
	if e.err != nil {
		return
	}
	if !e.begun {
		e.begun = true
		e.to.Header().Set("Content-Type", eventStream)
		// A proxy that gathers answers would hold the stream back.
		e.to.Header().Set("X-Accel-Buffering", "no")
	}
	if _, e.err = e.Write([]byte(text)); e.err == nil {
		e.err = e.connection.Flush()
	}
}
