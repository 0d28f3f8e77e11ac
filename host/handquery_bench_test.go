package host_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/sandbox"
	"github.com/gloveboxhq/glovebox/host/sandbox/wasm"
	"github.com/gloveboxhq/glovebox/host/telemetry"
	"github.com/gloveboxhq/glovebox/memory"
)

// prompt is a hand that reads the query and replies a constant, so that what is
// measured is everything but the hand:
//
//	(data (i32.const 0) "Nothing happened.")
//	(func (export "glovebox_query_v1") (result i32)
//	  (drop (call $query_read (i32.const 1024) (i32.const 4096)))
//	  (call $reply (i32.const 0) (i32.const 17)))
const prompt = "\x00asm\x01\x00\x00\x00\x01\x0b\x02\x60\x02\x7f\x7f\x01\x7f\x60\x00\x01\x7f" +
	"\x02\x28\x02\x08glovebox\x0aquery_read\x00\x00\x08glovebox\x05reply\x00\x00" +
	"\x03\x02\x01\x01\x05\x03\x01\x00\x01\x07\x1e\x02\x06memory\x02\x00\x11glovebox_query_v1\x00\x02" +
	"\x0a\x13\x01\x11\x00\x41\x80\x08\x41\x80\x20\x10\x00\x1a\x41\x00\x41\x11\x10\x01\x0b" +
	"\x0b\x17\x01\x00\x41\x00\x0b\x11Nothing happened."

const promptManifest = `
name = "prompt"
version = "1.0.0"
abi = 1
description = "It answers at once."
[config.owner]
type = "string"
default = "{user}"
[config.folders]
type = "list"
default = ["inbox", "sent"]
[config.days]
type = "integer"
default = 7
[config.short]
type = "boolean"
default = true
`

// promptHand writes the hand into a directory, configurable or not, and returns where
// it is.
func promptHand(b testing.TB, configurable bool) (path, digest string) {
	b.Helper()
	module := []byte(prompt)
	if configurable {
		bare, err := wasm.Decode(module)
		if err != nil {
			b.Fatal(err)
		}
		module = bare.WithCustom("glovebox.manifest", []byte(promptManifest))
	}
	path = filepath.Join(b.TempDir(), "prompt.wasm")
	if err := os.WriteFile(path, module, 0o600); err != nil {
		b.Fatal(err)
	}
	return path, sandbox.Digest(module)
}

// BenchmarkHandQuery is one question to a hand that answers at once. path=host is
// Host.Query, path=box the same question to its module, which is all that cannot be
// taken away; path=both asks them in turns, so that their medians can be compared on
// a machine that does other things too.
func BenchmarkHandQuery(b *testing.B) {
	for _, setup := range []struct {
		name                    string
		configurable, telemetry bool
	}{{"plain", false, false}, {"config", true, false}, {"telemetry", false, true}} {
		b.Run("setup="+setup.name, func(b *testing.B) {
			path, digest := promptHand(b, setup.configurable)
			c := host.Config{Data: b.TempDir(), Cache: cacheDir, Hands: map[string]host.HandConfig{"prompt": {Module: path, Digest: digest}}}
			if setup.telemetry {
				measured, err := telemetry.New(b.Context(), "test")
				if err != nil {
					b.Fatal(err)
				}
				defer measured.Close(context.Background())
				c.Meter, c.Tracer = measured.Meter, measured.Tracer
			}
			h, err := host.New(b.Context(), c)
			if err != nil {
				b.Fatal(err)
			}
			defer h.Close()
			q := host.HandQuery{Hand: "prompt", Prompt: "What is new?", From: monday.Add(-24 * time.Hour), To: monday}
			paths := map[string]func(context.Context) (sandbox.Result, error){
				"host": func(ctx context.Context) (sandbox.Result, error) { return h.Query(ctx, q) },
				"box":  h.Box(q),
			}
			ask := func(path string) time.Duration {
				began := time.Now()
				result, err := paths[path](b.Context())
				if err != nil || result.Reply.IsEmpty() {
					b.Fatalf("%+v, %v", result, err)
				}
				return time.Since(began)
			}
			for _, path := range []string{"host", "box"} {
				b.Run("path="+path, func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						ask(path)
					}
				})
			}
			b.Run("path=both", func(b *testing.B) {
				took := map[string][]time.Duration{}
				for b.Loop() {
					for path := range paths {
						took[path] = append(took[path], ask(path))
					}
				}
				median := func(path string) float64 {
					slices.Sort(took[path])
					return float64(took[path][len(took[path])/2])
				}
				b.ReportMetric(median("host"), "host-ns")
				b.ReportMetric(median("box"), "box-ns")
				b.ReportMetric(median("host")/median("box"), "ratio")
			})
		})
	}
}

// BenchmarkHandQueryParts is what Host.Query does beside asking the box: it finds the
// hand and what is agreed for it, enters the user, gathers the values of the query,
// makes the ports, frames the reply, records the run (written behind: the figure is
// what the writer takes for a row) and measures.
func BenchmarkHandQueryParts(b *testing.B) {
	path, digest := promptHand(b, true)
	measured, err := telemetry.New(b.Context(), "test")
	if err != nil {
		b.Fatal(err)
	}
	defer measured.Close(context.Background())
	h, err := host.New(b.Context(), host.Config{
		Data: b.TempDir(), Cache: cacheDir, Meter: measured.Meter, Tracer: measured.Tracer,
		Hands: map[string]host.HandConfig{"prompt": {Module: path, Digest: digest}},
	})
	if err != nil {
		b.Fatal(err)
	}
	defer h.Close()
	parts := h.QueryParts(b.Context(), host.HandQuery{Hand: "prompt"})
	for _, part := range slices.Sorted(maps.Keys(parts)) {
		b.Run("part="+part, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				parts[part]()
			}
		})
	}
}

// BenchmarkGapSources is a refresh of somebody who was away, of hands that answer at
// once, each with a module of its own: sources-ns is from the first question to the
// last answer, sum-ns what the questions take one after the other in the same run, and
// gap-ns the whole of what the answer waits for, what is stored included.
func BenchmarkGapSources(b *testing.B) {
	for _, count := range []int{1, 8, 32, 64} {
		b.Run(fmt.Sprintf("hands=%d", count), func(b *testing.B) {
			path, digest := promptHand(b, true)
			now := &clock{at: monday}
			room := 256 * count
			c := host.Config{
				Data: b.TempDir(), Cache: cacheDir, LLM: &model{}, Now: now.now, Hands: map[string]host.HandConfig{},
				Compaction: host.CompactionConfig{GapSecs: 300, ContextTokenCap: &room},
			}
			for i := range count {
				name := fmt.Sprint("hand-", i)
				c.Hands[name] = host.HandConfig{Module: path, Digest: digest}
				c.Compaction.ContextSources = append(c.Compaction.ContextSources, host.ContextSource{Hand: name, Prompt: "What is new?"})
			}
			h, err := host.New(b.Context(), c)
			if err != nil {
				b.Fatal(err)
			}
			defer h.Close()
			var session memory.SessionID
			var sources, sums, gaps []time.Duration
			say := func() host.Answer {
				answer, err := h.Send(b.Context(), host.Message{Session: session, Text: "What is new?"})
				if err == nil {
					err = h.Idle(b.Context())
				}
				if err != nil {
					b.Fatal(err)
				}
				session = answer.Session
				now.advance(time.Hour)
				return answer
			}
			say()
			for b.Loop() {
				answer := say()
				if blocks := answer.Gap.Refresh.Blocks; len(blocks) != count {
					b.Fatalf("%d of %d hands are in the refresh: %+v", len(blocks), count, answer.Gap.Refresh.Skipped)
				}
				last := time.Duration(0)
				for _, block := range answer.Gap.Refresh.Blocks {
					last = max(last, block.Took)
				}
				sources, gaps = append(sources, last), append(gaps, answer.Gap.Took)
				began := time.Now()
				for i := range count {
					if _, err := h.Query(b.Context(), host.HandQuery{Hand: fmt.Sprint("hand-", i), Prompt: "What is new?"}); err != nil {
						b.Fatal(err)
					}
				}
				sums = append(sums, time.Since(began))
			}
			b.ReportMetric(float64(percentile(sources, .5)), "sources-ns")
			b.ReportMetric(float64(percentile(sums, .5)), "sum-ns")
			b.ReportMetric(float64(percentile(gaps, .5)), "gap-ns")
		})
	}
}
