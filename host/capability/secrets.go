package capability

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/textproto"
	"os"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// SecretBinding gives a secret that a hand asks for to one host. The hand never
// sees the value: the host puts it into the requests that go there.
//
// What answers a request could send the secret back. The host redacts the value
// from headers, bodies and errors, in plain, hexadecimal, base64 and percent
// form and as escaped in JSON. That is best effort: a server that encrypts,
// reverses or splits what it echoes gives the secret away. Bind secrets to
// hosts that do not.
type SecretBinding struct {
	// Name is the secret's in the manifest, which also may suggest Header and
	// Format.
	Name string
	// From is "env:NAME" or "file:PATH". Spaces and newlines at the end are
	// cut off.
	From string
	// Host is where it may be sent: a HostRule without methods and wildcard.
	Host string
	// Header is the header's name; "" means the manifest's suggestion, else
	// Authorization.
	Header string
	// Format is the header's value, with {} in place of the secret, as in
	// "Bearer {}". "" means the manifest's suggestion, else "{}".
	Format string
	// Insecure lets it be sent over http, where everybody on the way can read
	// it.
	Insecure bool
}

// SecretRequest is how a manifest asks for a secret.
type SecretRequest struct {
	Name, Header, Format string
}

// ParseSecretRequest reads an entry of a manifest's secrets: "NAME", or
// "NAME HEADER", or "NAME HEADER: FORMAT", as in
// "github Authorization: Bearer {}".
func ParseSecretRequest(text string) (SecretRequest, error) {
	name, rest, _ := strings.Cut(text, " ")
	header, format, hasFormat := strings.Cut(rest, ": ")
	r := SecretRequest{name, header, format}
	var err error
	switch {
	case !validSecretName(name):
		err = errors.New("a name is 1 to 63 of a-z, 0-9, - and _")
	case rest != "" && !validSecretHeader(header):
		err = fmt.Errorf("%q is not a header that can carry a secret", shorten(header))
	case hasFormat && !validFormat(format):
		err = errors.New("a format is the header's value with {} once in place of the secret")
	}
	if err != nil {
		return SecretRequest{}, fmt.Errorf("secret %q: %w", shorten(text), err)
	}
	return r, nil
}

func validSecretName(name string) bool {
	return name != "" && len(name) <= 63 && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_'
	})
}

func validSecretHeader(name string) bool {
	return len(name) <= 100 && httpguts.ValidHeaderFieldName(name) && reservedHeader(name) == ""
}

func validFormat(format string) bool {
	return len(format) <= 200 && strings.Count(format, "{}") == 1 && httpguts.ValidHeaderFieldValue(format)
}

// SecretLoader reads the value that a SecretBinding's From names.
type SecretLoader func(from string) (string, error)

// Bounds of a secret. A shorter one could not be told from other text.
const (
	minSecretBytes = 8
	maxSecretBytes = 4 << 10
)

// LoadSecret reads "env:NAME" from the environment and "file:PATH" from a
// regular file of at most 16 KiB. Errors never hold the value.
func LoadSecret(from string) (string, error) {
	kind, name, err := secretSource(from)
	if err != nil {
		return "", err
	}
	if kind == "file" {
		return readSecret(name)
	}
	value, ok := os.LookupEnv(name)
	if !ok {
		return "", fmt.Errorf("the environment has no %s", name)
	}
	return value, nil
}

// NameSecret is a SecretLoader that reads nothing, for who binds a secret which another
// process reads. Its error is that of LoadSecret for what is no place of a secret, and
// may be one.
func NameSecret(from string) (string, error) {
	_, _, err := secretSource(from)
	return "not read before it is needed", err
}

func secretSource(from string) (kind, name string, err error) {
	kind, name, _ = strings.Cut(from, ":")
	if kind != "env" && kind != "file" || name == "" {
		return "", "", errors.New("a secret comes from env:NAME or file:PATH")
	}
	return kind, name, nil
}

func readSecret(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	const most = 16 << 10
	if !info.Mode().IsRegular() || info.Size() > most {
		return "", fmt.Errorf("%s: not a regular file of at most %d bytes", path, most)
	}
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, most))
	return string(data), err
}

// boundSecret is a binding with its value.
type boundSecret struct {
	name   string
	header string
	where  HostRule
	// whole is the header's value, with the secret in it.
	whole, value string
}

// secretSet is the secrets of one grant.
type secretSet struct {
	bound    []boundSecret
	redactor redactor
}

// bindSecrets matches what is asked for with what is bound. What nobody bound
// is left out, since a hand may do without.
func bindSecrets(asked []string, bindings []SecretBinding, load SecretLoader) (*secretSet, error) {
	requests := map[string]SecretRequest{}
	for _, text := range asked {
		r, err := ParseSecretRequest(text)
		if err != nil {
			return nil, err
		}
		if _, twice := requests[r.Name]; twice {
			return nil, fmt.Errorf("secret %q is asked for twice", r.Name)
		}
		requests[r.Name] = r
	}
	var set secretSet
	for _, b := range bindings {
		s, err := b.bind(requests, load)
		if err != nil {
			return nil, fmt.Errorf("secret %q: %w", shorten(b.Name), err)
		}
		if slices.ContainsFunc(set.bound, func(o boundSecret) bool { return o.header == s.header && o.where.overlaps(s.where) }) {
			return nil, fmt.Errorf("secret %q: another one already goes into %s for %s", b.Name, s.header, s.where.host)
		}
		set.bound = append(set.bound, s)
		set.redactor.add(s.value)
	}
	return &set, nil
}

func (b SecretBinding) bind(requests map[string]SecretRequest, load SecretLoader) (boundSecret, error) {
	request, ok := requests[b.Name]
	if !ok {
		return boundSecret{}, errors.New("the manifest does not ask for it: remove the binding")
	}
	where, err := ParseHostRule(b.Host)
	if err != nil {
		return boundSecret{}, err
	}
	header := cmp.Or(b.Header, request.Header, "Authorization")
	format := cmp.Or(b.Format, request.Format, "{}")
	switch {
	case strings.Contains(b.Host, " "), where.wildcard:
		return boundSecret{}, fmt.Errorf("it is bound to %q: name one host, without methods", shorten(b.Host))
	case where.scheme != "https" && !b.Insecure:
		return boundSecret{}, fmt.Errorf("%s would send it in the clear: use https, or write insecure = true", where)
	case !validSecretHeader(header):
		return boundSecret{}, fmt.Errorf("%q is not a header that can carry a secret", shorten(header))
	case !validFormat(format):
		return boundSecret{}, fmt.Errorf("format %q: write the header's value with {} once in place of the secret", shorten(format))
	}
	value, err := load(b.From)
	if err != nil {
		return boundSecret{}, err
	}
	value = strings.TrimRight(value, " \t\r\n")
	if len(value) < minSecretBytes || len(value) > maxSecretBytes {
		return boundSecret{}, fmt.Errorf("the value is %d bytes: it must be %d to %d to be found when it is echoed", len(value), minSecretBytes, maxSecretBytes)
	}
	for i := range len(value) {
		if value[i] < ' ' || value[i] > '~' {
			return boundSecret{}, errors.New("the value has a character that is not printable ASCII")
		}
	}
	whole := strings.Replace(format, "{}", value, 1)
	return boundSecret{b.Name, textproto.CanonicalMIMEHeaderKey(header), where, whole, value}, nil
}

// overlaps reports whether some request is of both rules.
func (r HostRule) overlaps(other HostRule) bool {
	_, both := r.intersect(other)
	return both
}

const redacted = "[redacted]"

// redactor finds secrets in what a server sent. It is safe for concurrent use.
type redactor struct {
	spellings []spelling
	// longest is the most bytes that one occurrence can have.
	longest int
}

// spelling is one way to write a secret. Around it, before and after bytes also
// hold bits of it.
type spelling struct {
	text          []byte
	before, after int
}

func (r *redactor) add(value string) {
	lower := hex.EncodeToString([]byte(value))
	all := []spelling{
		{text: []byte(value)},
		{text: []byte(strings.ReplaceAll(value, " ", "+"))}, // as in a query
		{text: []byte(lower)},
		{text: []byte(strings.ToUpper(lower))},
	}
	for _, alphabet := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for shift := range 3 {
			all = append(all, base64Spelling(alphabet, value, shift))
		}
	}
	for _, s := range all {
		if !slices.ContainsFunc(r.spellings, func(o spelling) bool { return bytes.Equal(o.text, s.text) }) {
			r.spellings = append(r.spellings, s)
			// \u0041 is the longest way to write one byte.
			r.longest = max(r.longest, 6*(len(s.text)+s.before+s.after))
		}
	}
}

// base64Spelling is what value looks like in the base64 of a text in which it
// begins shift bytes after a multiple of three. The digits at its ends also
// depend on what is around it.
func base64Spelling(alphabet *base64.Encoding, value string, shift int) spelling {
	digits := alphabet.EncodeToString(append(make([]byte, shift), value...))
	var s spelling
	if shift > 0 {
		// 8 or 16 bits of others fill one or two digits and part of the next.
		digits, s.before = digits[shift+1:], 1
	}
	if (shift+len(value))%3 != 0 {
		digits, s.after = digits[:len(digits)-1], 1
	}
	s.text = []byte(digits)
	return s
}

// view is a way to write text in which one byte can have several.
type view func(text []byte) (b byte, width int)

func percentUnit(text []byte) (byte, int) {
	if text[0] == '%' && len(text) >= 3 {
		high, ok1 := unhex(text[1])
		low, ok2 := unhex(text[2])
		if ok1 && ok2 {
			return high<<4 | low, 3
		}
	}
	return text[0], 1
}

func jsonUnit(text []byte) (byte, int) {
	if text[0] != '\\' || len(text) < 2 {
		return text[0], 1
	}
	switch text[1] {
	case '"', '\\', '/':
		return text[1], 2
	case 'u':
		if len(text) >= 6 && text[2] == '0' && text[3] == '0' {
			high, ok1 := unhex(text[4])
			low, ok2 := unhex(text[5])
			if ok1 && ok2 {
				return high<<4 | low, 6
			}
		}
	}
	return text[0], 1
}

func decode(text []byte, unit view) []byte {
	decoded := make([]byte, 0, len(text))
	for len(text) > 0 {
		b, width := unit(text)
		decoded, text = append(decoded, b), text[width:]
	}
	return decoded
}

type span struct{ from, to int }

// find returns where secrets are, in order and apart from one another. It takes
// time linear in the text.
func (r *redactor) find(text []byte) []span {
	if len(r.spellings) == 0 {
		return nil
	}
	found := r.findPlain(text)
	for _, v := range []struct {
		sign byte
		unit view
	}{{'%', percentUnit}, {'\\', jsonUnit}} {
		if bytes.IndexByte(text, v.sign) < 0 {
			continue
		}
		inside := r.findPlain(decode(text, v.unit))
		found = append(found, encoded(text, v.unit, inside)...)
	}
	return merge(found)
}

func (r *redactor) findPlain(text []byte) []span {
	var found []span
	for _, s := range r.spellings {
		// Almost always nothing is there, and this is fast.
		if !bytes.Contains(text, s.text) {
			continue
		}
		for _, at := range occurrences(text, s.text) {
			found = append(found, span{max(at.from-s.before, 0), min(at.to+s.after, len(text))})
		}
	}
	return merge(found)
}

// occurrences returns where pattern is in text (Knuth, Morris, Pratt). Those
// that touch are one span, so that a text of nothing but secrets needs no memory.
func occurrences(text, pattern []byte) []span {
	border := make([]int, len(pattern)+1)
	border[0] = -1
	for i, k := 0, -1; i < len(pattern); {
		for k >= 0 && pattern[i] != pattern[k] {
			k = border[k]
		}
		i, k = i+1, k+1
		border[i] = k
	}
	var found []span
	for i, k := 0, 0; i < len(text); i++ {
		for k >= 0 && (k == len(pattern) || text[i] != pattern[k]) {
			k = border[k]
		}
		if k++; k < len(pattern) {
			continue
		}
		if n := len(found); n > 0 && i+1-k <= found[n-1].to {
			found[n-1].to = i + 1
		} else {
			found = append(found, span{i + 1 - k, i + 1})
		}
	}
	return found
}

// encoded turns spans of the decoded text, which are in order, into spans of
// the text.
func encoded(text []byte, unit view, spans []span) []span {
	at, index := 0, 0
	advance := func(to int) int {
		for ; index < to; index++ {
			_, width := unit(text[at:])
			at += width
		}
		return at
	}
	for i, s := range spans {
		spans[i] = span{advance(s.from), advance(s.to)}
	}
	return spans
}

func merge(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	merged := spans[:0]
	for _, s := range spans {
		if n := len(merged); n > 0 && s.from <= merged[n-1].to {
			merged[n-1].to = max(merged[n-1].to, s.to)
		} else {
			merged = append(merged, s)
		}
	}
	return merged
}

// redact replaces the secrets in text and drops what begins at cut or later. A
// secret across the cut is replaced as a whole, for which text goes on longest
// bytes beyond it.
func (r *redactor) redact(text []byte, cut int) []byte {
	cut = min(cut, len(text))
	spans := r.find(text)
	if len(spans) == 0 {
		return text[:cut]
	}
	clean := make([]byte, 0, cut)
	from := 0
	for _, s := range spans {
		if s.from >= cut {
			break
		}
		clean = append(append(clean, text[from:s.from]...), redacted...)
		from = s.to
	}
	return append(clean, text[min(from, cut):cut]...)
}

// text is redact for a whole string.
func (r *redactor) text(s string) string { return string(r.redact([]byte(s), len(s))) }

// holds reports whether a secret is in s.
func (r *redactor) holds(s string) bool { return len(r.find([]byte(s))) > 0 }

// inName reports whether a header's name, whose letters servers and parsers
// write as they like, holds a secret.
func (r *redactor) inName(name string) bool {
	lower := strings.ToLower(name)
	return slices.ContainsFunc(r.spellings, func(s spelling) bool { return strings.Contains(lower, strings.ToLower(string(s.text))) })
}
