package gateway

import (
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/memory"
)

// models are the names that a request may give as its model: those of the agents,
// and the configuration's of the model.
func (s *server) models() []string {
	var names []string
	known := s.model == ""
	for _, a := range s.host.Agents() {
		names = append(names, a.Name)
		known = known || a.Name == s.model
	}
	if !known {
		names = append(names, s.model)
	}
	return names
}

// agentFor returns the name of the agent that a model stands for.
func (s *server) agentFor(model string) (string, error) {
	agents := s.host.Agents()
	for _, a := range agents {
		if a.Name == model {
			return a.Name, nil
		}
	}
	if model == s.model && model != "" && len(agents) > 0 {
		return agents[0].Name, nil
	}
	return "", s.noModel(model)
}

func (s *server) noModel(model string) error {
	f := refuse(http.StatusNotFound, "model_not_found", "there is no model "+shortQuote(model)+"; there are: "+strings.Join(s.models(), ", "))
	f.param = "model"
	return f
}

// shortQuote shows something that a caller sent.
func shortQuote(s string) string {
	const most = 64
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strconv.Quote(s)
}

// conversation is what a request begins with, whichever API it is of: whose it is,
// who is spoken to, and where it is kept. Name is what the body calls the session,
// at param; the header goes before it.
func (s *server) conversation(r *http.Request, model, name, param string) (*host.Conversation, error) {
	if model == "" {
		return nil, badf("model", "name a model; there are: %s", strings.Join(s.models(), ", "))
	}
	agent, err := s.agentFor(model)
	if err != nil {
		return nil, err
	}
	if values := r.Header.Values(SessionHeader); len(values) == 1 && values[0] != "" {
		name, param = values[0], SessionHeader
	} else if len(values) > 1 {
		return nil, badf(SessionHeader, "the header is there more than once")
	}
	if len(name) > memory.MaxSessionName || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return nil, badf(param, "the name of a session is at most %d bytes of UTF-8 without control characters", memory.MaxSessionName)
	}
	return &host.Conversation{User: s.user(r.Context()), Agent: agent, Session: name}, nil
}

// modelEntry is a model in the words of OpenAI and Anthropic at once, neither of
// whose clients minds the other's.
type modelEntry struct {
	ID          string `json:"id"`
	Object      string `json:"object"`
	Created     int64  `json:"created"`
	OwnedBy     string `json:"owned_by"`
	Type        string `json:"type"`
	DisplayName string `json:"display_name"`
	CreatedAt   string `json:"created_at"`
}

// modelEntryOf describes a model. It is as old as the epoch, which is how Anthropic
// says that it does not know.
func modelEntryOf(name string) modelEntry {
	return modelEntry{ID: name, Object: "model", OwnedBy: "glovebox", Type: "model", DisplayName: name, CreatedAt: time.Unix(0, 0).UTC().Format(time.RFC3339)}
}

// listModels answers GET /v1/models, all on one page.
func (s *server) listModels(w http.ResponseWriter, r *http.Request) error {
	list := struct {
		Object  string       `json:"object"`
		Data    []modelEntry `json:"data"`
		FirstID *string      `json:"first_id"`
		LastID  *string      `json:"last_id"`
		HasMore bool         `json:"has_more"`
	}{Object: "list", Data: []modelEntry{}}
	for _, name := range s.models() {
		list.Data = append(list.Data, modelEntryOf(name))
	}
	if n := len(list.Data); n > 0 {
		list.FirstID, list.LastID = &list.Data[0].ID, &list.Data[n-1].ID
	}
	writeJSON(w, http.StatusOK, list)
	return nil
}

// retrieveModel answers GET /v1/models/{model}.
func (s *server) retrieveModel(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("model")
	if _, err := s.agentFor(name); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, modelEntryOf(name))
	return nil
}
