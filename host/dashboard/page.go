package dashboard

import (
	"bytes"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gloveboxhq/glovebox/host/control"
	"github.com/gloveboxhq/glovebox/memory"
)

// page is what a handler shows.
type page struct {
	// Name is that of the template's file, without .html.
	Name string
	// Title is the first heading and the window's title.
	Title string
	// Room is the navigation's link to where the page is: its Name.
	Room string
	// Data is what the template has as .Data.
	Data any
	// Status is 200 if zero.
	Status int
}

// shown is what a template is given.
type shown struct {
	page
	viewer
	Rooms   []room
	Notice  string
	Version string
}

// room is one link of the navigation.
type room struct {
	Name, Path string
	Here       bool
}

// The rooms.
const (
	roomOverview = "Overview"
	roomChat     = "Chat"
	roomSessions = "Sessions"
	roomHands    = "Hands"
	roomAgents   = "Agents"
	roomUsers    = "Users"
	roomMemory   = "Memory"
)

func (v viewer) rooms(here string) []room {
	var all []room
	add := func(name, path string) { all = append(all, room{name, path, name == here}) }
	if !v.Known() {
		return nil
	}
	add(roomOverview, "/")
	add(roomChat, v.Path("chat"))
	add(roomSessions, v.Path("sessions"))
	if !v.Admin {
		add(roomMemory, v.Path())
		return all
	}
	add(roomHands, "/hands")
	add(roomAgents, "/agents")
	add(roomUsers, "/users")
	return all
}

// maxChoice is how many users the header lets choose from.
const maxChoice = 100

// Choice are the users that the header offers. More of them are found in their room.
func (s shown) Choice() []memory.User {
	if !s.Admin || s.User.ID.IsZero() {
		return nil
	}
	choice := s.users[:min(len(s.users), maxChoice)]
	if !slices.Contains(choice, s.User) {
		choice = append(slices.Clone(choice), s.User)
	}
	return choice
}

// notices are what a page can be asked to say once, by the parameter that redirects
// carry: an address that somebody sends can choose one of these and write none.
var notices = map[string]string{
	"in":              "You are logged in.",
	"out":             "You are logged out.",
	"session-deleted": "The session was deleted.",
	"compacted":       "The session was compacted.",
	"nothing":         "There was nothing to do.",
	"saved":           "Saved.",
	"topic-deleted":   "The topic was deleted, with its history.",
	"memory-deleted":  "All that was remembered was deleted.",
	"user-deleted":    "Everything of the user was deleted.",
	"residue":         "It was deleted. Another process that reads the database keeps a log which still has the text; the next start removes it.",
}

// guardPage sets what holds for every page instead of what holds for data. With
// no-referrer browsers would say "null" where the forms come from, which is refused.
func guardPage(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
}

// show answers with a page.
func (s *site) show(w http.ResponseWriter, r *http.Request, v viewer, p page) error {
	return s.write(w, p.Status, p.Name, "layout", shown{
		page: p, viewer: v, Rooms: v.rooms(p.Room), Notice: notices[r.URL.Query().Get("notice")], Version: s.version,
	})
}

// part answers with a part of a page: a template that the page's file defines.
func (s *site) part(w http.ResponseWriter, page, name string, data any) error {
	return s.write(w, http.StatusOK, page, name, data)
}

func (s *site) write(w http.ResponseWriter, status int, page, name string, data any) error {
	t, ok := pages[page]
	if !ok {
		return fmt.Errorf("there is no template %q", page)
	}
	// What fails half way is an error and not half a page.
	var body bytes.Buffer
	if err := t.ExecuteTemplate(&body, name, data); err != nil {
		return fmt.Errorf("make page: %w", err)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(body.Len()))
	if status == 0 {
		status = http.StatusOK
	}
	hurry(w)
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes()) // a reader that has gone is nobody to tell
	return nil
}

// writeTimeout is how long a reader may take for a page.
const writeTimeout = 30 * time.Second

// hurry bounds how long the answer may take to be read.
func hurry(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
}

// redirect sends a browser on after a form was taken, to a path of this server.
// Notice is a key of notices, "" for none.
func redirect(w http.ResponseWriter, r *http.Request, to, notice string) error {
	if notice != "" {
		to += "?notice=" + url.QueryEscape(notice)
	}
	if isPart(r) {
		w.Header().Set("HX-Redirect", to)
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
	return nil
}

// isPart reports whether a script asks for a part of a page.
func isPart(r *http.Request) bool { return r.Header.Get("HX-Request") == "true" }

// problem is a refusal in the dashboard's own words.
type problem struct {
	status int
	detail string
}

func (p *problem) Error() string { return p.detail }

func refused(status int, detail string) error { return &problem{status, detail} }

// fail answers with what an error is to a person.
func (s *site) fail(w http.ResponseWriter, r *http.Request, v viewer, err error) {
	p, ok := errors.AsType[*problem](err)
	if !ok {
		status, detail, known := control.StatusOf(err)
		if r.Context().Err() != nil {
			panic(http.ErrAbortHandler) // nobody is there to read it
		}
		if !known || status >= http.StatusInternalServerError {
			s.log.LogAttrs(r.Context(), slog.LevelError, "page failed", slog.String("method", r.Method), slog.String("route", r.Pattern), slog.Int("status", status), slog.Any("error", err))
		}
		p = &problem{status, sentence(detail)}
	}
	s.refusalPage(w, r, v, p.status, p.detail)
}

// refuse answers what the server's door refuses.
func (s *site) refuse(w http.ResponseWriter, r *http.Request, status int, detail string) {
	guardPage(w.Header())
	if status == http.StatusUnauthorized {
		// It asks a browser for what it cannot give: the login does.
		w.Header().Del("WWW-Authenticate")
		to := "/login"
		if r.Method == http.MethodGet && !isPart(r) {
			to += "?next=" + url.QueryEscape(r.URL.RequestURI())
		}
		_ = redirect(w, r, to, "")
		return
	}
	var v viewer
	if control.CallerOf(r.Context()) != (control.Caller{}) {
		// Who asks for another user's is shown the frame of their own pages.
		v, _ = s.viewer(r, control.ForUser)
	}
	s.refusalPage(w, r, v, status, sentence(detail))
}

// refusalPage says why something was not done. Who followed a link from another
// site can go on from here: the page that they then come from is this server's.
func (s *site) refusalPage(w http.ResponseWriter, r *http.Request, v viewer, status int, detail string) {
	if isPart(r) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(detail))
		return
	}
	data := struct{ Detail, GoOn string }{Detail: detail}
	if status == http.StatusForbidden && r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Site") == "cross-site" && r.Header.Get("Sec-Fetch-Mode") == "navigate" {
		data.Detail = "Another site sent you here. Pages open from here alone, so that no other site can use your login."
		data.GoOn = localPath(r.URL.RequestURI())
	}
	if err := s.show(w, r, v, page{Name: "refusal", Title: http.StatusText(status), Data: data, Status: status}); err != nil {
		s.log.ErrorContext(r.Context(), "page failed", "error", err)
		http.Error(w, http.StatusText(status), status)
	}
}

// localPath returns a path of this server, or "/" for what a browser may take for
// an address of another.
func localPath(text string) string {
	at, err := url.Parse(text)
	if err != nil || at.IsAbs() || at.Host != "" || at.User != nil || !strings.HasPrefix(text, "/") || strings.HasPrefix(text, "//") || strings.ContainsAny(text, "\\\t\r\n") {
		return "/"
	}
	return text
}

// sentence makes one of an error's words.
func sentence(detail string) string {
	if detail == "" {
		return ""
	}
	return strings.ToUpper(detail[:1]) + detail[1:] + "."
}

// pageSize is how many rows a page has.
const pageSize = 50

// pager links a page of rows to those beside it; an empty path is none.
type pager struct{ Previous, Next string }

// maxPages is how many pages there are where one costs what stands before it.
const maxPages = 200

// pageOf reads the parameter page of a request, from 1 to most, and returns how many
// rows stand before it.
func pageOf(r *http.Request, most int) (number, before int) {
	number, err := strconv.Atoi(r.URL.Query().Get("page"))
	if err != nil || number < 1 || number > most {
		number = 1
	}
	return number, (number - 1) * pageSize
}

// pagerAt links a numbered page to those beside it. More says that there is a next.
func pagerAt(r *http.Request, number int, more bool) (p pager) {
	at := func(n int) string {
		q := r.URL.Query()
		q.Del("notice")
		q.Set("page", strconv.Itoa(n))
		return r.URL.EscapedPath() + "?" + q.Encode()
	}
	if number > 1 {
		p.Previous = at(number - 1)
	}
	if more {
		p.Next = at(number + 1)
	}
	return p
}

// functions are what templates may call beside the methods of what they are given.
var functions = template.FuncMap{
	"asset":    assetPath,
	"number":   number,
	"moment":   func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"day":      func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") },
	"duration": duration,
	"path":     userPath,
	"percent":  percent,
	"count":    func(n int64) string { return number(int(n)) },
	"bytes":    bytesText,
	"plural":   plural,
}

// gauge is a bar that says how much of something there is, in tokens.
type gauge struct {
	Label string
	// Value is at most Most, if that is what there is room for; in a row of a list Most
	// is the largest Value of the list, and Beside is set.
	Value, Most int
	Beside      bool
}

// Text says it in words.
func (g gauge) Text() string {
	if g.Most <= 0 || g.Beside {
		return plural(g.Value, "token")
	}
	return number(g.Value) + " of " + number(g.Most) + " (" + strconv.Itoa(percent(g.Value, g.Most)) + " %)"
}

func percent(value, most int) int {
	if most <= 0 {
		return 0
	}
	return int(float64(value) / float64(most) * 100)
}

// number writes thousands apart.
func number(n int) string {
	digits := strconv.Itoa(n)
	start := len(digits) % 3
	if n < 0 {
		start = (len(digits)-1)%3 + 1
	}
	out := digits[:start]
	for i := start; i < len(digits); i += 3 {
		if out != "" && out != "-" {
			out += "\u202f"
		}
		out += digits[i : i+3]
	}
	return out
}

// bytesText writes a number of bytes in the unit that says something.
func bytesText(n any) string {
	var size int64
	switch n := n.(type) {
	case int:
		size = int64(n)
	case int64:
		size = n
	}
	switch {
	case size >= 1<<20:
		return strconv.FormatFloat(float64(size)/(1<<20), 'f', -1, 64) + " MiB"
	case size >= 1<<10:
		return strconv.FormatFloat(float64(size)/(1<<10), 'f', -1, 64) + " KiB"
	}
	return strconv.FormatInt(size, 10) + " B"
}

// plural writes how many things there are.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return number(n) + " " + noun + "s"
}

// duration writes as much of a time as says something.
func duration(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return strconv.FormatInt(d.Microseconds(), 10) + " µs"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < time.Minute:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s"
	}
	return d.Round(time.Second).String()
}
