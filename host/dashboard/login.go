package dashboard

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gloveboxhq/glovebox/host/control"
	"github.com/gloveboxhq/glovebox/memory"
)

// shellRoutes are those of no room.
var shellRoutes = []route{
	{"GET /assets/{tag}/{name}", control.ForAll, (*site).asset},
	{"GET /login", control.ForAll, (*site).loginPage},
	{"POST /login", control.ForAll, (*site).login},
	{"POST /logout", control.ForAll, (*site).logout},
	{"GET /look", control.ForAdmin, (*site).look},
	// Below the rooms a wrong address has a page that says so. Elsewhere the server has
	// one for browsers, and problem details for programs.
	{"GET /users/{user}/{rest...}", control.ForUser, (*site).nothing},
	{"GET /sessions/{rest...}", control.ForUser, (*site).nothing},
	{"GET /chat/{rest...}", control.ForUser, (*site).nothing},
	{"GET /hands/{rest...}", control.ForAdmin, (*site).nothing},
	{"GET /agents/{rest...}", control.ForAdmin, (*site).nothing},
}

func (s *site) nothing(http.ResponseWriter, *http.Request, viewer) error {
	return refused(http.StatusNotFound, "There is no such page.")
}

func (s *site) asset(w http.ResponseWriter, r *http.Request, _ viewer) error {
	serveAsset(w, r)
	return nil
}

// loginForm is what the page of the login shows.
type loginForm struct {
	// Next is where the browser wanted to go.
	Next string
	// Wrong says why the token was not taken.
	Wrong string
}

func (s *site) loginPage(w http.ResponseWriter, r *http.Request, _ viewer) error {
	return s.showLogin(w, r, http.StatusOK, loginForm{Next: localPath(r.URL.Query().Get("next"))})
}

func (s *site) showLogin(w http.ResponseWriter, r *http.Request, status int, f loginForm) error {
	return s.show(w, r, viewer{}, page{Name: "login", Title: "Log in", Data: f, Status: status})
}

func (s *site) login(w http.ResponseWriter, r *http.Request, _ viewer) error {
	if err := readForm(w, r); err != nil {
		return err
	}
	next := localPath(r.PostForm.Get("next"))
	cookie, err := s.logins.Login(strings.TrimSpace(r.PostForm.Get("token")), overTLS(r))
	switch {
	case errors.Is(err, memory.ErrNotFound):
		return s.showLogin(w, r, http.StatusUnauthorized, loginForm{next, "That token is not known here. It may have been revoked."})
	case err != nil:
		return err
	}
	// The browser forgets the cookie that it had: nobody else is to have it either.
	s.logins.Logout(r)
	http.SetCookie(w, cookie)
	http.Redirect(w, r, next, http.StatusSeeOther)
	return nil
}

// overTLS reports whether the browser came over TLS, be it to a proxy before this
// server: it says itself where the form is from.
func overTLS(r *http.Request) bool {
	return r.TLS != nil || strings.HasPrefix(r.Header.Get("Origin"), "https://")
}

func (s *site) logout(w http.ResponseWriter, r *http.Request, _ viewer) error {
	if err := readForm(w, r); err != nil {
		return err
	}
	if cookie := s.logins.Logout(r); cookie != nil {
		http.SetCookie(w, cookie)
	}
	return redirect(w, r, "/login", "out")
}

// look goes to the same room of another user.
func (s *site) look(w http.ResponseWriter, r *http.Request, v viewer) error {
	id, err := memory.ParseID[memory.UserID](r.URL.Query().Get("user"))
	if err != nil {
		return refused(http.StatusNotFound, "There is no such user.")
	}
	v.User.ID = id
	for _, room := range v.rooms("") {
		if room.Name == r.URL.Query().Get("room") && room.Name != roomUsers && room.Path != "/" {
			return redirect(w, r, room.Path, "")
		}
	}
	return redirect(w, r, v.Path(), "")
}

// maxForm bounds the body of a form.
const maxForm = 1 << 20

// formTimeout is how long a form may take to come.
const formTimeout = 30 * time.Second

// readForm reads the fields of a form into r.PostForm. The connection is as before
// then, so that who goes away during a long answer is noticed.
func readForm(w http.ResponseWriter, r *http.Request) error {
	connection := http.NewResponseController(w)
	_ = connection.SetReadDeadline(time.Now().Add(formTimeout))
	defer func() { _ = connection.SetReadDeadline(time.Time{}) }()
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		if _, tooLong := errors.AsType[*http.MaxBytesError](err); tooLong {
			return err
		}
		return refused(http.StatusBadRequest, "The form cannot be read.")
	}
	// Pages are UTF-8, and so is what browsers send from them. What is not would be
	// stored as something else than was sent.
	for _, values := range r.PostForm {
		if slices.ContainsFunc(values, func(text string) bool { return !utf8.ValidString(text) }) {
			return refused(http.StatusBadRequest, "The form cannot be read: it is not UTF-8.")
		}
	}
	return nil
}
