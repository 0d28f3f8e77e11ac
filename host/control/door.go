package control

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/gloveboxhq/glovebox/memory"
)

// caller is who sent a request. The zero value may do nothing.
type caller struct {
	admin bool
	user  memory.UserID
	// open says that nobody has a token.
	open bool
	// token is the id of the token that the request bore, "" if none.
	token string
}

// guardAnswer sets what holds for every answer: it is data, for whoever asked, and
// nothing that a browser shows as a page, keeps, or gives to another site.
func guardAnswer(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
}

// cameHere decides by what stands around a request whether it was meant for this
// server, by this server's pages or nobody's.
func (s *server) cameHere(r *http.Request) error {
	if !s.isOurs(r.Host, localAddress(r)) {
		return refuse(http.StatusMisdirectedRequest, "the Host header names another server: add it under [server] hosts if it is this one")
	}
	if !sameOrigin(r) {
		return refuse(http.StatusForbidden, "another site cannot call this")
	}
	return nil
}

// localAddress is what the connection of a request was made to.
func localAddress(r *http.Request) netip.AddrPort {
	if addr, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok {
		at := addr.AddrPort()
		return netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())
	}
	return netip.AddrPort{}
}

// isOurs reports whether a Host header may be said. A page can have a name of its
// own resolve to this machine, and is of the same origin for a browser then; it
// cannot do so with an address, nor with localhost.
func (s *server) isOurs(said string, local netip.AddrPort) bool {
	said = strings.ToLower(said)
	name, port, err := net.SplitHostPort(said)
	if err != nil {
		name, port = strings.TrimSuffix(strings.TrimPrefix(said, "["), "]"), "80"
	}
	if s.hosts[said] || s.hosts[name] {
		return true
	}
	if !local.IsValid() || port != strconv.Itoa(int(local.Port())) {
		return false
	}
	if local.Addr().IsLoopback() && name == "localhost" {
		return true
	}
	address, err := netip.ParseAddr(name)
	return err == nil && (address == local.Addr() || address.IsLoopback() && local.Addr().IsLoopback())
}

var crossOrigin = http.NewCrossOriginProtection()

// sameOrigin reports whether a browser sent the request for a page of this server,
// or nobody's browser did. It is stricter than the standard library's protection:
// reading is refused too, and so is an opaque origin whatever else is said.
func sameOrigin(r *http.Request) bool {
	if crossOrigin.Check(r) != nil {
		return false
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" {
		return false
	}
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		return true
	}
	origin, err := url.Parse(origins[0])
	return err == nil && len(origins) == 1 && (origin.Scheme == "http" || origin.Scheme == "https") && strings.EqualFold(origin.Host, r.Host)
}

// caller returns who sent a request, by its token, or the one that its browser
// logged in with. What a request says itself counts before what a browser adds.
func (s *server) caller(r *http.Request) (caller, error) {
	secret, err := secretOf(r.Header)
	if err != nil {
		return caller{}, err
	}
	if secret == "" && s.logins != nil {
		token, err := s.logins.tokenOf(r)
		if !errors.Is(err, memory.ErrNotFound) {
			return callerBy(token), err
		}
	}
	if secret == "" {
		none, err := s.tokens.None()
		if err != nil {
			return caller{}, err
		}
		// What a proxy passes on comes from anywhere.
		if none && s.open && !isForwarded(r.Header) {
			standard, err := s.host.User("")
			if err != nil {
				return caller{}, err
			}
			return caller{admin: true, user: standard.ID, open: true}, nil
		}
		return caller{}, noToken("send a token, as Authorization: Bearer or x-api-key")
	}
	token, err := s.tokens.Bearer(secret)
	switch {
	case errors.Is(err, memory.ErrNotFound):
		return caller{}, noToken("the token is not known")
	case err != nil:
		return caller{}, err
	}
	return callerBy(token), nil
}

func callerBy(t Token) caller { return caller{admin: t.Scope == ScopeAdmin, user: t.User, token: t.ID} }

func noToken(detail string) *problem {
	return refuse(http.StatusUnauthorized, detail).with("WWW-Authenticate", `Bearer realm="glovebox"`)
}

// secretOf returns the secret that a request bears, "" if none.
func secretOf(h http.Header) (string, error) {
	var secret string
	for _, value := range h.Values("Authorization") {
		scheme, rest, _ := strings.Cut(value, " ")
		if rest = strings.TrimSpace(rest); !strings.EqualFold(scheme, "Bearer") || rest == "" || secret != "" {
			return "", noToken("the Authorization header is not one of Bearer and a token")
		}
		secret = rest
	}
	for _, value := range h.Values("X-Api-Key") {
		if value == "" || secret != "" && secret != value {
			return "", noToken("two headers bear different tokens")
		}
		secret = value
	}
	return secret, nil
}

// isForwarded reports whether a proxy passed the request on.
func isForwarded(h http.Header) bool {
	for _, name := range []string{"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip"} {
		if len(h.Values(name)) > 0 {
			return true
		}
	}
	return false
}
