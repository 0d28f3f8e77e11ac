package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/host/sandbox"
	"github.com/gloveboxhq/glovebox/plugins"
)

// What a server does not send whole, or is not what was asked for, is not installed,
// and nothing of it is there.
func TestInstallFromServer(t *testing.T) {
	module, err := plugins.Module("calendar")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/whole.wasm":
			_, _ = w.Write(module)
		case "/half.wasm":
			w.Header().Set("Content-Length", strconv.Itoa(len(module)))
			_, _ = w.Write(module[:len(module)/2])
		case "/page.wasm":
			_, _ = w.Write([]byte("<!doctype html>"))
		case "/cut.wasm": // as a server that does not say how long it is
			_, _ = w.Write(module[:len(module)/2])
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	home := filepath.Join(t.TempDir(), "home")
	glovebox := commandOn(home)
	install := func(path string, more ...string) (int, string, string) {
		return glovebox(append([]string{"hand", "install", server.URL + path, "--plain-http", "--name", "agenda", "--unsigned", "--yes-permissions", "files", "--files", "calendars=" + filepath.Dir(home)}, more...)...)
	}
	for path, want := range map[string]string{
		"/half.wasm": "", "/cut.wasm": "", "/page.wasm": "", "/none.wasm": "404",
		"/whole.wasm#" + sandbox.Digest([]byte("another")): "sha256:",
	} {
		if code, out, errs := install(path); code != exitFailed || out != "" || !strings.Contains(errs, want) || !strings.HasPrefix(errs, "glovebox: error: ") {
			t.Errorf("%s: %d, %s%s", path, code, out, errs)
		}
	}
	for _, name := range []string{"glovebox.lock", filepath.Join("hands", "*.wasm*")} {
		if left, err := filepath.Glob(filepath.Join(home, name)); err != nil || len(left) > 0 {
			t.Errorf("left are %v, %v", left, err)
		}
	}
	if code, _, errs := install("/whole.wasm"); code != 0 {
		t.Fatalf("%d, %s", code, errs)
	}
	written, err := os.ReadFile(filepath.Join(home, "glovebox.lock"))
	if want := fmt.Sprintf("source = '%s/whole.wasm#%s'", server.URL, sandbox.Digest(module)); err != nil || !strings.Contains(string(written), want) {
		t.Errorf("it has not %s: %s, %v", want, written, err)
	}
}

// What one process agrees to or takes back holds for the next question to a server
// that runs in another.
func TestServerKnowsOfInstalledHands(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot be sent an interrupt here")
	}
	dir := t.TempDir()
	program, home := filepath.Join(dir, "glovebox"), filepath.Join(dir, "home")
	if output, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, output)
	}
	serve := exec.CommandContext(t.Context(), program, "serve", "--listen", "127.0.0.1:0", "--json", "--data", home)
	out, err := serve.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := serve.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
		if err := serve.Wait(); err != nil {
			t.Errorf("it ended with %v", err)
		}
	}()
	var at struct{ URL string }
	if err := json.NewDecoder(out).Decode(&at); err != nil {
		t.Fatal(err)
	}
	ask := func() (status int, kind string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "POST", at.URL+"/api/users/default/hands/agenda/query",
			strings.NewReader(`{"question": "What is on?", "from": "2026-03-23T00:00:00Z", "to": "2026-03-24T00:00:00Z"}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		var said struct{ Kind string }
		if err := json.NewDecoder(response.Body).Decode(&said); err != nil {
			t.Error(err)
		}
		return response.StatusCode, said.Kind
	}
	module, err := plugins.Module("calendar")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "agenda.wasm")
	write(t, file, string(module))
	calendars, err := filepath.Abs(filepath.Join("..", "..", "..", "testdata", "demo", "calendars"))
	if err != nil {
		t.Fatal(err)
	}
	install := []string{"hand", "install", file, "--name", "agenda", "--unsigned", "--yes-permissions", "files", "--files", "calendars=" + calendars}
	for _, step := range []struct {
		command []string
		status  int
		kind    string
	}{
		{nil, http.StatusNotFound, ""},
		{install, http.StatusOK, ""},
		{[]string{"hand", "revoke", "agenda", "files"}, http.StatusForbidden, "disabled"},
		{[]string{"hand", "grant", "agenda", "--unsigned", "--yes-permissions", "files"}, http.StatusOK, ""},
		{[]string{"hand", "remove", "agenda", "--yes"}, http.StatusNotFound, ""},
	} {
		if step.command != nil {
			if output, err := exec.CommandContext(t.Context(), program, append(step.command, "--data", home)...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %v\n%s", step.command, err, output)
			}
		}
		if status, kind := ask(); status != step.status || kind != step.kind {
			t.Errorf("after %v: %d, %s", step.command, status, kind)
		}
	}
}

// The file of a secret is the one that was named, wherever the hand is asked.
func TestSecretFileIsAbsolute(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	flags := consentFlags{secrets: []string{"a=file:token.txt https://a.example", "b=env:TOKEN https://b.example"}}
	grant, err := flags.grant()
	if err != nil || grant.Secrets["a"].From != "file:"+filepath.Join(here, "token.txt") || grant.Secrets["b"].From != "env:TOKEN" {
		t.Errorf("%+v, %v", grant.Secrets, err)
	}
}
