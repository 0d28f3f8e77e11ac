package dashboard

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

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

// say takes what somebody says by the form, and comes back when it is answered.
func (s *site) say(w http.ResponseWriter, r *http.Request, v viewer) error {
	var session memory.Session
	var err error
	if r.PathValue("session") != "" {
		if session, err = s.sessionIn(r.Context(), r, v); err != nil {
			return err
		}
	}
	if err := readForm(w, r); err != nil {
		return err
	}
	m := host.Message{User: v.User.ID, Session: session.ID, Text: r.PostForm.Get("text")}
	if session.ID.IsZero() {
		m.Agent = r.PostForm.Get("agent")
	}
	if strings.TrimSpace(m.Text) == "" {
		return s.showChat(w, r, v, session, http.StatusBadRequest, chatPage{Agent: m.Agent, Wrong: "Say something first."})
	}
	answer, err := s.host.Send(r.Context(), m)
	if err != nil {
		if r.Context().Err() != nil || errors.Is(err, memory.ErrWiped) {
			return err
		}
		status, detail, known := control.StatusOf(err)
		if !known || status >= http.StatusInternalServerError {
			s.log.ErrorContext(r.Context(), "turn failed", "session", answer.Session, "error", err)
		}
		if answer.Session.IsZero() {
			// Nothing is stored: what was said stays in the form.
			return s.showChat(w, r, v, session, status, chatPage{Agent: m.Agent, Text: m.Text, Wrong: "Nothing was sent: " + detail + "."})
		}
		// What was said is stored: the page shows it, and why it has no answer.
		if session, err = s.store.Session(r.Context(), v.User.ID, answer.Session); err != nil {
			return err
		}
		return s.showChat(w, r, v, session, status, chatPage{Wrong: "There is no answer: " + detail + "."})
	}
	return redirect(w, r, v.Path("chat", answer.Session)+"#m-"+strconv.FormatInt(answer.Message.Seq, 10), "")
}
