package control

import (
	"encoding/json"
	"net/http"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/transfer"
)

func (s *server) status(w http.ResponseWriter, _ *http.Request, _ place) error {
	c := s.host.Counts()
	return writeJSON(w, http.StatusOK, struct {
		Triggers map[memory.Trigger]host.TriggerCounts `json:"triggers"`
		Memory   memoryCounts                          `json:"memory"`
	}{c.Triggers, memoryCounts(c.Memory)})
}

// memoryCounts is dream.Counts as JSON has it.
type memoryCounts struct {
	Extractions       int `json:"extractions"`
	ExtractionsFailed int `json:"extractions_failed"`
	MiniDreams        int `json:"mini_dreams"`
	MiniDreamsFailed  int `json:"mini_dreams_failed"`
	Dreams            int `json:"dreams"`
	DreamsFailed      int `json:"dreams_failed"`
	Busy              int `json:"busy"`
	Nothing           int `json:"nothing"`
}

func (s *server) agents(w http.ResponseWriter, _ *http.Request, _ place) error {
	return writeJSON(w, http.StatusOK, struct {
		Agents []host.AgentInfo `json:"agents"`
	}{append([]host.AgentInfo{}, s.host.Agents()...)})
}

func (s *server) agent(w http.ResponseWriter, _ *http.Request, at place) error {
	return writeJSON(w, http.StatusOK, at.agent)
}

// choice is a string, null, or absent, which are three things in a PATCH.
type choice struct {
	made  bool
	value *string
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *choice) UnmarshalJSON(data []byte) error {
	c.made = true
	return json.Unmarshal(data, &c.value)
}

func (s *server) configureAgent(w http.ResponseWriter, r *http.Request, at place) error {
	var patch struct {
		MemorySystem choice `json:"memory_system"`
	}
	if err := readBody(w, r, &patch); err != nil {
		return err
	}
	system := ""
	if chosen := patch.MemorySystem; !chosen.made || chosen.value != nil && *chosen.value == "" {
		return refuse(http.StatusBadRequest, "memory_system is "+host.MemorySummarization+", "+host.MemoryStructured+", or null for what the configuration says")
	} else if chosen.value != nil {
		system = *chosen.value
	}
	agent, err := s.host.SetMemorySystem(r.Context(), at.agent.Name, system)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, agent)
}

func (s *server) users(w http.ResponseWriter, r *http.Request, _ place) error {
	users, err := s.store.Users(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, struct {
		Users []memory.User `json:"users"`
	}{append([]memory.User{}, users...)})
}

func (s *server) wipeUser(w http.ResponseWriter, r *http.Request, at place) error {
	report, err := s.host.WipeUser(r.Context(), at.user.ID)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, report)
}

// exportUser streams: a user may have more than fits into memory. The status is
// sent with the first byte, so that an error after it breaks the connection off;
// a document without its last line is not whole either.
func (s *server) exportUser(w http.ResponseWriter, r *http.Request, at place) error {
	w.Header().Set("Content-Disposition", attachment("user", at.user, s.now(), "jsonl"))
	w.Header().Set("Content-Type", "application/jsonl")
	out := stream(w)
	err := transfer.Export(r.Context(), s.store, at.user.ID, &out)
	if err == nil {
		return nil
	}
	if out.begun {
		s.log.WarnContext(r.Context(), "an export was broken off", "error", err)
		panic(http.ErrAbortHandler)
	}
	w.Header().Del("Content-Disposition")
	return err
}
