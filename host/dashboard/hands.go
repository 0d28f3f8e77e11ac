package dashboard

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/capability"
	"github.com/gloveboxhq/glovebox/host/control"
	"github.com/gloveboxhq/glovebox/host/sandbox"
	"github.com/gloveboxhq/glovebox/memory"
)

var handRoutes = []route{
	{"GET /hands", control.ForAdmin, (*site).hands},
	{"GET /hands/{hand}", control.ForAdmin, (*site).handPage},
	{"POST /hands/{hand}/query", control.ForAdmin, (*site).queryHand},
}

// external is text from outside, in its frame.
type external struct{ Source, Text string }

func framed(c boundary.Content) *external {
	if c.IsEmpty() {
		return nil
	}
	return &external{c.Source().String(), c.Render()}
}

// shownHand is a hand as pages show it. What its manifest says stands in sentences of
// this page, as text that it is said to be the manifest's.
type shownHand struct {
	host.HandInfo
	Health capability.Health
}

// Path is where the hand's page is.
func (h shownHand) Path() string { return "/hands/" + url.PathEscape(h.Name) }

// About is what the manifest says of the hand.
func (h shownHand) About() string { return boundary.Neutral(h.Description) }

// Asks are the permissions.
func (h shownHand) Asks() []shownPermission {
	var all []shownPermission
	for _, p := range h.Permissions {
		if p.Asked.IsEmpty() {
			all = append(all, shownPermission{p, boundary.Neutral(p.Reason), nil})
			continue
		}
		all = append(all, shownPermission{p, boundary.Neutral(p.Reason), slices.Collect(strings.SplitSeq(boundary.Neutral(p.Asked), "\n"))})
	}
	return all
}

type shownPermission struct {
	host.HandPermission
	Why  string
	What []string // of it, none for all
}

func (s *site) hands(w http.ResponseWriter, r *http.Request, v viewer) error {
	healths, err := s.host.Ledger().Health(r.Context())
	if err != nil {
		return err
	}
	var data struct{ Configured, Bundled []shownHand }
	for _, h := range s.host.Hands() {
		data.Configured = append(data.Configured, shownHand{h, healths[h.Name]})
	}
	bundled, err := s.host.BundledHands()
	if err != nil {
		return err
	}
	for _, h := range bundled {
		data.Bundled = append(data.Bundled, shownHand{HandInfo: h})
	}
	return s.show(w, r, v, page{Name: "hands", Title: "Hands", Room: roomHands, Data: data})
}

// handData is what the page of one hand shows.
type handData struct {
	shownHand
	// Ask is the form and what came of it, nil for a hand that nobody may ask.
	Ask      *ask
	Runs     []shownRun
	Refusals []shownRefusal
	// Older are the paths of what is before, "" if nothing is, Newest those back.
	OlderRuns, OlderRefusals   string
	NewestRuns, NewestRefusals string
}

// shownRun is one row of the record.
type shownRun struct {
	capability.Run
	User string
}

type shownRefusal struct {
	capability.Decision
	User, What string
}

// rowsOfRecord is how many runs and refusals a page has.
const rowsOfRecord = 25

// handAt returns the configured hand in the path.
func (s *site) handAt(r *http.Request) (host.HandInfo, error) {
	for _, h := range s.host.Hands() {
		if h.Name == r.PathValue("hand") {
			return h, nil
		}
	}
	return host.HandInfo{}, refused(http.StatusNotFound, "There is no such hand.")
}

func (s *site) handPage(w http.ResponseWriter, r *http.Request, v viewer) error {
	h, err := s.handAt(r)
	if err != nil {
		return err
	}
	return s.showHand(w, r, v, h, s.askOf(h, v))
}

func (s *site) showHand(w http.ResponseWriter, r *http.Request, v viewer, h host.HandInfo, a *ask) error {
	ledger := s.host.Ledger()
	// Who has just asked the hand looks for that run.
	if err := ledger.Flush(r.Context()); err != nil {
		return err
	}
	healths, err := ledger.Health(r.Context())
	if err != nil {
		return err
	}
	data := handData{shownHand: shownHand{h, healths[h.Name]}, Ask: a}
	subjects := map[string]string{}
	for _, u := range v.users {
		subjects[ledger.Subject(h.Name, u.ID.String())] = u.Name
	}
	before := idIn(r, "runs")
	runs, err := ledger.RunsBefore(r.Context(), h.Name, before, rowsOfRecord+1)
	if err != nil {
		return err
	}
	if before != 0 {
		data.NewestRuns = recordPath(r, "runs", 0)
	}
	if len(runs) > rowsOfRecord {
		runs = runs[:rowsOfRecord]
		data.OlderRuns = recordPath(r, "runs", runs[rowsOfRecord-1].ID)
	}
	for _, run := range runs {
		data.Runs = append(data.Runs, shownRun{run, subjects[run.Subject]})
	}
	before = idIn(r, "refusals")
	refusals, err := ledger.RefusalsBefore(r.Context(), h.Name, before, rowsOfRecord+1)
	if err != nil {
		return err
	}
	if before != 0 {
		data.NewestRefusals = recordPath(r, "refusals", 0)
	}
	if len(refusals) > rowsOfRecord {
		refusals = refusals[:rowsOfRecord]
		data.OlderRefusals = recordPath(r, "refusals", refusals[rowsOfRecord-1].ID)
	}
	source, err := boundary.HandSource(h.Name)
	if err != nil {
		return err
	}
	for _, d := range refusals {
		// The target is the hand's choice.
		target, _ := boundary.Wrap(source, d.Target, boundary.Unlimited)
		data.Refusals = append(data.Refusals, shownRefusal{d, subjects[d.Subject], boundary.Neutral(target)})
	}
	status := http.StatusOK
	// A script takes parts of the page alone, and none of one that is an error.
	if a != nil && a.Wrong != "" && !isPart(r) {
		status = http.StatusUnprocessableEntity
	}
	return s.show(w, r, v, page{Name: "hand", Title: "Hand " + h.Name, Room: roomHands, Data: data, Status: status})
}

// idIn reads the number of a row; 0 where there is none.
func idIn(r *http.Request, name string) int64 {
	id, err := strconv.ParseInt(r.URL.Query().Get(name), 10, 64)
	if err != nil || id < 0 {
		return 0
	}
	return id
}

// recordPath is the hand's page with the rows of one kind before that one, all others
// as they are.
func recordPath(r *http.Request, kind string, before int64) string {
	kept := url.Values{}
	for _, name := range []string{"runs", "refusals"} {
		if id := idIn(r, name); id != 0 && name != kind {
			kept.Set(name, strconv.FormatInt(id, 10))
		}
	}
	if before != 0 {
		kept.Set(kind, strconv.FormatInt(before, 10))
	}
	return "/hands/" + url.PathEscape(r.PathValue("hand")) + "?" + kept.Encode() + "#" + kind
}

// ask is the form that tries a hand, as it was filled in, and what came of it.
type ask struct {
	Hand  string
	Users []memory.User // those whom it may be asked for
	// User is whom it is asked for; Prompt the name of a prompt, or "" for Question.
	User             memory.UserID
	Prompts          []string
	Prompt, Question string
	From, To         string
	MaxTokens        int
	// Wrong says what of the form is not so.
	Wrong  string
	Answer *handAnswer
}

// handAnswer is what came of a question.
type handAnswer struct {
	Result sandbox.Result
	// Failed says in the host's words why there is no reply.
	Failed string
	// Reply, Said and Log are the hand's words; nil if it had none.
	Reply, Said, Log *external
	// Removed says what was taken out of the reply.
	Removed string
}

// The form's own.
const (
	minuteForm     = "2006-01-02T15:04"
	maxAskedTokens = 32_000
)

// Choice are the users that the form offers.
func (a ask) Choice() []memory.User { return a.Users[:min(len(a.Users), maxChoice)] }

// askOf is the form for a hand as it is first shown: nil for a hand without users
// who exist.
func (s *site) askOf(h host.HandInfo, v viewer) *ask {
	now := s.now().UTC()
	a := &ask{
		Hand: h.Name, Prompts: slices.Sorted(maps.Keys(h.Prompts)), MaxTokens: sandbox.DefaultOutputTokens,
		From: now.Add(-24 * time.Hour).Format(minuteForm), To: now.Format(minuteForm),
	}
	for _, u := range v.users {
		if slices.Contains(h.Users, u.Name) {
			a.Users = append(a.Users, u)
			if a.User.IsZero() || u.ID == v.Me.ID {
				a.User = u.ID
			}
		}
	}
	if len(a.Users) == 0 {
		return nil
	}
	if len(a.Prompts) > 0 {
		a.Prompt = a.Prompts[0]
	}
	return a
}

func (s *site) queryHand(w http.ResponseWriter, r *http.Request, v viewer) error {
	h, err := s.handAt(r)
	if err != nil {
		return err
	}
	if err := readForm(w, r); err != nil {
		return err
	}
	a := s.askOf(h, v)
	if a == nil {
		return refused(http.StatusNotFound, "None of the hand's users is there.")
	}
	question, err := a.read(r, h)
	if err != nil {
		return err
	}
	if a.Wrong == "" {
		result, err := s.host.Query(r.Context(), question)
		failed, ok := errors.AsType[*abi.Error](err)
		if err != nil && (!ok || r.Context().Err() != nil) {
			return err
		}
		a.Answer = &handAnswer{Result: result, Reply: framed(result.Reply), Said: framed(result.Said), Log: framed(result.Log), Removed: removed(result.Neutralised)}
		if failed != nil {
			a.Answer.Failed = failed.Error()
		}
	}
	return s.showHand(w, r, v, h, a)
}

// read takes the form over and returns the question, unless Wrong says what is not
// as it should be.
func (a *ask) read(r *http.Request, h host.HandInfo) (q host.HandQuery, err error) {
	form := func(name string) string { return r.PostForm.Get(name) }
	a.Prompt, a.Question, a.From, a.To = form("prompt"), form("question"), form("from"), form("to")
	q.Hand = h.Name
	user, err := memory.ParseID[memory.UserID](form("user"))
	if err != nil || !slices.ContainsFunc(a.Users, func(u memory.User) bool { return u.ID == user }) {
		return q, refused(http.StatusNotFound, "The hand has no such user.")
	}
	a.User, q.User = user, user
	wrong := func(format string, args ...any) (host.HandQuery, error) {
		a.Wrong = fmt.Sprintf(format, args...)
		return q, nil
	}
	if a.MaxTokens, err = strconv.Atoi(form("max_tokens")); err != nil || a.MaxTokens < 1 || a.MaxTokens > maxAskedTokens {
		a.MaxTokens = sandbox.DefaultOutputTokens
		return wrong("The answer may have 1 to %s tokens.", number(maxAskedTokens))
	}
	q.MaxTokens = a.MaxTokens
	if q.From, err = time.Parse(minuteForm, a.From); err != nil {
		return wrong("Say when the window begins.")
	}
	if q.To, err = time.Parse(minuteForm, a.To); err != nil {
		return wrong("Say when the window ends.")
	}
	if !q.From.Before(q.To) {
		return wrong("The window ends before it begins.")
	}
	if text, ok := h.Prompts[a.Prompt]; ok {
		q.Prompt = text
		return q, nil
	}
	a.Prompt = ""
	switch {
	case strings.TrimSpace(a.Question) == "":
		return wrong("Say what the hand is to be asked.")
	case len(a.Question) > abi.MaxPromptBytes:
		return wrong("The question has %s bytes, and %s are allowed.", number(len(a.Question)), number(abi.MaxPromptBytes))
	}
	q.Prompt = a.Question
	return q, nil
}

// removed says what was taken out of a text, "" if nothing was.
func removed(n boundary.Report) string {
	var parts []string
	for _, part := range []struct {
		count int
		name  string
	}{
		{n.Markers, "marks of prompts"}, {n.Controls, "control characters"}, {n.Escapes, "escape sequences"}, {n.Bidi, "changes of direction"},
		{n.Tags, "tag characters"}, {n.Invisible, "invisible characters"}, {n.InvalidUTF8, "bytes that are no text"},
	} {
		if part.count > 0 {
			parts = append(parts, number(part.count)+" "+part.name)
		}
	}
	return strings.Join(parts, ", ")
}
