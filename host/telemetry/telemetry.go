// Package telemetry puts a host's metrics where Prometheus reads them and its spans
// where an OpenTelemetry collector takes them.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Telemetry is what a process measures. It is safe for concurrent use.
type Telemetry struct {
	// Meter is for host.Config.Meter, Tracer for host.Config.Tracer; Tracer is nil
	// where nobody takes spans. One metric has 2,000 combinations of labels at most,
	// the SDK's own bound; what goes beyond is counted under otel_metric_overflow.
	// Labels come from the configuration and from this program, so that only hundreds
	// of agents and hands meet it.
	Meter  metric.MeterProvider
	Tracer trace.TracerProvider

	meters   *sdkmetric.MeterProvider
	tracers  *sdktrace.TracerProvider // nil where nobody takes spans
	registry *prometheus.Registry
}

// New starts to measure; version is the program's. Spans go to the collector that
// the standard variables OTEL_EXPORTER_OTLP_ENDPOINT or
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT name, over HTTP; the other variables of the
// OpenTelemetry SDK count too, such as OTEL_TRACES_SAMPLER, OTEL_SERVICE_NAME and
// OTEL_SDK_DISABLED. Without them nobody takes any. A collector that cannot be
// reached is no error: spans are dropped.
func New(ctx context.Context, version string) (_ *Telemetry, err error) {
	t := &Telemetry{registry: prometheus.NewRegistry()}
	if err := errors.Join(
		t.registry.Register(collectors.NewGoCollector()),
		t.registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})),
		t.registry.Register(buildInfo(version)),
	); err != nil {
		return nil, fmt.Errorf("register the process's metrics: %w", err)
	}
	reader, err := exporter.New(exporter.WithRegisterer(t.registry), exporter.WithoutScopeInfo(), exporter.WithoutTargetInfo())
	if err != nil {
		return nil, fmt.Errorf("make the exporter of metrics: %w", err)
	}
	// What a process is stands in the environment; what it does not say is said here.
	described, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", "glovebox"), attribute.String("service.version", version)),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, fmt.Errorf("describe the process: %w", err)
	}
	t.meters = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithResource(described))
	t.Meter = t.meters
	if !takesSpans() {
		return t, nil
	}
	spans, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make the exporter of spans: %w", err), t.meters.Shutdown(ctx))
	}
	t.tracers = sdktrace.NewTracerProvider(sdktrace.WithBatcher(spans), sdktrace.WithResource(described))
	t.Tracer = t.tracers
	return t, nil
}

// takesSpans reports whether the environment names a collector.
func takesSpans() bool {
	if os.Getenv("OTEL_SDK_DISABLED") == "true" || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

// buildInfo is a metric whose value is always 1, and whose labels tell the version.
func buildInfo(version string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "glovebox_build_info", Help: "Always 1; the labels tell the version of the program and of Go.",
		ConstLabels: prometheus.Labels{"version": version, "go": runtime.Version()},
	}, func() float64 { return 1 })
}

// maxReaders is how many requests have the metrics gathered for them at once: one more
// is told 503. After readTimeout one is told 503 too, but what gathers for it goes on,
// and its place is taken until that ends. Neither bounds how long a client takes to
// receive what was gathered.
const maxReaders, readTimeout = 4, 10 * time.Second

// Metrics answers with all metrics in Prometheus's text format.
func (t *Telemetry) Metrics() http.Handler {
	return promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{
		// One that cannot be read is left out.
		ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: maxReaders, Timeout: readTimeout,
	})
}

// Close sends what is left, as long as ctx allows, and ends. What is measured
// afterwards goes nowhere.
func (t *Telemetry) Close(ctx context.Context) error {
	var errs []error
	if t.tracers != nil {
		errs = append(errs, t.tracers.Shutdown(ctx))
	}
	if t.meters != nil {
		errs = append(errs, t.meters.Shutdown(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("end telemetry: %w", err)
	}
	return nil
}
