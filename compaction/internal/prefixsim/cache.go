package main

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/gloveboxhq/glovebox/compaction/assembly"
	"github.com/gloveboxhq/glovebox/memory"
)

// What a token costs, where one without a cache costs 1, and what else is known
// of Anthropic's cache: see placeBreakpoints of package assembly for the source.
const (
	priceRead    = 0.1
	priceWritten = 1.25
	lookback     = 20
	lifetime     = 5 * time.Minute
	// leastCached is the shortest beginning that is kept; it is from 512 to
	// 4,096 tokens, depending on the model.
	leastCached = 1024
)

// digest is that of all blocks up to one.
type digest [sha256.Size]byte

// block is one block of a request.
type block struct {
	digest     digest
	tokens     int // of all blocks up to this one
	breakpoint bool
	// position is that of a walk back: neighbouring calls share one, and so do
	// neighbouring results.
	position int
}

// blocksOf returns the blocks of a request, and how many of the tokens stand
// before the message with the last input of the user.
func blocksOf(p assembly.Prompt, r assembly.Report) (blocks []block, stays int) {
	var before block
	var kind assembly.PartType
	add := func(tokens int, of assembly.PartType, fields ...string) {
		h := sha256.New()
		h.Write(before.digest[:])
		for _, f := range fields {
			binary.Write(h, binary.LittleEndian, int64(len(f)))
			h.Write([]byte(f))
		}
		b := block{tokens: before.tokens + tokens, position: before.position}
		h.Sum(b.digest[:0])
		if of != kind || of != assembly.PartCall && of != assembly.PartResult {
			b.position++
		}
		before, kind = b, of
		blocks = append(blocks, b)
	}
	var tools []string
	for _, t := range p.Tools {
		tools = append(tools, t.Name, t.Description, string(t.Parameters))
	}
	add(r.Totals.Tools, "tools", tools...)
	add(r.Totals.System, "system", p.System)
	blocks[len(blocks)-1].breakpoint = p.CacheSystem
	for _, m := range p.Messages {
		first := before.tokens
		for _, part := range m.Parts {
			failed := ""
			if part.IsError {
				failed = "failed"
			}
			add(part.Tokens, part.Type, string(m.Role), string(part.Type), part.Text, part.ID, part.Name, string(part.Raw), failed)
			if e := r.Entries[part.Entry]; e.Kind == assembly.KindMessage && e.Source == memory.SourceUser {
				stays = first
			}
		}
		blocks[len(blocks)-1].breakpoint = m.Breakpoint
	}
	return blocks, stays
}

// cache is that of a provider: when which beginning is forgotten.
type cache map[digest]time.Time

// send returns how many tokens of a request come out of the cache, how many go
// into it, and how many do neither. An entry that is read lives on; nothing is
// known of shorter ones, so they do not.
func (c cache) send(at time.Time, blocks []block) (read, written, plain int) {
	upTo := 0 // tokens to the last breakpoint
	for _, b := range blocks {
		if b.breakpoint && b.tokens >= leastCached {
			upTo = b.tokens
		}
	}
walk:
	for i := len(blocks) - 1; i >= 0; i-- {
		if !blocks[i].breakpoint {
			continue
		}
		for j := i; j >= 0 && blocks[i].position-blocks[j].position < lookback; j-- {
			if until, ok := c[blocks[j].digest]; ok && !at.After(until) {
				c[blocks[j].digest] = at.Add(lifetime)
				read = blocks[j].tokens
				break walk
			}
		}
	}
	for _, b := range blocks {
		if b.breakpoint && b.tokens >= leastCached && b.tokens > read {
			c[b.digest] = at.Add(lifetime)
		}
	}
	return read, max(upTo-read, 0), blocks[len(blocks)-1].tokens - max(upTo, read)
}
