package main

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/gloveboxhq/glovebox/plugins/internal/compose"
)

// occurrence is one time that an event takes place, start ≤ t < end, or a moment
// if both are equal.
type occurrence struct {
	*event
	start, end time.Time
	allDay     bool
	// movedFrom is when the series would have had it, if that is another time.
	movedFrom time.Time
	recurring bool
}

// overlaps tells whether o lies in part within [from, to).
func (o *occurrence) overlaps(from, to time.Time) bool {
	if !o.end.After(o.start) {
		return !o.start.Before(from) && o.start.Before(to)
	}
	return o.start.Before(to) && o.end.After(from)
}

// maxInstances bounds what one series adds to a window.
const maxInstances = 1_000

// slack covers a change of offset, and with the double of it the distance of
// wall time from UTC.
const slack = 9 * time.Hour

// series are all the versions that were found of one UID.
type series struct {
	masters   []*event
	overrides []*event
}

// calendar is the merged content of all files.
type calendar struct {
	zones  *zones
	uids   []string // in the order found
	series map[string]*series
	budget budget
	// notes says what the reply lacks, without repetition.
	notes []string
}

func newCalendar(viewer *time.Location) *calendar {
	return &calendar{zones: newZones(viewer), series: make(map[string]*series), budget: budget{stepsPerQuery}}
}

const maxNotes = 20

func (c *calendar) note(text string) {
	if len(c.notes) < maxNotes && !slices.Contains(c.notes, text) {
		c.notes = append(c.notes, text)
	}
}

// add resolves the zones of one file and merges its events, of which it needs
// those that may take place in w.
func (c *calendar) add(d *document, file int, name string, w window) {
	for _, e := range d.events {
		e.file = file
		c.resolve(e, d, name, w.end())
		key := e.uid
		if key == "" {
			// Without a UID only the same event is the same.
			key = "\x00" + e.summary + "\x00" + e.start.wall.String()
		}
		if single := len(e.rules)+len(e.rdates) == 0 && !e.andFuture; single && !mayOverlap(e.start, e.length, w.from, w.to) && !mayOverlap(e.start, e.length, w.next, w.end()) {
			// It only matters as a version of another one.
			e.summary, e.location, e.description, e.organizer = "", "", "", ""
		}
		s := c.series[key]
		if s == nil {
			s = new(series)
			c.series[key] = s
			c.uids = append(c.uids, key)
		}
		if e.recurrence == nil {
			s.masters = append(s.masters, e)
		} else {
			s.overrides = append(s.overrides, e)
		}
	}
}

// mayOverlap tells whether what begins at start, in whatever zone, may overlap
// [from, to).
func mayOverlap(start stamp, length span, from, to time.Time) bool {
	return !start.wall.After(to.Add(2*slack)) && !start.wall.Add(length.wall+length.exact).Before(from.Add(-2*slack))
}

func (c *calendar) resolve(e *event, d *document, name string, until time.Time) {
	zoneOf := func(tzid string) *zone {
		if tzid == "" {
			return nil
		}
		if z := c.zones.known(tzid); z != nil {
			return z
		}
		if v := d.zones[tzid]; v != nil {
			return v.build(until, &c.budget)
		}
		c.note("time zone " + compose.OneLine(tzid, 60) + " of " + name + " is unknown, taken as local time")
		return nil
	}
	floating := c.zones.viewer
	if z := c.zones.known(d.zone); d.zone != "" && z != nil {
		floating = z
	}
	own := floating // the zone of the event, which other floating dates of it mean
	if z := zoneOf(e.start.tzid); z != nil {
		own = z
	}
	set := func(s *stamp) {
		if s == nil || s.utc || s.date {
			return
		}
		if s.zone = own; s.tzid != "" && s.tzid != e.start.tzid {
			if s.zone = zoneOf(s.tzid); s.zone == nil {
				s.zone = floating
			}
		}
	}
	set(&e.start)
	set(e.end)
	set(e.recurrence)
	for i := range e.exdates {
		set(&e.exdates[i])
	}
	for i := range e.rdates {
		set(&e.rdates[i].start)
	}
	for _, r := range slices.Concat(e.rules, e.exrules) {
		set(r.until)
	}
	e.length = c.lengthOf(e)
}

// lengthOf returns how long e lasts: a day or more if it has no time, and
// nothing if it has no end.
func (c *calendar) lengthOf(e *event) span {
	length := e.length
	if e.end != nil {
		switch {
		case e.start.date || e.end.date || e.end.utc == e.start.utc && e.end.zone == e.start.zone:
			length = span{wall: e.end.wall.Sub(e.start.wall)}
		default:
			length = span{exact: e.end.instant(c.zones.viewer).Sub(e.start.instant(c.zones.viewer))}
		}
	}
	length.wall, length.exact = min(max(length.wall, 0), maxLength), min(max(length.exact, 0), maxLength)
	if e.start.date {
		days := (length.wall + length.exact + 24*time.Hour - 1) / (24 * time.Hour)
		length = span{wall: max(days, 1) * 24 * time.Hour}
	}
	return length
}

// newer orders versions of one event. Versions that it finds equal are not known
// to replace each other.
func newer(a, b *event) int {
	return cmp.Or(
		cmp.Compare(a.sequence, b.sequence),
		strings.Compare(a.modified, b.modified),
		strings.Compare(a.stamped, b.stamped),
	)
}

// current returns the masters that hold: the newest version, and what only
// shares its UID. Two events of one file in the same sequence are no versions,
// nor are those that nothing tells apart in age: some programs count their UIDs
// from 1.
func (s *series) current() []*event {
	if len(s.masters) < 2 {
		return s.masters
	}
	newest := slices.MaxFunc(s.masters, newer)
	return slices.DeleteFunc(slices.Clone(s.masters), func(e *event) bool {
		return newer(e, newest) < 0 && (e.file != newest.file || e.sequence != newest.sequence)
	})
}

// between returns the occurrences that overlap [from, to), cancelled ones too,
// in no particular order.
func (c *calendar) between(from, to time.Time) []*occurrence {
	var all []*occurrence
	if !from.Before(to) {
		return nil
	}
	for _, uid := range c.uids {
		all = append(all, c.series[uid].between(c, from, to)...)
	}
	return all
}

func (s *series) between(c *calendar, from, to time.Time) []*occurrence {
	viewer := c.zones.viewer
	var found []*occurrence
	add := func(e *event, start stamp, length span) *occurrence {
		if !mayOverlap(start, length, from, to) {
			// Spares the look-up of the offset for most.
			return nil
		}
		o := &occurrence{event: e, start: start.instant(viewer), allDay: start.date}
		o.end = start.at(start.wall.Add(length.wall)).instant(viewer).Add(length.exact)
		if o.end.Before(o.start) {
			o.end = o.start
		}
		if !o.overlaps(from, to) {
			return nil
		}
		found = append(found, o)
		return o
	}

	masters := s.current()
	overrides := newOverrides(s.overrides, viewer)
	excluded := make([]exclusion, len(masters))
	for i, e := range masters {
		excluded[i] = newExclusion(e, viewer)
		if len(e.rules)+len(e.rdates) == 0 {
			if len(s.overrides) == 0 || overrides.of(e.start, viewer) == nil {
				add(e, e.start, e.length)
			}
			continue
		}
		more := 0 // instances left
		err := c.expand(e, from.Add(-overrides.shift), to.Add(overrides.shift), func(start stamp, length span) bool {
			if excluded[i].has(start, viewer) || overrides.of(start, viewer) != nil {
				return true
			}
			shown := e
			if o := overrides.onwards(start, viewer); o != nil {
				shown, length = o, o.length
				moved := start
				if moved.date != o.start.date {
					moved = o.start
				}
				start = moved.at(start.wall.Add(o.start.instant(viewer).Sub(o.recurrence.instant(viewer))))
			}
			if o := add(shown, start, length); o != nil {
				o.recurring = true
				more++
			}
			return more < maxInstances
		})
		if err != nil || more == maxInstances {
			c.note(title(e) + " " + errSteps.Error() + ", some of its times are missing")
		}
	}
	for _, e := range overrides.all {
		if slices.ContainsFunc(excluded, func(x exclusion) bool { return x.has(*e.recurrence, viewer) }) {
			continue
		}
		if o := add(e, e.start, e.length); o != nil {
			o.recurring = true
			if id := e.recurrence.instant(viewer); !e.recurrence.date && !id.Equal(o.start) {
				o.movedFrom = id
			}
		}
	}
	return found
}

// expand calls yield with the instances of e that may overlap [from, to), and
// with some around, until it returns false.
func (c *calendar) expand(e *event, from, to time.Time, yield func(stamp, span) bool) error {
	z := e.start.zone
	switch {
	case e.start.utc:
		z = utc
	case z == nil:
		z = c.zones.viewer
	}
	// A change of offset may lie between.
	first := z.wall(from).Add(-e.length.wall - e.length.exact - slack)
	last := z.wall(to).Add(slack)
	skip := make(map[int64]bool)
	for _, r := range e.exrules {
		if err := r.each(e.start.wall, first, last, &c.budget, c.ended(e, r), func(wall time.Time) bool {
			skip[wall.Unix()] = true
			return true
		}); err != nil {
			return err
		}
	}
	for _, added := range e.rdates {
		if added.start.date != e.start.date {
			// A time where the series has days, or the other way round.
			continue
		}
		length := e.length
		if added.length != nil {
			length = *added.length
		}
		if !yield(added.start, length) {
			return nil
		}
		if added.start.zone == e.start.zone && added.start.utc == e.start.utc {
			skip[added.start.wall.Unix()] = true
		}
	}
	repeated := len(e.rules) != 1
	each := func(wall time.Time) bool {
		if len(skip) > 0 && skip[wall.Unix()] {
			return true
		}
		if repeated {
			skip[wall.Unix()] = true
		}
		return yield(e.start.at(wall), e.length)
	}
	if len(e.rules) == 0 {
		each(e.start.wall)
	}
	for _, r := range e.rules {
		if err := r.each(e.start.wall, first, last, &c.budget, c.ended(e, r), each); err != nil {
			return err
		}
	}
	return nil
}

// ended returns whether a wall time of e lies behind the UNTIL of r.
func (c *calendar) ended(e *event, r *rule) func(time.Time) bool {
	return func(wall time.Time) bool {
		if r.until == nil {
			return false
		}
		if e.start.date {
			return floorDiv(wall.Unix(), secondsPerDay) > r.until.day()
		}
		return behind(wall, e.start.at(wall).instant(c.zones.viewer), *r.until)
	}
}

// exclusion holds the EXDATE values of one event.
type exclusion struct {
	instants map[int64]bool
	days     map[int64]bool
}

func newExclusion(e *event, viewer *zone) exclusion {
	if len(e.exdates) == 0 {
		return exclusion{}
	}
	x := exclusion{instants: make(map[int64]bool), days: make(map[int64]bool)}
	for _, s := range e.exdates {
		if s.date || e.start.date {
			x.days[s.day()] = true
		} else {
			x.instants[s.instant(viewer).Unix()] = true
		}
	}
	return x
}

func (x exclusion) has(s stamp, viewer *zone) bool {
	return x.days != nil && (x.days[s.day()] || x.instants[s.instant(viewer).Unix()])
}

// overrides are those of one series, the newest of each instance.
type overrides struct {
	all []*event
	// By what RECURRENCE-ID names: a moment or a day; and the days of moments,
	// for a series of days.
	moments, dates, days map[int64]*event
	future               []*event // those that change all later instances, by time
	futureAt             []time.Time
	// shift is how far the latter move instances at most.
	shift time.Duration
}

func newOverrides(list []*event, viewer *zone) *overrides {
	v := new(overrides)
	if len(list) == 0 {
		return v
	}
	v.moments, v.dates, v.days = make(map[int64]*event), make(map[int64]*event), make(map[int64]*event)
	sorted := slices.Clone(list)
	slices.SortStableFunc(sorted, func(a, b *event) int { return newer(b, a) })
	for _, e := range sorted {
		index, key := v.moments, e.recurrence.instant(viewer).Unix()
		if e.recurrence.date {
			index, key = v.dates, e.recurrence.day()
		}
		if index[key] != nil {
			continue
		}
		index[key] = e
		if !e.recurrence.date {
			v.days[e.recurrence.day()] = e
		}
		v.all = append(v.all, e)
		if e.andFuture && !e.cancelled {
			v.future = append(v.future, e)
			distance := e.start.instant(viewer).Sub(e.recurrence.instant(viewer)).Abs()
			v.shift = max(v.shift, min(distance, 400*24*time.Hour))
		}
	}
	slices.SortStableFunc(v.future, func(a, b *event) int {
		return a.recurrence.instant(viewer).Compare(b.recurrence.instant(viewer))
	})
	for _, e := range v.future {
		v.futureAt = append(v.futureAt, e.recurrence.instant(viewer))
	}
	return v
}

// of returns the override of the instance that begins at s, or nil.
func (v *overrides) of(s stamp, viewer *zone) *event {
	if len(v.all) == 0 {
		return nil
	}
	if e := v.dates[s.day()]; e != nil {
		return e
	}
	if s.date {
		return v.days[s.day()]
	}
	return v.moments[s.instant(viewer).Unix()]
}

// onwards returns the last override that changes all instances from one before
// s on, or nil.
func (v *overrides) onwards(s stamp, viewer *zone) *event {
	if len(v.future) == 0 {
		return nil
	}
	// Each instance of a long series asks.
	i, found := slices.BinarySearchFunc(v.futureAt, s.instant(viewer), time.Time.Compare)
	for found && i+1 < len(v.futureAt) && v.futureAt[i+1].Equal(v.futureAt[i]) {
		i++
	}
	if !found {
		i--
	}
	if i < 0 {
		return nil
	}
	return v.future[i]
}

// title is the summary of e, never empty.
func title(e *event) string { return cmp.Or(e.summary, "(no title)") }
