package plugins_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/capability"
	"github.com/gloveboxhq/glovebox/host/sandbox"
	"github.com/gloveboxhq/glovebox/plugins"
)

// Every hand comes through its warming, answers the same as where there is none, and
// for less.
func TestBundledHandsWarmUp(t *testing.T) {
	day := time.Date(2026, time.March, 25, 17, 0, 0, 0, time.UTC)
	query := abi.Query{Prompt: "What is new?", From: day.AddDate(0, 0, -1), To: day, Now: day, Timezone: "Europe/Berlin", MaxOutputTokens: 1_000}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.ics"), "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:x\r\nBEGIN:VEVENT\r\nUID:1\r\nDTSTAMP:20260301T000000Z\r\n"+
		"DTSTART;TZID=Europe/Berlin:20260325T100000\r\nDURATION:PT1H\r\nSUMMARY:Dig\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n", day)
	write(t, filepath.Join(dir, "a.eml"), "Date: Wed, 25 Mar 2026 10:00:00 +0100\r\nFrom: a@example.org\r\nTo: b@example.org\r\nSubject: Dig\r\nMessage-ID: <1@example.org>\r\n\r\nNow.\r\n", day)
	write(t, filepath.Join(dir, "a.md"), "# Dig\n\n- [ ] now\n", day.Add(-time.Hour))
	roots := map[string]string{"calendar": "calendars", "mail": "mail", "notes": "notes"}

	imaged, err := engine()
	if err != nil {
		t.Fatal(err)
	}
	plain, err := sandbox.New(sandbox.Config{Images: sandbox.ImagesOff})
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	ask := func(engine *sandbox.Engine, name string) (string, int64, sandbox.ImageInfo) {
		module, err := plugins.Module(name)
		if err != nil {
			t.Fatal(err)
		}
		loaded, err := engine.Load(t.Context(), module, sandbox.Options{Name: name, Granted: abi.Capabilities(), Trusted: true})
		if err != nil {
			t.Fatal(err)
		}
		root, reads := roots[name]
		if !reads {
			return "", 0, loaded.Image()
		}
		ledger, err := capability.OpenLedger(t.Context(), filepath.Join(t.TempDir(), "hands.db"), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer ledger.Close()
		files := capability.NewFiles(ledger, capability.Caller{Hand: "bundled"}, map[string]string{root: dir})
		defer files.Close()
		result, err := loaded.Query(t.Context(), query, sandbox.Ports{Files: files, Fixed: &sandbox.Fixed{Now: day, Seed: 1}})
		if err != nil || result.Reply.IsEmpty() {
			t.Fatalf("%s: %v, said %q", name, err, boundary.Neutral(result.Said))
		}
		return boundary.Neutral(result.Reply), result.Fuel, loaded.Image()
	}
	for _, name := range plugins.Names() {
		reply, fuel, image := ask(imaged, name)
		if image.Stage != sandbox.StageWarmed {
			t.Errorf("%s begins %s: %s", name, image.Stage, image.Reason)
		}
		if _, reads := roots[name]; !reads {
			continue
		}
		plainReply, plainFuel, _ := ask(plain, name)
		if reply != plainReply {
			t.Errorf("%s answers\n%s\nand without an image\n%s", name, reply, plainReply)
		}
		if t.Logf("%s: %d units of fuel, %d without an image", name, fuel, plainFuel); fuel > plainFuel/2 {
			t.Errorf("%s: warming saves less than half of %d units", name, plainFuel)
		}
	}
}
