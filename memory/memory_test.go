package memory_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/memory"
)

var at = time.Date(2026, 3, 23, 9, 0, 0, 0, time.FixedZone("", 3600))

func TestNames(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "9": true, "anna.b-c_d": true, strings.Repeat("a", 63): true,
		"": false, strings.Repeat("a", 64): false, "-a": false, ".": false, "_": false, "A": false, "a b": false, "a/b": false, "ä": false, "a\x00": false,
	} {
		if got := memory.ValidName(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}

func TestIDs(t *testing.T) {
	id := memory.NewID[memory.SessionID]()
	if again, err := memory.ParseID[memory.SessionID](id.String()); err != nil || again != id {
		t.Errorf("%s was read as %s, %v", id, again, err)
	}
	if next := memory.NewID[memory.SessionID](); next.String() <= id.String() {
		t.Errorf("%s was made after %s and sorts before it", next, id)
	}
	for _, text := range []string{
		"", "test", "00000000-0000-0000-0000-000000000000", "{" + id.String() + "}", "urn:uuid:" + id.String(), strings.ReplaceAll(id.String(), "-", ""),
		id.String() + " ",
	} {
		if got, err := memory.ParseID[memory.SessionID](text); !errors.Is(err, memory.ErrInvalid) || !got.IsZero() {
			t.Errorf("%q was read as %s, %v", text, got, err)
		}
	}
	var document struct{ ID memory.UserID }
	if err := json.Unmarshal([]byte(`{"ID":"nonsense"}`), &document); !errors.Is(err, memory.ErrInvalid) {
		t.Errorf("in a document: %v", err)
	}
	want := memory.NewID[memory.UserID]()
	if err := json.Unmarshal([]byte(`{"ID":"`+want.String()+`"}`), &document); err != nil || document.ID != want {
		t.Errorf("in a document: %s, %v", document.ID, err)
	}
}

func TestDraftsThatAreRefused(t *testing.T) {
	good := memory.Draft{Role: memory.RoleUser, Blocks: []memory.Block{memory.Text("x")}, At: at}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*memory.Draft){
		"role":              func(d *memory.Draft) { d.Role = "wizard" },
		"no role":           func(d *memory.Draft) { d.Role = "" },
		"source":            func(d *memory.Draft) { d.Source = "rumour" },
		"trust":             func(d *memory.Draft) { d.Trust = "full" },
		"blocks":            func(d *memory.Draft) { d.Blocks = nil },
		"time":              func(d *memory.Draft) { d.At = time.Time{} },
		"long key":          func(d *memory.Draft) { d.EventKey = strings.Repeat("k", memory.MaxEventKey+1) },
		"key of other text": func(d *memory.Draft) { d.EventKey = "\xff" },
		"key with a NUL":    func(d *memory.Draft) { d.EventKey = "a\x00b" },
	} {
		d := good
		spoil(&d)
		if err := d.Check(); !errors.Is(err, memory.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTrustFollowsTheBlocks(t *testing.T) {
	outside, result := memory.External(content(t, "x")), memory.ToolResult("1", "t", content(t, "x"), false)
	for _, test := range []struct {
		claimed memory.Trust
		blocks  []memory.Block
		want    memory.Trust
	}{
		{"", []memory.Block{memory.Text("x")}, memory.TrustDirect},
		{memory.TrustDerived, []memory.Block{memory.Text("x")}, memory.TrustDerived},
		{memory.TrustDirect, []memory.Block{memory.Text("x"), outside}, memory.TrustExternal},
		{memory.TrustDirect, []memory.Block{result}, memory.TrustExternal},
		{"", []memory.Block{memory.ToolResult("1", "t", boundary.Content{}, true)}, memory.TrustDirect},
	} {
		if got := (memory.Draft{Trust: test.claimed, Blocks: test.blocks}).Sealed(); got != test.want {
			t.Errorf("%q with %d blocks is %q, want %q", test.claimed, len(test.blocks), got, test.want)
		}
	}
}

// C4
func TestInjectionsBecomeMessages(t *testing.T) {
	one, two := content(t, "first"), content(t, "second")
	d := memory.Injection{At: at, Blocks: []boundary.Content{one, {}, two}}.Draft()
	if d.Role != memory.RoleUser || d.Source != memory.SourceContextInjection || d.Trust != memory.TrustExternal || !d.At.Equal(at) {
		t.Errorf("got %+v", d)
	}
	want := "[Context refresh — 2026-03-23T08:00:00Z]\n" + one.Render() + "\n" + two.Render()
	if got := memory.Shown(d.Blocks); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// B7
func TestSummariesAreShownWithTheirExternalTextApart(t *testing.T) {
	outside := content(t, "from outside")
	s := memory.Summary{ID: memory.NewID[memory.SummaryID](), Text: "said", Earliest: at, Latest: at.Add(time.Hour), Descendants: 2}
	heading := "[Summary " + s.ID.String() + " of 2 earlier messages, 2026-03-23T08:00:00Z to 2026-03-23T09:00:00Z]\n"
	if got := s.Shown(); got != heading+"said" {
		t.Errorf("got %q", got)
	}
	s.External = outside
	if got := s.Shown(); got != heading+"said\n"+outside.Render() {
		t.Errorf("got %q", got)
	}
	if got := s.ShownIn(boundary.ModeEncode); got != heading+"said\n"+boundary.ModeEncode.Render(outside) {
		t.Errorf("encoded: %q", got)
	}
}
