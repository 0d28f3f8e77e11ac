package dashboard

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/control"
	"github.com/gloveboxhq/glovebox/memory"
)

// A conversation is a form, which works without a script: what is said is posted,
// and the page is read again. With one, app.js sends it to the control API instead
// and shows the answer as it comes; what is stored then comes from chatSince, as the
// page would have it.
var chatRoutes = []route{
	{"GET /chat", control.ForUser, (*site).ownChat},
	{"GET /users/{user}/chat", control.ForUser, (*site).newChat},
	{"POST /users/{user}/chat", control.ForUser, (*site).say},
	{"GET /users/{user}/chat/{session}", control.ForUser, (*site).chat},
	{"POST /users/{user}/chat/{session}", control.ForUser, (*site).say},
	{"GET /users/{user}/chat/{session}/since", control.ForUser, (*site).chatSince},
}

// talkBytes is about how much is shown of a conversation, lineBytes how much of one
// message in it.
const talkBytes, lineBytes = 100_000, 30_000

// recentSessions is how many conversations to go on with are offered.
const recentSessions = 5

// chatPage is a conversation.
type chatPage struct {
	// Session is zero for one that begins.
	Session memory.Session
	// SessionPath is where the session is drawn as the model sees it.
	SessionPath string
	// Action is where the form is posted to, Stream the control API's route that
	// answers as it goes, Since where the new messages are, and Here where this page
	// is once it has a session.
	Action, Stream, Since, Here string
	Agent                       string
	Agents                      []host.AgentInfo
	Talk                        talk
	// Earlier is how many messages stand before those of the talk.
	Earlier int
	Recent  []listedSession
	// Key names what the form sends; see spoken.
	Key string
	// Text is what was said and not taken, Wrong why.
	Text, Wrong string
}

// talk is the messages of a conversation and what they cost.
type talk struct {
	Rows []row
	Fill *fill
	// Last is the number of the last message; More says that there are later ones.
	Last int64
	More bool
}

func (s *site) ownChat(w http.ResponseWriter, r *http.Request, v viewer) error {
	return redirect(w, r, v.Path("chat"), "")
}

func (s *site) newChat(w http.ResponseWriter, r *http.Request, v viewer) error {
	return s.showChat(w, r, v, memory.Session{}, http.StatusOK, chatPage{Agent: r.URL.Query().Get("agent")})
}

func (s *site) chat(w http.ResponseWriter, r *http.Request, v viewer) error {
	session, err := s.sessionIn(r.Context(), r, v)
	if err != nil {
		return err
	}
	return s.showChat(w, r, v, session, http.StatusOK, chatPage{})
}

// showChat completes the page of a conversation.
func (s *site) showChat(w http.ResponseWriter, r *http.Request, v viewer, session memory.Session, status int, p chatPage) error {
	p.Session, p.Agents = session, s.host.Agents()
	p.Action, p.Here = v.Path("chat"), v.Path("chat")
	p.Stream = "/api" + v.Path("chat")
	if p.Key == "" {
		p.Key = rand.Text()
	}
	title := "New conversation"
	if session.ID.IsZero() {
		sessions, err := s.store.Sessions(r.Context(), v.User.ID, memory.SessionQuery{Limit: recentSessions})
		if err != nil {
			return err
		}
		if p.Recent, err = s.listed(r.Context(), v, sessions); err != nil {
			return err
		}
	} else {
		title = labelOf(session)
		p.Action += "/" + session.ID.String()
		p.Agent = s.agentName(session.Agent)
		p.SessionPath = v.Path("sessions", session.ID)
		var err error
		if p.Earlier = max(session.Messages-pageSize, 0); p.Earlier < session.Messages {
			p.Talk, err = s.talkSince(r, v, session, int64(p.Earlier))
		}
		if err != nil {
			return err
		}
	}
	return s.show(w, r, v, page{Name: "chat", Title: title, Room: roomChat, Data: p, Status: status})
}

// talkSince returns the messages of a session after one, at most a page of them.
func (s *site) talkSince(r *http.Request, v viewer, session memory.Session, after int64) (talk, error) {
	messages, err := s.store.Messages(r.Context(), v.User.ID, session.ID, memory.MessageQuery{After: after, Limit: pageSize + 1})
	if err != nil {
		return talk{}, err
	}
	t := talk{Last: after, More: len(messages) > pageSize}
	messages = messages[:min(len(messages), pageSize)]
	t.Rows = make([]row, len(messages))
	// The latest are shown whole for as long as there is room.
	room := talkBytes
	for i, m := range slices.Backward(messages) {
		line := messageRow(v, m, max(min(room, lineBytes), previewBytes))
		line.Anchor = "m-" + strconv.FormatInt(m.Seq, 10)
		for _, p := range line.Pieces {
			room -= len(p.Text)
		}
		t.Rows[i], t.Last = line, max(t.Last, m.Seq)
	}
	_, report, err := host.ContextOf(r.Context(), s.host.Config(), s.store, v.User.ID, session.ID, 0)
	if err != nil {
		return talk{}, err
	}
	full := fillOf(report)
	t.Fill = &full
	return t, nil
}

// chatSince answers with what was stored after a message, for the script.
func (s *site) chatSince(w http.ResponseWriter, r *http.Request, v viewer) error {
	session, err := s.sessionIn(r.Context(), r, v)
	if err != nil {
		return err
	}
	after, err := strconv.ParseInt(r.URL.Query().Get("after"), 10, 64)
	if err != nil || after < 0 {
		return refused(http.StatusBadRequest, "After is the number of a message.")
	}
	t, err := s.talkSince(r, v, session, after)
	if err != nil {
		return err
	}
	return s.part(w, "chat", "talk", t)
}

// spoken is the event key of what a form says. A form that is sent twice, by a double
// click or by loading the answer again, says its words once. Other words are another
// message, be it from the same form: a page that somebody went back to has its old key.
func spoken(form url.Values) string {
	sum := sha256.Sum256([]byte(form.Get("key") + "\x00" + form.Get("agent") + "\x00" + form.Get("text")))
	return "form " + base64.RawURLEncoding.EncodeToString(sum[:])
}

// begun returns the session that a message with an event key begins with an agent: the
// same one however often that is sent. Nobody's key names a session of somebody else.
func (s *site) begun(ctx context.Context, v viewer, agent, key string) (memory.Session, error) {
	with, err := s.host.Agent(agent)
	if err != nil {
		return memory.Session{}, err
	}
	id := memory.SessionID(uuid.NewSHA1(uuid.UUID(v.User.ID), []byte(key)))
	session, err := s.store.Session(ctx, v.User.ID, id)
	if !errors.Is(err, memory.ErrNotFound) {
		return session, err
	}
	session, err = s.store.CreateSession(ctx, memory.Session{ID: id, Agent: with.ID, User: v.User.ID, CreatedAt: s.now()})
	if errors.Is(err, memory.ErrConflict) {
		// The other of two that were sent at once has made it.
		return s.store.Session(ctx, v.User.ID, id)
	}
	return session, err
}

// say takes what somebody says by the form, and comes back when it is answered.
func (s *site) say(w http.ResponseWriter, r *http.Request, v viewer) error {
	if err := readForm(w, r); err != nil {
		return err
	}
	form := func(name string) string { return r.PostForm.Get(name) }
	// What was said and not stored is in the form of the page that says why.
	unsent := func(session memory.Session, status int, wrong string) error {
		return s.showChat(w, r, v, session, status, chatPage{Agent: form("agent"), Key: form("key"), Text: form("text"), Wrong: wrong})
	}
	lost := func() error {
		return unsent(memory.Session{}, http.StatusNotFound, "The conversation was deleted meanwhile. Here are your words, should they begin another.")
	}
	var session memory.Session
	var err error
	goesOn := r.PathValue("session") != ""
	if goesOn {
		if session, err = s.sessionIn(r.Context(), r, v); errors.Is(err, memory.ErrNotFound) {
			return lost()
		} else if err != nil {
			return err
		}
	}
	if strings.TrimSpace(form("text")) == "" {
		return unsent(session, http.StatusBadRequest, "Say something first.")
	}
	m := host.Message{User: v.User.ID, Session: session.ID, Text: form("text")}
	if form("key") != "" {
		m.EventKey = spoken(r.PostForm)
	}
	var answer host.Answer
	switch {
	case !goesOn && m.EventKey == "":
		m.Agent = form("agent")
	case !goesOn:
		var begun memory.Session
		begun, err = s.begun(r.Context(), v, form("agent"), m.EventKey)
		m.Session = begun.ID
	}
	if err == nil {
		answer, err = s.host.Send(r.Context(), m)
	}
	if err == nil {
		return redirect(w, r, v.Path("chat", answer.Session)+"#m-"+strconv.FormatInt(answer.Message.Seq, 10), "")
	}
	if r.Context().Err() != nil || errors.Is(err, memory.ErrWiped) {
		return err
	}
	status, detail, known := control.StatusOf(err)
	if !known || status >= http.StatusInternalServerError {
		s.log.ErrorContext(r.Context(), "turn failed", "session", answer.Session, "error", err)
	}
	if at := cmp.Or(answer.Session, m.Session); !at.IsZero() {
		switch now, gone := s.store.Session(r.Context(), v.User.ID, at); {
		case errors.Is(gone, memory.ErrNotFound):
			return lost()
		case gone != nil:
			return gone
		default:
			session = now
		}
	}
	if answer.Session.IsZero() {
		if !goesOn {
			session = memory.Session{}
		}
		return unsent(session, status, "Nothing was sent: "+detail+".")
	}
	// What was said is stored: the page shows it, and why it has no answer.
	return s.showChat(w, r, v, session, status, chatPage{Wrong: "There is no answer: " + detail + "."})
}
