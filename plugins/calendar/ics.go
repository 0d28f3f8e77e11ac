package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gloveboxhq/glovebox/plugins/internal/compose"

	"github.com/emersion/go-ical"
	"golang.org/x/text/encoding/charmap"
)

// go-ical decodes components, strictly: one malformed line costs the file. What
// programs export is not strict. So the lines are put in order first, and each
// event is decoded by itself: a malformed line is lost alone, and a malformed
// event too. Lines that nothing is shown of are never kept, which bounds memory
// to the events.

const (
	// maxLineBytes is what is kept of an unfolded line. Pictures and long
	// descriptions go beyond it.
	maxLineBytes = 64 << 10
	// maxParameterBytes bounds the parameters of a line; go-ical's time for them
	// grows with the square of their length.
	maxParameterBytes = 512
	// maxComponentBytes bounds the kept lines of one event or time zone.
	maxComponentBytes = 256 << 10
	maxDepth          = 8
	// maxTextRunes bounds a text that is kept of an event.
	maxTextRunes = 300
	// maxDates bounds the EXDATE and RDATE values of one event.
	maxDates = 5_000
	maxZones = 200
)

// event is one VEVENT: a single event, the master of a series, or an override
// of one instance of a series (recurrence is set).
type event struct {
	file    int // position of its file among those read
	uid     string
	start   stamp
	end     *stamp // DTEND, if there is one
	length  span   // from the end once the zones are resolved
	rules   []*rule
	exrules []*rule
	rdates  []instance
	exdates []stamp

	recurrence *stamp // RECURRENCE-ID
	andFuture  bool   // the override changes all later instances too

	// The newest of several versions is the one with the greatest sequence, then
	// the latest modified, then the latest stamped.
	sequence          int
	modified, stamped string

	summary, location, description, organizer string

	attendees              int
	priority               int // 1 is the highest, 9 the lowest, 0 is none
	cancelled, tentative   bool
	transparent, hasAlarms bool
}

// span is how long an event lasts: wall time as clocks show it, then exact time.
// An event from 22:00 to 06:00 ends at 06:00 in the night of a change too.
type span struct{ wall, exact time.Duration }

// instance is one time of a series that RDATE adds.
type instance struct {
	start  stamp
	length *span // nil means as long as the event
}

// document is what one file holds.
type document struct {
	events []*event
	zones  map[string]*vtimezone
	// zone is the name that X-WR-TIMEZONE gives to floating times.
	zone string
	// problems counts the events left out; problem is what is wrong with the
	// first of them, or with the file.
	problems int
	problem  error
	// truncated tells that the file ended too early, full that it has more events
	// than there is room for.
	truncated, full bool
	weight          int // of the events
}

func (d *document) fail(err error) {
	d.problems++
	if d.problem == nil {
		d.problem = err
	}
}

var (
	errNoCalendar = errors.New("no iCalendar data")
	errUTF16      = errors.New("UTF-16 text, iCalendar is UTF-8")
	errEmpty      = errors.New("empty file")
	errCutOff     = errors.New("ends inside an event")
	errTooLarge   = errors.New("larger than 16 MiB")
	errDecode     = errors.New("malformed")
	errNoStart    = errors.New("event without a start")
)

// parse reads one file, events of at most maxWeight. Those that are over before w
// or begin after it are not read further than their version. It returns an error
// when there is no calendar in the file; what is wrong with single events is in
// the document.
func parse(ctx context.Context, r io.Reader, w window, maxWeight int) (d *document, err error) {
	p := parser{lines: lineReader{r: bufio.NewReaderSize(r, 32<<10)}, maxWeight: maxWeight}
	for _, bound := range [][2]time.Time{{w.from, w.to}, {w.next, w.end()}} {
		// Three days cover all zones, and days that count in another one.
		first, last := bound[0].UTC().AddDate(0, 0, -3), bound[1].UTC().AddDate(0, 0, 3)
		p.near = append(p.near, [2]string{first.Format("20060102"), last.Format("20060102")})
	}
	p.doc = &document{zones: make(map[string]*vtimezone)}
	if err := p.lines.begin(); err != nil {
		return nil, err
	}
	for n := 0; p.lines.next(); n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		p.line(p.lines.line)
		if p.doc.full {
			break
		}
	}
	switch {
	case p.lines.err != nil:
		if !p.calendar || len(p.doc.events) == 0 {
			return nil, p.lines.err
		}
		p.doc.truncated = true
		p.doc.fail(p.lines.err)
	case !p.calendar:
		return nil, errNoCalendar
	case len(p.path) > 0 && !p.doc.full:
		if p.within() == "VEVENT" {
			p.doc.fail(errCutOff)
		}
		p.doc.truncated = true
	}
	return p.doc, nil
}

// limitedReader reads at most left bytes of r and fails if there are more.
type limitedReader struct {
	r    io.Reader
	left int64
}

func (l *limitedReader) Read(b []byte) (int, error) {
	n, err := l.r.Read(b[:min(int64(len(b)), l.left+1)])
	if l.left -= int64(n); l.left < 0 {
		return n, errTooLarge
	}
	return n, err
}

// lineReader unfolds content lines.
type lineReader struct {
	r    *bufio.Reader
	line []byte // valid until the next call of next
	// pending is the physical line that follows.
	pending []byte
	ended   bool
	err     error
}

func (l *lineReader) begin() error {
	head, err := l.r.Peek(3)
	switch {
	case len(head) == 0 && (err == nil || errors.Is(err, io.EOF)):
		return errEmpty
	case len(head) == 0:
		return err
	case bytes.HasPrefix(head, []byte{0xFF, 0xFE}), bytes.HasPrefix(head, []byte{0xFE, 0xFF}):
		return errUTF16
	case bytes.HasPrefix(head, []byte("\uFEFF")):
		l.r.Discard(3)
	}
	l.physical()
	return nil
}

// physical reads the next line that is not blank into pending. CR, LF and any
// run of them end a line. It works on pieces, not bytes: a guest pays dearly for
// each call.
func (l *lineReader) physical() {
	l.pending = l.pending[:0]
	for {
		if l.r.Buffered() == 0 {
			if _, err := l.r.Peek(1); err != nil {
				if !errors.Is(err, io.EOF) {
					l.err = err
				}
				l.ended = len(l.pending) == 0
				return
			}
		}
		// A bounded piece, so that a file without LF is not searched to its end
		// for each line.
		piece, _ := l.r.Peek(min(l.r.Buffered(), 256))
		end := len(piece)
		if i := bytes.IndexByte(piece, '\n'); i >= 0 {
			end = i
		}
		if i := bytes.IndexByte(piece[:end], '\r'); i >= 0 {
			end = i
		}
		l.pending = append(l.pending, piece[:min(end, maxLineBytes-len(l.pending))]...)
		if end == len(piece) {
			l.r.Discard(end)
			continue
		}
		l.r.Discard(end + 1)
		if len(l.pending) > 0 {
			return
		}
	}
}

// next reads one content line and what is folded after it. Text without a
// property name is what a program forgot to fold or escape.
func (l *lineReader) next() bool {
	for !l.ended && (isFolded(l.pending) || !hasName(l.pending)) {
		// Before the first property: a blank, or what is no calendar at all.
		l.physical()
	}
	if l.ended {
		return false
	}
	l.line = append(l.line[:0], l.pending...)
	for {
		l.physical()
		switch room := maxLineBytes - len(l.line); {
		case l.ended:
			return true
		case isFolded(l.pending):
			rest := l.pending[1:]
			l.line = append(l.line, rest[:min(len(rest), max(room, 0))]...)
		case !hasName(l.pending):
			if isText(l.line) && len(l.pending)+2 <= room {
				l.line = append(append(l.line, `\n`...), l.pending...)
			}
		default:
			return true
		}
	}
}

func isFolded(line []byte) bool {
	return len(line) > 0 && (line[0] == ' ' || line[0] == '\t')
}

// hasName tells whether line begins with a property name and ";" or ":", or is a
// name in capitals: some programs fold before the colon.
func hasName(line []byte) bool {
	capitals := true
	for i, c := range line {
		switch {
		case c == ':' || c == ';':
			return i > 0
		case c >= 'a' && c <= 'z':
			capitals = false
		case c != '-' && c != '_' && (c < '0' || c > '9') && (c < 'A' || c > 'Z'):
			return false
		}
	}
	return capitals && len(line) > 0
}

// isText tells whether line holds a text that people write in paragraphs.
func isText(line []byte) bool {
	name := string(bytes.ToUpper(line[:min(len(line), len("DESCRIPTION"))]))
	return name == "DESCRIPTION" || strings.HasPrefix(name, "SUMMARY") || strings.HasPrefix(name, "LOCATION")
}

// parser follows the components of a file.
type parser struct {
	lines     lineReader
	decoder   decoder
	doc       *document
	maxWeight int
	calendar  bool     // a VCALENDAR has begun
	method    string   // of the VCALENDAR at hand
	path      []string // open components below the VCALENDAR
	// near are the days, as they are written, in which an event is of interest.
	near [][2]string

	// Of the component at hand:
	text    []byte // its kept lines, in order
	tooBig  bool
	alarms  bool
	guests  int
	skipped int // open components beyond maxDepth
	sketch  sketch
}

// sketch is what tells, without decoding an event, that it is of no interest but
// as a version of another one. Most events of most calendars are long over.
type sketch struct {
	uid, sequence, modified, stamped string
	start, end                       string // the days, as they are written
	until                            string // of the rule
	rules                            int
	open                             bool // it may take place at any other time
}

func (s *sketch) add(name string, line []byte) {
	value := func() string { return strings.TrimSpace(string(line[bytes.IndexByte(line, ':')+1:])) }
	day := func() string {
		v := line[bytes.LastIndexByte(line, ':')+1:]
		if len(v) != 8 && (len(v) < 15 || v[8] != 'T') {
			return ""
		}
		for _, c := range v[:8] {
			if c < '0' || c > '9' {
				return ""
			}
		}
		return string(v[:8])
	}
	switch name {
	case "UID":
		s.uid = value()
	case "SEQUENCE":
		s.sequence = value()
	case "LAST-MODIFIED":
		s.modified = value()
	case "DTSTAMP":
		s.stamped = value()
	case "DTSTART":
		s.start = day()
	case "DTEND":
		s.end = day()
		s.open = s.open || s.end == ""
	case "RRULE":
		s.rules++
		if _, until, ok := strings.Cut(string(line), "UNTIL="); ok && len(until) >= 8 {
			s.until = until[:8]
		}
	case "DURATION", "RDATE", "RECURRENCE-ID":
		s.open = true
	}
}

// far tells whether the event takes place on none of the days near.
func (s *sketch) far(near [][2]string) bool {
	if s.open || s.start == "" || s.uid == "" || s.rules > 1 {
		return false
	}
	last := max(s.start, s.end)
	switch {
	case s.rules == 0:
	case s.until == "" || s.until < "1" || s.until > "9999" || s.end > s.start:
		// A series without end, or one whose last instance ends on another day.
		return false
	default:
		last = max(last, s.until)
	}
	for _, days := range near {
		if s.start <= days[1] && last >= days[0] {
			return false
		}
	}
	return true
}

func (p *parser) line(line []byte) {
	end := bytes.IndexByte(line, ':')
	if i := bytes.IndexByte(line[:max(end, 0)], ';'); i >= 0 {
		end = i
	}
	if end < 0 {
		return
	}
	switch name := strings.ToUpper(string(line[:end])); name {
	case "BEGIN":
		p.begin(strings.ToUpper(string(bytes.TrimSpace(line[end+1:]))))
	case "END":
		p.end(strings.ToUpper(string(bytes.TrimSpace(line[end+1:]))))
	default:
		p.property(name, line)
	}
}

func (p *parser) begin(name string) {
	switch name {
	case "VCALENDAR", "VEVENT", "VTODO", "VJOURNAL", "VFREEBUSY", "VTIMEZONE":
		// They are in no other component: what is still open lost its END.
		if p.within() == "VEVENT" {
			p.doc.fail(errCutOff)
		}
		p.reset()
	}
	if name == "VCALENDAR" {
		p.calendar, p.method = true, ""
		return
	}
	p.calendar = p.calendar || name == "VEVENT"
	if !p.calendar || len(p.path) == maxDepth {
		p.skipped++
		return
	}
	p.path = append(p.path, name)
	switch p.within() {
	case "VEVENT":
		p.alarms = p.alarms || name == "VALARM"
		if len(p.path) == 1 {
			p.keep("BEGIN", []byte("BEGIN:"+name))
		}
	case "VTIMEZONE":
		if len(p.path) <= 2 {
			p.keep("BEGIN", []byte("BEGIN:"+name))
		}
	}
}

// within names the outermost open component.
func (p *parser) within() string {
	if len(p.path) == 0 {
		return ""
	}
	return p.path[0]
}

func (p *parser) reset() {
	p.path, p.skipped = p.path[:0], 0
	p.text = p.text[:0]
	p.tooBig, p.alarms, p.guests, p.sketch = false, false, 0, sketch{}
}

func (p *parser) end(name string) {
	if p.skipped > 0 {
		p.skipped--
		return
	}
	// An END closes what was begun inside and not ended.
	for i := len(p.path) - 1; i >= 0; i-- {
		if p.path[i] != name {
			continue
		}
		for ; len(p.path) > i; p.path = p.path[:len(p.path)-1] {
			if outer := p.within(); outer == "VEVENT" && len(p.path) == 1 || outer == "VTIMEZONE" && len(p.path) <= 2 {
				p.keep("END", []byte("END:"+p.path[len(p.path)-1]))
			}
		}
		if i > 0 {
			return
		}
		switch name {
		case "VEVENT":
			p.event()
		case "VTIMEZONE":
			p.timezone()
		}
		p.reset()
		return
	}
}

func (p *parser) property(name string, line []byte) {
	switch {
	case !p.calendar || p.skipped > 0:
	case len(p.path) == 0:
		value := strings.TrimSpace(string(line[bytes.IndexByte(line, ':')+1:]))
		switch name {
		case "METHOD":
			p.method = strings.ToUpper(value)
		case "X-WR-TIMEZONE":
			if p.doc.zone == "" && len(value) <= 200 {
				p.doc.zone = value
			}
		}
	case p.path[0] == "VEVENT" && len(p.path) == 1:
		switch name {
		case "ATTENDEE":
			p.guests++
		case "DTSTART", "DTEND", "RECURRENCE-ID", "EXDATE", "RDATE":
			p.sketch.add(name, line)
			if bytes.IndexByte(line, '"') < 0 && bytes.ContainsAny(line, ",(") {
				line = []byte(quoteZone(string(line)))
			}
			p.keep(name, line)
		case "UID", "DURATION", "RRULE", "SEQUENCE", "LAST-MODIFIED", "DTSTAMP":
			p.sketch.add(name, line)
			p.keep(name, line)
		case "EXRULE", "STATUS", "TRANSP", "PRIORITY", "SUMMARY", "LOCATION", "DESCRIPTION", "ORGANIZER", "X-MICROSOFT-CDO-ALLDAYEVENT":
			p.keep(name, line)
		}
	case p.path[0] == "VTIMEZONE" && len(p.path) <= 2:
		switch name {
		case "TZID", "DTSTART", "TZOFFSETFROM", "TZOFFSETTO", "RRULE", "RDATE":
			p.keep(name, line)
		}
	}
}

// keep adds a line to the component at hand, with its name in capitals.
func (p *parser) keep(name string, line []byte) {
	if len(p.text)+len(line) > maxComponentBytes {
		p.tooBig = true
		return
	}
	p.text = append(append(p.text, name...), toUTF8(line[len(name):])...)
	p.text = append(p.text, "\r\n"...)
}

// quoteZone quotes the zone in the parameters of a line of dates, which some
// programs forget when the zone is named "(UTC+01:00) Amsterdam, Berlin".
func quoteZone(rest string) string {
	i := strings.Index(strings.ToUpper(rest[:min(len(rest), maxParameterBytes)]), ";TZID=")
	if i < 0 {
		return rest
	}
	begin := i + 6
	colon := strings.IndexByte(rest[begin:], ':')
	if colon < 0 {
		return rest
	}
	colon += begin
	if !strings.ContainsAny(rest[begin:colon], ",(") {
		return rest
	}
	// Lists of dates hold no colon.
	colon = strings.LastIndexByte(rest, ':')
	name := rest[begin:colon]
	more := ""
	if j := strings.IndexByte(name, ';'); j >= 0 {
		name, more = name[:j], name[j:]
	}
	return rest[:begin] + `"` + strings.ReplaceAll(name, `"`, "") + `"` + more + rest[colon:]
}

// toUTF8 returns line as valid UTF-8. What is not is windows-1252, as Windows
// programs write it, unless some of it is UTF-8.
func toUTF8(line []byte) []byte {
	if utf8.Valid(line) {
		return line
	}
	for _, r := range string(line) {
		if r >= utf8.RuneSelf && r != utf8.RuneError {
			return bytes.ToValidUTF8(line, []byte("\uFFFD"))
		}
	}
	s, _ := charmap.Windows1252.NewDecoder().Bytes(line)
	return bytes.ToValidUTF8(s, []byte("\uFFFD"))
}

func (p *parser) event() {
	if p.tooBig {
		p.doc.fail(fmt.Errorf("event larger than %d KiB", maxComponentBytes>>10))
		return
	}
	switch p.method {
	case "REPLY", "COUNTER", "DECLINECOUNTER", "REFRESH":
		// Messages about an event, not events.
		return
	}
	if p.doc.weight >= p.maxWeight {
		p.doc.full = true
		return
	}
	if s := &p.sketch; s.far(p.near) {
		p.doc.weight++
		sequence, _ := strconv.Atoi(s.sequence)
		p.doc.events = append(p.doc.events, &event{uid: s.uid, sequence: sequence, modified: s.modified, stamped: s.stamped})
		return
	}
	p.doc.weight += liveWeight
	c, err := p.decoder.decode(string(p.text))
	if err != nil {
		p.doc.fail(err)
		return
	}
	e, err := newEvent(c)
	if err != nil {
		p.doc.fail(err)
	}
	if e == nil {
		return
	}
	e.attendees, e.hasAlarms = p.guests, p.alarms
	e.cancelled = e.cancelled || p.method == "CANCEL"
	p.doc.events = append(p.doc.events, e)
}

func (p *parser) timezone() {
	if p.tooBig || len(p.doc.zones) >= maxZones {
		return
	}
	c, err := p.decoder.decode(string(p.text))
	if err != nil {
		return
	}
	if tzid, z, err := parseZone(c); err == nil && p.doc.zones[tzid] == nil {
		p.doc.zones[tzid] = z
	}
}

// decoder decodes components.
type decoder struct {
	// in is what go-ical reads from: left to itself it takes a new buffer of
	// 4 KiB for each component.
	in *bufio.Reader
}

// decode decodes the text of one component, of which it drops the lines that
// are malformed.
func (d *decoder) decode(text string) (*ical.Component, error) {
	if c, err := d.strictly(text); err == nil {
		return c, nil
	}
	var good strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "BEGIN:") || strings.HasPrefix(line, "END:") {
			good.WriteString(line)
			continue
		}
		value := strings.IndexByte(line, ':')
		if value < 0 || value > maxParameterBytes {
			continue
		}
		if _, err := d.strictly("BEGIN:X\r\n" + line + "END:X\r\n"); err == nil {
			good.WriteString(line)
		} else if name := strings.IndexByte(line, ';'); name > 0 && name < value {
			// Better without its parameters than not at all, but for a date: it
			// would become another one.
			switch line[:name] {
			case "DTSTART", "DTEND", "RECURRENCE-ID", "EXDATE", "RDATE":
			default:
				good.WriteString(line[:name] + line[value:])
			}
		}
	}
	return d.strictly(good.String())
}

// strictly runs go-ical on one component. It panics on some parameters that end
// too early.
func (d *decoder) strictly(text string) (c *ical.Component, err error) {
	defer func() {
		if recover() != nil {
			c, err = nil, errDecode
		}
	}()
	for line := range strings.Lines(text) {
		if !wellFormed(line) {
			return nil, errDecode
		}
	}
	in := strings.NewReader("BEGIN:VCALENDAR\r\n" + text + "END:VCALENDAR\r\n")
	if d.in == nil {
		d.in = bufio.NewReader(in)
	} else {
		d.in.Reset(in)
	}
	calendar, err := ical.NewDecoder(d.in).Decode()
	if err != nil || len(calendar.Children) != 1 {
		return nil, errDecode
	}
	return calendar.Children[0], nil
}

// wellFormed tells whether every parameter of line has a name and "=", and all
// of them together at most maxParameterBytes.
func wellFormed(line string) bool {
	name := strings.IndexAny(line, ";:")
	if name <= 0 {
		return false
	}
	quoted, equals := false, true
	for i := name; i < len(line) && i <= maxParameterBytes; i++ {
		switch c := line[i]; {
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '=':
			equals = equals || line[i-1] != ';'
		case c == ';', c == ':':
			if !equals {
				return false
			} else if c == ':' {
				return true
			}
			equals = false
		}
	}
	return false
}

// newEvent reads a VEVENT. What is wrong beside the start is an error too, but
// the event is there without it.
func newEvent(c *ical.Component) (e *event, problem error) {
	p := c.Props
	e = &event{
		uid:         strings.Clone(strings.TrimSpace(first(p, "UID"))),
		modified:    strings.Clone(first(p, "LAST-MODIFIED")),
		stamped:     strings.Clone(first(p, "DTSTAMP")),
		summary:     compose.OneLine(unescape(first(p, "SUMMARY")), 150),
		location:    compose.OneLine(unescape(first(p, "LOCATION")), 100),
		description: describe(unescape(first(p, "DESCRIPTION"))),
		tentative:   strings.EqualFold(first(p, "STATUS"), "TENTATIVE"),
		cancelled:   strings.EqualFold(first(p, "STATUS"), "CANCELLED") || strings.EqualFold(first(p, "STATUS"), "CANCELED"),
		transparent: strings.EqualFold(first(p, "TRANSP"), "TRANSPARENT"),
	}
	e.sequence, _ = strconv.Atoi(first(p, "SEQUENCE"))
	e.priority, _ = strconv.Atoi(first(p, "PRIORITY"))
	if o := p.Get("ORGANIZER"); o != nil {
		name := o.Params.Get("CN")
		if name == "" && len(o.Value) > 7 && strings.EqualFold(o.Value[:7], "mailto:") {
			name = o.Value[7:]
		}
		e.organizer = compose.OneLine(strings.NewReplacer("^n", " ", "^'", `"`, "^^", "^").Replace(name), 60)
	}
	start := p.Get("DTSTART")
	if start == nil {
		return nil, errNoStart
	}
	var err error
	if e.start, err = dateOf(start, start.Value); err != nil {
		return nil, fmt.Errorf("DTSTART: %w", err)
	}
	fail := func(what string, err error) {
		if err != nil && problem == nil {
			problem = fmt.Errorf("%s: %w", what, err)
		}
	}
	if end := p.Get("DTEND"); end != nil {
		s, err := dateOf(end, end.Value)
		if fail("DTEND", err); err == nil {
			e.end = &s
		}
	} else if d := p.Get("DURATION"); d != nil {
		e.length, err = parseDuration(d.Value)
		fail("DURATION", err)
	}
	if strings.EqualFold(first(p, "X-MICROSOFT-CDO-ALLDAYEVENT"), "TRUE") && e.start.midnight() && (e.end == nil || e.end.midnight()) {
		// Outlook writes some days as times from midnight to midnight.
		e.start = stamp{wall: e.start.wall, date: true}
		if e.end != nil {
			e.end = &stamp{wall: e.end.wall, date: true}
		}
	}
	for _, r := range p["RRULE"] {
		if strings.TrimSpace(r.Value) == "" {
			continue
		}
		parsed, err := parseRule(r.Value)
		if fail("RRULE", err); err == nil {
			e.rules = append(e.rules, parsed)
		}
	}
	for _, r := range p["EXRULE"] {
		if parsed, err := parseRule(r.Value); err == nil {
			e.exrules = append(e.exrules, parsed)
		}
	}
	for _, dates := range p["EXDATE"] {
		for value := range strings.SplitSeq(dates.Value, ",") {
			if s, err := dateOf(&dates, value); err == nil && len(e.exdates) < maxDates {
				e.exdates = append(e.exdates, s)
			}
		}
	}
	for _, dates := range p["RDATE"] {
		for value := range strings.SplitSeq(dates.Value, ",") {
			if i, err := instanceOf(&dates, value); err == nil && len(e.rdates) < maxDates {
				e.rdates = append(e.rdates, i)
			}
		}
	}
	if id := p.Get("RECURRENCE-ID"); id != nil {
		s, err := dateOf(id, id.Value)
		if err != nil {
			// It would pass for the whole series.
			return nil, fmt.Errorf("RECURRENCE-ID: %w", err)
		}
		e.recurrence = &s
		e.andFuture = strings.EqualFold(id.Params.Get("RANGE"), "THISANDFUTURE")
	}
	return e, problem
}

// dateOf reads one value of a property of dates.
func dateOf(p *ical.Prop, value string) (stamp, error) {
	s, err := parseStamp(value)
	if err == nil && !s.utc && !s.date {
		s.tzid = strings.Clone(p.Params.Get("TZID"))
	}
	return s, err
}

// instanceOf reads one value of RDATE, a date, a time or a period.
func instanceOf(p *ical.Prop, value string) (instance, error) {
	begin, end, isPeriod := strings.Cut(value, "/")
	s, err := dateOf(p, begin)
	if err != nil || !isPeriod {
		return instance{start: s}, err
	}
	if length, err := parseDuration(end); err == nil {
		return instance{start: s, length: &length}, nil
	}
	e, err := dateOf(p, end)
	return instance{start: s, length: &span{wall: max(0, e.wall.Sub(s.wall))}}, err
}

// maxLength is the longest duration believed.
const maxLength = 100 * 366 * 24 * time.Hour

// parseDuration reads a duration such as "P1DT2H" or "PT45M". Days and weeks are
// wall time, the rest is exact. A negative one counts as none.
func parseDuration(value string) (span, error) {
	var s span
	rest, ok := strings.CutPrefix(strings.ToUpper(strings.TrimSpace(value)), "P")
	if !ok {
		rest, ok = strings.CutPrefix(rest, "+P")
	}
	if strings.HasPrefix(rest, "-P") {
		return s, nil
	}
	if !ok || rest == "" {
		return s, fmt.Errorf("%.20q: no duration", value)
	}
	for inTime := false; rest != ""; {
		if rest[0] == 'T' && !inTime {
			inTime, rest = true, rest[1:]
			continue
		}
		digits := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
		if digits < 1 {
			return s, fmt.Errorf("%.20q: no duration", value)
		}
		n, err := strconv.ParseInt(rest[:digits], 10, 32)
		if err != nil {
			return s, fmt.Errorf("%.20q: no duration", value)
		}
		d := time.Duration(n)
		switch unit := rest[digits]; {
		case unit == 'W' && !inTime:
			s.wall += min(d, maxLength/(7*24*time.Hour)) * 7 * 24 * time.Hour
		case unit == 'D' && !inTime:
			s.wall += min(d, maxLength/(24*time.Hour)) * 24 * time.Hour
		case unit == 'H' && inTime:
			s.exact += min(d, maxLength/time.Hour) * time.Hour
		case unit == 'M' && inTime:
			s.exact += min(d, maxLength/time.Minute) * time.Minute
		case unit == 'S' && inTime:
			s.exact += min(d, maxLength/time.Second) * time.Second
		default:
			return s, fmt.Errorf("%.20q: no duration", value)
		}
		s.wall, s.exact = min(s.wall, maxLength), min(s.exact, maxLength)
		rest = rest[digits+1:]
	}
	return s, nil
}

// unescape decodes a TEXT value. A comma that should have been escaped stays.
func unescape(value string) string {
	if !strings.Contains(value, `\`) {
		return value
	}
	var b strings.Builder
	b.Grow(len(value))
	for i := 0; i < len(value); i++ {
		c := value[i]
		if c == '\\' && i+1 < len(value) {
			i++
			if c = value[i]; c == 'n' || c == 'N' {
				c = '\n'
			}
		}
		b.WriteByte(c)
	}
	return b.String()
}

// describe returns the begin of a description as one line, without markup and
// without what video conferences append.
func describe(text string) string {
	if len(text) > 8<<10 {
		text = strings.ToValidUTF8(text[:8<<10], "")
	}
	if strings.IndexByte(text, '<') >= 0 && (strings.Contains(text, "</") || strings.Contains(text, "<br") || strings.Contains(text, "<p>")) {
		text = stripTags(text)
	}
	var kept strings.Builder
	for line := range strings.Lines(text) {
		bare := strings.TrimSpace(line)
		if len(bare) >= 8 && strings.Trim(bare, "_-─=*~:#.") == "" {
			// A rule across the page: the invitation to a call follows.
			break
		}
		kept.WriteString(line)
	}
	return compose.OneLine(kept.String(), maxTextRunes)
}

func stripTags(text string) string {
	var b strings.Builder
	for text != "" {
		open := strings.IndexByte(text, '<')
		if open < 0 {
			break
		}
		b.WriteString(text[:open])
		text = text[open:]
		end := strings.IndexByte(text, '>')
		if end < 0 {
			break
		}
		switch tag := strings.ToLower(strings.Trim(text[1:end], "/ ")); {
		case tag == "br", tag == "p", tag == "div", tag == "li", tag == "tr", tag == "ul", tag == "ol", tag == "hr":
			b.WriteByte('\n')
		}
		text = text[end+1:]
	}
	if !strings.HasPrefix(text, "<") {
		b.WriteString(text)
	}
	return strings.NewReplacer("&nbsp;", " ", "&lt;", "<", "&gt;", ">", "&quot;", `"`, "&#39;", "'", "&amp;", "&").Replace(b.String())
}
