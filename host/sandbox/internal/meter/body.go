package meter

import (
	"github.com/gloveboxhq/glovebox/host/sandbox/wasm"
)

// bodyRewriter rewrites one body after the other.
type bodyRewriter struct {
	w    *rewriter
	out  []byte
	fuel uint32 // index of the local that holds the fuel left
	// index is the local that holds the index of an indirect call.
	index uint32

	survey survey
}

// survey is what a first look at a body tells.
type survey struct {
	// costs are those of the basic blocks that are charged, in order.
	costs []uint32
	// calls, loops and bulk tell whether the body has such instructions.
	calls, loops, bulk bool
	// demands counts the calls through tables that are filled on demand.
	demands int
	frames  []surveyFrame
}

type surveyFrame struct {
	op       wasm.Opcode
	targeted bool // a branch leads to its end
	entered  bool // the code before it could be reached
}

// rewrite returns the new body.
func (b *bodyRewriter) rewrite(w *rewriter, body wasm.Body, t wasm.FunctionType) ([]byte, error) {
	b.w = w
	if err := b.look(body); err != nil {
		return nil, err
	}
	s := &b.survey
	locals := len(t.Params) + body.LocalCount
	if !s.calls && !s.loops && !s.bulk && len(s.costs) == 1 && s.costs[0] <= smallFunction {
		return b.small(body)
	}
	b.fuel = uint32(locals)
	// The fuel and, where there are calls, the stack that is left.
	added := uint32(1)
	if s.calls {
		added = 2
	}
	runs := uint32(1)
	if s.demands > 0 {
		b.index = b.fuel + added
		runs = 2
	}
	out := wasm.AppendU32(b.out[:0], uint32(len(body.Locals))+runs)
	for _, run := range body.Locals {
		out = append(wasm.AppendU32(out, run.Count), byte(run.Type))
	}
	out = append(wasm.AppendU32(out, added), byte(wasm.I64))
	if s.demands > 0 {
		out = append(out, 1, byte(wasm.I32))
	}

	out = append(out, byte(wasm.OpGlobalGet))
	out = wasm.AppendU32(out, w.fuel)
	frame := int64(frameBytes + bytesPerLocal*locals + len(body.Code)/2)
	if s.calls {
		out = b.enter(out, s.costs[0], frame)
	} else {
		out = b.chargeAndCheck(out, s.costs[0])
	}
	out = append(out, byte(wasm.OpBlock))
	out = w.resultType(out, t.Results)
	out, err := b.instructions(out, body)
	if err != nil {
		return nil, err
	}
	out = b.spill(out)
	if s.calls {
		out = b.leave(out, frame)
	}
	out = append(out, byte(wasm.OpEnd))
	b.out = out
	return out, nil
}

// small rewrites a function of one basic block: it charges the global itself,
// and does not look how much is left, which its callers soon do.
func (b *bodyRewriter) small(body wasm.Body) ([]byte, error) {
	out := wasm.AppendU32(b.out[:0], uint32(len(body.Locals)))
	for _, run := range body.Locals {
		out = append(wasm.AppendU32(out, run.Count), byte(run.Type))
	}
	out = append(out, byte(wasm.OpGlobalGet))
	out = wasm.AppendU32(out, b.w.fuel)
	out = wasm.AppendS64(append(out, byte(wasm.OpI64Const)), int64(b.survey.costs[0]))
	out = append(out, byte(wasm.OpI64Sub), byte(wasm.OpGlobalSet))
	out = wasm.AppendU32(out, b.w.fuel)
	s := wasm.NewScanner(body.Expression)
	for s.More() {
		i, err := s.Next()
		if err != nil {
			return nil, err
		}
		out = b.w.instruction(out, body, i)
	}
	b.out = out
	return out, nil
}

// chargeAndCheck takes the fuel from the stack, charges it and asks for more if
// it is used up.
func (b *bodyRewriter) chargeAndCheck(out []byte, cost uint32) []byte {
	out = wasm.AppendS64(append(out, byte(wasm.OpI64Const)), int64(cost))
	out = append(out, byte(wasm.OpI64Sub), byte(wasm.OpLocalTee))
	out = wasm.AppendU32(out, b.fuel)
	out = append(out, byte(wasm.OpI64Const), 0, byte(wasm.OpI64LtS), byte(wasm.OpIf), emptyBlock)
	out = append(out, byte(wasm.OpLocalGet))
	out = wasm.AppendU32(out, b.fuel)
	out = wasm.AppendU32(append(out, byte(wasm.OpCall)), b.w.imports)
	out = append(out, byte(wasm.OpLocalSet))
	out = wasm.AppendU32(out, b.fuel)
	return append(out, byte(wasm.OpEnd))
}

const emptyBlock = 0x40

// charge takes cost from the fuel.
func (b *bodyRewriter) charge(out []byte, cost uint32) []byte {
	if cost == 0 {
		return out
	}
	out = wasm.AppendU32(append(out, byte(wasm.OpLocalGet)), b.fuel)
	out = wasm.AppendS64(append(out, byte(wasm.OpI64Const)), int64(cost))
	return wasm.AppendU32(append(out, byte(wasm.OpI64Sub), byte(wasm.OpLocalSet)), b.fuel)
}

func (b *bodyRewriter) spill(out []byte) []byte {
	out = wasm.AppendU32(append(out, byte(wasm.OpLocalGet)), b.fuel)
	return wasm.AppendU32(append(out, byte(wasm.OpGlobalSet)), b.w.fuel)
}

func (b *bodyRewriter) reload(out []byte) []byte {
	out = wasm.AppendU32(append(out, byte(wasm.OpGlobalGet)), b.w.fuel)
	return wasm.AppendU32(append(out, byte(wasm.OpLocalSet)), b.fuel)
}

// enter takes the fuel from the stack and charges it, takes the frame from the
// stack that is left, and looks at both at once: a call is what costs most.
func (b *bodyRewriter) enter(out []byte, cost uint32, frame int64) []byte {
	stack := b.fuel + 1
	out = wasm.AppendS64(append(out, byte(wasm.OpI64Const)), int64(cost))
	out = wasm.AppendU32(append(out, byte(wasm.OpI64Sub), byte(wasm.OpLocalTee)), b.fuel)
	out = wasm.AppendU32(append(out, byte(wasm.OpGlobalGet)), b.w.stack)
	out = wasm.AppendS64(append(out, byte(wasm.OpI64Const)), frame)
	out = wasm.AppendU32(append(out, byte(wasm.OpI64Sub), byte(wasm.OpLocalTee)), stack)
	out = wasm.AppendU32(append(out, byte(wasm.OpGlobalSet)), b.w.stack)
	out = wasm.AppendU32(append(out, byte(wasm.OpLocalGet)), stack)
	out = append(out, byte(wasm.OpI64Or), byte(wasm.OpI64Const), 0, byte(wasm.OpI64LtS), byte(wasm.OpIf), emptyBlock)

	out = wasm.AppendU32(append(out, byte(wasm.OpLocalGet)), stack)
	out = append(out, byte(wasm.OpI64Const), 0, byte(wasm.OpI64LtS), byte(wasm.OpIf), emptyBlock)
	out = wasm.AppendS64(append(out, byte(wasm.OpI64Const)), Overflow)
	out = wasm.AppendU32(append(out, byte(wasm.OpCall)), b.w.imports)
	out = append(out, byte(wasm.OpDrop), byte(wasm.OpEnd))
	out = wasm.AppendU32(append(out, byte(wasm.OpLocalGet)), b.fuel)
	out = wasm.AppendU32(append(out, byte(wasm.OpCall)), b.w.imports)
	out = wasm.AppendU32(append(out, byte(wasm.OpLocalSet)), b.fuel)
	return append(out, byte(wasm.OpEnd))
}

// leave gives the frame back.
func (b *bodyRewriter) leave(out []byte, frame int64) []byte {
	out = wasm.AppendU32(append(out, byte(wasm.OpGlobalGet)), b.w.stack)
	out = wasm.AppendS64(append(out, byte(wasm.OpI64Const)), frame)
	return wasm.AppendU32(append(out, byte(wasm.OpI64Add), byte(wasm.OpGlobalSet)), b.w.stack)
}

// resultType appends the type of a block without parameters.
func (w *rewriter) resultType(out []byte, results []wasm.ValueType) []byte {
	switch len(results) {
	case 0:
		return append(out, emptyBlock)
	case 1:
		return append(out, byte(results[0]))
	}
	return wasm.AppendS64(out, int64(w.typeIndex(wasm.FunctionType{Results: results})))
}

// cost is what one instruction is charged when it is reached.
func (w *rewriter) cost(i *wasm.Instruction) uint32 {
	switch i.Op {
	case wasm.OpBlock, wasm.OpLoop, wasm.OpEnd, wasm.OpElse, wasm.OpNop:
		return 0
	case wasm.OpCall:
		if i.Index < w.imports {
			return costHostCall
		}
		return costCall
	case wasm.OpCallIndirect:
		return 2 * costCall
	case wasm.OpMemoryGrow:
		return costGrow
	case wasm.OpRefFunc:
		return costReference
	case wasm.OpTableGet, wasm.OpTableSet:
		return costTable
	}
	return 1
}

// look surveys a body.
func (b *bodyRewriter) look(body wasm.Body) error {
	s := &b.survey
	*s = survey{costs: append(s.costs[:0], 0), frames: s.frames[:0]}
	s.frames = append(s.frames, surveyFrame{op: wasm.OpBlock, entered: true})
	reachable := true
	scanner := wasm.NewScanner(body.Expression)
	for scanner.More() {
		i, err := scanner.Next()
		if err != nil {
			return err
		}
		if reachable {
			s.costs[len(s.costs)-1] += b.w.cost(i)
			switch {
			case i.Op == wasm.OpCall && i.Index >= b.w.imports, i.Op == wasm.OpCallIndirect:
				s.calls = true
			case i.Op == wasm.OpLoop:
				s.loops = true
			case isBulk(i.Op):
				s.bulk = true
			}
			if b.w.demandOf(i) != nil {
				s.demands++
			}
		}
		next, begins := s.follow(i, reachable)
		if begins {
			s.costs = append(s.costs, 0)
		}
		reachable = next
	}
	return nil
}

// follow tells whether what comes after an instruction can be reached, and
// whether it begins a basic block. Both passes follow the same instructions,
// so that they agree.
func (s *survey) follow(i *wasm.Instruction, reachable bool) (next, begins bool) {
	target := func(label uint32) {
		if f := &s.frames[len(s.frames)-1-int(label)]; reachable && f.op != wasm.OpLoop {
			f.targeted = true
		}
	}
	switch i.Op {
	case wasm.OpBlock:
		s.frames = append(s.frames, surveyFrame{op: i.Op, entered: reachable})
		return reachable, false
	case wasm.OpLoop, wasm.OpIf:
		s.frames = append(s.frames, surveyFrame{op: i.Op, entered: reachable})
		return reachable, reachable
	case wasm.OpElse:
		f := &s.frames[len(s.frames)-1]
		f.targeted = f.targeted || reachable
		f.op = wasm.OpElse
		return f.entered, f.entered
	case wasm.OpEnd:
		f := s.frames[len(s.frames)-1]
		s.frames = s.frames[:len(s.frames)-1]
		// An if without an else can be passed by.
		joined := f.targeted || f.op == wasm.OpIf && f.entered || f.op == wasm.OpElse && f.targeted
		return reachable || joined, joined && len(s.frames) > 0
	case wasm.OpBr:
		target(i.Index)
		return false, false
	case wasm.OpBrIf:
		target(i.Index)
		return reachable, reachable
	case wasm.OpBrTable:
		for _, label := range i.Targets {
			target(label)
		}
		return false, false
	case wasm.OpReturn, wasm.OpUnreachable:
		return false, false
	}
	return reachable, false
}

// instructions appends the body's instructions, charged.
func (b *bodyRewriter) instructions(out []byte, body wasm.Body) ([]byte, error) {
	s := &b.survey
	costs := s.costs[1:]
	s.frames = append(s.frames[:0], surveyFrame{op: wasm.OpBlock, entered: true})
	reachable := true
	scanner := wasm.NewScanner(body.Expression)
	for scanner.More() {
		i, err := scanner.Next()
		if err != nil {
			return nil, err
		}
		switch {
		case i.Op == wasm.OpReturn:
			// To the block around the body, behind which the fuel is written
			// back.
			out = wasm.AppendU32(append(out, byte(wasm.OpBr)), uint32(len(s.frames)-1))
		case !reachable || !b.calls(i):
			out = b.w.instruction(out, body, i)
		default:
			out = b.spill(out)
			if b.w.demandOf(i) != nil {
				out = b.lookUp(out, i.Index2)
			}
			out = b.w.instruction(out, body, i)
			if i.Op != wasm.OpCall || i.Index >= b.w.imports {
				out = b.reload(out)
			}
		}
		next, begins := s.follow(i, reachable)
		reachable = next
		if !begins {
			continue
		}
		if i.Op == wasm.OpLoop {
			out = wasm.AppendU32(append(out, byte(wasm.OpLocalGet)), b.fuel)
			out = b.chargeAndCheck(out, costs[0])
		} else {
			out = b.charge(out, costs[0])
		}
		costs = costs[1:]
	}
	return out, nil
}

// calls reports whether the fuel must be in the global while i runs.
func (b *bodyRewriter) calls(i *wasm.Instruction) bool {
	return i.Op == wasm.OpCall || i.Op == wasm.OpCallIndirect || isBulk(i.Op)
}

// isBulk reports whether the cost of op depends on an operand.
func isBulk(op wasm.Opcode) bool {
	switch op {
	case wasm.OpMemoryInit, wasm.OpMemoryCopy, wasm.OpMemoryFill, wasm.OpTableInit, wasm.OpTableCopy, wasm.OpTableGrow, wasm.OpTableFill:
		return true
	}
	return false
}

// instruction appends an instruction with its functions' new indices.
func (w *rewriter) instruction(out []byte, body wasm.Body, i *wasm.Instruction) []byte {
	switch {
	case i.Op == wasm.OpCall:
		return wasm.AppendU32(append(out, byte(wasm.OpCall)), w.shift(i.Index))
	case i.Op == wasm.OpRefFunc:
		return wasm.AppendU32(append(out, byte(wasm.OpRefFunc)), w.reference(i.Index))
	case isBulk(i.Op):
		return wasm.AppendU32(append(out, byte(wasm.OpCall)), w.helper(helperKey{i.Op, i.Index, i.Index2}))
	}
	return append(out, body.Code[i.Start:i.End]...)
}
