package capability_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/capability"
)

const (
	publicAddr = "93.184.215.14"
	secret     = "s3cr3t/Value+with=signs&more"
)

// world is a network of names, behind which there is one server in TLS and one
// without.
type world struct {
	secure, plain *httptest.Server
	// names resolve to these, the first answer first; the last one stays.
	names map[string][][]string

	mu      sync.Mutex
	lookups map[string]int
	dialed  []string
	seen    []*http.Request
	bodies  []string
}

func newWorld(t *testing.T, answer http.HandlerFunc) *world {
	t.Helper()
	w := &world{names: map[string][][]string{}, lookups: map[string]int{}}
	handler := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.mu.Lock()
		w.seen, w.bodies = append(w.seen, r.Clone(context.Background())), append(w.bodies, string(body))
		w.mu.Unlock()
		answer(rw, r)
	})
	w.secure, w.plain = httptest.NewUnstartedServer(handler), httptest.NewServer(handler)
	w.secure.Config.ErrorLog = log.New(io.Discard, "", 0) // refused handshakes are meant
	w.secure.StartTLS()
	t.Cleanup(w.secure.Close)
	t.Cleanup(w.plain.Close)
	return w
}

// reset forgets what was seen.
func (w *world) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dialed, w.seen, w.bodies = nil, nil, nil
}

func (w *world) requests() []*http.Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.seen)
}

func (w *world) sentBodies() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.bodies)
}

func (w *world) connections() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.dialed)
}

func (w *world) lookup(_ context.Context, host string) ([]netip.Addr, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	answers := w.names[host]
	if len(answers) == 0 {
		return nil, errors.New("no such host")
	}
	now := answers[min(w.lookups[host], len(answers)-1)]
	w.lookups[host]++
	var addrs []netip.Addr
	for _, a := range now {
		addrs = append(addrs, netip.MustParseAddr(a))
	}
	return addrs, nil
}

// egress leads what goes to public addresses to the servers: port 443 to the
// one in TLS.
func (w *world) egress() *capability.Egress {
	roots := x509.NewCertPool()
	roots.AddCert(w.secure.Certificate())
	return &capability.Egress{Lookup: w.lookup, RootCAs: roots, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		w.mu.Lock()
		w.dialed = append(w.dialed, address)
		w.mu.Unlock()
		to := w.plain.Listener.Addr()
		if strings.HasSuffix(address, ":443") {
			to = w.secure.Listener.Addr()
		}
		return new(net.Dialer).DialContext(ctx, network, to.String())
	}}
}

func grantHTTP(t *testing.T, config capability.HTTPConfig, secrets ...string) *capability.HTTPGrant {
	t.Helper()
	grant, err := capability.NewHTTPGrant(capability.HTTPRequest{Hosts: config.Hosts, Secrets: secrets}, config, func(string) (string, error) { return secret + "\n", nil })
	if err != nil {
		t.Fatal(err)
	}
	return grant
}

func openHTTP(t *testing.T, egress *capability.Egress, grant *capability.HTTPGrant) (*capability.HTTP, *capability.Ledger) {
	t.Helper()
	ledger := openLedger(t, filepath.Join(t.TempDir(), "hands.db"))
	port := capability.NewHTTP(ledger, capability.Caller{Hand: "fetcher", Subject: "s"}, grant, egress)
	t.Cleanup(func() { port.Close() })
	return port, ledger
}

var budget = abi.HTTPBudget{Requests: 20, BodyBytes: 1 << 20, Timeout: 10 * time.Second}

func get(t *testing.T, port *capability.HTTP, rawURL string, header ...[2]string) (abi.HTTPFetchResult, string, error) {
	t.Helper()
	head, body, _, err := port.Fetch(t.Context(), abi.HTTPFetchRequest{Method: "GET", URL: rawURL, Header: header}, budget)
	return head, string(body), err
}

func lastDecision(t *testing.T, ledger *capability.Ledger) capability.Decision {
	t.Helper()
	all, err := ledger.Decisions(t.Context(), "fetcher", 1)
	if err != nil || len(all) != 1 {
		t.Fatalf("%v, %v", all, err)
	}
	return all[0]
}

// forbidden are URLs that lead where no hand may go, each with the rule that
// would let it pass but for that; "" where no rule can.
var forbidden = []struct {
	name, url, rule string
	resolves        []string
}{
	{"loopback", "http://127.0.0.1/", "http://127.0.0.1", nil},
	{"loopback, another", "http://127.8.9.10/", "http://127.8.9.10", nil},
	{"loopback 6", "http://[::1]/", "http://[::1]", nil},
	{"private 10", "http://10.0.0.5/", "http://10.0.0.5", nil},
	{"private 172", "http://172.31.255.255/", "http://172.31.255.255", nil},
	{"private 192", "https://192.168.1.1/", "https://192.168.1.1", nil},
	{"unique local", "http://[fd12::1]/", "http://[fd12::1]", nil},
	{"shared", "http://100.64.0.1/", "http://100.64.0.1", nil},
	{"link-local", "http://169.254.1.1/", "http://169.254.1.1", nil},
	{"link-local 6", "http://[fe80::1]/", "http://[fe80::1]", nil},
	{"metadata", "http://169.254.169.254/latest/meta-data/", "http://169.254.169.254", nil},
	{"metadata 6", "http://[fd00:ec2::254]/", "http://[fd00:ec2::254]", nil},
	{"metadata, shared space", "http://100.100.100.200/", "http://100.100.100.200", nil},
	{"metadata, public space", "http://168.63.129.16/", "http://168.63.129.16", nil},
	{"unspecified", "http://0.0.0.0/", "http://0.0.0.0", nil},
	{"this network", "http://0.1.2.3/", "http://0.1.2.3", nil},
	{"unspecified 6", "http://[::]/", "http://[::]", nil},
	{"multicast", "http://224.0.0.251/", "http://224.0.0.251", nil},
	{"multicast 6", "http://[ff02::1]/", "http://[ff02::1]", nil},
	{"broadcast", "http://255.255.255.255/", "http://255.255.255.255", nil},
	{"documentation", "http://192.0.2.1/", "http://192.0.2.1", nil},
	{"documentation 6", "http://[2001:db8::1]/", "http://[2001:db8::1]", nil},
	{"benchmarking", "http://198.18.0.1/", "http://198.18.0.1", nil},
	{"IPv4-mapped", "http://[::ffff:127.0.0.1]/", "http://[::ffff:127.0.0.1]", nil},
	{"IPv4-mapped, in hexadecimal", "http://[::ffff:7f00:1]/", "http://[::ffff:7f00:1]", nil},
	{"IPv4-mapped, public", "http://[::ffff:93.184.215.14]/", "http://[::ffff:93.184.215.14]", nil},
	{"IPv4-compatible", "http://[::127.0.0.1]/", "http://[::127.0.0.1]", nil},
	{"NAT64", "http://[64:ff9b::7f00:1]/", "http://[64:ff9b::7f00:1]", nil},
	{"NAT64 of metadata", "http://[64:ff9b::169.254.169.254]/", "http://[64:ff9b::a9fe:a9fe]", nil},
	{"NAT64, local", "http://[64:ff9b:1::7f00:1]/", "http://[64:ff9b:1::7f00:1]", nil},
	{"6to4", "http://[2002:7f00:1::]/", "http://[2002:7f00:1::]", nil},
	{"Teredo", "http://[2001:0:7f00:1::]/", "http://[2001:0:7f00:1::]", nil},
	{"zone", "http://[fe80::1%25eth0]/", "", nil},
	{"decimal", "http://2130706433/", "", nil},
	{"octal", "http://0177.0.0.1/", "", nil},
	{"octal, one number", "http://017700000001/", "", nil},
	{"hexadecimal", "http://0x7f000001/", "", nil},
	{"hexadecimal parts", "http://0x7f.0.0.1/", "", nil},
	{"short", "http://127.1/", "", nil},
	{"leading zeros", "http://127.000.000.001/", "", nil},
	{"full-width digits", "http://１２７．０．０．１/", "http://127.0.0.1", nil},
	{"ideographic stops", "http://127。0。0。1/", "http://127.0.0.1", nil},
	{"circled digits", "http://①②⑦.0.0.1/", "http://127.0.0.1", nil},
	{"trailing dot", "http://127.0.0.1./", "", nil},
	{"percent in the host", "http://%31%32%37.0.0.1/", "", nil},
	{"user name", "http://public.example@127.0.0.1/", "http://127.0.0.1", nil},
	{"user name, the other way", "http://127.0.0.1@public.example/", "http://public.example", nil},
	{"user and password", "http://public.example:80@127.0.0.1/", "http://127.0.0.1", nil},
	{"fragment before at", "http://public.example#@127.0.0.1/", "http://public.example", nil},
	{"backslash before at", `http://public.example\@127.0.0.1/`, "http://public.example", nil},
	{"tab in the host", "http://127.0\t.0.1/", "http://127.0.0.1", nil},
	{"newline in the path", "http://public.example/\nHost: internal", "http://public.example", nil},
	{"port 0", "http://public.example:0/", "http://public.example", nil},
	{"port without digits", "http://public.example:/", "http://public.example", nil},
	{"port with a sign", "http://public.example:+80/", "http://public.example", nil},
	{"port too large", "http://public.example:65616/", "http://public.example", nil},
	{"two ports", "http://public.example:80:80/", "http://public.example", nil},
	{"no scheme", "//public.example/", "http://public.example", nil},
	{"file", "file:///etc/passwd", "", nil},
	{"gopher", "gopher://public.example:80/_GET", "", nil},
	{"name of loopback", "http://localhost/", "http://localhost", []string{"127.0.0.1"}},
	{"name of loopback 6", "http://a.example/", "http://a.example", []string{"::1"}},
	{"name of a private address", "https://b.example/", "https://b.example", []string{"10.1.2.3"}},
	{"name of metadata", "http://c.example/", "http://c.example", []string{"169.254.169.254"}},
	{"name of IPv4-mapped", "http://d.example/", "http://d.example", []string{"::ffff:10.0.0.1"}},
	{"name of NAT64", "http://e.example/", "http://e.example", []string{"64:ff9b::a00:1"}},
	{"name of both", "http://f.example/", "http://f.example", []string{publicAddr, "127.0.0.1"}},
	{"name of the unspecified", "http://g.example/", "http://g.example", []string{"0.0.0.0"}},
}

// H7: at once and by redirect.
func TestHTTPRefusesWhatIsNotPublic(t *testing.T) {
	var location string
	w := newWorld(t, func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header()["Location"] = []string{location}
		rw.WriteHeader(http.StatusFound)
	})
	w.names["start.example"] = [][]string{{publicAddr}}
	w.names["public.example"] = [][]string{{publicAddr}}
	for _, test := range forbidden {
		t.Run(test.name, func(t *testing.T) {
			rules := []string{"http://start.example"}
			if test.rule != "" {
				rules = append(rules, test.rule)
			}
			if u, err := url.Parse(test.url); err == nil && test.resolves != nil {
				w.names[u.Hostname()] = [][]string{test.resolves}
			}
			grant := grantHTTP(t, capability.HTTPConfig{Hosts: rules})
			port, ledger := openHTTP(t, w.egress(), grant)
			w.reset()
			_, _, sent, err := port.Fetch(t.Context(), abi.HTTPFetchRequest{Method: "GET", URL: test.url}, budget)
			if kind := abi.KindOf(err); kind != abi.KindDenied && kind != abi.KindBadRequest || sent != 0 || len(w.connections()) != 0 {
				t.Errorf("%v, %d sent, dialed %v", err, sent, w.connections())
			}
			if d := lastDecision(t, ledger); d.Allowed || d.Reason == "" || d.Action != capability.ActionHTTPFetch {
				t.Errorf("recorded as %+v", d)
			}
			if strings.ContainsAny(test.url, "\n#") || test.name == "no scheme" {
				return // not a redirect that can be sent, or one to a good place
			}
			location = test.url
			_, _, sent, err = port.Fetch(t.Context(), abi.HTTPFetchRequest{Method: "GET", URL: "http://start.example/"}, budget)
			if !errors.Is(err, abi.KindDenied) || sent != 1 || len(w.connections()) != 1 {
				t.Errorf("by redirect: %v, %d sent, dialed %v", err, sent, w.connections())
			}
			if d := lastDecision(t, ledger); d.Allowed || d.Reason == "" {
				t.Errorf("by redirect: recorded as %+v", d)
			}
		})
	}
}

// H7
func TestHTTPAnswersFromAllowedHosts(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("X-Answer", "42")
		rw.Header().Add("Set-Cookie", "a=b")
		fmt.Fprintf(rw, "%s %s %s", r.Method, r.Host, r.RequestURI)
	})
	w.names["example.com"] = [][]string{{publicAddr}}
	grant := grantHTTP(t, capability.HTTPConfig{Hosts: []string{"GET,POST https://example.com/v1/"}})
	port, ledger := openHTTP(t, w.egress(), grant)
	head, body, sent, err := port.Fetch(t.Context(), abi.HTTPFetchRequest{
		Method: "POST", URL: "https://EXAMPLE.com:443/v1/a%7eb?q=secret+question", Header: [][2]string{{"X-Mine", "yes"}}, Body: []byte("hello"),
	}, budget)
	if err != nil || string(body) != "POST example.com /v1/a~b?q=secret+question" || sent != 1 {
		t.Fatalf("%q, %d, %v", body, sent, err)
	}
	if head.Status != 200 || head.URL != "https://example.com/v1/a~b?q=secret+question" || head.Truncated {
		t.Errorf("%+v", head)
	}
	if fmt.Sprint(head.Header) == "" || !strings.Contains(fmt.Sprint(head.Header), "[X-Answer 42]") || strings.Contains(fmt.Sprint(head.Header), "a=b") {
		t.Errorf("header %v", head.Header)
	}
	seen := w.requests()[0]
	if w.sentBodies()[0] != "hello" || seen.Header.Get("X-Mine") != "yes" || seen.Header.Get("Accept-Encoding") != "gzip" || seen.Header.Get("User-Agent") != "glovebox" {
		t.Errorf("sent %v %q", seen.Header, w.sentBodies()[0])
	}
	if w.connections()[0] != publicAddr+":443" {
		t.Errorf("dialed %v", w.connections())
	}
	if err := ledger.Close(); err != nil {
		t.Fatal(err)
	}
	for method, kind := range map[string]abi.Kind{"DELETE": abi.KindDenied, "CONNECT": abi.KindBadRequest, "get": abi.KindBadRequest, "": abi.KindBadRequest, "GET /x": abi.KindBadRequest} {
		port, _ := openHTTP(t, w.egress(), grant)
		if _, _, _, err := port.Fetch(t.Context(), abi.HTTPFetchRequest{Method: method, URL: "https://example.com/v1/"}, budget); !errors.Is(err, kind) {
			t.Errorf("%q: %v", method, err)
		}
	}
	for _, path := range []string{"/", "/v1", "/v10/", "/v1/../x", "/v1/%2e%2e/x", "/v1/..%2fx", "/v1/..;/x", "/v1/%252e%252e/x", "//v1/", "/v1%2f", "/V1/"} {
		port, _ := openHTTP(t, w.egress(), grant)
		if _, _, err := get(t, port, "https://example.com"+path); abi.KindOf(err) != abi.KindDenied && abi.KindOf(err) != abi.KindBadRequest {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestHTTPIsRecordedWithoutQuery(t *testing.T) {
	w := newWorld(t, func(http.ResponseWriter, *http.Request) {})
	w.names["example.com"] = [][]string{{publicAddr}}
	port, ledger := openHTTP(t, w.egress(), grantHTTP(t, capability.HTTPConfig{Hosts: []string{"https://example.com"}}))
	if _, _, err := get(t, port, "https://example.com/a?b=c"); err != nil {
		t.Fatal(err)
	}
	// A refusal makes what is before it durable too.
	if _, _, err := get(t, port, "http://example.com/x?b=c"); !errors.Is(err, abi.KindDenied) {
		t.Fatal(err)
	}
	all, err := ledger.Decisions(t.Context(), "fetcher", 10)
	if err != nil || len(all) != 2 {
		t.Fatalf("%+v, %v", all, err)
	}
	if all[1].Target != `"GET https://example.com:443/a"` || !all[1].Allowed || all[0].Target != `"GET http://example.com:80/x"` || all[0].Allowed || !strings.Contains(all[0].Reason, "hosts") {
		t.Errorf("%+v", all)
	}
	if err := ledger.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := get(t, port, "https://example.com/a"); err == nil || len(w.requests()) != 1 {
		t.Errorf("a request that could not be recorded was made: %v", err)
	}
}

// H7: the name resolves to a public address when it is checked and to another
// one afterwards.
func TestHTTPRebinding(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/again" {
			http.Redirect(rw, r, "/", http.StatusFound)
			return
		}
		io.WriteString(rw, "public")
	})
	w.names["rebind.example"] = [][]string{{publicAddr}, {"127.0.0.1"}}
	port, _ := openHTTP(t, w.egress(), grantHTTP(t, capability.HTTPConfig{Hosts: []string{"http://rebind.example"}}))
	if _, body, err := get(t, port, "http://rebind.example/"); err != nil || body != "public" {
		t.Fatalf("%q, %v", body, err)
	}
	if w.lookups["rebind.example"] != 1 || len(w.connections()) != 1 || w.connections()[0] != publicAddr+":80" {
		t.Errorf("%v lookups, dialed %v", w.lookups, w.connections())
	}
	// The next request looks again, and every hop of it.
	if _, _, err := get(t, port, "http://rebind.example/"); !errors.Is(err, abi.KindDenied) {
		t.Errorf("rebound: %v", err)
	}
	w.lookups["rebind.example"] = 0
	if _, _, err := get(t, port, "http://rebind.example/again"); !errors.Is(err, abi.KindDenied) {
		t.Errorf("rebound between hops: %v", err)
	}
	if len(w.connections()) > 2 {
		t.Errorf("dialed %v", w.connections())
	}
	checked := netip.MustParseAddrPort(publicAddr + ":443")
	if err := capability.ControlPinned(checked, publicAddr+":443"); err != nil {
		t.Error(err)
	}
	for _, other := range []string{"127.0.0.1:443", publicAddr + ":80", "[::ffff:" + publicAddr + "]:443", "nonsense"} {
		if err := capability.ControlPinned(checked, other); err == nil {
			t.Errorf("the kernel may connect to %s", other)
		}
	}
	if err := capability.DialUnpinned(t.Context(), w.egress(), publicAddr+":443"); err == nil {
		t.Error("a connection that no request asked for")
	}
}

// H7: with the real dialer and its control hook.
func TestHTTPAllowPrivate(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, _ *http.Request) { io.WriteString(rw, "inside") })
	plain := strings.TrimPrefix(w.plain.URL, "http://")
	_, portNumber, _ := net.SplitHostPort(plain)
	w.names["wiki.internal"] = [][]string{{"127.0.0.1"}}
	w.names["meta.internal"] = [][]string{{"169.254.169.254"}}
	egress := &capability.Egress{Lookup: w.lookup}
	for name, test := range map[string]struct {
		url, rule, private string
		kind               abi.Kind
	}{
		"address":                     {w.plain.URL, w.plain.URL, plain, ""},
		"name of it":                  {"http://wiki.internal:" + portNumber, "http://wiki.internal:" + portNumber, plain, ""},
		"listed by name":              {"http://wiki.internal:" + portNumber, "http://wiki.internal:" + portNumber, "wiki.internal:" + portNumber, ""},
		"not listed":                  {w.plain.URL, w.plain.URL, "127.0.0.2:" + portNumber, abi.KindDenied},
		"another port":                {w.plain.URL, w.plain.URL, "127.0.0.1:1", abi.KindDenied},
		"another name":                {w.plain.URL, w.plain.URL, "wiki.internal:" + portNumber, abi.KindDenied},
		"no rule":                     {w.plain.URL, "http://127.0.0.1", plain, abi.KindDenied},
		"link-local by name":          {"http://meta.internal", "http://meta.internal", "meta.internal:80", abi.KindDenied},
		"mapped form of a listed one": {"http://[::ffff:127.0.0.1]:" + portNumber, "http://[::ffff:127.0.0.1]:" + portNumber, plain, abi.KindDenied},
	} {
		t.Run(name, func(t *testing.T) {
			port, _ := openHTTP(t, egress, grantHTTP(t, capability.HTTPConfig{Hosts: []string{test.rule}, AllowPrivate: []string{test.private}}))
			_, body, err := get(t, port, test.url)
			if test.kind == "" && (err != nil || body != "inside") || test.kind != "" && !errors.Is(err, test.kind) {
				t.Errorf("%q, %v", body, err)
			}
		})
	}
	for _, bad := range []string{"10.0.0.5", "10.0.0.0/8:80", "10.0.0.5:0", "0.0.0.0:80", "224.0.0.1:80", "[::ffff:10.0.0.5]:80", "http://10.0.0.5:80", ":80", "a b:80", "0x0a.1:80"} {
		if p, err := capability.ParsePrivateTarget(bad); err == nil || !strings.Contains(err.Error(), "10.0.0.5:8080") {
			t.Errorf("%q is read as %v, %v", bad, p, err)
		}
	}
}

func TestHTTPThisMachinesOwnAddress(t *testing.T) {
	w := newWorld(t, func(http.ResponseWriter, *http.Request) {})
	w.names["example.com"] = [][]string{{publicAddr}}
	egress := w.egress()
	egress.SetOwn(netip.MustParseAddr(publicAddr))
	port, _ := openHTTP(t, egress, grantHTTP(t, capability.HTTPConfig{Hosts: []string{"https://example.com"}}))
	if _, _, err := get(t, port, "https://example.com/"); !errors.Is(err, abi.KindDenied) || !strings.Contains(err.Error(), `"93.184.215.14:443"`) {
		t.Errorf("%v", err)
	}
}

func TestHTTPAddressClasses(t *testing.T) {
	for addr, public := range map[string]bool{
		"93.184.215.14": true, "2606:4700::1111": true, "64:ff9b::5db8:d70e": true, "100.63.255.255": true, "100.128.0.0": true, "172.32.0.1": true,
		"172.15.255.255": true, "198.20.0.1": true, "223.255.255.255": true,
		"240.0.0.1": false, "192.0.0.170": false, "192.88.99.1": false, "fec0::1": false, "3fff::1": false, "5f00::1": false, "100::1": false,
		"2001:20::1": false, "2001:2::1": false, "fe80::1%eth0": false, "64:ff9b::0.0.0.0": false, "4000::1": false,
	} {
		if why := capability.Forbidden(netip.MustParseAddr(addr)); (why == "") != public {
			t.Errorf("%s: %q", addr, why)
		}
	}
}

func TestHTTPRedirects(t *testing.T) {
	var w *world
	w = newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		if to := r.URL.Query().Get("to"); to != "" {
			status := http.StatusFound
			fmt.Sscan(r.URL.Query().Get("status"), &status)
			rw.Header().Set("Location", to)
			rw.WriteHeader(status)
			return
		}
		if r.URL.Path == "/loop" {
			http.Redirect(rw, r, "/loop", http.StatusFound)
			return
		}
		fmt.Fprint(rw, r.Method, " ", r.URL.Path)
	})
	for _, name := range []string{"example.com", "www.example.com"} {
		w.names[name] = [][]string{{publicAddr}}
	}
	grant := grantHTTP(t, capability.HTTPConfig{Hosts: []string{"GET,POST http://example.com", "GET,POST https://example.com"}})
	port, ledger := openHTTP(t, w.egress(), grant)
	ask := func(method, rawURL string, requests int) (string, int, error) {
		w.reset()
		_, body, sent, err := port.Fetch(t.Context(), abi.HTTPFetchRequest{Method: method, URL: rawURL, Body: []byte("b"), Header: [][2]string{
			{"Authorization", "mine"}, {"X-Api-Key", "mine"}, {"Accept", "text/plain"}, {"Content-Type", "text/x"},
		}}, abi.HTTPBudget{Requests: requests, BodyBytes: 1000, Timeout: 10 * time.Second})
		return string(body), sent, err
	}
	if got, sent, err := ask("POST", "https://example.com/a/?to=../b%23frag", 2); got != "GET /b" || sent != 2 || err != nil {
		t.Errorf("%q, %d, %v", got, sent, err)
	} else if last := w.requests()[1]; last.Header.Get("Authorization") != "mine" || last.Header.Get("Content-Type") != "" || w.sentBodies()[1] != "" {
		t.Errorf("same origin: %v %q", last.Header, w.sentBodies()[1])
	}
	if got, sent, err := ask("POST", "https://example.com/?status=307&to=/b", 20); got != "POST /b" || sent != 2 || err != nil || w.sentBodies()[1] != "b" {
		t.Errorf("%q, %d, %v, %q", got, sent, err, w.sentBodies())
	}
	if got, _, err := ask("GET", "http://example.com/?to=https://example.com/c", 20); got != "GET /c" || err != nil {
		t.Errorf("%q, %v", got, err)
	} else if last := w.requests()[1]; last.Header.Get("Authorization") != "" || last.Header.Get("X-Api-Key") != "" || last.Header.Get("Accept") != "text/plain" || last.Header.Get("Referer") != "" {
		t.Errorf("credentials went to another origin: %v", last.Header)
	}
	for rawURL, kind := range map[string]abi.Kind{
		"https://example.com/?to=http://example.com/":      abi.KindDenied,
		"https://example.com/?to=https://www.example.com/": abi.KindDenied,
		"https://example.com/?to=file:///etc/passwd":       abi.KindDenied,
		"https://example.com/?to=https://%5Bx/":            abi.KindDenied,
		"https://example.com/loop":                         abi.KindQuotaExceeded,
	} {
		if got, _, err := ask("GET", rawURL, 20); !errors.Is(err, kind) {
			t.Errorf("%s: %q, %v", rawURL, got, err)
		}
		if d := lastDecision(t, ledger); d.Allowed {
			t.Errorf("%s: recorded as %+v", rawURL, d)
		}
	}
	if _, sent, err := ask("GET", "https://example.com/loop", 3); !errors.Is(err, abi.KindQuotaExceeded) || sent != 3 || len(w.requests()) != 3 {
		t.Errorf("%d sent of 3, %v", sent, err)
	}
	if _, sent, err := ask("GET", "https://example.com/", 0); !errors.Is(err, abi.KindQuotaExceeded) || sent != 0 {
		t.Errorf("%d sent of 0, %v", sent, err)
	}
}

// Connections are kept for one query. What the transport sends again because
// one had been closed meanwhile counts again.
func TestHTTPCountsWhatIsSentAgain(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hang-up" {
			conn, _, _ := rw.(http.Hijacker).Hijack()
			conn.Close()
		}
	})
	w.names["example.com"] = [][]string{{publicAddr}}
	grant := grantHTTP(t, capability.HTTPConfig{Hosts: []string{"http://example.com"}})
	fetch := func(port *capability.HTTP, path string, requests int) (int, error) {
		_, _, sent, err := port.Fetch(t.Context(), abi.HTTPFetchRequest{Method: "GET", URL: "http://example.com" + path},
			abi.HTTPBudget{Requests: requests, BodyBytes: 1000, Timeout: 10 * time.Second})
		return sent, err
	}
	for requests, want := range map[int]struct {
		sent int
		kind abi.Kind
	}{1: {1, abi.KindQuotaExceeded}, 9: {2, abi.KindUnavailable}} {
		w.reset()
		port, _ := openHTTP(t, w.egress(), grant)
		for range 3 {
			if sent, err := fetch(port, "/", 9); err != nil || sent != 1 {
				t.Fatalf("%d, %v", sent, err)
			}
		}
		if len(w.connections()) != 1 {
			t.Errorf("%d connections for three requests", len(w.connections()))
		}
		if sent, err := fetch(port, "/hang-up", requests); sent != want.sent || !errors.Is(err, want.kind) || len(w.requests()) != 3+want.sent {
			t.Errorf("of %d: %d sent, %d seen, %v", requests, sent, len(w.requests())-3, err)
		}
	}
}

func TestHTTPGuestHeaders(t *testing.T) {
	w := newWorld(t, func(http.ResponseWriter, *http.Request) {})
	w.names["example.com"] = [][]string{{publicAddr}}
	port, _ := openHTTP(t, w.egress(), grantHTTP(t, capability.HTTPConfig{Hosts: []string{"https://example.com"}}))
	for _, test := range []struct {
		name, value string
		kind        abi.Kind
	}{
		{"X-Good", "a", ""}, {"authorization", "a", ""}, {"Accept", "*/*", ""},
		{"Host", "internal", abi.KindDenied}, {"hOST", "internal", abi.KindDenied}, {"Connection", "close", abi.KindDenied}, {"TE", "gzip", abi.KindDenied},
		{"Transfer-Encoding", "chunked", abi.KindDenied}, {"transfer_encoding", "chunked", abi.KindDenied}, {"Content-Length", "5", abi.KindDenied},
		{"Cookie", "a=b", abi.KindDenied}, {"Accept-Encoding", "br", abi.KindDenied}, {"Proxy-Authorization", "x", abi.KindDenied}, {"Upgrade", "h2c", abi.KindDenied},
		{"X-Forwarded-For", "127.0.0.1", abi.KindDenied}, {"X_Forwarded_Host", "x", abi.KindDenied}, {"X-HTTP-Method-Override", "DELETE", abi.KindDenied},
		{"X-A\r\nHost", "b", abi.KindBadRequest}, {"X-A", "b\r\nHost: internal", abi.KindBadRequest}, {"X-A", "b\x00", abi.KindBadRequest}, {"", "b", abi.KindBadRequest}, {"X A", "b", abi.KindBadRequest},
		{"X-Large", strings.Repeat("a", 17<<10), abi.KindTooLarge},
	} {
		_, _, err := get(t, port, "https://example.com/", [2]string{test.name, test.value})
		if abi.KindOf(err) != test.kind {
			t.Errorf("%q: %v", test.name, err)
		}
	}
	many := make([][2]string, 65)
	for i := range many {
		many[i] = [2]string{"X-A", "b"}
	}
	if _, _, err := get(t, port, "https://example.com/", many...); !errors.Is(err, abi.KindTooLarge) {
		t.Error(err)
	}
	if len(w.requests()) != 3 {
		t.Errorf("%d requests were sent", len(w.requests()))
	}
}

func gzipped(data []byte) []byte {
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	zip.Write(data)
	zip.Close()
	return b.Bytes()
}

func TestHTTPBoundsAnswers(t *testing.T) {
	stop := make(chan struct{})
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/large":
			rw.Write(bytes.Repeat([]byte("a"), 5000))
		case "/exact":
			rw.Write(bytes.Repeat([]byte("a"), 1000))
		case "/gzip":
			rw.Header().Set("Content-Encoding", "gzip")
			rw.Write(gzipped([]byte("hello")))
		case "/bomb":
			rw.Header().Set("Content-Encoding", "GZIP")
			rw.Write(gzipped(make([]byte, 50<<20)))
		case "/empty-members":
			rw.Header().Set("Content-Encoding", "gzip")
			member := gzipped(nil)
			for range 1 << 20 {
				if _, err := rw.Write(member); err != nil {
					return
				}
			}
		case "/not-gzip":
			rw.Header().Set("Content-Encoding", "gzip")
			io.WriteString(rw, "this is no gzip at all")
		case "/br":
			rw.Header().Set("Content-Encoding", "br")
		case "/no-body":
			rw.Header().Set("Content-Encoding", "gzip")
			rw.WriteHeader(http.StatusNoContent)
		case "/large-header":
			rw.Header().Set("X-Large", strings.Repeat("a", 100<<10))
		case "/many-headers":
			for i := range 300 {
				rw.Header().Set(fmt.Sprint("X-", i), "a")
			}
		case "/cut":
			rw.Header().Set("Content-Length", "100")
			io.WriteString(rw, "short")
		case "/slow":
			<-stop
		case "/slow-body":
			io.WriteString(rw, "begin")
			rw.(http.Flusher).Flush()
			<-stop
		}
	})
	defer close(stop)
	w.names["example.com"] = [][]string{{publicAddr}}
	w.names["other.example"] = [][]string{{publicAddr}}
	port, _ := openHTTP(t, w.egress(), grantHTTP(t, capability.HTTPConfig{Hosts: []string{"https://example.com", "https://other.example", "https://absent.example"}}))
	for path, test := range map[string]struct {
		size      int
		truncated bool
		kind      abi.Kind
	}{
		"/large": {1000, true, ""}, "/exact": {1000, false, ""}, "/gzip": {5, false, ""}, "/bomb": {1000, true, ""}, "/no-body": {},
		"/empty-members": {kind: abi.KindUnavailable}, "/not-gzip": {kind: abi.KindUnavailable}, "/br": {kind: abi.KindUnavailable},
		"/large-header": {kind: abi.KindTooLarge}, "/many-headers": {kind: abi.KindTooLarge}, "/cut": {kind: abi.KindUnavailable},
		"/slow": {kind: abi.KindTimeout}, "/slow-body": {kind: abi.KindTimeout},
	} {
		timeout := 10 * time.Second
		if test.kind == abi.KindTimeout {
			timeout = 50 * time.Millisecond
		}
		head, body, _, err := port.Fetch(t.Context(), abi.HTTPFetchRequest{Method: "GET", URL: "https://example.com" + path},
			abi.HTTPBudget{Requests: 1, BodyBytes: 1000, Timeout: timeout})
		if abi.KindOf(err) != test.kind || len(body) != test.size || head.Truncated != test.truncated {
			t.Errorf("%s: %d bytes, %v, %v", path, len(body), head.Truncated, err)
		}
	}
	if _, _, err := get(t, port, "https://absent.example/"); !errors.Is(err, abi.KindUnavailable) {
		t.Errorf("a name that does not resolve: %v", err)
	}
	if _, _, err := get(t, port, "https://other.example/"); !errors.Is(err, abi.KindUnavailable) || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("the certificate of another: %v", err)
	}
	if _, _, _, err := port.Fetch(t.Context(), abi.HTTPFetchRequest{Method: "GET", URL: "https://example.com/", Body: make([]byte, 2000)},
		abi.HTTPBudget{Requests: 1, BodyBytes: 1000, Timeout: time.Second}); !errors.Is(err, abi.KindTooLarge) {
		t.Errorf("a large body: %v", err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, _, err := port.Fetch(cancelled, abi.HTTPFetchRequest{Method: "GET", URL: "https://example.com/"}, budget); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// H8
func TestHTTPSecrets(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/echo":
			rw.Header().Set("X-Echo", "you sent "+r.Header.Get("Authorization"))
			rw.Header().Set("X-"+hex.EncodeToString([]byte(secret)), "the secret is in the name")
			fmt.Fprintf(rw, "%v %s", r.Header, base64.StdEncoding.EncodeToString([]byte(r.Header.Get("Authorization"))))
		case "/zip":
			rw.Header().Set("Content-Encoding", "gzip")
			rw.Write(gzipped([]byte(r.Header.Get("Authorization"))))
		case "/leave":
			http.Redirect(rw, r, "https://www.example.com/echo", http.StatusFound)
		case "/self":
			http.Redirect(rw, r, "/echo", http.StatusFound)
		case "/carry":
			http.Redirect(rw, r, "https://www.example.com/?token="+url.QueryEscape(secret), http.StatusFound)
		case "/carry-home":
			http.Redirect(rw, r, "/?token="+url.QueryEscape(secret), http.StatusFound)
		case "/back":
			http.Redirect(rw, r, "https://example.com/echo", http.StatusFound)
		case "/error":
			conn, _, _ := rw.(http.Hijacker).Hijack()
			fmt.Fprintf(conn, "HTTP/1.1 %s\r\n\r\n", r.Header.Get("Authorization"))
			conn.Close()
		}
	})
	// The certificate of the test server is of example.com and *.example.com.
	for _, name := range []string{"example.com", "www.example.com"} {
		w.names[name] = [][]string{{publicAddr}}
	}
	config := capability.HTTPConfig{
		Hosts:   []string{"https://example.com", "http://example.com", "https://www.example.com"},
		Secrets: []capability.SecretBinding{{Name: "api", From: "env:X", Host: "https://example.com"}},
	}
	grant := grantHTTP(t, config, "api Authorization: Bearer {}")
	port, ledger := openHTTP(t, w.egress(), grant)
	check := func(head abi.HTTPFetchResult, body string, err error) {
		t.Helper()
		all := fmt.Sprint(head, body, err)
		for _, part := range []string{secret, secret[:12], secret[10:], url.QueryEscape(secret), base64.RawStdEncoding.EncodeToString([]byte("Bearer " + secret))[12:30], hex.EncodeToString([]byte(secret))} {
			if strings.Contains(strings.ToLower(all), strings.ToLower(part)) {
				t.Errorf("the guest sees %q in %s", part, all)
			}
		}
	}
	bearer := func(i int) string {
		t.Helper()
		if i >= len(w.requests()) {
			t.Fatalf("%d requests", len(w.requests()))
		}
		return w.requests()[i].Header.Get("Authorization")
	}
	for _, path := range []string{"/echo", "/zip", "/self", "/carry-home", "/error"} {
		w.reset()
		head, body, err := get(t, port, "https://example.com"+path)
		check(head, body, err)
		if path == "/error" != (err != nil) {
			t.Errorf("%s: %v", path, err)
		}
		if path != "/carry-home" && path != "/error" && !strings.Contains(body, "[redacted]") {
			t.Errorf("%s: no redaction in %q", path, body)
		}
		for i := range w.requests() {
			if bearer(i) != "Bearer "+secret {
				t.Errorf("%s: the bound host got %q", path, bearer(i))
			}
		}
	}
	w.reset()
	head, body, err := get(t, port, "https://example.com/leave")
	if check(head, body, err); err != nil || bearer(1) != "" {
		t.Errorf("another host got %q, %v", bearer(1), err)
	}
	w.reset()
	if _, _, err := get(t, port, "https://www.example.com/back"); err != nil || bearer(0) != "" || bearer(1) != "" {
		t.Errorf("led there by another host: %q, %v", bearer(1), err)
	}
	w.reset()
	if _, _, err := get(t, port, "http://example.com/echo"); err != nil || bearer(0) != "" {
		t.Errorf("in the clear: %q, %v", bearer(0), err)
	}
	w.reset()
	head, body, err = get(t, port, "https://example.com/carry")
	if check(head, body, err); !errors.Is(err, abi.KindDenied) || len(w.requests()) != 1 {
		t.Errorf("carried to another host: %v, %d requests", err, len(w.requests()))
	}
	for name, field := range map[string][2]string{"own header": {"authorization", "x"}, "a range": {"Range", "bytes=0-5"}} {
		if _, _, err := get(t, port, "https://example.com/echo", field); !errors.Is(err, abi.KindDenied) {
			t.Errorf("%s: %v", name, err)
		}
		if _, _, err := get(t, port, "https://www.example.com/echo", field); err != nil {
			t.Errorf("%s elsewhere: %v", name, err)
		}
	}
	decisions, err := ledger.Decisions(t.Context(), "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	check(abi.HTTPFetchResult{}, fmt.Sprint(decisions), nil)
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		check(abi.HTTPFetchResult{}, fmt.Sprintf(format, grant)+fmt.Sprintf(format, *grant)+fmt.Sprintf(format, struct{ inside *capability.HTTPGrant }{grant}), nil)
	}

	// Insecure is the operator's word for it.
	config.Secrets[0].Host, config.Secrets[0].Insecure = "http://example.com", true
	port, _ = openHTTP(t, w.egress(), grantHTTP(t, config, "api Authorization: Bearer {}"))
	w.reset()
	if _, _, err := get(t, port, "http://example.com/echo"); err != nil || bearer(0) != "Bearer "+secret {
		t.Errorf("insecure: %q, %v", bearer(0), err)
	}
}

// A secret across the limit of the body is not cut into a readable half.
func TestHTTPSecretAtTheLimit(t *testing.T) {
	for _, zip := range []bool{false, true} {
		w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
			body := []byte(strings.Repeat(secret, 3) + strings.Repeat("-", 40) + secret + secret)
			if zip {
				rw.Header().Set("Content-Encoding", "gzip")
				body = gzipped(body)
			}
			for _, b := range body { // as many chunks as can be
				rw.Write([]byte{b})
				rw.(http.Flusher).Flush()
			}
		})
		w.names["example.com"] = [][]string{{publicAddr}}
		port, _ := openHTTP(t, w.egress(), grantHTTP(t, capability.HTTPConfig{
			Hosts: []string{"https://example.com"}, Secrets: []capability.SecretBinding{{Name: "api", From: "env:X", Host: "https://example.com"}},
		}, "api"))
		for limit := range 3*len(secret) + 45 {
			_, body, _, err := port.Fetch(t.Context(), abi.HTTPFetchRequest{Method: "GET", URL: "https://example.com/"},
				abi.HTTPBudget{Requests: 1, BodyBytes: int64(limit), Timeout: 10 * time.Second})
			if err != nil || len(body) > limit || strings.Contains(string(body), secret[:3]) {
				t.Fatalf("limit %d: %q, %v", limit, body, err)
			}
		}
	}
}

// A hand that cannot know the operator's servers leaves them to the operator.
func TestAnyHostIsWhatTheOperatorAllows(t *testing.T) {
	ask := capability.HTTPRequest{Hosts: []string{abi.AnyHost}}
	grant, err := capability.NewHTTPGrant(ask, capability.HTTPConfig{Hosts: []string{"https://feeds.example/news"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(grant.Hosts()); got != "[https://feeds.example/news]" {
		t.Errorf("got %s", got)
	}
	for _, asked := range [][]string{{abi.AnyHost, "https://feeds.example"}, {"*.example"}, {}} {
		if _, err := capability.NewHTTPGrant(capability.HTTPRequest{Hosts: asked}, capability.HTTPConfig{Hosts: []string{"https://feeds.example"}}, nil); err == nil {
			t.Errorf("%q is granted", asked)
		}
	}
	if _, err := capability.NewHTTPGrant(ask, capability.HTTPConfig{}, nil); err == nil {
		t.Error("any host is granted where the operator allows none")
	}
}

func TestHTTPGrantErrors(t *testing.T) {
	good := capability.SecretBinding{Name: "api", From: "env:X", Host: "https://a.example"}
	with := func(change func(*capability.SecretBinding)) []capability.SecretBinding {
		b := good
		change(&b)
		return []capability.SecretBinding{b}
	}
	ask := capability.HTTPRequest{Hosts: []string{"https://a.example"}, Secrets: []string{"api"}}
	hosts := []string{"https://*.example", "https://a.example"}[1:]
	load := func(from string) (string, error) {
		switch from {
		case "env:SHORT":
			return "1234567\n", nil
		case "env:BINARY":
			return "binary\x00binary", nil
		case "env:X":
			return secret, nil
		}
		return capability.LoadSecret(from)
	}
	for name, test := range map[string]struct {
		ask    capability.HTTPRequest
		config capability.HTTPConfig
		want   string
	}{
		"bad rule in the manifest": {capability.HTTPRequest{Hosts: []string{"ftp://a.example"}}, capability.HTTPConfig{Hosts: hosts}, `manifest's hosts: host rule "ftp://a.example"`},
		"bad rule":                 {ask, capability.HTTPConfig{Hosts: []string{"a.example"}}, `host rule "a.example"`},
		"nothing in common":        {ask, capability.HTTPConfig{Hosts: []string{"https://b.example"}}, "https://b.example/"},
		"bad private":              {ask, capability.HTTPConfig{Hosts: hosts, AllowPrivate: []string{"10.0.0.0/8"}}, `allow_private "10.0.0.0/8"`},
		"not asked for":            {ask, capability.HTTPConfig{Hosts: hosts, Secrets: with(func(b *capability.SecretBinding) { b.Name = "other" })}, `secret "other"`},
		"no host":                  {ask, capability.HTTPConfig{Hosts: hosts, Secrets: with(func(b *capability.SecretBinding) { b.Host = "" })}, `secret "api": host rule ""`},
		"wildcard":                 {ask, capability.HTTPConfig{Hosts: hosts, Secrets: with(func(b *capability.SecretBinding) { b.Host = "https://*.a.example" })}, "name one host"},
		"in the clear":             {ask, capability.HTTPConfig{Hosts: hosts, Secrets: with(func(b *capability.SecretBinding) { b.Host = "http://a.example" })}, "insecure = true"},
		"header of the host":       {ask, capability.HTTPConfig{Hosts: hosts, Secrets: with(func(b *capability.SecretBinding) { b.Header = "Host" })}, `"Host"`},
		"format":                   {ask, capability.HTTPConfig{Hosts: hosts, Secrets: with(func(b *capability.SecretBinding) { b.Format = "Bearer" })}, `"Bearer"`},
		"short":                    {ask, capability.HTTPConfig{Hosts: hosts, Secrets: with(func(b *capability.SecretBinding) { b.From = "env:SHORT" })}, "7 bytes"},
		"binary":                   {ask, capability.HTTPConfig{Hosts: hosts, Secrets: with(func(b *capability.SecretBinding) { b.From = "env:BINARY" })}, "printable"},
		"absent variable":          {ask, capability.HTTPConfig{Hosts: hosts, Secrets: with(func(b *capability.SecretBinding) { b.From = "env:GLOVEBOX_ABSENT" })}, "GLOVEBOX_ABSENT"},
		"absent file":              {ask, capability.HTTPConfig{Hosts: hosts, Secrets: with(func(b *capability.SecretBinding) { b.From = "file:/absent" })}, "/absent"},
		"directory":                {ask, capability.HTTPConfig{Hosts: hosts, Secrets: with(func(b *capability.SecretBinding) { b.From = "file:." })}, "regular"},
		"literal":                  {ask, capability.HTTPConfig{Hosts: hosts, Secrets: with(func(b *capability.SecretBinding) { b.From = secret })}, "env:NAME or file:PATH"},
		"twice":                    {ask, capability.HTTPConfig{Hosts: hosts, Secrets: []capability.SecretBinding{good, good}}, "already"},
		"bad request":              {capability.HTTPRequest{Hosts: hosts, Secrets: []string{"API key"}}, capability.HTTPConfig{Hosts: hosts}, `"API key"`},
		"asked twice":              {capability.HTTPRequest{Hosts: hosts, Secrets: []string{"a", "a"}}, capability.HTTPConfig{Hosts: hosts}, "twice"},
	} {
		_, err := capability.NewHTTPGrant(test.ask, test.config, load)
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
	path := filepath.Join(t.TempDir(), "token")
	write(t, path, secret+"\n")
	if _, err := capability.NewHTTPGrant(ask, capability.HTTPConfig{Hosts: hosts, Secrets: with(func(b *capability.SecretBinding) { b.From = "file:" + path })}, nil); err != nil {
		t.Errorf("a file: %v", err)
	}
}
