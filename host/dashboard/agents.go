package dashboard

import (
	"net/http"
	"net/url"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/control"
)

var agentRoutes = []route{
	{"GET /agents", control.ForAdmin, (*site).agents},
	{"GET /agents/{agent}", control.ForAdmin, (*site).agentPage},
	{"POST /agents/{agent}/config", control.ForAdmin, (*site).configureAgent},
}

// shownAgent is an agent as pages show it.
type shownAgent struct {
	host.AgentInfo
	// Configured is the memory system that the configuration chooses.
	Configured string
	Model      host.ModelConfig
}

// Path is where the agent's page is.
func (a shownAgent) Path() string { return "/agents/" + url.PathEscape(a.Name) }

// IsStructured reports whether it remembers users in topics.
func (a shownAgent) IsStructured() bool { return a.MemorySystem == host.MemoryStructured }

// IsChosen reports whether somebody chose otherwise than the configuration.
func (a shownAgent) IsChosen() bool { return a.MemorySystem != a.Configured }

func (s *site) shownAgents() []shownAgent {
	configured := map[string]string{}
	for _, a := range s.config.Agents {
		configured[a.Name] = a.Memory.System
	}
	var all []shownAgent
	for _, a := range s.host.Agents() {
		shown := shownAgent{a, configured[a.Name], s.config.Model}
		if shown.Configured == "" {
			shown.Configured = host.MemorySummarization
		}
		all = append(all, shown)
	}
	return all
}

func (s *site) agents(w http.ResponseWriter, r *http.Request, v viewer) error {
	return s.show(w, r, v, page{Name: "agents", Title: "Agents", Room: roomAgents, Data: s.shownAgents()})
}

func (s *site) agentPage(w http.ResponseWriter, r *http.Request, v viewer) error {
	for _, a := range s.shownAgents() {
		if a.Name == r.PathValue("agent") {
			return s.show(w, r, v, page{Name: "agent", Title: "Agent " + a.Name, Room: roomAgents, Data: a})
		}
	}
	return refused(http.StatusNotFound, "There is no such agent.")
}

func (s *site) configureAgent(w http.ResponseWriter, r *http.Request, v viewer) error {
	if err := readForm(w, r); err != nil {
		return err
	}
	// An empty choice leaves it to the configuration; a form without one is broken.
	if !r.PostForm.Has("memory_system") {
		return refused(http.StatusBadRequest, "The form has no memory system.")
	}
	agent, err := s.host.SetMemorySystem(r.Context(), r.PathValue("agent"), r.PostForm.Get("memory_system"))
	if err != nil {
		return err
	}
	return redirect(w, r, "/agents/"+url.PathEscape(agent.Name), "saved")
}
