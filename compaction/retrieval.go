package compaction

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/memory"
)

// Archive is what retrieval reads. Every memory.Store is one.
type Archive interface {
	Session(ctx context.Context, user memory.UserID, id memory.SessionID) (memory.Session, error)
	Message(ctx context.Context, user memory.UserID, id memory.MessageID) (memory.Message, error)
	Messages(ctx context.Context, user memory.UserID, session memory.SessionID, q memory.MessageQuery) ([]memory.Message, error)
	Frontier(ctx context.Context, user memory.UserID, session memory.SessionID) (memory.Frontier, error)
	Summary(ctx context.Context, user memory.UserID, id memory.SummaryID) (memory.Summary, memory.SummaryID, error)
	Sources(ctx context.Context, user memory.UserID, id memory.SummaryID) ([]memory.Item, error)
	Expand(ctx context.Context, user memory.UserID, id memory.SummaryID, q memory.MessageQuery) ([]memory.Message, error)
	File(ctx context.Context, user memory.UserID, id memory.FileID) (memory.File, memory.Block, error)
	SearchWords(ctx context.Context, user memory.UserID, q memory.WordQuery) (memory.WordHits, error)
	SearchSummaries(ctx context.Context, user memory.UserID, q memory.WordQuery) ([]memory.SummaryHit, error)
	Texts(ctx context.Context, user memory.UserID, q memory.TextQuery, visit func(memory.StoredText) bool) error
}

// ScanLimits bound a search that no index can help with: an expression, or
// words in files. A search that meets one of them says so. The zero value
// stands for the defaults.
type ScanLimits struct {
	// Texts is how many are read; zero means 200,000.
	Texts int
	// Bytes is how much is read; zero means 256 MiB.
	Bytes int64
	// Time is wall time; zero means 5 s. An earlier deadline of the context is
	// an error instead.
	Time time.Duration
}

func (l ScanLimits) texts() int          { return orDefault(l.Texts, 200_000) }
func (l ScanLimits) time() time.Duration { return orDefault(l.Time, 5*time.Second) }
func (l ScanLimits) bytes() int64 {
	if l.Bytes == 0 {
		return 256 << 20
	}
	return l.Bytes
}

// Retrieval gets back what is no longer shown: it finds (Grep), says what
// something is (Describe), gives its words (Expand) and answers from them
// (Answer). All that it returns is of the user that was named; what belongs to
// another is memory.ErrNotFound, as if it did not exist. External text keeps its
// source and is a boundary.Content wherever it stands. A Retrieval is safe for
// concurrent use and changes nothing.
type Retrieval struct {
	archive Archive
	model   llm.Model
	limits  ScanLimits
}

// NewRetrieval returns the retrieval over an archive. Model answers; without
// one (nil), Answer fails with ErrNoModel.
func NewRetrieval(archive Archive, model llm.Model, limits ScanLimits) *Retrieval {
	return &Retrieval{archive: archive, model: model, limits: limits}
}

// ErrNoModel says that there is no model to answer.
var ErrNoModel = errors.New("no model is configured to answer")

func invalidf(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, memory.ErrInvalid)...)
}

// passage is the words of one block, with the way back: a part of them as a
// block that keeps what the whole one says of itself.
type passage struct {
	text string
	part func(text string) memory.Block
}

// outside is the source of words that are external as a whole message, and name
// nobody.
var outside boundary.Source

// passages returns what the blocks say. Thinking goes back to nobody. Blocks of
// plain words are framed if the message is external for another reason than
// its blocks: somebody who imported it said so.
func passages(blocks []memory.Block, trust memory.Trust) []passage {
	frame := trust == memory.TrustExternal
	for _, b := range blocks {
		if !b.External.IsEmpty() {
			frame = false
		}
	}
	var all []passage
	for _, b := range blocks {
		p := passage{}
		switch {
		case b.Type == memory.BlockThinking:
			continue
		case !b.External.IsEmpty():
			// Without its frame, a text is only searched and cut: what is made
			// of it has one again.
			p.text = memory.Plain([]memory.Block{memory.External(b.External)})
			p.part = func(text string) memory.Block {
				part := b
				if text != p.text {
					c, _ := boundary.Wrap(b.External.Source(), text, boundary.Unlimited)
					part = memory.Block{Type: b.Type, ID: b.ID, Name: b.Name, External: c, IsError: b.IsError, File: b.File}
				}
				return part
			}
		default:
			bare := b
			bare.File = memory.FileID{}
			if b.Type == memory.BlockFile {
				bare = memory.Text(b.Text)
			}
			p.text = memory.Shown([]memory.Block{bare})
			p.part = func(text string) memory.Block {
				if frame {
					c, _ := boundary.Wrap(outside, text, boundary.Unlimited)
					return memory.Block{Type: memory.BlockExternal, External: c, File: b.File}
				}
				return memory.Block{Type: memory.BlockText, Text: text, File: b.File}
			}
		}
		if p.text != "" {
			all = append(all, p)
		}
	}
	return all
}

// framed returns the blocks as they may be shown to a model: as they are, but
// for words of an external message that have no frame yet.
func framed(blocks []memory.Block, trust memory.Trust) []memory.Block {
	if trust != memory.TrustExternal {
		return blocks
	}
	for _, b := range blocks {
		if !b.External.IsEmpty() {
			return blocks
		}
	}
	var parts []memory.Block
	for _, p := range passages(blocks, trust) {
		parts = append(parts, p.part(p.text))
	}
	return parts
}

// summaryBlocks is a summary's text as blocks.
func summaryBlocks(s memory.Summary) []memory.Block {
	var blocks []memory.Block
	if s.Text != "" {
		blocks = append(blocks, memory.Text(s.Text))
	}
	if !s.External.IsEmpty() {
		blocks = append(blocks, memory.External(s.External))
	}
	return blocks
}

// summaryTrust is the trust of a summary's own words: those from outside stand
// apart.
func summaryTrust(s memory.Summary) memory.Trust {
	if s.Trust == memory.TrustExternal && s.External.IsEmpty() {
		return memory.TrustDerived
	}
	return s.Trust
}

// isRecall reports whether a block is a memory tool's call or its result. Those
// repeat what is stored elsewhere: they are neither found again nor given back
// to a model.
func isRecall(b memory.Block) bool {
	if b.Type != memory.BlockToolCall && b.Type != memory.BlockToolResult {
		return false
	}
	switch b.Name {
	case ToolSearch, ToolDescribe, ToolExpand:
		return true
	}
	return false
}

// recallNote stands for what a memory tool brought.
const recallNote = "[What a memory tool gave here is left out: it repeats what is stored elsewhere.]"

func hasRecall(blocks []memory.Block) bool { return slices.ContainsFunc(blocks, isRecall) }

// withoutRecall returns the blocks with a note in place of each result of a
// memory tool, and without its call.
func withoutRecall(blocks []memory.Block) []memory.Block {
	if !hasRecall(blocks) {
		return blocks
	}
	var rest []memory.Block
	for _, b := range blocks {
		switch {
		case !isRecall(b):
			rest = append(rest, b)
		case b.Type == memory.BlockToolResult:
			rest = append(rest, memory.Text(recallNote))
		}
	}
	return rest
}

// cutNear returns a part of text of at most limit tokens around text[start:end],
// with an ellipsis where something is left out. Borders fall between words
// where there are any.
func cutNear(text string, start, end, limit int) string {
	if tokens.Estimate(text) <= limit {
		return text
	}
	const ellipsis = "…"
	room := limit - 2
	if room <= 0 {
		return ""
	}
	match := text[start:end]
	if size := tokens.Estimate(match); size >= room {
		return ellipsis + tokens.Cut(match, room) + ellipsis
	} else {
		room -= size
	}
	// A third before, the rest after, and what one side does not need goes to
	// the other.
	before, after := ending(text[:start], room/3), tokens.Cut(text[end:], room-room/3)
	if end+len(after) == len(text) {
		before = ending(text[:start], room-tokens.Estimate(after))
	} else if len(before) == start {
		after = tokens.Cut(text[end:], room-tokens.Estimate(before))
	}
	if len(before) < start {
		if i := strings.IndexAny(before, " \n"); i >= 0 && i < len(before)/2 {
			before = before[i+1:]
		}
		before = ellipsis + before
	}
	if end+len(after) < len(text) {
		if i := strings.LastIndexAny(after, " \n"); i > len(after)/2 {
			after = after[:i]
		}
		after += ellipsis
	}
	return before + match + after
}

// ending is the longest end of text that costs at most limit tokens.
func ending(text string, limit int) string {
	if limit <= 0 {
		return ""
	}
	// A token is at most four code points, of at most four bytes each.
	from := max(0, len(text)-limit*16)
	for from < len(text) && !utf8.RuneStart(text[from]) {
		from++
	}
	text = text[from:]
	// The estimate of an end falls as it is shortened.
	low, high := 0, len(text)
	for low < high {
		middle := low + (high-low)/2
		if tokens.Estimate(text[middle:]) <= limit {
			high = middle
		} else {
			low = middle + 1
		}
	}
	for low < len(text) && !utf8.RuneStart(text[low]) {
		low++
	}
	return text[low:]
}

// excerptOf returns the parts of passages that hold what locate finds, within
// limit tokens in all; the beginning of the first one if nothing is found.
func excerptOf(all []passage, locate locator, limit int) []memory.Block {
	type place struct{ start, end int }
	matched := map[int]place{}
	for i, p := range all {
		if start, end, ok := locate(p.text); ok {
			matched[i] = place{start, end}
		}
	}
	if len(matched) == 0 && len(all) > 0 {
		matched[0] = place{}
	}
	var blocks []memory.Block
	left := len(matched)
	for i, p := range all {
		at, ok := matched[i]
		if !ok {
			continue
		}
		text := cutNear(p.text, at.start, at.end, limit/left)
		left--
		limit -= tokens.Estimate(text)
		if text != "" {
			blocks = append(blocks, p.part(text))
		}
		if limit <= 0 {
			break
		}
	}
	return blocks
}
