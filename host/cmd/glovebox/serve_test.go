package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Serve says where it is, lets in whoever is there until there is a token, knows
// of each token at once, and ends cleanly on a signal.
func TestServe(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot be sent an interrupt here")
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "glovebox")
	if output, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, output)
	}
	home := filepath.Join(dir, "home")
	glovebox := commandOn(home)
	serve := exec.CommandContext(t.Context(), program, "serve", "--listen", "127.0.0.1:0", "--json", "--data", home)
	var errs bytes.Buffer
	serve.Stderr = &errs
	out, err := serve.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	var at struct{ Address, URL string }
	if err := json.NewDecoder(out).Decode(&at); err != nil || at.URL != "http://"+at.Address {
		t.Fatalf("said %+v: %v: %s", at, err, errs.String())
	}
	get := func(path, token string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "GET", at.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			t.Error(err)
		}
		return response.StatusCode
	}
	if got := get("/healthz", ""); got != http.StatusOK {
		t.Errorf("health: %d", got)
	}
	if got := get("/api/users", ""); got != http.StatusOK {
		t.Errorf("without any token: %d", got)
	}
	code, made, failure := glovebox("token", "create", "--scope", "admin", "--json")
	var token struct{ Secret, ID string }
	if err := json.Unmarshal([]byte(made), &token); err != nil || code != 0 {
		t.Fatalf("token create: %d: %s: %v", code, failure, err)
	}
	if a, b := get("/api/users", ""), get("/api/users", token.Secret); a != http.StatusUnauthorized || b != http.StatusOK {
		t.Errorf("with a token made: %d without, %d with it", a, b)
	}
	if code, said, failure := glovebox("token", "revoke", token.ID, "--json"); code != 0 || !strings.Contains(said, token.ID) {
		t.Errorf("token revoke: %s %s", said, failure)
	}
	if a, b := get("/api/users", ""), get("/api/users", token.Secret); a != http.StatusUnauthorized || b != http.StatusUnauthorized {
		t.Errorf("with it revoked: %d without, %d with it", a, b)
	}
	// Another one on the same data is refused.
	if code, _, failure := glovebox("serve", "--listen", "127.0.0.1:0"); code == 0 || !strings.Contains(failure, "in use by another process") {
		t.Errorf("a second server: %d, %s", code, failure)
	}
	if err := serve.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- serve.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("serve ended with %v: %s", err, errs.String())
		}
	case <-time.After(20 * time.Second):
		t.Error("serve did not end")
		_ = serve.Process.Kill()
		<-ended
	}
	// One line is for a person; the others are the log's.
	var said, requests []string
	for line := range strings.Lines(errs.String()) {
		switch {
		case strings.Contains(line, "msg=request") && strings.Contains(line, "request_id="):
			requests = append(requests, line)
		case !strings.HasPrefix(line, "time="):
			said = append(said, line)
		}
	}
	if len(said) != 1 || !strings.Contains(said[0], "everybody on this machine may do everything") {
		t.Errorf("said on standard error: %q", said)
	}
	if len(requests) != 5 || strings.Contains(errs.String(), token.Secret) {
		t.Errorf("%d requests are logged: %s", len(requests), errs.String())
	}
}
