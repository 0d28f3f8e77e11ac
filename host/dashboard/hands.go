package dashboard

import (
	"net/http"

	"github.com/gloveboxhq/glovebox/host/control"
)

var handRoutes = []route{
	{"GET /hands", control.ForAdmin, (*site).hands},
}

func (s *site) hands(w http.ResponseWriter, r *http.Request, v viewer) error {
	return s.show(w, r, v, page{Name: "hands", Title: "Hands", Room: roomHands, Data: s.host.Hands()})
}
