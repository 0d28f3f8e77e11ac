package assembly

import (
	"encoding/binary"
	"hash/maphash"

	"github.com/gloveboxhq/glovebox/memory"
)

// Trace is the beginning of a prompt in brief, to be held against the next one:
// a digest and the tokens of each part. The zero Trace is that of no prompt. It
// stays within the process that made it.
type Trace struct{ steps []step }

type step struct {
	digest uint64
	tokens int
}

// Reuse tells how much of a prompt a provider has already worked on.
type Reuse struct {
	// Tokens of the beginning that are those of the prompt before, of Of.
	Tokens int `json:"tokens"`
	Of     int `json:"of"`
	// Whole says that the prompt before is the beginning of this one, all of it.
	Whole bool `json:"whole"`
}

// Part is Tokens of Of, from 0 to 1.
func (r Reuse) Part() float64 {
	if r.Of == 0 {
		return 0
	}
	return float64(r.Tokens) / float64(r.Of)
}

// traceSeed is drawn once for each process, so that nobody can write two texts
// of one digest.
var traceSeed = maphash.MakeSeed()

// traceOf returns the trace of p, whose system text and tools cost that many
// tokens. Its steps are in the order in which providers read: the tools, the
// system text, each part. Only what a provider is sent counts, not what a part
// was made from; nor breakpoints, which move with every turn.
func traceOf(p Prompt, system, tools int) Trace {
	n := 2
	for _, m := range p.Messages {
		n += len(m.Parts)
	}
	steps := make([]step, 0, n)
	var d digester
	d.SetSeed(traceSeed)
	for _, t := range p.Tools {
		d.text(t.Name)
		d.text(t.Description)
		d.bytes(t.Parameters)
	}
	steps = append(steps, d.step(tools))
	d.text(p.System)
	steps = append(steps, d.step(system))
	for _, m := range p.Messages {
		for i := range m.Parts {
			d.part(m.Role, &m.Parts[i])
			steps = append(steps, d.step(m.Parts[i].Tokens))
		}
	}
	return Trace{steps: steps}
}

// digester hashes one step after the other.
type digester struct{ maphash.Hash }

// step ends a step.
func (d *digester) step(tokens int) step {
	digest := d.Sum64()
	d.Reset()
	return step{digest, tokens}
}

func (d *digester) part(role memory.Role, p *Part) {
	d.text(string(role))
	d.text(string(p.Type))
	d.text(p.Text)
	d.text(p.ID)
	d.text(p.Name)
	d.bytes(p.Raw)
	if p.IsError {
		d.WriteByte(1)
	}
}

// text adds a field. Its length goes first: else the fields "ab", "c" and "a",
// "bc" were the same.
func (d *digester) text(s string) {
	d.length(len(s))
	d.WriteString(s)
}

func (d *digester) bytes(b []byte) {
	d.length(len(b))
	d.Write(b)
}

func (d *digester) length(n int) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(n))
	d.Write(b[:])
}

// reuse holds now against the prompt before it: the steps up to the first that
// is another one are reused.
func (previous Trace) reuse(now Trace) Reuse {
	var r Reuse
	same, n := true, 0
	for i, s := range now.steps {
		same = same && i < len(previous.steps) && previous.steps[i].digest == s.digest
		if same {
			r.Tokens += s.tokens
			n++
		}
		r.Of += s.tokens
	}
	r.Whole = n > 0 && n == len(previous.steps)
	return r
}
