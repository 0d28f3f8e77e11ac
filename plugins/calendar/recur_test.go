package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/teambition/rrule-go"
	"golang.org/x/tools/txtar"
	"pgregory.net/rapid"

	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/sdk/go/hand"
)

func instances(t interface{ Fatal(...any) }, value string, start, from, to time.Time) []time.Time {
	r, err := parseRule(value)
	if err != nil {
		t.Fatal(err)
	}
	var all []time.Time
	b := budget{steps: stepsPerQuery}
	never := func(time.Time) bool { return false }
	if err := r.each(start, from, to, &b, never, func(at time.Time) bool {
		all = append(all, at)
		return true
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// drawRule draws a rule that rrule-go can expand: it never returns from one
// whose hour or minute never comes.
func drawRule(t *rapid.T) string {
	some := func(label string, least, most int, avoid ...int) string {
		list := rapid.SliceOfNDistinct(rapid.IntRange(least, most).Filter(func(n int) bool { return n != 0 && !slices.Contains(avoid, n) }), 1, 3, rapid.ID).Draw(t, label)
		return strings.ReplaceAll(strings.Trim(fmt.Sprint(list), "[]"), " ", ",")
	}
	maybe := func(label string) bool { return rapid.IntRange(0, 2).Draw(t, label) == 0 }
	days := []string{"MO", "TU", "WE", "TH", "FR", "SA", "SU"}
	byDay := func(least, most int) string {
		drawn := rapid.SliceOfNDistinct(rapid.SampledFrom(days), 1, 3, rapid.ID[string]).Draw(t, "days")
		if most != 0 {
			for i := range drawn {
				n := rapid.IntRange(least, most).Filter(func(n int) bool { return n != 0 }).Draw(t, "nth")
				drawn[i] = fmt.Sprint(n) + drawn[i]
			}
		}
		return ";BYDAY=" + strings.Join(drawn, ",")
	}
	freq := rapid.SampledFrom([]string{"YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY"}).Draw(t, "freq")
	rule := "FREQ=" + freq
	// Prime to 24 and to 60.
	rule += ";INTERVAL=" + fmt.Sprint(rapid.SampledFrom([]int{1, 7, 11}).Draw(t, "interval"))
	if maybe("month") {
		rule += ";BYMONTH=" + some("months", 1, 12)
	}
	positions := false
	switch freq {
	case "YEARLY":
		switch rapid.IntRange(0, 4).Draw(t, "yearly") {
		case 0:
			rule += ";BYMONTHDAY=" + some("monthdays", -28, 28)
			positions = true
		case 1:
			if !strings.Contains(rule, "BYMONTH") {
				rule += ";BYYEARDAY=" + some("yeardays", -366, 366)
			}
		case 2:
			if !strings.Contains(rule, "BYMONTH") {
				// Where the years meet programs disagree; TestWeeks has those.
				rule += ";BYWEEKNO=" + some("weeks", -51, 52, -1, 1) + byDay(0, 0)
			}
		case 3:
			rule += byDay(-4, 4)
			positions = true
		}
	case "MONTHLY":
		switch rapid.IntRange(0, 3).Draw(t, "monthly") {
		case 0:
			rule += ";BYMONTHDAY=" + some("monthdays", -28, 28)
			positions = true
		case 1:
			rule += byDay(-4, 4)
			positions = true
		case 2:
			rule += byDay(0, 0)
			positions = true
		}
	default:
		if maybe("weekdays") {
			rule += byDay(0, 0)
		}
	}
	switch {
	case freq == "MINUTELY":
		if maybe("byminute") {
			rule += ";BYMINUTE=" + some("minutes", 1, 59)
		}
	case freq == "HOURLY":
		if maybe("byhour") {
			rule += ";BYHOUR=" + some("hours", 1, 23)
		}
		if maybe("byminute") {
			rule += ";BYMINUTE=" + some("minutes", 1, 59)
		}
	default:
		if maybe("byhour") {
			rule += ";BYHOUR=" + some("hours", 1, 23)
		}
	}
	if positions && maybe("setpos") {
		rule += ";BYSETPOS=" + some("positions", -4, 4)
	}
	if maybe("wkst") {
		rule += ";WKST=" + rapid.SampledFrom(days).Draw(t, "weekstart")
	}
	if maybe("count") {
		rule += ";COUNT=" + fmt.Sprint(rapid.IntRange(1, 300).Draw(t, "n"))
	}
	return rule
}

// The expansion agrees with rrule-go, an independent one, wherever the window
// lies.
func TestExpansionAgainstRRuleGo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := drawRule(t)
		option, err := rrule.StrToROption(value)
		if err != nil {
			t.Fatal(err)
		}
		option.Dtstart = time.Unix(rapid.Int64Range(0, 2_000_000_000).Draw(t, "start")/60*60, 0).UTC()
		oracle, err := rrule.NewRRule(*option)
		if err != nil {
			t.Fatal(err)
		}
		// RFC 5545 wants a start that the rule matches.
		start := oracle.After(option.Dtstart, true)
		if start.IsZero() || start.Year() > 2200 {
			t.Skip("matches nothing")
		}
		oracle.DTStart(start)
		from := start.Add(time.Duration(rapid.IntRange(0, 400).Draw(t, "offset")) * 24 * time.Hour)
		to := from.Add(time.Duration(rapid.IntRange(1, 30).Draw(t, "days")) * 24 * time.Hour)
		var want []time.Time
		for next := oracle.Iterator(); ; {
			at, ok := next()
			if !ok || at.After(to) {
				break
			}
			if !at.Before(from) {
				want = append(want, at)
			}
		}
		got := instances(t, value, start, from, to)
		if !slices.EqualFunc(got, want, time.Time.Equal) {
			t.Fatalf("%s from %v in %v – %v:\n got %v\nwant %v", value, start, from, to, got, want)
		}
	})
}

// A window shows of a series what a greater one shows in it.
func TestWindowsAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := drawRule(t)
		start := time.Unix(rapid.Int64Range(0, 2_000_000_000).Draw(t, "start"), 0).UTC()
		end := start.AddDate(0, 0, 30)
		from := start.Add(time.Duration(rapid.IntRange(0, 30*24).Draw(t, "from")) * time.Hour)
		to := from.Add(time.Duration(rapid.IntRange(0, 24*20).Draw(t, "hours")) * time.Hour)
		if to.After(end) {
			to = end
		}
		var want []time.Time
		for _, at := range instances(t, value, start, start, end) {
			if !at.Before(from) && !at.After(to) {
				want = append(want, at)
			}
		}
		if got := instances(t, value, start, from, to); !slices.EqualFunc(got, want, time.Time.Equal) {
			t.Fatalf("%s from %v: in %v – %v got %v, want %v", value, start, from, to, got, want)
		}
	})
}

// Weeks belong to the year that most of their days lie in, ISO 8601.
func TestWeeks(t *testing.T) {
	start := time.Date(2015, time.January, 1, 9, 0, 0, 0, time.UTC)
	for value, want := range map[string]string{
		"FREQ=YEARLY;BYWEEKNO=53":            "2015-01-01 2015-12-31 2020-12-31",
		"FREQ=YEARLY;BYWEEKNO=1;BYDAY=MO":    "2015-01-01 2016-01-04 2017-01-02 2018-01-01 2018-12-31 2019-12-30",
		"FREQ=YEARLY;BYWEEKNO=-1;BYDAY=SU":   "2015-01-01 2016-01-03 2017-01-01 2017-12-31 2018-12-30 2019-12-29",
		"FREQ=YEARLY;BYWEEKNO=20;BYDAY=WE":   "2015-01-01 2015-05-13 2016-05-18 2017-05-17 2018-05-16 2019-05-15 2020-05-13",
		"FREQ=YEARLY;BYDAY=-1FR":             "2015-01-01 2015-12-25 2016-12-30 2017-12-29 2018-12-28 2019-12-27 2020-12-25",
		"FREQ=YEARLY;BYDAY=MO,1TU;BYMONTH=2": "2015-01-01 2015-02-02 2015-02-03 2015-02-09 2015-02-16 2015-02-23 2016-02-01",
	} {
		end := start.AddDate(6, 0, -1)
		if strings.Contains(value, "MO,1TU") {
			end = time.Date(2016, time.February, 1, 12, 0, 0, 0, time.UTC)
		}
		var got []string
		for _, at := range instances(t, value, start, start, end) {
			got = append(got, at.Format(time.DateOnly))
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%s: %s, want %s", value, text, want)
		}
	}
}

// FuzzAnswer asks about one file of any content. Whatever it is, the reply is
// UTF-8 within the budget, of known lines only, and the same again.
func FuzzAnswer(f *testing.F) {
	names, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(names) == 0 {
		f.Fatalf("no archives: %v", err)
	}
	for _, name := range names {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			f.Fatal(err)
		}
		fsys, _ := archived(f, archive.Files)
		for _, file := range fsys {
			f.Add(string(file.Data))
		}
	}
	f.Add(ics("DTSTART;TZID=Asia/Tokyo:20260228T190000 RRULE:FREQ=YEARLY;BYWEEKNO=-1;BYSETPOS=-1;BYDAY=MO,2TU EXDATE:20260302T100000Z"))
	f.Fuzz(func(t *testing.T, data string) {
		q := hand.Query{
			From: time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC), To: time.Date(2026, 3, 9, 0, 0, 0, 0, time.UTC),
			Now: time.Date(2026, 3, 9, 0, 0, 0, 0, time.UTC), Location: time.FixedZone("X", -3600), MaxOutputTokens: 400,
		}
		fsys := tree(map[string]string{"a.ics": data})
		reply := ask(t, fsys, q)
		if !utf8.ValidString(reply) || tokens.Estimate(reply) > q.MaxOutputTokens {
			t.Fatalf("%d tokens: %q", tokens.Estimate(reply), reply)
		}
		for line := range strings.Lines(reply) {
			if line = strings.TrimSuffix(line, "\n"); !slices.ContainsFunc([]string{"- ", "Calendar 2026", "Happened between", "Next 24 hours", "Window:", "Cancelled:", "… and ", "could not read", "note: "}, func(begin string) bool {
				return strings.HasPrefix(line, begin)
			}) && line != "" {
				t.Fatalf("line %q in %q", line, reply)
			}
		}
		if again := ask(t, fsys, q); again != reply {
			t.Fatalf("%q, then %q", reply, again)
		}
	})
}
