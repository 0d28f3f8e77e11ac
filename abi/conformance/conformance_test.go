package conformance_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/abi/conformance"
	vectors "github.com/gloveboxhq/glovebox/testdata/abi"
)

func file(name, text string) fstest.MapFS { return fstest.MapFS{name: {Data: []byte(text)}} }

// A kit that checks nothing, or something else than its vectors say, must not pass.
func TestReadingVectors(t *testing.T) {
	for text, want := range map[string]string{
		`{"cases": []}`: "no vectors",
		`{}`:            "no vectors",
		`{"cases": [{"name": "a", "promt": ""}]}`:                                   `unknown field "promt"`,
		`{"cases": [{"prompt": ""}]}`:                                               "needs a name of its own",
		`{"cases": [{"name": "a"}, {"name": "a"}]}`:                                 "needs a name of its own",
		`{"cases": [{"name": "a", "raw": "{}", "prompt": "x"}]}`:                    "raw beside prompt",
		`{"cases": [{"name": "a", "reply": "x", "fail": "y"}]}`:                     "reply and fail",
		`{"cases": [{"name": "a", "reply": 1}]}`:                                    "a text is a string or a list of parts",
		`{"cases": [{"name": "a", "reply": [{"txt": "x"}]}]}`:                       `unknown field "txt"`,
		`{"cases": [{"name": "a", "reply": [{"hex": "0"}]}]}`:                       "hex",
		`{"cases": [{"name": "a", "reply": [{"text": "x", "times": 1000000000}]}]}`: "too many",
		`{"cases": [{"name": "a", "reply": [{"text": "x", "times": -1}]}]}`:         "too many",
		`{"cases": [{"name": "a"}]} {}`:                                             "something follows",
	} {
		if _, err := conformance.ReadSample(file("sample.json", text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for text, want := range map[string]string{
		`{"queries": []}`:             "no vectors",
		`{"queries": [{"name": ""}]}`: "needs a name of its own",
		`{"queries": [{"name": "a", "same_as": "b"}, {"name": "b"}]}`:             "does not stand before it",
		`{"queries": [{"name": "a", "raw": "{"}]}`:                                "raw is not JSON",
		`{"queries": [{"name": "a", "prompt": [{"text": "x", "times": 16385}]}]}`: "a prompt of 16385 bytes",
	} {
		if _, err := conformance.ReadKit(file("queries.json", text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	_, noSample := conformance.ReadSample(fstest.MapFS{})
	_, noQueries := conformance.ReadKit(fstest.MapFS{})
	_, zero := conformance.Kit{}.Check(t.Context(), conformance.Hand{})
	for _, err := range []error{noSample, noQueries, zero} {
		if !errors.Is(err, conformance.ErrNoVectors) {
			t.Errorf("without vectors: %v", err)
		}
	}
	if (conformance.Report{}).Passed() {
		t.Error("a report of nothing is passed")
	}
}

func TestTextsOfParts(t *testing.T) {
	sample, err := conformance.ReadSample(file("sample.json", `{"query": {"n": 9223372036854775807}, "cases": [
		{"name": "a", "reply": ["x", {"text": "ab", "times": 2}, {"hex": "ff00"}, {"text": "#;", "times": 2, "numbered": true}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := sample.Cases[0].Reply; got != "xabab\xff\x000001;0002;" {
		t.Errorf("%q", got)
	}
	if got := string(sample.Cases[0].Encoded()); got != `{"n":9223372036854775807,"prompt":""}` {
		t.Errorf("%s", got)
	}
}

// model is a hand that a test plays.
type model func(ask conformance.Ask) conformance.Outcome

func (m model) run(_ context.Context, ask conformance.Ask) (conformance.Outcome, error) {
	o := m(ask)
	o.ReplyDigest, o.SaidDigest, o.LogDigest = sha256.Sum256([]byte(o.Reply)), sha256.Sum256([]byte(o.Said)), sha256.Sum256([]byte(o.Log))
	o.ReplyBytes = len(o.Reply)
	return o, nil
}

func says(text string) model {
	return func(conformance.Ask) conformance.Outcome { return conformance.Outcome{Reply: text} }
}

func faultsOf(t *testing.T, r conformance.Report) (faults []string) {
	t.Helper()
	for _, c := range r.Checks {
		for _, f := range c.Faults {
			faults = append(faults, c.Name+": "+f)
		}
		if c.Passed() != (len(c.Faults) == 0) {
			t.Errorf("%s: %t", c.Name, c.Passed())
		}
	}
	if r.Passed() != (len(faults) == 0) {
		t.Errorf("passed %t with %q", r.Passed(), faults)
	}
	return faults
}

func TestKit(t *testing.T) {
	kit, err := conformance.ReadKit(vectors.Files)
	if err != nil {
		t.Fatal(err)
	}
	freed := 0
	hand := func(m model) conformance.Hand {
		return conformance.Hand{
			Manifest: []byte("name = \"x\"\nversion = \"1.0.0\"\nabi = 1\n[config.k]\ntype = \"integer\"\ndefault = 3\n"),
			Load: func(context.Context) (conformance.Runner, func() error, error) {
				return m.run, func() error { freed++; return nil }, nil
			},
		}
	}
	var asked []conformance.Ask
	report, err := kit.Check(t.Context(), hand(func(ask conformance.Ask) conformance.Outcome {
		asked = append(asked, ask)
		var q abi.Query
		if err := json.Unmarshal(ask.Query, &q); err != nil || q.Config["k"] != 3.0 {
			t.Errorf("%s: %v", ask.Query, err)
		}
		return conformance.Outcome{Reply: "x"}
	}))
	if err != nil || len(faultsOf(t, report)) > 0 || freed != 1 {
		t.Errorf("%v, %+v, freed %d times", err, report, freed)
	}
	if len(report.Checks) != 5+18 || len(asked) != 3*18 {
		t.Errorf("%d checks, %d questions", len(report.Checks), len(asked))
	}

	calls := 0
	for name, test := range map[string]struct {
		model model
		want  string
	}{
		"each time another": {func(conformance.Ask) conformance.Outcome {
			calls++
			return conformance.Outcome{Reply: fmt.Sprint(calls)}
		}, `asked twice with the same clock and the same random numbers, it answers "`},
		"another failure each time": {func(conformance.Ask) conformance.Outcome {
			calls++
			return conformance.Outcome{Kind: abi.KindHandFailed, Said: fmt.Sprint("no ", calls)}
		}, `it answers with the failure "no `},
		"the clock": {func(ask conformance.Ask) conformance.Outcome {
			return conformance.Outcome{Reply: ask.Now.Format(time.RFC3339)}
		},
			"with another clock in the box"},
		"chance": {func(ask conformance.Ask) conformance.Outcome { return conformance.Outcome{Reply: fmt.Sprint(ask.Seed)} },
			"with other random numbers"},
		"the clock before": {func(ask conformance.Ask) conformance.Outcome {
			if !ask.FromStart {
				return conformance.Outcome{Reply: "x"}
			}
			return conformance.Outcome{Reply: ask.Now.Format(time.RFC3339)}
		}, `normal: with another clock before the query, it answers "2026-03-24T08:00:00Z" and then "2031-11-05T21:43:11Z"`},
		"chance before": {func(ask conformance.Ask) conformance.Outcome {
			if !ask.FromStart {
				return conformance.Outcome{Reply: "x"}
			}
			return conformance.Outcome{Reply: fmt.Sprint(ask.Seed)}
		}, `normal: with other random numbers before the query, it answers "1" and then "7919"`},
		"a coin before": {func(ask conformance.Ask) conformance.Outcome {
			return conformance.Outcome{Reply: fmt.Sprint(!ask.FromStart || ask.Seed%2 == 1)}
		}, `with other random numbers before the query, it answers "true" and then "false"`},
		"its image": {func(ask conformance.Ask) conformance.Outcome {
			return conformance.Outcome{Reply: fmt.Sprint(!ask.FromStart)}
		}, `normal: beginning from its image it answers "true", and "false" where all runs in the query`},
		"unknown fields": {func(ask conformance.Ask) conformance.Outcome {
			return conformance.Outcome{Reply: fmt.Sprint(strings.Contains(string(ask.Query), "tomorrow"))}
		}, `unknown-fields: to the same question as normal it answers "false" and then "true"`},
		"a blank failure": {func(conformance.Ask) conformance.Outcome {
			return conformance.Outcome{Kind: abi.KindHandFailed, Said: " \n"}
		}, "hand_failed: it fails without a message"},
		"out of fuel": {func(conformance.Ask) conformance.Outcome {
			return conformance.Outcome{Kind: abi.KindOutOfFuel, Text: "ran out of fuel"}
		}, "normal: out_of_fuel: ran out of fuel"},
		"over the budget": {func(conformance.Ask) conformance.Outcome { return conformance.Outcome{Reply: "x", OverTokens: 1} },
			"one-token: the reply costs more than max_output_tokens = 1,"},
	} {
		report, err := kit.Check(t.Context(), hand(test.model))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if faults := faultsOf(t, report); !slices.ContainsFunc(faults, func(f string) bool { return strings.Contains(f, test.want) }) {
			t.Errorf("%s: %q", name, faults)
		}
	}

	// What cannot be loaded is asked nothing.
	broken := hand(says("x"))
	broken.Load = func(context.Context) (conformance.Runner, func() error, error) {
		return nil, nil, &abi.Error{Hand: "x", Kind: abi.KindNotGranted, Text: "no"}
	}
	if report, err := kit.Check(t.Context(), broken); err != nil || report.Passed() || report.Checks[len(report.Checks)-1].Faults[0] != `not_granted: hand "x": no` {
		t.Errorf("%v, %+v", err, report)
	}
	// The runner's own trouble is an error, and what is loaded is freed.
	trouble := errors.New("the disk is full")
	freed = 0
	broken.Load = func(context.Context) (conformance.Runner, func() error, error) {
		return func(context.Context, conformance.Ask) (conformance.Outcome, error) {
			return conformance.Outcome{}, trouble
		}, func() error { freed++; return nil }, nil
	}
	if _, err := kit.Check(t.Context(), broken); !errors.Is(err, trouble) || freed != 1 {
		t.Errorf("%v, freed %d times", err, freed)
	}
}

func TestSampleFaults(t *testing.T) {
	sample, err := conformance.ReadSample(file("sample.json", `{"query": {}, "cases": [
		{"name": "reply", "reply": "a"},
		{"name": "failure", "fail": "no"},
		{"name": "log", "reply": "", "log": ["info: x"]},
		{"name": "kept", "world": {"kv": {}}, "kept": {"k": "v"}},
		{"name": "left alone", "world": {"kv": {"values": {"k": "v"}}}},
		{"name": "not requested", "world": {"http": [{"method": "GET", "url": "http://a/"}]}},
		{"name": "not asked", "world": {"llm": [{"prompt": "why"}]}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	report, err := sample.Check(t.Context(), model(func(ask conformance.Ask) conformance.Outcome {
		if ask.Ports.KV != nil {
			if err := ask.Ports.KV.Delete(t.Context(), abi.KVDeleteRequest{Key: "k"}); err != nil {
				t.Error(err)
			}
		}
		return conformance.Outcome{Reply: "b", Log: "info: y\n"}
	}).run)
	if err != nil {
		t.Fatal(err)
	}
	faults := strings.Join(faultsOf(t, report), "\n")
	for _, want := range []string{
		`reply: it answers "b", 1 bytes, not "a", 1 bytes`, `reply: it logs "info: y\n", not ""`,
		`failure: it answers "b" where it has to fail with "no"`, `log: it logs "info: y\n", not "info: x\n"`,
		`kept: it leaves map[] in kv, not map["k":"v"]`, `left alone: it leaves map[] in kv`,
		"not requested: GET http://a/ was not requested", `not asked: the model was not asked "why"`,
	} {
		if !strings.Contains(faults, want) {
			t.Errorf("no %q in\n%s", want, faults)
		}
	}
	report, err = sample.Check(t.Context(), model(func(ask conformance.Ask) conformance.Outcome {
		return conformance.Outcome{Reply: map[bool]string{false: "a", true: "b"}[ask.FromStart]}
	}).run)
	if faults := faultsOf(t, report); err != nil || len(faults) == 0 || faults[0] != `reply: without an image, it answers "b", 1 bytes, not "a", 1 bytes` {
		t.Errorf("%v: %q", err, faults)
	}
	report, err = sample.Check(t.Context(), model(func(conformance.Ask) conformance.Outcome {
		return conformance.Outcome{Kind: abi.KindTrap, Text: "trapped"}
	}).run)
	if faults := strings.Join(faultsOf(t, report), "\n"); err != nil || !strings.Contains(faults, `reply: it ends as trap (trapped;`) || !strings.Contains(faults, `failure: it ends as trap (trapped) where it has to fail with "no"`) {
		t.Errorf("%v: %s", err, faults)
	}
}

// What the hand asks of the world is compared whole.
func TestWorldExpects(t *testing.T) {
	exchange := conformance.Exchange{Method: "POST", URL: "http://a/", Sent: [][2]string{{"Content-Type", "text/plain"}}, SentBody: "b", TimeoutMillis: 5, Status: 200}
	right := abi.HTTPFetchRequest{Method: "POST", URL: "http://a/", Header: [][2]string{{"content-type", "text/plain"}}, Body: []byte("b"), TimeoutMillis: 5}
	for want, change := range map[string]func(*abi.HTTPFetchRequest){
		"":                               func(*abi.HTTPFetchRequest) {},
		"expected is POST http://a/":     func(r *abi.HTTPFetchRequest) { r.URL = "http://b/" },
		"PUT http://a/ is requested":     func(r *abi.HTTPFetchRequest) { r.Method = "PUT" },
		"is sent with the headers []":    func(r *abi.HTTPFetchRequest) { r.Header = nil },
		`is sent with the body "c"`:      func(r *abi.HTTPFetchRequest) { r.Body = []byte("c") },
		"is sent with a timeout of 0 ms": func(r *abi.HTTPFetchRequest) { r.TimeoutMillis = 0 },
	} {
		ports := (&conformance.World{HTTP: []conformance.Exchange{exchange}}).Ports()
		request := right
		change(&request)
		_, _, _, err := ports.HTTP.Fetch(t.Context(), request, abi.HTTPBudget{})
		faults := strings.Join(ports.Faults(), "\n")
		if (err != nil) != (want != "") || !strings.Contains(faults, want) || (want == "") != (faults == "") {
			t.Errorf("%s: %v, %q", want, err, faults)
		}
	}
	ports := (&conformance.World{LLM: []conformance.Answer{{System: "s", Prompt: "p", MaxOutputTokens: 1}}}).Ports()
	if _, err := ports.LLM.Complete(t.Context(), abi.LLMCompleteRequest{System: "other", Prompt: "p", MaxOutputTokens: 1}); err == nil || len(ports.Faults()) != 1 {
		t.Errorf("%v, %q", err, ports.Faults())
	}
}

// A world gives pages, so that a hand that reads the first alone is found out.
func TestWorldPages(t *testing.T) {
	ports := (&conformance.World{
		Files: &conformance.FilesWorld{Page: 2, Entries: []conformance.File{{Path: "f", Copies: 3}}},
		KV:    &conformance.KVWorld{Page: 2, Values: map[string]conformance.Text{"a": "", "b": "", "c": ""}},
	}).Ports()
	list := func(after string, limit int) (names string, more bool) {
		page, err := ports.Files.List(t.Context(), abi.FilesListRequest{Root: "docs", After: after, Limit: limit})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Entries {
			names += e.Name
		}
		return names, page.More
	}
	keys := func(after string, limit int) (names string, more bool) {
		page, err := ports.KV.List(t.Context(), abi.KVListRequest{After: after, Limit: limit})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(page.Keys, ""), page.More
	}
	for _, test := range []struct {
		of    func(string, int) (string, bool)
		after string
		limit int
		names string
		more  bool
	}{
		{list, "", 1000, "f0001f0002", true}, {list, "", 1, "f0001", true}, {list, "f0002", 1000, "f0003", false}, {list, "f0001", 1000, "f0002f0003", false},
		{keys, "", 1000, "ab", true}, {keys, "b", 1000, "c", false}, {keys, "", 1, "a", true},
	} {
		if names, more := test.of(test.after, test.limit); names != test.names || more != test.more {
			t.Errorf("%d after %q: %s, %t", test.limit, test.after, names, more)
		}
	}
}
