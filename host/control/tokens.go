package control

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"github.com/google/uuid"

	"github.com/gloveboxhq/glovebox/host/datafile"
	"github.com/gloveboxhq/glovebox/memory"
)

// Scope is what a token may do.
type Scope string

// ScopeAdmin may do everything. Others are made by UserScope.
const ScopeAdmin Scope = "admin"

// UserScope is the scope of a user's own token: conversations, sessions and memory
// of that user, and nothing of anybody else.
func UserScope(user memory.UserID) Scope { return Scope("user:" + user.String()) }

// Token is what is known of a token; the secret itself is known to its bearer
// alone.
type Token struct {
	// ID names it, to list and to revoke it.
	ID        string        `json:"id"`
	User      memory.UserID `json:"user_id"`
	Scope     Scope         `json:"scope"`
	CreatedAt time.Time     `json:"created_at"`
}

// ErrDamaged says that the file of tokens cannot be understood. Nobody is let in
// by it, and nothing is written to it: whoever wrote it last knows what it is
// meant to say.
var ErrDamaged = errors.New("the file of tokens is damaged")

// Tokens keeps the hashes of tokens in a file beside the databases. Several
// processes may use it: what one creates or revokes holds for the others from their
// next request on. It is safe for concurrent use.
//
// The file is one JSON object for its owner alone, replaced as a whole:
//
//	{"format": "glovebox-tokens", "version": 1, "tokens": [
//	  {"id": "…", "user_id": "…", "scope": "user:…", "created_at": "…", "sha256": "…"}]}
type Tokens struct {
	path string

	mu sync.Mutex
	// guarded by mu: the file as it was read last, and what it says.
	read   []byte
	tokens []storedToken
	// existed says that the file was seen, and so that tokens are asked for.
	existed bool
}

// storedToken is a token in the file. A secret is 256 random bits, so that its
// plain hash cannot be guessed back.
type storedToken struct {
	Token
	SHA256 hash `json:"sha256"`
}

// hash is written in hexadecimal digits.
type hash [sha256.Size]byte

func (h hash) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(h[:])), nil }

func (h *hash) UnmarshalText(text []byte) error {
	decoded, err := hex.DecodeString(string(text))
	if err != nil || len(decoded) != len(h) {
		return fmt.Errorf("a hash is %d hexadecimal digits", 2*len(h))
	}
	copy(h[:], decoded)
	return nil
}

// tokensFile is the whole file.
type tokensFile struct {
	Format  string        `json:"format"`
	Version int           `json:"version"`
	Tokens  []storedToken `json:"tokens"`
}

const (
	tokensFormat  = "glovebox-tokens"
	tokensVersion = 1
	// maxTokensFile bounds what is read: some 15,000 tokens.
	maxTokensFile = 4 << 20
	// lockTimeout bounds how long a change waits for that of another process.
	lockTimeout = 10 * time.Second
)

// OpenTokens opens the file at path, which need not exist. The error wraps
// ErrDamaged.
func OpenTokens(path string) (*Tokens, error) {
	t := &Tokens{path: path}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.load(); err != nil {
		return nil, err
	}
	return t, nil
}

// None reports whether no token was ever created: there is no file, nor was there
// one before while this process had it open. That the last token is revoked does
// not let everybody in. The error wraps ErrDamaged.
func (t *Tokens) None() (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.load(); err != nil {
		return false, err
	}
	return !t.existed, nil
}

// Create makes a token. Secret is shown this once. The error wraps
// memory.ErrInvalid for a scope out of form, which is ScopeAdmin or the UserScope of
// that user, and ErrDamaged.
func (t *Tokens) Create(user memory.UserID, scope Scope, at time.Time) (secret string, _ Token, err error) {
	if user.IsZero() {
		return "", Token{}, fmt.Errorf("create token: no user: %w", memory.ErrInvalid)
	}
	if scope != ScopeAdmin && scope != UserScope(user) {
		return "", Token{}, fmt.Errorf("create token: scope %q is neither %s nor %s: %w", scope, ScopeAdmin, UserScope(user), memory.ErrInvalid)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return "", Token{}, fmt.Errorf("create token: %w", err)
	}
	secret = newSecret()
	token := Token{ID: id.String(), User: user, Scope: scope, CreatedAt: at.UTC().Truncate(time.Second)}
	err = t.change(func(all []storedToken) ([]storedToken, error) {
		return append(all, storedToken{token, sha256.Sum256([]byte(secret))}), nil
	})
	if err != nil {
		return "", Token{}, fmt.Errorf("create token: %w", err)
	}
	return secret, token, nil
}

// SecretPrefix begins every secret, so that one that was published by mistake is
// found.
const SecretPrefix = "glovebox_"

// newSecret returns 256 random bits in letters and digits alone, which a double
// click selects and no shell or header takes for something else.
func newSecret() string {
	var random [32]byte
	rand.Read(random[:]) // never fails
	return SecretPrefix + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(random[:]))
}

// List returns all tokens, the oldest first. The error wraps ErrDamaged.
func (t *Tokens) List() ([]Token, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.load(); err != nil {
		return nil, err
	}
	list := make([]Token, len(t.tokens))
	for i, token := range t.tokens {
		list[i] = token.Token
	}
	return list, nil
}

// Revoke removes a token. The error wraps memory.ErrNotFound and ErrDamaged.
func (t *Tokens) Revoke(id string) error {
	err := t.change(func(all []storedToken) ([]storedToken, error) {
		i := slices.IndexFunc(all, func(token storedToken) bool { return token.ID == id })
		if i < 0 {
			return nil, memory.ErrNotFound
		}
		return slices.Delete(all, i, i+1), nil
	})
	if err != nil {
		return fmt.Errorf("revoke token %q: %w", id, err)
	}
	return nil
}

// Bearer returns the token of a secret, in the same time whichever it is. The
// error wraps memory.ErrNotFound and ErrDamaged.
func (t *Tokens) Bearer(secret string) (Token, error) {
	sum := sha256.Sum256([]byte(secret))
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.load(); err != nil {
		return Token{}, err
	}
	found := -1
	for i := range t.tokens {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(t.tokens[i].SHA256[:], sum[:]), i, found)
	}
	if found < 0 {
		return Token{}, fmt.Errorf("token: %w", memory.ErrNotFound)
	}
	return t.tokens[found].Token, nil
}

// withID returns the token of an ID, not of a secret: the caller has shown that
// before. The error wraps memory.ErrNotFound and ErrDamaged.
func (t *Tokens) withID(id string) (Token, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.load(); err != nil {
		return Token{}, err
	}
	for i := range t.tokens {
		if t.tokens[i].ID == id {
			return t.tokens[i].Token, nil
		}
	}
	return Token{}, fmt.Errorf("token %q: %w", id, memory.ErrNotFound)
}

// load reads the file, and parses it if it is not what was read last. Comparing
// the bytes is cheap beside a request, and sees what the times and sizes of files
// may hide.
func (t *Tokens) load() error {
	data, err := readBounded(t.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		t.read, t.tokens = nil, nil
		return nil
	case err != nil:
		// What cannot be read is there.
		t.existed, t.read, t.tokens = true, nil, nil
		return fmt.Errorf("read tokens: %w", err)
	}
	t.existed = true
	if t.read != nil && bytes.Equal(data, t.read) {
		return nil
	}
	tokens, err := parseTokens(data)
	if err != nil {
		t.read, t.tokens = nil, nil
		return fmt.Errorf("%s: %w: %w", t.path, ErrDamaged, err)
	}
	t.read, t.tokens = data, tokens
	return nil
}

func readBounded(path string) ([]byte, error) {
	// Looked at first: to open a pipe waits for who writes it.
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w: it is no file", path, ErrDamaged)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	// With room for what it has, it is read without being copied.
	data := bytes.NewBuffer(make([]byte, 0, min(info.Size(), maxTokensFile)+bytes.MinRead))
	if _, err := data.ReadFrom(io.LimitReader(file, maxTokensFile+1)); err != nil {
		return nil, err
	}
	if data.Len() > maxTokensFile {
		return nil, fmt.Errorf("%s: %w: it is longer than %d bytes", path, ErrDamaged, maxTokensFile)
	}
	return data.Bytes(), nil
}

func parseTokens(data []byte) ([]storedToken, error) {
	var file tokensFile
	if err := decodeStrictly(bytes.NewReader(data), &file); err != nil {
		return nil, err
	}
	if file.Format != tokensFormat || file.Version != tokensVersion {
		return nil, fmt.Errorf("format %q, version %d: this reads %q, version %d", file.Format, file.Version, tokensFormat, tokensVersion)
	}
	ids := map[string]bool{}
	for i, token := range file.Tokens {
		switch {
		case token.ID == "" || ids[token.ID]:
			return nil, fmt.Errorf("token %d has no id of its own", i+1)
		case token.User.IsZero() || token.Scope != ScopeAdmin && token.Scope != UserScope(token.User):
			return nil, fmt.Errorf("token %d has the scope %q", i+1, token.Scope)
		case token.SHA256 == hash{}:
			return nil, fmt.Errorf("token %d has no hash", i+1)
		}
		ids[token.ID] = true
	}
	return file.Tokens, nil
}

// decodeStrictly reads exactly one JSON value, without fields that v does not
// have.
func decodeStrictly(r io.Reader, v any) error {
	decoder := json.NewDecoder(r)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(v); err != nil {
		return err
	}
	if _, err := decoder.Token(); err == io.EOF {
		return nil
	}
	return errors.New("something stands after the JSON value")
}

// change replaces the file, by nobody else meanwhile.
func (t *Tokens) change(edit func([]storedToken) ([]storedToken, error)) (err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := os.MkdirAll(filepath.Dir(t.path), 0o700); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), lockTimeout)
	defer cancel()
	if err := datafile.Make(t.path + ".lock"); err != nil {
		return err
	}
	lock := flock.New(t.path+".lock", flock.SetPermissions(0o600))
	if _, err := lock.TryLockContext(ctx, 20*time.Millisecond); err != nil {
		return fmt.Errorf("lock %s.lock: %w", t.path, err)
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	if err := t.load(); err != nil {
		return err
	}
	edited, err := edit(slices.Clone(t.tokens))
	if err != nil {
		return err
	}
	file := tokensFile{tokensFormat, tokensVersion, edited}
	data, err := json.MarshalIndent(file, "", "  ")
	if err != nil {
		return err
	}
	if len(data) > maxTokensFile {
		return fmt.Errorf("%d tokens are too many: revoke some", len(edited))
	}
	if err := datafile.Replace(t.path, data, 0o600); err != nil {
		return err
	}
	return t.load()
}
