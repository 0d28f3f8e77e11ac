package dashboard

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/memory"
)

// row is one message or summary as a page shows it.
type row struct {
	// Kind is "message", "refresh" or "summary".
	Kind string
	// Who speaks: a role, or what stands for it.
	Who string
	// Anchor is its id within the page, "" for none.
	Anchor    string
	At, Until time.Time
	Tokens    gauge
	Source    memory.Source
	Trust     memory.Trust
	Level     memory.Level
	// Count is how many messages it stands for.
	Count  int
	Pieces []piece
	// Whole is where all of it is, if Pieces are cut.
	Whole string
	// Open is where a summary's sources are.
	Open string
	// Fate says whether the next prompt has it, and why; nil where that is not known.
	Fate *fate
}

// fate is what becomes of an item of the frontier in the next prompt.
type fate struct {
	Included bool
	Reason   string
}

// IsExternal reports whether text from outside is in it.
func (r row) IsExternal() bool { return r.Trust == memory.TrustExternal }

// piece is one block of a message. Its texts are anybody's.
type piece struct {
	// Kind is "text", "thought", "call", "result", "external" or "note".
	Kind string
	// Name is that of a tool, or says where external text is from.
	Name   string
	Text   string
	Failed bool
}

// Source is what a part of external text is labelled with.
func (p piece) Source() string { return p.Name }

const (
	// previewBytes is how much of a message a row of many has, wholeBytes how much
	// of one that is alone.
	previewBytes, wholeBytes = 600, 150_000
)

// piecesOf returns blocks as they are shown, up to a number of bytes together, and
// whether anything was left out. External text is in its frame whatever is cut off:
// it is cut before it is framed.
func piecesOf(blocks []memory.Block, limit int) (pieces []piece, cut bool) {
	for _, b := range blocks {
		if limit <= 0 {
			return pieces, true
		}
		p := piece{Name: b.Name, Failed: b.IsError}
		text := b.Text
		switch b.Type {
		case memory.BlockText:
			p.Kind = "text"
		case memory.BlockFile:
			p.Kind = "text"
		case memory.BlockThinking:
			if p.Kind = "thought"; strings.TrimSpace(text) == "" {
				text = "(the provider keeps it to itself)"
			}
		case memory.BlockToolCall:
			p.Kind, text = "call", string(b.Input)
		case memory.BlockToolResult, memory.BlockExternal:
			p.Kind = "external"
			if b.Type == memory.BlockToolResult {
				p.Kind = "result"
			}
			content := b.External
			// A token is four bytes or so; frames count for nothing here.
			if short := content.Shortened(max(limit/4, 64)); short.Tokens() < content.Tokens() {
				content, cut = short, true
			}
			if p.Kind == "external" {
				p.Name = content.Source().String()
			}
			text = boundary.ModeDelimit.Render(content)
			limit -= len(text)
			p.Text = text
			pieces = append(pieces, p)
			continue
		case memory.BlockImage:
			p.Kind, text = "note", imageNote(b)
		default:
			p.Kind, text = "note", "A block of the type "+strconv.Quote(string(b.Type))+", which this version cannot show."
		}
		if !b.File.IsZero() {
			text = memory.FileNote(text, b.File)
		}
		p.Text, cut = shorten(text, limit, cut)
		limit -= len(p.Text)
		if strings.TrimSpace(p.Text) != "" {
			pieces = append(pieces, p)
		}
	}
	return pieces, cut
}

// shorten cuts a text after a whole character.
func shorten(text string, limit int, cut bool) (string, bool) {
	if len(text) <= limit {
		return text, cut
	}
	end := limit
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…", true
}

// imageNote says what an image is: pages show no pictures that others chose.
func imageNote(b memory.Block) string {
	raw, err := json.Marshal(b)
	if err == nil {
		if kind, data, url, ok := memory.ParseImage(raw); ok && url == "" {
			return fmt.Sprintf("An image: %s, %s bytes.", kind, number(len(data)))
		} else if ok {
			return "An image at " + url
		}
	}
	return "An image."
}

// whoRefreshes speaks where hands brought the context up to date.
const whoRefreshes = "context refresh"

// messageRow returns a message of a session, cut after limit bytes.
func messageRow(v viewer, m memory.Message, limit int) row {
	r := row{Kind: "message", Who: string(m.Role), At: m.At, Tokens: gauge{Label: "Tokens", Value: m.Tokens}, Source: m.Source, Trust: m.Trust, Count: 1}
	if m.IsRefresh() {
		r.Kind, r.Who = "refresh", whoRefreshes
	}
	var cut bool
	if r.Pieces, cut = piecesOf(m.Blocks, limit); cut {
		r.Whole = v.Path("sessions", m.Session, "messages", m.ID)
	}
	return r
}

// summaryRow returns a summary of a session, cut after limit bytes.
func summaryRow(v viewer, s memory.Summary, limit int) row {
	r := row{
		Kind: "summary", Who: "summary", At: s.Earliest, Until: s.Latest, Tokens: gauge{Label: "Tokens", Value: s.Tokens}, Trust: s.Trust, Level: s.Level, Count: s.Descendants,
		Open: v.Path("sessions", s.Session, "summaries", s.ID),
	}
	blocks := []memory.Block{memory.Text(s.Text)}
	if !s.External.IsEmpty() {
		blocks = append(blocks, memory.External(s.External))
	}
	var cut bool
	if r.Pieces, cut = piecesOf(blocks, limit); cut {
		r.Whole = r.Open + "?whole=1"
	}
	return r
}

// rowsOf returns items, whose bars are measured by the largest of them.
func rowsOf(v viewer, items []memory.Item) []row {
	rows := make([]row, 0, len(items))
	most := 1
	for _, item := range items {
		switch {
		case item.Message != nil:
			rows = append(rows, messageRow(v, *item.Message, previewBytes))
		case item.Summary != nil:
			rows = append(rows, summaryRow(v, *item.Summary, previewBytes))
		}
		most = max(most, item.Tokens())
	}
	for i := range rows {
		rows[i].Tokens.Most, rows[i].Tokens.Beside = most, true
	}
	return rows
}

// rowsOfMessages is rowsOf for messages, each with an anchor.
func rowsOfMessages(v viewer, messages []memory.Message) []row {
	items := make([]memory.Item, len(messages))
	for i := range messages {
		items[i].Message = &messages[i]
	}
	rows := rowsOf(v, items)
	for i := range rows {
		rows[i].Anchor = "m-" + strconv.FormatInt(messages[i].Seq, 10)
	}
	return rows
}
