package memory

import (
	"strings"
	"unicode"
)

// Marks that hosts put into the text of messages which they never store: older
// transcripts have nothing else to tell them by.
const (
	markRetry        = "[Retry after the previous model attempt failed or timed out]"
	markBegin        = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>"
	markEnd          = "<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"
	markInterSession = "[inter-session message]"
	markTask         = "[internal task completion event]"
)

// MarkedSource tells by the marks in a text why a message of this role exists:
// SourceInterSession, SourceTaskCompletion or SourceRetry, else SourceUnknown. It
// is for what came without a source, such as an imported conversation; a message
// with several texts has them joined by line feeds. Only users and systems send
// marked messages. Anybody can write a mark: it never makes a text trusted.
//
// Leading white space does not count. A block of internal context, from its first
// beginning mark to an end mark behind it, is spelled exactly and belongs to an
// inter-session message if the text opens with that header, or to a completed task
// if the text opens with the block and the task's mark stands anywhere in it, be
// it behind the block. The mark of a retry is a line of its own. It takes linear
// time and allocates nothing.
func MarkedSource(role Role, text string) Source {
	if role != RoleUser && role != RoleSystem {
		return SourceUnknown
	}
	text = strings.TrimLeftFunc(text, isMarkSpace)
	if _, rest, ok := strings.Cut(text, markBegin); ok && strings.Contains(rest, markEnd) {
		switch {
		case hasMark(text, markInterSession):
			return SourceInterSession
		case strings.HasPrefix(text, markBegin) && containsMark(text, markTask):
			return SourceTaskCompletion
		}
	}
	if !strings.Contains(text, markRetry) {
		return SourceUnknown
	}
	// A carriage return before the line feed is white space.
	for line := range strings.SplitSeq(text, "\n") {
		if strings.TrimFunc(line, isMarkSpace) == markRetry {
			return SourceRetry
		}
	}
	return SourceUnknown
}

// containsMark reports whether text has a mark anywhere. A mark has no bracket but
// its first and last byte, so that no two attempts look at the same text.
func containsMark(text, mark string) bool {
	for {
		at := strings.IndexByte(text, '[')
		if at < 0 {
			return false
		}
		if text = text[at:]; hasMark(text, mark) {
			return true
		}
		text = text[1:]
	}
}

// hasMark reports whether text begins with a mark, which is lower-case, in any
// case and with any white space for its blanks.
func hasMark(text, mark string) bool {
	at, blank := 0, false
	for _, r := range text {
		if at == len(mark) {
			return true
		}
		if isMarkSpace(r) {
			if !blank {
				if mark[at] != ' ' {
					return false
				}
				at++
			}
			blank = true
			continue
		}
		blank = false
		if lowerASCII(r) != rune(mark[at]) {
			return false
		}
		at++
	}
	return at == len(mark)
}

// lowerASCII is the lower case of r where that is ASCII, else r. Beside the capital
// letters only the sign of kelvin has one.
func lowerASCII(r rune) rune {
	switch {
	case 'A' <= r && r <= 'Z':
		return r + 'a' - 'A'
	case r == '\u212a':
		return 'k'
	}
	return r
}

// isMarkSpace reports whether ECMAScript, in which the marks were first read,
// calls r white space or a line terminator.
func isMarkSpace(r rune) bool { return unicode.IsSpace(r) && r != '\u0085' || r == '\ufeff' }
