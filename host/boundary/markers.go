package boundary

// span is text[start:end].
type span struct{ start, end int }

// The families whose markers are found by their name alone, with or without
// brackets: the frame's own, and that of hosts whose transcripts are imported.
const (
	frameName = "extcontent"
	hostBegin = "beginopenclawinternalcontext"
	hostEnd   = "endopenclawinternalcontext"
)

// labelName begins the frame's label, cutName stands in every cut mark.
const (
	labelName = "externalcontentfrom"
	cutName   = "moretokens"
)

// Names in the folded view, that is in lower case and without separators.
var (
	// angled stand in < and >. Those of one letter are real: they begin and end
	// a text in the Llama and Mistral vocabularies. The <s> of a struck-out
	// word in an HTML mail goes with them; a hand that reads HTML is to say
	// what it read as text.
	angled = []string{
		"s", "/s", "startofturn", "endofturn", "bos", "eos", "think", "/think",
		"toolcall", "/toolcall", "toolresponse", "/toolresponse",
	}
	// doubled stand in << and >>.
	doubled = []string{"sys", "/sys"}
	// squared stand in [ and ].
	squared = []string{
		"inst", "/inst", "systemprompt", "/systemprompt", "availabletools", "/availabletools",
		"toolcalls", "/toolcalls", "toolresults", "/toolresults",
		"internaltaskcompletionevent", "intersessionmessage",
		"retryafterthepreviousmodelattemptfailedortimedout",
	}
	// squaredStarts stand after a [ and before words that vary.
	squaredStarts = []string{
		"contextrefresh", labelName, "anearliercontextrefresh", "theconversationbegan",
	}
	// piped begin what stands in <| and |>. Any single word does, but these are
	// known with spaces around them too, where another could be two operators
	// of a functional language.
	piped = []string{
		"im", "system", "user", "assistant", "human", "tool", "start", "end", "begin", "eot", "eom", "eos", "bos",
		"/im", "/system", "/user", "/assistant", "fim", "python", "message", "channel", "return", "call", "constrain", "header",
	}
	// schemes begin the URIs of sources.
	schemes = []string{"hand", "summary", "tool", "external"}
	// roles stand at the start of a line and before a colon. They are the ones
	// that models were trained to continue from and that mails seldom begin a
	// line with; "User:", "Tool:" and "Developer:" are ordinary there.
	roles = []string{"system", "assistant", "human"}
	// breakTags begin a line where a reader sees HTML; typeTags only change how
	// a word looks.
	breakTags = []string{
		"br", "p", "div", "li", "tr", "td", "th", "hr", "ul", "ol", "dt", "dd", "pre", "table", "section", "blockquote",
		"h1", "h2", "h3", "h4", "h5", "h6",
	}
	typeTags = []string{"b", "i", "u", "s", "em", "code", "kbd", "tt", "span", "font", "strong", "mark", "del", "a"}
)

const (
	// maxPiped bounds the letters between <| and |>.
	maxPiped = 64
	// maxTag bounds an HTML tag that begins a line or stands before a role.
	maxTag = 64
	// maxListNumber bounds the digits of a list item's number.
	maxListNumber = 4
	// maxLabel bounds a label of the frame: the URI of a source and its words.
	maxLabel = 128
	// maxCutNumber bounds what stands for the number in a cut mark.
	maxCutNumber = 16
	// maxWord bounds the letters of a word that the frame's name ends.
	maxWord = 64
	// An id of the frame is 32 digits; half of one is still no word.
	idDigits = 16
	// The least hexadecimal digits that are an id and not the start of a word.
	uuidDigits = 8
)

// findMarkers returns the markers in a folded view, in order and, but for
// spans of one shared code point, apart. It takes time linear in len(cells):
// every rule looks at a bounded number of cells, or at cells that no rule of
// its kind looks at again.
func findMarkers(cells []cell) []span {
	v := view{cells: cells}
	var found []span
	for i := 0; i < len(cells); {
		if c := &cells[i]; !begins[c.char] && c.gap&gapLine == 0 && i != v.broken && i != v.prefix.start {
			i++
			continue
		}
		start, end := v.markerAt(i)
		if end == 0 {
			i++
			continue
		}
		found = append(found, span{cells[start].start, cells[end-1].end})
		v.done, i = end, end
	}
	return found
}

// view is a folded view that is being read. Its methods take and return
// indexes of cells; an end of 0 means that there is no match.
type view struct {
	cells []cell
	// Cells before done are part of markers already found.
	done int
	// Cells before skipped were skipped on the way to a role.
	skipped int
	// The last role prefix, found at the start of its line.
	prefix struct{ start, end int }
	// The cell after the last HTML tag that begins a line.
	broken int
}

// char returns the character at i, opaque beyond the end.
func (v *view) char(i int) byte {
	if i < len(v.cells) {
		return v.cells[i].char
	}
	return opaque
}

// gapBefore returns the gap before i, none beyond the end.
func (v *view) gapBefore(i int) gap {
	if i < len(v.cells) {
		return v.cells[i].gap
	}
	return 0
}

// begins says of which characters markerAt may make a marker that does not begin a
// line.
var begins = func() (may [256]bool) {
	for _, c := range []byte{'<', quoteOpen, '[', 'e', '3', 'b', 'c'} {
		may[c] = true
	}
	return may
}()

// markerAt returns the marker whose first or, where brackets stand before a
// name, first named cell is i.
func (v *view) markerAt(i int) (start, end int) {
	if v.cells[i].gap&gapLine != 0 || i > 0 && i == v.broken {
		v.role(i)
	}
	// What stands before a role has been looked at by now for what it is.
	if i == v.prefix.start && v.prefix.end != 0 {
		return i, v.prefix.end
	}
	switch c := v.cells[i].char; {
	case isOpen(c):
		if end = v.tag(i, breakTags); end != 0 {
			v.broken = end
		}
		return i, v.token(i)
	case c == '[':
		return i, v.square(i)
	case like(c, 'e'):
		if next := v.char(i + 1); next != 'x' && !like(next, 'n') {
			return 0, 0
		}
		if start, end = v.label(i); end != 0 {
			return start, end
		}
		return v.named(i)
	case c == 'b':
		return v.named(i)
	case c == 'c':
		return v.cutMark(i)
	}
	return 0, 0
}

// role looks for a role prefix on the line that begins at i, also in a
// quotation, a heading, a list, a table, code, bold type or brackets. Its colon
// may stand on the next line.
func (v *view) role(i int) {
	// A line break in HTML begins a line within one that was looked at.
	if i < v.skipped {
		return
	}
	start := i
	for {
		next := v.beforeRole(start)
		if next == start {
			break
		}
		for k := start + 1; k <= next; k++ {
			if v.gapBefore(k)&gapLine != 0 {
				v.skipped = k
				return
			}
		}
		start = next
	}
	v.skipped = start
	for _, name := range roles {
		end := v.word(start, name)
		if end == 0 {
			continue
		}
		for end-start < maxPiped {
			if after := v.tag(end, typeTags); after != 0 {
				end = after
			} else if isDressing(v.char(end)) {
				end++
			} else {
				break
			}
		}
		if v.char(end) == ':' && v.gaps(start+1, end)&gapLine == 0 {
			v.prefix.start, v.prefix.end = start, end+1
			return
		}
	}
}

// beforeRole returns the end of one thing at i that may stand between the
// start of a line and a role, i if there is none.
func (v *view) beforeRole(i int) (end int) {
	switch c := v.char(i); {
	case isOpen(c):
		if end = v.tag(i, typeTags); end != 0 {
			return end
		}
		if end = v.tag(i, breakTags); end != 0 {
			return end
		}
		return i + 1
	case isDressing(c), c == ':':
		return i + 1
	}
	// The number of a list item.
	end = i
	for end-i < maxListNumber && '0' <= v.char(end) && v.char(end) <= '9' {
		end++
	}
	if end > i && (v.gapBefore(end)&gapDash != 0 || isDressing(v.char(end)) || v.char(end) == ':') {
		return end
	}
	return i
}

// isDressing reports whether c is punctuation that may surround a role: marks
// of headings, type, tables and quotations, brackets.
func isDressing(c byte) bool {
	switch c {
	case '#', '*', '|', '/', '[', ']', wrapping, roundOpen:
		return true
	}
	return isOpen(c) || isClose(c)
}

// tag matches an HTML tag of one of names, opening or closing, at i.
func (v *view) tag(i int, names []string) (end int) {
	if v.char(i) != '<' {
		return 0
	}
	first := i + 1
	if v.char(first) == '/' {
		first++
	}
	for _, name := range names {
		end = v.word(first, name)
		if end == 0 || v.gapBefore(end) == 0 && v.char(end) != '>' && v.char(end) != '/' {
			continue
		}
		for ; end-i < maxTag && end < len(v.cells) && v.char(end) != '<'; end++ {
			if v.char(end) == '>' {
				return end + 1
			}
		}
		return 0
	}
	return 0
}

// label matches the frame's label where no square bracket opens it: in another
// bracket, or with a source of the host or the warning behind its first words,
// for these alone are plain words.
func (v *view) label(i int) (start, end int) {
	first := v.word(i, labelName)
	if first == 0 {
		return 0, 0
	}
	if i > v.done && (v.char(i-1) == roundOpen || isOpen(v.char(i-1))) {
		return i - 1, first
	}
	for _, scheme := range schemes {
		if k := v.word(first, scheme); k != 0 && v.char(k) == ':' {
			end = k + 1
		}
	}
	for k := first; k < len(v.cells) && k-first < maxLabel; k++ {
		if warned := v.word(k, "treatasuntrusted"); warned != 0 {
			return i, warned
		}
	}
	return i, end
}

// cutMark matches the mark of a text that was cut to its limit, at its first
// word. Only the host may say that there is more.
func (v *view) cutMark(i int) (start, end int) {
	end = v.word(i, "cut")
	if end == 0 {
		return 0, 0
	}
	start = i
	if i > v.done && v.char(i-1) == '[' {
		start--
	}
	if v.char(end) == ':' {
		end++
	} else if start == i {
		return 0, 0
	}
	for number := end; end-number < maxCutNumber; end++ {
		if words := v.word(end, cutName); words != 0 && end > number {
			if v.char(words) == ']' {
				words++
			}
			return start, words
		}
	}
	return 0, 0
}

// token matches a chat-template token that begins with the bracket at i.
func (v *view) token(i int) (end int) {
	if v.char(i+1) == '|' {
		return v.pipe(i)
	}
	if isOpen(v.char(i + 1)) {
		for _, name := range doubled {
			if end = v.word(i+2, name); end != 0 && isClose(v.char(end)) && isClose(v.char(end+1)) {
				return end + 2
			}
		}
		return 0
	}
	for _, name := range angled {
		if end = v.word(i+1, name); end != 0 && isClose(v.char(end)) && !v.isQuoted(i, end) {
			return end + 1
		}
	}
	return 0
}

// isQuoted reports whether the brackets at open and shut hold one letter as
// quotation marks do: «s» is a quotation, <s> and ‹think› are not.
func (v *view) isQuoted(open, shut int) bool {
	return (v.char(open) == quoteOpen || v.char(shut) == quoteClose) && like(v.char(shut-1), 's') &&
		(shut-open == 2 || shut-open == 3 && v.char(open+1) == '/')
}

// pipe matches <|word|> whose bracket is at i.
func (v *view) pipe(i int) (end int) {
	const first = 2
	end = i + first
	for end-i-first < maxPiped && (isLowerDigit(v.char(end)) || v.char(end) == '/') {
		end++
	}
	if end == i+first || v.char(end) != '|' || !isClose(v.char(end+1)) {
		return 0
	}
	end += 2
	if v.gaps(i+1, end)&(gapSpace|gapLine) == 0 {
		return end
	}
	for _, name := range piped {
		if v.word(i+first, name) != 0 {
			return end
		}
	}
	return 0
}

// square matches a marker in square brackets that begins at i.
func (v *view) square(i int) (end int) {
	for _, name := range squared {
		if end = v.word(i+1, name); end != 0 && v.char(end) == ']' {
			return end + 1
		}
	}
	for _, name := range squaredStarts {
		if end = v.word(i+1, name); end != 0 {
			return end
		}
	}
	if end = v.word(i+1, "summary"); end != 0 && v.hexRun(end, uuidDigits) == uuidDigits {
		return end + uuidDigits
	}
	return 0
}

// named matches a marker known by its name, which begins at i, together with
// the brackets and slashes before it and the id and brackets behind it.
func (v *view) named(i int) (start, end int) {
	start = i
	end = v.word(i, frameName)
	if end != 0 && v.followsWord(i, end) {
		var dressed bool
		if start, dressed = v.dressed(i, end); !dressed {
			return 0, 0
		}
	}
	if end == 0 {
		end = v.word(i, hostBegin)
	}
	if end == 0 {
		end = v.word(i, hostEnd)
	}
	if end == 0 {
		return 0, 0
	}
	for start > v.done && (isOpen(v.char(start-1)) || v.char(start-1) == '/') {
		start--
	}
	switch g := v.gapBefore(end); {
	case g&(gapSpace|gapLine) != 0:
	case g&gapUnderscore != 0:
		for id := end; isLowerDigit(v.char(end)) && (end == id || v.cells[end].gap == 0); {
			end++
		}
	default:
		if n := v.hexRun(end, len(v.cells)); n >= uuidDigits {
			end += n
		}
	}
	for isClose(v.char(end)) {
		end++
	}
	return start, end
}

// followsWord reports whether the frame's name at cells [i:end) may be the end
// of words like "text content", "nextContent" or "context.content": plain
// ASCII, straight after the t or n of its first word, with no id behind it.
func (v *view) followsWord(i, end int) bool {
	if i <= v.done {
		return false
	}
	if before := v.cells[i-1]; !before.plain || before.end != v.cells[i].start || before.char != 't' && before.char != 'n' {
		return false
	}
	for _, c := range v.cells[i:end] {
		if !c.plain {
			return false
		}
	}
	return v.hexRun(end, idDigits) < idDigits
}

// dressed reports whether what followsWord takes for words wears a marker's
// brackets or id all the same, and where a marker that begins with those words
// starts. One bracket with a space between is a comparison, as in
// "i < textContent", and an underscore may go on with a name, as in
// "text_content_type".
func (v *view) dressed(i, end int) (start int, ok bool) {
	start = i - 1
	for start > v.done && i-start < maxWord && isLowerDigit(v.char(start-1)) && v.gapBefore(start)&(gapSpace|gapLine) == 0 {
		start--
	}
	first, opens := start, 0
	for first > v.done && (isOpen(v.char(first-1)) || v.char(first-1) == '/') {
		if first--; isOpen(v.char(first)) {
			opens++
		}
	}
	if opens > 1 || opens == 1 && v.gapBefore(start)&(gapSpace|gapLine) == 0 {
		return start, true
	}
	after := v.gapBefore(end)
	if isClose(v.char(end)) && (after&(gapSpace|gapLine) == 0 || isClose(v.char(end+1))) {
		return i, true
	}
	if after&gapUnderscore == 0 || after&(gapSpace|gapLine) != 0 {
		return i, false
	}
	snake := v.gaps(i+1, end)&gapUnderscore != 0
	for id := end; isLowerDigit(v.char(id)) && (id == end || v.cells[id].gap == 0); id++ {
		if !snake || v.char(id) <= '9' {
			return i, true
		}
	}
	return i, !snake
}

// word returns the end of name at i.
func (v *view) word(i int, name string) (end int) {
	if len(name) > len(v.cells)-i {
		return 0
	}
	for k := range len(name) {
		if !like(v.cells[i+k].char, name[k]) {
			return 0
		}
	}
	return i + len(name)
}

// gaps returns the union of the gaps before each cell in [from:to).
func (v *view) gaps(from, to int) gap {
	var all gap
	for _, c := range v.cells[from:to] {
		all |= c.gap
	}
	return all
}

// hexRun counts the hexadecimal digits from i on, up to most.
func (v *view) hexRun(i, most int) int {
	n := 0
	for n < most && isLowerHex(v.char(i+n)) {
		n++
	}
	return n
}

func isOpen(c byte) bool  { return c == '<' || c == quoteOpen }
func isClose(c byte) bool { return c == '>' || c == quoteClose }

// like reports whether a reader may take the folded character c for the letter
// want: digits that stand for letters, and what one table cannot decide (a
// Cyrillic Н is an h or, to a Russian, an n).
func like(c, want byte) bool {
	if c == want {
		return true
	}
	switch want {
	case 'a':
		return c == '4'
	case 'e':
		return c == '3'
	case 'i', 'l':
		return c == 'i' || c == 'l' || c == '1' || c == '|'
	case 'n':
		return c == 'h' || c == 'v'
	case 'o':
		return c == '0'
	case 's':
		return c == '5'
	case 't':
		return c == '7'
	}
	return false
}
