package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/control"
	"github.com/gloveboxhq/glovebox/host/control/controltest"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/host/sandbox/wasm"
	"github.com/gloveboxhq/glovebox/host/telemetry"
	"github.com/gloveboxhq/glovebox/memory"
)

// What people, hands, models and the operator say; none of it is to be measured.
const (
	saidByUser   = "c4n4ry-of-the-user"
	saidByModel  = "c4n4ry-of-the-model"
	saidByHand   = "c4n4ry-of-the-hand"
	askedOfHand  = "c4n4ry-of-the-prompt"
	systemPrompt = "c4n4ry-of-the-operator"
	tracestate   = "c4n4ry=1"
)

// talker is a model that has a hand asked, calls a tool that there is not, and then
// answers, in pieces if somebody listens.
type talker struct{}

func (talker) Complete(_ context.Context, r llm.Request) (llm.Response, error) {
	said := llm.Response{Text: "Well: " + saidByModel, Model: "talker", InputTokens: 100, OutputTokens: 10, CachedTokens: 40}
	last := r.Messages[len(r.Messages)-1]
	if len(r.Tools) > 0 && len(last.ToolResults) == 0 {
		said.Text, said.ToolCalls = "", []llm.ToolCall{
			{ID: llm.NewToolCallID(), Name: "hand_query", Input: json.RawMessage(`{"hand":"mirror","prompt":"mark"}`)},
			{ID: llm.NewToolCallID(), Name: saidByModel, Input: json.RawMessage(`{}`)},
		}
	}
	return said, nil
}

func (m talker) Stream(ctx context.Context, r llm.Request, each func(string)) (llm.Response, error) {
	response, err := m.Complete(ctx, r)
	if response.Text != "" {
		each(response.Text)
	}
	return response, err
}

// mirror replies with the query that it was asked, as it stands:
//
//	(func (export "glovebox_query_v1") (result i32)
//	  (drop (call $reply (i32.const 0) (call $query_read (i32.const 0) (i32.const 65536))))
//	  (i32.const 0))
const mirror = "\x00asm\x01\x00\x00\x00\x01\x0b\x02\x60\x02\x7f\x7f\x01\x7f\x60\x00\x01\x7f" +
	"\x02\x28\x02\x08glovebox\x0aquery_read\x00\x00\x08glovebox\x05reply\x00\x00" +
	"\x03\x02\x01\x01\x05\x03\x01\x00\x02\x07\x1e\x02\x06memory\x02\x00\x11glovebox_query_v1\x00\x02" +
	"\x0a\x13\x01\x11\x00\x41\x00\x41\x00\x41\x80\x80\x04\x10\x00\x10\x01\x1a\x41\x00\x0b"

const mirrorManifest = "name = \"mirror\"\nversion = \"1.0.0\"\nabi = 1\n[config.mark]\ntype = \"string\"\n"

// logged keeps what is logged.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// system is a host with a server, all of which is measured.
type system struct {
	host     *host.Host
	handler  http.Handler
	measured *telemetry.Telemetry
	spans    *tracetest.InMemoryExporter
	clock    *controltest.Clock
	log      *logged
	secret   string
}

// measure starts a system whose triggers are all armed.
func measure(t *testing.T) *system {
	t.Helper()
	dir := t.TempDir()
	bare, err := wasm.Decode([]byte(mirror))
	if err != nil {
		t.Fatal(err)
	}
	module := filepath.Join(dir, "mirror.wasm")
	if err := os.WriteFile(module, bare.WithCustom("glovebox.manifest", []byte(mirrorManifest)), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &system{spans: tracetest.NewInMemoryExporter(), clock: controltest.NewClock(time.Date(2026, 3, 23, 9, 0, 0, 0, time.UTC), 0), log: new(logged)}
	if s.measured, err = telemetry.New(t.Context(), "v1.2.3"); err != nil {
		t.Fatal(err)
	}
	tracer := trace.NewTracerProvider(trace.WithSyncer(s.spans))
	log := slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelInfo}))
	config := host.Config{
		Data: dir, Cache: filepath.Join(dir, "cache"), LLM: talker{}, Now: s.clock.Now, Log: log, Meter: s.measured.Meter, Tracer: tracer,
		Agents: []host.AgentConfig{{Name: "jeeves", SystemPrompt: systemPrompt, Memory: host.AgentMemoryConfig{System: host.MemoryStructured}}},
		Hands: map[string]host.HandConfig{"mirror": {
			Module: module, Config: map[string]any{"mark": saidByHand}, Prompts: map[string]string{"mark": askedOfHand},
		}},
		Compaction: host.CompactionConfig{ContinuousInterval: 1, KeepRecent: 1, GapSecs: 60, ContextSources: []host.ContextSource{{Hand: "mirror", Prompt: askedOfHand}}},
	}
	t.Cleanup(func() {
		if err := s.measured.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	started := controltest.Start(t, config)
	s.host, s.secret = started.Host, started.Admin(started.Anna)
	s.handler = control.New(control.Config{
		Host: s.host, HostConfig: config, Tokens: started.Tokens, Hosts: []string{"example.com"}, Log: log, Meter: s.measured.Meter, Tracer: tracer,
		Mounts: []control.Mount{{Patterns: []string{"GET /metrics"}, Access: control.ForAdmin, Handler: s.measured.Metrics()}},
	})
	return s
}

// call makes one request with the token.
func (s *system) call(t *testing.T, method, path, body string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, "http://example.com"+path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+s.secret)
	r.Header.Set("Content-Type", "application/json")
	for n := 0; n+1 < len(header); n += 2 {
		r.Header.Set(header[n], header[n+1])
	}
	answer := httptest.NewRecorder()
	s.handler.ServeHTTP(answer, r)
	return answer
}

// chat has one turn over HTTP, and waits for what it leaves behind.
func (s *system) chat(t *testing.T, session memory.SessionID, header ...string) memory.SessionID {
	t.Helper()
	body := map[string]any{"text": saidByUser}
	if !session.IsZero() {
		body["session"] = session
	}
	encoded, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	answer := s.call(t, "POST", "/api/users/default/chat", string(encoded), append(header, "Accept", "text/event-stream")...)
	if answer.Code != http.StatusOK || !strings.Contains(answer.Body.String(), saidByModel) {
		t.Fatalf("chat: %d %s", answer.Code, answer.Body)
	}
	if err := s.host.Idle(t.Context()); err != nil {
		t.Fatal(err)
	}
	user, err := s.host.User("")
	if err != nil {
		t.Fatal(err)
	}
	sessions, err := s.host.Store().Sessions(t.Context(), user.ID, memory.SessionQuery{Limit: 1})
	if err != nil || len(sessions) != 1 {
		t.Fatalf("%d sessions, %v", len(sessions), err)
	}
	return sessions[0].ID
}

// everything has all that is measured happen at least once.
func (s *system) everything(t *testing.T) {
	t.Helper()
	session := s.chat(t, memory.SessionID{})
	s.clock.Move(time.Hour)
	s.chat(t, session, "traceparent", "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01", "tracestate", tracestate)
	// What comes of a dream of such a model is of no account.
	user, err := s.host.User("")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = s.host.Dream(t.Context(), user.ID, "jeeves")
	if _, err := s.host.Reload(t.Context(), s.host.Config()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.host.Send(t.Context(), host.Message{Agent: saidByUser, Text: saidByUser}); err == nil {
		t.Error("there is no such agent")
	}
	if _, err := s.host.Query(t.Context(), host.HandQuery{Hand: saidByUser, Prompt: saidByUser}); err == nil {
		t.Error("there is no such hand")
	}
	s.call(t, "GET", "/"+saidByUser, "")
	s.call(t, "GET", "/api/users?x="+saidByUser, "")
}

// family is one metric as /metrics has it.
type family struct {
	kind, help string
	labels     map[string]bool // but le
}

// exported reads /metrics.
func (s *system) exported(t *testing.T) (families map[string]*family, text string) {
	t.Helper()
	answer := s.call(t, "GET", "/metrics", "")
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.Code != http.StatusOK {
		t.Fatalf("/metrics: %d, %v", answer.Code, err)
	}
	families = map[string]*family{}
	of := func(name string) *family {
		if families[name] == nil {
			families[name] = &family{labels: map[string]bool{}}
		}
		return families[name]
	}
	sample, label := regexp.MustCompile(`^([a-z_]+?)(_bucket|_sum|_count)?(?:\{(.*)\})? [^ ]+$`), regexp.MustCompile(`([a-z_]+)="`)
	for line := range strings.Lines(string(body)) {
		line = strings.TrimSuffix(line, "\n")
		if fields := strings.SplitN(line, " ", 4); fields[0] == "#" && len(fields) == 4 {
			if fields[1] == "HELP" {
				of(fields[2]).help = fields[3]
			} else {
				of(fields[2]).kind = fields[3]
			}
			continue
		}
		m := sample.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("%q is no sample", line)
		}
		name := m[1]
		if families[name] == nil {
			name += m[2]
		}
		for _, l := range label.FindAllStringSubmatch(m[3], -1) {
			if l[1] != "le" {
				of(name).labels[l[1]] = true
			}
		}
	}
	return families, string(body)
}

// documented are the rows of the table in docs/operating.md: name, labels, type.
func documented(t *testing.T) map[string][2]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][2]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(glovebox_[a-z_]+)` \\|([^|]*)\\| ([a-z]+) \\|").FindAllStringSubmatch(string(text), -1) {
		rows[m[1]] = [2]string{strings.TrimSpace(strings.ReplaceAll(m[2], "`", "")), m[3]}
	}
	return rows
}

// The table of metrics in docs/operating.md is what is exported: each name with its
// labels and its type.
func TestMetricsAreDocumented(t *testing.T) {
	s := measure(t)
	s.everything(t)
	families, _ := s.exported(t)
	rows := documented(t)
	for name, family := range families {
		if !strings.HasPrefix(name, "glovebox_") {
			continue
		}
		got := [2]string{strings.Join(slices.Sorted(maps.Keys(family.labels)), ", "), family.kind}
		if rows[name] != got {
			t.Errorf("%s has %q, docs/operating.md says %q", name, got, rows[name])
		}
		if family.help == "" {
			t.Errorf("%s has no help", name)
		}
	}
	for name := range rows {
		if families[name] == nil {
			t.Errorf("%s is in docs/operating.md and is not exported", name)
		}
	}
	for _, name := range []string{"go_goroutines", "process_start_time_seconds"} {
		if families[name] == nil {
			t.Errorf("%s is not exported", name)
		}
	}
	if len(rows) < 25 {
		t.Errorf("docs/operating.md has %d metrics", len(rows))
	}
}

// Every query of the dashboard is about metrics, and labels of them, that there are.
func TestGrafanaDashboardAsksForWhatIsExported(t *testing.T) {
	text, err := os.ReadFile("../../docs/grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Title  string `json:"title"`
		Panels []struct {
			Title   string `json:"title"`
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	rows := documented(t)
	asked := map[string]bool{}
	names, grouped := regexp.MustCompile(`[a-z]+_[a-z_]+`), regexp.MustCompile(`by \(([a-z_, ]+)\)`)
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			known := map[string]bool{"le": true}
			for _, name := range names.FindAllString(target.Expr, -1) {
				base := name
				for _, suffix := range []string{"_bucket", "_sum", "_count"} {
					if cut, ok := strings.CutSuffix(name, suffix); ok && rows[cut][1] == "histogram" {
						base = cut
					}
				}
				row, ok := rows[base]
				switch {
				case ok && row[1] == "histogram" && base == name:
					t.Errorf("%s: %s is a histogram: ask for its parts", panel.Title, name)
				case ok:
					asked[base] = true
					for label := range strings.SplitSeq(row[0], ", ") {
						known[label] = true
					}
				case strings.HasPrefix(name, "glovebox_"):
					t.Errorf("%s: there is no %s", panel.Title, name)
				}
			}
			for _, group := range grouped.FindAllStringSubmatch(target.Expr, -1) {
				for label := range strings.SplitSeq(group[1], ", ") {
					if !known[label] {
						t.Errorf("%s: nothing in %q has the label %s", panel.Title, target.Expr, label)
					}
				}
			}
		}
	}
	if len(asked) < 15 {
		t.Errorf("the dashboard shows %d metrics", len(asked))
	}
}

// The spans of one turn are a tree of one trace, which begins where the caller's
// ends: the answer's with the refresh before it, the questions to hands below who
// asked them, and the compaction behind it.
func TestSpansOfATurn(t *testing.T) {
	s := measure(t)
	session := s.chat(t, memory.SessionID{})
	s.clock.Move(time.Hour)
	s.spans.Reset()
	s.chat(t, session, "traceparent", "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01")
	spans := s.spans.GetSpans()
	parents := map[string]tracetest.SpanStub{}
	for _, span := range spans {
		parents[span.SpanContext.SpanID().String()] = span
	}
	path := func(span tracetest.SpanStub) string {
		name := span.Name
		for at := span; ; {
			parent, ok := parents[at.Parent.SpanID().String()]
			if !ok {
				return name
			}
			name = parent.Name + " > " + name
			at = parent
		}
	}
	count := map[string]int{}
	for _, span := range spans {
		if span.SpanContext.TraceID().String() == "0123456789abcdef0123456789abcdef" {
			count[path(span)]++
		}
	}
	for name, atLeast := range map[string]int{
		"http request":                                     1,
		"http request > turn":                              1,
		"http request > turn > refresh":                    1,
		"http request > turn > refresh > hand query":       1,
		"http request > turn > model request":              2,
		"http request > turn > tool call":                  2,
		"http request > turn > tool call > hand query":     1,
		"http request > turn > compaction":                 1,
		"http request > turn > compaction > model request": 1,
	} {
		if count[name] < atLeast {
			t.Errorf("%d spans %s, want %d: there are %v", count[name], name, atLeast, count)
		}
	}
	for _, span := range spans {
		if span.Name == "turn" {
			got := map[string]string{}
			for _, a := range span.Attributes {
				got[string(a.Key)] = a.Value.Emit()
			}
			if got["glovebox.agent"] != "jeeves" || got["glovebox.session"] != session.String() || got["glovebox.outcome"] != "ok" {
				t.Errorf("the turn has %v", got)
			}
		}
	}
}

// No word that was said, nothing that was asked for in vain and no secret stands in
// a metric, a span or a line of the log.
func TestNothingThatIsSaidIsMeasured(t *testing.T) {
	s := measure(t)
	s.everything(t)
	_, metrics := s.exported(t)
	var spans strings.Builder
	for _, span := range s.spans.GetSpans() {
		fmt.Fprintf(&spans, "%s %v %v %v %v\n", span.Name, span.Attributes, span.Events, span.Status, span.Links)
	}
	for what, text := range map[string]string{"the metrics": metrics, "a span": spans.String(), "the log": s.log.String()} {
		if len(text) < 200 {
			t.Errorf("%s: %q is too little to prove anything", what, text)
		}
		for _, canary := range []string{"c4n4ry", s.secret, strings.TrimPrefix(s.secret, "glovebox_")} {
			if at := strings.Index(text, canary); at >= 0 {
				t.Errorf("%s has %q: …%s…", what, canary, text[max(at-200, 0):min(at+100, len(text))])
			}
		}
	}
}

// /metrics is the operator's.
func TestMetricsNeedAdmin(t *testing.T) { // U6
	s := measure(t)
	r := httptest.NewRequest("GET", "http://example.com/metrics", nil)
	answer := httptest.NewRecorder()
	s.handler.ServeHTTP(answer, r)
	if answer.Code != http.StatusUnauthorized {
		t.Errorf("without a token: %d", answer.Code)
	}
}

// However many labels somebody makes up, a metric has a bounded number of series: the
// rest is counted together.
func TestSeriesAreBounded(t *testing.T) {
	measured, err := telemetry.New(t.Context(), "v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	const many = 3000
	made, err := measured.Meter.Meter("test").Int64Counter("made_up")
	if err != nil {
		t.Fatal(err)
	}
	for i := range many {
		made.Add(t.Context(), 1, metric.WithAttributes(attribute.Int("label", i)))
	}
	answer := httptest.NewRecorder()
	measured.Metrics().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	series, overflow := 0, 0
	for line := range strings.Lines(answer.Body.String()) {
		if strings.HasPrefix(line, "made_up_total{") {
			series++
			if strings.Contains(line, "otel_metric_overflow") {
				overflow++
			}
		}
	}
	if series != 2000 || overflow != 1 {
		t.Errorf("%d series of %d, %d of them for the rest", series, many, overflow)
	}
}

// Who asks for the metrics again and again does not have them gathered all at once.
func TestReadersAtOnce(t *testing.T) {
	measured, err := telemetry.New(t.Context(), "v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	release := make(chan struct{})
	_, err = measured.Meter.Meter("test").Int64ObservableGauge("slow", metric.WithInt64Callback(func(context.Context, metric.Int64Observer) error {
		<-release
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	const many, most = 10, 4
	handler := measured.Metrics()
	answers := make(chan *httptest.ResponseRecorder, many)
	for range many {
		go func() {
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
			answers <- answer
		}()
	}
	for range many - most {
		if a := <-answers; a.Code != http.StatusServiceUnavailable || !strings.Contains(a.Body.String(), "Limit of concurrent requests reached") {
			t.Errorf("one too many: %d %.100s", a.Code, a.Body)
		}
	}
	close(release)
	for range most {
		if a := <-answers; a.Code != http.StatusOK {
			t.Errorf("one of the first %d: %d", most, a.Code)
		}
	}
}

// Without a collector nobody takes spans; with one they come to it, named as the
// environment says.
func TestSpansGoToTheCollector(t *testing.T) {
	none, err := telemetry.New(t.Context(), "v1.2.3")
	if err != nil || none.Tracer != nil {
		t.Errorf("without a collector: %v, %v", none, err)
	}
	bodies := make(chan string, 4)
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		bodies <- r.URL.Path + " " + string(body)
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	t.Setenv("OTEL_SERVICE_NAME", "my-glovebox")
	measured, err := telemetry.New(t.Context(), "v1.2.3")
	if err != nil || measured.Tracer == nil {
		t.Fatalf("with a collector: %v, %v", measured, err)
	}
	_, span := measured.Tracer.Tracer("test").Start(t.Context(), "something")
	span.End()
	if err := measured.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-bodies:
		if !strings.HasPrefix(got, "/v1/traces ") || !strings.Contains(got, "something") || !strings.Contains(got, "my-glovebox") || !strings.Contains(got, "v1.2.3") {
			t.Errorf("the collector got %q", got)
		}
	default:
		t.Error("the collector got nothing")
	}
	for name, value := range map[string]string{"OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": "none"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, value)
			if disabled, err := telemetry.New(t.Context(), "v1.2.3"); err != nil || disabled.Tracer != nil {
				t.Errorf("%v, %v", disabled, err)
			}
		})
	}
}
