package dashboard

import (
	"net/http"

	"github.com/gloveboxhq/glovebox/host/control"
)

var agentRoutes = []route{
	{"GET /agents", control.ForAdmin, (*site).agents},
}

func (s *site) agents(w http.ResponseWriter, r *http.Request, v viewer) error {
	return s.show(w, r, v, page{Name: "agents", Title: "Agents", Room: roomAgents, Data: s.host.Agents()})
}
