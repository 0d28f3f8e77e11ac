package dream

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/memory"
)

// said is a message as a prompt of this package may show it: what the user said,
// or what the assistant answered with nothing from outside in view.
type said struct {
	id  memory.MessageID
	seq int64
	at  time.Time
	// users says that it can be learned from; the rest is shown so that "yes, the
	// second one" can be understood.
	users bool
	text  string
}

// learnable returns what may be read of messages, in their order. It is the only
// way for a message into a prompt of this package.
//
// Of the user's messages it is the words of their own: a message that also holds
// external text, a file or an outline of one is read without those. An assistant's
// message is shown only if nothing external was in view when it was made. The
// design would allow those of trust derived as context; but a hand's sentence
// that the assistant repeats cannot be learned if it cannot be read, whatever the
// model is told or cites.
func learnable(messages []memory.Message) []said {
	var list []said
	for _, m := range messages {
		s := said{id: m.ID, seq: m.Seq, at: m.At}
		switch {
		case m.Source == memory.SourceUser && m.Role == memory.RoleUser:
			s.users = true
		case m.Source == memory.SourceAssistant && m.IsAnswer() && m.Trust == memory.TrustDirect:
		default:
			continue
		}
		if s.text = ownWords(m.Blocks); s.text != "" {
			list = append(list, shortened(s))
		}
	}
	return list
}

// ownWords returns the plain text blocks, a paragraph each. A text that was moved
// to a file is there as an outline, which quotes it out of context.
func ownWords(blocks []memory.Block) string {
	var parts []string
	for _, b := range blocks {
		if b.Type != memory.BlockText || !b.File.IsZero() {
			continue
		}
		if text := strings.TrimSpace(strings.Map(shownRune, b.Text)); text != "" {
			parts = append(parts, text)
		}
	}
	return strings.Join(parts, "\n")
}

// shownRune leaves out of a text what nobody sees: a person did not say it.
func shownRune(r rune) rune {
	switch {
	case r == '\n' || r == '\t':
		return r
	case r == '\r':
		return -1
	case r == '\u2028' || r == '\u2029' || r == '\u0085' || r == '\v' || r == '\f':
		return '\n'
	case isInvisible(r):
		return -1
	}
	return r
}

// isInvisible reports whether r is a control character or a format character
// other than the joiners, which emoji and some scripts are written with.
func isInvisible(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) && r != '\u200c' && r != '\u200d'
}

// anyUsers reports whether there is anything to learn from.
func anyUsers(list []said) bool {
	for _, s := range list {
		if s.users {
			return true
		}
	}
	return false
}

// transcript writes messages into a prompt, a line of JSON each, so that none can
// hold what looks like another. The n-th is called m1, m2 and so on: an id that a
// model copies is easily miscopied, and then names another message or none.
func transcript(list []said) string {
	var b strings.Builder
	for i, s := range list {
		b.WriteString(line(i, s))
	}
	return b.String()
}

// line is the line of the i-th message, with its line feed.
func line(i int, s said) string {
	by := "assistant"
	if s.users {
		by = "user"
	}
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	// Strings can be encoded, and a Builder takes them.
	_ = encoder.Encode(struct {
		Handle string `json:"id"`
		By     string `json:"by"`
		At     string `json:"at"`
		Text   string `json:"text"`
	}{handle('m', i), by, s.at.UTC().Format("Mon 2006-01-02 15:04Z"), s.text})
	return b.String()
}

// runTokens is what the messages of one prompt cost at most.
const runTokens = 8000

// lineTokens is what a message costs in a transcript, wherever it stands there.
func lineTokens(s said) int { return tokens.Estimate(line(999_999, s)) }

// shortened returns a message that is too long for one prompt cut to what fits.
func shortened(s said) said {
	const mark = " […]"
	if lineTokens(s) <= runTokens {
		return s
	}
	whole := s.text
	// Of what is left of a text here, JSON at most doubles the cost.
	for room := runTokens - lineTokens(said{}) - len(mark); ; room /= 2 {
		if s.text = tokens.Cut(whole, room) + mark; lineTokens(s) <= runTokens {
			return s
		}
	}
}

// handle returns the name of the i-th thing, from 0, of a kind in a prompt: m1 is
// the first message.
func handle(kind byte, i int) string { return string(kind) + strconv.Itoa(i+1) }

// resolve returns which of n things of a kind a handle names, from 0. What a model
// writes around it, as in "[M3]", makes no difference.
func resolve(kind byte, name string, n int) (i int, ok bool) {
	name = strings.ToLower(strings.Trim(name, " \t\r\n[](){}<>#\"'`.,:;"))
	if len(name) < 2 || len(name) > 10 || name[0] != kind {
		return 0, false
	}
	number, err := strconv.ParseUint(name[1:], 10, 31)
	if err != nil || number == 0 || number > uint64(n) {
		return 0, false
	}
	return int(number) - 1, true
}
