package build_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/abi/conformance"
	"github.com/gloveboxhq/glovebox/abi/tokens"
	vectors "github.com/gloveboxhq/glovebox/testdata/abi"
)

// driver is testdata/drive.c with the SDK and the sample hand, compiled natively with
// the address and undefined behaviour sanitizers: what is wrong with memory ends
// it, and each allocation of an arena is one of the heap.
type driver struct {
	t      testing.TB
	in     io.WriteCloser
	out    io.Reader
	said   *bytes.Buffer
	closed sync.Once
	end    func() error
}

var (
	drive  = sync.OnceValues(func() (string, error) { return program("drive", "-fsanitize=address,undefined") })
	fuzzer = sync.OnceValues(func() (string, error) {
		return program("fuzz", "-fsanitize=fuzzer,address,undefined", "-Dmalloc=scarce_malloc", "-Drealloc=scarce_realloc")
	})
)

// program compiles a file of testdata with the SDK and the sample hand.
func program(name string, options ...string) (string, error) {
	dir, err := temporary()
	if err != nil {
		return "", err
	}
	output := filepath.Join(dir, name)
	command := exec.Command("clang", append(options, "-g", "-O1", "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror",
		"-fno-sanitize-recover=all", "-DGB_CHUNK_BYTES=1", "-I..", "-o", output,
		"testdata/"+name+".c", "../glovebox.c", "../../../examples/hand-c/hand.c", "-lm")...)
	if printed, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("clang: %w\n%s", err, printed)
	}
	return output, nil
}

// compiled returns the program, or skips the test where it cannot be made.
func compiled(t testing.TB, program func() (string, error)) string {
	t.Helper()
	if _, err := exec.LookPath("clang"); err != nil {
		t.Skip("install Debian's clang: the SDK is not tested natively without")
	}
	file, err := program()
	if err != nil {
		if strings.Contains(err.Error(), "libclang_rt.") {
			t.Skipf("install Debian's libclang-rt-14-dev, or that of your clang: %v", err)
		}
		t.Fatal(err)
	}
	return file
}

func native(t testing.TB) *driver {
	t.Helper()
	file := compiled(t, drive)
	var err error
	command := exec.Command(file)
	s := &driver{t: t, said: &bytes.Buffer{}}
	command.Stderr = s.said
	// What a hand keeps to its end is no leak: its memory ends with it.
	command.Env = append(os.Environ(), "ASAN_OPTIONS=detect_leaks=0")
	if s.in, err = command.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if s.out, err = command.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	s.end = command.Wait
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Errorf("the program ends with %v\n%s", err, s.said)
		}
	})
	return s
}

func (s *driver) close() (err error) {
	s.closed.Do(func() {
		s.in.Close()
		err = s.end()
	})
	return err
}

func (s *driver) send(letter byte, payload []byte) {
	s.t.Helper()
	frame := binary.NativeEndian.AppendUint32([]byte{letter}, uint32(len(payload)))
	if _, err := s.in.Write(append(frame, payload...)); err != nil {
		s.broken(err)
	}
}

func (s *driver) receive() (letter byte, payload []byte) {
	s.t.Helper()
	head := make([]byte, 5)
	if _, err := io.ReadFull(s.out, head); err != nil {
		s.broken(err)
	}
	payload = make([]byte, binary.NativeEndian.Uint32(head[1:]))
	if _, err := io.ReadFull(s.out, payload); err != nil {
		s.broken(err)
	}
	return head[0], payload
}

func (s *driver) broken(err error) {
	s.t.Helper()
	ended := s.close()
	s.t.Fatalf("%v: the program ends with %v\n%s", err, ended, s.said)
}

// ask gives what the SDK makes of a payload.
func (s *driver) ask(letter byte, payload []byte) string {
	s.t.Helper()
	s.send(letter, payload)
	got, answer := s.receive()
	if got != 'a' {
		s.t.Fatalf("the program answers with %q", got)
	}
	return string(answer)
}

func eight(n int64) []byte { return binary.NativeEndian.AppendUint64(nil, uint64(n)) }

// query asks the sample hand; call answers for the host.
func (s *driver) query(query []byte, call func(name string, request []byte) (abi.Kind, []byte)) (reply string, failed bool, log string) {
	s.t.Helper()
	s.send('q', query)
	for {
		letter, payload := s.receive()
		switch letter {
		case 'h':
			name, request, _ := bytes.Cut(payload, []byte("\n"))
			kind, result := call(string(name), request)
			s.send('s', append(binary.NativeEndian.AppendUint32(nil, uint32(kind.Code())), result...))
		case 'l':
			log = string(payload)
		case 'r', 'x':
			return string(payload), letter == 'x', log
		}
	}
}

// world answers as a host does that has these ports.
type world struct {
	*conformance.Ports
	// What is left of the query's calls of the model, and of its tokens.
	asks, tokens int
}

func (w *world) call(name string, request []byte) (abi.Kind, []byte) {
	line, body, _ := bytes.Cut(request, []byte("\n"))
	result, err := w.answer(name, line, body)
	if err != nil {
		return abi.KindOf(err), nil
	}
	return "", result
}

func (w *world) answer(name string, line, body []byte) ([]byte, error) {
	ctx := context.Background()
	read := func(request any) error {
		if json.Unmarshal(line, request) != nil {
			return abi.KindBadRequest
		}
		return nil
	}
	key := func(key string) error {
		if key == "" || len(key) > abi.MaxKeyBytes {
			return abi.KindBadRequest
		}
		return nil
	}
	switch {
	case w.Files != nil && name == "files_list":
		var r abi.FilesListRequest
		if err := read(&r); err != nil {
			return nil, err
		}
		if r.Limit == 0 {
			r.Limit = abi.MaxPageEntries
		}
		page, err := w.Files.List(ctx, r)
		if err != nil {
			return nil, err
		}
		return json.Marshal(page)
	case w.Files != nil && name == "files_read":
		var r abi.FilesReadRequest
		if err := read(&r); err != nil {
			return nil, err
		}
		return w.Files.Read(ctx, r)
	case w.HTTP != nil && name == "http_fetch":
		r := abi.HTTPFetchRequest{Body: body}
		if err := read(&r); err != nil {
			return nil, err
		}
		head, body, _, err := w.HTTP.Fetch(ctx, r, abi.HTTPBudget{})
		if err != nil {
			return nil, err
		}
		encoded, err := json.Marshal(head)
		return append(append(encoded, '\n'), body...), err
	case w.KV != nil && strings.HasPrefix(name, "kv_"):
		var r abi.KVListRequest
		var k abi.KVGetRequest
		if err := errors.Join(read(&r), read(&k)); err != nil {
			return nil, abi.KindBadRequest
		}
		if r.Limit == 0 {
			r.Limit = abi.MaxPageEntries
		}
		switch name {
		case "kv_list":
			page, err := w.KV.List(ctx, r)
			if err != nil {
				return nil, err
			}
			return json.Marshal(page)
		case "kv_get":
			if err := key(k.Key); err != nil {
				return nil, err
			}
			return w.KV.Get(ctx, k)
		case "kv_set":
			if err := key(k.Key); err != nil {
				return nil, err
			}
			return nil, w.KV.Set(ctx, abi.KVSetRequest{Key: k.Key, Value: body})
		default:
			if err := key(k.Key); err != nil {
				return nil, err
			}
			return nil, w.KV.Delete(ctx, abi.KVDeleteRequest{Key: k.Key})
		}
	case w.LLM != nil && name == "llm_complete":
		var r abi.LLMCompleteRequest
		if err := read(&r); err != nil {
			return nil, err
		}
		if strings.TrimSpace(r.Prompt) == "" {
			return nil, abi.KindBadRequest
		}
		if w.asks == 0 || w.tokens == 0 {
			return nil, abi.KindQuotaExceeded
		}
		r.MaxOutputTokens = min(r.MaxOutputTokens, w.tokens)
		w.asks--
		result, err := w.LLM.Complete(ctx, r)
		if err != nil {
			return nil, err
		}
		w.tokens -= result.OutputTokens
		return json.Marshal(result)
	}
	return nil, abi.KindNotGranted
}

// runner asks the sample hand as the kit wants it.
func (s *driver) runner(_ context.Context, ask conformance.Ask) (conformance.Outcome, error) {
	w := world{Ports: ask.Ports, asks: abi.DefaultLimits().LLMCalls}
	var query abi.Query
	if json.Unmarshal(ask.Query, &query) == nil {
		w.tokens = query.MaxOutputTokens
	}
	text, failed, log := s.query(ask.Query, w.call)
	var lines strings.Builder
	for line := range strings.Lines(log) {
		level, text, _ := strings.Cut(line, " ")
		n, err := strconv.Atoi(level)
		if err != nil {
			return conformance.Outcome{}, err
		}
		if text != "\n" {
			lines.WriteString(abi.Level(n).String() + ": " + text)
		}
	}
	o := conformance.Outcome{Log: lines.String(), LogDigest: sha256.Sum256([]byte(lines.String()))}
	if failed {
		o.Kind, o.Said, o.SaidDigest = abi.KindHandFailed, text, sha256.Sum256([]byte(text))
		return o, nil
	}
	o.Reply, o.ReplyBytes, o.ReplyDigest = text, len(text), sha256.Sum256([]byte(text))
	return o, nil
}

// The sample hand passes every case with the sanitizers watching.
func TestSampleUnderSanitizers(t *testing.T) {
	sample, err := conformance.ReadSample(vectors.Files)
	if err != nil {
		t.Fatal(err)
	}
	report, err := sample.Check(t.Context(), native(t).runner)
	if err != nil {
		t.Fatal(err)
	}
	for _, check := range report.Checks {
		for _, fault := range check.Faults {
			t.Errorf("%s: %s", check.Name, fault)
		}
	}
}

// A host that answers what no host should costs a hand its answer, not its memory.
func TestHostileResults(t *testing.T) {
	s := native(t)
	commands := []string{"list", "list x", "read x", "size x", "get http://h", "post http://h t", "kv-get k", "kv-set k v", "kv-delete k", "kv-list", "ask x"}
	query, err := json.Marshal(abi.Query{Prompt: strings.Join(commands, "\n"), MaxOutputTokens: 100_000})
	if err != nil {
		t.Fatal(err)
	}
	for _, result := range []string{
		"", "\n", "{", "{}", "null", "[]", "7", `"x"`, "{}\n", "\x00", "{\"a\":", strings.Repeat("[", 100_000), strings.Repeat(`{"a":`, 100),
		`{"self":7}`, `{"self":{"name":7,"type":"file"}}`, `{"self":{"name":"x","type":"dir","mtime":"yesterday"},"entries":[],"more":false}`,
		`{"self":{"name":"x","type":"dir"},"entries":[7],"more":false}`, `{"self":{"name":"x","type":"dir"},"entries":{"a":{"name":"b","size":1e99}},"more":"yes"}`,
		`{"self":{"name":"x","type":"dir"},"entries":[],"more":true}`, `{"keys":[],"more":true}`, `{"keys":[7],"more":false}`, `{"keys":7}`,
		"{\"status\":99999999999}\n", "{\"status\":200,\"header\":[[\"X-Answer\"]]}\n", "{\"status\":200,\"header\":[7]}\nbody", "{\"status\":200,\"header\":[[7,8]]}\n",
		"{\"status\":200,\"header\":{\"X-Answer\":[\"a\",\"b\"]}}\n", "{\"status\":-1}\n\n\n", `{"text":7}`, `{"text":"x","input_tokens":"many"}`, `{"text":"x","output_tokens":-9223372036854775808}`,
	} {
		reply, failed, _ := s.query(query, func(name string, _ []byte) (abi.Kind, []byte) { return "", []byte(result) })
		if failed || strings.Count(reply, "\n") < len(commands)-4 {
			t.Errorf("of %.40q: failed is %v, the reply %q", result, failed, reply)
		}
	}
	// What is not as the contract has it is no answer.
	for _, test := range []struct{ command, result, want string }{
		{"get u", "{\"status\":200,\"header\":[[\"X-Answer\"]]}\n", "error: malformed"},
		{"get u", "{\"status\":200,\"header\":[[7,\"b\"]]}\n", "error: malformed"},
		{"get u", "{\"status\":1000}\n", "error: malformed"},
		{"get u", "{\"status\":-1}\n", "error: malformed"},
		{"get u", "{\"status\":200}", "error: malformed"},
		{"get u", "[]\n", "error: malformed"},
		{"get u", "{\"status\":200}\nbody", "200 - body"},
		{"kv-list", `{"keys":["a",7]}`, "error: malformed"},
		{"kv-list", `{"keys":["a"],"more":1}`, "error: malformed"},
		{"kv-list", `{"keys":["a"]}`, "a"},
		{"list", `{"self":{"type":"dir"},"entries":[7]}`, "error: malformed"},
		{"list", `{"self":{"type":"dir"},"entries":[{"size":"1"}]}`, "error: malformed"},
		{"list", `{"entries":[]}`, "error: malformed"},
		{"list", `{"self":{"name":"a","type":"pipe","mtime":"2026-03-23T09:00:00Z"}}`, "other 0 2026-03-23T09:00:00Z a"},
		{"ask x", `{"text":"a","input_tokens":1.5}`, "error: malformed"},
		{"ask x", `{"text":7}`, "error: malformed"},
		{"ask x", `{"text":"a","input_tokens":1,"output_tokens":2}`, "a (1+2 tokens)"},
	} {
		query := fmt.Sprintf(`{"prompt":%q,"max_output_tokens":100}`, test.command)
		if got, _, _ := s.query([]byte(query), func(string, []byte) (abi.Kind, []byte) { return "", []byte(test.result) }); got != test.want {
			t.Errorf("%s, answered with %q: %q, want %q", test.command, test.result, got, test.want)
		}
	}
	// A code that the contract does not have.
	if reply, _, _ := s.query([]byte(`{"prompt":"kv-get a","max_output_tokens":9}`), func(string, []byte) (abi.Kind, []byte) { return abi.KindTrap, nil }); reply != "" {
		t.Errorf("a call that succeeds with nothing gives %q", reply)
	}
}

func TestQueriesThatFail(t *testing.T) {
	s := native(t)
	for query, want := range map[string]string{
		"":                                      "read query: malformed",
		"x":                                     "read query: malformed",
		"{} {}":                                 "read query: malformed",
		"[]":                                    "read query: malformed",
		`{"prompt":7}`:                          "read query: prompt is malformed",
		`{"from":"yesterday"}`:                  "read query: from is malformed",
		`{"max_output_tokens":"many"}`:          "read query: max_output_tokens is malformed",
		`{"max_output_tokens":1e3}`:             "read query: max_output_tokens is malformed",
		`{"prompt":"fail a","prompt":"fail b"}`: "b", // the last counts, as in Go
		`{"config":[]}`:                         "read query: config is malformed",
		strings.Repeat(`{"config":`, 70):        "read query: malformed",
	} {
		if got, failed, _ := s.query([]byte(query), nil); !failed || got != want {
			t.Errorf("%.40q: %v, %q, want %q", query, failed, got, want)
		}
	}
	if got, failed, _ := s.query([]byte(`{"prompt":null,"config":null,"new":[{}]}`), nil); failed || got != "" {
		t.Errorf("absent fields: %v, %q", failed, got)
	}
}

// texts are hard for whoever counts code points.
func texts() []string {
	all := []string{"", "a", "日本語", "😀", "\xff", "\xe6\x97", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xc0\x80", "a\x00b", "\xf0\x9f\x98", "\u2fff\u3000\u30ff\u3100\uffef\ufff0\U00020000\U0002a6df\U0002a6e0\U0002ebf0\U0010ffff"}
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var b []byte
		for range random.IntN(40) {
			switch random.IntN(4) {
			case 0:
				b = append(b, byte(random.Uint32()))
			case 1:
				b = utf8.AppendRune(b, rune(random.IntN(0x110000)))
			case 2:
				b = utf8.AppendRune(b, rune(0x2E00+random.IntN(0x8000)))
			default:
				b = append(b, byte('a'+random.IntN(26)))
			}
		}
		all = append(all, string(b))
	}
	return all
}

func TestTokens(t *testing.T) {
	s := native(t)
	for _, text := range texts() {
		if got, want := s.ask('t', []byte(text)), strconv.Itoa(tokens.Estimate(text)); got != want {
			t.Errorf("%q costs %s, want %s", text, got, want)
		}
		for _, most := range []int{-1, 0, 1, 2, 5, 20, math.MaxInt / 4, math.MaxInt} {
			if got, want := s.ask('c', append(eight(int64(most)), text...)), tokens.Cut(text, most); got != want {
				t.Errorf("%q cut to %d is %q, want %q", text, most, got, want)
			}
		}
	}
}

func TestTimes(t *testing.T) {
	s := native(t)
	for _, text := range []string{
		"2026-03-23T09:00:00Z", "2026-03-23T09:00:00.5+02:00", "1969-12-31T23:59:59.999999999Z", "0000-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59",
		"2000-02-29T00:00:00Z", "1900-02-28T12:34:56Z", "2024-02-29T23:00:00-01:30", "2026-03-23T09:00:00.1234567891Z",
		"", "2026-03-23", "2026-02-29T00:00:00Z", "1900-02-29T00:00:00Z", "2026-13-01T00:00:00Z", "2026-00-01T00:00:00Z", "2026-01-00T00:00:00Z", "2026-04-31T00:00:00Z",
		"2026-03-23T24:00:00Z", "2026-03-23T09:60:00Z", "2026-03-23T09:00:60Z", "2026-03-23T09:00:00", "2026-03-23T09:00:00.Z", "2026-03-23T09:00:00+0200",
		"2026-03-23T09:00:00Zx", "2026-03-23 09:00:00Z", "+026-03-23T09:00:00Z", "2026-03-23T09:00:0\x00Z",
	} {
		want := "no"
		if at, err := time.Parse(time.RFC3339, text); err == nil {
			want = fmt.Sprintf("%d %d", at.Unix(), at.Nanosecond())
		}
		if got := s.ask('p', []byte(text)); got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
	// Go takes these, RFC 3339 does not (golang/go issue 54580).
	for _, text := range []string{"2026-03-23T09:00:00+24:00", "2026-03-23T09:00:00+02:60", "2026-03-23T9:00:00Z", "2026-03-23T09:00:00,5Z"} {
		if got := s.ask('p', []byte(text)); got != "no" {
			t.Errorf("%q is %s", text, got)
		}
	}
	first, last := time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC).Unix(), time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC).Unix()
	seconds := []int64{0, -1, 1, first, last}
	random := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		seconds = append(seconds, first+random.Int64N(last-first))
	}
	for _, at := range seconds {
		want := time.Unix(at, 0).UTC().Format(time.RFC3339)
		if got := s.ask('f', eight(at)); got != want {
			t.Errorf("%d is %s, want %s", at, got, want)
		}
		if got := s.ask('p', []byte(want)); got != fmt.Sprintf("%d 0", at) {
			t.Errorf("%s is %s, want %d", want, got, at)
		}
	}
	for _, at := range []int64{first - 1, last + 1, math.MinInt64, math.MaxInt64} {
		if got := s.ask('f', eight(at)); got != "no" {
			t.Errorf("%d is %s, which has not four digits for the year", at, got)
		}
	}
}

var jsonSeeds = []string{
	`{"a":[1,-2.5e+3,true,false,null,"x"]}`, `"\ud83d\ude00\ud83d\u0041\ude00\ud83d"`, `"\u0000\"\\\/\b\f\n\r\t"`, `"\ud83d\ud83d\ude00"`, `"\uD83D\uDE00"`, `"\ud83d\uffff"`, `"0123456789abcdef"`, `"\u0001\u0010\u001f\u007f"`, "\"\xff\xe6\x97\"",
	`{"a":1,"a":2}`, ` [ 1 , 2 ] `, `[1,]`, `{"a":}`, `{,}`, `[`, `"`, `"\`, `"\u12`, `"\x"`, `01`, `-`, `1.`, `1e`, `.5`, `+1`, `tru`, `nulls`, "\"\n\"", "\"\x1f\"", "\x00", "[]\x00", "7\x00",
	`9223372036854775807`, `-9223372036854775808`, `9223372036854775808`, `-9223372036854775809`, `1e400`, `-0`, `1e-400`, `0.1`, "\ufeff1", "\v1",
}

func TestJSON(t *testing.T) {
	s := native(t)
	for _, text := range jsonSeeds {
		checkJSON(t, s, []byte(text))
	}
	for _, text := range texts() {
		got := s.ask('w', []byte(text))
		var read string
		switch err := json.Unmarshal([]byte(got), &read); {
		case !utf8.ValidString(text) && got != "bad_request":
			t.Errorf("%q, which is not UTF-8, is written as %q", text, got)
		case utf8.ValidString(text) && (err != nil || read != text):
			t.Errorf("%q is written as %q, %v", text, got, err)
		}
	}
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	if got := s.ask('j', []byte(deep(64))); got != deep(64) {
		t.Errorf("64 deep gives %.80q", got)
	}
	if got := s.ask('j', []byte(deep(65))); got != "malformed" {
		t.Errorf("65 deep gives %.80q", got)
	}
}

func FuzzJSON(f *testing.F) {
	for _, text := range jsonSeeds {
		f.Add([]byte(text))
	}
	s := native(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		s.t = t
		checkJSON(t, s, text)
	})
}

// checkJSON compares what the SDK reads, and writes again, with what Go reads.
func checkJSON(t *testing.T, s *driver, text []byte) {
	t.Helper()
	got := s.ask('j', text)
	var want any
	err := decode(text, &want)
	if err != nil || depth(text) > 64 {
		if got != "malformed" {
			t.Errorf("%q, which is no JSON of at most 64 levels (%v), gives %q", text, err, got)
		}
		return
	}
	var have any
	if err := decode([]byte(got), &have); err != nil {
		t.Fatalf("%q gives %q: %v", text, got, err)
	}
	if have, want := plain(have), plain(want); !reflect.DeepEqual(have, want) {
		t.Errorf("%q gives %q: %#v, want %#v", text, got, have, want)
	}
}

// libFuzzer sees what of the C an input reaches. GLOVEBOX_FUZZ_RUNS asks for more.
func TestFuzzTarget(t *testing.T) {
	runs := "20000"
	if more := os.Getenv("GLOVEBOX_FUZZ_RUNS"); more != "" {
		runs = more
	}
	corpus := t.TempDir()
	seeds := 0
	seed := func(mode, allocations int, text string) {
		seeds++
		if err := os.WriteFile(filepath.Join(corpus, strconv.Itoa(seeds)), append([]byte{byte(mode), byte(allocations)}, text...), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, text := range append(slices.Clone(jsonSeeds), "2026-03-23T09:00:00.5+01:00") {
		for mode := range 4 {
			seed(mode, 0, text)
		}
	}
	// Memory that ends at each place where some is wanted.
	for allocations := range 256 {
		seed(1, allocations, `{"prompt":"say a\nconfig\nlist","config":{"words":["a"],"ratio":1}}`)
		seed(3, allocations, `{"self":{"name":"a","type":"dir","mtime":"2026-03-23T09:00:00Z"},"entries":[{"name":"b","type":"file"}],"more":false,"keys":["a"],"text":"x"}`)
		seed(3, allocations, `{"keys":["a"],"text":"x"}`)
		seed(3, allocations, "{\"status\":200,\"header\":[[\"x-answer\",\"b\"]],\"url\":\"u\"}\nbody")
	}
	command := exec.CommandContext(t.Context(), compiled(t, fuzzer), "-runs="+runs, "-seed=1", "-detect_leaks=0", "-rss_limit_mb=0", corpus)
	command.Env = append(os.Environ(), "ASAN_OPTIONS=detect_leaks=0")
	command.Dir = t.TempDir() // an input that fails is left there
	if printed, err := command.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, printed[max(0, len(printed)-4000):])
	}
}

func decode(text []byte, value *any) error {
	if !json.Valid(text) {
		return errors.New("not valid")
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	return decoder.Decode(value)
}

func depth(text []byte) int {
	level, most, inString := 0, 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case !inString && (c == '[' || c == '{'):
			level++
			most = max(most, level)
		case !inString && (c == ']' || c == '}'):
			level--
		}
	}
	return most
}

// plain makes numbers that are the same equal: an int64 where it is one by its
// digits, else a float64, or what drive.c says of one that is too large.
func plain(value any) any {
	switch v := value.(type) {
	case json.Number:
		if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
			return n
		}
		n, err := strconv.ParseFloat(string(v), 64)
		if err != nil {
			return "beyond"
		}
		if n == math.Trunc(n) && math.Abs(n) < 1<<53 {
			return int64(n)
		}
		return n
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = plain(v[key])
		}
	}
	return value
}
