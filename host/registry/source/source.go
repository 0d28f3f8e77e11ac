// Package source gets modules from where their authors put them: a file, a web
// server, an OCI registry, a local OCI layout folder. And it pushes them there.
//
// Whatever answers is hostile. Every read is bounded in bytes and in time, what
// was named by a digest is held to it, and a module is returned whole or not at
// all, in memory: nothing is ever left on disk. What a module is allowed to be
// is for host/sandbox to say, who may trust it for host/registry.
package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/gloveboxhq/glovebox/host/sandbox"
)

// What callers branch on. Beside them Fetch and Push return ErrReference, the
// context's error and wrapped errors of the file system and the network.
var (
	// ErrNotFound says that nothing is where the reference points.
	ErrNotFound = errors.New("not found")
	// ErrUnauthorized says that whoever asks has no right to it, or that nothing
	// is there and the registry does not tell.
	ErrUnauthorized = errors.New("not allowed")
	// ErrDigest says that what came is not what its digest promised.
	ErrDigest = errors.New("digest does not match")
	// ErrTooLarge says that what came, or would have, is over a bound.
	ErrTooLarge = errors.New("too large")
	// ErrIncomplete says that a download ended before its end, or that its end
	// cannot be told.
	ErrIncomplete = errors.New("incomplete")
	// ErrStalled says that nothing moved for as long as Options.Stall, or that
	// the whole took longer than Options.Deadline.
	ErrStalled = errors.New("stalled")
	// ErrNotModule says that what came is no module, or no artifact with one.
	ErrNotModule = errors.New("not a hand")
	// ErrInsecure says that a server led to where nobody can tell who answers:
	// away from https, or in too many steps.
	ErrInsecure = errors.New("insecure")
)

// MaxManifestBytes bounds the manifest of an artifact and the index of a local
// layout. A module is bounded by sandbox.MaxModuleBytes.
const MaxManifestBytes = 256 << 10

const (
	defaultStall    = 30 * time.Second
	defaultDeadline = 10 * time.Minute
	// maxRedirects is how many times a server may send us elsewhere.
	maxRedirects = 5
	// maxErrorBytes is how much of a server's own words an error repeats.
	maxErrorBytes = 1000
)

// Options say how to fetch and push. The zero value is the safe default.
type Options struct {
	// Transport sends the requests; nil means one like http.DefaultTransport,
	// which heeds the proxy variables of the environment.
	Transport http.RoundTripper
	// PlainHTTP lets http be spoken with this machine: a registry on loopback
	// is then asked by http, and an http URL of loopback is fetched. It changes
	// nothing for other hosts.
	PlainHTTP bool
	// Logins makes Fetch and Push use the credentials that docker login or oras
	// login left in the docker configuration file ($DOCKER_CONFIG/config.json,
	// else ~/.docker/config.json), credential helpers included.
	Logins bool
	// Stall is how long nothing may move; zero means 30 seconds.
	Stall time.Duration
	// Deadline bounds the whole; zero means 10 minutes.
	Deadline time.Duration
	// Progress is told of bytes as they move, in either direction, from any
	// goroutine; nil means that nobody is told.
	Progress func(bytes int)
}

func (o Options) stall() time.Duration {
	if o.Stall > 0 {
		return o.Stall
	}
	return defaultStall
}

// bounded returns ctx with the deadline of the whole.
func (o Options) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline := o.Deadline
	if deadline <= 0 {
		deadline = defaultDeadline
	}
	return context.WithTimeoutCause(ctx, deadline, fmt.Errorf("%w: it took longer than %v", ErrStalled, deadline))
}

// Artifact is a module that was fetched. The bytes belong to the caller.
type Artifact struct {
	Module []byte
	// Digest is that of the module: "sha256:" and hexadecimal digits, as
	// sandbox.Digest writes it.
	Digest string
	// From is where it came from in the form that Parse reads, held to what was
	// resolved: fetching From returns these bytes or fails. The path of a file
	// or folder is absolute. A tag that was asked for is kept as a label.
	From string
}

// Fetch gets the module that ref points to, whole and verified against every
// digest that is known of it, or fails. It knows a module by its first bytes
// alone: the sandbox has yet to admit it.
func Fetch(ctx context.Context, ref Reference, o Options) (Artifact, error) {
	ctx, cancel := o.bounded(ctx)
	defer cancel()
	var (
		module []byte
		from   Reference
		err    error
	)
	switch ref.kind {
	case File:
		module, from, err = fetchFile(ref)
	case Web:
		module, from, err = o.fetchURL(ctx, ref)
	case Registry:
		module, from, err = o.fetchRegistry(ctx, ref)
	case Layout:
		module, from, err = fetchLayout(ctx, ref)
	default:
		return Artifact{}, fmt.Errorf("%w: it points nowhere", ErrReference)
	}
	if err == nil {
		err = looksLikeModule(module)
	}
	if err == nil {
		err = from.check()
	}
	if err != nil {
		return Artifact{}, told("fetch", ref, because(ctx, err))
	}
	return Artifact{Module: module, Digest: sandbox.Digest(module), From: from.String()}, nil
}

// because returns what ended ctx if that is why err came about.
func because(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) && !errors.Is(err, context.Cause(ctx)) {
		return context.Cause(ctx)
	}
	return err
}

// remoteError is an error with a server's words in it, made fit for a terminal
// and a log.
type remoteError struct {
	text string
	err  error
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.err }

// told wraps an error with what was done; what a server wrote into it is cut
// and steers nothing.
func told(did string, ref Reference, err error) error {
	text := strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case !unicode.IsPrint(r):
			return '�'
		}
		return r
	}, err.Error())
	if len(text) > maxErrorBytes {
		text = strings.ToValidUTF8(text[:maxErrorBytes], "") + "…"
	}
	return &remoteError{fmt.Sprintf("%s %s: %s", did, ref, text), err}
}

// looksLikeModule tells a module from what servers send in its stead.
func looksLikeModule(data []byte) error {
	if bytes.HasPrefix(data, []byte("\x00asm")) {
		return nil
	}
	began := func(with string) bool { return bytes.HasPrefix(data, []byte(with)) }
	what := "it does not begin as a WebAssembly module does"
	switch {
	case len(data) == 0:
		what = "it is empty"
	case began("\x1f\x8b"), began("PK\x03\x04"), began("\x28\xb5\x2f\xfd"), began("BZh"), began("\xfd7zXZ"), len(data) > 262 && string(data[257:262]) == "ustar":
		what = "it is an archive or compressed: publish the .wasm file itself"
	case began("<"):
		what = "it is a page of HTML or XML: is the address that of the file itself, and open to all?"
	}
	return fmt.Errorf("%w: %s", ErrNotModule, what)
}

// held refuses data whose digest is not the one that was promised; "" promises
// nothing.
func held(data []byte, promised string) error {
	if is := sandbox.Digest(data); promised != "" && is != promised {
		return fmt.Errorf("%w: %s was promised, what came is %s", ErrDigest, promised, is)
	}
	return nil
}

// readAll reads at most limit bytes; one more is ErrTooLarge.
func readAll(r io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fmt.Errorf("%w: it ended after %d bytes, before its end", ErrIncomplete, len(data))
	case err != nil:
		return nil, err
	case int64(len(data)) > limit:
		return nil, fmt.Errorf("%w: it has more than %d bytes", ErrTooLarge, limit)
	}
	return data, nil
}

func fetchFile(ref Reference) ([]byte, Reference, error) {
	path, err := filepath.Abs(ref.path)
	if err != nil {
		return nil, ref, err
	}
	module, err := readFile(regularFiles{os.DirFS(filepath.Dir(path))}, filepath.Base(path), sandbox.MaxModuleBytes)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: there is no such file: name a .wasm file, or write https://… or oci://… for what is elsewhere", ErrNotFound)
	}
	if err == nil {
		err = held(module, ref.pin)
	}
	ref.path = path
	return module, ref.pinned(sandbox.Digest(module)), err
}

func (o Options) fetchURL(ctx context.Context, ref Reference) ([]byte, Reference, error) {
	if ref.url.Scheme == "http" && !o.PlainHTTP {
		return nil, ref, fmt.Errorf("%w: http is spoken with this machine only where that is asked for (--plain-http)", ErrInsecure)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, ref.url.String(), nil)
	if err != nil {
		return nil, ref, err
	}
	response, err := o.client(ref).Do(request)
	if err != nil {
		return nil, ref, err
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode != http.StatusOK:
		return nil, ref, statusError(response.StatusCode)
	case response.ContentLength > sandbox.MaxModuleBytes:
		return nil, ref, fmt.Errorf("%w: it has %d bytes, at most %d are allowed", ErrTooLarge, response.ContentLength, sandbox.MaxModuleBytes)
	case response.ContentLength < 0 && response.ProtoMajor < 2 && len(response.TransferEncoding) == 0 && ref.pin == "":
		// Such a body ends where the connection does, for whatever reason.
		return nil, ref, fmt.Errorf("%w: the server does not say where it ends: add #sha256:… and the digest of the module", ErrIncomplete)
	}
	module, err := readAll(response.Body, sandbox.MaxModuleBytes)
	if err == nil {
		err = held(module, ref.pin)
	}
	return module, ref.pinned(sandbox.Digest(module)), err
}

func statusError(status int) error {
	text := fmt.Sprintf("the server answers %d %s", status, http.StatusText(status))
	switch status {
	case http.StatusNotFound, http.StatusGone:
		return fmt.Errorf("%w: %s", ErrNotFound, text)
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("%w: %s", ErrUnauthorized, text)
	}
	return errors.New(text)
}
