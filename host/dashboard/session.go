package dashboard

import (
	"cmp"
	"errors"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/gloveboxhq/glovebox/compaction/assembly"
	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/capability"
	"github.com/gloveboxhq/glovebox/memory"
)

// sessionHead is what every page of one session begins with.
type sessionHead struct {
	Session memory.Session
	Path    string
	Parent  string
	Agent   string
	Tabs    []room
}

func (s *site) head(v viewer, session memory.Session, here string) sessionHead {
	h := sessionHead{Session: session, Path: v.Path("sessions", session.ID), Agent: s.agentName(session.Agent)}
	if !session.Parent.IsZero() {
		h.Parent = v.Path("sessions", session.Parent)
	}
	for _, tab := range []room{{Name: "What the model sees"}, {Name: "Messages", Path: "/messages"}, {Name: "Timeline", Path: "/timeline"}, {Name: "Context report", Path: "/context"}} {
		h.Tabs = append(h.Tabs, room{tab.Name, h.Path + tab.Path, tab.Name == here})
	}
	return h
}

// showSession answers with a page of one session.
func (s *site) showSession(w http.ResponseWriter, r *http.Request, v viewer, session memory.Session, name string, data any) error {
	return s.show(w, r, v, page{Name: name, Title: labelOf(session), Room: roomSessions, Data: data})
}

// fill says how full a prompt is.
type fill struct {
	Gauge    gauge
	Pressure assembly.Pressure
	// Parts are what it is spent on.
	Parts []gauge
}

func fillOf(r assembly.Report) fill {
	f := fill{Gauge: gauge{Label: "Tokens of the next prompt", Value: r.Tokens, Most: r.Budget}, Pressure: r.Pressure}
	for _, part := range []gauge{
		{Label: "System text", Value: r.Totals.System}, {Label: "Tools", Value: r.Totals.Tools}, {Label: "Summaries", Value: r.Totals.Summaries}, {Label: "Messages", Value: r.Totals.Messages},
		{Label: "Last messages", Value: r.Totals.Tail}, {Label: "Beside the last input", Value: r.Totals.Beside}, {Label: "Notes", Value: r.Totals.Notes},
	} {
		if part.Value > 0 {
			part.Most = r.Budget
			f.Parts = append(f.Parts, part)
		}
	}
	return f
}

// Badge is the style of the level.
func (f fill) Badge() string {
	switch f.Pressure.Level {
	case assembly.LevelLow:
		return "good"
	case assembly.LevelCritical:
		return "bad"
	}
	return "warn"
}

// frontierPage draws a session as the model sees it.
type frontierPage struct {
	sessionHead
	Fill fill
	// Older is what stands before the part of the frontier that a prompt could hold.
	Older memory.FrontierRest
	// Before is how many items of that part stand before Rows, After how many
	// follow.
	Before, After int
	Rows          []row
	Pager         pager
}

func (s *site) session(w http.ResponseWriter, r *http.Request, v viewer) error {
	session, err := s.sessionIn(r.Context(), r, v)
	if err != nil {
		return err
	}
	in, err := host.PromptOf(r.Context(), s.host.Config(), s.store, v.User.ID, session.ID, 0)
	if err != nil {
		return err
	}
	_, report, err := assembly.Assemble(in)
	if err != nil {
		return err
	}
	// The end is what the model is about to answer: it is on the first page.
	number, after := pageOf(r, math.MaxInt32)
	end := max(len(in.Items)-after, 0)
	start := max(end-pageSize, 0)
	p := frontierPage{sessionHead: s.head(v, session, "What the model sees"), Fill: fillOf(report), Older: in.Older, Before: start, After: len(in.Items) - end}
	p.Rows = rowsOf(v, in.Items[start:end])
	fates := fatesOf(report)
	for i, item := range in.Items[start:end] {
		p.Rows[i].Fate = fates[idOf(item)]
	}
	p.Pager = pagerAt(r, number, start > 0)
	return s.showSession(w, r, v, session, "session", p)
}

// idOf is the text of an item's id.
func idOf(item memory.Item) string {
	if item.Message != nil {
		return item.Message.ID.String()
	}
	return item.Summary.ID.String()
}

// fatesOf says of each stored piece of a report what became of it.
func fatesOf(r assembly.Report) map[string]*fate {
	fates := make(map[string]*fate, len(r.Entries))
	for _, e := range r.Entries {
		switch e.Kind {
		case assembly.KindMessage, assembly.KindRefresh, assembly.KindSummary:
			fates[e.ID.String()] = &fate{e.Included, e.Reason}
		}
	}
	return fates
}

// messagesPage lists all messages.
type messagesPage struct {
	sessionHead
	Rows     []row
	Pager    pager
	Number   int
	LastPath string
}

func (s *site) messages(w http.ResponseWriter, r *http.Request, v viewer) error {
	session, err := s.sessionIn(r.Context(), r, v)
	if err != nil {
		return err
	}
	number, before := pageOf(r, math.MaxInt32)
	messages, err := s.store.Messages(r.Context(), v.User.ID, session.ID, memory.MessageQuery{After: int64(before), Limit: pageSize + 1})
	if err != nil {
		return err
	}
	p := messagesPage{sessionHead: s.head(v, session, "Messages"), Number: number, Pager: pagerAt(r, number, len(messages) > pageSize)}
	p.Rows = rowsOfMessages(v, messages[:min(len(messages), pageSize)])
	if p.Pager.Next != "" {
		p.LastPath = p.Path + "/messages?page=" + strconv.Itoa((session.Messages-1)/pageSize+1)
	}
	return s.showSession(w, r, v, session, "messages", p)
}

// wholePage shows one message or summary whole, or what a summary was made from.
type wholePage struct {
	sessionHead
	Row row
	// Sources are those of a summary, from that of the number From on; More is where
	// the next are.
	Sources []row
	From    int
	More    string
}

func (s *site) message(w http.ResponseWriter, r *http.Request, v viewer) error {
	session, err := s.sessionIn(r.Context(), r, v)
	if err != nil {
		return err
	}
	id, err := memory.ParseID[memory.MessageID](r.PathValue("message"))
	if err != nil {
		return refused(http.StatusNotFound, "There is no such message.")
	}
	m, err := s.store.Message(r.Context(), v.User.ID, id)
	if err != nil {
		return err
	}
	if m.Session != session.ID {
		return refused(http.StatusNotFound, "There is no such message.")
	}
	whole := messageRow(v, m, wholeBytes)
	if isPart(r) {
		return s.part(w, "whole", "pieces", whole)
	}
	return s.showSession(w, r, v, session, "whole", wholePage{sessionHead: s.head(v, session, ""), Row: whole})
}

func (s *site) summary(w http.ResponseWriter, r *http.Request, v viewer) error {
	session, err := s.sessionIn(r.Context(), r, v)
	if err != nil {
		return err
	}
	id, err := memory.ParseID[memory.SummaryID](r.PathValue("summary"))
	if err != nil {
		return refused(http.StatusNotFound, "There is no such summary.")
	}
	summary, _, err := s.store.Summary(r.Context(), v.User.ID, id)
	if err != nil {
		return err
	}
	if summary.Session != session.ID {
		return refused(http.StatusNotFound, "There is no such summary.")
	}
	whole := summaryRow(v, summary, wholeBytes)
	if isPart(r) && r.URL.Query().Has("whole") {
		return s.part(w, "whole", "pieces", whole)
	}
	items, err := s.store.Sources(r.Context(), v.User.ID, id)
	if err != nil {
		return err
	}
	from, err := strconv.Atoi(cmp.Or(r.URL.Query().Get("from"), "0"))
	if err != nil || from < 0 || from > len(items) {
		return refused(http.StatusBadRequest, "There is no such part of the summary's sources.")
	}
	p := wholePage{sessionHead: s.head(v, session, ""), Row: whole, From: from}
	p.Sources = rowsOf(v, items[from:min(from+pageSize, len(items))])
	if from+pageSize < len(items) {
		p.More = whole.Open + "?from=" + strconv.Itoa(from+pageSize)
	}
	switch {
	case isPart(r) && from > 0:
		return s.part(w, "whole", "source-rows", p)
	case isPart(r):
		return s.part(w, "whole", "sources", p)
	}
	return s.showSession(w, r, v, session, "whole", p)
}

// event is one thing that happened to a session.
type event struct {
	At time.Time
	// Compaction or Hand is what happened.
	Compaction *memory.CompactionRun
	Hand       *handRun
}

// handRun is one question to a hand. Text is in the host's words.
type handRun struct {
	At                  time.Time
	Hand, Outcome, Text string
	Took                time.Duration
	ReplyTokens         int
}

func handRunOf(run capability.Run) handRun {
	return handRun{run.At, run.Hand, string(run.Outcome), run.Text, run.Took, run.ReplyTokens}
}

// timelinePage tells what happened to a session, the latest first.
type timelinePage struct {
	sessionHead
	Events []event
	Pager  pager
}

// lookedRuns is how many of the last runs of hands are looked at for those of one
// user.
const lookedRuns = 1000

func (s *site) timeline(w http.ResponseWriter, r *http.Request, v viewer) error {
	session, err := s.sessionIn(r.Context(), r, v)
	if err != nil {
		return err
	}
	number, before := pageOf(r, math.MaxInt32)
	// One more than is shown says whether there is another page.
	runs, err := s.store.Compactions(r.Context(), v.User.ID, session.ID, before+pageSize+1)
	if err != nil {
		return err
	}
	events := make([]event, 0, len(runs))
	for i := range runs {
		events = append(events, event{At: runs[i].StartedAt, Compaction: &runs[i]})
	}
	hands, err := s.handRuns(r, v, session)
	if err != nil {
		return err
	}
	events = append(events, hands...)
	slices.SortStableFunc(events, func(a, b event) int { return b.At.Compare(a.At) })
	p := timelinePage{sessionHead: s.head(v, session, "Timeline"), Pager: pagerAt(r, number, before < len(events) && len(events)-before > pageSize)}
	before = min(before, len(events))
	p.Events = events[before:min(before+pageSize, len(events))]
	return s.showSession(w, r, v, session, "timeline", p)
}

// handRuns are the questions that hands were asked for the user while the session
// went on. Which session a question was for nobody knows: no hand is told.
func (s *site) handRuns(r *http.Request, v viewer, session memory.Session) ([]event, error) {
	ledger := s.host.Ledger()
	runs, err := ledger.Runs(r.Context(), "", lookedRuns)
	if err != nil {
		return nil, err
	}
	subjects := map[string]string{}
	var events []event
	// A refresh comes before the message that it is for is stored.
	from, to := session.CreatedAt.Add(-time.Minute), session.LastActive.Add(time.Minute)
	for _, run := range runs {
		subject, ok := subjects[run.Hand]
		if !ok {
			subject = ledger.Subject(run.Hand, v.User.ID.String())
			subjects[run.Hand] = subject
		}
		if run.Subject != subject || run.At.Before(from) || run.At.After(to) {
			continue
		}
		shown := handRunOf(run)
		events = append(events, event{At: run.At, Hand: &shown})
	}
	return events, nil
}

// reportPage says of every piece why the model sees it or not.
type reportPage struct {
	sessionHead
	Fill    fill
	Report  assembly.Report
	Entries []reportEntry
	Pager   pager
}

// reportEntry is one line of the report.
type reportEntry struct {
	assembly.Entry
	Number int
	Label  string
}

func (s *site) contextReport(w http.ResponseWriter, r *http.Request, v viewer) error {
	session, err := s.sessionIn(r.Context(), r, v)
	if err != nil {
		return err
	}
	_, report, err := host.ContextOf(r.Context(), s.host.Config(), s.store, v.User.ID, session.ID, 0)
	if err != nil {
		return err
	}
	number, before := pageOf(r, math.MaxInt32)
	p := reportPage{sessionHead: s.head(v, session, "Context report"), Fill: fillOf(report), Report: report}
	before = min(before, len(report.Entries))
	for i, e := range report.Entries[before:min(before+pageSize, len(report.Entries))] {
		label := string(e.Kind)
		if e.Role != "" {
			label += " · " + string(e.Role)
		}
		p.Entries = append(p.Entries, reportEntry{e, before + i + 1, label})
	}
	p.Pager = pagerAt(r, number, before+pageSize < len(report.Entries))
	return s.showSession(w, r, v, session, "context", p)
}

func (s *site) compact(w http.ResponseWriter, r *http.Request, v viewer) error {
	if err := readForm(w, r); err != nil {
		return err
	}
	session, err := s.sessionIn(r.Context(), r, v)
	if err != nil {
		return err
	}
	report, err := s.host.Compact(r.Context(), v.User.ID, session.ID)
	if err != nil {
		return err
	}
	notice := "nothing"
	if report.Sweep.Changed() {
		notice = "compacted"
	}
	return redirect(w, r, v.Path("sessions", session.ID), notice)
}

func (s *site) deletePage(w http.ResponseWriter, r *http.Request, v viewer) error {
	session, err := s.sessionIn(r.Context(), r, v)
	if err != nil {
		return err
	}
	return s.showSession(w, r, v, session, "delete", s.head(v, session, ""))
}

// deleteSession removes a session for good. What another process still reads of it
// goes when the next wipe or deletion scrubs.
func (s *site) deleteSession(w http.ResponseWriter, r *http.Request, v viewer) error {
	if err := readForm(w, r); err != nil {
		return err
	}
	session, err := s.sessionIn(r.Context(), r, v)
	if err != nil {
		return err
	}
	if err := s.store.DeleteSession(r.Context(), v.User.ID, session.ID); err != nil {
		return err
	}
	if _, err := s.store.Scrub(r.Context()); err != nil && !errors.Is(err, r.Context().Err()) {
		s.log.WarnContext(r.Context(), "traces of a deleted session may be in the files", "session", session.ID, "error", err)
	}
	return redirect(w, r, v.Path("sessions"), "session-deleted")
}
