package control

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"mime"
	"net/http"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	noopmetric "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	nooptrace "go.opentelemetry.io/otel/trace/noop"
)

// scope names the measurements of this package.
const scope = "github.com/gloveboxhq/glovebox/host/control"

// requestIDHeader tells the caller of an answer under which id the log has it. One
// that came with the request is not taken over: callers would choose what the log
// says.
const requestIDHeader = "X-Request-Id"

// visit is what a request turns out to be on its way in.
type visit struct {
	id string
	// route is the pattern of the route, "" if there is none; token is the id of the
	// caller's token, "" if there is none.
	route, token string
}

type visitKey struct{}

// visitOf returns the visit of a request; one that nobody looks at where there is
// none.
func visitOf(ctx context.Context) *visit {
	if v, ok := ctx.Value(visitKey{}).(*visit); ok {
		return v
	}
	return new(visit)
}

// RequestID returns the id of the request that a context is of; "" if it is of
// none.
func RequestID(ctx context.Context) string { return visitOf(ctx).id }

// LogHandler adds request_id to the records that are logged with the context of a
// request.
func LogHandler(to slog.Handler) slog.Handler {
	if h, ok := to.(logHandler); ok {
		return h
	}
	return logHandler{to}
}

type logHandler struct{ slog.Handler }

// Handle implements slog.Handler.
func (h logHandler) Handle(ctx context.Context, r slog.Record) error {
	if id := RequestID(ctx); id != "" {
		r = r.Clone()
		r.AddAttrs(slog.String("request_id", id))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logHandler{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h logHandler) WithGroup(name string) slog.Handler { return logHandler{h.Handler.WithGroup(name)} }

// observed is a handler each of whose requests has an id, a line in the log, a span
// and its part in the metrics. What is measured of one is its route, its status and
// its size; the log also has whose token it bore. Neither has a path, a parameter or
// an address.
type observed struct {
	next   http.Handler
	log    *slog.Logger
	tracer trace.Tracer
	// ending is done when the server is to stop.
	ending context.Context

	requests metric.Int64Counter
	took     metric.Float64Histogram
	streams  metric.Int64UpDownCounter
}

// secondsOfRequest are the bounds of the histogram: pages are of milliseconds,
// turns of seconds.
var secondsOfRequest = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 120}

func observe(next http.Handler, log *slog.Logger, c Config) *observed {
	tracers, meters := c.Tracer, c.Meter
	if tracers == nil {
		tracers = nooptrace.NewTracerProvider()
	}
	if meters == nil {
		meters = noopmetric.NewMeterProvider()
	}
	o := &observed{next: next, log: log, tracer: tracers.Tracer(scope), ending: c.Ending}
	if o.ending == nil {
		o.ending = context.Background()
	}
	// The names are constants: what could be wrong with them, a test sees.
	meter := meters.Meter(scope)
	var errs [3]error
	o.requests, errs[0] = meter.Int64Counter("glovebox.http.requests", metric.WithDescription("Requests that were answered, by route and status; broken off ones have the status 499."))
	o.took, errs[1] = meter.Float64Histogram("glovebox.http.request.duration", metric.WithDescription("How long requests took, streams included, by route."), metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(secondsOfRequest...))
	o.streams, errs[2] = meter.Int64UpDownCounter("glovebox.http.streams.open", metric.WithDescription("Streams of events that are open."))
	if err := errors.Join(errs[:]...); err != nil {
		log.Error("set up metrics", "error", err)
	}
	return o
}

// statusGone stands for an answer that was broken off, because the caller went away
// or the server stops.
const statusGone = 499

// noRouteLabel is the route of requests that have none.
const noRouteLabel = "none"

// ServeHTTP implements http.Handler.
func (o *observed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	v := &visit{id: newRequestID()}
	w.Header().Set(requestIDHeader, v.id)
	ctx, cancel := context.WithCancel(context.WithValue(r.Context(), visitKey{}, v))
	defer cancel()
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(r.Header))
	ctx, span := o.tracer.Start(ctx, "http request", trace.WithSpanKind(trace.SpanKindServer))
	out := &answerWriter{ResponseWriter: w}
	out.onStream = func() {
		o.streams.Add(context.Background(), 1)
		if r.Method == http.MethodGet {
			// It only listens, for as long as there is a server: it is not waited for.
			out.listening = context.AfterFunc(o.ending, cancel)
		}
	}
	status := statusGone
	defer func() {
		if out.isStream {
			o.streams.Add(context.Background(), -1)
		}
		if out.listening != nil {
			out.listening()
		}
		o.answered(ctx, span, r.Method, v, out, status, time.Since(began))
	}()
	o.next.ServeHTTP(out, r.WithContext(ctx))
	// Not reached by an answer that is broken off, which panics.
	if status = out.status; status == 0 {
		status = http.StatusOK
	}
}

// answered tells of a request that is over.
func (o *observed) answered(ctx context.Context, span trace.Span, method string, v *visit, out *answerWriter, status int, took time.Duration) {
	route := v.route
	if route == "" {
		route = noRouteLabel
	}
	done := context.WithoutCancel(ctx)
	o.requests.Add(done, 1, metric.WithAttributes(attribute.String("route", route), attribute.String("status", strconv.Itoa(status))))
	o.took.Record(done, took.Seconds(), metric.WithAttributes(attribute.String("route", route)))
	span.SetAttributes(attribute.String("http.route", route), attribute.Int("http.response.status_code", status), attribute.String("glovebox.request", v.id))
	if status >= http.StatusInternalServerError {
		span.SetStatus(codes.Error, strconv.Itoa(status))
	}
	span.End()
	level := slog.LevelInfo
	if isProbe(route) {
		level = slog.LevelDebug
	}
	attrs := []slog.Attr{
		slog.String("route", route), slog.Int("status", status), slog.Duration("took", took.Round(time.Microsecond)), slog.Int64("bytes", out.bytes),
	}
	if route == noRouteLabel {
		// Its word is one of a few, or the caller's own.
		attrs = append(attrs, slog.String("method", shortMethod(method)))
	}
	if v.token != "" {
		attrs = append(attrs, slog.String("token", v.token))
	}
	o.log.LogAttrs(done, level, "request", attrs...)
}

// isProbe reports whether a machine asks for a route every few seconds.
func isProbe(route string) bool {
	return route == "GET /healthz" || route == "GET /readyz" || route == "GET /metrics"
}

func shortMethod(method string) string { return method[:min(len(method), 16)] }

func newRequestID() string {
	var id [12]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}

// answerWriter remembers what was answered.
type answerWriter struct {
	http.ResponseWriter
	// status is 0 until there is one.
	status   int
	bytes    int64
	isStream bool
	// onStream is called when the answer turns out to be a stream of events.
	onStream func()
	// listening lets go of the end of the server; nil unless the answer is a stream
	// that only listens.
	listening func() bool
}

// WriteHeader implements http.ResponseWriter.
func (w *answerWriter) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
		if kind, _, err := mime.ParseMediaType(w.Header().Get("Content-Type")); err == nil && kind == eventStream {
			w.isStream = true
			w.onStream()
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *answerWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// Flush implements http.Flusher, for handlers that look for it.
func (w *answerWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// Unwrap is for http.ResponseController.
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
