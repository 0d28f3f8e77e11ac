package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"mime"
	netmail "net/mail"
	"strconv"
	"strings"
	"time"

	"github.com/gloveboxhq/glovebox/plugins/internal/compose"

	"github.com/emersion/go-message"
	"github.com/emersion/go-message/textproto"
)

// Bounds of what is remembered of one mail.
const (
	maxSubject     = 160 // runes
	maxName        = 60  // runes
	maxAddress     = 100 // bytes; longer ones are cut when shown
	maxQuote       = 200 // runes
	maxReferences  = 12
	maxRecipients  = 24
	maxAttachments = 3 // named ones
	maxParts       = 64
	maxDepth       = 8 // of parts within parts
)

// messageID identifies a mail; the zero value is no identity.
type messageID [16]byte

// mark is what a mailbox has recorded of a mail.
type mark struct {
	// known says that the mailbox records at all whether a mail was read.
	known, seen, flagged, answered bool
	// discarded mail is a draft, or was thrown away, or is spam by label.
	discarded bool
}

// mailMessage is what is kept of a mail. Its strings are single lines of
// bounded length, in UTF-8.
type mailMessage struct {
	mark
	id         messageID
	references []messageID
	arrived    time.Time
	fromName   string
	// from is the address in lower case.
	from   string
	to, cc []string // addresses in lower case
	// written is the Date as seconds since 1970, 0 if there is none. Copies of
	// a mail agree in it, whatever way they came.
	written int64
	// subject is as it was sent; topic is the same without "Re:" and case,
	// so that a thread is one topic.
	subject, topic string
	quote          string
	attachments    []string // the first maxAttachments
	attached       int      // all that were seen
	cut            bool     // the mail goes on behind what was read
	// calendar is "invitation", "cancellation" or "" if it is neither.
	calendar  string
	encrypted bool
	important bool
	// bulk is a newsletter, a list's mail or a notification by its header.
	bulk, spam bool
	sent       bool // written by the user
}

// rawMail is a mail as it was stored.
type rawMail struct {
	header, body []byte
	// whole says that body is all of the mail's body.
	whole bool
	// stored is when the mailbox says that the mail came, zero if it does not.
	stored time.Time
	mark   mark
	// mbox says that the header may carry the marks of an mbox file. In other
	// mailboxes these fields are the sender's and not believed.
	mbox bool
	sent bool
}

var (
	errNotMail   = errors.New("not a mail: no header field that mail has")
	errHeaderBig = errors.New("header over 256 KiB")
	errNoTime    = errors.New("no usable date")
	errEmpty     = errors.New("empty")
)

// parseHeader reads a header block. Lines that are no header fields, which the
// library refuses, are left out.
func parseHeader(block []byte) (message.Header, error) {
	var clean bytes.Buffer
	clean.Grow(len(block) + 2)
	field := false // the line before belongs to a field that is kept
	for line := range bytes.Lines(block) {
		text := bytes.TrimRight(line, "\r\n")
		if len(text) == 0 {
			continue
		}
		if text[0] != ' ' && text[0] != '\t' {
			name, _, ok := bytes.Cut(text, []byte(":"))
			name = bytes.TrimRight(name, " \t")
			field = ok && len(name) > 0 && bytes.IndexFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
		}
		if field {
			clean.Write(bytes.ReplaceAll(text, []byte{'\r'}, []byte{' '}))
			clean.WriteString("\r\n")
		}
	}
	clean.WriteString("\r\n")
	h, err := textproto.ReadHeader(bufio.NewReader(&clean))
	return message.Header{Header: h}, err
}

// parseMail reads a mail. wantText tells whether its words will be shown; it is
// asked once the header is read. It returns nil without an error if the mail
// did not arrive in w, and an error if raw is no mail; a mail whose body is
// broken is used as far as it goes.
func parseMail(raw rawMail, w window, wantText func(*mailMessage) bool) (*mailMessage, error) {
	if len(bytes.TrimSpace(raw.header)) == 0 {
		return nil, errEmpty
	}
	h, err := parseHeader(raw.header)
	if err != nil {
		return nil, err
	}
	if !h.Has("From") && !h.Has("Date") && !h.Has("Subject") && !h.Has("Message-Id") && !h.Has("Received") {
		return nil, errNotMail
	}
	m := &mailMessage{mark: raw.mark, sent: raw.sent}
	date, dated := parseDate(h.Get("Date"))
	if dated {
		m.written = date.Unix()
	}
	if m.arrived = arrival(date, h.Get("Received"), raw.stored, w); m.arrived.IsZero() {
		if raw.stored.After(w.now.Add(farFuture)) {
			// The mailbox is newer than the query: a past is replayed. The
			// sender has no say in when a mail was stored.
			return nil, nil
		}
		return nil, errNoTime
	}
	if !w.contains(m.arrived) {
		return nil, nil
	}
	if raw.mbox {
		m.readMboxMarks(h)
	}
	if m.discarded {
		return nil, nil
	}
	m.readHeader(h)
	// What a program sent may still turn out to be an invitation.
	if kind, _ := contentType(h); wantText(m) || !m.sent && (kind == "text/calendar" || calendarIn(raw.body) != "") {
		m.readBody(h, raw.body, raw.whole)
	}
	return m, nil
}

// arrival returns when a mail reached the user: the time of the newest Received
// line, the one at the top, where that is a little later than the Date, so that
// a mail which was hours on its way is in the window in which it could first be
// seen, and in one window only. Otherwise it is the Date, and for want of a
// credible one what the mailbox says; the zero time if nothing is credible.
func arrival(date time.Time, receivedLine string, stored time.Time, w window) time.Time {
	dated := w.plausible(date)
	var received time.Time
	if i := strings.LastIndexByte(receivedLine, ';'); i >= 0 {
		received, _ = parseDate(receivedLine[i+1:])
	}
	switch {
	case w.plausible(received) && (!dated || received.After(date) && received.Sub(date) <= longTransit):
		return received
	case dated:
		return date
	case w.plausible(stored):
		return stored
	}
	return time.Time{}
}

// parseDate reads a date as mail programs write it.
func parseDate(s string) (time.Time, bool) {
	s = strings.TrimSpace(s)
	if s == "" || len(s) > 256 {
		return time.Time{}, false
	}
	if i := strings.LastIndexByte(s, ' '); i >= 0 {
		// Go reads the name of a zone it does not know as UTC.
		if offset := zoneOffset(s[i+1:]); offset != "" {
			s = s[:i+1] + offset
		}
	}
	// The library tries many forms; most mail has this one.
	if t, err := time.Parse("Mon, 2 Jan 2006 15:04:05 -0700", s); err == nil {
		return t, true
	}
	if t, err := netmail.ParseDate(s); err == nil {
		return t, true
	}
	s, _, _ = strings.Cut(s, "(")
	s = strings.Join(strings.Fields(s), " ")
	for _, layout := range []string{
		"Mon, 2 Jan 2006 15:04:05 MST", "Mon, 2 Jan 2006 15:04:05", "2 Jan 2006 15:04:05", "Mon, 2 Jan 2006 15:04 -0700",
		"Mon, 2 Jan 2006 15:04:05 -07:00", "Mon, 2 Jan 06 15:04:05 -0700", "Monday, 2 Jan 2006 15:04:05 -0700",
		"Mon Jan 2 15:04:05 2006", "Mon Jan 2 15:04:05 2006 -0700", "Mon Jan 2 15:04:05 -0700 2006", "Mon Jan 2 15:04:05 MST 2006",
		"Mon, Jan 2 2006 15:04:05 -0700", time.RFC3339, "2006-01-02 15:04:05 -0700", "2006-01-02 15:04:05",
	} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// zoneOffset returns the offset of a zone that RFC 5322 or much mail names, ""
// for others.
func zoneOffset(name string) string {
	switch name {
	case "EDT":
		return "-0400"
	case "EST", "CDT":
		return "-0500"
	case "CST", "MDT":
		return "-0600"
	case "MST", "PDT":
		return "-0700"
	case "PST":
		return "-0800"
	case "CET", "MEZ":
		return "+0100"
	case "CEST", "MESZ", "EET":
		return "+0200"
	case "EEST", "MSK":
		return "+0300"
	case "JST":
		return "+0900"
	}
	return ""
}

func (m *mailMessage) readMboxMarks(h message.Header) {
	m.known = true
	status := h.Get("Status") + h.Get("X-Status")
	m.seen = strings.Contains(status, "R")
	m.answered = strings.Contains(status, "A")
	m.flagged = strings.Contains(status, "F")
	m.discarded = strings.Contains(status, "D") || strings.Contains(status, "T")
	if mozilla, err := strconv.ParseUint(h.Get("X-Mozilla-Status"), 16, 16); err == nil {
		const read, replied, marked, expunged = 0x1, 0x2, 0x4, 0x8
		m.seen = mozilla&read != 0
		m.answered = mozilla&replied != 0
		m.flagged = mozilla&marked != 0
		m.discarded = mozilla&expunged != 0
	}
	if h.Has("X-Gmail-Labels") {
		m.seen = true
		for label := range strings.SplitSeq(decodeWords(h.Get("X-Gmail-Labels")), ",") {
			switch strings.ToLower(strings.Trim(label, " \"")) {
			case "unread":
				m.seen = false
			case "starred":
				m.flagged = true
			case "important":
				// Gmail guesses it for most mail; it is no mark of the sender's.
			case "sent":
				m.sent = true
			case "spam", "trash", "draft", "drafts":
				m.discarded = true
			}
		}
	}
}

func (m *mailMessage) readHeader(h message.Header) {
	m.subject = compose.OneLine(decodeWords(h.Get("Subject")), maxSubject)
	m.topic = topicOf(m.subject)
	if senders := parseAddresses(h.Get("From"), 1); len(senders) > 0 {
		m.fromName = personName(senders[0].Name)
		m.from = strings.ToLower(compose.OneLine(senders[0].Address, maxAddress))
	}
	for _, a := range parseAddresses(joined(h, "To"), maxRecipients) {
		m.to = append(m.to, strings.ToLower(compose.OneLine(a.Address, maxAddress)))
	}
	for _, a := range parseAddresses(joined(h, "Cc"), maxRecipients) {
		m.cc = append(m.cc, strings.ToLower(compose.OneLine(a.Address, maxAddress)))
	}
	if m.id = idOf(h.Get("Message-Id")); m.id == (messageID{}) {
		m.id = idOf("no id\n" + m.from + "\n" + m.subject + "\n" + h.Get("Date"))
	}
	for _, name := range []string{"In-Reply-To", "References"} {
		// The last references are the nearest ancestors.
		ids := strings.FieldsFunc(joined(h, name), func(r rune) bool { return r == ' ' || r == ',' || r == '\t' })
		for _, id := range ids[max(0, len(ids)-maxReferences/2):] {
			if id := idOf(id); id != (messageID{}) {
				m.references = append(m.references, id)
			}
		}
	}
	m.important = isImportant(h)
	m.spam = strings.HasPrefix(strings.ToLower(h.Get("X-Spam-Flag")), "yes")
	m.bulk = isBulk(h, m.from)
}

func joined(h message.Header, name string) string {
	values := h.Values(name)
	return strings.Join(values[:min(len(values), 8)], ", ")
}

// idOf returns the identity that a Message-ID stands for. Hashing bounds what a
// long one costs.
func idOf(s string) messageID {
	s = strings.Trim(s, " \t<>")
	if s == "" {
		return messageID{}
	}
	sum := sha256.Sum256([]byte(s))
	return messageID(sum[:len(messageID{})])
}

// isImportant tells whether the sender says that the mail is urgent.
func isImportant(h message.Header) bool {
	first := func(name string) string {
		word, _, _ := strings.Cut(strings.ToLower(h.Get(name)), " ")
		return word
	}
	return first("Importance") == "high" || first("X-Msmail-Priority") == "high" || first("Priority") == "urgent" ||
		first("X-Priority") == "1" || first("X-Priority") == "2"
}

// isBulk tells whether a program wrote to many, by what such programs say in
// the header.
func isBulk(h message.Header, from string) bool {
	if h.Has("List-Unsubscribe") || h.Has("List-Id") || h.Has("Feedback-Id") {
		return true
	}
	switch strings.ToLower(h.Get("Precedence")) {
	case "bulk", "list", "junk":
		return true
	}
	// "auto-replied" is an answer to the user, such as a bounce or an absence.
	if strings.HasPrefix(strings.ToLower(h.Get("Auto-Submitted")), "auto-generated") {
		return true
	}
	local, _, _ := strings.Cut(from, "@")
	local = strings.NewReplacer("-", "", "_", "", ".", "").Replace(local)
	for _, name := range []string{"noreply", "donotreply", "neverreply"} {
		if strings.HasPrefix(local, name) || strings.HasSuffix(local, name) {
			return true
		}
	}
	return local == "newsletter" || local == "notifications" || local == "notification"
}

// topicOf returns subject without the marks of replies and forwards.
func topicOf(subject string) string {
	topic := strings.ToLower(subject)
	for {
		head, rest, ok := strings.Cut(topic, ":")
		head, _, _ = strings.Cut(strings.TrimSpace(head), "[") // "Re[2]"
		switch head {
		case "re", "fw", "fwd", "aw", "wg", "sv", "vs", "antw", "rv", "ref", "tr", "odp", "r", "i", "回复", "转发", "答复":
		default:
			ok = false
		}
		if !ok {
			return strings.TrimSpace(topic)
		}
		topic = strings.TrimSpace(rest)
	}
}

// parseAddresses reads an address list, up to most entries. What the standard
// refuses is read leniently, for much of it comes from real programs.
func parseAddresses(list string, most int) []netmail.Address {
	if list == "" {
		return nil
	}
	list = list[:min(len(list), 16<<10)]
	var found []netmail.Address
	for entry := range splitAddresses(list) {
		a, ok := parseAddress(entry)
		if !ok {
			continue
		}
		if found = append(found, a); len(found) == most {
			break
		}
	}
	return found
}

// splitAddresses yields the entries of an address list; groups are flattened.
func splitAddresses(list string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		start, quoted, angle, comment := 0, false, false, 0
		for i := 0; i < len(list); i++ {
			switch c := list[i]; {
			case c == '\\' && (quoted || comment > 0):
				i++
			case c == '"' && comment == 0:
				quoted = !quoted
			case quoted:
			case c == '(':
				comment++
			case c == ')' && comment > 0:
				comment--
			case comment > 0:
			case c == '<':
				angle = true
			case c == '>':
				angle = false
			case c == ':' && !angle:
				start = i + 1 // what precedes is a group's name
			case (c == ',' || c == ';') && !angle:
				if !yield(list[start:i]) {
					return
				}
				start = i + 1
			}
		}
		if start < len(list) {
			yield(list[start:])
		}
	}
}

// parseAddress reads "Name <address>", "address (Name)" or a bare address.
func parseAddress(entry string) (netmail.Address, bool) {
	entry = strings.TrimSpace(entry)
	if entry == "" {
		return netmail.Address{}, false
	}
	if open := strings.LastIndexByte(entry, '<'); open >= 0 {
		address, _, _ := strings.Cut(entry[open+1:], ">")
		return netmail.Address{Name: phrase(entry[:open]), Address: strings.TrimSpace(address)}, true
	}
	address, comment, _ := strings.Cut(entry, "(")
	if address = strings.TrimSpace(address); !strings.Contains(address, "@") {
		return netmail.Address{Name: phrase(entry)}, true
	}
	if i := strings.LastIndexAny(address, " \t"); i >= 0 && !strings.HasPrefix(address, `"`) {
		return netmail.Address{Name: phrase(address[:i]), Address: address[i+1:]}, true
	}
	return netmail.Address{Name: phrase(strings.TrimSuffix(comment, ")")), Address: address}, true
}

// phrase decodes the display name s.
func phrase(s string) string {
	s = strings.TrimSpace(s)
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		s = s[1 : len(s)-1]
	}
	s = decodeWords(s)
	if strings.Contains(s, `\`) {
		s = strings.NewReplacer(`\\`, `\`, `\"`, `"`).Replace(s)
	}
	return s
}

// personName returns a display name fit to stand before an address: with angle
// brackets it could pass for another address.
func personName(s string) string {
	return compose.OneLine(strings.NewReplacer("<", " ", ">", " ").Replace(s), maxName)
}

// calendarIn finds what an invitation's part says of itself without parsing the
// body.
func calendarIn(body []byte) string {
	i := bytes.Index(body, []byte("text/calendar"))
	if i < 0 {
		return ""
	}
	return calendarKind(string(body[i:min(len(body), i+200)]))
}

// calendarKind reads the method of a text/calendar part from its Content-Type.
func calendarKind(contentType string) string {
	line, _, _ := strings.Cut(strings.ToLower(contentType), "\n\n")
	switch {
	case strings.Contains(line, "method=reply"), strings.Contains(line, `method="reply"`):
		return ""
	case strings.Contains(line, "method=cancel"), strings.Contains(line, `method="cancel"`):
		return "cancellation"
	case strings.Contains(line, "method="):
		return "invitation"
	}
	return ""
}

// readBody takes from the body what the reply shows of it.
func (m *mailMessage) readBody(h message.Header, body []byte, whole bool) {
	m.cut = !whole
	b := bodyReader{mail: m}
	b.entity(h, bytes.NewReader(body), 0)
	text := b.plain
	if strings.TrimSpace(text) == "" {
		text = b.html
	}
	if !m.encrypted {
		m.quote = compose.OneLine(ownWords(text), maxQuote)
	}
}

// bodyReader walks the parts of one mail.
type bodyReader struct {
	mail        *mailMessage
	plain, html string
	parts       int
}

// entity reads one part and the parts in it. Whatever is broken ends the part;
// what was read before counts.
func (b *bodyReader) entity(h message.Header, body io.Reader, depth int) {
	if b.parts++; b.parts > maxParts || depth > maxDepth {
		return
	}
	kind, params := contentType(h)
	disposition, name := dispositionOf(h, params)
	if strings.HasPrefix(kind, "multipart/") {
		if kind == "multipart/encrypted" {
			b.mail.encrypted = true
			return
		}
		parts := textproto.NewMultipartReader(body, params["boundary"])
		for b.parts <= maxParts {
			part, err := parts.NextPart()
			if err != nil {
				return
			}
			b.entity(message.Header{Header: part.Header}, part, depth+1)
		}
		return
	}
	if kind == "text/calendar" && b.mail.calendar == "" {
		b.mail.calendar = calendarKind(h.Get("Content-Type"))
	}
	switch {
	case kind == "application/pkcs7-mime" || kind == "application/x-pkcs7-mime":
		b.mail.encrypted = !strings.Contains(params["smime-type"], "signed")
	case kind == "text/plain" && disposition != "attachment" && name == "":
		if strings.TrimSpace(b.plain) == "" {
			b.plain = partText(h, params, body)
		}
	case kind == "text/html" && disposition != "attachment":
		if strings.TrimSpace(b.html) == "" {
			b.html = htmlText([]byte(partText(h, params, body)))
		}
	case isAttachment(kind, disposition, name, h):
		if b.mail.attached++; len(b.mail.attachments) < maxAttachments {
			switch {
			case name != "":
				name = name[strings.LastIndexAny(name, `/\`)+1:]
			case kind == "message/rfc822":
				name = "a mail"
			default:
				name = kind
			}
			b.mail.attachments = append(b.mail.attachments, compose.OneLine(name, maxName))
		}
	}
}

// partText returns the decoded text of a part.
func partText(h message.Header, params map[string]string, body io.Reader) string {
	// The charset is applied here and not by the library, which has no fallback.
	var plain message.Header
	plain.Set("Content-Type", "application/octet-stream")
	encoding, _, _ := strings.Cut(h.Get("Content-Transfer-Encoding"), ";")
	plain.Set("Content-Transfer-Encoding", strings.TrimSpace(encoding))
	entity, _ := message.New(plain, body)
	// A broken encoding ends the text early.
	raw, _ := io.ReadAll(io.LimitReader(entity.Body, maxBodyBytes))
	return decodeCharset(raw, params["charset"])
}

// isAttachment tells whether a part that is not the mail's text is something
// the sender attached, and not an image of the text's layout or a signature.
func isAttachment(kind, disposition, name string, h message.Header) bool {
	switch kind {
	case "application/pgp-signature", "application/pkcs7-signature", "application/x-pkcs7-signature", "application/pgp-encrypted",
		"text/calendar", "text/x-amp-html", "message/delivery-status", "text/rfc822-headers":
		return false
	case "message/rfc822":
		return true
	}
	if disposition == "attachment" {
		return true
	}
	return name != "" && !(strings.HasPrefix(kind, "image/") && h.Has("Content-Id"))
}

// contentType returns the media type in lower case and its parameters; what
// the standard refuses is read as far as it goes.
func contentType(h message.Header) (string, map[string]string) {
	value := h.Get("Content-Type")
	if strings.TrimSpace(value) == "" {
		return "text/plain", nil
	}
	if kind, params, err := mime.ParseMediaType(value); err == nil && strings.Contains(kind, "/") {
		return kind, params
	}
	return lenientParams(value)
}

// dispositionOf returns the disposition of a part and the file name it gives,
// decoded.
func dispositionOf(h message.Header, typeParams map[string]string) (disposition, name string) {
	if value := h.Get("Content-Disposition"); value != "" {
		kind, params, err := mime.ParseMediaType(value)
		if err != nil {
			kind, params = lenientParams(value)
		}
		disposition, name = kind, params["filename"]
	}
	if name == "" {
		name = typeParams["name"]
	}
	return disposition, decodeWords(name)
}

// lenientParams reads "value; key=value; …" with the first of each key.
func lenientParams(s string) (string, map[string]string) {
	kind, rest, _ := strings.Cut(s, ";")
	params := make(map[string]string)
	for rest != "" && len(params) < 16 {
		var field string
		field, rest, _ = strings.Cut(rest, ";")
		key, value, ok := strings.Cut(field, "=")
		key = strings.ToLower(strings.TrimSpace(key))
		if _, twice := params[key]; ok && !twice {
			params[key] = strings.Trim(strings.TrimSpace(value), `"`)
		}
	}
	return strings.ToLower(strings.TrimSpace(kind)), params
}
