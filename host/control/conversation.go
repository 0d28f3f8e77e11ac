package control

import (
	"context"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gloveboxhq/glovebox/compaction/assembly"
	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/memory"
)

// chatRequest is what somebody says.
type chatRequest struct {
	Text     string           `json:"text"`
	Agent    string           `json:"agent"`
	Session  memory.SessionID `json:"session"`
	EventKey string           `json:"event_key"`
}

// chatAnswer is what is answered.
type chatAnswer struct {
	Session memory.SessionID `json:"session"`
	Message memory.MessageID `json:"message_id"`
	Text    string           `json:"text"`
	// PromptTokens is what the prompt costs by the host's count, the others are
	// the model's.
	PromptTokens int `json:"prompt_tokens"`
	InputTokens  int `json:"input_tokens"`
	OutputTokens int `json:"output_tokens"`
	// Refresh names the hands that brought the context up to date before.
	Refresh []string `json:"refresh"`
}

func answerOf(a host.Answer) chatAnswer {
	out := chatAnswer{
		Session: a.Session, Message: a.Message.ID, Text: memory.Plain(a.Message.Blocks), PromptTokens: a.Report.Tokens,
		InputTokens: a.InputTokens, OutputTokens: a.OutputTokens, Refresh: []string{},
	}
	for _, b := range a.Gap.Refresh.Blocks {
		out.Refresh = append(out.Refresh, b.Source)
	}
	return out
}

func (s *server) chat(w http.ResponseWriter, r *http.Request, at place) error {
	var asked chatRequest
	if err := readBody(w, r, &asked); err != nil {
		return err
	}
	if asked.Agent != "" {
		if _, err := s.agentAt(asked.Agent); err != nil {
			return err
		}
	}
	if !asked.Session.IsZero() {
		switch _, err := s.store.Session(r.Context(), at.user.ID, asked.Session); {
		case errors.Is(err, memory.ErrNotFound):
			return noSession()
		case err != nil:
			return err
		}
	}
	message := host.Message{User: at.user.ID, Agent: asked.Agent, Session: asked.Session, Text: asked.Text, EventKey: asked.EventKey}
	if accepts(r, eventStream) {
		return s.converse(w, r, message)
	}
	answer, err := s.host.Send(r.Context(), message)
	if err != nil {
		return inSession{err, answer.Session}
	}
	return writeJSON(w, http.StatusOK, answerOf(answer))
}

// inSession is why a turn failed, and where it can be tried again; zero if nowhere.
type inSession struct {
	error
	session memory.SessionID
}

func (e inSession) Unwrap() error { return e.error }

const eventStream = "text/event-stream"

// accepts reports whether a request asks for a media type by its name.
func accepts(r *http.Request, kind string) bool {
	for _, value := range r.Header.Values("Accept") {
		for part := range strings.SplitSeq(value, ",") {
			if named, _, err := mime.ParseMediaType(part); err == nil && named == kind {
				return true
			}
		}
	}
	return false
}

// keepAlive is how often a stream that has nothing to say says that it lives.
const keepAlive = 15 * time.Second

// converse answers with events: session when the message is stored, text, restart and
// tool while the turn goes on, then answer or error. A turn that fails before the
// message is stored has a status of its own.
func (s *server) converse(w http.ResponseWriter, r *http.Request, message host.Message) error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	events := newMailbox()
	message.OnEvent, message.OnStored = events.put, events.stored
	var answer host.Answer
	var failure error
	go func() {
		defer events.close()
		answer, failure = s.host.Send(ctx, message)
	}()
	out := &eventWriter{streamed: stream(w)}
	alive := time.NewTicker(keepAlive)
	defer alive.Stop()
	for open := true; open; {
		select {
		case <-events.ready:
			var batch happened
			batch, open = events.take()
			if !batch.stored.IsZero() {
				out.send("session", struct {
					Session memory.SessionID `json:"session"`
				}{batch.stored})
			}
			for _, e := range batch.events {
				out.event(e)
			}
		case <-alive.C:
			out.raw(": \n\n")
		}
		if out.err != nil {
			// Nobody reads: the turn ends, and is waited for.
			cancel()
		}
	}
	switch {
	case failure == nil:
		out.send("answer", answerOf(answer))
	case !out.begun:
		return failure
	default:
		p, known := problemOf(failure)
		gone := r.Context().Err() != nil || out.err != nil
		if !gone && (!known || p.logged()) {
			s.log.ErrorContext(r.Context(), "turn failed", "error", failure)
		}
		out.send("error", p)
		if gone {
			panic(http.ErrAbortHandler) // to return would say that the answer was given
		}
	}
	return nil
}

// happened is what happened since somebody looked: the message was stored in a session,
// if that is not zero, before anything else.
type happened struct {
	stored memory.SessionID
	events []host.Event
}

// mailbox takes events without ever blocking who puts them; pieces of text that
// nobody has taken yet are put together, so that it holds no more than the answer.
type mailbox struct {
	// ready has a token when there is something to take.
	ready chan struct{}

	mu     sync.Mutex
	past   happened // guarded by mu, as all below
	text   strings.Builder
	closed bool
}

func newMailbox() *mailbox { return &mailbox{ready: make(chan struct{}, 1)} }

func (m *mailbox) stored(in memory.SessionID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.past.stored = in
	m.wake()
}

func (m *mailbox) put(e host.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.Text != "" {
		m.text.WriteString(e.Text)
	} else {
		m.flush()
		m.past.events = append(m.past.events, e)
	}
	m.wake()
}

// flush makes an event of the text so far.
func (m *mailbox) flush() {
	if m.text.Len() > 0 {
		m.past.events = append(m.past.events, host.Event{Text: m.text.String()})
		m.text.Reset()
	}
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

// take returns what came, and whether more may come.
func (m *mailbox) take() (_ happened, open bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flush()
	batch := m.past
	m.past = happened{}
	return batch, !m.closed
}

// eventWriter writes server-sent events. After an error it writes nothing.
type eventWriter struct {
	streamed
	err error
}

func (e *eventWriter) event(event host.Event) {
	switch {
	case event.Text != "":
		e.send("text", struct {
			Text string `json:"text"`
		}{event.Text})
	case event.Restart:
		e.send("restart", struct{}{})
	case event.Tool != "":
		e.send("tool", struct {
			Name string `json:"name"`
		}{event.Tool})
	}
}

// send writes one event; its data is one line of JSON.
func (e *eventWriter) send(name string, data any) {
	encoded, err := json.Marshal(data)
	if err != nil {
		e.err = err
		return
	}
	e.raw("event: " + name + "\ndata: " + string(encoded) + "\n\n")
}

func (e *eventWriter) raw(text string) {
	if e.err != nil {
		return
	}
	if !e.begun {
		e.to.Header().Set("Content-Type", eventStream)
		// A proxy that gathers answers would hold the stream back.
		e.to.Header().Set("X-Accel-Buffering", "no")
	}
	if _, e.err = e.Write([]byte(text)); e.err == nil {
		e.err = e.connection.Flush()
	}
}

func (s *server) sessions(w http.ResponseWriter, r *http.Request, at place) error {
	limit := at.query.limit(100, 10_000)
	if at.query.err != nil {
		return at.query.err
	}
	sessions, err := s.store.Sessions(r.Context(), at.user.ID, memory.SessionQuery{Limit: limit})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, struct {
		Sessions []memory.Session `json:"sessions"`
	}{append([]memory.Session{}, sessions...)})
}

// shownMessage is a message as a person reads it: external text is in its frame
// and keeps its source.
type shownMessage struct {
	Seq     int64            `json:"seq"`
	ID      memory.MessageID `json:"id"`
	At      time.Time        `json:"at"`
	Role    memory.Role      `json:"role"`
	Source  memory.Source    `json:"source,omitempty"`
	Trust   memory.Trust     `json:"trust"`
	Tokens  int              `json:"tokens"`
	Content string           `json:"content"`
}

func showMessage(m memory.Message) shownMessage {
	return shownMessage{m.Seq, m.ID, m.At, m.Role, m.Source, m.Trust, m.Tokens, memory.Shown(m.Blocks)}
}

// sessionAt returns the session in the path.
func (s *server) sessionAt(r *http.Request, at place) (memory.Session, error) {
	id, err := memory.ParseID[memory.SessionID](r.PathValue("session"))
	if err != nil {
		return memory.Session{}, refuse(http.StatusBadRequest, "a session is named by a UUID")
	}
	session, err := s.store.Session(r.Context(), at.user.ID, id)
	if errors.Is(err, memory.ErrNotFound) {
		return memory.Session{}, noSession()
	}
	return session, err
}

func (s *server) session(w http.ResponseWriter, r *http.Request, at place) error {
	const most = 500
	after, limit := at.query.number("after", 0, 1<<53, 0), at.query.limit(100, most)
	if at.query.err != nil {
		return at.query.err
	}
	session, err := s.sessionAt(r, at)
	if err != nil {
		return err
	}
	messages, err := s.store.Messages(r.Context(), at.user.ID, session.ID, memory.MessageQuery{After: after, Limit: limit + 1})
	if err != nil {
		return err
	}
	page := struct {
		Session   memory.Session `json:"session"`
		Messages  []shownMessage `json:"messages"`
		NextAfter int64          `json:"next_after,omitzero"`
	}{Session: session, Messages: []shownMessage{}}
	if len(messages) > limit {
		messages = messages[:limit]
		page.NextAfter = messages[limit-1].Seq
	}
	for _, m := range messages {
		page.Messages = append(page.Messages, showMessage(m))
	}
	return writeJSON(w, http.StatusOK, page)
}

func (s *server) context(w http.ResponseWriter, r *http.Request, at place) error {
	session, err := s.sessionAt(r, at)
	if err != nil {
		return err
	}
	prompt, report, err := host.ContextOf(r.Context(), s.host.Config(), s.store, at.user.ID, session.ID, 0)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, struct {
		Session  memory.SessionID   `json:"session"`
		Report   assembly.Report    `json:"report"`
		System   string             `json:"system"`
		Tools    []assembly.Tool    `json:"tools"`
		Messages []assembly.Message `json:"messages"`
	}{session.ID, report, prompt.System, append([]assembly.Tool{}, prompt.Tools...), append([]assembly.Message{}, prompt.Messages...)})
}

// shownSummary is a summary as a model reads it, and how it came to be.
type shownSummary struct {
	ID          memory.SummaryID `json:"id"`
	Depth       int              `json:"depth"`
	EarliestAt  time.Time        `json:"earliest_at"`
	LatestAt    time.Time        `json:"latest_at"`
	Descendants int              `json:"descendants"`
	Trust       memory.Trust     `json:"trust"`
	Level       memory.Level     `json:"level"`
	Model       string           `json:"model"`
	Tokens      int              `json:"tokens"`
	CreatedAt   time.Time        `json:"created_at"`
	Content     string           `json:"content"`
}

func showSummary(s memory.Summary) shownSummary {
	return shownSummary{s.ID, s.Depth, s.Earliest, s.Latest, s.Descendants, s.Trust, s.Level, s.Model, s.Tokens, s.CreatedAt, s.Shown()}
}

// shownSource is what a summary was made from: one of the two.
type shownSource struct {
	Message *shownMessage `json:"message,omitempty"`
	Summary *shownSummary `json:"summary,omitempty"`
}

func (s *server) summary(w http.ResponseWriter, r *http.Request, at place) error {
	session, err := s.sessionAt(r, at)
	if err != nil {
		return err
	}
	id, err := memory.ParseID[memory.SummaryID](r.PathValue("summary"))
	if err != nil {
		return refuse(http.StatusBadRequest, "a summary is named by a UUID")
	}
	summary, parent, err := s.store.Summary(r.Context(), at.user.ID, id)
	if errors.Is(err, memory.ErrNotFound) || err == nil && summary.Session != session.ID {
		return refuse(http.StatusNotFound, "the session has no such summary")
	} else if err != nil {
		return err
	}
	items, err := s.store.Sources(r.Context(), at.user.ID, id)
	if err != nil {
		return err
	}
	answer := struct {
		Summary shownSummary     `json:"summary"`
		Parent  memory.SummaryID `json:"parent_id,omitzero"`
		Sources []shownSource    `json:"sources"`
	}{showSummary(summary), parent, []shownSource{}}
	for _, item := range items {
		var source shownSource
		if item.Summary != nil {
			shown := showSummary(*item.Summary)
			source.Summary = &shown
		} else if item.Message != nil {
			shown := showMessage(*item.Message)
			source.Message = &shown
		}
		answer.Sources = append(answer.Sources, source)
	}
	return writeJSON(w, http.StatusOK, answer)
}

// compactions answers with the last of the record, oldest first.
func (s *server) compactions(w http.ResponseWriter, r *http.Request, at place) error {
	limit := at.query.limit(100, 1000)
	if at.query.err != nil {
		return at.query.err
	}
	session, err := s.sessionAt(r, at)
	if err != nil {
		return err
	}
	runs, err := s.store.Compactions(r.Context(), at.user.ID, session.ID, limit)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, struct {
		Compactions []memory.CompactionRun `json:"compactions"`
	}{append([]memory.CompactionRun{}, runs...)})
}
