package compaction

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/memory"
)

// Description says what one summary, message or file is, without all its words.
// The fields of its kind are set, and those that are common to all.
type Description struct {
	Kind    memory.TextKind  `json:"kind"`
	ID      string           `json:"id"`
	Session memory.SessionID `json:"session_id"`
	Trust   memory.Trust     `json:"trust"`
	// At is when it was said or came. A summary stands for messages from At to
	// Until; Descendants is their number.
	At          time.Time `json:"at"`
	Until       time.Time `json:"until,omitzero"`
	Descendants int       `json:"descendants,omitempty"`
	Tokens      int       `json:"tokens"`
	// Seq, Role and Source are a message's.
	Seq    int64         `json:"seq,omitempty"`
	Role   memory.Role   `json:"role,omitempty"`
	Source memory.Source `json:"source,omitempty"`
	// Depth, Level and Model are a summary's. Parents are the summaries that
	// it was condensed into, the nearest first; Sources what it was made from,
	// in order, MaxSources at most: SourceCount is their number.
	Depth       int          `json:"depth,omitempty"`
	Level       memory.Level `json:"level,omitempty"`
	Model       string       `json:"model,omitempty"`
	Parents     []string     `json:"parents,omitempty"`
	Sources     []SourceLine `json:"sources,omitempty"`
	SourceCount int          `json:"source_count,omitempty"`
	// Name, MIME and Bytes are a file's.
	Name  string `json:"name,omitempty"`
	MIME  string `json:"mime,omitempty"`
	Bytes int64  `json:"bytes,omitempty"`
	// Content is the text of a summary, the beginning of a message, the outline
	// of a file.
	Content []memory.Block `json:"content"`
}

// SourceLine is one thing that a summary was made from.
type SourceLine struct {
	Kind   memory.TextKind `json:"kind"`
	ID     string          `json:"id"`
	Seq    int64           `json:"seq,omitempty"`
	Role   memory.Role     `json:"role,omitempty"`
	Trust  memory.Trust    `json:"trust"`
	At     time.Time       `json:"at"`
	Until  time.Time       `json:"until,omitzero"`
	Tokens int             `json:"tokens"`
	// Content is how it begins.
	Content []memory.Block `json:"content"`
}

// Bounds of a Description.
const (
	MaxSources      = 200
	maxParents      = 64
	beginningTokens = 400
	lineTokens      = 24
)

// whole is one thing that has an id, read whole.
type whole struct {
	kind    memory.TextKind
	summary memory.Summary
	parent  memory.SummaryID
	message memory.Message
	file    memory.File
	block   memory.Block
}

// lookUp finds what an id names: a summary, a message or a file. Errors:
// memory.ErrInvalid for what is no id, memory.ErrNotFound.
func (r *Retrieval) lookUp(ctx context.Context, user memory.UserID, id string) (w whole, err error) {
	parsed, err := memory.ParseID[memory.MessageID](id)
	if err != nil {
		return w, err
	}
	w.kind = memory.TextSummary
	if w.summary, w.parent, err = r.archive.Summary(ctx, user, memory.SummaryID(parsed)); errors.Is(err, memory.ErrNotFound) {
		w.kind = memory.TextMessage
		w.message, err = r.archive.Message(ctx, user, parsed)
	}
	if errors.Is(err, memory.ErrNotFound) {
		w.kind = memory.TextFile
		w.file, w.block, err = r.archive.File(ctx, user, memory.FileID(parsed))
	}
	if errors.Is(err, memory.ErrNotFound) {
		return w, fmt.Errorf("no summary, message or file %s: %w", id, memory.ErrNotFound)
	}
	return w, err
}

// Describe says what the summary, message or file with the id is. Errors:
// memory.ErrInvalid for what is no id, memory.ErrNotFound.
func (r *Retrieval) Describe(ctx context.Context, user memory.UserID, id string) (Description, error) {
	w, err := r.lookUp(ctx, user, id)
	if err == nil {
		var d Description
		if d, err = r.describe(ctx, user, w); err == nil {
			return d, nil
		}
	}
	return Description{}, fmt.Errorf("describe: %w", err)
}

func (r *Retrieval) describe(ctx context.Context, user memory.UserID, w whole) (Description, error) {
	switch w.kind {
	case memory.TextMessage:
		m := w.message
		return Description{
			Kind: w.kind, ID: m.ID.String(), Session: m.Session, Trust: m.Trust, At: m.At, Tokens: m.Tokens,
			Seq: m.Seq, Role: m.Role, Source: m.Source, Content: beginning(m.Blocks, m.Trust, beginningTokens),
		}, nil
	case memory.TextFile:
		f := w.file
		d := Description{
			Kind: w.kind, ID: f.ID.String(), Session: f.Session, Trust: f.Trust, At: f.CreatedAt, Tokens: f.Tokens,
			Name: f.Name, MIME: f.MIME, Bytes: f.Bytes,
		}
		if all := passages([]memory.Block{w.block}, f.Trust); len(all) > 0 && f.Outline != "" {
			d.Content = []memory.Block{all[0].part(f.Outline)}
		}
		return d, nil
	}
	s := w.summary
	d := Description{
		Kind: w.kind, ID: s.ID.String(), Session: s.Session, Trust: s.Trust, At: s.Earliest, Until: s.Latest, Descendants: s.Descendants,
		Tokens: s.Tokens, Depth: s.Depth, Level: s.Level, Model: s.Model, Content: framed(summaryBlocks(s), summaryTrust(s)),
	}
	for parent := w.parent; !parent.IsZero() && len(d.Parents) < maxParents; {
		d.Parents = append(d.Parents, parent.String())
		_, next, err := r.archive.Summary(ctx, user, parent)
		if err != nil {
			return d, err
		}
		parent = next
	}
	sources, err := r.archive.Sources(ctx, user, s.ID)
	if err != nil {
		return d, err
	}
	d.SourceCount = len(sources)
	for _, item := range sources[:min(len(sources), MaxSources)] {
		d.Sources = append(d.Sources, sourceLine(item))
	}
	return d, nil
}

func sourceLine(item memory.Item) SourceLine {
	if m := item.Message; m != nil {
		return SourceLine{Kind: memory.TextMessage, ID: m.ID.String(), Seq: m.Seq, Role: m.Role, Trust: m.Trust, At: m.At, Tokens: m.Tokens,
			Content: beginning(m.Blocks, m.Trust, lineTokens)}
	}
	s := item.Summary
	return SourceLine{Kind: memory.TextSummary, ID: s.ID.String(), Trust: s.Trust, At: s.Earliest, Until: s.Latest, Tokens: s.Tokens,
		Content: beginning(summaryBlocks(*s), summaryTrust(*s), lineTokens)}
}

// beginning is the first words, within limit tokens. What a memory tool brought
// is no beginning of anything.
func beginning(blocks []memory.Block, trust memory.Trust, limit int) []memory.Block {
	var parts []memory.Block
	for _, p := range passages(withoutRecall(blocks), trust) {
		text := cutNear(p.text, 0, 0, limit)
		if text == "" {
			break
		}
		parts = append(parts, p.part(text))
		limit -= tokens.Estimate(text)
	}
	return parts
}

// Bounds of an ExpandQuery.
const (
	DefaultExpandTokens = 4000
	MinExpandTokens     = 256
	MaxExpandTokens     = 32_000
)

// ExpandQuery asks for the words of one thing.
type ExpandQuery struct {
	// ID is that of a summary, a message or a file.
	ID string
	// Messages asks for the messages that a summary stands for, whatever its
	// depth, in place of what it was made from.
	Messages bool
	// Tokens bounds what is returned: 0 means DefaultExpandTokens; else from
	// MinExpandTokens to MaxExpandTokens.
	Tokens int
	// Cursor is the Next of the expansion before; "" begins.
	Cursor string

	// forModel leaves out what memory tools brought into the conversation.
	forModel bool
}

// Expansion is words as they were said, within the cap.
type Expansion struct {
	Kind    memory.TextKind  `json:"kind"`
	ID      string           `json:"id"`
	Session memory.SessionID `json:"session_id"`
	Items   []Expanded       `json:"items"`
	// Tokens is what the items cost as Shown.
	Tokens int `json:"tokens"`
	// Next is the cursor for what did not fit; "" at the end.
	Next string `json:"next,omitempty"`
}

// Expanded is one message, summary or file, or a piece of one.
type Expanded struct {
	Kind   memory.TextKind `json:"kind"`
	ID     string          `json:"id"`
	Seq    int64           `json:"seq,omitempty"`
	Role   memory.Role     `json:"role,omitempty"`
	Source memory.Source   `json:"source,omitempty"`
	Name   string          `json:"name,omitempty"`
	Trust  memory.Trust    `json:"trust"`
	At     time.Time       `json:"at"`
	Until  time.Time       `json:"until,omitzero"`
	// Tokens is what the whole costs.
	Tokens int `json:"tokens"`
	// Piece says that this is not the whole: the pieces before and after are
	// in other expansions. Pieces of external text are neutralised one by one
	// and lose the white space at their ends; everything else is byte for byte.
	Piece bool `json:"piece,omitempty"`
	// Content is what was said, verbatim.
	Content []memory.Block `json:"content"`
}

// Expand returns the words of a summary's sources, of a message or of a file, in
// order and verbatim, as far as they fit. What is larger than the cap comes in
// pieces. Errors: memory.ErrInvalid for a query out of bounds, a cursor that is
// none of this thing's, or what is no id; memory.ErrNotFound.
func (r *Retrieval) Expand(ctx context.Context, user memory.UserID, q ExpandQuery) (Expansion, error) {
	e, err := r.expand(ctx, user, q)
	if err != nil {
		return Expansion{}, fmt.Errorf("expand: %w", err)
	}
	return e, nil
}

func (r *Retrieval) expand(ctx context.Context, user memory.UserID, q ExpandQuery) (Expansion, error) {
	if q.Tokens != 0 && (q.Tokens < MinExpandTokens || q.Tokens > MaxExpandTokens) {
		return Expansion{}, invalidf("the number of tokens is from %d to %d", MinExpandTokens, MaxExpandTokens)
	}
	from, err := parseCursor(q.Cursor)
	if err != nil {
		return Expansion{}, err
	}
	w, err := r.lookUp(ctx, user, q.ID)
	if err != nil {
		return Expansion{}, err
	}
	page := page{forModel: q.forModel, room: orDefault(q.Tokens, DefaultExpandTokens), from: from, items: []Expanded{}}
	page.size = page.room
	e := Expansion{Kind: w.kind, ID: q.ID}
	switch w.kind {
	case memory.TextMessage:
		e.Session = w.message.Session
		page.add(w.message.Seq, expandedMessage(w.message))
	case memory.TextFile:
		e.Session = w.file.Session
		page.add(1, expandedFile(w.file, w.block))
	case memory.TextSummary:
		e.Session = w.summary.Session
		if w.summary.Depth > 0 && !q.Messages {
			err = r.expandSources(ctx, user, w.summary, &page)
		} else {
			err = r.expandMessages(ctx, user, w.summary, &page)
		}
	}
	switch {
	case err != nil:
		return Expansion{}, err
	case page.astray, q.Cursor != "" && len(page.items) == 0:
		return Expansion{}, invalidf("the cursor %s is not of this %s, expanded in this way", q.Cursor, w.kind)
	}
	e.Items, e.Tokens, e.Next = page.items, page.size-page.room, page.next.String()
	return e, nil
}

func (r *Retrieval) expandSources(ctx context.Context, user memory.UserID, s memory.Summary, p *page) error {
	sources, err := r.archive.Sources(ctx, user, s.ID)
	if err != nil {
		return err
	}
	for i, item := range sources {
		if item.Summary == nil {
			return fmt.Errorf("summary %s of depth %d has a message as its source", s.ID, s.Depth)
		}
		if !p.add(int64(i+1), expandedSummary(*item.Summary)) {
			return nil
		}
	}
	return nil
}

func (r *Retrieval) expandMessages(ctx context.Context, user memory.UserID, s memory.Summary, p *page) error {
	// To read a message is to look through its external text again.
	const chunk = 16
	for after := max(0, p.from.item-1); ; {
		messages, err := r.archive.Expand(ctx, user, s.ID, memory.MessageQuery{After: after, Limit: chunk})
		if err != nil {
			return err
		}
		for _, m := range messages {
			if !p.add(m.Seq, expandedMessage(m)) {
				return nil
			}
			after = m.Seq
		}
		if len(messages) < chunk {
			return nil
		}
	}
}

func expandedMessage(m memory.Message) Expanded {
	return Expanded{Kind: memory.TextMessage, ID: m.ID.String(), Seq: m.Seq, Role: m.Role, Source: m.Source, Trust: m.Trust, At: m.At, Tokens: m.Tokens, Content: m.Blocks}
}

func expandedSummary(s memory.Summary) Expanded {
	return Expanded{Kind: memory.TextSummary, ID: s.ID.String(), Trust: s.Trust, At: s.Earliest, Until: s.Latest, Tokens: s.Tokens, Content: summaryBlocks(s)}
}

func expandedFile(f memory.File, b memory.Block) Expanded {
	return Expanded{Kind: memory.TextFile, ID: f.ID.String(), Name: f.Name, Trust: f.Trust, At: f.CreatedAt, Tokens: f.Tokens, Content: []memory.Block{b}}
}

// cursor is where an expansion goes on: in which item (a message's Seq, or the
// place of another among the sources), in which of its passages, at which byte.
// The zero cursor is the beginning.
type cursor struct {
	// kind is the first letter of the item's.
	kind    string
	item    int64
	passage int
	offset  int
}

func (c cursor) String() string {
	if c == (cursor{}) {
		return ""
	}
	return fmt.Sprintf("%s%d.%d.%d", c.kind, c.item, c.passage, c.offset)
}

func parseCursor(text string) (cursor, error) {
	if text == "" {
		return cursor{}, nil
	}
	var c cursor
	kind, rest := text[:1], text[1:]
	if n, err := fmt.Sscanf(rest, "%d.%d.%d", &c.item, &c.passage, &c.offset); err == nil && n == 3 {
		c.kind = kind
	}
	// Only what String writes is one.
	if c.String() != text || !strings.Contains("msf", kind) || c.item <= 0 || c.passage < 0 || c.offset < 0 {
		return cursor{}, invalidf("the cursor is not one that an expansion gave")
	}
	return c, nil
}

// page is what fits into one expansion.
type page struct {
	size, room int
	from, next cursor
	items      []Expanded
	// forModel leaves out what memory tools brought.
	forModel bool
	// astray says that from is no place in what is expanded.
	astray bool
}

const (
	// headingTokens is what the line above an item may cost, frameTokens what
	// the frame around a text.
	headingTokens = 48
	frameTokens   = 64
)

// add puts an item on the page, or the piece of it that fits; it returns
// whether there is more room.
func (p *page) add(at int64, item Expanded) bool {
	if at < p.from.item {
		return true
	}
	from := cursor{kind: string(item.Kind[:1]), item: at}
	if p.from.kind != "" && p.from.kind != from.kind {
		p.astray = true
		return false
	}
	if at == p.from.item {
		from = p.from
	}
	if p.forModel {
		item.Content = withoutRecall(item.Content)
	}
	if from.passage == 0 && from.offset == 0 {
		cost := headingTokens + tokens.Estimate(memory.Shown(framed(item.Content, item.Trust)))
		if cost <= p.room {
			item.Content = framed(item.Content, item.Trust)
			p.items = append(p.items, item)
			p.room -= cost
			return true
		}
		if len(p.items) > 0 && cost <= p.size {
			p.next = from
			return false
		}
	}
	return p.addPiece(from, item)
}

func (p *page) addPiece(from cursor, item Expanded) bool {
	all := passages(item.Content, item.Trust)
	if from.passage >= len(all) || from.offset >= len(all[from.passage].text) || !utf8.RuneStart(all[from.passage].text[from.offset]) {
		p.astray = true
		return false
	}
	item.Piece, item.Content = true, nil
	p.room -= headingTokens
	for i := from.passage; i < len(all); i++ {
		text := all[i].text
		start := 0
		if i == from.passage {
			start = from.offset
		}
		taken := cutPiece(text[start:], p.room-frameTokens)
		if taken != "" {
			item.Content = append(item.Content, all[i].part(taken))
			p.room -= frameTokens + tokens.Estimate(taken)
		}
		if start+len(taken) < len(text) {
			p.next = cursor{kind: from.kind, item: from.item, passage: i, offset: start + len(taken)}
			break
		}
	}
	if len(item.Content) > 0 {
		p.items = append(p.items, item)
	} else {
		p.room += headingTokens
	}
	return p.next == cursor{}
}

// cutPiece is a beginning of text of at most limit tokens. It ends after a line,
// or at least after a word, where that does not make it much shorter; else not
// within an emoji that is made of several, for its joiners mean nothing at the end
// of a text, where external text loses what nobody can see.
func cutPiece(text string, limit int) string {
	piece := tokens.Cut(text, limit)
	if len(piece) == len(text) {
		return piece
	}
	for _, border := range []string{"\n", " "} {
		if i := strings.LastIndex(piece, border); i >= len(piece)*3/4 {
			return piece[:i+1]
		}
	}
	for end := len(piece); end > 0; {
		last, size := utf8.DecodeLastRuneInString(piece[:end])
		if next, _ := utf8.DecodeRuneInString(text[end:]); !joins(last) && !joins(next) {
			return piece[:end]
		}
		end -= size
	}
	return piece
}

// joins reports whether r holds together what stands beside it.
func joins(r rune) bool {
	const zeroWidthJoiner, emojiSelector = 0x200D, 0xFE0F
	return r == zeroWidthJoiner || r == emojiSelector
}
