package source_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/registry/signature"
	"github.com/gloveboxhq/glovebox/host/registry/source"
	"github.com/gloveboxhq/glovebox/host/sandbox"
	"github.com/gloveboxhq/glovebox/host/sandbox/wasm"
)

// tiny is the smallest module: the magic number and the version.
var tiny = []byte("\x00asm\x01\x00\x00\x00")

func sum(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

// refused fetches what must not come, and returns why it did not.
func refused(t *testing.T, ref string, o source.Options, want error, say string) {
	t.Helper()
	got, err := source.Fetch(t.Context(), parse(t, ref), o)
	if !errors.Is(err, want) || !strings.Contains(err.Error(), say) || got.Module != nil || got.From != "" {
		t.Errorf("%d bytes from %q, error: %v; want %v with %q", len(got.Module), got.From, err, want, say)
	}
	if err != nil && (strings.ContainsAny(err.Error(), "\x1b\x07\n\u202e") || len(err.Error()) > 3500) {
		t.Errorf("the error is not fit for a terminal: %q", err)
	}
}

// forever writes until the client has gone.
func forever(w http.ResponseWriter, r *http.Request) {
	block := make([]byte, 1<<20)
	for r.Context().Err() == nil {
		if _, err := w.Write(block); err != nil {
			return
		}
	}
}

// silent sends a beginning and then nothing, until the client has gone.
func silent(beginning []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Write(beginning)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
}

// raw answers with bytes of its own over the connection, and closes it.
func raw(t *testing.T, response string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		connection, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		io.WriteString(connection, response)
		connection.Close()
	}
}

func send(data []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { w.Write(data) }
}

func redirect(to string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusFound)
	}
}

func TestWeb(t *testing.T) {
	var inflated bytes.Buffer
	bomb := gzip.NewWriter(&inflated)
	bomb.Write(tiny)
	bomb.Write(make([]byte, 64<<20))
	bomb.Close()
	over := make([]byte, sandbox.MaxModuleBytes+1)
	copy(over, tiny)

	mux := http.NewServeMux()
	server := httptest.NewTLSServer(mux)
	t.Cleanup(server.Close)
	plain := httptest.NewServer(send(tiny))
	t.Cleanup(plain.Close)
	o := source.Options{Transport: server.Client().Transport, Stall: 200 * time.Millisecond}
	for path, handler := range map[string]http.HandlerFunc{
		"/hand.wasm":    send(tiny),
		"/largest.wasm": send(over[:sandbox.MaxModuleBytes]),
		"/over.wasm":    send(over),
		"/said": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "9999999999")
			w.Write(tiny)
		},
		"/forever":   forever,
		"/silent":    silent(tiny),
		"/mute":      func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"/half":      raw(t, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"+string(tiny)),
		"/halfchunk": raw(t, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\n"+string(tiny)),
		"/endless":   raw(t, "HTTP/1.0 200 OK\r\n\r\n"+string(tiny)),
		"/gzip": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			w.Write(inflated.Bytes())
		},
		"/page":     send([]byte("<!doctype html>")),
		"/zip":      send([]byte("PK\x03\x04../../etc/passwd")),
		"/gz":       send(inflated.Bytes()),
		"/tar":      send(append(make([]byte, 257), "ustar\x0000"...)),
		"/nothing":  send(nil),
		"/gone":     http.NotFound,
		"/private":  func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusForbidden) },
		"/broken":   func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusBadGateway) },
		"/part":     func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusPartialContent); w.Write(tiny) },
		"/moved":    redirect("/hand.wasm"),
		"/loop":     redirect("/loop"),
		"/to-http":  redirect(plain.URL + "/hand.wasm"),
		"/to-file":  redirect("file:///etc/passwd"),
		"/to-where": redirect("https://exa\x1b[2Jmple/\u202e"),
	} {
		mux.HandleFunc("GET "+path, handler)
	}

	for ref, digest := range map[string]string{
		"/hand.wasm":              sum(tiny),
		"/hand.wasm#" + sum(tiny): sum(tiny),
		"/moved":                  sum(tiny),
		"/endless#" + sum(tiny):   sum(tiny),
		"/largest.wasm":           sum(over[:sandbox.MaxModuleBytes]),
	} {
		got, err := source.Fetch(t.Context(), parse(t, server.URL+ref), o)
		path, _, _ := strings.Cut(ref, "#")
		if err != nil || got.Digest != digest || sum(got.Module) != digest || got.From != server.URL+path+"#"+digest {
			t.Errorf("%s: %d bytes, digest %s, from %s, %v", ref, len(got.Module), got.Digest, got.From, err)
		}
	}
	for _, test := range []struct {
		ref  string
		want error
		say  string
	}{
		{"/hand.wasm#" + digest, source.ErrDigest, digest},
		{"/over.wasm", source.ErrTooLarge, "more than 33554432"},
		{"/said", source.ErrTooLarge, "9999999999 bytes"},
		{"/forever", source.ErrTooLarge, "more than 33554432"},
		{"/silent", source.ErrStalled, "nothing moved for 200ms"},
		{"/mute", source.ErrStalled, "nothing moved for 200ms"},
		{"/half", source.ErrIncomplete, "after 8 bytes"},
		{"/halfchunk", source.ErrIncomplete, "after 8 bytes"},
		{"/endless", source.ErrIncomplete, "add #sha256"},
		{"/gzip", source.ErrNotModule, "compresses"},
		{"/page", source.ErrNotModule, "HTML"},
		{"/zip", source.ErrNotModule, "archive"},
		{"/gz", source.ErrNotModule, "archive"},
		{"/tar", source.ErrNotModule, "archive"},
		{"/nothing", source.ErrNotModule, "empty"},
		{"/gone", source.ErrNotFound, "404"},
		{"/private", source.ErrUnauthorized, "403"},
		{"/loop", source.ErrInsecure, "more than 5 times"},
		{"/to-http", source.ErrInsecure, "only https"},
		{"/to-file", source.ErrInsecure, "file://"},
	} {
		refused(t, server.URL+test.ref, o, test.want, test.say)
	}
	for ref, say := range map[string]string{"/broken": "502 Bad Gateway", "/part": "206", "/to-where": "fetch"} {
		if got, err := source.Fetch(t.Context(), parse(t, server.URL+ref), o); err == nil || !strings.Contains(err.Error(), say) || strings.ContainsAny(err.Error(), "\x1b\u202e") || got.Module != nil {
			t.Errorf("%s: %q", ref, err)
		}
	}
	// Http is spoken where it was asked for, and even then not on the way from
	// https.
	refused(t, plain.URL+"/hand.wasm", source.Options{}, source.ErrInsecure, "--plain-http")
	if got, err := source.Fetch(t.Context(), parse(t, plain.URL+"/hand.wasm"), source.Options{PlainHTTP: true}); err != nil || got.Digest != sum(tiny) {
		t.Errorf("http of loopback: %v", err)
	}
	// A certificate that nobody vouches for is no https.
	if _, err := source.Fetch(t.Context(), parse(t, server.URL+"/hand.wasm"), source.Options{}); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("an unknown certificate: %v", err)
	}
}

// Whatever trickles is ended by the deadline of the whole, and the caller's
// context ends it sooner.
func TestDeadline(t *testing.T) {
	asked := make(chan struct{}, 2)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for r.Context().Err() == nil {
			w.Write([]byte{0})
			w.(http.Flusher).Flush()
			<-tick.C
		}
	}))
	t.Cleanup(server.Close)
	ref := server.URL + "/hand.wasm"
	refused(t, ref, source.Options{PlainHTTP: true, Stall: time.Minute, Deadline: 100 * time.Millisecond}, source.ErrStalled, "longer than 100ms")
	<-asked
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	if _, err := source.Fetch(ctx, parse(t, ref), source.Options{PlainHTTP: true}); !errors.Is(err, context.Canceled) {
		t.Errorf("after the caller gave up: %v", err)
	}
}

const (
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	indexType    = "application/vnd.oci.image.index.v1+json"
	emptyType    = "application/vnd.oci.empty.v1+json"
)

// manifestOf writes the manifest of an artifact; each change replaces a part of
// it.
func manifestOf(module []byte, change ...string) string {
	text := fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"artifactType":%q,"config":{"mediaType":%q,"digest":%q,"size":2},`+
		`"layers":[{"mediaType":"application/wasm","digest":%q,"size":%d,"annotations":{"org.opencontainers.image.title":"../../../../etc/cron.d/x"}}]}`,
		manifestType, source.ArtifactType, emptyType, sum([]byte("{}")), sum(module), len(module))
	return strings.NewReplacer(change...).Replace(text)
}

func TestHostileRegistry(t *testing.T) {
	module := tiny
	size := fmt.Sprintf(`"size":%d`, len(module))
	layers := `"layers":[`
	manifest := func(change ...string) http.HandlerFunc {
		return sendManifest(manifestType, manifestOf(module, change...))
	}
	good := manifest()
	for name, test := range map[string]struct {
		manifest, blob http.HandlerFunc
		want           error
		say            string
	}{
		"as it should be, but for its title": {good, send(module), nil, ""},
		"configured as the CNCF does":        {manifest(emptyType, source.ConfigMediaType), send(module), nil, ""},
		"of no type, configured as the CNCF": {manifest(`"artifactType":"`+source.ArtifactType+`",`, "", emptyType, source.ConfigMediaType), send(module), nil, ""},

		"another module":       {good, send([]byte("\x00asm\x02\x00\x00\x00")), source.ErrDigest, "was promised"},
		"a longer module":      {good, chunked(append(bytes.Clone(module), 0)), source.ErrTooLarge, "more than 8"},
		"a shorter module":     {good, chunked(module[:7]), source.ErrIncomplete, "7 of 8"},
		"an endless module":    {good, forever, source.ErrTooLarge, ""},
		"half a module":        {good, raw(t, "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n\x00asm"), source.ErrIncomplete, "after 4 bytes"},
		"a module that stalls": {good, silent(module[:4]), source.ErrStalled, "nothing moved"},
		"a module at a file":   {good, redirect("file:///etc/passwd"), source.ErrInsecure, "file://"},
		"a module by http":     {good, redirect("http://example.com/x"), source.ErrInsecure, "http://example.com"},
		"a module going round": {good, redirect("?"), source.ErrInsecure, "more than 5"},
		"no module":            {good, http.NotFound, source.ErrNotFound, ""},
		"an inflating module": {good, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "br")
			w.Write(module)
		}, source.ErrNotModule, "compresses"},
		"a lie about the digest": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Docker-Content-Digest", digest)
			good(w, r)
		}, send(module), source.ErrDigest, digest},
		"no manifest":     {http.NotFound, nil, source.ErrNotFound, "check the repository and the tag"},
		"a huge manifest": {sendManifest(manifestType, manifestOf(module)+strings.Repeat(" ", source.MaxManifestBytes)), nil, source.ErrTooLarge, "at most 262144"},
		"an endless manifest": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", manifestType)
			forever(w, r)
		}, nil, source.ErrStalled, "nothing moved"},
		"a manifest that stalls": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", manifestType)
			w.Header().Set("Content-Length", "100")
			w.Header().Set("Docker-Content-Digest", digest)
			silent([]byte("{"))(w, r)
		}, nil, source.ErrStalled, "nothing moved"},
		"no JSON":                  {sendManifest(manifestType, "<html>"), nil, source.ErrNotModule, "not JSON"},
		"an index":                 {sendManifest(indexType, fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"manifests":[{"mediaType":%q,"digest":%q,"size":1,"artifactType":%q}]}`, indexType, manifestType, digest, source.ArtifactType)), nil, source.ErrNotModule, "its hands are " + digest},
		"an index in disguise":     {sendManifest(manifestType, manifestOf(module, layers, `"manifests":[{"digest":"x"}],`+layers)), nil, source.ErrNotModule, "is an index"},
		"a manifest in disguise":   {sendManifest(indexType, manifestOf(module)), nil, source.ErrNotModule, "sent as"},
		"a container":              {manifest(`"artifactType":"`+source.ArtifactType+`",`, "", emptyType, "application/vnd.oci.image.config.v1+json"), nil, source.ErrNotModule, "a hand is of artifactType"},
		"another artifact":         {manifest(source.ArtifactType, `application/x\u001b[2J\u202e`), nil, source.ErrNotModule, "a hand is of artifactType"},
		"of another configuration": {manifest(emptyType, "application/x"), nil, source.ErrNotModule, "its configuration"},
		"an old schema":            {manifest(`"schemaVersion":2`, `"schemaVersion":1`), nil, source.ErrNotModule, "schemaVersion 1"},
		"no layer":                 {manifest(layers, `"layers":[],"x":[`), nil, source.ErrNotModule, "0 layers"},
		"two layers":               {manifest(layers, layers+`{"mediaType":"application/wasm","digest":"`+digest+`","size":8},`), nil, source.ErrNotModule, "2 layers"},
		"an archive":               {manifest(`application/wasm"`, `application/vnd.oci.image.layer.v1.tar+gzip"`), nil, source.ErrNotModule, "no archive"},
		"a module over the bound":  {manifest(size, `"size":33554433`), nil, source.ErrTooLarge, "33554433 bytes"},
		"a module beyond numbers":  {manifest(size, `"size":9223372036854775808`), nil, source.ErrNotModule, "not JSON as a manifest"},
		"a module of less than 0":  {manifest(size, `"size":-1`), nil, source.ErrNotModule, "-1 bytes"},
		"a digest that is a path":  {manifest(sum(module), "sha256:../../../../etc/passwd"), nil, source.ErrNotModule, "64 of 0-9"},
		"a weaker digest":          {manifest(sum(module), "md5:d41d8cd98f00b204e9800998ecf8427e"), nil, source.ErrNotModule, "64 of 0-9"},
		"a module elsewhere":       {manifest(size, size+`,"urls":["http://169.254.169.254/"]`), nil, source.ErrNotModule, "elsewhere"},
		"many words": {func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprintf(w, `{"errors":[{"code":"DENIED","message":"\u001b[2J\u202e%s"}]}`, strings.Repeat("a", 5000))
		}, nil, source.ErrUnauthorized, "docker login"},
		"tokens from elsewhere": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="http://tokens.example.com/x",service="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		}, nil, source.ErrInsecure, "tokens.example.com"},
	} {
		t.Run(name, func(t *testing.T) {
			mux := http.NewServeMux()
			mux.HandleFunc("/v2/hands/x/manifests/{reference}", test.manifest)
			mux.HandleFunc("/v2/hands/x/blobs/{digest}", func(w http.ResponseWriter, r *http.Request) {
				if test.blob == nil {
					t.Errorf("asked for a module in vain: %s", r.URL)
					return
				}
				test.blob(w, r)
			})
			server := httptest.NewServer(mux)
			defer server.Close()
			ref := "oci://" + strings.TrimPrefix(server.URL, "http://") + "/hands/x:1"
			o := source.Options{PlainHTTP: true, Stall: 200 * time.Millisecond}
			if test.want == nil && test.say == "" {
				got, err := source.Fetch(t.Context(), parse(t, ref), o)
				if err != nil || string(got.Module) != string(module) || got.Digest != sum(module) || !strings.HasPrefix(got.From, ref+"@sha256:") {
					t.Errorf("%d bytes from %s, %v", len(got.Module), got.From, err)
				}
				return
			}
			got, err := source.Fetch(t.Context(), parse(t, ref), o)
			if err == nil || test.want != nil && !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.say) || got.Module != nil {
				t.Errorf("%d bytes, %v; want %v with %q", len(got.Module), err, test.want, test.say)
			}
			if err != nil && (strings.ContainsAny(err.Error(), "\x1b\u202e\n") || len(err.Error()) > 1200) {
				t.Errorf("not fit for a terminal: %q", err)
			}
		})
	}
}

// A pin holds whatever the registry says, with every header agreeing.
func TestRegistryServesAnotherManifest(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Docker-Content-Digest", digest)
		sendManifest(manifestType, manifestOf(tiny))(w, r)
	}))
	t.Cleanup(server.Close)
	refused(t, "oci://"+strings.TrimPrefix(server.URL, "http://")+"/hands/x@"+digest, source.Options{PlainHTTP: true}, source.ErrDigest, digest)
}

func sendManifest(mediaType, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", mediaType)
		w.Header().Set("Content-Length", fmt.Sprint(len(text)))
		io.WriteString(w, text)
	}
}

// chunked sends data without saying how much it is.
func chunked(data []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		w.Write(data)
	}
}

func TestFile(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	put(t, "hand.wasm", tiny)
	put(t, "page.wasm", []byte("<html>"))
	put(t, "large.wasm", nil)
	if err := os.Truncate("large.wasm", sandbox.MaxModuleBytes+1); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo("pipe.wasm", 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := source.Fetch(t.Context(), parse(t, "hand.wasm"), source.Options{})
	if err != nil || string(got.Module) != string(tiny) || got.From != filepath.Join(dir, "hand.wasm")+"#"+sum(tiny) {
		t.Errorf("%s: %v", got.From, err)
	}
	put(t, "hand.wasm", append(bytes.Clone(tiny), 0))
	refused(t, got.From, source.Options{}, source.ErrDigest, sum(tiny))
	refused(t, "page.wasm", source.Options{}, source.ErrNotModule, "HTML")
	refused(t, "large.wasm", source.Options{}, source.ErrTooLarge, "33554432")
	refused(t, "absent.wasm", source.Options{}, source.ErrNotFound, "name a .wasm file")
	for _, name := range []string{dir, "pipe.wasm", "/dev/zero"} {
		if _, err := source.Fetch(t.Context(), parse(t, name), source.Options{}); err == nil || !strings.Contains(err.Error(), "not a file") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := source.Fetch(t.Context(), source.Reference{}, source.Options{}); !errors.Is(err, source.ErrReference) {
		t.Errorf("nowhere: %v", err)
	}
}

func put(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestLayout(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	module := calendar(t)
	pushed, err := source.Push(t.Context(), parse(t, "oci:out/layout:1.0"), module, source.Options{})
	if err != nil {
		t.Fatal(err)
	}
	pin := parse(t, pushed.From).Pin()
	for _, ref := range []string{"oci:out/layout", "oci:out/layout:1.0", "oci:out/layout@" + pin, pushed.From} {
		got, err := source.Fetch(t.Context(), parse(t, ref), source.Options{})
		if err != nil || got.Digest != pushed.Digest || parse(t, got.From).Pin() != pin || !strings.HasPrefix(got.From, "oci:"+dir) {
			t.Errorf("%s: %s, %v", ref, got.From, err)
		}
	}
	refused(t, "oci:out/layout:2.0", source.Options{}, source.ErrNotFound, `its tags are "1.0"`)
	refused(t, "oci:out/layout@"+digest, source.Options{}, source.ErrNotFound, "no such artifact")
	refused(t, "oci:out", source.Options{}, source.ErrNotModule, "no OCI layout")
	refused(t, "oci:nowhere", source.Options{}, source.ErrNotFound, "no folder")

	blob := filepath.Join("out/layout/blobs/sha256", strings.TrimPrefix(pushed.Digest, "sha256:"))
	if err := os.Chmod(blob, 0o600); err != nil {
		t.Fatal(err)
	}
	tampered := bytes.Clone(module)
	tampered[len(tampered)-1] ^= 1
	put(t, blob, tampered)
	refused(t, "oci:out/layout", source.Options{}, source.ErrDigest, pushed.Digest)
	put(t, blob, module[:100])
	refused(t, "oci:out/layout", source.Options{}, source.ErrIncomplete, "100 of")
	put(t, blob, append(bytes.Clone(module), 0))
	refused(t, "oci:out/layout", source.Options{}, source.ErrTooLarge, "more than")
	// A link that leads out of the folder is not followed.
	put(t, "elsewhere.wasm", module)
	if err := errors.Join(os.Remove(blob), os.Symlink(filepath.Join(dir, "elsewhere.wasm"), blob)); err != nil {
		t.Fatal(err)
	}
	if got, err := source.Fetch(t.Context(), parse(t, "oci:out/layout"), source.Options{}); err == nil || got.Module != nil || !strings.Contains(err.Error(), "escapes") {
		t.Errorf("a link: %v", err)
	}
}

func TestHostileLayout(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	manifest := manifestOf(tiny)
	entry := func(tag, digest string) string {
		return fmt.Sprintf(`{"mediaType":%q,"digest":%q,"size":4611686018427387904,"annotations":{"org.opencontainers.image.ref.name":%q}}`, manifestType, digest, tag)
	}
	index := func(entries ...string) string {
		return fmt.Sprintf(`{"schemaVersion":2,"manifests":[%s]}`, strings.Join(entries, ","))
	}
	pin := sum([]byte(manifest))
	for _, test := range []struct {
		name, layout, index, manifest, ref string
		want                               error
		say                                string
	}{
		{"good", "1.0.0", index(entry("1", pin)), manifest, "oci:good", nil, ""},
		{"twice", "1.0.0", index(entry("1", pin), entry("2", pin)), manifest, "oci:twice", nil, ""},
		{"version", "9.0.0", index(entry("1", pin)), manifest, "oci:version", source.ErrNotModule, "version 1.0.0"},
		{"empty", "1.0.0", index(), manifest, "oci:empty", source.ErrNotFound, "tags are none"},
		{"several", "1.0.0", index(entry("1", pin), entry("\u202e", digest)), manifest, "oci:several", source.ErrReference, "2 artifacts"},
		{"several", "1.0.0", index(entry("1", pin), entry("2", digest)), manifest, "oci:several:2", source.ErrNotFound, digest},
		{"moved", "1.0.0", index(entry("1", pin), entry("1", digest)), manifest, "oci:moved:1", source.ErrReference, "2 artifacts"},
		{"path", "1.0.0", index(entry("1", "sha256:../../../oci-layout")), manifest, "oci:path", source.ErrNotModule, "64 of 0-9"},
		{"text", "1.0.0", "<html>", manifest, "oci:text", source.ErrNotModule, "index.json"},
		{"huge", "1.0.0", index(entry("1", pin)) + strings.Repeat(" ", source.MaxManifestBytes), manifest, "oci:huge", source.ErrTooLarge, "index.json"},
		{"swapped", "1.0.0", index(entry("1", pin)), manifest + " ", "oci:swapped", source.ErrDigest, pin},
		{"long", "1.0.0", index(entry("1", pin)), manifest + strings.Repeat(" ", source.MaxManifestBytes), "oci:long", source.ErrTooLarge, "262144"},
	} {
		put(t, filepath.Join(test.name, "oci-layout"), []byte(`{"imageLayoutVersion":"`+test.layout+`"}`))
		put(t, filepath.Join(test.name, "index.json"), []byte(test.index))
		put(t, filepath.Join(test.name, "blobs", "sha256", strings.TrimPrefix(pin, "sha256:")), []byte(test.manifest))
		put(t, filepath.Join(test.name, "blobs", "sha256", strings.TrimPrefix(sum(tiny), "sha256:")), tiny)
		if test.want != nil {
			refused(t, test.ref, source.Options{}, test.want, test.say)
		} else if got, err := source.Fetch(t.Context(), parse(t, test.ref), source.Options{}); err != nil || got.Digest != sum(tiny) {
			t.Errorf("%s: %v", test.ref, err)
		}
	}
}

// A relative path becomes absolute, so the name of the folder around it counts.
func TestFolderThatCannotBeWrittenDown(t *testing.T) {
	for _, name := range []string{"new\nline", "tab\tbed"} {
		dir := filepath.Join(t.TempDir(), name)
		put(t, filepath.Join(dir, "hand.wasm"), tiny)
		t.Chdir(dir)
		refused(t, "hand.wasm", source.Options{}, source.ErrReference, "rename the folder")
	}
	dir := filepath.Join(t.TempDir(), "a:b")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	put(t, "oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
	manifest := manifestOf(tiny)
	put(t, "index.json", fmt.Appendf(nil, `{"manifests":[{"mediaType":%q,"digest":%q,"size":1}]}`, manifestType, sum([]byte(manifest))))
	put(t, filepath.Join("blobs", "sha256", strings.TrimPrefix(sum([]byte(manifest)), "sha256:")), []byte(manifest))
	put(t, filepath.Join("blobs", "sha256", strings.TrimPrefix(sum(tiny), "sha256:")), tiny)
	refused(t, "oci:.", source.Options{}, source.ErrReference, "rename the folder")
}

func TestPushRefuses(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for ref, say := range map[string]string{
		"oci:out": "name a tag", "oci:out:1@" + digest: "no digest", "hand.wasm": "oci://REGISTRY", "https://example.com/x.wasm": "oci://REGISTRY",
	} {
		if _, err := source.Push(t.Context(), parse(t, ref), calendar(t), source.Options{}); !errors.Is(err, source.ErrReference) || !strings.Contains(err.Error(), say) {
			t.Errorf("%s: %v", ref, err)
		}
	}
	outline, err := wasm.Decode(tiny)
	if err != nil {
		t.Fatal(err)
	}
	noHand := outline.WithCustom(abi.ManifestSection, []byte("name = \"x\"\nversion = \"1.0.0\"\nabi = 1\n"))
	key, err := signature.Generate(nil)
	if err != nil {
		t.Fatal(err)
	}
	changed, err := signature.Sign(calendar(t), key, signature.Options{Comment: "last"})
	if err != nil {
		t.Fatal(err)
	}
	changed = bytes.Replace(changed, []byte(`"last"`), []byte(`"lost"`), 1)
	for name, module := range map[string][]byte{"no module": []byte("<html>"), "no hand": noHand, "a signature that does not hold": changed} {
		if _, err := source.Push(t.Context(), parse(t, "oci:out:1"), module, source.Options{}); err == nil {
			t.Errorf("pushed %s", name)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("refusing left %v, %v", entries, err)
	}
}

// A registry that takes nothing, or takes all and says nothing, is given up.
func TestPushStalls(t *testing.T) {
	for name, take := range map[string]func(io.Reader){
		"takes nothing": func(io.Reader) {},
		"says nothing":  func(body io.Reader) { io.Copy(io.Discard, body) },
	} {
		t.Run(name, func(t *testing.T) {
			over := make(chan struct{})
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.Method {
				case http.MethodHead:
					w.WriteHeader(http.StatusNotFound)
				case http.MethodPost:
					w.Header().Set("Location", "/v2/hands/x/blobs/uploads/1")
					w.WriteHeader(http.StatusAccepted)
				default:
					take(r.Body)
					<-over
				}
			}))
			defer server.Close()
			defer close(over)
			ref := parse(t, "oci://"+strings.TrimPrefix(server.URL, "http://")+"/hands/x:1")
			_, err := source.Push(t.Context(), ref, calendar(t), source.Options{PlainHTTP: true, Stall: 200 * time.Millisecond})
			if !errors.Is(err, source.ErrStalled) {
				t.Errorf("got %v", err)
			}
		})
	}
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Asked to speak http with this machine, nobody else is spoken to so, and nobody
// else may lead there.
func TestPlainHTTPStaysHere(t *testing.T) {
	var asked []string
	o := source.Options{PlainHTTP: true, Transport: transport(func(r *http.Request) (*http.Response, error) {
		asked = append(asked, r.URL.Scheme+"://"+r.URL.Host)
		return &http.Response{StatusCode: http.StatusFound, Header: http.Header{"Location": {"http://127.0.0.1/x"}}, Body: http.NoBody, Request: r}, nil
	})}
	for _, ref := range []string{"https://example.com/x", "oci://example.com/x:1"} {
		asked = nil
		refused(t, ref, o, source.ErrInsecure, "http://127.0.0.1")
		if len(asked) != 1 || asked[0] != "https://example.com" {
			t.Errorf("%s: asked %q", ref, asked)
		}
	}
}

// until is a body that begins as a module and ends, well or not, when its
// request is given up.
type until struct {
	context.Context
	begun bool
	end   error
}

func (u *until) Read(p []byte) (int, error) {
	if !u.begun {
		u.begun = true
		return copy(p, tiny), nil
	}
	<-u.Done()
	return 0, u.end
}

func (*until) Close() error { return nil }

// However a transport puts it, a stall is told as one.
func TestStallsAreToldApart(t *testing.T) {
	for name, answer := range map[string]transport{
		"no answer": func(r *http.Request) (*http.Response, error) { <-r.Context().Done(); return nil, r.Context().Err() },
		"an end as we leave": func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, ContentLength: -1, ProtoMajor: 2, Header: http.Header{}, Body: &until{Context: r.Context(), end: io.EOF}, Request: r}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			refused(t, "https://example.com/x", source.Options{Transport: answer, Stall: 20 * time.Millisecond}, source.ErrStalled, "nothing moved for 20ms")
			refused(t, "https://example.com/x", source.Options{Transport: answer, Deadline: 20 * time.Millisecond}, source.ErrStalled, "longer than 20ms")
		})
	}
}
