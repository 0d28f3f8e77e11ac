package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/emersion/go-ical"
)

// stamp is a date, or a date and time, as it is written in a file.
type stamp struct {
	wall time.Time // what is written, carried as UTC
	date bool      // a date without a time
	utc  bool
	tzid string // the zone's name in the file, if any
	zone *zone  // where wall counts: not nil once the stamp is resolved, unless date
}

// instant returns the moment of s; a date begins at midnight in viewer.
func (s stamp) instant(viewer *zone) time.Time {
	switch {
	case s.utc:
		return s.wall
	case s.zone == nil:
		return viewer.instant(s.wall)
	}
	return s.zone.instant(s.wall)
}

// day counts the day of s as it is written.
func (s stamp) day() int64 { return floorDiv(s.wall.Unix(), secondsPerDay) }

func (s stamp) midnight() bool { return s.wall.Unix()%secondsPerDay == 0 }

// at returns s with another time on the wall.
func (s stamp) at(wall time.Time) stamp {
	s.wall = wall
	return s
}

// floating tells whether s names neither UTC nor a zone.
func (s stamp) floating() bool { return !s.utc && !s.date && s.tzid == "" }

var errTime = errors.New("no date or time")

// parseStamp reads YYYYMMDD, YYYYMMDDTHHMM or YYYYMMDDTHHMMSS, with or without
// Z, and the same with the separators of ISO 8601.
func parseStamp(value string) (stamp, error) {
	compact := strings.TrimSpace(value)
	if len(compact) > 32 {
		return stamp{}, fmt.Errorf("%.20q…: %w", compact, errTime)
	}
	if strings.ContainsAny(compact, "-:tz") {
		compact = strings.NewReplacer("-", "", ":", "", "t", "T", "z", "Z").Replace(compact)
	}
	clock, utc := strings.CutSuffix(compact, "Z")
	isDate := len(clock) == 8
	ok := isDate || (len(clock) == 13 || len(clock) == 15) && clock[8] == 'T'
	// By hand: time.Parse would be a good part of what an event costs.
	number := func(from, to int) (n int) {
		if len(clock) < to {
			return 0
		}
		for _, c := range []byte(clock[from:to]) {
			if c < '0' || c > '9' {
				ok = false
			}
			n = n*10 + int(c-'0')
		}
		return n
	}
	year, month, day := number(0, 4), number(4, 6), number(6, 8)
	hour, minute, second := number(9, 11), number(11, 13), number(13, 15)
	if !ok || year < 1 || month < 1 || month > 12 || day < 1 || hour > 23 || minute > 59 || second > 60 {
		return stamp{}, fmt.Errorf("%.20q: %w", value, errTime)
	}
	// A leap second, which no clock here shows.
	second = min(second, 59)
	t := time.Date(year, time.Month(month), day, hour, minute, second, 0, time.UTC)
	if t.Day() != day {
		return stamp{}, fmt.Errorf("%.20q: %w", value, errTime)
	}
	return stamp{wall: t, date: isDate, utc: utc && !isDate}, nil
}

// zone turns wall time into moments. It is not safe for concurrent use.
type zone struct {
	location *time.Location
	// Without a location: what a VTIMEZONE says. before holds until the first
	// change. Sorted by time.
	before  int
	changes []change
	// What location said last: the offset that holds in [since, till).
	since, till int64
	last        int
}

// change is a new offset from UTC, in seconds, from a moment on.
type change struct {
	at     int64
	offset int
}

func (z *zone) offset(at int64) int {
	if z.location != nil {
		if at < z.since || at >= z.till {
			t := time.Unix(at, 0).In(z.location)
			since, till := t.ZoneBounds()
			z.since, z.till = math.MinInt64, math.MaxInt64
			if !since.IsZero() {
				z.since = since.Unix()
			}
			if !till.IsZero() {
				z.till = till.Unix()
			}
			_, z.last = t.Zone()
		}
		return z.last
	}
	i, found := slices.BinarySearchFunc(z.changes, at, func(c change, at int64) int { return cmp.Compare(c.at, at) })
	if found {
		return z.changes[i].offset
	} else if i > 0 {
		return z.changes[i-1].offset
	}
	return z.before
}

// instant returns the moment when clocks in z show wall. As RFC 5545 wants it, a
// time that comes twice is the first one, and a time that is skipped counts
// with the offset before the gap, which time.Date does not promise.
func (z *zone) instant(wall time.Time) time.Time {
	seconds := wall.Unix()
	// Changes lie further than two days apart.
	before, after := z.offset(seconds-secondsPerDay), z.offset(seconds+secondsPerDay)
	at := seconds - int64(before)
	if before != after && z.offset(at) != before {
		if later := seconds - int64(after); z.offset(later) == after {
			at = later
		}
	}
	return time.Unix(at, 0).UTC()
}

// wall returns what clocks in z show at t.
func (z *zone) wall(t time.Time) time.Time {
	return t.UTC().Add(time.Duration(z.offset(t.Unix())) * time.Second)
}

// utc is the zone of times written in UTC: one without any change.
var utc = new(zone)

// zones finds zones by the names that files use. It belongs to one query.
type zones struct {
	viewer *zone // where dates and floating times count
	named  map[string]*zone
}

// maxZoneNames bounds the look-ups, each of which searches the database.
const maxZoneNames = 2_000

func newZones(viewer *time.Location) *zones {
	zs := &zones{viewer: &zone{location: viewer}, named: make(map[string]*zone)}
	// Mostly it is the one that files name, and each look-up costs much. "Local"
	// is no name of a zone.
	if name := viewer.String(); name != "Local" {
		zs.named[name] = zs.viewer
	}
	return zs
}

// known returns the zone that the database has under the name, or nil. It may
// be an IANA name, one of Windows, or have a prefix as in
// "/mozilla.org/20050126_1/Europe/Berlin".
func (zs *zones) known(tzid string) *zone {
	if z, ok := zs.named[tzid]; ok {
		return z
	}
	if len(zs.named) >= maxZoneNames || len(tzid) > 200 {
		return nil
	}
	z := lookUp(tzid)
	zs.named[tzid] = z
	return z
}

func lookUp(tzid string) *zone {
	name := strings.Trim(strings.TrimSpace(tzid), `"`)
	if iana := windowsZone(name); iana != "" {
		name = iana
	}
	candidates := []string{name}
	if parts := strings.Split(name, "/"); parts[0] == "" && len(parts) > 2 {
		for n := min(3, len(parts)-1); n > 0; n-- {
			candidates = append(candidates, strings.Join(parts[len(parts)-n:], "/"))
		}
	}
	for _, candidate := range candidates {
		switch candidate {
		case "", "Local":
			// Names that the time package gives a meaning of its own.
			continue
		case "Z":
			candidate = "UTC"
		}
		if location, err := time.LoadLocation(candidate); err == nil {
			return &zone{location: location}
		}
	}
	return nil
}

// A vtimezone is a zone that a file defines itself.
type vtimezone struct {
	observances []observance
	zone        *zone // built on first use
}

// observance is one STANDARD or DAYLIGHT part of a VTIMEZONE.
type observance struct {
	start    time.Time // wall time with the offset from
	from, to int       // seconds east of UTC
	rules    []*rule
	dates    []stamp
}

const (
	maxObservances = 500
	maxChanges     = 2_000
)

var errZone = errors.New("no usable STANDARD or DAYLIGHT part")

func parseZone(c *ical.Component) (tzid string, z *vtimezone, err error) {
	z = new(vtimezone)
	if p := c.Props.Get("TZID"); p != nil {
		tzid = p.Value
	}
	for _, part := range c.Children {
		if part.Name != "STANDARD" && part.Name != "DAYLIGHT" || len(z.observances) == maxObservances {
			continue
		}
		var o observance
		start, err := parseStamp(first(part.Props, "DTSTART"))
		if err != nil {
			continue
		}
		o.start = start.wall
		var ok1, ok2 bool
		o.from, ok1 = parseOffset(first(part.Props, "TZOFFSETFROM"))
		o.to, ok2 = parseOffset(first(part.Props, "TZOFFSETTO"))
		if !ok2 {
			continue
		} else if !ok1 {
			o.from = o.to
		}
		for _, p := range part.Props["RRULE"] {
			if r, err := parseRule(p.Value); err == nil {
				o.rules = append(o.rules, r)
			}
		}
		for _, p := range part.Props["RDATE"] {
			for value := range strings.SplitSeq(p.Value, ",") {
				if s, err := parseStamp(value); err == nil && len(o.dates) < maxChanges {
					o.dates = append(o.dates, s)
				}
			}
		}
		z.observances = append(z.observances, o)
	}
	if tzid == "" || len(z.observances) == 0 {
		return tzid, nil, errZone
	}
	return tzid, z, nil
}

// parseOffset reads "+0100" or "-023015" as seconds.
func parseOffset(value string) (seconds int, ok bool) {
	value = strings.ReplaceAll(strings.TrimSpace(value), ":", "")
	if len(value) != 5 && len(value) != 7 || value[0] != '+' && value[0] != '-' {
		return 0, false
	}
	n, err := strconv.ParseUint(value[1:], 10, 32)
	if err != nil {
		return 0, false
	}
	if len(value) == 5 {
		n *= 100
	}
	seconds = int(n/10_000*secondsPerHour + n/100%100*secondsPerMinute + n%100)
	if seconds >= secondsPerDay {
		return 0, false
	}
	if value[0] == '-' {
		seconds = -seconds
	}
	return seconds, true
}

// build works out when the offset changes, from 1970 to the year after until.
func (v *vtimezone) build(until time.Time, b *budget) *zone {
	if v.zone != nil {
		return v.zone
	}
	z := new(zone)
	earliest := slices.MinFunc(v.observances, func(a, b observance) int { return a.start.Compare(b.start) })
	z.before = earliest.from
	epoch, last := time.Unix(0, 0).UTC(), until.AddDate(1, 0, 0)
	for _, o := range v.observances {
		add := func(wall time.Time) bool {
			z.changes = append(z.changes, change{wall.Unix() - int64(o.from), o.to})
			return len(z.changes) < maxChanges
		}
		add(o.start)
		for _, s := range o.dates {
			if s.utc {
				s.wall = s.wall.Add(time.Duration(o.from) * time.Second)
			}
			add(s.wall)
		}
		for _, r := range o.rules {
			ended := func(wall time.Time) bool {
				return r.until != nil && behind(wall, wall.Add(-time.Duration(o.from)*time.Second), *r.until)
			}
			// A zone that changes more often than it can be followed is no zone.
			_ = r.each(o.start, epoch, last, b, ended, add)
		}
	}
	slices.SortStableFunc(z.changes, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	v.zone = z
	return z
}

// behind tells whether an instance lies behind the UNTIL of its series.
func behind(wall, instant time.Time, until stamp) bool {
	switch {
	case until.date:
		// A date includes the whole day.
		return floorDiv(wall.Unix(), secondsPerDay) > until.day()
	case until.utc:
		return instant.After(until.wall)
	}
	return wall.After(until.wall)
}

func first(props ical.Props, name string) string {
	if p := props.Get(name); p != nil {
		return p.Value
	}
	return ""
}
