package host

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	noopmetric "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	nooptrace "go.opentelemetry.io/otel/trace/noop"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/compaction"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/host/sandbox"
	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/dream"
	"github.com/gloveboxhq/glovebox/memory/sqlite"
)

// What a host measures. Two rules hold for all of it. A metric's labels have few
// values: names from the configuration, and words of this program; never a user, a
// session, a path or a number. A span has ids, counts and outcomes besides, and
// nothing that anybody said: an error's text may quote what a model, a hand or a
// user wrote, so that it is told by its outcome alone.

// scope names the measurements of this package.
const scope = "github.com/gloveboxhq/glovebox/host"

// The bounds of histograms. Each covers what is usual in steps of about two, and
// what is not in coarser ones.
var (
	secondsOfHost  = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10}
	secondsOfModel = []float64{.05, .1, .25, .5, 1, 2, 4, 8, 15, 30, 60, 120, 300}
	secondsOfHand  = []float64{.00001, .000025, .00005, .0001, .00025, .0005, .001, .005, .025, .1, .5, 2, 10}
	bytesOfMemory  = []float64{64 << 10, 256 << 10, 1 << 20, 4 << 20, 8 << 20, 16 << 20, 32 << 20, 64 << 20, 256 << 20}
)

// instruments are what a host measures with. They are safe for concurrent use.
type instruments struct {
	tracer trace.Tracer
	meter  metric.Meter

	turns, handRuns, handFuel, toolCalls, reloads           metric.Int64Counter
	modelRequests, inputTokens, outputTokens, cachedTokens  metric.Int64Counter
	turnsActive                                             metric.Int64UpDownCounter
	turnTook, turnHost, compactionTook, handTook            metric.Float64Histogram
	modelTook, modelFirst                                   metric.Float64Histogram
	handMemory                                              metric.Int64Histogram
	triggers, memoryRuns                                    metric.Int64ObservableCounter
	storeSize, sessions, messages, writersWaiting, indexLag metric.Int64ObservableGauge
	backgroundRuns, backgroundCalls, pendingRuns, hands     metric.Int64ObservableGauge

	byHand sync.Map // of *handMeasures, by the hand's name

	// watching is what looks at a host when somebody reads the metrics.
	watching metric.Registration
}

// newInstruments makes the instruments of a configuration; where it has no Tracer
// or Meter, those that do nothing.
func newInstruments(c Config) (*instruments, error) {
	tracers, meters := c.Tracer, c.Meter
	if tracers == nil {
		tracers = nooptrace.NewTracerProvider()
	}
	if meters == nil {
		meters = noopmetric.NewMeterProvider()
	}
	i := &instruments{tracer: tracers.Tracer(scope), meter: meters.Meter(scope)}
	var errs []error
	counter := func(to *metric.Int64Counter, name, help string) {
		made, err := i.meter.Int64Counter(name, metric.WithDescription(help))
		*to, errs = made, append(errs, err)
	}
	took := func(to *metric.Float64Histogram, name, help string, bounds []float64) {
		made, err := i.meter.Float64Histogram(name, metric.WithDescription(help), metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(bounds...))
		*to, errs = made, append(errs, err)
	}
	counted := func(to *metric.Int64ObservableCounter, name, help string) {
		made, err := i.meter.Int64ObservableCounter(name, metric.WithDescription(help))
		*to, errs = made, append(errs, err)
	}
	gauge := func(to *metric.Int64ObservableGauge, name, unit, help string) {
		made, err := i.meter.Int64ObservableGauge(name, metric.WithDescription(help), metric.WithUnit(unit))
		*to, errs = made, append(errs, err)
	}
	counter(&i.turns, "glovebox.turns", "Turns that ended, by agent and outcome.")
	took(&i.turnTook, "glovebox.turn.duration", "How long turns took, from the message to the stored answer.", secondsOfModel)
	took(&i.turnHost, "glovebox.turn.host.duration", "How long turns took without what they waited for: the model, tools, hands, compaction, and the turn before.", secondsOfHost)
	active, err := i.meter.Int64UpDownCounter("glovebox.turns.active", metric.WithDescription("Turns that go on, those that wait for the one before included."))
	i.turnsActive, errs = active, append(errs, err)
	counted(&i.triggers, "glovebox.triggers", "Runs of compaction that were due, by trigger and outcome.")
	took(&i.compactionTook, "glovebox.compaction.duration", "How long runs of compaction took that were not skipped, by trigger and outcome.", secondsOfModel)
	counter(&i.handRuns, "glovebox.hand.runs", "Questions to hands, by hand and outcome.")
	took(&i.handTook, "glovebox.hand.duration", "How long hands ran.", secondsOfHand)
	counter(&i.handFuel, "glovebox.hand.fuel", "Fuel that hands used.")
	peak, err := i.meter.Int64Histogram("glovebox.hand.memory", metric.WithDescription("The most linear memory that a run had."), metric.WithUnit("By"), metric.WithExplicitBucketBoundaries(bytesOfMemory...))
	i.handMemory, errs = peak, append(errs, err)
	counter(&i.toolCalls, "glovebox.tool.calls", "Calls of the host's tools by the model, by tool and outcome.")
	counter(&i.modelRequests, "glovebox.model.requests", "Requests to the model, by purpose and outcome.")
	took(&i.modelTook, "glovebox.model.duration", "How long the model took to answer, retries included.", secondsOfModel)
	took(&i.modelFirst, "glovebox.model.first.piece.duration", "How long it took until the first piece of an answer that was streamed.", secondsOfModel)
	counter(&i.inputTokens, "glovebox.model.input.tokens", "Tokens of prompts, by the model's own count.")
	counter(&i.outputTokens, "glovebox.model.output.tokens", "Tokens of answers, by the model's own count.")
	counter(&i.cachedTokens, "glovebox.model.cached.tokens", "Those tokens of prompts that the provider had kept.")
	counted(&i.memoryRuns, "glovebox.memory.runs", "Extractions, mini-dreams and dreams, by kind and outcome.")
	counter(&i.reloads, "glovebox.reloads", "Reloads of the configuration, by outcome.")
	gauge(&i.hands, "glovebox.hands", "", "Hands that are loaded.")
	gauge(&i.storeSize, "glovebox.store.size", "By", "Size of the files of a database, by database and part.")
	gauge(&i.sessions, "glovebox.sessions", "", "Sessions in the store.")
	gauge(&i.messages, "glovebox.messages", "", "Messages in the store.")
	gauge(&i.writersWaiting, "glovebox.store.writers.waiting", "", "Who waits to write into the store, by queue.")
	gauge(&i.indexLag, "glovebox.index.lag.messages", "", "Messages that are stored and not in the search index yet.")
	gauge(&i.backgroundRuns, "glovebox.background.runs", "", "What goes on behind the turns: compaction, extractions, dreams.")
	gauge(&i.backgroundCalls, "glovebox.background.calls", "", "Calls of the model that nobody waits for, by state: those that go on, and those that wait to be made.")
	gauge(&i.pendingRuns, "glovebox.compaction.pending", "", "Runs of compaction that are due or go on behind the turns.")
	return i, errors.Join(errs...)
}

// watch has the gauges and the counts that the host keeps anyway read when
// somebody reads the metrics.
func (i *instruments) watch(h *Host) (err error) {
	i.watching, err = i.meter.RegisterCallback(h.gauge, i.triggers, i.memoryRuns, i.hands, i.storeSize, i.sessions, i.messages, i.writersWaiting, i.indexLag, i.backgroundRuns, i.backgroundCalls, i.pendingRuns)
	return err
}

// unwatch lets go of the host.
func (i *instruments) unwatch() error {
	if i == nil || i.watching == nil {
		return nil
	}
	return i.watching.Unregister()
}

// statsTimeout bounds how long a reader of the metrics waits for the store.
const statsTimeout = time.Second

// gauge reads what is read only when somebody asks. What cannot be read is left
// out.
func (h *Host) gauge(ctx context.Context, o metric.Observer) error {
	i := h.instruments
	counts := h.Counts()
	for trigger, c := range counts.Triggers {
		for outcome, n := range map[string]int{"fired": c.Fired, "busy": c.Busy, "inactive": c.Inactive, "nothing": c.Nothing, "failed": c.Failed} {
			o.ObserveInt64(i.triggers, int64(n), labels("trigger", string(trigger), "outcome", outcome))
		}
	}
	if h.dreams != nil {
		for _, run := range memoryRuns(counts.Memory) {
			o.ObserveInt64(i.memoryRuns, int64(run.n), labels("kind", run.kind, "outcome", run.outcome))
		}
	}
	set, release := h.handSets.use()
	o.ObserveInt64(i.hands, int64(len(set.hands)))
	release()
	o.ObserveInt64(i.backgroundRuns, int64(h.background.Active()+h.compaction.Active()))
	o.ObserveInt64(i.backgroundCalls, h.pace.going.Load(), labels("state", "going"))
	o.ObserveInt64(i.backgroundCalls, h.pace.waiting.Load(), labels("state", "waiting"))
	sessions := h.config.Store.Path
	for database, path := range map[string]string{"sessions": sessions, "hands": filepath.Join(filepath.Dir(sessions), "hands.db")} {
		for part, file := range map[string]string{"main": path, "wal": path + "-wal"} {
			if info, err := os.Stat(file); err == nil {
				o.ObserveInt64(i.storeSize, info.Size(), labels("database", database, "part", part))
			}
		}
	}
	// A test may have put another store in the place of the host's.
	measured, ok := h.store.(interface {
		Stats(context.Context) (sqlite.Stats, error)
	})
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, statsTimeout)
	defer cancel()
	stats, err := measured.Stats(ctx)
	o.ObserveInt64(i.writersWaiting, int64(stats.Waiting), labels("queue", "foreground"))
	o.ObserveInt64(i.writersWaiting, int64(stats.WaitingBehind), labels("queue", "background"))
	if err != nil {
		h.log.Warn("read the store for the metrics", "error", err)
		return nil
	}
	o.ObserveInt64(i.sessions, stats.Sessions)
	o.ObserveInt64(i.messages, stats.Messages)
	o.ObserveInt64(i.indexLag, stats.Unindexed)
	o.ObserveInt64(i.pendingRuns, stats.PendingRuns)
	return nil
}

// memoryRun is one count of structured memory.
type memoryRun struct {
	kind, outcome string
	n             int
}

func memoryRuns(c dream.Counts) []memoryRun {
	return []memoryRun{
		{"extraction", "done", c.Extractions}, {"extraction", "failed", c.ExtractionsFailed},
		{"mini_dream", "done", c.MiniDreams}, {"mini_dream", "failed", c.MiniDreamsFailed},
		{"dream", "done", c.Dreams}, {"dream", "failed", c.DreamsFailed},
		{"dream", "busy", c.Busy}, {"dream", "nothing", c.Nothing},
	}
}

// labels are pairs of a name and a value.
func labels(pairs ...string) metric.MeasurementOption {
	return metric.WithAttributeSet(attributes(pairs...))
}

func attributes(pairs ...string) attribute.Set {
	all := make([]attribute.KeyValue, 0, len(pairs)/2)
	for n := 0; n+1 < len(pairs); n += 2 {
		all = append(all, attribute.String(pairs[n], pairs[n+1]))
	}
	return attribute.NewSet(all...)
}

// outcomeOf names how something ended, in one of a dozen words.
func outcomeOf(err error) string {
	if err == nil {
		return "ok"
	}
	for _, known := range []struct {
		is   error
		name string
	}{
		// A wipe ends what goes on with other errors too: it is the reason.
		{memory.ErrWiped, "wiped"},
		{context.Canceled, "cancelled"},
		{context.DeadlineExceeded, "timeout"},
		{ErrClosed, "closed"},
		{llm.ErrContextTooLong, "too_long"},
		{llm.ErrRateLimited, "rate_limited"},
		{llm.ErrAuth, "auth"},
		{llm.ErrRefused, "refused"},
		{llm.ErrEmpty, "empty"},
		{llm.ErrUnavailable, "unavailable"},
		{memory.ErrNotFound, "not_found"},
		{memory.ErrInvalid, "invalid"},
	} {
		if errors.Is(err, known.is) {
			return known.name
		}
	}
	return "error"
}

// finish ends a span with an outcome.
func finish(span trace.Span, outcome string, failed bool) {
	if !span.IsRecording() {
		span.End()
		return
	}
	span.SetAttributes(attribute.String("glovebox.outcome", outcome))
	if failed {
		span.SetStatus(codes.Error, outcome)
	}
	span.End()
}

// turnSpan is one turn that is measured. A nil one measures nothing.
type turnSpan struct {
	instruments *instruments
	span        trace.Span
	began       time.Time
	agent       string
	// waited is how long the turn did nothing itself, in nanoseconds.
	waited atomic.Int64
}

type turnKey struct{}

// turnIn returns the turn that a context belongs to, or nil.
func turnIn(ctx context.Context) *turnSpan {
	t, _ := ctx.Value(turnKey{}).(*turnSpan)
	return t
}

// turn begins a turn. Its end is told of once.
func (i *instruments) turn(ctx context.Context) (context.Context, *turnSpan) {
	t := &turnSpan{instruments: i, began: time.Now()}
	ctx, t.span = i.tracer.Start(ctx, "turn")
	i.turnsActive.Add(ctx, 1)
	return context.WithValue(ctx, turnKey{}, t), t
}

// in says whose turn it is, once that is known.
func (t *turnSpan) in(agent string, session *memory.Session) {
	t.agent = agent
	t.span.SetAttributes(attribute.String("glovebox.agent", agent), attribute.String("glovebox.session", session.ID.String()), attribute.String("glovebox.user", session.User.String()))
}

// waits counts the time until the returned function is called as time that the
// turn waited.
func (t *turnSpan) waits() (end func()) {
	if t == nil {
		return func() {}
	}
	began := time.Now()
	return func() { t.waited.Add(int64(time.Since(began))) }
}

func (t *turnSpan) end(err error) {
	took, agent, outcome := time.Since(t.began), cmp.Or(t.agent, "none"), outcomeOf(err)
	// The caller may have gone: what is measured is kept all the same.
	ctx := context.Background()
	i := t.instruments
	i.turnsActive.Add(ctx, -1)
	i.turns.Add(ctx, 1, labels("agent", agent, "outcome", outcome))
	i.turnTook.Record(ctx, took.Seconds(), labels("agent", agent))
	i.turnHost.Record(ctx, max(took-time.Duration(t.waited.Load()), 0).Seconds(), labels("agent", agent))
	finish(t.span, outcome, err != nil)
}

// traced are the traces of the turns that made runs of compaction due. It is safe for
// concurrent use; the zero value is ready.
type traced struct {
	mu sync.Mutex
	of map[memory.SessionID]trace.SpanContext // guarded by mu
}

// maxTraced bounds how many are remembered: a run whose turn is forgotten, or was
// another process's, has a trace of its own.
const maxTraced = 1024

func (t *traced) put(ctx context.Context, session memory.SessionID) {
	turn := trace.SpanContextFromContext(ctx)
	if !turn.IsValid() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = map[memory.SessionID]trace.SpanContext{}
	}
	for other := range t.of {
		if len(t.of) < maxTraced {
			break
		}
		delete(t.of, other)
	}
	t.of[session] = turn
}

// behind is ctx, with spans of the trace of the session's last turn.
func (t *traced) behind(ctx context.Context, session memory.SessionID) context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	return trace.ContextWithSpanContext(ctx, t.of[session])
}

// compacts begins a run of compaction, whose end is told of once. A turn that it is
// part of waits for it.
func (i *instruments) compacts(ctx context.Context, name string, trigger memory.Trigger) (context.Context, func(compaction.Report, error)) {
	waited := turnIn(ctx).waits()
	ctx, span := i.tracer.Start(ctx, name, trace.WithAttributes(attribute.String("glovebox.trigger", string(trigger))))
	return ctx, func(r compaction.Report, err error) {
		waited()
		outcome := cmp.Or(string(r.Outcome), string(memory.OutcomeSkipped))
		if err != nil {
			outcome = outcomeOf(err)
		}
		if r.Outcome != memory.OutcomeSkipped && r.Outcome != "" {
			i.compactionTook.Record(context.WithoutCancel(ctx), r.Took.Seconds(), labels("trigger", string(trigger), "outcome", string(r.Outcome)))
		}
		span.SetAttributes(
			attribute.Int("glovebox.sources", len(r.Refresh.Blocks)), attribute.Int("glovebox.sources.skipped", len(r.Refresh.Skipped)),
			attribute.Int("glovebox.summaries", len(r.Sweep.Summaries)), attribute.Bool("glovebox.pending", r.Pending))
		finish(span, outcome, err != nil || r.Outcome == memory.OutcomeFailed)
	}
}

// handMeasures are the labels of one hand, which never change.
type handMeasures struct {
	start    []trace.SpanStartOption
	add      []metric.AddOption
	record   []metric.RecordOption
	outcomes sync.Map // of []metric.AddOption, by the outcome
}

// hand returns the labels of a hand, of which there are as many as names were ever
// configured.
func (i *instruments) hand(name string) *handMeasures {
	if m, ok := i.byHand.Load(name); ok {
		return m.(*handMeasures)
	}
	own := labels("hand", name)
	m, _ := i.byHand.LoadOrStore(name, &handMeasures{
		start: []trace.SpanStartOption{trace.WithAttributes(attribute.String("glovebox.hand", name))},
		add:   []metric.AddOption{own}, record: []metric.RecordOption{own},
	})
	return m.(*handMeasures)
}

// ended are the labels of a question to the hand that is over.
func (m *handMeasures) ended(name, outcome string) []metric.AddOption {
	if options, ok := m.outcomes.Load(outcome); ok {
		return options.([]metric.AddOption)
	}
	options, _ := m.outcomes.LoadOrStore(outcome, []metric.AddOption{labels("hand", name, "outcome", outcome)})
	return options.([]metric.AddOption)
}

// queries begins a question to a hand, whose end is told of once. Only a name from
// the configuration is one.
func (i *instruments) queries(ctx context.Context, hand string, known bool) (context.Context, func(sandbox.Result, error)) {
	if !known {
		hand = "unknown"
	}
	m := i.hand(hand)
	ctx, span := i.tracer.Start(ctx, "hand query", m.start...)
	return ctx, func(r sandbox.Result, err error) {
		outcome := outcomeOf(err)
		if kind := abi.KindOf(err); kind != "" {
			outcome = string(kind)
		}
		done := context.WithoutCancel(ctx)
		i.handRuns.Add(done, 1, m.ended(hand, outcome)...)
		// What never ran took no time.
		if r.Took > 0 {
			i.handTook.Record(done, r.Took.Seconds(), m.record...)
			i.handFuel.Add(done, r.Fuel, m.add...)
			i.handMemory.Record(done, r.MemoryBytes, m.record...)
		}
		if span.IsRecording() {
			span.SetAttributes(attribute.Int64("glovebox.fuel", r.Fuel), attribute.Int64("glovebox.memory", r.MemoryBytes), attribute.Int("glovebox.reply.tokens", r.Reply.Tokens()))
		}
		finish(span, outcome, err != nil)
	}
}

// calls begins one call of a tool, which exists; a model may call what does not by
// any name.
func (i *instruments) calls(ctx context.Context, name string, known bool) (context.Context, func(failed bool)) {
	if !known {
		name = "unknown"
	}
	ctx, span := i.tracer.Start(ctx, "tool call", trace.WithAttributes(attribute.String("glovebox.tool", name)))
	return ctx, func(failed bool) {
		outcome := "ok"
		if failed {
			outcome = "error"
		}
		i.toolCalls.Add(context.WithoutCancel(ctx), 1, labels("tool", name, "outcome", outcome))
		finish(span, outcome, failed)
	}
}

// What the model is asked for.
const (
	forAnswer  = "answer"
	forSummary = "summary"
	forMemory  = "memory"
	forSearch  = "search"
	forHand    = "hand"
)

// measured is a model whose requests are measured. One that is measured already is
// measured for the other purpose alone.
func (i *instruments) measured(m llm.Model, purpose string) *measuredModel {
	switch already := m.(type) {
	case *measuredModel:
		m = already.model
	case measuredStreamer:
		m = already.model
	}
	streamer, _ := m.(llm.Streamer)
	return &measuredModel{model: m, streamer: streamer, instruments: i, purpose: purpose}
}

// asks is measured for who knows llm.Model alone. It streams if m does.
func (i *instruments) asks(m llm.Model, purpose string) llm.Model {
	measured := i.measured(m, purpose)
	if measured.streamer != nil {
		return measuredStreamer{measured}
	}
	return measured
}

// measuredModel is a model whose requests are measured.
type measuredModel struct {
	model       llm.Model
	streamer    llm.Streamer // model, if it streams
	instruments *instruments
	purpose     string
}

// measuredStreamer is one that streams.
type measuredStreamer struct{ *measuredModel }

// ask has the model answer, and streams if it can and each is not nil. The response is
// never nil.
func (m *measuredModel) ask(ctx context.Context, r *llm.Request, each func(text string)) (response *llm.Response, err error) {
	response = new(llm.Response)
	ctx, asked := m.begin(ctx)
	defer asked.end(ctx, response, &err)
	if m.streamer != nil && each != nil {
		*response, err = m.streamer.Stream(ctx, *r, asked.tells(ctx, each))
	} else {
		*response, err = m.model.Complete(ctx, *r)
	}
	asked.returned = true
	return response, err
}

// Complete implements llm.Model.
func (m *measuredModel) Complete(ctx context.Context, r llm.Request) (llm.Response, error) {
	response, err := m.ask(ctx, &r, nil)
	return *response, err
}

// Stream implements llm.Streamer.
func (m measuredStreamer) Stream(ctx context.Context, r llm.Request, each func(text string)) (llm.Response, error) {
	response, err := m.ask(ctx, &r, each)
	return *response, err
}

// measuredRequest is one request that is measured.
type measuredRequest struct {
	*measuredModel
	began time.Time
	span  trace.Span
	// waited ends what the turn counts as time that it waits.
	waited func()
	begun  bool
	// returned is false as long as the driver has not come back, but by a panic.
	returned bool
}

func (m *measuredModel) begin(ctx context.Context) (context.Context, *measuredRequest) {
	q := &measuredRequest{measuredModel: m, began: time.Now(), waited: func() {}}
	if m.purpose == forAnswer {
		q.waited = turnIn(ctx).waits()
	}
	ctx, q.span = m.instruments.tracer.Start(ctx, "model request", trace.WithAttributes(attribute.String("glovebox.purpose", m.purpose)))
	return ctx, q
}

// tells is each, but that the first piece is measured.
func (q *measuredRequest) tells(ctx context.Context, each func(text string)) func(text string) {
	return func(text string) {
		if !q.begun {
			q.begun = true
			q.instruments.modelFirst.Record(ctx, time.Since(q.began).Seconds(), labels("purpose", q.purpose))
			q.span.AddEvent("first piece")
		}
		each(text)
	}
}

// end is deferred: a driver that panics has failed.
func (q *measuredRequest) end(ctx context.Context, response *llm.Response, err *error) {
	i, outcome := q.instruments, "panic"
	if q.returned {
		outcome = outcomeOf(*err)
	}
	done, purpose := context.WithoutCancel(ctx), labels("purpose", q.purpose)
	i.modelRequests.Add(done, 1, labels("purpose", q.purpose, "outcome", outcome))
	i.modelTook.Record(done, time.Since(q.began).Seconds(), purpose)
	i.inputTokens.Add(done, int64(response.InputTokens), purpose)
	i.outputTokens.Add(done, int64(response.OutputTokens), purpose)
	i.cachedTokens.Add(done, int64(response.CachedTokens), purpose)
	q.span.SetAttributes(attribute.Int("glovebox.tokens.input", response.InputTokens), attribute.Int("glovebox.tokens.output", response.OutputTokens),
		attribute.Int("glovebox.tokens.cached", response.CachedTokens), attribute.Int("glovebox.calls", len(response.ToolCalls)))
	if status, ok := errors.AsType[*llm.StatusError](*err); ok {
		q.span.SetAttributes(attribute.Int("glovebox.status", status.Status))
	}
	finish(q.span, outcome, outcome != "ok")
	q.waited()
}

// measuredDreamer is a dreamer whose work has spans; its counts are read as they
// are.
type measuredDreamer struct {
	dreamer
	instruments *instruments
}

func (d measuredDreamer) span(ctx context.Context, name string, at dream.Place) (context.Context, trace.Span) {
	return d.instruments.tracer.Start(ctx, name, trace.WithAttributes(
		attribute.String("glovebox.session", at.Session.String()), attribute.String("glovebox.user", at.User.String())))
}

// AfterTurn implements dreamer.
func (d measuredDreamer) AfterTurn(ctx context.Context, at dream.Place) error {
	ctx, span := d.span(ctx, "extraction", at)
	err := d.dreamer.AfterTurn(ctx, at)
	finish(span, outcomeOf(err), err != nil)
	return err
}

// Mini implements dreamer.
func (d measuredDreamer) Mini(ctx context.Context, at dream.Place, leaving []memory.Message) (changed bool) {
	defer turnIn(ctx).waits()()
	ctx, span := d.span(ctx, "mini-dream", at)
	defer func() { finish(span, "ok", false) }()
	return d.dreamer.Mini(ctx, at, leaving)
}

// Dream implements dreamer.
func (d measuredDreamer) Dream(ctx context.Context, at dream.Place) (dream.Report, error) {
	ctx, span := d.span(ctx, "dream", at)
	report, err := d.dreamer.Dream(ctx, at)
	span.SetAttributes(attribute.Int("glovebox.topics", len(report.Topics)))
	finish(span, outcomeOf(err), err != nil)
	return report, err
}

// Tick implements dreamer.
func (d measuredDreamer) Tick(ctx context.Context) error {
	ctx, span := d.instruments.tracer.Start(ctx, "dreams")
	err := d.dreamer.Tick(ctx)
	finish(span, outcomeOf(err), err != nil)
	return err
}
