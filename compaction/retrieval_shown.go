package compaction

import (
	"fmt"
	"strings"
	"time"

	"github.com/gloveboxhq/glovebox/memory"
)

// Shown returns the hits as a model may see them: for each a line of the host's
// with its number, kind, id, time and place, and below it the excerpt; external
// text stands in its frame.
func (f Found) Shown() string { return f.text(memory.Shown) }

func (f Found) text(show func([]memory.Block) string) string {
	var b strings.Builder
	if len(f.Hits) == 0 {
		b.WriteString("Nothing was found.\n")
	}
	for i, h := range f.Hits {
		fmt.Fprintf(&b, "[%d] %s %s", i+1, h.Kind, h.ID)
		if h.Role != "" {
			b.WriteString(", " + speakerOf(h.Role, h.Source))
		}
		b.WriteString(", " + times(h.At, h.Until))
		fmt.Fprintf(&b, ", session %s", h.Session)
		if h.Seq > 0 {
			fmt.Fprintf(&b, " #%d", h.Seq)
		}
		fmt.Fprintf(&b, ", %d tokens%s", h.Tokens, trustNote(h.Trust))
		if h.Beside {
			b.WriteString(", beside a message with the words")
		}
		b.WriteString("\n" + show(h.Excerpt) + "\n\n")
	}
	if f.Stopped != "" {
		b.WriteString("The search ended early: " + f.Stopped + ".")
		if !f.Since.IsZero() {
			b.WriteString(" What is of " + f.Since.UTC().Format(time.RFC3339) + " and before was not all looked at.")
		}
		b.WriteString("\n")
	}
	return strings.TrimRight(b.String(), "\n")
}

// Shown returns the description as a model may see it: external text stands in
// its frame.
func (d Description) Shown() string { return d.text(memory.Shown) }

func (d Description) text(show func([]memory.Block) string) string {
	var b strings.Builder
	switch d.Kind {
	case memory.TextSummary:
		fmt.Fprintf(&b, "summary %s of depth %d (%s), stands for %d messages, %s", d.ID, d.Depth, d.Level, d.Descendants, times(d.At, d.Until))
	case memory.TextMessage:
		fmt.Fprintf(&b, "message %s #%d, %s, %s", d.ID, d.Seq, speakerOf(d.Role, d.Source), times(d.At, d.Until))
	case memory.TextFile:
		fmt.Fprintf(&b, "file %s, %d bytes, %s", d.ID, d.Bytes, times(d.At, d.Until))
	}
	fmt.Fprintf(&b, ", session %s, %d tokens%s\n", d.Session, d.Tokens, trustNote(d.Trust))
	b.WriteString(show(d.Content) + "\n")
	if len(d.Parents) > 0 {
		b.WriteString("\nIt is condensed in: " + strings.Join(d.Parents, ", ") + "\n")
	}
	if len(d.Sources) > 0 {
		fmt.Fprintf(&b, "\nIt was made from %d:\n", d.SourceCount)
	}
	for _, s := range d.Sources {
		fmt.Fprintf(&b, "- %s %s", s.Kind, s.ID)
		if s.Role != "" {
			fmt.Fprintf(&b, " #%d, %s", s.Seq, s.Role)
		}
		fmt.Fprintf(&b, ", %s, %d tokens%s\n%s\n", times(s.At, s.Until), s.Tokens, trustNote(s.Trust), show(s.Content))
	}
	if more := d.SourceCount - len(d.Sources); more > 0 {
		fmt.Fprintf(&b, "- and %d more\n", more)
	}
	return strings.TrimRight(b.String(), "\n")
}

// Shown returns the expansion as a model may see it: external text stands in
// its frame.
func (e Expansion) Shown() string { return e.text(memory.Shown) }

func (e Expansion) text(show func([]memory.Block) string) string {
	var b strings.Builder
	// First, for whoever cuts the text cuts its end.
	if e.Next != "" {
		b.WriteString("There is more: go on with cursor " + e.Next + "\n\n")
	}
	for _, item := range e.Items {
		b.WriteString(string(item.Kind))
		if item.Seq > 0 {
			fmt.Fprintf(&b, " #%d", item.Seq)
		}
		b.WriteString(" " + item.ID)
		if item.Role != "" {
			b.WriteString(", " + speakerOf(item.Role, item.Source))
		}
		b.WriteString(", " + times(item.At, item.Until) + trustNote(item.Trust))
		if item.Piece {
			b.WriteString(", a piece")
		}
		b.WriteString("\n" + show(item.Content) + "\n\n")
	}
	return strings.TrimRight(b.String(), "\n")
}

func speakerOf(role memory.Role, source memory.Source) string {
	if source != "" && string(source) != string(role) {
		return string(role) + " (" + string(source) + ")"
	}
	return string(role)
}

func trustNote(t memory.Trust) string {
	switch t {
	case memory.TrustDerived:
		return ", derived from external text"
	case memory.TrustExternal:
		return ", holds external text"
	}
	return ""
}

// times is a time or, if until is another one, the time between.
func times(at, until time.Time) string {
	text := at.UTC().Format(time.RFC3339)
	if !until.IsZero() && !until.Equal(at) {
		text += " to " + until.UTC().Format(time.RFC3339)
	}
	return text
}
