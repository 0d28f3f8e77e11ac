package control

import (
	"time"

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

// Tokens keeps the hashes of tokens in a file beside the databases. Several
// processes may use it: what one creates or revokes holds for the others from their
// next request on. It is safe for concurrent use.
type Tokens struct{ path string }

// OpenTokens opens the file at path, which need not exist.
func OpenTokens(path string) (*Tokens, error) { return &Tokens{path}, nil }

// Create makes a token. Secret is shown this once. The error wraps
// memory.ErrInvalid for a scope out of form.
func (t *Tokens) Create(user memory.UserID, scope Scope, at time.Time) (secret string, _ Token, err error) {
	return "", Token{}, nil
}

// List returns all tokens, the oldest first.
func (t *Tokens) List() ([]Token, error) { return nil, nil }

// Revoke removes a token. The error wraps memory.ErrNotFound.
func (t *Tokens) Revoke(id string) error { return nil }

// Bearer returns the token of a secret, in the same time whichever it is. The
// error wraps memory.ErrNotFound.
func (t *Tokens) Bearer(secret string) (Token, error) { return Token{}, memory.ErrNotFound }
