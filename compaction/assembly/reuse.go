package assembly

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
}

// Part is Tokens of Of, from 0 to 1.
func (r Reuse) Part() float64 {
	if r.Of == 0 {
		return 0
	}
	return float64(r.Tokens) / float64(r.Of)
}

func traceOf(p Prompt, system, tools int) Trace { return Trace{} }

func (previous Trace) reuse(now Trace) Reuse { return Reuse{} }
