package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"
	"unicode/utf8"

	"golang.org/x/tools/txtar"

	"github.com/gloveboxhq/glovebox/abi/manifest"
	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/plugins/internal/compose"
	"github.com/gloveboxhq/glovebox/plugins/internal/golden"
	"github.com/gloveboxhq/glovebox/sdk/go/hand"
	"github.com/gloveboxhq/glovebox/sdk/go/hand/files"
)

func ask(t testing.TB, fsys fs.FS, q hand.Query) string {
	t.Helper()
	reply, err := answer(files.WithRoot(t.Context(), rootName, fsys), q)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

// tuesday asks at 08:00 UTC on Tuesday, 3 March 2026 about the day before.
func tuesday() hand.Query {
	now := time.Date(2026, time.March, 3, 8, 0, 0, 0, time.UTC)
	return hand.Query{From: now.AddDate(0, 0, -1), To: now, Now: now, Location: time.UTC, MaxOutputTokens: 2_000}
}

// ics returns a file with one event per body, which is written with spaces for
// line ends: "UID:1 DTSTART:…".
func ics(bodies ...string) string {
	var b strings.Builder
	b.WriteString("BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//test//EN\r\n")
	for i, body := range bodies {
		b.WriteString("BEGIN:VEVENT\r\n")
		if !strings.Contains(body, "UID:") {
			fmt.Fprintf(&b, "UID:%d\r\n", i)
		}
		b.WriteString(strings.ReplaceAll(body, " ", "\r\n") + "\r\nEND:VEVENT\r\n")
	}
	b.WriteString("END:VCALENDAR\r\n")
	return b.String()
}

func tree(contents map[string]string) fstest.MapFS {
	fsys := make(fstest.MapFS)
	for name, data := range contents {
		fsys[name] = &fstest.MapFile{Data: []byte(data)}
	}
	return fsys
}

// archived reads the files of an archive: a query, and the tree of the granted folder.
func archived(t testing.TB, files []txtar.File) (fsys fstest.MapFS, q hand.Query) {
	t.Helper()
	fsys = make(fstest.MapFS)
	for _, f := range files {
		switch below, inTree := strings.CutPrefix(f.Name, rootName+"/"); {
		case inTree:
			fsys[below] = &fstest.MapFile{Data: f.Data}
		case f.Name == "query":
			q = parseQuery(t, string(f.Data))
		case f.Name == "reply":
		default:
			t.Fatalf("unknown file %q", f.Name)
		}
	}
	if q.To.IsZero() {
		t.Fatal("no query")
	}
	return fsys, q
}

func parseQuery(t testing.TB, text string) hand.Query {
	t.Helper()
	q := hand.Query{MaxOutputTokens: 1_000}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " = ")
		var err error
		switch key {
		case "from":
			q.From, err = time.Parse(time.RFC3339, value)
		case "to":
			q.To, err = time.Parse(time.RFC3339, value)
		case "now":
			q.Now, err = time.Parse(time.RFC3339, value)
		case "timezone":
			q.Timezone = value
			q.Location, err = time.LoadLocation(value)
		default:
			err = errors.New("unknown key")
		}
		if err != nil {
			t.Fatalf("query: %s: %v", line, err)
		}
	}
	return q
}

// TestReplies compares whole replies, asked again with CRLF, with CR and with
// every long line folded: a reply must not depend on how lines end.
func TestReplies(t *testing.T) {
	golden.Replies(t, func(t *testing.T, files []txtar.File) string {
		fsys, q := archived(t, files)
		got := ask(t, fsys, q)
		for ending, change := range map[string]*strings.Replacer{
			"CRLF":         strings.NewReplacer("\n", "\r\n"),
			"CR":           strings.NewReplacer("\n", "\r"),
			"CRCRLF":       strings.NewReplacer("\n", "\r\r\n"),
			"blank lines":  strings.NewReplacer("\n", "\n\n"),
			"BOM":          strings.NewReplacer("BEGIN:VCALENDAR", "\uFEFFBEGIN:VCALENDAR"),
			"refolded":     strings.NewReplacer("SUMMARY", "SUM\n\tMARY", "DTSTART", "DTST\n ART"),
			"lower case":   strings.NewReplacer("DTSTART", "dtstart", "RRULE:FREQ", "rrule:freq", "END:VEVENT", "end:vevent"),
			"empty params": strings.NewReplacer("\nSUMMARY:", "\nSUMMARY;:"),
		} {
			changed := make(fstest.MapFS)
			for path, f := range fsys {
				changed[path] = &fstest.MapFile{Data: []byte(change.Replace(string(f.Data)))}
			}
			if again := ask(t, changed, q); again != got {
				t.Errorf("%s: reply:\n%s\nwant:\n%s", ending, again, got)
			}
		}
		return got
	})
}

func TestManifest(t *testing.T) {
	data, err := os.ReadFile("manifest.toml")
	if err != nil {
		t.Fatal(err)
	}
	m, err := manifest.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	if m.Name != "calendar" {
		t.Errorf("name %q", m.Name)
	}
}

// TestEvents has one event or series per case and what the reply lists of it,
// in the window 2 March 08:00 – 3 March 08:00 UTC and the day after.
func TestEvents(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want []string // lines without "- "
	}{
		"instant":                   {"DTSTART:20260302T090000Z SUMMARY:X", []string{"Mon 2 Mar 09:00 X"}},
		"at from":                   {"DTSTART:20260302T080000Z SUMMARY:X", []string{"Mon 2 Mar 08:00 X"}},
		"just before from":          {"DTSTART:20260302T075959Z SUMMARY:X", nil},
		"ends at from":              {"DTSTART:20260302T070000Z DTEND:20260302T080000Z SUMMARY:X", nil},
		"over from":                 {"DTSTART:20260301T220000Z DTEND:20260302T080100Z SUMMARY:X", []string{"Sun 1 Mar 22:00 – Mon 2 Mar 08:01 X"}},
		"at to, which is now":       {"DTSTART:20260303T080000Z SUMMARY:X", []string{"Tue 3 Mar 08:00 X"}},
		"at the end of 24 hours":    {"DTSTART:20260304T080000Z SUMMARY:X", nil},
		"before the end of 24":      {"DTSTART:20260304T075900Z SUMMARY:X", []string{"Wed 4 Mar 07:59 X"}},
		"until midnight":            {"DTSTART:20260302T220000Z DTEND:20260303T000000Z SUMMARY:X", []string{"Mon 2 Mar 22:00–24:00 X"}},
		"duration":                  {"DTSTART:20260302T220000Z DURATION:PT90M SUMMARY:X", []string{"Mon 2 Mar 22:00–23:30 X"}},
		"negative duration":         {"DTSTART:20260302T220000Z DURATION:-PT90M SUMMARY:X", []string{"Mon 2 Mar 22:00 X"}},
		"end before start":          {"DTSTART:20260302T220000Z DTEND:20260302T210000Z SUMMARY:X", []string{"Mon 2 Mar 22:00 X"}},
		"under way":                 {"DTSTART:20260303T070000Z DTEND:20260303T090000Z SUMMARY:X", []string{"Tue 3 Mar 07:00–09:00 X (under way)"}},
		"day":                       {"DTSTART;VALUE=DATE:20260302 SUMMARY:X", []string{"Mon 2 Mar all day X"}},
		"day, end as Outlook":       {"DTSTART;VALUE=DATE:20260302 DTEND;VALUE=DATE:20260302 SUMMARY:X", []string{"Mon 2 Mar all day X"}},
		"days":                      {"DTSTART;VALUE=DATE:20260227 DTEND;VALUE=DATE:20260303 SUMMARY:X", []string{"Fri 27 Feb – Mon 2 Mar all day X"}},
		"two days by duration":      {"DTSTART;VALUE=DATE:20260301 DURATION:P2D SUMMARY:X", []string{"Sun 1 Mar – Mon 2 Mar all day X"}},
		"another year":              {"DTSTART:20251231T100000Z DTEND:20260302T090000Z SUMMARY:X", []string{"Wed 31 Dec 2025 10:00 – Mon 2 Mar 09:00 X"}},
		"no summary":                {"DTSTART:20260302T090000Z", []string{"Mon 2 Mar 09:00 (no title)"}},
		"no UID":                    {"UID: DTSTART:20260302T090000Z SUMMARY:X", []string{"Mon 2 Mar 09:00 X"}},
		"IANA zone":                 {"DTSTART;TZID=Asia/Tokyo:20260302T190000 SUMMARY:X", []string{"Mon 2 Mar 10:00 X"}},
		"Mozilla zone":              {"DTSTART;TZID=/mozilla.org/20050126_1/America/New_York:20260302T050000 SUMMARY:X", []string{"Mon 2 Mar 10:00 X"}},
		"three-part zone":           {"DTSTART;TZID=/softwarestudio.org/Olson_1/America/Argentina/Buenos_Aires:20260302T070000 SUMMARY:X", []string{"Mon 2 Mar 10:00 X"}},
		"floating":                  {"DTSTART:20260302T090000 SUMMARY:X", []string{"Mon 2 Mar 09:00 X"}},
		"ISO 8601":                  {"DTSTART:2026-03-02T09:00:00Z SUMMARY:X", []string{"Mon 2 Mar 09:00 X"}},
		"count":                     {"DTSTART:20260228T090000Z RRULE:FREQ=DAILY;COUNT=3 SUMMARY:X", []string{"Mon 2 Mar 09:00 X"}},
		"until, inclusive":          {"DTSTART:20260228T090000Z RRULE:FREQ=DAILY;UNTIL=20260303T090000Z SUMMARY:X", []string{"Mon 2 Mar 09:00 X", "Tue 3 Mar 09:00 X"}},
		"until a second before":     {"DTSTART:20260228T090000Z RRULE:FREQ=DAILY;UNTIL=20260303T085959Z SUMMARY:X", []string{"Mon 2 Mar 09:00 X"}},
		"until a date":              {"DTSTART:20260228T090000Z RRULE:FREQ=DAILY;UNTIL=20260303 SUMMARY:X", []string{"Mon 2 Mar 09:00 X", "Tue 3 Mar 09:00 X"}},
		"until in UTC, zoned":       {"DTSTART;TZID=Asia/Tokyo:20260228T190000 RRULE:FREQ=DAILY;UNTIL=20260302T100000Z SUMMARY:X", []string{"Mon 2 Mar 10:00 X"}},
		"until local, zoned":        {"DTSTART;TZID=Asia/Tokyo:20260228T190000 RRULE:FREQ=DAILY;UNTIL=20260302T190000 SUMMARY:X", []string{"Mon 2 Mar 10:00 X"}},
		"second Tuesday":            {"DTSTART:20260113T090000Z RRULE:FREQ=MONTHLY;BYDAY=1TU SUMMARY:X", []string{"Tue 3 Mar 09:00 X"}},
		"first workday":             {"DTSTART:20260101T090000Z RRULE:FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=1 SUMMARY:X", []string{"Mon 2 Mar 09:00 X"}},
		"every other week":          {"DTSTART:20260223T090000Z RRULE:FREQ=WEEKLY;INTERVAL=2 SUMMARY:X", nil},
		"every other week, Sunday":  {"DTSTART:20260222T090000Z RRULE:FREQ=WEEKLY;INTERVAL=2;BYDAY=SU,MO;WKST=SU SUMMARY:X", nil},
		"every other week, Monday":  {"DTSTART:20260222T090000Z RRULE:FREQ=WEEKLY;INTERVAL=2;BYDAY=SU,MO;WKST=MO SUMMARY:X", []string{"Mon 2 Mar 09:00 X"}},
		"empty rule":                {"DTSTART:20260302T090000Z RRULE: SUMMARY:X", []string{"Mon 2 Mar 09:00 X"}},
		"rule with spaces":          {"DTSTART:20260225T090000Z RRULE:FREQ=WEEKLY;BYDAY=MO,\tTU SUMMARY:X", []string{"Mon 2 Mar 09:00 X", "Tue 3 Mar 09:00 X"}},
		"EXDATE list":               {"DTSTART:20260228T090000Z RRULE:FREQ=DAILY EXDATE:20260301T090000Z,20260302T090000Z SUMMARY:X", []string{"Tue 3 Mar 09:00 X"}},
		"EXDATE, other zone":        {"DTSTART:20260228T090000Z RRULE:FREQ=DAILY EXDATE;TZID=Asia/Tokyo:20260302T180000 SUMMARY:X", []string{"Tue 3 Mar 09:00 X"}},
		"EXDATE, date":              {"DTSTART:20260228T090000Z RRULE:FREQ=DAILY EXDATE;VALUE=DATE:20260302 SUMMARY:X", []string{"Tue 3 Mar 09:00 X"}},
		"EXDATE, wrong time":        {"DTSTART:20260302T090000Z RRULE:FREQ=DAILY;COUNT=1 EXDATE:20260302T091500Z SUMMARY:X", []string{"Mon 2 Mar 09:00 X"}},
		"EXDATE, zone of the start": {"DTSTART;TZID=Asia/Tokyo:20260228T180000 RRULE:FREQ=DAILY EXDATE:20260302T180000 SUMMARY:X", []string{"Tue 3 Mar 09:00 X"}},
		"EXDATE of days":            {"DTSTART;VALUE=DATE:20260228 RRULE:FREQ=DAILY;COUNT=3 EXDATE:20260302T000000 SUMMARY:X", nil},
		"EXRULE":                    {"DTSTART:20260228T090000Z RRULE:FREQ=DAILY EXRULE:FREQ=DAILY;INTERVAL=2 SUMMARY:X", []string{"Tue 3 Mar 09:00 X"}},
		"RDATE":                     {"DTSTART:20260201T090000Z RDATE:20260302T090000Z,20260303T110000Z SUMMARY:X", []string{"Mon 2 Mar 09:00 X", "Tue 3 Mar 11:00 X"}},
		"RDATE within the rule":     {"DTSTART:20260301T090000Z RRULE:FREQ=DAILY;COUNT=2 RDATE:20260302T090000Z SUMMARY:X", []string{"Mon 2 Mar 09:00 X"}},
		"RDATE, period":             {"DTSTART:20260201T090000Z DURATION:PT5M RDATE;VALUE=PERIOD:20260302T090000Z/PT2H,20260303T110000Z/20260303T113000Z SUMMARY:X", []string{"Mon 2 Mar 09:00–11:00 X", "Tue 3 Mar 11:00–11:30 X"}},
		"two rules":                 {"DTSTART:20260201T090000Z RRULE:FREQ=WEEKLY;BYDAY=MO RRULE:FREQ=WEEKLY;BYDAY=TU SUMMARY:X", []string{"Mon 2 Mar 09:00 X", "Tue 3 Mar 09:00 X"}},
		"start beside the rule":     {"DTSTART:20260302T090000Z RRULE:FREQ=WEEKLY;BYDAY=WE SUMMARY:X", []string{"Mon 2 Mar 09:00 X"}},
		"30 February":               {"DTSTART:20260130T090000Z RRULE:FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30 SUMMARY:X", nil},
		"hour that never comes":     {"DTSTART:19700101T000000Z RRULE:FREQ=HOURLY;INTERVAL=24;BYHOUR=5 SUMMARY:X", nil},
		"second that never comes":   {"DTSTART:19700101T000000Z RRULE:FREQ=SECONDLY;INTERVAL=86400;BYSECOND=30 SUMMARY:X", nil},
		"third hours from 1970":     {"DTSTART:19700101T000000Z RRULE:FREQ=HOURLY;INTERVAL=3;BYHOUR=9,10 SUMMARY:X", []string{"Mon 2 Mar 09:00 X", "Tue 3 Mar 09:00 X"}},
		"tentative":                 {"DTSTART:20260302T090000Z STATUS:TENTATIVE SUMMARY:X", []string{"Mon 2 Mar 09:00 X (tentative)"}},
		"attendees":                 {"DTSTART:20260302T090000Z ATTENDEE:mailto:a@example.org ATTENDEE:mailto:b@example.org ORGANIZER;CN=Anna:mailto:a@example.org SUMMARY:X", []string{"Mon 2 Mar 09:00 X · Anna, 2 attendees"}},
		"alarm inside":              {"DTSTART:20260302T090000Z BEGIN:VALARM DESCRIPTION:No DTSTART:20200101T000000Z END:VALARM SUMMARY:X", []string{"Mon 2 Mar 09:00 X"}},
		"Windows-1252":              {"DTSTART:20260302T090000Z SUMMARY:Caf\xe9", []string{"Mon 2 Mar 09:00 Café"}},
		"broken UTF-8":              {"DTSTART:20260302T090000Z SUMMARY:Caf\xc3\xa9\xff", []string{"Mon 2 Mar 09:00 Café\uFFFD"}},
		"markup":                    {"DTSTART:20260302T090000Z SUMMARY:X DESCRIPTION:<p>A&nbsp;b</p><i", []string{"Mon 2 Mar 09:00 X · A b"}},
	} {
		t.Run(name, func(t *testing.T) {
			reply := ask(t, tree(map[string]string{"a.ics": ics(c.body)}), tuesday())
			if got := listed(reply); strings.Join(got, "\n") != strings.Join(c.want, "\n") {
				t.Errorf("listed %q, want %q", got, c.want)
			}
			if len(c.want) == 0 && reply != "" {
				t.Errorf("reply %q, want nothing", reply)
			}
		})
	}
}

// listed returns the lines of a reply that are events.
func listed(reply string) []string {
	var lines []string
	for line := range strings.Lines(reply) {
		if text, ok := strings.CutPrefix(line, "- "); ok {
			lines = append(lines, strings.TrimSpace(text))
		}
	}
	return lines
}

// TestVersions has several versions of one event, in one file or in two.
func TestVersions(t *testing.T) {
	const series = "UID:s DTSTART:20260225T090000Z DURATION:PT1H RRULE:FREQ=DAILY SUMMARY:Series"
	for name, c := range map[string]struct {
		first, second string
		want          []string
	}{
		"exported twice":          {series, series, []string{"Mon 2 Mar 09:00–10:00 Series", "Tue 3 Mar 09:00–10:00 Series"}},
		"counted UIDs":            {"UID:1 DTSTART:20260302T090000Z SUMMARY:X", "UID:1 DTSTART:20260302T110000Z SUMMARY:Y", []string{"Mon 2 Mar 09:00 X", "Mon 2 Mar 11:00 Y"}},
		"other UID, same looks":   {"UID:1 DTSTART:20260302T090000Z SUMMARY:X", "UID:2 DTSTART:20260302T090000Z SUMMARY:X", []string{"Mon 2 Mar 09:00 X"}},
		"newer sequence":          {"UID:1 SEQUENCE:2 DTSTART:20260302T100000Z SUMMARY:New", "UID:1 SEQUENCE:1 DTSTART:20260302T090000Z SUMMARY:Old", []string{"Mon 2 Mar 10:00 New"}},
		"moved out of the window": {"UID:1 SEQUENCE:0 DTSTART:20260302T100000Z SUMMARY:Old", "UID:1 SEQUENCE:1 DTSTART:20260402T090000Z SUMMARY:New", nil},
		"later modified":          {"UID:1 LAST-MODIFIED:20260101T000000Z DTSTART:20260302T090000Z SUMMARY:Old", "UID:1 LAST-MODIFIED:20260102T000000Z DTSTART:20260302T100000Z SUMMARY:New", []string{"Mon 2 Mar 10:00 New"}},
		"moved":                   {series, "UID:s RECURRENCE-ID:20260302T090000Z DTSTART:20260303T140000Z SUMMARY:Moved", []string{"Tue 3 Mar 09:00–10:00 Series", "Tue 3 Mar 14:00 Moved (moved from Mon 2 Mar 09:00)"}},
		"override first":          {"UID:s RECURRENCE-ID:20260302T090000Z DTSTART:20260302T093000Z SUMMARY:Moved", series, []string{"Mon 2 Mar 09:30 Moved (moved from Mon 2 Mar 09:00)", "Tue 3 Mar 09:00–10:00 Series"}},
		"id in another zone":      {series, "UID:s RECURRENCE-ID;TZID=Asia/Tokyo:20260302T180000 DTSTART:20260302T090000Z SUMMARY:Renamed", []string{"Mon 2 Mar 09:00 Renamed", "Tue 3 Mar 09:00–10:00 Series"}},
		"id is a date":            {series, "UID:s RECURRENCE-ID;VALUE=DATE:20260302 DTSTART:20260302T120000Z SUMMARY:Noon", []string{"Mon 2 Mar 12:00 Noon", "Tue 3 Mar 09:00–10:00 Series"}},
		"into the window":         {series, "UID:s RECURRENCE-ID:20260601T090000Z DTSTART:20260302T120000Z SUMMARY:Brought forward", []string{"Mon 2 Mar 09:00–10:00 Series", "Mon 2 Mar 12:00 Brought forward (moved from Mon 1 Jun 09:00)", "Tue 3 Mar 09:00–10:00 Series"}},
		"instance cancelled":      {series, "UID:s RECURRENCE-ID:20260303T090000Z DTSTART:20260303T090000Z STATUS:CANCELLED SUMMARY:Off", []string{"Mon 2 Mar 09:00–10:00 Series", "Tue 3 Mar 09:00 Off"}},
		"newer override":          {"UID:s SEQUENCE:1 RECURRENCE-ID:20260302T090000Z DTSTART:20260302T120000Z SUMMARY:One", "UID:s SEQUENCE:2 RECURRENCE-ID:20260302T090000Z DTSTART:20260302T130000Z SUMMARY:Two", []string{"Mon 2 Mar 13:00 Two (moved from Mon 2 Mar 09:00)"}},
		"without its series":      {"UID:1 DTSTART:20200101T000000Z SUMMARY:Other", "UID:s RECURRENCE-ID:20260302T090000Z DTSTART:20260302T090000Z SUMMARY:Alone", []string{"Mon 2 Mar 09:00 Alone"}},
		"excluded instance":       {series + " EXDATE:20260302T090000Z", "UID:s RECURRENCE-ID:20260302T090000Z DTSTART:20260302T120000Z SUMMARY:Gone", []string{"Tue 3 Mar 09:00–10:00 Series"}},
		"this and future":         {series, "UID:s RECURRENCE-ID;RANGE=THISANDFUTURE:20260301T090000Z DTSTART:20260301T113000Z DURATION:PT30M SUMMARY:Late", []string{"Mon 2 Mar 11:30–12:00 Late", "Tue 3 Mar 11:30–12:00 Late"}},
	} {
		t.Run(name, func(t *testing.T) {
			two := tree(map[string]string{"a.ics": ics(c.first), "b.ics": ics(c.second)})
			one := tree(map[string]string{"a.ics": ics(c.first, c.second)})
			for kind, fsys := range map[string]fs.FS{"two files": two, "one file": one} {
				if kind == "one file" && name == "later modified" {
					// In one file that is two events, each with its own time.
					continue
				}
				if got := listed(ask(t, fsys, tuesday())); strings.Join(got, "\n") != strings.Join(c.want, "\n") {
					t.Errorf("%s: listed %q, want %q", kind, got, c.want)
				}
			}
		})
	}
}

// Wall time stays the same over a change of the clocks, in the database's zones
// and in those that a file defines.
func TestDaylightSaving(t *testing.T) {
	const own = "BEGIN:VTIMEZONE\nTZID:Office\n" +
		"BEGIN:STANDARD\nDTSTART:19701025T030000\nTZOFFSETFROM:+0200\nTZOFFSETTO:+0100\nRRULE:FREQ=YEARLY;BYMONTH=10;BYDAY=-1SU\nEND:STANDARD\n" +
		"BEGIN:DAYLIGHT\nDTSTART:19700329T020000\nTZOFFSETFROM:+0100\nTZOFFSETTO:+0200\nRRULE:FREQ=YEARLY;BYMONTH=3;BYDAY=-1SU\nEND:DAYLIGHT\nEND:VTIMEZONE\n"
	for _, zone := range []string{"Europe/Berlin", "W. Europe Standard Time", "Office"} {
		for start, want := range map[string][]string{
			"20260327T090000": {"Sat 28 Mar 08:00–09:00", "Sun 29 Mar 07:00–08:00"},
			// 02:30 does not exist on 29 March: it counts with the offset before.
			"20260327T023000": {"Sat 28 Mar 01:30–02:30", "Sun 29 Mar 01:30–02:30"},
			// A night shift ends when the clock says so.
			"20260327T230000": {"Fri 27 Mar 22:00–23:00", "Sat 28 Mar 22:00–23:00"},
		} {
			file := strings.Replace(ics("DTSTART;TZID=ZONE:"+start+" DURATION:PT1H RRULE:FREQ=DAILY"), "BEGIN:VEVENT", own+"BEGIN:VEVENT", 1)
			file = strings.ReplaceAll(file, "ZONE:", zone+":")
			file = strings.ReplaceAll(file, "BEGIN:VTIME"+zone+":", "BEGIN:VTIMEZONE:")
			q := tuesday()
			q.Now = time.Date(2026, time.March, 28, 12, 0, 0, 0, time.UTC)
			q.From, q.To = q.Now.Add(-15*time.Hour), q.Now
			got := listed(ask(t, tree(map[string]string{"a.ics": file}), q))
			for i := range got {
				got[i] = strings.TrimSuffix(got[i], " (no title)")
			}
			if strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("%s %s: %q, want %q", zone, start, got, want)
			}
		}
	}
}

// The more room, the more is listed; what is listed is always more important
// than what is not, and the host never has to cut.
func TestBudget(t *testing.T) {
	bodies := []string{
		"UID:key DTSTART:20260303T100000Z DTEND:20260303T110000Z SUMMARY:Board LOCATION:Hall PRIORITY:1 ATTENDEE:mailto:a@example.org ATTENDEE:mailto:b@example.org",
	}
	for i := range 60 {
		bodies = append(bodies, fmt.Sprintf("UID:p%d DTSTART:20260302T%02d%02d00Z SUMMARY:Past%d DESCRIPTION:Words_about_it", i, 8+i/10, i%10, i))
		bodies = append(bodies, fmt.Sprintf("UID:d%d DTSTART;VALUE=DATE:20260304 SUMMARY:Day%d DESCRIPTION:字字字字字字字字字字字字", i, i))
	}
	fsys := tree(map[string]string{"a.ics": ics(bodies...), "b.ics": "no calendar"})
	q := tuesday()
	before := -1
	for _, budget := range []int{1, 5, 10, 20, 40, 80, 160, 320, 640, 1_280, 2_560, 5_120, 10_240} {
		q.MaxOutputTokens = budget
		reply := ask(t, fsys, q)
		if cost := tokens.Estimate(reply); cost > budget {
			t.Errorf("budget %d: reply of %d tokens", budget, cost)
		}
		lines := listed(reply)
		if len(lines) < before {
			t.Errorf("budget %d lists %d events, a smaller one %d", budget, len(lines), before)
		}
		before = len(lines)
		if len(lines) > 0 && budget >= 80 && !strings.Contains(reply, "Board") {
			t.Errorf("budget %d: the most important event is not among the %d listed", budget, len(lines))
		}
		if len(lines) < len(bodies) && budget >= 80 && !strings.Contains(reply, "more\n") {
			t.Errorf("budget %d: %d of %d events, and no word about the others:\n%s", budget, len(lines), len(bodies), reply)
		}
	}
	if before != len(bodies) {
		t.Errorf("%d of %d events in the greatest budget", before, len(bodies))
	}
	q.MaxOutputTokens = 0
	if cost := tokens.Estimate(ask(t, fsys, q)); cost > compose.DefaultTokens || cost < compose.DefaultTokens*9/10 {
		t.Errorf("no budget: %d tokens, want nearly %d", cost, compose.DefaultTokens)
	}
}

func TestNothingToRead(t *testing.T) {
	ctx := t.Context()
	if _, err := answer(files.WithRoot(ctx, rootName, fstest.MapFS{}), tuesday()); !errors.Is(err, errNoFiles) {
		t.Errorf("empty folder: %v, want %v", err, errNoFiles)
	}
	if _, err := answer(files.WithRoot(ctx, rootName, tree(map[string]string{"notes.txt": "x", ".hidden.ics": "x"})), tuesday()); !errors.Is(err, errNoFiles) {
		t.Errorf("folder without calendars: %v, want %v", err, errNoFiles)
	}
	if _, err := answer(files.WithRoot(ctx, rootName, refusing{}), tuesday()); !errors.Is(err, errNotGranted) {
		t.Errorf("not granted: %v, want %v", err, errNotGranted)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := answer(files.WithRoot(cancelled, rootName, tree(map[string]string{"a.ics": ics()})), tuesday()); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if reply := ask(t, tree(map[string]string{"a.ics": ics()}), tuesday()); reply != "" {
		t.Errorf("empty calendar: %q", reply)
	}
}

type refusing struct{}

func (refusing) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
}

// What is hostile is bounded, named, and does not cost the rest.
func TestHostile(t *testing.T) {
	good := ics("UID:good DTSTART:20250303T090000Z RRULE:FREQ=YEARLY;BYDAY=TU;BYMONTH=3 SUMMARY:Good")
	for name, c := range map[string]struct{ file, want string }{
		"huge":             {strings.Repeat("X", maxFileBytes+1), "larger than 16 MiB"},
		"nested":           {"BEGIN:VCALENDAR\n" + strings.Repeat("BEGIN:VEVENT\nBEGIN:X\n", 50_000), "ends inside an event"},
		"long parameter":   {ics("SUMMARY;X=" + strings.Repeat("a", 1<<20) + ":Lost DTSTART:20260303T100000Z"), ""},
		"misleading":       {ics("SUMMARY;A:" + strings.Repeat("a", 60_000) + "=b DTSTART:20260303T100000Z"), ""},
		"parameter at end": {ics("DTSTART;TZID=x"), "event without a start"},
		"too big":          {ics("DTSTART:20260303T100000Z" + strings.Repeat(" EXDATE:"+strings.Repeat("20260303T100000Z,", 3_000), 10)), "larger than 256 KiB"},
		"every second":     {ics("DTSTART:19700101T000000Z RRULE:FREQ=SECONDLY SUMMARY:Tick"), "Tick repeats too often"},
		"zones":            {ics("DTSTART;TZID=" + strings.Repeat("../", 60) + "etc/passwd:20260303T100000"), "is unknown"},
		"NUL":              {"\x00\x01\x02", "no iCalendar data"},
		"UTF-16":           {"\xff\xfeB\x00E\x00", "UTF-16"},
		"many series":      {ics(slices.Repeat([]string{"RRULE:FREQ=SECONDLY;COUNT=999999999 DTSTART:19700101T000000Z"}, 500)...), "repeats too often"},
		"many rules":       {ics(strings.TrimSpace(strings.Repeat("RRULE:FREQ=SECONDLY;COUNT=999999999 ", 500)) + " DTSTART:19700101T000000Z"), "repeats too often"},
		"busy day":         {ics("DTSTART:20200101T000000Z RRULE:FREQ=YEARLY;BYHOUR=" + numbersTo(23) + ";BYMINUTE=" + numbersTo(59) + ";BYSECOND=" + numbersTo(59)), "too many times a day"},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			q := tuesday()
			q.MaxOutputTokens = 100_000
			reply := ask(t, tree(map[string]string{"bad.ics": c.file, "good.ics": good}), q)
			if !strings.Contains(reply, "09:00 Good") {
				t.Errorf("the good file is not used: %.300q", reply)
			}
			if !strings.Contains(reply, c.want) {
				t.Errorf("reply does not say %q: %.1000q", c.want, reply)
			}
			if !utf8.ValidString(reply) {
				t.Error("reply is not UTF-8")
			}
			// Generous: the bounds keep each case below a tenth of it.
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

func numbersTo(n int) string {
	var list []string
	for i := range n + 1 {
		list = append(list, fmt.Sprint(i))
	}
	return strings.Join(list, ",")
}

// TestProblems names five files and counts the others.
func TestProblems(t *testing.T) {
	contents := make(map[string]string)
	for i := range 12 {
		contents[fmt.Sprintf("%02d.ics", i)] = "junk"
	}
	reply := ask(t, tree(contents), tuesday())
	if got := strings.Count(reply, "could not read: "); got != maxProblems || !strings.Contains(reply, "could not read 7 more files") {
		t.Errorf("%d files named:\n%s", got, reply)
	}
}

func BenchmarkAnswer(b *testing.B) {
	contents := make(map[string]string)
	for i := range 20 {
		var bodies []string
		for j := range 50 {
			bodies = append(bodies, fmt.Sprintf("UID:%d-%d DTSTART;TZID=Europe/Berlin:2025%02d%02dT%02d0000 DURATION:PT1H RRULE:FREQ=WEEKLY;BYDAY=MO,WE SUMMARY:Event%d DESCRIPTION:%s", i, j, j%12+1, j%28+1, j%24, j, strings.Repeat("text", 50)))
		}
		contents[fmt.Sprintf("%d.ics", i)] = ics(bodies...)
	}
	fsys := tree(contents)
	b.ReportAllocs()
	for b.Loop() {
		ask(b, fsys, tuesday())
	}
}
