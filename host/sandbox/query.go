package sandbox

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/sys"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/sandbox/wasm"
)

// DefaultOutputTokens is the size of reply that a query asks for if it does not
// say.
const DefaultOutputTokens = 2000

// failureTokens bounds what a hand may say about its own failure.
const failureTokens = 200

// Result is what came of one query. Everything in it that the guest chose is a
// boundary.Content.
type Result struct {
	// Reply is empty if the hand had nothing to say or failed.
	Reply boundary.Content
	// Neutralised tells what the boundary did to the reply.
	Neutralised boundary.Report
	// Cut says that the reply was longer than the output limit or than
	// MaxOutputTokens.
	Cut bool
	// Said is the hand's own account of its failure.
	Said boundary.Content
	// Log holds the lines that the hand logged, each after its level and a
	// colon; LogDropped counts those over the limit.
	Log        boundary.Content
	LogDropped int
	// Took is wall time without the wait for a place.
	Took time.Duration
	// MemoryBytes is the largest size of the linear memory.
	MemoryBytes int64
	// ReplyBytes is what the guest wrote, also beyond the limit.
	ReplyBytes int
	// Calls counts the capability calls.
	Calls int
	// Fuel is what the guest used, in units of about one instruction.
	Fuel int64
	// Exact are digests of what the guest wrote, byte by byte; nil unless
	// Ports.Fixed is set.
	Exact *Exact
}

// Exact holds SHA-256 digests: a test that has to know a guest's very bytes
// compares them with those of what it wants, and no text goes round its frame.
type Exact struct {
	// Reply is of the reply up to the output limit, before it is cut to tokens;
	// also of what was written before a failure.
	Reply [sha256.Size]byte
	// Said is of the guest's account of its failure; of nothing if there is none.
	Said [sha256.Size]byte
	// Log is of the lines of the log, each after its level, a colon and a space,
	// and with a line feed behind it.
	Log [sha256.Size]byte
}

// Query asks the module one question in a fresh instance. The result is valid
// also when the error is not nil: it then has the log and what the hand said.
//
// Errors are *abi.Error of the kinds timeout, out_of_memory, trap, exit,
// hand_failed, busy, bad_request, unavailable and host_closed. A query that ctx
// ends is a timeout, which matches context.DeadlineExceeded or, if ctx was
// cancelled, context.Canceled; one whose deadline passes while it waits for a place is
// busy.
func (m *Module) Query(ctx context.Context, q abi.Query, ports Ports) (Result, error) {
	growStack(false)
	if q.MaxOutputTokens <= 0 {
		q.MaxOutputTokens = DefaultOutputTokens
	}
	if len(q.Prompt) > abi.MaxPromptBytes {
		return Result{}, m.errorf(abi.KindBadRequest, "prompt is %d bytes: at most %d are allowed", len(q.Prompt), abi.MaxPromptBytes)
	}
	encoded, err := encodeQuery(q)
	if err != nil {
		return Result{}, &abi.Error{Hand: m.name, Kind: abi.KindBadRequest, Text: "encode query", Err: err}
	}
	return m.ask(ctx, encoded, q.MaxOutputTokens, ports)
}

// QueryEncoded is Query with a query that is JSON already, and reaches the guest
// as it is: a conformance test asks with fields of tomorrow and spellings that
// this host does not use. It must be an object of at most abi.MaxRequestBytes; its
// max_output_tokens is what the reply is cut to. Errors are those of Query.
func (m *Module) QueryEncoded(ctx context.Context, query []byte, ports Ports) (Result, error) {
	if len(query) > abi.MaxRequestBytes {
		return Result{}, m.errorf(abi.KindBadRequest, "the query is %d bytes: at most %d are allowed", len(query), abi.MaxRequestBytes)
	}
	var size struct {
		MaxOutputTokens int `json:"max_output_tokens"`
	}
	if err := json.Unmarshal(query, &size); err != nil {
		return Result{}, &abi.Error{Hand: m.name, Kind: abi.KindBadRequest, Text: "the query is not a JSON object of the contract", Err: err}
	}
	if size.MaxOutputTokens <= 0 {
		size.MaxOutputTokens = DefaultOutputTokens
	}
	return m.ask(ctx, query, size.MaxOutputTokens, ports)
}

// queryStack has a new goroutine's stack grow to 8 KiB, of which a query takes six.
const queryStack = 5 << 10

// growStack has the stack of a new goroutine grow once, and while there is little on it.
// By itself it is doubled whenever it ends, and all frames that are there by then are
// moved: among hands that are asked at once, were each given a goroutine of its own, a
// trivial query took an eighth longer by that. The runtime makes room for the frame of a function
// that is called, whether or not it is used (newstack in runtime/stack.go).
//
//go:noinline
func growStack(use bool) byte {
	if !use {
		return 0
	}
	var frame [queryStack]byte
	return lastOf(frame[:])
}

//go:noinline
func lastOf(b []byte) byte { return b[len(b)-1] }

func (m *Module) ask(ctx context.Context, encoded []byte, maxOutputTokens int, ports Ports) (Result, error) {
	leave, err := m.enter(ctx)
	if err != nil {
		return Result{}, err
	}
	defer leave()

	code, err := m.engine.use(ctx, m)
	if err != nil {
		return Result{}, err
	}
	c := &call{module: m, code: code, ports: ports, query: encoded, maxOutputTokens: maxOutputTokens, granted: slice}
	var result Result
	began := time.Now()
	defer func() { m.program.done(began.Add(result.Took)) }()
	err = c.run(ctx)
	result = c.outcome(maxOutputTokens, err)
	result.Took = time.Since(began)
	return result, err
}

// encodeQuery writes a query as encoding/json would, without its reflection.
func encodeQuery(q abi.Query) ([]byte, error) {
	out := make([]byte, 0, 384+len(q.Prompt))
	var err error
	if out, err = appendString(append(out, `{"prompt":`...), q.Prompt); err != nil {
		return nil, err
	}
	for _, field := range [...]struct {
		name string
		at   *time.Time
	}{{`,"from":"`, &q.From}, {`,"to":"`, &q.To}, {`,"now":"`, &q.Now}} {
		// RFC 3339 has no other years.
		if y := field.at.Year(); y < 0 || y > 9999 {
			return nil, fmt.Errorf("%s: the year %d cannot be written", strings.Trim(field.name, `,":`), y)
		}
		out = append(field.at.AppendFormat(append(out, field.name...), time.RFC3339Nano), '"')
	}
	if out, err = appendString(append(out, `,"timezone":`...), q.Timezone); err != nil {
		return nil, err
	}
	out = strconv.AppendInt(append(out, `,"max_output_tokens":`...), int64(q.MaxOutputTokens), 10)
	if len(q.Config) > 0 {
		if out, err = appendConfig(append(out, `,"config":`...), q.Config); err != nil {
			return nil, err
		}
	}
	if q.Subject != "" {
		if out, err = appendString(append(out, `,"subject":`...), q.Subject); err != nil {
			return nil, err
		}
	}
	return append(out, '}'), nil
}

// appendConfig writes what a manifest's types can be without reflection; other values
// it leaves to encoding/json.
func appendConfig(out []byte, config map[string]any) ([]byte, error) {
	var few [16]string
	names := few[:0]
	for name := range config {
		names = append(names, name)
	}
	slices.Sort(names)
	out = append(out, '{')
	for i, name := range names {
		if i > 0 {
			out = append(out, ',')
		}
		var err error
		if out, err = appendString(out, name); err != nil {
			return nil, err
		}
		out = append(out, ':')
		switch v := config[name].(type) {
		case string:
			out, err = appendString(out, v)
		case int64:
			out = strconv.AppendInt(out, v, 10)
		case bool:
			out = strconv.AppendBool(out, v)
		case []string:
			if v == nil {
				out = append(out, "null"...)
				break
			}
			out = append(out, '[')
			for k, element := range v {
				if k > 0 {
					out = append(out, ',')
				}
				if out, err = appendString(out, element); err != nil {
					return nil, err
				}
			}
			out = append(out, ']')
		default:
			var encoded []byte
			encoded, err = json.Marshal(v)
			out = append(out, encoded...)
		}
		if err != nil {
			return nil, err
		}
	}
	return append(out, '}'), nil
}

// appendString leaves to encoding/json what needs more than quotes.
func appendString(out []byte, s string) ([]byte, error) {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			encoded, err := json.Marshal(s)
			return append(out, encoded...), err
		}
	}
	return append(append(append(out, '"'), s...), '"'), nil
}

func (m *Module) errorf(kind abi.Kind, format string, args ...any) error {
	return &abi.Error{Hand: m.name, Kind: kind, Text: fmt.Sprintf(format, args...)}
}

// enter takes a place among the hand's queries, then among all.
func (m *Module) enter(ctx context.Context) (leave func(), err error) {
	e := m.engine
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil, m.errorf(abi.KindHostClosed, "")
	}
	m.queries.Add(1)
	m.mu.Unlock()

	leave = func() {
		e.inFlight.Release(1)
		m.slots.Release(1)
		m.queries.Done()
	}
	// Mostly there is room, and nobody's patience need be measured.
	if m.slots.TryAcquire(1) {
		if e.inFlight.TryAcquire(1) {
			return leave, nil
		}
		m.slots.Release(1)
	}
	wait, cancel := context.WithTimeout(ctx, min(e.config.MaxWait, m.limits.Timeout))
	defer cancel()
	if err := m.slots.Acquire(wait, 1); err != nil {
		m.queries.Done()
		return nil, m.busy(ctx, fmt.Sprintf("%d queries of this hand are running", m.limits.Concurrent))
	}
	if err := e.inFlight.Acquire(wait, 1); err != nil {
		m.slots.Release(1)
		m.queries.Done()
		return nil, m.busy(ctx, fmt.Sprintf("%d queries are in flight", e.config.InFlight))
	}
	return leave, nil
}

func (m *Module) busy(ctx context.Context, why string) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return &abi.Error{Hand: m.name, Kind: abi.KindTimeout, Text: "query cancelled before it began", Err: context.Canceled}
	}
	return m.errorf(abi.KindBusy, "busy: %s", why)
}

// call is the state of one query. Its fields belong to the goroutine that runs
// the guest.
type call struct {
	module *Module
	code   *loadedCode
	ports  Ports
	query  []byte
	memory linearMemory
	placed bool // holds one of the engine's places
	// taking says that there is no query: an image is being taken.
	taking bool

	reply     []byte
	replySize int
	failed    bool
	failure   []byte
	log       logBuffer
	// What was written to the streams of WASI.
	stdoutLog, stderrLog logWriter
	result               []byte
	// What the capability calls have used of their limits.
	calls, requests, llmCalls            int
	llmInput, llmOutput, maxOutputTokens int
	fileBytes                            int64
	stderr                               []byte
	// fault is a panic of the host's own code during a host call.
	fault error

	limited limited
	// passed is how far clocks have moved that are not the machine's.
	passed time.Duration
	// granted is the slice that the guest is using; used is what it used
	// before that, and hostFuel what host calls were charged.
	granted, used, hostFuel int64
	// ticked says that a tick ended the guest, with nothing granted.
	ticked bool
}

func (c *call) run(ctx context.Context) error {
	m := c.module
	limited := &c.limited
	limited.begin(ctx, c, m.limits.Timeout)
	defer limited.end()
	c.begin()
	c.memory.image = c.code.image
	defer c.memory.release()

	if !c.takePlace(limited) {
		return c.explain(ctx, limited, limited.Err())
	}
	defer c.leavePlace()

	guest := c.guest()
	instance, leave, err := c.instantiate(guest)
	defer leave()
	if err != nil {
		return c.explain(ctx, limited, err)
	}
	defer instance.Close(context.Background())
	calls := m.program.calls
	if c.code.image != nil {
		calls = c.code.image.Calls
		if err := c.resume(instance); err != nil {
			return c.explain(ctx, limited, err)
		}
	}
	err = c.enter(guest, instance, calls)
	c.settle(instance)
	if err == nil && c.fuel() > m.limits.Fuel {
		err = errOutOfFuel
	}
	return c.explain(ctx, limited, err)
}

// guest returns the context of the guest, from which the engine takes its memory and
// its imports.
func (c *call) guest() context.Context {
	provide := func(name string) api.Module { return c.module.engine.provided[name] }
	return experimental.WithImportResolver(experimental.WithMemoryAllocator(&c.limited, &c.memory), provide)
}

// begin sets up what the guest is held against.
func (c *call) begin() {
	m := c.module
	c.stdoutLog, c.stderrLog = logWriter{call: c, level: abi.LevelInfo}, logWriter{call: c, level: abi.LevelWarn}
	c.log.bytesLeft, c.log.linesLeft = m.limits.LogBytes, m.limits.LogLines
	c.memory.pool = m.engine.memories
	c.memory.limit, c.memory.total, c.memory.bound = uint64(m.limits.MemoryBytes), &m.engine.memory, m.engine.config.MemoryBytes
}

// takePlace waits for one of the places for guests that run; it gives up, and
// reports false, when ctx is done.
func (c *call) takePlace(ctx context.Context) bool {
	// To wait takes a timer; mostly there is room.
	c.placed = c.module.engine.running.TryAcquire(1) || c.module.engine.running.Acquire(ctx, 1) == nil
	return c.placed
}

func (c *call) leavePlace() {
	if c.placed {
		c.module.engine.running.Release(1)
		c.placed = false
	}
}

// errNoMemory stands for the engine's panic when a memory cannot even begin.
var errNoMemory = errors.New("no memory to begin with")

// instantiate makes an instance, and enters its world; leave is to be called when the
// instance is closed, also beside an error.
func (c *call) instantiate(ctx context.Context) (instance api.Module, leave func(), err error) {
	p, leave := c.module.program, func() {}
	defer func() {
		if r := recover(); r != nil {
			if !c.memory.refused {
				err = fmt.Errorf("engine: %v", r)
				return
			}
			err = errNoMemory
		}
	}()
	config := p.config
	if p.usesWASI {
		config, leave = c.enterWorld(ctx)
	}
	instance, err = c.module.engine.runtime.InstantiateModule(ctx, c.code.compiled, config)
	return instance, leave, err
}

// resume brings a new instance to where its image was taken. Its memory holds the
// image already, as far as it reaches.
func (c *call) resume(instance api.Module) error {
	from := c.code.image
	if from.Size > c.memory.size {
		if !c.memory.begun {
			return errors.New("image: the module has no memory")
		}
		if _, ok := instance.Memory().Grow(uint32((from.Size - c.memory.size) / wasm.PageBytes)); !ok {
			return errNoMemory
		}
	}
	for n, value := range from.Globals {
		global, ok := instance.ExportedGlobal(c.module.program.globals[n]).(api.MutableGlobal)
		if !ok {
			return fmt.Errorf("image: the module has no mutable global %d", n)
		}
		global.Set(value)
	}
	return nil
}

func callExport(ctx context.Context, instance api.Module, name string) ([]uint64, error) {
	export := instance.ExportedFunction(name)
	if export == nil {
		return nil, fmt.Errorf("the module exports no function %q", name)
	}
	return export.Call(ctx)
}

// enter calls the module's exports in order.
func (c *call) enter(ctx context.Context, instance api.Module, calls []string) error {
	var results []uint64
	var err error
	for _, name := range calls {
		if results, err = callExport(ctx, instance, name); err != nil {
			break
		}
	}
	if c.module.program.profile == ProfileReactor {
		if err == nil && len(results) == 1 && int32(results[0]) != 0 && !c.failed {
			err = c.module.errorf(abi.KindHandFailed, "failed with status %d", int32(results[0]))
		}
		return err
	}
	exit, exited := errors.AsType[*sys.ExitError](err)
	switch {
	case !exited:
		return err
	case exit.ExitCode() != 0:
		c.failed, c.failure = true, c.stderr
	}
	return nil
}

// explain turns what ended the guest into an error of the contract. The
// engine's own texts can hold names that the guest chose, so none is passed on.
func (c *call) explain(parent, limited context.Context, err error) error {
	m := c.module
	if typed, ok := errors.AsType[*abi.Error](err); ok {
		return typed
	}
	exit, exited := errors.AsType[*sys.ExitError](err)
	switch {
	case errors.Is(err, errOutOfFuel):
		return m.errorf(abi.KindOutOfFuel, "ran out of fuel: the limit is %d units", m.limits.Fuel)
	case errors.Is(err, errStackOverflow):
		return m.errorf(abi.KindStackOverflow, "its call stack overflowed: the limit is %d MiB", m.limits.StackBytes>>20)
	case c.fault != nil:
		return &abi.Error{Hand: m.name, Kind: abi.KindUnavailable, Text: "internal error of the host", Err: c.fault}
	case err == nil && c.failed:
		return m.errorf(abi.KindHandFailed, "failed and says why in its own words")
	case err == nil:
		return nil
	case errors.Is(parent.Err(), context.Canceled):
		return m.ended(parent)
	case limited.Err() != nil || errors.Is(err, errTimeIsUp):
		// The guest looks at the clock, and may be ahead of the timer of its caller.
		if deadline, ok := parent.Deadline(); ok && (parent.Err() != nil || !time.Now().Before(deadline)) {
			return m.ended(parent)
		}
		return m.errorf(abi.KindTimeout, "query timed out after %v", m.limits.Timeout)
	case c.memory.crowded:
		return m.errorf(abi.KindOutOfMemory, "ran out of memory: others had what was left of the %d MiB for all hands together", c.memory.bound>>20)
	case c.memory.refused:
		return m.errorf(abi.KindOutOfMemory, "ran out of memory: the limit is %d MiB", m.limits.MemoryBytes>>20)
	case exited:
		return m.errorf(abi.KindExit, "exited with code %d before it answered", exit.ExitCode())
	}
	if strings.Contains(err.Error(), "stack overflow") {
		return m.errorf(abi.KindStackOverflow, "its call stack overflowed")
	}
	return m.errorf(abi.KindTrap, "trapped: %s", engineText(err))
}

// ended is the error of a query whose ctx is over.
func (m *Module) ended(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return &abi.Error{Hand: m.name, Kind: abi.KindTimeout, Text: "query cancelled", Err: context.Canceled}
	}
	text := "query timed out at its caller's deadline"
	if deadline, ok := ctx.Deadline(); ok {
		text += ", " + deadline.UTC().Format(time.RFC3339)
	}
	return m.errorf(abi.KindTimeout, "%s", text)
}

// engineTexts are the engine's errors that hold nothing of the guest's.
var engineTexts = [...]string{
	"unreachable", "out of bounds memory access", "integer divide by zero", "integer overflow",
	"invalid conversion to integer", "invalid table access", "indirect call type mismatch",
	"min >= limit pages", "memory size overflow", "invalid magic number", "unexpected end of section",
	"is not exported in module", "unknown import", "signature mismatch",
}

// engineText reduces an error of the engine to the part of it that is known.
func engineText(err error) string {
	text := err.Error()
	for _, known := range engineTexts {
		if strings.Contains(text, known) {
			return known
		}
	}
	return "it is not valid, or uses a feature that hands cannot use"
}

func (c *call) outcome(maxTokens int, err error) Result {
	r := Result{
		Calls:       c.calls,
		Fuel:        c.fuel(),
		ReplyBytes:  c.replySize,
		MemoryBytes: int64(c.memory.peak),
		LogDropped:  c.log.dropped,
	}
	c.stdoutLog.flush()
	c.stderrLog.flush()
	if log := c.log.String(); log != "" {
		r.Log, _ = boundary.Wrap(c.module.source, log, boundary.Unlimited)
	}
	if c.failed {
		r.Said, _ = boundary.Wrap(c.module.source, string(c.failure), failureTokens)
	}
	if c.ports.Fixed != nil {
		r.Exact = &Exact{Reply: sha256.Sum256(c.reply), Said: sha256.Sum256(c.failure), Log: sha256.Sum256([]byte(c.log.String()))}
	}
	if err != nil {
		return r
	}
	text := c.reply
	dropped := c.replySize - len(text)
	if dropped > 0 {
		text = wholeRunes(text)
		text = fmt.Appendf(text, "\n[… cut: %d more bytes]", c.replySize-len(text))
	}
	r.Reply, r.Neutralised = boundary.Wrap(c.module.source, string(text), maxTokens)
	r.Cut = dropped > 0 || r.Neutralised.CutTokens > 0
	return r
}

// wholeRunes drops the beginning of a code point that was cut at the end.
func wholeRunes(text []byte) []byte {
	for back := 1; back < utf8.UTFMax && back <= len(text); back++ {
		b := text[len(text)-back]
		if utf8.RuneStart(b) {
			if !utf8.FullRune(text[len(text)-back:]) {
				return text[:len(text)-back]
			}
			return text
		}
	}
	return text
}

// logBuffer keeps the first lines of a log and counts the rest.
type logBuffer struct {
	text                 strings.Builder
	bytesLeft, linesLeft int
	dropped              int
}

// unitsLine is what a line of the log costs, and a piece that is written,
// beside its bytes.
const unitsLine = 64

func (l *logBuffer) add(level abi.Level, text string) {
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if line == "" {
			continue
		}
		if l.linesLeft == 0 || len(line) > l.bytesLeft {
			l.dropped++
			continue
		}
		l.linesLeft--
		l.bytesLeft -= len(line)
		l.text.WriteString(level.String() + ": " + line + "\n")
	}
}

func (l *logBuffer) String() string { return l.text.String() }

// logWriter takes a stream apart into lines: a guest's runtime writes a line in
// many pieces. What has no end yet is logged when the query is over.
type logWriter struct {
	call  *call
	level abi.Level
	rest  []byte
}

func (w *logWriter) Write(b []byte) (int, error) {
	w.call.use(unitsLine + int64(len(b)/bytesPerUnit))
	for piece := range bytes.Lines(b) {
		// A line without an end is cut where none would be kept.
		room := max(w.call.module.limits.LogBytes+1-len(w.rest), 0)
		w.rest = append(w.rest, piece[:min(len(piece), room)]...)
		if piece[len(piece)-1] == '\n' {
			// A megabyte may be as many lines: each may be the last.
			w.call.use(unitsLine)
			w.flush()
		}
	}
	return len(b), nil
}

func (w *logWriter) flush() {
	w.call.log.add(w.level, string(w.rest))
	w.rest = w.rest[:0]
}
