package control

import (
	_ "embed"
	"net/http"
)

// openapi is the interface in OpenAPI 3.1, written by hand; a test holds routes and
// answers against it.
//
//go:embed openapi.json
var openapi []byte

func (s *server) document(w http.ResponseWriter, _ *http.Request, _ place) error {
	return writeBody(w, http.StatusOK, jsonType, openapi)
}
