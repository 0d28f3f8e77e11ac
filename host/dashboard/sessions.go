package dashboard

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/gloveboxhq/glovebox/compaction"
	"github.com/gloveboxhq/glovebox/host/control"
	"github.com/gloveboxhq/glovebox/memory"
)

var sessionRoutes = []route{
	{"GET /sessions", control.ForUser, (*site).ownSessions},
	{"GET /users/{user}/sessions", control.ForUser, (*site).sessions},
	{"GET /users/{user}/sessions/{session}", control.ForUser, (*site).session},
	{"GET /users/{user}/sessions/{session}/messages", control.ForUser, (*site).messages},
	{"GET /users/{user}/sessions/{session}/messages/{message}", control.ForUser, (*site).message},
	{"GET /users/{user}/sessions/{session}/summaries/{summary}", control.ForUser, (*site).summary},
	{"GET /users/{user}/sessions/{session}/timeline", control.ForUser, (*site).timeline},
	{"GET /users/{user}/sessions/{session}/context", control.ForUser, (*site).contextReport},
	{"POST /users/{user}/sessions/{session}/compact", control.ForUser, (*site).compact},
	{"GET /users/{user}/sessions/{session}/delete", control.ForUser, (*site).deletePage},
	{"POST /users/{user}/sessions/{session}/delete", control.ForUser, (*site).deleteSession},
}

func (s *site) ownSessions(w http.ResponseWriter, r *http.Request, v viewer) error {
	return redirect(w, r, v.Path("sessions"), "")
}

// listedSession is one session in a list.
type listedSession struct {
	memory.Session
	Path, Label, AgentName string
	// Opening is how its user began; "" if nobody said anything.
	Opening string
}

// sessionList is what the list of sessions shows.
type sessionList struct {
	Sessions []listedSession
	Pager    pager
	// Query is what is searched for, and Wrong why that cannot be done.
	Query, Wrong string
	Hits         []hit
	// More says that there are more hits than are shown.
	More bool
}

// hit is one place that a search found.
type hit struct {
	row
	Path, Where string
	// In is what its session is called.
	In     string
	Beside bool
}

func (s *site) sessions(w http.ResponseWriter, r *http.Request, v viewer) error {
	var list sessionList
	var err error
	if list.Query = strings.TrimSpace(r.URL.Query().Get("q")); list.Query != "" {
		err = s.search(r.Context(), v, &list)
	} else {
		err = s.list(r, v, &list)
	}
	if err != nil {
		return err
	}
	return s.show(w, r, v, page{Name: "sessions", Title: "Sessions", Room: roomSessions, Data: list})
}

func (s *site) list(r *http.Request, v viewer, list *sessionList) error {
	number, before := pageOf(r, maxPages)
	sessions, err := s.store.Sessions(r.Context(), v.User.ID, memory.SessionQuery{Limit: before + pageSize + 1})
	if err != nil {
		return err
	}
	list.Pager = pagerAt(r, number, number < maxPages && len(sessions) > before+pageSize)
	sessions = sessions[min(before, len(sessions)):min(before+pageSize, len(sessions))]
	list.Sessions, err = s.listed(r.Context(), v, sessions)
	return err
}

// listed says of sessions what a list has.
func (s *site) listed(ctx context.Context, v viewer, sessions []memory.Session) ([]listedSession, error) {
	var all []listedSession
	for _, session := range sessions {
		opening, err := s.opening(ctx, v.User.ID, session.ID)
		if errors.Is(err, memory.ErrNotFound) {
			continue // it was deleted meanwhile
		} else if err != nil {
			return nil, err
		}
		all = append(all, listedSession{session, v.Path("sessions", session.ID), labelOf(session), s.agentName(session.Agent), opening})
	}
	return all, nil
}

// opening returns the beginning of what the user said first, if that was soon.
func (s *site) opening(ctx context.Context, user memory.UserID, session memory.SessionID) (string, error) {
	messages, err := s.store.Messages(ctx, user, session, memory.MessageQuery{Limit: 3})
	if err != nil {
		return "", err
	}
	for _, m := range messages {
		if !m.IsUsers() {
			continue
		}
		for _, b := range m.Blocks {
			if b.Type == memory.BlockText && strings.TrimSpace(b.Text) != "" {
				text, _ := shorten(strings.TrimSpace(b.Text), 120, false)
				return text, nil
			}
		}
	}
	return "", nil
}

// labelOf is what a session is called on pages.
func labelOf(s memory.Session) string {
	for _, name := range []string{s.Title, s.Name} {
		if strings.TrimSpace(name) != "" {
			name, _ = shorten(name, 100, false)
			return name
		}
	}
	return "Conversation of " + s.CreatedAt.UTC().Format("2006-01-02 15:04")
}

func (s *site) agentName(id memory.AgentID) string {
	if a, ok := s.agentOf(id); ok {
		return a.Name
	}
	return "an agent that is not configured"
}

// search looks for words in all of the user's sessions.
func (s *site) search(ctx context.Context, v viewer, list *sessionList) error {
	found, err := compaction.NewRetrieval(s.store, nil, compaction.ScanLimits{}).Grep(ctx, v.User.ID, compaction.GrepQuery{Words: list.Query, Limit: pageSize})
	if errors.Is(err, memory.ErrInvalid) {
		list.Wrong = "That cannot be searched for: use a word or two of what was said."
		return nil
	} else if err != nil {
		return err
	}
	list.More = len(found.Hits) == pageSize
	labels := map[memory.SessionID]string{}
	for _, f := range found.Hits {
		if _, ok := labels[f.Session]; !ok {
			session, err := s.store.Session(ctx, v.User.ID, f.Session)
			if err != nil && !errors.Is(err, memory.ErrNotFound) {
				return err
			} else if err == nil {
				labels[f.Session] = labelOf(session)
			}
		}
		if labels[f.Session] == "" {
			continue // it was deleted meanwhile
		}
		h := hit{Beside: f.Beside, In: labels[f.Session]}
		h.row = row{Kind: string(f.Kind), Who: string(f.Kind), At: f.At, Until: f.Until, Tokens: gauge{Label: "Tokens", Value: f.Tokens}, Source: f.Source, Trust: f.Trust}
		h.Pieces, _ = piecesOf(f.Excerpt, 4*previewBytes)
		session := []any{"sessions", f.Session}
		switch f.Kind {
		case memory.TextMessage:
			if h.Who = string(f.Role); f.Source == memory.SourceContextInjection {
				h.Who = whoRefreshes
			}
			h.Path = v.Path(append(session, "messages")...) + "?page=" + strconv.FormatInt((f.Seq-1)/pageSize+1, 10) + "#m-" + strconv.FormatInt(f.Seq, 10)
			h.Where = "message " + strconv.FormatInt(f.Seq, 10)
		case memory.TextSummary:
			h.Path = v.Path(append(session, "summaries", f.ID)...)
		default:
			h.Path, h.Where = v.Path(session...), f.Name
		}
		list.Hits = append(list.Hits, h)
	}
	return nil
}
