package capability

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"
)

// HostRule says which requests may be made. Manifests, which ask, and
// configurations, which allow, write it the same way:
//
//	rule    = [ methods " " ] scheme "://" host [ ":" port ] [ path ]
//	methods = METHOD *( "," METHOD )    of GET HEAD POST PUT PATCH DELETE OPTIONS; without: GET,HEAD
//	scheme  = "https" / "http"
//	host    = name / "*." name / IPv4 / "[" IPv6 "]"
//	port    = 1 to 65535; without: 443 for https, 80 for http
//	path    = "/" ...; without: "/"
//
// A path is a prefix of whole segments: "/v1" allows /v1 and /v1/users, but not
// /v10; "/v1/" does not allow /v1 itself. "*." stands for one or more labels,
// never for none, and not below a public suffix such as co.uk or github.io,
// where anybody can have a name. An address stands for its one usual spelling.
//
//	https://api.example.com
//	GET,POST https://*.example.com/v1/
//	http://10.0.0.5:8080      (and allow_private must list 10.0.0.5:8080)
//
// The zero value allows nothing. Rules can be compared with ==.
type HostRule struct {
	methods  methodSet
	scheme   string
	host     string // as in target; without the "*." of a wildcard
	wildcard bool
	port     uint16
	path     string // normal, as in target
}

// methodSet has one bit for each of methods.
type methodSet uint8

// methods are those that a rule can allow. CONNECT and TRACE are not among
// them: one is a tunnel, the other shows credentials.
var methods = [...]string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

const defaultMethods methodSet = 1<<0 | 1<<1

// methodOf returns the set of one method, or 0 if no rule can allow it.
func methodOf(name string) methodSet {
	if i := slices.Index(methods[:], name); i >= 0 {
		return 1 << i
	}
	return 0
}

func (s methodSet) String() string {
	var names []string
	for i, name := range methods {
		if s&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// ParseHostRule reads one rule. The error names the rule and what is wrong
// with it.
func ParseHostRule(text string) (HostRule, error) {
	r, err := parseHostRule(text)
	if err != nil {
		return HostRule{}, fmt.Errorf("host rule %q: %w", shorten(text), err)
	}
	return r, nil
}

func parseHostRule(text string) (HostRule, error) {
	r := HostRule{methods: defaultMethods}
	pattern := text
	if names, rest, found := strings.Cut(text, " "); found {
		r.methods, pattern = 0, rest
		for name := range strings.SplitSeq(names, ",") {
			m := methodOf(name)
			if m == 0 {
				return r, fmt.Errorf("%q is not a method that can be allowed: use %s, separated by commas", shorten(name), methodSet(1<<len(methods)-1))
			}
			r.methods |= m
		}
	}
	if strings.ContainsAny(pattern, "?#") {
		return r, errors.New("a rule has no query and no fragment")
	}
	// The wildcard is no character of a host, so it is read here.
	if scheme, rest, found := strings.Cut(pattern, "://*."); found {
		r.wildcard, pattern = true, scheme+"://"+rest
	}
	if strings.Contains(pattern, "*") {
		return r, errors.New(`"*" stands only for the first labels of a host, as in https://*.example.com; a path is a prefix as it is`)
	}
	t, err := parseTarget(pattern)
	if err != nil {
		return r, err
	}
	if r.wildcard {
		if t.addr.IsValid() {
			return r, errors.New("an address has no wildcard")
		}
		if suffix, _ := publicsuffix.PublicSuffix(t.host); suffix == t.host {
			return r, fmt.Errorf("anybody can have a name below %s: name one level more", t.host)
		}
	}
	r.scheme, r.host, r.port, r.path = t.scheme, t.host, t.port, t.path
	return r, nil
}

// maxHostRules bounds a list: lists are intersected pair by pair.
const maxHostRules = 100

// ParseHostRules reads a list of at most 100 rules.
func ParseHostRules(texts []string) ([]HostRule, error) {
	if len(texts) > maxHostRules {
		return nil, fmt.Errorf("%d host rules: at most %d are allowed", len(texts), maxHostRules)
	}
	rules := make([]HostRule, 0, len(texts))
	for _, text := range texts {
		r, err := ParseHostRule(text)
		if err != nil {
			return nil, err
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// String writes the rule so that ParseHostRule reads the same one.
func (r HostRule) String() string {
	if r.methods == 0 {
		return "nothing"
	}
	var b strings.Builder
	if r.methods != defaultMethods {
		b.WriteString(r.methods.String() + " ")
	}
	host := r.host
	if r.wildcard {
		host = "*." + host
	}
	b.WriteString(r.scheme + "://" + authority(r.scheme, host, r.port) + r.path)
	return b.String()
}

// Allows reports whether the rule allows a request. A URL that is not a proper
// one is not allowed.
func (r HostRule) Allows(method, rawURL string) bool {
	t, err := parseTarget(rawURL)
	return err == nil && r.methods&methodOf(method) != 0 && r.covers(t)
}

// covers is Allows for any method.
func (r HostRule) covers(t target) bool {
	return r.scheme == t.scheme && r.port == t.port && r.coversHost(t.host, false) && pathWithin(r.path, t.path)
}

// coversHost reports whether all names that host stands for are the rule's.
func (r HostRule) coversHost(host string, wildcard bool) bool {
	if !r.wildcard {
		return r.host == host && !wildcard
	}
	return strings.HasSuffix(host, "."+r.host) || wildcard && r.host == host
}

// pathWithin reports whether path begins with the segments of prefix.
func pathWithin(prefix, path string) bool {
	rest, found := strings.CutPrefix(path, prefix)
	return found && (rest == "" || strings.HasSuffix(prefix, "/") || rest[0] == '/')
}

// Intersect returns rules that allow exactly what some rule of asked and some
// rule of allowed allow both.
func Intersect(asked, allowed []HostRule) []HostRule {
	var both []HostRule
	for _, a := range asked {
		for _, b := range allowed {
			if r, ok := a.intersect(b); ok && !slices.Contains(both, r) {
				both = append(both, r)
			}
		}
	}
	return both
}

func (r HostRule) intersect(other HostRule) (HostRule, bool) {
	both := r
	both.methods &= other.methods
	if both.methods == 0 || r.scheme != other.scheme || r.port != other.port {
		return HostRule{}, false
	}
	switch {
	case r.coversHost(other.host, other.wildcard):
		both.host, both.wildcard = other.host, other.wildcard
	case !other.coversHost(r.host, r.wildcard):
		return HostRule{}, false
	}
	switch {
	case pathWithin(r.path, other.path):
		both.path = other.path
	case !pathWithin(other.path, r.path):
		return HostRule{}, false
	}
	return both, true
}

// target is a URL that was understood completely, in one normal form.
type target struct {
	scheme string // "https" or "http"
	// host is a name in lower-case ASCII or an address in its usual form,
	// without brackets.
	host string
	addr netip.Addr // of a host that is an address
	port uint16
	// path begins with "/" and is percent-encoded exactly where it must be,
	// in upper case, without "." and ".." in any spelling.
	path  string
	query string // as it is sent; with its "?", if there is one
}

// maxURLBytes is what servers commonly take.
const maxURLBytes = 8 << 10

// parseTarget reads a URL more strictly than package net/url: where two parsers
// could disagree about the host or the path, it is an error.
func parseTarget(raw string) (target, error) {
	var t target
	if len(raw) > maxURLBytes {
		return t, fmt.Errorf("the URL is %d bytes: at most %d are allowed", len(raw), maxURLBytes)
	}
	if !utf8.ValidString(raw) {
		return t, errors.New("the URL is not UTF-8")
	}
	for _, r := range raw {
		switch {
		case r == ' ', !unicode.IsPrint(r):
			return t, fmt.Errorf("the URL has the character %U in it", r)
		case r == '\\':
			return t, errors.New(`the URL has a "\" in it`)
		case r == '#':
			return t, errors.New("the URL has a fragment, which is never sent")
		}
	}
	scheme, rest, found := strings.Cut(raw, "://")
	t.scheme = strings.ToLower(scheme)
	if !found || t.scheme != "https" && t.scheme != "http" {
		return t, errors.New("the URL does not begin with https:// or http://")
	}
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	if err := t.setAuthority(rest[:end]); err != nil {
		return t, err
	}
	path, query, found := strings.Cut(rest[end:], "?")
	var err error
	if t.path, err = normalPath(path); err != nil {
		return t, err
	}
	if found {
		t.query = "?" + escape(query, func(c byte) bool { return c != '"' && c != '<' && c != '>' && c != '`' })
	}
	return t, nil
}

func (t *target) setAuthority(text string) error {
	if strings.Contains(text, "@") {
		return errors.New("the URL has a user name in it")
	}
	host, port := text, ""
	hasPort := false
	if strings.HasPrefix(text, "[") {
		inside, after, found := strings.Cut(text[1:], "]")
		if !found {
			return errors.New(`the host has a "[" without "]"`)
		}
		addr, err := netip.ParseAddr(inside)
		if err != nil || !addr.Is6() || addr.Zone() != "" {
			return errors.New("the host in brackets is not an IPv6 address without a zone")
		}
		t.host, t.addr = addr.String(), addr
		if after != "" && after[0] != ':' {
			return errors.New(`something other than a port follows "]"`)
		}
		if hasPort = after != ""; hasPort {
			port = after[1:]
		}
	} else {
		host, port, hasPort = strings.Cut(text, ":")
		var err error
		if t.host, t.addr, err = normalHost(host); err != nil {
			return err
		}
	}
	t.port = defaultPort(t.scheme)
	if hasPort {
		var err error
		if t.port, err = parsePort(port); err != nil {
			return err
		}
	}
	return nil
}

func parsePort(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 || text[0] == '0' {
		return 0, errors.New("the port is not a number from 1 to 65535")
	}
	return uint16(n), nil
}

func defaultPort(scheme string) uint16 {
	if scheme == "http" {
		return 80
	}
	return 443
}

// normalHost reads a name or an IPv4 address. Names beyond ASCII are mapped
// first, as browsers do: a full-width digit is a digit.
func normalHost(host string) (string, netip.Addr, error) {
	ascii := strings.ToLower(host)
	if strings.Contains(ascii, "xn--") || strings.ContainsFunc(ascii, func(r rune) bool { return r >= utf8.RuneSelf }) {
		var err error
		if ascii, err = idna.Lookup.ToASCII(host); err != nil {
			return "", netip.Addr{}, errors.New("the host is not a valid international name")
		}
	}
	if ascii == "" || len(ascii) > 253 {
		return "", netip.Addr{}, errors.New("the host is empty or longer than 253 bytes")
	}
	last := ascii[strings.LastIndexByte(ascii, '.')+1:]
	if isNumber(last) {
		// Only 1.2.3.4 is an address. 1.2.772, 0x7f.1, 017700000001 and the
		// like mean one to some resolvers.
		addr, err := netip.ParseAddr(ascii)
		if err != nil {
			return "", netip.Addr{}, errors.New("the host is a number but not an address in the form 1.2.3.4")
		}
		return addr.String(), addr, nil
	}
	for label := range strings.SplitSeq(ascii, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return "", netip.Addr{}, errors.New(`the host has a label that is empty, longer than 63 bytes or has a "-" at its end`)
		}
		for i := range len(label) {
			if c := label[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return "", netip.Addr{}, fmt.Errorf("the host has a %q in it", c)
			}
		}
	}
	return ascii, netip.Addr{}, nil
}

// isNumber is the test of the URL standard for a host that must be an address.
func isNumber(label string) bool {
	digits, hex := strings.CutPrefix(label, "0x")
	if label == "" {
		return false
	}
	for i := range len(digits) {
		if _, ok := unhex(digits[i]); !ok || !hex && digits[i] > '9' {
			return false
		}
	}
	return true
}

// normalPath gives a path its one spelling and refuses segments that a server
// could take as a way upwards.
func normalPath(path string) (string, error) {
	if path == "" {
		return "/", nil
	}
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		c := path[i]
		if c != '%' {
			b.WriteString(escape(path[i:i+1], isPathByte))
			continue
		}
		if i+2 >= len(path) {
			return "", errors.New(`the path has a "%" without two hexadecimal digits`)
		}
		high, ok1 := unhex(path[i+1])
		low, ok2 := unhex(path[i+2])
		if !ok1 || !ok2 {
			return "", errors.New(`the path has a "%" without two hexadecimal digits`)
		}
		if c := high<<4 | low; isUnreserved(c) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
		i += 2
	}
	normal := b.String()
	// Some servers decode more than once, take "\" for "/" or cut ";..." off.
	for decoded, rounds := normal, 0; rounds < 4; rounds++ {
		for segment := range strings.FieldsFuncSeq(decoded, func(r rune) bool { return r == '/' || r == '\\' }) {
			if name, _, _ := strings.Cut(segment, ";"); name == "." || name == ".." {
				return "", errors.New(`the path has a segment "." or ".."`)
			}
		}
		if strings.ContainsFunc(decoded, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return "", errors.New("the path has a control character in it")
		}
		next := string(decode([]byte(decoded), percentUnit))
		if next == decoded {
			break
		}
		decoded = next
	}
	return normal, nil
}

// escape percent-encodes what is not visible ASCII or not kept.
func escape(text string, keep func(byte) bool) string {
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; c > ' ' && c < 0x7f && keep(c) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func isUnreserved(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~", c) >= 0
}

func isPathByte(c byte) bool { return isUnreserved(c) || strings.IndexByte("/!$&'()*+,;=:@", c) >= 0 }

func unhex(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

// origin is what credentials belong to.
func (t target) origin() string { return t.scheme + "://" + t.hostPort() }

// hostPort always has the port.
func (t target) hostPort() string {
	if strings.Contains(t.host, ":") {
		return "[" + t.host + "]:" + strconv.Itoa(int(t.port))
	}
	return t.host + ":" + strconv.Itoa(int(t.port))
}

// withoutQuery is what the audit keeps: a query often holds what is asked for.
func (t target) withoutQuery() string { return t.origin() + t.path }

func (t target) String() string {
	return t.scheme + "://" + authority(t.scheme, t.host, t.port) + t.path + t.query
}

func authority(scheme, host string, port uint16) string {
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port != defaultPort(scheme) {
		host += ":" + strconv.Itoa(int(port))
	}
	return host
}

// shorten keeps a foreign text from filling an error.
func shorten(text string) string {
	const most = 200
	if len(text) <= most {
		return text
	}
	return text[:most] + "..."
}
