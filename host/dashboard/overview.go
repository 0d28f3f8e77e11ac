package dashboard

import (
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/control"
	"github.com/gloveboxhq/glovebox/memory"
)

var overviewRoutes = []route{
	{"GET /{$}", control.ForUser, (*site).overview},
}

// overview is what runs, for an operator, and what is the user's own.
type overview struct {
	Sessions []listedSession
	// What follows is an operator's alone.
	Agents   []host.AgentInfo
	Users    int
	Hands    []overviewHand
	Triggers []overviewTrigger
	Learning []counted
	Runs     []handRun
}

// counted is how often something happened.
type counted struct {
	Label string
	Value int
}

type overviewHand struct {
	Name        string
	Runs, Fails int
	LastRun     time.Time
}

type overviewTrigger struct {
	Name memory.Trigger
	host.TriggerCounts
}

// overviewRows is how many sessions and runs there are at most.
const overviewRows = 6

func (s *site) overview(w http.ResponseWriter, r *http.Request, v viewer) error {
	var o overview
	sessions, err := s.store.Sessions(r.Context(), v.User.ID, memory.SessionQuery{Limit: overviewRows})
	if err != nil {
		return err
	}
	if o.Sessions, err = s.listed(r.Context(), v, sessions); err != nil {
		return err
	}
	if v.Admin {
		if err := s.operations(r, v, &o); err != nil {
			return err
		}
	}
	return s.show(w, r, v, page{Name: "overview", Title: "Overview", Room: roomOverview, Data: o})
}

// operations adds what an operator sees.
func (s *site) operations(r *http.Request, v viewer, o *overview) error {
	o.Agents, o.Users = s.host.Agents(), len(v.users)
	health, err := s.host.Ledger().Health(r.Context())
	if err != nil {
		return err
	}
	for _, h := range s.host.Hands() {
		o.Hands = append(o.Hands, overviewHand{h.Name, health[h.Name].Runs, health[h.Name].Failed, health[h.Name].LastRun})
	}
	counts := s.host.Counts()
	for _, trigger := range slices.Sorted(maps.Keys(counts.Triggers)) {
		o.Triggers = append(o.Triggers, overviewTrigger{trigger, counts.Triggers[trigger]})
	}
	m := counts.Memory
	for _, c := range []counted{
		{Label: "Extractions", Value: m.Extractions}, {Label: "Extractions that failed", Value: m.ExtractionsFailed}, {Label: "Mini-dreams", Value: m.MiniDreams},
		{Label: "Mini-dreams that failed", Value: m.MiniDreamsFailed}, {Label: "Dreams", Value: m.Dreams}, {Label: "Dreams that failed", Value: m.DreamsFailed},
	} {
		if c.Value > 0 {
			o.Learning = append(o.Learning, c)
		}
	}
	runs, err := s.host.Ledger().Runs(r.Context(), "", overviewRows)
	if err != nil {
		return err
	}
	for _, run := range runs {
		o.Runs = append(o.Runs, handRunOf(run))
	}
	return nil
}
