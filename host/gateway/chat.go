package gateway

import "net/http"

// chatCompletions answers POST /v1/chat/completions.
func (s *server) chatCompletions(w http.ResponseWriter, r *http.Request) error {
	return refuse(http.StatusNotImplemented, "", "not yet")
}
