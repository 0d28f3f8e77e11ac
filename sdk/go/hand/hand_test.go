package hand

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// register replaces the handler for one test.
func register(t *testing.T, f Handler) {
	t.Helper()
	before := registered
	registered = f
	t.Cleanup(func() { registered = before })
}

func TestCommandProfile(t *testing.T) {
	var got Query
	register(t, func(_ context.Context, q Query) (string, error) {
		got = q
		return "answer", nil
	})
	query := `{"prompt":"what","from":"2026-03-23T00:00:00Z","to":"2026-03-24T00:00:00Z","now":"2026-03-24T08:00:00+01:00","timezone":"Europe/Berlin",
		"max_output_tokens":256,"config":{"n":3,"big":9007199254740993,"whole":2.0,"much":1e300,"f":1.5,"l":["a","b"],"s":"x","b":true},"subject":"abc","a field of tomorrow":{"x":1}}`
	var out strings.Builder
	if err := run(t.Context(), strings.NewReader(query), &out); err != nil || out.String() != "answer" {
		t.Fatalf("%q, %v", out.String(), err)
	}
	if got.Prompt != "what" || got.To.Sub(got.From) != 24*time.Hour || got.Location.String() != "Europe/Berlin" || got.MaxOutputTokens != 256 || got.Subject != "abc" {
		t.Errorf("query %+v", got)
	}
	want := map[string]any{"n": int64(3), "big": int64(9007199254740993), "whole": int64(2), "much": 1e300, "f": 1.5, "l": []string{"a", "b"}, "s": "x", "b": true}
	if !reflect.DeepEqual(got.Config, want) {
		t.Errorf("config %#v", got.Config)
	}
}

func TestUnknownTimeZoneIsUTC(t *testing.T) {
	q, err := parseQuery([]byte(`{"timezone":"Mars/Olympus"}`))
	if err != nil || q.Location != time.UTC || q.Timezone != "Mars/Olympus" {
		t.Errorf("%+v, %v", q, err)
	}
}

func TestFailuresAreReturned(t *testing.T) {
	if err := run(t.Context(), strings.NewReader("{}"), &strings.Builder{}); !errors.Is(err, errNotRegistered) {
		t.Errorf("without a handler: %v", err)
	}
	broken := errors.New("no calendar today")
	register(t, func(context.Context, Query) (string, error) { return "half", broken })
	var out strings.Builder
	if err := run(t.Context(), strings.NewReader("{}"), &out); !errors.Is(err, broken) || out.Len() != 0 {
		t.Errorf("%q, %v", out.String(), err)
	}
	if err := run(t.Context(), strings.NewReader("not JSON"), &out); err == nil {
		t.Error("a query that is not JSON is answered")
	}
	if err := run(t.Context(), strings.NewReader("{} {}"), &out); err == nil {
		t.Error("a query with something behind it is answered")
	}
}

func TestRegisterTwicePanics(t *testing.T) {
	register(t, func(context.Context, Query) (string, error) { return "", nil })
	defer func() {
		if recover() == nil {
			t.Error("a second handler is taken")
		}
	}()
	Register(func(context.Context, Query) (string, error) { return "", nil })
}

func TestWarmRunsInOrder(t *testing.T) {
	before := warmers
	warmers = nil
	t.Cleanup(func() { warmers = before })
	var ran []string
	Warm(func() { ran = append(ran, "first") })
	Warm(func() { ran = append(ran, "second") })
	if len(ran) > 0 {
		t.Errorf("%v ran before the host asked for it", ran)
	}
	if warm(); !slices.Equal(ran, []string{"first", "second"}) {
		t.Errorf("%v ran", ran)
	}
	broken := errors.New("no table")
	Warm(func() { panic(broken) })
	Warm(func() { ran = nil })
	defer func() {
		if recover() != broken || ran == nil {
			t.Error("a panic is held back: the host would keep what it left half done")
		}
	}()
	warm()
}
