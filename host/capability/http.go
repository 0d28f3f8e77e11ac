package capability

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/gloveboxhq/glovebox/abi"
)

// ActionHTTPFetch is one request, each redirect one more. Its target is the
// method and the URL without the query.
const ActionHTTPFetch Action = "http.fetch"

// HTTPRequest is what a manifest asks for, as it stands there.
type HTTPRequest struct {
	// Hosts are in the form of a HostRule.
	Hosts []string
	// Secrets are in the form of a SecretRequest.
	Secrets []string
}

// HTTPConfig is what the operator allows, as it is configured.
type HTTPConfig struct {
	// Hosts are in the form of a HostRule. What the manifest does not ask for
	// is not granted either.
	Hosts []string
	// AllowPrivate are in the form of a PrivateTarget. They open addresses,
	// not URLs: a rule of Hosts must allow the URL too.
	AllowPrivate []string
	Secrets      []SecretBinding
}

// HTTPGrant is where the requests of one hand may go and what is put into them.
// It is not changed once made and safe for concurrent use. It holds secrets and
// prints without them.
type HTTPGrant struct {
	hosts   []HostRule
	private []PrivateTarget
	// secrets is a func because no way of printing shows what it returns.
	secrets func() *secretSet
}

// NewHTTPGrant returns what is both asked for and allowed; that there is
// nothing is an error. Load reads the secrets' values; nil means LoadSecret.
// The error names the entry that is wrong and never holds a secret.
func NewHTTPGrant(asked HTTPRequest, allowed HTTPConfig, load SecretLoader) (*HTTPGrant, error) {
	if load == nil {
		load = LoadSecret
	}
	configured, err := ParseHostRules(allowed.Hosts)
	if err != nil {
		return nil, fmt.Errorf("hosts: %w", err)
	}
	g := &HTTPGrant{hosts: configured}
	if !slices.Equal(asked.Hosts, []string{abi.AnyHost}) {
		wanted, err := ParseHostRules(asked.Hosts)
		if err != nil {
			return nil, fmt.Errorf("the manifest's hosts: %w", err)
		}
		g.hosts = Intersect(wanted, configured)
	}
	if len(g.hosts) == 0 {
		return nil, fmt.Errorf("hosts: nothing of what the manifest asks for, %v, is allowed by %v", asked.Hosts, configured)
	}
	for _, text := range allowed.AllowPrivate {
		p, err := ParsePrivateTarget(text)
		if err != nil {
			return nil, err
		}
		g.private = append(g.private, p)
	}
	secrets, err := bindSecrets(asked.Secrets, allowed.Secrets, load)
	if err != nil {
		return nil, err
	}
	g.secrets = func() *secretSet { return secrets }
	return g, nil
}

// Hosts returns the rules in force: what was asked for and allowed.
func (g *HTTPGrant) Hosts() []HostRule { return slices.Clone(g.hosts) }

// Bounds of one exchange that no operator needs to change.
const (
	// maxHeaderBytes bounds the header of an answer, maxGuestHeaderBytes that
	// of a request, each with a number of fields.
	maxHeaderBytes       = 64 << 10
	maxHeaderFields      = 256
	maxGuestHeaderBytes  = 16 << 10
	maxGuestHeaderFields = 64
	maxRedirects         = 10
)

// HTTP is the port of one query: requests to granted hosts. It implements
// sandbox.HTTP. One goroutine owns it; Close it after the query.
type HTTP struct {
	door   door
	grant  *HTTPGrant
	egress *Egress
	// transport is made when it is first needed.
	transport *http.Transport
}

// NewHTTP returns the port. Egress is shared with other ports; nil means the
// zero Egress.
func NewHTTP(ledger *Ledger, caller Caller, grant *HTTPGrant, egress *Egress) *HTTP {
	if egress == nil {
		egress = &Egress{}
	}
	return &HTTP{door: door{ledger, caller}, grant: grant, egress: egress}
}

// Close closes the connections.
func (h *HTTP) Close() error {
	if h.transport != nil {
		h.transport.CloseIdleConnections()
	}
	return nil
}

// Fetch implements sandbox.HTTP. Redirects are followed as long as each may be
// requested itself, but never from https to http. A request beyond the first
// origin carries no secret and no header that could tell who asks.
//
// The answer's body is decoded. Headers about the connection and cookies are
// left out; secrets are redacted.
func (h *HTTP) Fetch(ctx context.Context, r abi.HTTPFetchRequest, budget abi.HTTPBudget) (abi.HTTPFetchResult, []byte, int, error) {
	x := exchange{HTTP: h, budget: budget, deadline: time.Now().Add(budget.Timeout)}
	next := x.first(r)
	for {
		answer, err := x.do(ctx, next)
		if err != nil {
			return abi.HTTPFetchResult{}, nil, int(x.sent.Load()), err
		}
		if answer.next == nil {
			return answer.head, answer.body, int(x.sent.Load()), nil
		}
		next = answer.next
	}
}

// exchange is one call of Fetch.
type exchange struct {
	*HTTP
	budget   abi.HTTPBudget
	deadline time.Time
	sent     atomic.Int64
	hops     int
}

// hop is one request of an exchange.
type hop struct {
	method string
	target target
	header http.Header
	body   []byte
	// at is the target as the audit has it.
	at string
	// home says that all requests so far went to the same origin.
	home bool
	// no is why the request may not be made, if that is known beforehand.
	no *refusal
}

// answer is what came of a hop: another hop, or the end.
type answer struct {
	next *hop
	head abi.HTTPFetchResult
	body []byte
}

func (x *exchange) first(r abi.HTTPFetchRequest) *hop {
	at, _, _ := strings.Cut(r.URL, "?")
	n := &hop{method: r.Method, body: r.Body, at: shorten(r.Method) + " " + at, home: true}
	var err error
	if n.target, err = parseTarget(r.URL); err != nil {
		n.no = &refusal{abi.KindBadRequest, err.Error()}
		return n
	}
	n.at = shorten(r.Method) + " " + n.target.withoutQuery()
	if methodOf(r.Method) == 0 {
		n.no = &refusal{abi.KindBadRequest, fmt.Sprintf("the method is none of %s", methodSet(1<<len(methods)-1))}
		return n
	}
	if int64(len(r.Body)) > x.budget.BodyBytes {
		n.no = &refusal{abi.KindTooLarge, fmt.Sprintf("the body is %d bytes, http_bytes allows %d", len(r.Body), x.budget.BodyBytes)}
		return n
	}
	n.header, n.no = guestHeader(r.Header)
	return n
}

// guestHeader checks what the guest wants to send.
func guestHeader(fields [][2]string) (http.Header, *refusal) {
	if len(fields) > maxGuestHeaderFields {
		return nil, &refusal{abi.KindTooLarge, fmt.Sprintf("%d header fields, at most %d are allowed", len(fields), maxGuestHeaderFields)}
	}
	header := http.Header{}
	size := 0
	for _, field := range fields {
		name, value := field[0], field[1]
		size += len(name) + len(value)
		switch {
		case size > maxGuestHeaderBytes:
			return nil, &refusal{abi.KindTooLarge, fmt.Sprintf("the header is over %d bytes", maxGuestHeaderBytes)}
		case !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value):
			return nil, &refusal{abi.KindBadRequest, "a header field is not well-formed"}
		case reservedHeader(name) != "":
			return nil, &refusal{abi.KindDenied, "a hand may not set the header " + reservedHeader(name)}
		}
		header.Add(name, value)
	}
	return header, nil
}

// reservedHeaders are the host's alone: they are about the connection, would say
// that another asks, or would change what a rule allowed. "*" is for any rest.
var reservedHeaders = [...]string{
	"host", "connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "http2-settings", "expect", "content-length",
	"accept-encoding", "cookie", "cookie2", "proxy-*", "sec-*", "forwarded", "via", "x-forwarded-*", "x-real-ip", "x-original-url", "x-rewrite-url",
	"x-http-method", "x-http-method-override", "x-method-override",
}

// reservedHeader returns the entry of reservedHeaders that a name falls under,
// or "". Many servers read "_" as "-".
func reservedHeader(name string) string {
	name = strings.ReplaceAll(strings.ToLower(name), "_", "-")
	for _, entry := range reservedHeaders {
		if prefix, open := strings.CutSuffix(entry, "*"); name == entry || open && strings.HasPrefix(name, prefix) {
			return entry
		}
	}
	return ""
}

// do makes one request, if it may.
func (x *exchange) do(query context.Context, n *hop) (answer, error) {
	ctx, cancel := context.WithDeadline(query, x.deadline)
	defer cancel()
	addrs, err := x.permit(query, ctx, n)
	if err != nil {
		return answer{}, err
	}
	response, err := x.send(ctx, n, addrs)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	if next := x.redirect(n, response); next != nil {
		return answer{next: next}, nil
	}
	return x.read(ctx, n, response)
}

// permit decides on a hop and returns the addresses it may go to.
func (x *exchange) permit(query, ctx context.Context, n *hop) ([]netip.Addr, error) {
	no := n.no
	if no == nil {
		no = x.refuse(n)
	}
	if gone := x.door.withdrawn(); gone != nil {
		no = gone // before a name server is told of the host
	}
	var addrs []netip.Addr
	var failed error
	if no == nil {
		addrs, no, failed = x.egress.resolve(ctx, n.target, x.grant.private)
	}
	if err := x.door.decide(query, ActionHTTPFetch, n.at, no); err != nil {
		return nil, err
	}
	if failed != nil {
		return nil, x.failure(ctx, failed)
	}
	return addrs, nil
}

// refuse applies what needs no look at the network.
func (x *exchange) refuse(n *hop) *refusal {
	switch {
	case int(x.sent.Load()) >= x.budget.Requests:
		return &refusal{abi.KindQuotaExceeded, "the requests of the query are used up: http_requests is the limit"}
	case x.hops > maxRedirects:
		return &refusal{abi.KindQuotaExceeded, fmt.Sprintf("more than %d redirects", maxRedirects)}
	}
	var near *HostRule
	allowed := slices.ContainsFunc(x.grant.hosts, func(r HostRule) bool {
		if !r.covers(n.target) {
			return false
		}
		near = &r
		return r.methods&methodOf(n.method) != 0
	})
	switch {
	case !allowed && near != nil:
		return &refusal{abi.KindDenied, fmt.Sprintf("hosts has %q, which does not allow the method %s", near, n.method)}
	case !allowed:
		return &refusal{abi.KindDenied, "no rule of hosts allows this scheme, host, port and path: the manifest must ask for it and the configuration allow it"}
	}
	for _, s := range x.secretsFor(n) {
		switch {
		case n.header.Get(s.header) != "":
			return &refusal{abi.KindDenied, fmt.Sprintf("the header %s is that of the secret %q: a hand may not set it", s.header, s.name)}
		case n.header.Get("Range") != "":
			return &refusal{abi.KindDenied, "a request that carries a secret may not ask for a part: a secret cut in two could not be redacted"}
		}
	}
	return nil
}

// secretsFor returns the secrets that go into a hop.
func (x *exchange) secretsFor(n *hop) []boundSecret {
	if !n.home {
		return nil
	}
	var all []boundSecret
	for _, s := range x.grant.secrets().bound {
		if s.where.covers(n.target) {
			all = append(all, s)
		}
	}
	return all
}

// errOverBudget keeps the transport from sending a request once more.
var errOverBudget = errors.New("the requests of the query are used up")

func (x *exchange) send(ctx context.Context, n *hop, addrs []netip.Addr) (*http.Response, error) {
	u, err := url.Parse(n.target.String())
	if err != nil || u.Host != authority(n.target.scheme, n.target.host, n.target.port) || u.EscapedPath() != n.target.path {
		return nil, fmt.Errorf("%s: the URL can be read in two ways: %w", ActionHTTPFetch, abi.KindBadRequest)
	}
	ctx, cancel := context.WithCancel(ctx)
	// A request that failed on a connection kept open is sent again by the
	// transport: it counts again. As one connection at most is kept, the second
	// time needs a new one, and that can be refused before anything is sent.
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { x.sent.Add(1) }})
	ctx = context.WithValue(ctx, pinnedKey{}, pinned{n.target, addrs, func() error {
		if int(x.sent.Load()) >= x.budget.Requests {
			return errOverBudget
		}
		return nil
	}})
	request := &http.Request{Method: n.method, URL: u, Header: n.header.Clone(), Body: http.NoBody}
	if len(n.body) > 0 {
		request.ContentLength = int64(len(n.body))
		request.Body = io.NopCloser(bytes.NewReader(n.body))
	}
	if request.Header.Get("User-Agent") == "" {
		request.Header.Set("User-Agent", "glovebox")
	}
	request.Header.Set("Accept-Encoding", "gzip")
	for _, s := range x.secretsFor(n) {
		request.Header.Set(s.header, s.whole)
	}
	if x.transport == nil {
		x.transport = x.egress.transport()
	}
	response, err := x.transport.RoundTrip(request.WithContext(ctx))
	if err != nil {
		err = x.failure(ctx, err)
		cancel()
		return nil, err
	}
	response.Body = &cancelled{response.Body, cancel}
	return response, nil
}

// cancelled releases a request's context when its body is closed.
type cancelled struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (c *cancelled) Close() error {
	err := c.ReadCloser.Close()
	c.cancel()
	return err
}

// redirect returns the hop that a response asks for, or nil.
func (x *exchange) redirect(n *hop, response *http.Response) *hop {
	location := response.Header.Get("Location")
	if location == "" {
		return nil
	}
	next := &hop{method: n.method, header: n.header.Clone(), body: n.body}
	switch response.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther:
		if n.method != http.MethodHead {
			next.method = http.MethodGet
		}
		next.body = nil
		for name := range next.header {
			if strings.HasPrefix(name, "Content-") {
				next.header.Del(name)
			}
		}
	case http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
	default:
		return nil
	}
	x.hops++
	redactor := &x.grant.secrets().redactor
	at, _, _ := strings.Cut(location, "?")
	next.at = next.method + " " + redactor.text(at)
	to, err := resolveLocation(n.target, location)
	if err != nil {
		next.no = &refusal{abi.KindDenied, "the redirect: " + err.Error()}
		return next
	}
	next.target = to
	next.at = next.method + " " + redactor.text(to.withoutQuery())
	next.home = n.home && to.origin() == n.target.origin()
	switch {
	case n.target.scheme == "https" && to.scheme != "https":
		next.no = &refusal{abi.KindDenied, "the redirect leads from https to http"}
	case to.origin() != n.target.origin() && redactor.holds(to.String()):
		next.no = &refusal{abi.KindDenied, "the redirect would carry a secret to another host"}
	}
	if !next.home {
		maps.DeleteFunc(next.header, func(name string, _ []string) bool { return !impersonal(name) })
	}
	return next
}

// resolveLocation reads a Location header relative to the URL that was asked.
func resolveLocation(from target, location string) (target, error) {
	base, err := url.Parse(from.String())
	if err != nil {
		return target{}, errors.New("its base cannot be read")
	}
	to, err := base.Parse(location)
	if err != nil {
		return target{}, errors.New("it is not a URL")
	}
	to.Fragment, to.RawFragment = "", ""
	return parseTarget(to.String())
}

// impersonal reports whether a header says nothing about who asks.
func impersonal(name string) bool {
	switch name {
	case "Accept", "Accept-Language", "Cache-Control", "Content-Type", "Content-Language", "If-Match", "If-Modified-Since", "If-None-Match",
		"If-Unmodified-Since", "Range", "User-Agent":
		return true
	}
	return false
}

// read takes the answer in, decoded, bounded and redacted.
func (x *exchange) read(ctx context.Context, n *hop, response *http.Response) (answer, error) {
	if response.StatusCode == http.StatusSwitchingProtocols {
		return answer{}, fmt.Errorf("%s: the server wants another protocol: %w", ActionHTTPFetch, abi.KindUnavailable)
	}
	redactor := &x.grant.secrets().redactor
	var body io.Reader = response.Body
	most := x.budget.BodyBytes
	switch encoding := strings.ToLower(strings.Join(response.Header.Values("Content-Encoding"), ",")); encoding {
	case "", "identity":
	case "gzip", "x-gzip":
		// What is compressed is hardly longer than what it was; empty members
		// without end are.
		unzip, err := gzip.NewReader(io.LimitReader(body, most+most/1000+int64(redactor.longest)+(64<<10)))
		switch {
		case err == nil:
			body = unzip
		case err != io.EOF: // no body at all, as with HEAD
			return answer{}, x.failure(ctx, err)
		}
	default:
		return answer{}, fmt.Errorf("%s: the body has an encoding that was not asked for: %w", ActionHTTPFetch, abi.KindUnavailable)
	}
	data, err := io.ReadAll(io.LimitReader(body, most+int64(redactor.longest)+1))
	if err != nil {
		return answer{}, x.failure(ctx, err)
	}
	a := answer{head: abi.HTTPFetchResult{
		Status: response.StatusCode, URL: redactor.text(n.target.String()), Header: [][2]string{}, Truncated: int64(len(data)) > most,
	}}
	a.body = redactor.redact(data, int(min(most, int64(len(data)))))
	if int64(len(a.body)) > most {
		a.body, a.head.Truncated = a.body[:most], true
	}
	for _, name := range slices.Sorted(maps.Keys(response.Header)) {
		if unseenHeader(name) || redactor.inName(name) {
			continue
		}
		for _, value := range response.Header[name] {
			a.head.Header = append(a.head.Header, [2]string{name, redactor.text(value)})
		}
	}
	if len(a.head.Header) > maxHeaderFields {
		return answer{}, fmt.Errorf("%s: the answer has %d header fields, at most %d are allowed: %w", ActionHTTPFetch, len(a.head.Header), maxHeaderFields, abi.KindTooLarge)
	}
	return a, nil
}

// unseenHeader reports whether a header of an answer is about the connection or
// the encoding, which the guest does not have, or a cookie, which it could not
// send.
func unseenHeader(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Connection", "Trailer", "Transfer-Encoding", "Upgrade",
		"Content-Encoding", "Content-Length", "Set-Cookie", "Set-Cookie2":
		return true
	}
	return false
}

// failure gives an error of the network its kind, in the host's words: the
// transport's own may quote the server.
func (x *exchange) failure(ctx context.Context, err error) error {
	text, kind := "the exchange failed", abi.KindUnavailable
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	_, corrupt := errors.AsType[flate.CorruptInputError](err)
	op, network := errors.AsType[*net.OpError](err)
	switch {
	case errors.Is(err, errOverBudget):
		text, kind = errOverBudget.Error(), abi.KindQuotaExceeded
	case errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("%s: %w", ActionHTTPFetch, ctx.Err())
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded):
		text, kind = fmt.Sprintf("no answer within %v: http_timeout is the limit", x.budget.Timeout), abi.KindTimeout
	case errors.Is(err, errUnresolved):
		text = errUnresolved.Error()
	case errors.Is(err, errNotPinned):
		text, kind = errNotPinned.Error(), abi.KindDenied
	case strings.Contains(err.Error(), "server response headers exceeded"):
		text, kind = fmt.Sprintf("the answer's header is over %d bytes", maxHeaderBytes), abi.KindTooLarge
	case untrusted:
		text = "the server's certificate is not trusted"
	case corrupt, errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum):
		text = "the body is not in the encoding that it says"
	case network && op.Op == "dial":
		text = "no connection to the server"
	}
	return fmt.Errorf("%s: %s: %w", ActionHTTPFetch, text, kind)
}
