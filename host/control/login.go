package control

import (
	"net/http"
	"time"

	"github.com/gloveboxhq/glovebox/memory"
)

// LoginCookie holds the secret of a browser's session.
const LoginCookie = "glovebox_session"

// Logins are the browsers that exchanged a token for a cookie. One ends when its
// token is revoked, after loginLifetime, and with the process. It is safe for
// concurrent use.
type Logins struct{}

// NewLogins returns logins by those tokens; now may be nil.
func NewLogins(tokens *Tokens, now func() time.Time) *Logins { return &Logins{} }

// Login exchanges the secret of a token for a cookie: HttpOnly, SameSite=Strict, of
// path /, and Secure where secure says that the browser came over TLS. Errors are
// those of Tokens.Bearer.
func (l *Logins) Login(secret string, secure bool) (*http.Cookie, error) {
	return nil, memory.ErrNotFound
}

// Logout ends the login of a request, if there is one, and returns the cookie that
// has the browser forget it.
func (l *Logins) Logout(r *http.Request) *http.Cookie { return nil }
