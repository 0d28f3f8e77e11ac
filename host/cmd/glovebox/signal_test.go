//go:build unix

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// running is a server in a process of its own.
type running struct {
	t       *testing.T
	process *exec.Cmd
	url     string
	// log has the lines of standard error as they come, and is closed at its end.
	log   chan string
	ended chan error
}

// start runs glovebox serve with a configuration.
func start(t *testing.T, program, home string) *running {
	t.Helper()
	s := &running{t: t, log: make(chan string, 1000), ended: make(chan error, 1)}
	s.process = exec.Command(program, "serve", "--listen", "127.0.0.1:0", "--json", "--data", home)
	s.process.Env = append(os.Environ(), "OPENAI_API_KEY=sk-none")
	out, err := s.process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	errs, err := s.process.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.process.Start(); err != nil {
		t.Fatal(err)
	}
	var read sync.WaitGroup
	read.Go(func() {
		defer close(s.log)
		for lines := bufio.NewScanner(errs); lines.Scan(); {
			s.log <- lines.Text()
		}
	})
	var at struct{ URL string }
	if err := json.NewDecoder(out).Decode(&at); err != nil {
		_ = s.process.Process.Kill()
		t.Fatal(err)
	}
	s.url = at.URL
	go func() {
		read.Wait()
		s.ended <- s.process.Wait()
	}()
	t.Cleanup(func() { _ = s.process.Process.Kill() })
	return s
}

// logs returns the next line that has a text.
func (s *running) logs(text string) string {
	s.t.Helper()
	late := time.After(30 * time.Second)
	for {
		select {
		case line, open := <-s.log:
			if strings.Contains(line, text) {
				return line
			}
			if !open {
				s.t.Fatalf("it ended without a line with %q", text)
			}
		case <-late:
			s.t.Fatalf("no line with %q comes", text)
		}
	}
}

func (s *running) signal(signal os.Signal) {
	s.t.Helper()
	if err := s.process.Process.Signal(signal); err != nil {
		s.t.Fatal(err)
	}
}

// end waits for the process.
func (s *running) end() error {
	s.t.Helper()
	select {
	case err := <-s.ended:
		return err
	case <-time.After(30 * time.Second):
		s.t.Fatal("it does not end")
		return nil
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// SIGHUP takes over the hands of a configuration, and leaves them as they are when
// it is wrong, with its line in the log; a backup is made meanwhile; a signal waits
// for an answer, the second one does not.
func TestSignals(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the program")
	}
	program := filepath.Join(t.TempDir(), "glovebox")
	if output, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, output)
	}
	asked := make(chan struct{}, 8)
	let := make(chan struct{})
	var holds atomic.Bool
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		asked <- struct{}{}
		answers := let
		if holds.Load() {
			answers = nil
		}
		select {
		case <-answers:
		case <-r.Context().Done():
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"id":"1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"At last."},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`))
	}))
	defer model.Close()
	home := filepath.Join(t.TempDir(), "home")
	file := filepath.Join(home, "glovebox.toml")
	base := "[log]\nformat = \"json\"\n[model]\nprovider = \"openai\"\nname = \"m\"\nbase_url = \"" + model.URL + "/v1\"\n"
	write(t, file, base)
	s := start(t, program, home)

	calendar := "[hands.calendar.grant.files]\ncalendars = \".\"\n"
	write(t, file, base+calendar)
	s.signal(syscall.SIGHUP)
	if line := s.logs("the configuration is"); !strings.Contains(line, `"added":["calendar"]`) {
		t.Errorf("with a hand more: %s", line)
	}
	write(t, file, base+calendar+"[hands.calendar]\nmodul = \"x\"\n")
	s.signal(syscall.SIGHUP)
	if line := s.logs("the configuration is"); !strings.Contains(line, "not taken over") || !strings.Contains(line, "glovebox.toml:10:1") {
		t.Errorf("with an unknown key: %s", line)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	s.signal(syscall.SIGHUP)
	if line := s.logs("the configuration is"); !strings.Contains(line, "not taken over") || !strings.Contains(line, "glovebox.toml is not there any more") {
		t.Errorf("with the file gone: %s", line)
	}
	metrics, err := http.Get(s.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	measured, err := io.ReadAll(metrics.Body)
	metrics.Body.Close()
	if err != nil || !bytes.Contains(measured, []byte("glovebox_reloads_total{outcome=\"failed\"} 2\n")) {
		t.Errorf("two reloads failed: %v: %s", err, measured)
	}
	write(t, file, base+"[[agents]]\nname = \"jeeves\"\n")
	s.signal(syscall.SIGHUP)
	if line := s.logs("the configuration is"); !strings.Contains(line, `"removed":["calendar"]`) {
		t.Errorf("with a hand less: %s", line)
	}
	if line := s.logs("needs a restart"); !strings.Contains(line, `["agents"]`) {
		t.Errorf("with another agent: %s", line)
	}

	chat := func() (*http.Response, error) {
		return http.Post(s.url+"/api/users/default/chat", "application/json", strings.NewReader(`{"text":"Hello?"}`))
	}
	answered := make(chan string, 1)
	go func() {
		response, err := chat()
		if err != nil {
			answered <- err.Error()
			return
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		answered <- string(body)
	}()
	<-asked
	copied := filepath.Join(t.TempDir(), "copy", "glovebox.db")
	if err := os.MkdirAll(filepath.Dir(copied), 0o700); err != nil {
		t.Fatal(err)
	}
	if output, err := exec.CommandContext(t.Context(), program, "backup", copied, "--data", home).CombinedOutput(); err != nil {
		t.Errorf("a backup beside a turn: %v: %s", err, output)
	}
	if output, err := exec.CommandContext(t.Context(), program, "session", "show", "last", "--data", filepath.Dir(copied)).CombinedOutput(); err != nil || !bytes.Contains(output, []byte("Hello?")) {
		t.Errorf("the copy has %s: %v", output, err)
	}
	s.signal(syscall.SIGTERM)
	s.logs("stopping")
	close(let)
	if got := <-answered; !strings.Contains(got, "At last.") {
		t.Errorf("what was being answered when it was told to stop: %s", got)
	}
	if err := s.end(); err != nil {
		t.Errorf("it ended with %v", err)
	}

	// Now nobody lets the model answer.
	holds.Store(true)
	s = start(t, program, home)
	broken := make(chan error, 1)
	go func() {
		response, err := chat()
		if err == nil {
			response.Body.Close()
		}
		broken <- err
	}()
	<-asked
	s.signal(syscall.SIGTERM)
	s.logs("stopping")
	s.signal(syscall.SIGTERM)
	var killed *exec.ExitError
	if err := s.end(); !errors.As(err, &killed) || killed.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("after the second signal: %v", err)
	}
	if err := <-broken; err == nil {
		t.Error("the request was answered")
	}
	// What was acknowledged is there.
	if output, err := exec.CommandContext(t.Context(), program, "session", "show", "last", "--data", home).CombinedOutput(); err != nil || !bytes.Contains(output, []byte("Hello?")) {
		t.Errorf("the session holds %s: %v", output, err)
	}
}
