package gateway_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/host/control/controltest"
	"github.com/gloveboxhq/glovebox/host/gateway"
	"github.com/gloveboxhq/glovebox/host/llm/openai/openaitest"
	"github.com/gloveboxhq/glovebox/host/telemetry"
)

// streams is how many answers come at the same time.
const streams = 32

// paced is a model's server that takes its time: firstDelay to the first piece, and
// pieceDelay to each of the others. It costs little itself.
type paced struct {
	pieces                 int
	firstDelay, pieceDelay time.Duration
	// hold, if not nil, keeps every answer open after its first piece until it is
	// closed; held has a token for each.
	hold, held chan struct{}
}

func (p *paced) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	tick := time.NewTimer(p.firstDelay)
	defer tick.Stop()
	for i := range p.pieces {
		<-tick.C
		fmt.Fprintf(w, `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"piece %d "},"finish_reason":null}]}`+"\n\n", i)
		_ = control.Flush()
		if p.hold != nil {
			p.held <- struct{}{}
			<-p.hold
		}
		tick.Reset(p.pieceDelay)
	}
	io.WriteString(w, `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`+"\n\n")
	io.WriteString(w, `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`+"\n\ndata: [DONE]\n\n")
}

// place is a server that speaks chat completions.
type place struct{ url, token, model string }

// ask sends messages and reads the stream: how long it took to its first piece, and
// in all.
func (p place) ask(client *http.Client, body string, session string) (first, whole time.Duration, text string, err error) {
	request, err := http.NewRequest("POST", p.url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return 0, 0, "", err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+p.token)
	request.Header.Set(gateway.SessionHeader, session)
	began := time.Now()
	response, err := client.Do(request)
	if err != nil {
		return 0, 0, "", err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(response.Body)
		return 0, 0, "", fmt.Errorf("%s: %s", response.Status, said)
	}
	lines := bufio.NewScanner(response.Body)
	var said strings.Builder
	for lines.Scan() {
		_, rest, ok := strings.Cut(lines.Text(), `"content":"`)
		if piece, _, _ := strings.Cut(rest, `"`); ok && piece != "" {
			if first == 0 {
				first = time.Since(began)
			}
			said.WriteString(piece)
		}
		if lines.Text() == "data: [DONE]" {
			whole = time.Since(began)
		}
	}
	if whole == 0 || first == 0 {
		return 0, 0, "", fmt.Errorf("the stream ended without an answer: %w", lines.Err())
	}
	return first, whole, said.String(), nil
}

// serveMeasured is a gateway before the model's server at a URL, whose host measures
// what it does like that of glovebox serve.
func serveMeasured(b *testing.B, url string) *system {
	b.Helper()
	measured, err := telemetry.New(b.Context(), "bench")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := measured.Close(context.WithoutCancel(b.Context())); err != nil {
			b.Error(err)
		}
	})
	return serve(b, func(up *setup) {
		up.host.Model.BaseURL = url + "/v1"
		up.host.Meter, up.host.Tracer = measured.Meter, measured.Tracer
	})
}

// quantile is of durations, in milliseconds.
func quantile(all []time.Duration, q float64) float64 {
	slices.Sort(all)
	return float64(all[int(math.Ceil(q*float64(len(all))))-1]) / float64(time.Millisecond)
}

func newClient() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2 * streams}}
}

// answers is how many of them each stream gives in one operation.
const answers = 4

// measured is what was measured on one way to the model.
type measured struct {
	place
	mu           sync.Mutex
	first, whole []time.Duration
	// talks are the conversations, a list of messages for each stream.
	talks [streams][]string
}

// run has every stream give its answers, one after the other, each stream beginning
// a little after the one before: they do not all ask in the same instant.
func (m *measured) run(b *testing.B, client *http.Client, apart time.Duration) {
	var all sync.WaitGroup
	for i := range streams {
		all.Go(func() {
			<-time.After(time.Duration(i) * apart)
			for range answers {
				if len(m.talks[i]) > 20 {
					m.talks[i] = nil
				}
				messages := append(m.talks[i], fmt.Sprintf(`{"role":"user","content":"Question %d of %d: what is new with the pump hall since the last time, and what is to be done?"}`, len(m.talks[i]), i))
				first, whole, text, err := m.ask(client, `{"model":"`+m.model+`","stream":true,"messages":[`+strings.Join(messages, ",")+`]}`, "")
				if err != nil {
					b.Error(err)
					return
				}
				m.talks[i] = append(messages, `{"role":"assistant","content":"`+text+`"}`)
				m.mu.Lock()
				m.first, m.whole = append(m.first, first), append(m.whole, whole)
				m.mu.Unlock()
			}
		})
	}
	all.Wait()
}

// BenchmarkGateway is what the gateway costs beside a direct call to the same model's
// server, in ms of the whole answer and to its first piece: conversations of up to
// 21 messages, 32 streams at a time, answers of half a second. One operation is 4
// answers of each stream, each way.
func BenchmarkGateway(b *testing.B) {
	model := &paced{pieces: 20, firstDelay: 100 * time.Millisecond, pieceDelay: 20 * time.Millisecond}
	upstream := httptest.NewServer(model)
	defer upstream.Close()
	s := serveMeasured(b, upstream.URL)
	client := newClient()
	direct := &measured{place: place{upstream.URL, openaitest.Key, "m"}}
	through := &measured{place: place{s.url, s.byAnna, "jeeves"}}
	apart := (model.firstDelay + time.Duration(model.pieces-1)*model.pieceDelay) / streams
	for b.Loop() {
		direct.run(b, client, apart)
		through.run(b, client, apart)
	}
	if b.Failed() {
		return
	}
	for _, q := range []struct {
		name string
		at   float64
	}{{"p50", 0.5}, {"p99", 0.99}} {
		b.ReportMetric(quantile(through.whole, q.at)-quantile(direct.whole, q.at), q.name+"-ms")
		b.ReportMetric(quantile(through.first, q.at)-quantile(direct.first, q.at), q.name+"-first-ms")
		b.ReportMetric(quantile(direct.whole, q.at), q.name+"-direct-ms")
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkGatewayIdle is what 200 streams in which nothing happens take in memory
// beside as many direct ones.
func BenchmarkGatewayIdle(b *testing.B) {
	const idle = 200
	took := func(b *testing.B, at func(upstream string) place) (f controltest.Footprint) {
		model := &paced{pieces: 1, hold: make(chan struct{}), held: make(chan struct{})}
		upstream := httptest.NewServer(model)
		defer upstream.Close()
		to, client := at(upstream.URL), newClient()
		defer client.CloseIdleConnections()
		before := controltest.Measure()
		var all sync.WaitGroup
		for i := range idle {
			all.Go(func() {
				if _, _, _, err := to.ask(client, `{"model":"`+to.model+`","stream":true,"messages":[{"role":"user","content":"Question."}]}`, fmt.Sprint("idle ", i)); err != nil {
					b.Error(err)
				}
			})
		}
		for range idle {
			<-model.held
		}
		f.Add(controltest.Measure(), before)
		close(model.hold)
		all.Wait()
		return f
	}
	var sum controltest.Footprint
	for b.Loop() {
		direct := took(b, func(upstream string) place { return place{upstream, openaitest.Key, "m"} })
		through := took(b, func(upstream string) place {
			s := serveMeasured(b, upstream)
			return place{s.url, s.byAnna, "jeeves"}
		})
		sum.Add(through, direct)
	}
	sum.Report(b)
}
