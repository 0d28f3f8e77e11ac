package control_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/cryptotest"
	"time"

	"github.com/gloveboxhq/glovebox/host/control"
	"github.com/gloveboxhq/glovebox/memory"
)

func openTokens(t *testing.T, path string) *control.Tokens {
	t.Helper()
	tokens, err := control.OpenTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

func TestTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data", "tokens.json")
	tokens := openTokens(t, path)
	if none, err := tokens.None(); err != nil || !none {
		t.Errorf("at first: none %v, %v", none, err)
	}
	if list, err := tokens.List(); err != nil || len(list) != 0 {
		t.Errorf("at first: %v, %v", list, err)
	}
	anna, bert := memory.NewID[memory.UserID](), memory.NewID[memory.UserID]()
	adminSecret, admin, err := tokens.Create(anna, control.ScopeAdmin, monday)
	if err != nil {
		t.Fatal(err)
	}
	secret, token, err := tokens.Create(bert, control.UserScope(bert), monday.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []*control.Tokens{tokens, openTokens(t, path)} {
		if got, err := other.Bearer(secret); err != nil || got != token || got.User != bert || got.Scope != control.UserScope(bert) {
			t.Errorf("bearer %+v, %v, want %+v", got, err, token)
		}
		if list, err := other.List(); err != nil || len(list) != 2 || list[0] != admin || list[1] != token {
			t.Errorf("list %+v, %v", list, err)
		}
		if none, err := other.None(); err != nil || none {
			t.Errorf("none %v, %v", none, err)
		}
	}
	for _, wrong := range []string{"", "x", secret + "x", secret[1:], strings.ToUpper(secret), token.ID, adminSecret[:len(adminSecret)-1] + "!"} {
		if _, err := tokens.Bearer(wrong); !errors.Is(err, memory.ErrNotFound) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	// A secret is recognised, holds 256 bits, and is not in the file.
	if rest, ok := strings.CutPrefix(secret, control.SecretPrefix); !ok || len(rest) != 52 || strings.Trim(rest, "abcdefghijklmnopqrstuvwxyz234567") != "" || secret == adminSecret {
		t.Errorf("secret %q", secret)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(data), strings.TrimPrefix(secret, control.SecretPrefix)) {
		t.Error("the file has a secret")
	}
	if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := tokens.Revoke(token.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := tokens.Bearer(secret); !errors.Is(err, memory.ErrNotFound) {
		t.Errorf("revoked: %v", err)
	}
	for _, id := range []string{token.ID, "", secret, "x"} {
		if err := tokens.Revoke(id); !errors.Is(err, memory.ErrNotFound) {
			t.Errorf("revoke %q: %v", id, err)
		}
	}
	// The last one gone, there were tokens all the same.
	if err := tokens.Revoke(admin.ID); err != nil {
		t.Fatal(err)
	}
	for _, other := range []*control.Tokens{tokens, openTokens(t, path)} {
		if none, err := other.None(); err != nil || none {
			t.Errorf("after the last: none %v, %v", none, err)
		}
	}
	for _, scope := range []control.Scope{"", "user", "user:", "Admin", control.UserScope(bert), "admin "} {
		if _, _, err := tokens.Create(anna, scope, monday); !errors.Is(err, memory.ErrInvalid) {
			t.Errorf("scope %q: %v", scope, err)
		}
	}
	if _, _, err := tokens.Create(memory.UserID{}, control.ScopeAdmin, monday); !errors.Is(err, memory.ErrInvalid) {
		t.Errorf("nobody's: %v", err)
	}
}

// Secrets come from the machine's randomness alone: the same gives the same.
func TestSecretsAreRandom(t *testing.T) {
	user := memory.NewID[memory.UserID]()
	secretOf := func(seed uint64) (secret string) {
		t.Run("", func(t *testing.T) {
			cryptotest.SetGlobalRandom(t, seed)
			var err error
			if secret, _, err = openTokens(t, filepath.Join(t.TempDir(), "tokens.json")).Create(user, control.ScopeAdmin, monday); err != nil {
				t.Fatal(err)
			}
		})
		return secret
	}
	if a, b, c := secretOf(1), secretOf(1), secretOf(2); a != b || a == c {
		t.Errorf("secrets %q, %q, %q", a, b, c)
	}
}

// A file that is damaged is neither believed nor written to.
func TestDamagedTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	tokens := openTokens(t, path)
	user := memory.NewID[memory.UserID]()
	secret, _, err := tokens.Create(user, control.ScopeAdmin, monday)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var whole map[string]any
	if err := json.Unmarshal(data, &whole); err != nil {
		t.Fatal(err)
	}
	token := whole["tokens"].([]any)[0].(map[string]any)
	with := func(key string, value any) string {
		changed := map[string]any{}
		for k, v := range token {
			changed[k] = v
		}
		changed[key] = value
		out, err := json.Marshal(map[string]any{"format": whole["format"], "version": whole["version"], "tokens": []any{changed}})
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	for name, text := range map[string]string{
		"empty": "", "cut": string(data[:len(data)-3]), "no JSON": "tokens", "null": "null", "another format": strings.Replace(string(data), "glovebox-tokens", "x", 1),
		"newer": strings.Replace(string(data), `"version": 1`, `"version": 2`, 1), "unknown field": with("expires", 1), "followed by more": string(data) + "{}",
		"short hash": with("sha256", "00"), "no hash": with("sha256", strings.Repeat("0", 64)), "no id": with("id", ""), "scope of another": with("scope", "user:"+memory.NewID[memory.UserID]().String()),
		"scope of nothing": with("scope", ""), "no user": with("user_id", ""), "too long": string(data) + strings.Repeat(" ", 5<<20),
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		fails := map[string]func() error{
			"bearer": func() error { _, err := tokens.Bearer(secret); return err },
			"list":   func() error { _, err := tokens.List(); return err },
			"none":   func() error { _, err := tokens.None(); return err },
			"revoke": func() error { return tokens.Revoke(token["id"].(string)) },
			"create": func() error { _, _, err := tokens.Create(user, control.ScopeAdmin, monday); return err },
			"open":   func() error { _, err := control.OpenTokens(path); return err },
		}
		for what, fail := range fails {
			if err := fail(); !errors.Is(err, control.ErrDamaged) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: %s: %v", name, what, err)
			}
		}
		if after, err := os.ReadFile(path); err != nil || string(after) != text {
			t.Errorf("%s: the file was written to: %v", name, err)
		}
	}
	// What is no file is not waited for: a directory stands for pipes too.
	if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
	if _, err := tokens.Bearer(secret); !errors.Is(err, control.ErrDamaged) {
		t.Errorf("a directory: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := tokens.Bearer(secret); err != nil {
		t.Errorf("repaired: %v", err)
	}
}

// Who saw only what cannot be read has seen that tokens are asked for: that it goes
// away lets nobody in.
func TestUnreadableTokensLetNobodyIn(t *testing.T) { // U6
	path := filepath.Join(t.TempDir(), "tokens.json")
	tokens := openTokens(t, path)
	if none, err := tokens.None(); err != nil || !none {
		t.Fatalf("before there is a file: %v, %v", none, err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := tokens.None(); !errors.Is(err, control.ErrDamaged) {
		t.Errorf("a directory: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if none, err := tokens.None(); err != nil || none {
		t.Errorf("when it has gone: %v, %v", none, err)
	}
}

// Processes that create and revoke at once lose nothing of each other's, and who
// reads meanwhile sees a whole file.
func TestTokensAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	user := memory.NewID[memory.UserID]()
	kept, _, err := openTokens(t, path).Create(user, control.ScopeAdmin, monday)
	if err != nil {
		t.Fatal(err)
	}
	const writers, each = 4, 5
	var writing, reading sync.WaitGroup
	done := make(chan struct{})
	reading.Go(func() {
		tokens, err := control.OpenTokens(path)
		if err != nil {
			t.Error(err)
			return
		}
		for {
			if _, err := tokens.Bearer(kept); err != nil {
				t.Errorf("while others write: %v", err)
				return
			}
			select {
			case <-done:
				return
			default:
			}
		}
	})
	for range writers {
		writing.Go(func() {
			tokens, err := control.OpenTokens(path)
			if err != nil {
				t.Error(err)
				return
			}
			for n := range each {
				_, token, err := tokens.Create(user, control.UserScope(user), monday)
				if err == nil && n%2 == 0 {
					err = tokens.Revoke(token.ID)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writing.Wait()
	close(done)
	reading.Wait()
	if list, err := openTokens(t, path).List(); err != nil || len(list) != 1+writers*(each/2) {
		t.Errorf("%d tokens, %v, want %d", len(list), err, 1+writers*(each/2))
	}
}
