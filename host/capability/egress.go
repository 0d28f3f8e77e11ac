package capability

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"code.dny.dev/ssrf"

	"github.com/gloveboxhq/glovebox/abi"
)

// Egress is how requests of hands leave this machine. One is shared by all
// hands; it holds no connection. The zero value uses the system's resolver,
// network and roots of trust. It is not changed after its first use.
type Egress struct {
	// Lookup returns the addresses of a name that is not an address itself.
	// Nil asks the system's resolver.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
	// Dial connects to an address and port that were checked. Nil means TCP
	// from this machine, where the address is checked once more before the
	// first packet.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// RootCAs is what TLS certificates are verified against; nil means the
	// system's.
	RootCAs *x509.CertPool

	// own returns the addresses of this machine; nil asks it.
	own func() ([]netip.Addr, error)
}

// PrivateTarget is one address or name, with its port, where requests may go
// although it is not on the public internet.
type PrivateTarget struct {
	host string
	addr netip.Addr // of a host that is an address
	port uint16
}

// ParsePrivateTarget reads "ADDRESS:PORT" or "NAME:PORT", as in
// "10.0.0.5:8080", "[fd00::5]:443" or "wiki.internal:443". An address is meant
// exactly. A name may resolve to loopback, private and shared (RFC 6598)
// addresses; link-local ones, where clouds keep their credentials, must be
// listed as addresses.
func ParsePrivateTarget(text string) (PrivateTarget, error) {
	t := target{scheme: "http"}
	err := t.setAuthority(text)
	switch {
	case err != nil:
	case !strings.HasSuffix(text, fmt.Sprint(":", t.port)):
		err = errors.New("it has no port")
	case t.addr.IsUnspecified(), t.addr.IsMulticast(), t.addr.Is4In6(), t.addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		err = errors.New("it is not the address of one machine")
	}
	if err != nil {
		return PrivateTarget{}, fmt.Errorf("allow_private %q: %w: write an address or a name and a port, as in 10.0.0.5:8080", shorten(text), err)
	}
	return PrivateTarget{t.host, t.addr, t.port}, nil
}

// String returns what ParsePrivateTarget reads.
func (p PrivateTarget) String() string { return target{host: p.host, port: p.port}.hostPort() }

// allows reports whether the target opens the way to addr, which t's host
// resolved to and which is of the given class.
func (p PrivateTarget) allows(t target, addr netip.Addr, c addressClass) bool {
	if p.port != t.port || c == classNever {
		return false
	}
	if p.addr.IsValid() {
		return p.addr == addr
	}
	return p.host == t.host && c == classPrivate
}

// addressClass says how closed an address is.
type addressClass int

const (
	classPublic addressClass = iota
	// classPrivate can be opened by name or by address, classListed by
	// address alone, classNever not at all.
	classPrivate
	classListed
	classNever
)

// guard has the tables of the IANA special-purpose registries, and for IPv6
// takes nothing but global unicast. It is asked for what classify does not name.
//
// 168.63.129.16 is a public address at which each machine of one large cloud
// finds its own control plane.
var guard = ssrf.New(ssrf.WithAnyNetwork(), ssrf.WithAnyPort(),
	ssrf.WithDeniedV4Prefixes(netip.MustParsePrefix("168.63.129.16/32")))

var (
	sharedSpace = netip.MustParsePrefix("100.64.0.0/10")
	localNAT64  = netip.MustParsePrefix("64:ff9b:1::/48")
)

// classify returns how closed addr is and why. Addresses that carry an IPv4
// address in them (mapped, compatible, NAT64, 6to4, Teredo) are never opened:
// who means that address can write it. The one exception is the well-known
// NAT64 prefix before a public address, which is all that DNS64 networks have.
// NAT64 prefixes that a network chose itself cannot be told from others.
func classify(addr netip.Addr) (addressClass, string) {
	switch {
	case !addr.IsValid(), addr.Zone() != "":
		return classNever, "not a plain address"
	case addr.Is4In6():
		return classNever, "an IPv4-mapped address"
	case addr.IsUnspecified():
		return classNever, "the unspecified address"
	case addr.IsMulticast():
		return classNever, "a multicast address"
	case addr.IsLoopback():
		return classPrivate, "a loopback address"
	case addr.IsPrivate():
		return classPrivate, "a private address"
	case sharedSpace.Contains(addr):
		return classPrivate, "an address of shared space (RFC 6598)"
	case addr.IsLinkLocalUnicast():
		return classListed, "a link-local address"
	case localNAT64.Contains(addr):
		return classNever, "a local NAT64 address"
	case ssrf.IPv6NAT64Prefix.Contains(addr):
		bytes := addr.As16()
		if class, why := classify(netip.AddrFrom4([4]byte(bytes[12:]))); class != classPublic {
			return classNever, "NAT64 of " + why
		}
		return classPublic, ""
	}
	if err := guard.SafeAddr(addr); err != nil {
		class := classListed
		if addr.Is6() {
			class = classNever
		}
		return class, "an address of a special-purpose range"
	}
	return classPublic, ""
}

// maxAddresses bounds what one name may resolve to.
const maxAddresses = 32

// errUnresolved says that a name has no address now.
var errUnresolved = errors.New("the name does not resolve")

// resolve returns the addresses at which t may be asked, each checked. One
// forbidden address among several refuses all: that is how rebinding is tried.
func (e *Egress) resolve(ctx context.Context, t target, private []PrivateTarget) ([]netip.Addr, *refusal, error) {
	addrs := []netip.Addr{t.addr}
	if !t.addr.IsValid() {
		lookup := e.Lookup
		if lookup == nil {
			lookup = systemLookup
		}
		var err error
		if addrs, err = lookup(ctx, t.host); err != nil {
			if ctx.Err() != nil {
				return nil, nil, ctx.Err()
			}
			return nil, nil, errUnresolved
		}
	}
	if len(addrs) == 0 {
		return nil, nil, errUnresolved
	}
	addrs = addrs[:min(len(addrs), maxAddresses)]
	own := e.own
	if own == nil {
		own = interfaceAddrs
	}
	ours, err := own()
	if err != nil {
		return nil, nil, fmt.Errorf("addresses of this machine: %w", err)
	}
	for _, addr := range addrs {
		class, why := classify(addr)
		if class == classPublic && slices.Contains(ours, addr) {
			// A service here may trust what comes from here.
			class, why = classPrivate, "an address of this machine"
		}
		if class == classPublic || slices.ContainsFunc(private, func(p PrivateTarget) bool { return p.allows(t, addr, class) }) {
			continue
		}
		reason := fmt.Sprintf("the host is at %s, %s", addr, why)
		if class != classNever {
			reason += fmt.Sprintf("; allow_private = [%q] would open it", netip.AddrPortFrom(addr, t.port))
		}
		return nil, &refusal{kind: abi.KindDenied, reason: reason}, nil
	}
	return addrs, nil, nil
}

// systemLookup takes a name with a dot in it as complete, so that no search
// list of this machine leads to another host.
func systemLookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if strings.Contains(host, ".") {
		host += "."
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	for i, addr := range addrs {
		// The resolver writes IPv4 in 16 bytes.
		addrs[i] = addr.Unmap()
	}
	return addrs, err
}

func interfaceAddrs() ([]netip.Addr, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var addrs []netip.Addr
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok {
			if addr, ok := netip.AddrFromSlice(n.IP); ok {
				addrs = append(addrs, addr.Unmap())
			}
		}
	}
	return addrs, nil
}

// pinned is where a request goes: to none but the addresses that were checked.
type pinned struct {
	target target
	addrs  []netip.Addr
	// permit is asked before each connection is made.
	permit func() error
}

type pinnedKey struct{}

var errNotPinned = errors.New("the address is not the one that was checked")

// dial is the transport's way out. What it may reach travels in the request's
// context.
func (e *Egress) dial(ctx context.Context, network, hostPort string) (net.Conn, error) {
	p, ok := ctx.Value(pinnedKey{}).(pinned)
	if !ok || p.target.hostPort() != hostPort {
		return nil, errNotPinned
	}
	if err := p.permit(); err != nil {
		return nil, err
	}
	connect := e.Dial
	if connect == nil {
		connect = (&net.Dialer{ControlContext: p.control}).DialContext
	}
	var last error
	for i, addr := range p.addrs {
		conn, err := func() (net.Conn, error) {
			attempt, cancel := context.WithDeadline(ctx, share(ctx, len(p.addrs)-i))
			defer cancel()
			return connect(attempt, network, netip.AddrPortFrom(addr, p.target.port).String())
		}()
		if err == nil {
			return conn, nil
		}
		if last = err; ctx.Err() != nil {
			break
		}
	}
	return nil, last
}

// share is when the next of several addresses must have answered: each gets an
// equal part of what time is left.
func share(ctx context.Context, attempts int) time.Time {
	deadline, ok := ctx.Deadline()
	if !ok {
		return time.Now().Add(dialTimeout)
	}
	return time.Now().Add(time.Until(deadline) / time.Duration(attempts))
}

const dialTimeout = 10 * time.Second

// control sees the address that the kernel is about to connect to.
func (p pinned) control(_ context.Context, _, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil || to.Port() != p.target.port || !slices.Contains(p.addrs, to.Addr()) {
		return errNotPinned
	}
	return nil
}

// transport returns a transport for one query of one hand: no other shares its
// connections. It has no cookies and no proxy, speaks HTTP/1.1 only, and
// leaves encodings to its caller. Close its idle connections after the query.
func (e *Egress) transport() *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		Proxy:                  nil,
		DialContext:            e.dial,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: e.RootCAs},
		Protocols:              protocols,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    1,
		IdleConnTimeout:        30 * time.Second,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
}
