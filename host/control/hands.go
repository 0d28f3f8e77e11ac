package control

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/capability"
	"github.com/gloveboxhq/glovebox/memory"
)

// shownHand is host.HandInfo as JSON has it. What the manifest says is external
// content, with its source.
type shownHand struct {
	Name      string `json:"name"`
	Version   string `json:"version"`
	Digest    string `json:"digest"`
	Bundled   bool   `json:"bundled"`
	Installed bool   `json:"installed"`
	// Source and AgreedAt are absent where nothing was agreed, Disabled for a hand
	// that is asked.
	Source      string            `json:"source,omitempty"`
	AgreedAt    time.Time         `json:"agreed_at,omitzero"`
	Disabled    string            `json:"disabled,omitempty"`
	Description boundary.Content  `json:"description"`
	Users       []string          `json:"users"`
	Permissions []shownPermission `json:"permissions"`
	Limits      shownLimits       `json:"limits"`
	Prompts     map[string]string `json:"prompts"`
	FreePrompts bool              `json:"free_prompts"`
	// Health is absent for a hand that never ran.
	Health *capability.Health `json:"health,omitempty"`
}

type shownPermission struct {
	Capability abi.Capability   `json:"capability"`
	Reason     boundary.Content `json:"reason"`
	Asked      boundary.Content `json:"asked"`
	Granted    bool             `json:"granted"`
	Reach      []string         `json:"reach"`
	Key        string           `json:"key"`
}

// shownLimits are those of abi.Limits that an operator sets or wonders about.
type shownLimits struct {
	Timeout     time.Duration `json:"timeout_ns"`
	Fuel        int64         `json:"fuel"`
	MemoryBytes int64         `json:"memory_bytes"`
	OutputBytes int           `json:"output_bytes"`
	Calls       int           `json:"calls"`
	Concurrent  int           `json:"concurrent"`
}

func showHand(h host.HandInfo, healths map[string]capability.Health) shownHand {
	out := shownHand{
		Name: h.Name, Version: h.Version, Digest: h.Digest, Bundled: h.Bundled, Description: h.Description,
		Installed: h.Installed, Source: h.Source, AgreedAt: h.AgreedAt, Disabled: h.Disabled,
		Users: append([]string{}, h.Users...), Permissions: []shownPermission{}, Prompts: h.Prompts, FreePrompts: h.FreePrompts,
		Limits: shownLimits{h.Limits.Timeout, h.Limits.Fuel, h.Limits.MemoryBytes, h.Limits.OutputBytes, h.Limits.Calls, h.Limits.Concurrent},
	}
	if out.Prompts == nil {
		out.Prompts = map[string]string{}
	}
	for _, p := range h.Permissions {
		out.Permissions = append(out.Permissions, shownPermission{p.Capability, p.Reason, p.Asked, p.Granted, append([]string{}, p.Reach...), p.Key})
	}
	if health, ran := healths[h.Name]; ran {
		out.Health = &health
	}
	return out
}

func noHand() *problem { return refuse(http.StatusNotFound, "no such hand") }

// handAt returns the configured hand in the path.
func (s *server) handAt(r *http.Request) (host.HandInfo, error) {
	for _, h := range s.host.Hands() {
		if h.Name == r.PathValue("hand") {
			return h, nil
		}
	}
	return host.HandInfo{}, noHand()
}

func (s *server) hands(w http.ResponseWriter, r *http.Request, _ place) error {
	healths, err := s.host.Ledger().Health(r.Context())
	if err != nil {
		return err
	}
	all := []shownHand{}
	for _, h := range s.host.Hands() {
		all = append(all, showHand(h, healths))
	}
	return writeJSON(w, http.StatusOK, struct {
		Hands []shownHand `json:"hands"`
	}{all})
}

func (s *server) hand(w http.ResponseWriter, r *http.Request, _ place) error {
	h, err := s.handAt(r)
	if err != nil {
		return err
	}
	healths, err := s.host.Ledger().Health(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, showHand(h, healths))
}

// shownRun is a run whose subject, which is a hash, is the user again.
type shownRun struct {
	ID          int64         `json:"id"`
	At          time.Time     `json:"at"`
	User        memory.UserID `json:"user_id,omitzero"`
	Digest      string        `json:"digest"`
	Outcome     string        `json:"outcome"`
	Text        string        `json:"text,omitempty"`
	Took        time.Duration `json:"took_ns"`
	Fuel        int64         `json:"fuel"`
	MemoryBytes int64         `json:"memory_bytes"`
	ReplyBytes  int           `json:"reply_bytes"`
	ReplyTokens int           `json:"reply_tokens"`
	Calls       int           `json:"calls"`
	HTTPTargets []string      `json:"http_targets"`
}

// answered is the outcome of a run that did not fail.
const answered = "answered"

// shownRefusal is a decision against a call. The target is the hand's choice.
type shownRefusal struct {
	ID     int64             `json:"id"`
	At     time.Time         `json:"at"`
	User   memory.UserID     `json:"user_id,omitzero"`
	Action capability.Action `json:"action"`
	Target boundary.Content  `json:"target"`
	Reason string            `json:"reason"`
}

const maxRecords = 500

// subjects returns the users by the names that they have in the ledger's rows of a
// hand.
func (s *server) subjects(r *http.Request, hand string) (map[string]memory.UserID, error) {
	users, err := s.store.Users(r.Context())
	if err != nil {
		return nil, err
	}
	named := make(map[string]memory.UserID, len(users))
	for _, u := range users {
		named[s.host.Ledger().Subject(hand, u.ID.String())] = u.ID
	}
	return named, nil
}

// recordAt reads what the routes of the record have in common. One more than the
// limit tells whether there are any.
func (s *server) recordAt(r *http.Request, at place) (h host.HandInfo, subjects map[string]memory.UserID, after int64, limit int, err error) {
	after, limit = at.query.number("after", 1, 1<<53, 0), at.query.limit(100, maxRecords)
	if at.query.err != nil {
		return h, nil, 0, 0, at.query.err
	}
	if h, err = s.handAt(r); err != nil {
		return h, nil, 0, 0, err
	}
	if subjects, err = s.subjects(r, h.Name); err != nil {
		return h, nil, 0, 0, err
	}
	// Who has just asked a hand looks for that run.
	return h, subjects, after, limit, s.host.Ledger().Flush(r.Context())
}

func (s *server) runs(w http.ResponseWriter, r *http.Request, at place) error {
	h, subjects, after, limit, err := s.recordAt(r, at)
	if err != nil {
		return err
	}
	runs, err := s.host.Ledger().RunsBefore(r.Context(), h.Name, after, limit+1)
	if err != nil {
		return err
	}
	page := struct {
		Runs      []shownRun `json:"runs"`
		NextAfter int64      `json:"next_after,omitzero"`
	}{Runs: []shownRun{}}
	if len(runs) > limit {
		runs = runs[:limit]
		page.NextAfter = runs[limit-1].ID
	}
	for _, run := range runs {
		outcome := string(run.Outcome)
		if outcome == "" {
			outcome = answered
		}
		page.Runs = append(page.Runs, shownRun{run.ID, run.At, subjects[run.Subject], run.Digest, outcome, run.Text, run.Took, run.Fuel, run.MemoryBytes,
			run.ReplyBytes, run.ReplyTokens, run.Calls, append([]string{}, run.HTTPTargets...)})
	}
	return writeJSON(w, http.StatusOK, page)
}

func (s *server) refusedCalls(w http.ResponseWriter, r *http.Request, at place) error {
	h, subjects, after, limit, err := s.recordAt(r, at)
	if err != nil {
		return err
	}
	refused, err := s.host.Ledger().RefusalsBefore(r.Context(), h.Name, after, limit+1)
	if err != nil {
		return err
	}
	page := struct {
		Refusals  []shownRefusal `json:"refusals"`
		NextAfter int64          `json:"next_after,omitzero"`
	}{Refusals: []shownRefusal{}}
	if len(refused) > limit {
		refused = refused[:limit]
		page.NextAfter = refused[limit-1].ID
	}
	source, err := boundary.HandSource(h.Name)
	if err != nil {
		return err
	}
	for _, d := range refused {
		target, _ := boundary.Wrap(source, d.Target, boundary.Unlimited)
		page.Refusals = append(page.Refusals, shownRefusal{d.ID, d.At, subjects[d.Subject], d.Action, target, d.Reason})
	}
	return writeJSON(w, http.StatusOK, page)
}

// handRequest is one question to one hand.
type handRequest struct {
	// Prompt is the name of a configured one, Question takes its place.
	Prompt    string    `json:"prompt"`
	Question  string    `json:"question"`
	From      time.Time `json:"from"`
	To        time.Time `json:"to"`
	MaxTokens int       `json:"max_tokens"`
}

// maxHandTokens bounds what a caller may have a hand say.
const maxHandTokens = 32_000

// handAnswer is what a hand said: as text with its source, and framed as a prompt
// has it. Both are absent if it had nothing to say.
type handAnswer struct {
	Hand        string           `json:"hand"`
	Content     boundary.Content `json:"content,omitzero"`
	Framed      string           `json:"framed,omitempty"`
	Neutralised boundary.Report  `json:"neutralised"`
	Tokens      int              `json:"tokens"`
	Cut         bool             `json:"cut"`
	Took        time.Duration    `json:"took_ns"`
	Fuel        int64            `json:"fuel"`
	MemoryBytes int64            `json:"memory_bytes"`
	Calls       int              `json:"calls"`
	// Log is what it logged, for the operator.
	Log boundary.Content `json:"log,omitzero"`
}

// queryHand asks a hand. The operator may ask anything of it; to a user's token only
// the user's hands are there, and only their prompts, as for a model.
func (s *server) queryHand(w http.ResponseWriter, r *http.Request, at place) error {
	caller := callerOf(r.Context())
	h, err := s.handAt(r)
	if err != nil {
		return err
	}
	if !slices.Contains(h.Users, at.user.Name) {
		if caller.admin {
			return refuse(http.StatusForbidden, "the hand is not for this user: add the name to hands."+h.Name+".users")
		}
		return noHand()
	}
	var asked handRequest
	if err := readBody(w, r, &asked); err != nil {
		return err
	}
	question, err := asked.question(h, caller.admin)
	if err != nil {
		return err
	}
	result, err := s.host.Query(r.Context(), host.HandQuery{
		Hand: h.Name, User: at.user.ID, Prompt: question, From: asked.From, To: asked.To, MaxTokens: asked.MaxTokens,
	})
	if failed, ok := errors.AsType[*abi.Error](err); ok && r.Context().Err() == nil {
		return handProblem(failed, result.Said, caller.admin)
	} else if err != nil {
		return err
	}
	answer := handAnswer{
		Hand: h.Name, Content: result.Reply, Framed: result.Reply.Render(), Neutralised: result.Neutralised, Tokens: result.Reply.Tokens(), Cut: result.Cut,
		Took: result.Took, Fuel: result.Fuel, MemoryBytes: result.MemoryBytes, Calls: result.Calls,
	}
	if caller.admin {
		answer.Log = result.Log
	}
	return writeJSON(w, http.StatusOK, answer)
}

// question returns what the hand is asked.
func (q handRequest) question(h host.HandInfo, admin bool) (string, error) {
	wrong := func(detail string) (string, error) { return "", refuse(http.StatusBadRequest, detail) }
	switch {
	case q.MaxTokens < 0 || q.MaxTokens > maxHandTokens:
		return wrong("max_tokens is a number from 1 to 32000")
	case !q.From.IsZero() && !q.To.IsZero() && !q.From.Before(q.To):
		return wrong("the window ends before it begins")
	case (q.Prompt == "") == (strings.TrimSpace(q.Question) == ""):
		return wrong("give prompt, the name of one of the hand's prompts, or question")
	case q.Question != "" && !admin && !h.FreePrompts:
		return "", refuse(http.StatusForbidden, "the hand takes no words of yours: give prompt, the name of one of its prompts")
	case len(q.Question) > abi.MaxPromptBytes:
		return wrong("question is longer than " + bytesText(abi.MaxPromptBytes))
	case q.Question != "":
		return q.Question, nil
	}
	if text, ok := h.Prompts[q.Prompt]; ok {
		return text, nil
	}
	return wrong("the hand has no prompt of that name")
}
