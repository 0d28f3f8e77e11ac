package dashboard

import (
	"net/http"

	"github.com/gloveboxhq/glovebox/host/control"
)

var userRoutes = []route{
	{"GET /users", control.ForAdmin, (*site).usersPage},
	{"GET /users/{user}", control.ForUser, (*site).userPage},
}

func (s *site) usersPage(w http.ResponseWriter, r *http.Request, v viewer) error {
	return s.show(w, r, v, page{Name: "users", Title: "Users", Room: roomUsers, Data: v.users})
}

func (s *site) userPage(w http.ResponseWriter, r *http.Request, v viewer) error {
	room := roomUsers
	if !v.Admin {
		room = roomMemory
	}
	return s.show(w, r, v, page{Name: "user", Title: "User " + v.User.Name, Room: room})
}
