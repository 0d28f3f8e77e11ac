package dashboard

import (
	"net/http"

	"github.com/gloveboxhq/glovebox/host/control"
)

var overviewRoutes = []route{
	{"GET /{$}", control.ForUser, (*site).overview},
}

func (s *site) overview(w http.ResponseWriter, r *http.Request, v viewer) error {
	return s.show(w, r, v, page{Name: "overview", Title: "Overview", Room: roomOverview})
}
