package source

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"oras.land/oras-go/v2/registry"
)

// ErrReference says that a reference is not written as it should be. The text
// around it says what is wrong and how to write it.
var ErrReference = errors.New("bad reference")

// Kind is where a reference points.
type Kind string

// The kinds of reference.
const (
	File     Kind = "file"       // a module in a file
	Web      Kind = "https"      // a module behind an https URL
	Registry Kind = "oci"        // an artifact in an OCI registry
	Layout   Kind = "oci-layout" // an artifact in a local OCI layout folder
)

// maxReferenceBytes bounds a reference: what a lock file or a screen can hold.
const maxReferenceBytes = 2048

// DefaultTag is asked for when a reference to a registry has neither tag nor
// digest.
const DefaultTag = "latest"

const (
	pinPrefix    = "sha256:"
	ociScheme    = "oci://"
	layoutPrefix = "oci:"
)

// Reference says where a module is. It is made by Parse; the zero value points
// nowhere.
type Reference struct {
	kind Kind
	// path is that of a file or of a layout folder.
	path string
	// url is that of a module, without a fragment.
	url *url.URL
	// host and repository name an artifact's place in a registry.
	host, repository string
	// tag is empty if none is written.
	tag string
	// pin is the digest that is written, "sha256:…": that of the module for File
	// and Web, that of the artifact's manifest for Registry and Layout.
	pin string
}

// Kind returns where r points; "" for the zero value.
func (r Reference) Kind() Kind { return r.kind }

// Pin returns the digest that the reference holds what is fetched to, as
// "sha256:" and 64 hexadecimal digits, or "". For File and Web it is that of
// the module, for Registry and Layout that of the artifact's manifest.
func (r Reference) Pin() string { return r.pin }

// Tag returns the tag that the reference names, or "". Beside a digest it is a
// label alone: the digest decides.
func (r Reference) Tag() string { return r.tag }

// String returns the reference as Parse reads it.
func (r Reference) String() string {
	text, digest := "", ""
	switch r.kind {
	case File:
		text, digest = r.path, "#"
	case Web:
		text, digest = r.url.String(), "#"
	case Registry:
		text, digest = ociScheme+r.host+"/"+r.repository, "@"
	case Layout:
		text, digest = layoutPrefix+r.path, "@"
	}
	if r.tag != "" {
		text += ":" + r.tag
	}
	if r.pin != "" {
		text += digest + r.pin
	}
	return text
}

// pinned returns r held to a digest.
func (r Reference) pinned(digest string) Reference {
	r.pin = digest
	return r
}

// check refuses a reference that does not read back as itself: the folder that
// a relative path is in can have any name.
func (r Reference) check() error {
	if again, err := Parse(r.String()); err != nil || again.String() != r.String() || again.kind != r.kind || again.path != r.path {
		return fmt.Errorf("%w: %q cannot be written down: rename the folder", ErrReference, r.path)
	}
	return nil
}

// loopback reports whether r is behind a server of this machine, where http may
// do.
func (r Reference) loopback() bool {
	switch r.kind {
	case Web:
		return isLoopback(r.url.Hostname())
	case Registry:
		return isLoopback((&url.URL{Host: r.host}).Hostname())
	}
	return false
}

// isLoopback reports whether a host without its port is this machine.
func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.Unmap().IsLoopback()
}

// Parse reads a reference:
//
//	FILE[#sha256:HEX]                       a module in a file
//	https://HOST/PATH[#sha256:HEX]          a module on a web server
//	oci://REGISTRY/REPOSITORY[:TAG][@sha256:HEX]
//	oci:DIR[:TAG][@sha256:HEX]              a local OCI layout folder
//
// An http URL is read too if its host is this machine; Fetch takes it only
// with Options.PlainHTTP. A path may hold a colon, but the last name of a
// layout's path may not: what stands behind it is the tag. Every error is
// ErrReference.
func Parse(text string) (Reference, error) {
	if err := printable(text); err != nil {
		return Reference{}, err
	}
	ref, err := parse(text)
	if err == nil {
		// The canonical form may be longer, and must read back.
		err = printable(ref.String())
	}
	if err != nil {
		return Reference{}, err
	}
	return ref, nil
}

func parse(text string) (Reference, error) {
	scheme, rest, hasScheme := strings.Cut(text, "://")
	switch {
	case strings.HasPrefix(text, ociScheme):
		return parseRegistry(text, strings.TrimPrefix(text, ociScheme))
	case strings.HasPrefix(text, layoutPrefix):
		return parseLayout(text, strings.TrimPrefix(text, layoutPrefix))
	case hasFoldedPrefix(text, "https:"), hasFoldedPrefix(text, "http:"):
		return parseURL(text)
	case strings.HasPrefix(text, "bundled:"):
		return Reference{}, wrong(text, "a bundled hand is part of glovebox already and is not fetched")
	case hasScheme && strings.EqualFold(scheme, "file"):
		return Reference{}, wrong(text, "write the path of the file alone: %s", rest)
	case hasScheme && isScheme(scheme):
		return Reference{}, wrong(text, "nothing is fetched by %s: write a path, https://…, oci://… or oci:DIR", scheme)
	}
	return parseFile(text)
}

// wrong is an ErrReference; the reference may come from a file or a request, so
// it is quoted.
func wrong(text, format string, a ...any) error {
	if len(text) > 200 {
		text = strings.ToValidUTF8(text[:200], "") + "…"
	}
	return fmt.Errorf("%w %q: %s", ErrReference, text, fmt.Sprintf(format, a...))
}

// printable refuses what would hide a part of a reference from who reads it.
func printable(text string) error {
	switch {
	case text == "":
		return wrong(text, "it is empty: write a path, https://…, oci://… or oci:DIR")
	case len(text) > maxReferenceBytes:
		return wrong(text, "it is %d bytes: at most %d are allowed", len(text), maxReferenceBytes)
	case !utf8.ValidString(text):
		return wrong(text, "it is not UTF-8")
	case strings.TrimSpace(text) != text:
		return wrong(text, "take away the space around it")
	}
	if i := strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
		return wrong(text, "it has the character %+q at byte %d, which cannot be seen: take it out", []rune(text[i:])[0], i)
	}
	return nil
}

func hasFoldedPrefix(text, prefix string) bool {
	return len(text) >= len(prefix) && strings.EqualFold(text[:len(prefix)], prefix)
}

// isScheme reports whether name is a scheme of a URL rather than the beginning
// of a path.
func isScheme(name string) bool {
	return len(name) > 1 && !strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("+-.", r))
	})
}

// isDigest reports whether text is a SHA-256 digest in its one canonical form.
func isDigest(text string) bool {
	digits, ok := strings.CutPrefix(text, pinPrefix)
	sum, err := hex.DecodeString(digits)
	return ok && err == nil && len(sum) == 32 && strings.ToLower(digits) == digits
}

const howToPin = "write the digest as sha256: and 64 of 0-9 and a-f"

func parseFile(text string) (Reference, error) {
	path, pin := text, ""
	// A # is a part of a name unless a digest stands behind it.
	if i := strings.LastIndex(text, "#"+pinPrefix); i >= 0 {
		if path, pin = text[:i], text[i+1:]; !isDigest(pin) {
			return Reference{}, wrong(text, "%s", howToPin)
		}
	}
	switch {
	case path == "":
		return Reference{}, wrong(text, "it names no file")
	case slices.Contains([]string{"", ".", ".."}, path[strings.LastIndex(path, "/")+1:]):
		return Reference{}, wrong(text, "it names a folder: write the path of a .wasm file, or oci:%s for an OCI layout", path)
	}
	path = filepath.Clean(path)
	if !filepath.IsAbs(path) && (path[0] == ' ' || strings.Contains(path, ":")) {
		// Without it the path would read as something else.
		path = "./" + path
	}
	if strings.TrimSpace(path) != path {
		return Reference{}, wrong(text, "a name that ends in a space cannot be told apart: rename the file")
	}
	return Reference{kind: File, path: path, pin: pin}, nil
}

func parseURL(text string) (Reference, error) {
	u, err := url.Parse(text)
	if err != nil {
		return Reference{}, wrong(text, "%v", errors.Unwrap(err))
	}
	pin := u.Fragment
	host := strings.ToLower(u.Hostname())
	switch {
	case pin == "" && strings.Contains(text, "#"), pin != "" && !isDigest(pin):
		return Reference{}, wrong(text, "behind # only a digest may stand: %s", howToPin)
	case u.User != nil:
		return Reference{}, wrongSecretly("it has a user or a password in it: leave them out, they would stand in the lock file")
	case u.Opaque != "" || host == "":
		return Reference{}, wrong(text, "it names no host: write https://example.com/hand.wasm")
	case strings.Contains(host, "%"):
		return Reference{}, wrong(text, "its host has a %% in it: write it plainly")
	case !isASCII(host):
		return Reference{}, wrong(text, "write the host in ASCII: letters of other scripts as xn--…")
	case !validPort(u):
		return Reference{}, wrong(text, "the port is not one of 1 to 65535")
	case u.Scheme == "http" && !isLoopback(host):
		return Reference{}, wrong(text, "http tells nobody who answers: write https://%s", u.Host)
	case u.Path == "" || strings.HasSuffix(u.Path, "/"):
		return Reference{}, wrong(text, "it names no file: write https://%s/hand.wasm", u.Host)
	case strings.ContainsFunc(u.Path, func(r rune) bool { return r == '\\' || !unicode.IsPrint(r) }) || !utf8.ValidString(u.Path):
		return Reference{}, wrong(text, "its path has a character that no path should have")
	case strings.Count(u.EscapedPath(), "/") != strings.Count(u.Path, "/"):
		return Reference{}, wrong(text, "its path hides a slash as %%2F")
	case slices.ContainsFunc(strings.Split(u.Path, "/"), func(name string) bool { return name == "." || name == ".." }):
		return Reference{}, wrong(text, `its path has a "." or ".." in it: write it without`)
	}
	port := u.Port()
	if port == map[string]string{"https": "443", "http": "80"}[u.Scheme] {
		port = ""
	}
	if u.Host = host; strings.Contains(host, ":") {
		u.Host = "[" + host + "]"
	}
	if port != "" {
		u.Host = net.JoinHostPort(host, port)
	}
	u.Fragment, u.RawFragment, u.ForceQuery = "", "", false
	return Reference{kind: Web, url: u, pin: pin}, nil
}

// wrongSecretly is wrong without the reference, which holds a password.
func wrongSecretly(why string) error { return fmt.Errorf("%w: %s", ErrReference, why) }

func isASCII(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r > unicode.MaxASCII })
}

func validPort(u *url.URL) bool {
	if !strings.Contains(strings.TrimPrefix(u.Host, "["+u.Hostname()+"]"), ":") {
		return true
	}
	// ParseAddrPort is the parser that takes 1 to 65535 in digits alone.
	at, err := netip.ParseAddrPort("127.0.0.1:" + u.Port())
	return err == nil && at.Port() != 0
}

func parseRegistry(text, rest string) (Reference, error) {
	r := Reference{kind: Registry}
	const form = "write oci://registry.example.com/repository:tag"
	name, pin, hasPin := strings.Cut(rest, "@")
	if hasPin {
		if !isDigest(pin) {
			if strings.Contains(pin, "/") {
				return r, wrongSecretly("it has a user or a password in it: leave them out and log in with docker login or oras login")
			}
			return r, wrong(text, "behind @ the digest of an artifact stands: %s", howToPin)
		}
		r.pin = pin
	}
	host, repository, ok := strings.Cut(name, "/")
	if !ok || host == "" || repository == "" {
		return r, wrong(text, "it names no repository: %s", form)
	}
	repository, tag, hasTag := strings.Cut(repository, ":")
	if host = strings.ToLower(host); !isASCII(host) {
		return r, wrong(text, "write the registry in ASCII: letters of other scripts as xn--…")
	}
	of := registry.Reference{Registry: host, Repository: repository, Reference: tag}
	at := &url.URL{Host: host}
	switch {
	case of.ValidateRegistry() != nil || !validPort(at) || at.Hostname() == "" || strings.ContainsAny(host, `\?#%`):
		return r, wrong(text, "%q is not the host of a registry: %s", host, form)
	case !strings.ContainsAny(host, ".:") && host != "localhost":
		return r, wrong(text, "%q is not the host of a registry, which has a dot or a port: %s", host, form)
	case of.ValidateRepository() != nil:
		return r, wrong(text, "the repository %q is not made of a-z, 0-9 and single . _ - between them, in parts that / divides: %s", repository, form)
	case hasTag && of.ValidateReferenceAsTag() != nil:
		return r, wrong(text, "the tag %q is not 1 to 128 of letters, digits, _ . and -: %s", tag, form)
	}
	r.host, r.repository, r.tag = host, repository, tag
	return r, nil
}

func parseLayout(text, rest string) (Reference, error) {
	r := Reference{kind: Layout, path: rest}
	if i := strings.LastIndex(rest, "@"+pinPrefix); i >= 0 {
		if r.path, r.pin = rest[:i], rest[i+1:]; !isDigest(r.pin) {
			return r, wrong(text, "%s", howToPin)
		}
	}
	if i := strings.LastIndex(r.path, ":"); i > strings.LastIndex(r.path, "/") {
		r.path, r.tag = r.path[:i], r.path[i+1:]
		if (registry.Reference{Reference: r.tag}).ValidateReferenceAsTag() != nil {
			return r, wrong(text, "the tag %q is not 1 to 128 of letters, digits, _ . and -: write oci:DIR:TAG", r.tag)
		}
	}
	if r.path == "" {
		return r, wrong(text, "it names no folder: write oci:DIR or oci:DIR:TAG, and oci://… for a registry")
	}
	r.path = filepath.Clean(r.path)
	switch {
	case strings.TrimSpace(r.path) != r.path:
		return r, wrong(text, "a name that begins or ends with a space cannot be told apart: rename the folder")
	case r.tag == "" && strings.Contains(filepath.Base(r.path), ":"):
		return r, wrong(text, "the name of the folder has a colon in it, behind which a tag would stand: rename the folder or add a tag")
	}
	return r, nil
}
