package main

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/teambition/rrule-go"
)

// rrule-go reads the grammar of a rule, but does not expand it: its iterator
// cannot be bounded. A rule that never matches (BYMONTH=2;BYMONTHDAY=30) makes
// one call search to the year 9999, FREQ=HOURLY;INTERVAL=24 with another
// BYHOUR than the start's never returns, and a rule that began in 1970 is
// walked from there. Here every step is paid for, and a rule without COUNT is
// entered just before the window.

// budget bounds the work of expanding rules. A step is a day, hour, minute or
// second looked at.
type budget struct{ steps int }

func (b *budget) spend(n int) bool {
	b.steps -= n
	return b.steps >= 0
}

const (
	// stepsPerSeries is what one series may cost, stepsPerQuery all together.
	// A daily series with COUNT that began 50 years ago takes 37,000.
	stepsPerSeries = 150_000
	stepsPerQuery  = 3_000_000
	// sureSteps is what a series gets after others used up all but the reserve.
	// Ordinary rules take less.
	sureSteps    = 1_500
	reserveSteps = stepsPerQuery / 2
	// maxPerDay bounds BYHOUR × BYMINUTE × BYSECOND.
	maxPerDay = 1_440
)

// grant returns the steps that one series may take: at most an eighth of what is
// left, so that the first ones cannot starve the others.
func (b *budget) grant() int {
	fair := max((b.steps-reserveSteps)/8, sureSteps)
	return max(0, min(fair, stepsPerSeries, b.steps))
}

// errSteps means that a series was not searched to the end of the window.
var errSteps = errors.New("repeats too often to follow")

// rule is a recurrence rule. It works on wall time: a time.Time in UTC whose
// clock is what a clock on the wall of the event shows, so that no change of
// offset disturbs it.
type rule struct {
	freq     rrule.Frequency
	interval int64
	count    int    // 0 if there is none
	until    *stamp // the last moment that is part of the series, or nil
	wkst     int    // 0 is Monday, as in all weekdays here

	// Bit n stands for the number n.
	months  uint16
	hours   uint32
	minutes uint64
	seconds uint64

	weekdays  uint8        // BYDAY without ordinals
	nth       []nthWeekday // BYDAY with ordinals
	monthDays []int
	yearDays  []int
	weeks     []int
	positions []int
}

type nthWeekday struct{ n, weekday int }

// parseRule reads the value of an RRULE or EXRULE. Parts that RFC 5545 does not
// know are ignored.
func parseRule(value string) (*rule, error) {
	var known []string
	var until string
	for part := range strings.SplitSeq(strings.ToUpper(value), ";") {
		key, v, _ := strings.Cut(strings.TrimSpace(part), "=")
		v = strings.Join(strings.Fields(v), "")
		switch key {
		case "UNTIL":
			until = v
		case "RSCALE":
			if v != "GREGORIAN" {
				return nil, fmt.Errorf("rule counts in the calendar %.20q", v)
			}
		case "FREQ", "INTERVAL", "COUNT", "WKST", "BYSETPOS", "BYMONTH", "BYMONTHDAY", "BYYEARDAY", "BYWEEKNO", "BYDAY", "BYHOUR", "BYMINUTE", "BYSECOND":
			if v = strings.Trim(v, ","); v != "" {
				known = append(known, key+"="+v)
			}
		}
	}
	o, err := rrule.StrToROption(strings.Join(known, ";"))
	if err != nil {
		return nil, fmt.Errorf("%.40q: %w", value, err)
	}
	r := &rule{freq: o.Freq, interval: int64(o.Interval), count: o.Count, wkst: o.Wkst.Day()}
	// Some programs write "no limit" as COUNT=-1 or 0. An interval of more than
	// 10,000 years is no recurrence, and would overflow.
	r.count = max(r.count, 0)
	r.interval = max(r.interval, 1)
	if r.interval > 10_000*366*secondsPerDay {
		return nil, fmt.Errorf("%.40q: number out of range", value)
	}
	if until != "" {
		u, err := parseStamp(until)
		if err != nil {
			return nil, fmt.Errorf("%.40q: %w", value, err)
		}
		r.until = &u
	}
	var bad bool
	set := func(values []int, least, most int) (mask uint64) {
		for _, v := range values {
			if v < least || v > most {
				bad = true
				continue
			}
			mask |= 1 << v
		}
		return mask
	}
	list := func(values []int, most int) []int {
		for _, v := range values {
			if v == 0 || v < -most || v > most {
				bad = true
			}
		}
		slices.Sort(values)
		return slices.Compact(values)
	}
	r.months = uint16(set(o.Bymonth, 1, 12))
	r.hours = uint32(set(o.Byhour, 0, 23))
	r.minutes = set(o.Byminute, 0, 59)
	// 60 is a leap second, which no clock here shows.
	r.seconds = set(o.Bysecond, 0, 60)
	if r.seconds&(1<<60) != 0 {
		r.seconds = r.seconds&^(1<<60) | 1<<59
	}
	r.monthDays = list(o.Bymonthday, 31)
	r.yearDays = list(o.Byyearday, 366)
	r.weeks = list(o.Byweekno, 53)
	r.positions = list(o.Bysetpos, 366*secondsPerDay)
	for _, day := range o.Byweekday {
		switch n := day.N(); {
		case n == 0 || o.Freq > rrule.MONTHLY || len(r.weeks) > 0:
			// Ordinals mean nothing in these rules.
			r.weekdays |= 1 << day.Day()
		case n < -53 || n > 53:
			bad = true
		case !slices.Contains(r.nth, nthWeekday{n, day.Day()}):
			r.nth = append(r.nth, nthWeekday{n, day.Day()})
		}
	}
	if bad {
		return nil, fmt.Errorf("%.40q: number out of range", value)
	}
	perDay := max(1, bits.OnesCount32(r.hours)) * max(1, bits.OnesCount64(r.minutes)) * max(1, bits.OnesCount64(r.seconds))
	if r.freq < rrule.HOURLY && perDay > maxPerDay {
		return nil, fmt.Errorf("%.40q: too many times a day", value)
	}
	return r, nil
}

const (
	secondsPerMinute = 60
	secondsPerHour   = 60 * secondsPerMinute
	secondsPerDay    = 24 * secondsPerHour
)

// each calls yield with the wall times of the series that lie in [from, to], in
// order, until it returns false. The series begins with start, which belongs to
// it even if the rule does not match it. ended tells whether a time lies behind
// UNTIL; it is only called if there is one. It returns errSteps when the budget did not last.
func (r *rule) each(start, from, to time.Time, b *budget, ended, yield func(time.Time) bool) error {
	granted := b.grant()
	w := walk{rule: *r, start: start.Unix(), from: from.Unix(), to: to.Unix(), left: r.count, budget: budget{granted}}
	if r.count == 0 {
		w.left = -1
	}
	w.yield = func(wall int64) bool {
		if wall < w.from && r.until == nil {
			return true
		}
		t := time.Unix(wall, 0).UTC()
		if wall != w.start && r.until != nil && ended(t) {
			return false
		}
		return wall < w.from || yield(t)
	}
	w.complete(start)
	if w.emit(w.start) {
		if r.freq < rrule.HOURLY {
			w.days()
		} else {
			w.clock()
		}
	}
	b.spend(granted - max(w.steps, 0))
	if w.steps < 0 {
		return errSteps
	}
	return nil
}

// walk is one pass along a rule. Times are seconds of wall time since
// 1970-01-01, days are counted from there too.
type walk struct {
	rule
	budget
	start, from, to int64
	left            int // instances until COUNT is reached; negative without COUNT
	yield           func(int64) bool
	// offsets are the instances within a day, hour, minute or second, in
	// seconds from its begin.
	offsets []int64
	matched []int64 // days of the period at hand, or the hour, minute or second
	month   month   // the month looked at last
}

// month is a month and its year by the numbers of their first days.
type month struct {
	of                time.Month
	year              int
	first, next       int64
	newYear, nextYear int64
}

// complete adds to the rule what it leaves to the start.
func (w *walk) complete(start time.Time) {
	if len(w.monthDays)+len(w.yearDays)+len(w.nth) == 0 && w.weekdays == 0 {
		onlyWeeks := w.freq == rrule.YEARLY && len(w.weeks) > 0
		switch {
		case onlyWeeks, w.freq == rrule.WEEKLY:
			w.weekdays = 1 << weekday(floorDiv(w.start, secondsPerDay))
		case w.freq == rrule.YEARLY:
			if w.months == 0 {
				w.months = 1 << start.Month()
			}
			w.monthDays = []int{start.Day()}
		case w.freq == rrule.MONTHLY:
			w.monthDays = []int{start.Day()}
		}
	}
	hours, minutes, seconds := []int{0}, []int{0}, []int{0}
	if w.freq < rrule.HOURLY {
		hours = numbers(uint64(w.hours), start.Hour())
	}
	if w.freq < rrule.MINUTELY {
		minutes = numbers(w.minutes, start.Minute())
	}
	if w.freq < rrule.SECONDLY {
		seconds = numbers(w.seconds, start.Second())
	}
	w.spend(len(hours) * len(minutes) * len(seconds))
	for _, h := range hours {
		for _, m := range minutes {
			for _, s := range seconds {
				w.offsets = append(w.offsets, int64(h)*secondsPerHour+int64(m)*secondsPerMinute+int64(s))
			}
		}
	}
}

// numbers lists the bits of mask, or otherwise if there are none.
func numbers(mask uint64, otherwise int) []int {
	if mask == 0 {
		return []int{otherwise}
	}
	list := make([]int, 0, bits.OnesCount64(mask))
	for ; mask != 0; mask &= mask - 1 {
		list = append(list, bits.TrailingZeros64(mask))
	}
	return list
}

// emit passes one instance on and tells whether there may be more.
func (w *walk) emit(wall int64) bool {
	if wall > w.to || !w.yield(wall) {
		return false
	}
	if w.left > 0 {
		w.left--
	}
	return w.left != 0
}

// period emits the instances on units, which are days or smaller units given by
// their begin in seconds, and tells whether there may be more.
func (w *walk) period(units []int64) bool {
	size := len(units) * len(w.offsets)
	at := func(i int) int64 { return units[i/len(w.offsets)] + w.offsets[i%len(w.offsets)] }
	if len(w.positions) == 0 {
		for i := range size {
			if !w.instance(at(i)) {
				return false
			}
		}
		return true
	}
	var chosen []int
	for _, p := range w.positions {
		if p < 0 {
			p += size
		} else {
			p--
		}
		if p >= 0 && p < size {
			chosen = append(chosen, p)
		}
	}
	slices.Sort(chosen)
	for _, i := range slices.Compact(chosen) {
		if !w.instance(at(i)) {
			return false
		}
	}
	return true
}

func (w *walk) instance(wall int64) bool {
	if !w.spend(1) {
		return false
	}
	return wall <= w.start || w.emit(wall)
}

// days walks a rule whose periods are days, weeks, months or years.
func (w *walk) days() {
	first, origin := floorDiv(w.start, secondsPerDay), w.start
	if w.left < 0 && w.from > w.start {
		origin = w.from
	}
	target := floorDiv(origin, secondsPerDay)
	startYear, startMonth, _ := date(first)
	targetYear, targetMonth, _ := date(target)
	var k int64 // the period at hand, begin with the one that holds target
	switch w.freq {
	case rrule.YEARLY:
		k = int64(targetYear - startYear)
	case rrule.MONTHLY:
		k = int64(targetYear-startYear)*12 + int64(targetMonth-startMonth)
	case rrule.WEEKLY:
		first -= int64((weekday(first) - w.wkst + 7) % 7)
		k = (target - first) / 7
	default:
		k = target - first
	}
	for k -= k % w.interval; ; k += w.interval {
		w.matched = w.matched[:0]
		var begin int64
		switch w.freq {
		case rrule.YEARLY:
			if k > 10_000 {
				return
			}
			year := startYear + int(k)
			begin = dayNumber(year, time.January)
			for m := time.January; m <= time.December; m++ {
				w.matchMonth(year, m)
			}
		case rrule.MONTHLY:
			if k > 12*10_000 {
				return
			}
			months := int(startMonth) - 1 + int(k)
			year, m := startYear+months/12, time.Month(months%12+1)
			begin = dayNumber(year, m)
			w.matchMonth(year, m)
		case rrule.WEEKLY:
			begin = first + 7*k
			for d := range int64(7) {
				w.matchDay(begin + d)
			}
		default:
			begin = first + k
			w.matchDay(begin)
		}
		if begin*secondsPerDay > w.to || !w.spend(1) || !w.period(w.matched) {
			return
		}
	}
}

// clock walks a rule whose periods are hours, minutes or seconds.
func (w *walk) clock() {
	unit := int64(1)
	switch w.freq {
	case rrule.HOURLY:
		unit = secondsPerHour
	case rrule.MINUTELY:
		unit = secondsPerMinute
	}
	begin, step := floorDiv(w.start, unit)*unit, unit*w.interval
	// next is the first period that begins at t or later.
	next := func(t int64) int64 { return begin + (t-begin+step-1)/step*step }
	t := begin
	if w.left < 0 && w.from > begin {
		t += (w.from - begin) / step * step
	}
	for t <= w.to && w.spend(1) {
		inDay := t - floorDiv(t, secondsPerDay)*secondsPerDay
		switch {
		case !w.matches(floorDiv(t, secondsPerDay)):
			t = next(t - inDay + secondsPerDay)
		case w.hours != 0 && w.hours>>(inDay/secondsPerHour)&1 == 0:
			t = next(t - inDay%secondsPerHour + secondsPerHour)
		case unit <= secondsPerMinute && w.minutes != 0 && w.minutes>>(inDay%secondsPerHour/secondsPerMinute)&1 == 0:
			t = next(t - inDay%secondsPerMinute + secondsPerMinute)
		case unit == 1 && w.seconds != 0 && w.seconds>>(inDay%secondsPerMinute)&1 == 0:
			t += step
		default:
			w.matched = append(w.matched[:0], t)
			if !w.period(w.matched) {
				return
			}
			t += step
		}
	}
}

// matchMonth adds the days of one month that the rule matches.
func (w *walk) matchMonth(year int, month time.Month) {
	if w.months != 0 && w.months>>month&1 == 0 {
		return
	}
	first := dayNumber(year, month)
	for d := first; d < dayNumber(year, month+1); d++ {
		w.matchDay(d)
	}
}

func (w *walk) matchDay(d int64) {
	if w.spend(1) && w.matches(d) {
		w.matched = append(w.matched, d*secondsPerDay)
	}
}

// matches tells whether the rule allows the day.
func (w *walk) matches(d int64) bool {
	if w.months == 0 && len(w.weeks)+len(w.yearDays)+len(w.monthDays)+len(w.nth) == 0 {
		return w.weekdays == 0 || w.weekdays>>weekday(d)&1 == 1
	}
	m := &w.month
	if d < m.first || d >= m.next {
		m.year, m.of, _ = date(d)
		m.first, m.next = dayNumber(m.year, m.of), dayNumber(m.year, m.of+1)
		m.newYear, m.nextYear = dayNumber(m.year, time.January), dayNumber(m.year+1, time.January)
	}
	if w.months != 0 && w.months>>m.of&1 == 0 {
		return false
	}
	ofMonth, monthLength := int(d-m.first)+1, int(m.next-m.first)
	if len(w.monthDays) > 0 && !slices.Contains(w.monthDays, ofMonth) && !slices.Contains(w.monthDays, ofMonth-monthLength-1) {
		return false
	}
	ofYear, yearLength := int(d-m.newYear)+1, int(m.nextYear-m.newYear)
	if len(w.yearDays) > 0 && !slices.Contains(w.yearDays, ofYear) && !slices.Contains(w.yearDays, ofYear-yearLength-1) {
		return false
	}
	if len(w.weeks) > 0 && !w.matchesWeek(d) {
		return false
	}
	if w.weekdays == 0 && len(w.nth) == 0 || w.weekdays>>weekday(d)&1 == 1 {
		return true
	}
	position, length := ofMonth, monthLength
	if w.freq == rrule.YEARLY && w.months == 0 {
		position, length = ofYear, yearLength
	}
	for _, nth := range w.nth {
		if nth.weekday == weekday(d) && (nth.n == (position-1)/7+1 || nth.n == -((length-position)/7+1)) {
			return true
		}
	}
	return false
}

// matchesWeek tells whether d, a day of w.month, lies in a week that BYWEEKNO names. A week belongs
// to the year that most of its days lie in.
func (w *walk) matchesWeek(d int64) bool {
	middle := d - int64((weekday(d)-w.wkst+7)%7) + 3
	newYear, next := w.month.newYear, w.month.nextYear
	if middle < newYear {
		newYear, next = dayNumber(w.month.year-1, time.January), newYear
	} else if middle >= next {
		newYear, next = next, dayNumber(w.month.year+2, time.January)
	}
	ofYear, yearLength := int(middle-newYear), int(next-newYear)
	week := ofYear/7 + 1
	last := week + (yearLength-1-ofYear)/7
	return slices.Contains(w.weeks, week) || slices.Contains(w.weeks, week-last-1)
}

// date returns the date of a day counted from 1970-01-01.
func date(d int64) (year int, month time.Month, day int) {
	return time.Unix(d*secondsPerDay, 0).UTC().Date()
}

// dayNumber counts the first day of a month, which may lie outside of the year,
// from 1970-01-01.
func dayNumber(year int, month time.Month) int64 {
	return floorDiv(time.Date(year, month, 1, 0, 0, 0, 0, time.UTC).Unix(), secondsPerDay)
}

// weekday returns the day of the week, 0 for Monday.
func weekday(d int64) int {
	// 1970-01-01 was a Thursday.
	return int(((d+3)%7 + 7) % 7)
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
