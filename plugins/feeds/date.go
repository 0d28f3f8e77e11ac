package main

import (
	"strconv"
	"strings"
	"time"
)

// date is when something was published.
type date struct {
	at time.Time
	// wholeDay says that no time of the day is known: at is when the day begins
	// in the window's zone.
	wholeDay bool
}

// parseDate reads the dates that feeds have: RFC 3339 and what else looks like
// ISO 8601, RFC 822 with all that is done to it, ctime and the words of many
// programs. What has a time and no zone is in UTC, as feeds without one mostly
// are; what has no time is a day in local.
func parseDate(text string, local *time.Location) (date, bool) {
	text = strings.TrimSpace(text)
	if len(text) > 100 {
		return date{}, false
	}
	d := dateReader{}
	if rest, ok := d.isoDay(text); ok {
		text = rest
	}
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return r <= ' ' || r == ',' || r == '(' || r == ')' || r == '\u00A0' }) {
		if !d.word(word) {
			return date{}, false
		}
	}
	return d.date(local)
}

// dateReader collects the parts of a date, whatever their order.
type dateReader struct {
	year, month, day int
	hasYear          bool
	clock            time.Duration
	hasClock         bool
	afternoon        int // 1 for AM, 2 for PM
	offset           time.Duration
	hasZone          bool
}

// isoDay reads "2026-03-23", "2026/03/23", "2026-03" or "20260323" at the
// beginning of text and returns what follows.
func (d *dateReader) isoDay(text string) (rest string, ok bool) {
	digits := 0
	for digits < len(text) && isDigit(text[digits]) {
		digits++
	}
	switch {
	case digits == 8 && (len(text) == 8 || text[8] == 'T'):
		d.year, d.month, d.day = number(text[:4]), number(text[4:6]), number(text[6:8])
		rest = text[8:]
	case digits == 4 && len(text) >= 7 && (text[4] == '-' || text[4] == '/'):
		month, rest1 := upTo2(text[5:])
		if month == 0 {
			return "", false
		}
		d.year, d.month, d.day, rest = number(text[:4]), month, 1, rest1
		if rest1 != "" && rest1[0] == text[4] {
			day, rest2 := upTo2(rest1[1:])
			if day == 0 {
				return "", false
			}
			d.day, rest = day, rest2
		}
	default:
		return "", false
	}
	d.hasYear = true
	return strings.TrimLeft(rest, "Tt_"), true
}

func upTo2(s string) (n int, rest string) {
	size := 0
	for size < min(2, len(s)) && isDigit(s[size]) {
		size++
	}
	return number(s[:size]), s[size:]
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// number is the value of s, which is short and of digits; 0 for "".
func number(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

// word takes one word in. It fails for one that a date cannot have.
func (d *dateReader) word(w string) bool {
	switch {
	case strings.Contains(w, ":") && isDigit(w[0]):
		return d.clockAndZone(w)
	case w[0] == '+' || w[0] == '-':
		return d.zoneOffset(w)
	case isDigit(w[0]):
		return d.digits(w)
	}
	w = strings.ToLower(strings.TrimRight(w, "."))
	switch w {
	case "":
		return true
	case "am", "a.m":
		d.afternoon = 1
		return true
	case "pm", "p.m":
		d.afternoon = 2
		return true
	case "at", "of", "the", "t":
		return true
	}
	if len(w) >= 3 {
		if month := strings.Index("janfebmaraprmayjunjulaugsepoctnovdec", w[:3]); month >= 0 && month%3 == 0 {
			// The last counts: before it may stand a weekday, as "Mar" in Italian.
			d.month = month/3 + 1
			return true
		}
	}
	if offset, ok := zones[w]; ok {
		if !d.hasZone {
			d.offset, d.hasZone = time.Duration(offset)*time.Minute, true
		}
		return true
	}
	for _, prefix := range []string{"gmt", "utc"} {
		if sign, ok := strings.CutPrefix(w, prefix); ok && (sign[0] == '+' || sign[0] == '-') {
			return d.zoneOffset(sign)
		}
	}
	// The day of the week, in whatever language, or a zone nobody knows.
	return true
}

// digits takes "23", "23rd", "2026", "26", "23.03.2026" or "23-Mar-2026".
func (d *dateReader) digits(w string) bool {
	for _, separator := range []string{"-", "."} {
		if parts := strings.Split(w, separator); len(parts) == 3 && parts[1] != "" && parts[2] != "" {
			if isDigit(parts[1][0]) {
				if separator == "-" || d.month != 0 {
					return false
				}
				d.month = number(parts[1])
			} else if !d.word(parts[1]) {
				return false
			}
			return d.digits(parts[0]) && d.digits(parts[2])
		}
	}
	size := 0
	for size < len(w) && isDigit(w[size]) {
		size++
	}
	switch n := number(w[:min(size, 4)]); {
	case size < len(w) && !isOrdinal(w[size:]):
		return false
	case size <= 2 && d.day == 0:
		d.day = n
	case size > 4 || d.hasYear:
		return false
	default:
		// RFC 5322, 4.3: 00 to 49 are of this century, and three digits count
		// from 1900.
		switch {
		case size <= 2 && n < 50:
			n += 2000
		case size <= 3:
			n += 1900
		}
		d.year, d.hasYear = n, true
	}
	return true
}

func isOrdinal(s string) bool {
	switch s {
	case "st", "nd", "rd", "th", ".":
		return true
	}
	return false
}

// clockAndZone takes "10:00", "10:00:00.5Z", "10:00:00+01:00", "10:00am".
func (d *dateReader) clockAndZone(w string) bool {
	if d.hasClock {
		return false
	}
	hour, rest := upTo2(w)
	rest, ok := strings.CutPrefix(rest, ":")
	if !ok || rest == "" || !isDigit(rest[0]) {
		return false
	}
	minute, rest := upTo2(rest)
	second := 0
	if after, ok := strings.CutPrefix(rest, ":"); ok {
		second, rest = upTo2(after)
	}
	if rest != "" && (rest[0] == '.' || rest[0] == ',') {
		rest = strings.TrimLeft(rest[1:], "0123456789")
	}
	// 24:00 ends a day, and a minute may have a leap second.
	if hour > 24 || hour == 24 && minute+second > 0 || minute > 59 || second > 60 {
		return false
	}
	d.clock = time.Duration(hour)*time.Hour + time.Duration(minute)*time.Minute + time.Duration(second)*time.Second
	d.hasClock = true
	return rest == "" || !isDigit(rest[0]) && rest[0] != ':' && d.word(rest)
}

// zoneOffset takes "+0100", "+01:00", "+01" or "-1".
func (d *dateReader) zoneOffset(w string) bool {
	digits := strings.Replace(w[1:], ":", "", 1)
	if digits == "" || len(digits) > 4 || strings.Trim(digits, "0123456789") != "" {
		return false
	}
	hours, minutes := number(digits), 0
	if len(digits) > 2 {
		hours, minutes = number(digits[:len(digits)-2]), number(digits[len(digits)-2:])
	}
	if hours > 14 || minutes > 59 {
		return false
	}
	if d.hasZone && d.offset != 0 {
		// "CET +0100" says the same twice.
		return true
	}
	d.offset, d.hasZone = time.Duration(hours)*time.Hour+time.Duration(minutes)*time.Minute, true
	if w[0] == '-' {
		d.offset = -d.offset
	}
	return true
}

// zones are those of RFC 822 and others that feeds name, in minutes east of
// Greenwich. IST is India's, BST Britain's.
var zones = map[string]int{
	"ut": 0, "utc": 0, "gmt": 0, "z": 0, "wet": 0, "west": 60, "bst": 60, "cet": 60, "met": 60, "mez": 60, "cest": 120, "mest": 120, "mesz": 120,
	"eet": 120, "eest": 180, "sast": 120, "msk": 180, "ist": 330, "hkt": 480, "sgt": 480, "awst": 480, "jst": 540, "kst": 540, "acst": 570,
	"aest": 600, "acdt": 630, "aedt": 660, "nzst": 720, "nzdt": 780, "nst": -210, "ndt": -150, "brt": -180, "art": -180, "ast": -240, "adt": -180,
	"est": -300, "edt": -240, "cst": -360, "cdt": -300, "mst": -420, "mdt": -360, "pst": -480, "pdt": -420, "akst": -540, "akdt": -480, "hst": -600,
}

func (d *dateReader) date(local *time.Location) (date, bool) {
	if !d.hasYear || d.year < 1970 || d.year > 2200 || d.month < 1 || d.month > 12 || d.day < 1 {
		return date{}, false
	}
	day := time.Date(d.year, time.Month(d.month), d.day, 0, 0, 0, 0, time.UTC)
	if day.Day() != d.day {
		return date{}, false
	}
	if !d.hasClock {
		return date{time.Date(d.year, time.Month(d.month), d.day, 0, 0, 0, 0, local), true}, true
	}
	switch {
	case d.afternoon == 2 && d.clock < 12*time.Hour:
		d.clock += 12 * time.Hour
	case d.afternoon == 1 && d.clock >= 12*time.Hour && d.clock < 13*time.Hour:
		d.clock -= 12 * time.Hour
	}
	return date{day.Add(d.clock - d.offset), false}, true
}
