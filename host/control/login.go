package control

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/gloveboxhq/glovebox/memory"
)

// LoginCookie holds the secret of a browser's session.
const LoginCookie = "glovebox_session"

const (
	// loginLifetime is how long a browser is let in, whatever it does meanwhile.
	loginLifetime = 12 * time.Hour
	// maxLogins bounds the logins of all tokens, maxTokenLogins those of one: who has
	// a token logs nobody else out by logging in often. The oldest go.
	maxLogins, maxTokenLogins = 1000, 50
	// maxCookies is how many cookies of the name are looked at: other servers of this
	// machine set theirs beside this one's, for ports make no difference to cookies.
	maxCookies = 8
)

// Logins are the browsers that exchanged a token for a cookie. One ends when its
// token is revoked, after 12 hours, and with the process; of more than 50 of one
// token, or 1,000 in all, the oldest end. It is safe for concurrent use.
type Logins struct {
	tokens *Tokens
	now    func() time.Time

	mu sync.Mutex
	// guarded by mu: by the hashes of what is in cookies. A secret is 256 random bits:
	// how long it takes to find a hash, or none, tells nothing of it.
	all map[hash]login
	// guarded by mu: how many there ever were.
	count uint64
}

// login is one browser.
type login struct {
	token   string // its ID
	expires time.Time
	number  uint64
}

// NewLogins returns logins by those tokens; now may be nil.
func NewLogins(tokens *Tokens, now func() time.Time) *Logins {
	if now == nil {
		now = time.Now
	}
	return &Logins{tokens: tokens, now: now, all: map[hash]login{}}
}

// Login exchanges the secret of a token for a cookie: HttpOnly, SameSite=Strict, of
// path /, and Secure where secure says that the browser came over TLS. Errors are
// those of Tokens.Bearer.
func (l *Logins) Login(secret string, secure bool) (*http.Cookie, error) {
	token, err := l.tokens.Bearer(secret)
	if err != nil {
		return nil, err
	}
	var random [32]byte
	rand.Read(random[:]) // never fails
	value := hex.EncodeToString(random[:])
	l.add(sha256.Sum256([]byte(value)), token.ID)
	return loginCookie(value, int(loginLifetime/time.Second), secure), nil
}

func loginCookie(value string, maxAge int, secure bool) *http.Cookie {
	return &http.Cookie{Name: LoginCookie, Value: value, Path: "/", MaxAge: maxAge, HttpOnly: true, Secure: secure, SameSite: http.SameSiteStrictMode}
}

func (l *Logins) add(key hash, token string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	// The oldest of all and of this token, should one have to go.
	var oldest, own hash
	owned := 0
	for k, other := range l.all {
		if !now.Before(other.expires) {
			delete(l.all, k)
			continue
		}
		if first, ok := l.all[oldest]; !ok || other.number < first.number {
			oldest = k
		}
		if other.token != token {
			continue
		}
		if owned++; owned == 1 || other.number < l.all[own].number {
			own = k
		}
	}
	switch {
	case owned >= maxTokenLogins:
		delete(l.all, own)
	case len(l.all) >= maxLogins:
		delete(l.all, oldest)
	}
	l.count++
	l.all[key] = login{token: token, expires: now.Add(loginLifetime), number: l.count}
}

// find returns the login that a value is of.
func (l *Logins) find(value string) (login, bool) {
	key := hash(sha256.Sum256([]byte(value)))
	l.mu.Lock()
	defer l.mu.Unlock()
	found, ok := l.all[key]
	if ok && !l.now().Before(found.expires) {
		delete(l.all, key)
		return login{}, false
	}
	return found, ok
}

// tokenOf returns the token that the browser of a request logged in with. The error
// wraps memory.ErrNotFound, also for one that was revoked since, and ErrDamaged.
func (l *Logins) tokenOf(r *http.Request) (Token, error) {
	for i, cookie := range r.CookiesNamed(LoginCookie) {
		if i == maxCookies {
			break
		}
		found, ok := l.find(cookie.Value)
		if !ok {
			continue
		}
		token, err := l.tokens.withID(found.token)
		if err == nil || !errors.Is(err, memory.ErrNotFound) {
			return token, err
		}
		l.forget(cookie.Value)
	}
	return Token{}, memory.ErrNotFound
}

func (l *Logins) forget(value string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, sha256.Sum256([]byte(value)))
}

// Logout ends the login of a request, if there is one, and returns the cookie that
// has the browser forget it; nil if the request has none.
func (l *Logins) Logout(r *http.Request) *http.Cookie {
	cookies := r.CookiesNamed(LoginCookie)
	if len(cookies) == 0 {
		return nil
	}
	for _, cookie := range cookies[:min(len(cookies), maxCookies)] {
		l.forget(cookie.Value)
	}
	return loginCookie("", -1, false)
}
