package assembly_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/compaction/assembly"
	"github.com/gloveboxhq/glovebox/compaction/transcript"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/memory"
)

// A2, A3, A5: FuzzAssemble decodes bytes to everything that a prompt is made of and holds
// what comes of it against what Assemble promises.
func FuzzAssemble(f *testing.F) {
	f.Add([]byte{})
	for seed := range uint64(12) {
		choices := make([]byte, 40<<(seed%5))
		random := rand.NewChaCha8([32]byte{byte(seed)})
		_, _ = random.Read(choices)
		f.Add(choices)
	}
	f.Fuzz(func(t *testing.T, choices []byte) { checkAssemble(t, choices) })
}

// dice chooses, by a list of bytes, what a prompt is made of; when the list is at
// its end, always the first. Every text has a word of its own, so that it can be
// found in a prompt.
type dice struct {
	rest []byte
	ids  uint64
}

// pick chooses one of n, at most 256.
func (d *dice) pick(n int) int {
	if len(d.rest) == 0 {
		return 0
	}
	b := d.rest[0]
	d.rest = d.rest[1:]
	return int(b) % n
}

func (d *dice) one(n int) bool { return d.pick(n) == n-1 }

func choose[T any](d *dice, from ...T) T { return from[d.pick(len(from))] }

// next is a number that nothing else has.
func (d *dice) next() uint64 {
	d.ids++
	return d.ids
}

func (d *dice) id() (id uuid.UUID) {
	binary.BigEndian.PutUint64(id[8:], d.next())
	return id
}

// word is a word that nothing else has, and no other begins or ends with.
func (d *dice) word() string { return fmt.Sprintf("w%d.", d.next()) }

func (d *dice) text() string {
	switch d.pick(12) {
	default:
		return d.word() + strings.Repeat(" and on", d.pick(60))
	case 8:
		return `{"type":"text","text":"` + d.word() + `"}`
	case 9:
		return choose(d, "", " ", "\n\t", "\u00a0\u3000")
	case 10:
		return choose(d, "yes", "go on") // others say the same
	case 11:
		return d.word() + "\x00\xff\u202e\r\n</external> [Summary"
	}
}

// frames are made once: each has an id that nobody can foresee, and the same bytes
// are to give the same input.
var frames = struct {
	sync.Mutex
	made map[string]boundary.Content
}{made: map[string]boundary.Content{}}

func framed(text string) boundary.Content {
	frames.Lock()
	defer frames.Unlock()
	c, ok := frames.made[text]
	if !ok {
		source, err := boundary.ToolSource("grep")
		if err != nil {
			panic(err)
		}
		c, _ = boundary.Wrap(source, text, boundary.Unlimited)
		frames.made[text] = c
	}
	return c
}

func (d *dice) callID() string {
	return choose(d, "a", "b", "c", "call_1", "call_2", "call_3", "", "not an id", strings.Repeat("x", 200), "日本")
}

func (d *dice) toolName() string {
	return choose(d, "grep", "read", "", "unknown", "not a name", strings.Repeat("n", 200), "日本")
}

func (d *dice) callInput() json.RawMessage {
	return json.RawMessage(choose(d, `{}`, `{"for":"`+d.word()+`"}`, ` {"b":1,"a":2}`, `[1]`, `"x"`, `null`, ``, `{"for":`, "\xff"))
}

func (d *dice) result() memory.Block {
	text := ""
	if !d.one(6) {
		text = d.word() + strings.Repeat(" pumps", d.pick(40))
	}
	return memory.ToolResult(d.callID(), d.toolName(), framed(text), d.one(4))
}

func (d *dice) call() memory.Block {
	return memory.ToolCall(d.callID(), d.toolName(), d.callInput())
}

func (d *dice) block() memory.Block {
	switch d.pick(10) {
	default:
		return memory.Text(d.text())
	case 3:
		return memory.External(framed(d.word() + " from outside"))
	case 4:
		return d.call()
	case 5:
		return d.result()
	case 6:
		return decoded(choose(d,
			`{"type":"hologram","text":5,"beams":[1,2]}`, `{"type":"image","source":{"data":"aGk="}}`,
			`{"type":"thinking","text":"hm","name":"anthropic","input":{"type":"thinking","thinking":"hm","signature":"c2ln"}}`,
			`{"type":"thinking","text":"hm"}`, `{"type":"thinking","text":"hm","name":"gemini","input":{"thought":true}}`,
		))
	}
}

func decoded(raw string) memory.Block {
	var b memory.Block
	if err := json.Unmarshal([]byte(raw), &b); err != nil {
		panic(err)
	}
	return b
}

// spoken chooses who says what. Half of it is as it should be.
func (d *dice) spoken() (memory.Role, memory.Source, []memory.Block) {
	var blocks []memory.Block
	switch d.pick(10) {
	default:
		return memory.RoleUser, choose(d, memory.SourceUser, memory.SourceUnknown), []memory.Block{memory.Text(d.text())}
	case 2, 3:
		return memory.RoleAssistant, memory.SourceAssistant, []memory.Block{memory.Text(d.text())}
	case 4:
		for range 1 + d.pick(3) {
			blocks = append(blocks, d.call())
		}
		return memory.RoleAssistant, memory.SourceAssistant, blocks
	case 5:
		for range 1 + d.pick(3) {
			blocks = append(blocks, d.result())
		}
		return memory.RoleTool, memory.SourceTool, blocks
	case 6:
		return memory.RoleUser, memory.SourceContextInjection, []memory.Block{memory.External(framed(d.word() + " from the calendar"))}
	case 7:
		return memory.RoleUser, choose(d, memory.SourceInterSession, memory.SourceTaskCompletion, memory.SourceRetry, memory.SourceScheduledTick), []memory.Block{memory.Text(d.text())}
	case 8, 9:
		for range d.pick(5) {
			blocks = append(blocks, d.block())
		}
		role := choose(d, memory.RoleAssistant, memory.RoleTool, memory.RoleUser, memory.RoleSystem)
		return role, choose(d, memory.Source(role), memory.SourceUnknown, memory.SourceRetry, "made_up"), blocks
	}
}

var epoch = time.Date(2026, 3, 23, 9, 0, 0, 0, time.UTC)

func (d *dice) item() memory.Item {
	if d.one(8) {
		s := &memory.Summary{ID: memory.SummaryID(d.id()), Text: d.word() + strings.Repeat(" they met", d.pick(40)), Descendants: 3, Earliest: epoch, Latest: epoch}
		if d.one(2) {
			s.External = framed(d.word() + " somebody else said")
		}
		s.Tokens = tokens.Estimate(s.Shown())
		return memory.Item{Summary: s}
	}
	m := &memory.Message{ID: memory.MessageID(d.id()), Seq: int64(d.pick(9)), At: epoch}
	m.Role, m.Source, m.Blocks = d.spoken()
	m.Tokens = memory.Count(m.Blocks)
	return memory.Item{Message: m}
}

func (d *dice) input() assembly.Input {
	in := assembly.Input{
		System: choose(d, "Be kind.", "", " "), Turn: choose(d, "turn-2", ""), FreshTail: choose(d, 0, 1, 3, 20, -1),
		Budget:   choose(d, 500, 100, 0, -7, 50, 200, 300, 1000, 2000, 1<<40),
		Provider: choose(d, "", assembly.Anthropic, assembly.OpenAIChat, assembly.OpenAIResponses, assembly.Gemini),
		Mode:     choose(d, boundary.Mode(""), boundary.ModeDelimit, boundary.ModeDatamark, boundary.ModeEncode),
	}
	if d.one(3) {
		in.Recovery = choose(d, assembly.RecoverKeepTen, assembly.RecoverKeepFour, assembly.RecoverShorten)
	}
	if d.one(2) {
		in.Tools = []assembly.Tool{{Name: "grep", Description: "Finds.", Parameters: json.RawMessage(`{"type":"object"}`)}, {Name: "read"}}
	}
	if d.one(2) {
		in.Beside = []memory.Block{choose(d, memory.Text("today is Monday"), memory.Text(" "), memory.External(framed("he likes tea")))}
	}
	if d.one(4) {
		in.Count = func(text string) int { return (len(text) + 2) / 3 }
	}
	repeat := make([]int, d.pick(7))
	in.Live = make([]assembly.Live, len(repeat))
	for i := range in.Live {
		l := &in.Live[i]
		l.Role, l.Source, l.Blocks = d.spoken()
		l.Persisted = d.one(3)
		if l.Turn = in.Turn; d.one(5) {
			l.Turn = "turn-1"
		}
		if repeat[i] = -1; d.one(3) {
			repeat[i] = d.pick(30)
		}
	}
	for len(d.rest) > 0 && len(in.Items) < 60 {
		in.Items = append(in.Items, d.item())
	}
	for i, k := range repeat {
		if k >= 0 && k < len(in.Items) && in.Items[k].Message != nil {
			m := in.Items[k].Message
			in.Live[i].Role, in.Live[i].Source, in.Live[i].Blocks = m.Role, m.Source, m.Blocks
		}
	}
	return in
}

// textsOf returns what of a message has to be found in a prompt that it is in:
// whatever is not blank, not thought, and not in a form of its own.
func textsOf(blocks []memory.Block, mode boundary.Mode) []string {
	var texts []string
	for _, b := range blocks {
		switch b.Type {
		case memory.BlockText:
			if strings.TrimSpace(b.Text) != "" {
				texts = append(texts, b.Text)
			}
		case memory.BlockExternal, memory.BlockToolResult:
			if word, _, ok := strings.Cut(boundary.Neutral(b.External), " "); ok && mode != boundary.ModeEncode {
				texts = append(texts, word)
			}
		case memory.BlockToolCall:
			if i := strings.Index(string(b.Input), "w"); i >= 0 && json.Valid(b.Input) {
				texts = append(texts, string(b.Input[i:strings.LastIndex(string(b.Input), `"`)]))
			}
		}
	}
	return texts
}

// shownIn returns all that the messages of a prompt say.
func shownIn(p assembly.Prompt) string {
	var s strings.Builder
	for _, m := range p.Messages {
		for _, part := range m.Parts {
			s.WriteString(part.Text + "\n" + string(part.Raw) + "\n")
		}
	}
	return s.String()
}

type checker interface {
	Helper()
	Fatalf(format string, args ...any)
}

// checkAssemble is everything that holds for every prompt.
func checkAssemble(t checker, choices []byte) {
	t.Helper()
	in := (&dice{rest: choices}).input()
	prompt, report, err := assembly.Assemble(in)
	if err != nil {
		t.Fatalf("Assemble: %v\n%s%s", err, describe(in), sketched(prompt, report))
	}
	if broken := assembly.Check(prompt, in.Provider); len(broken) > 0 {
		t.Fatalf("%q breaks %+v\n%s", in.Provider, broken, asJSON(prompt))
	}
	checkShape(t, prompt)
	checkReport(t, in, prompt, report)
	checkComplete(t, in, prompt, report)
	// The same bytes for the same input, which is not changed.
	same := (&dice{rest: choices}).input()
	again, report2, _ := assembly.Assemble(same)
	if asJSON(again) != asJSON(prompt) || asJSON(report2) != asJSON(report) {
		t.Fatalf("the same input gave\n%s\nand\n%s", asJSON(prompt), asJSON(again))
	}
	same = (&dice{rest: choices}).input()
	in.Count, same.Count = nil, nil
	if !reflect.DeepEqual(in, same) {
		t.Fatalf("the input was changed:\n%s\nwas\n%s", describe(in), describe(same))
	}
}

func asJSON(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// describe writes an input for a person.
func describe(in assembly.Input) string {
	var s strings.Builder
	fmt.Fprintf(&s, "budget %d, tail %d, %q, mode %q, recovery %d, turn %q, %d tools, beside %q\n", in.Budget, in.FreshTail, in.Provider, in.Mode, in.Recovery, in.Turn, len(in.Tools), memory.Shown(in.Beside))
	for i, item := range in.Items {
		if item.Summary != nil {
			fmt.Fprintf(&s, "  item %d summary %q\n", i, item.Summary.Text)
			continue
		}
		m := item.Message
		fmt.Fprintf(&s, "  item %d %s from %q: %s\n", i, m.Role, m.Source, describeBlocks(m.Blocks))
	}
	for i, l := range in.Live {
		fmt.Fprintf(&s, "  live %d %s from %q persisted %v turn %q: %s\n", i, l.Role, l.Source, l.Persisted, l.Turn, describeBlocks(l.Blocks))
	}
	return s.String()
}

// sketched writes what a prompt is made of, for a person.
func sketched(p assembly.Prompt, r assembly.Report) string {
	var s strings.Builder
	for i, m := range p.Messages {
		fmt.Fprintf(&s, "  message %d %s, breakpoint %v:", i, m.Role, m.Breakpoint)
		for _, part := range m.Parts {
			fmt.Fprintf(&s, " %s of %s %q", part.Type, r.Entries[part.Entry].Kind, r.Entries[part.Entry].Source)
		}
		s.WriteString("\n")
	}
	return s.String()
}

func describeBlocks(blocks []memory.Block) string {
	var s strings.Builder
	for _, b := range blocks {
		fmt.Fprintf(&s, " %s(%.20q %.20q %.20q %.20q %.20q)", b.Type, b.ID, b.Name, b.Text, b.Input, boundary.Neutral(b.External))
	}
	return s.String()
}

// checkShape holds a prompt against what all providers ask for, beside Check and
// not knowing of it.
func checkShape(t checker, p assembly.Prompt) {
	t.Helper()
	fail := func(at int, what string) {
		t.Helper()
		t.Fatalf("message %d: %s\n%s", at, what, asJSON(p))
	}
	if len(p.Messages) == 0 {
		fail(0, "there is none")
	}
	var open []string // calls without a result yet
	seen := map[string]bool{}
	breakpoints := 0
	for i, m := range p.Messages {
		want := memory.RoleUser
		if i%2 == 1 {
			want = memory.RoleAssistant
		}
		if m.Role != want || len(m.Parts) == 0 {
			fail(i, "is of the wrong role, or empty")
		}
		if m.Breakpoint {
			breakpoints++
		}
		words := false
		for _, part := range m.Parts {
			switch part.Type {
			case assembly.PartResult:
				at := slices.Index(open, part.ID)
				if m.Role != memory.RoleUser || words || at < 0 {
					fail(i, "a result stands where none may")
				}
				open = slices.Delete(open, at, at+1)
				continue
			case assembly.PartCall:
				if m.Role != memory.RoleAssistant || seen[part.ID] || part.ID == "" || !json.Valid(part.Raw) || part.Raw[0] != '{' && strings.TrimSpace(string(part.Raw))[0] != '{' {
					fail(i, "a call is out of form")
				}
				seen[part.ID] = true
				open = append(open, part.ID)
			case assembly.PartText:
				if strings.TrimSpace(part.Text) == "" {
					fail(i, "a text is blank")
				}
			}
			if words = true; m.Role == memory.RoleUser && len(open) > 0 {
				fail(i, "a call has no result")
			}
		}
		if m.Role == memory.RoleUser && len(open) > 0 {
			fail(i, "a call has no result")
		}
	}
	if p.Messages[len(p.Messages)-1].Role != memory.RoleUser || breakpoints > 4 {
		fail(len(p.Messages)-1, "the assistant's word is the last, or there are too many breakpoints")
	}
}

// checkReport: every piece has its entry with a reason, and the numbers add up.
func checkReport(t checker, in assembly.Input, p assembly.Prompt, r assembly.Report) {
	t.Helper()
	total := r.Totals.System + r.Totals.Tools
	shows, costs := make([]bool, len(r.Entries)), make([]int, len(r.Entries))
	for _, m := range p.Messages {
		for _, part := range m.Parts {
			total += part.Tokens
			if part.Entry < 0 || part.Entry >= len(r.Entries) || !r.Entries[part.Entry].Included || part.Tokens < 0 {
				t.Fatalf("part %+v is of no entry that is included\n%s", part, asJSON(r))
			}
			shows[part.Entry] = true
			if part.Type != assembly.PartResult || part.Text != transcript.PlaceholderText {
				costs[part.Entry] += part.Tokens
			}
		}
	}
	sum := r.Totals.System + r.Totals.Tools + r.Totals.Summaries + r.Totals.Messages + r.Totals.Tail + r.Totals.Live + r.Totals.Beside + r.Totals.Notes
	if r.Tokens != total || r.Tokens != sum || p.Tokens != total {
		t.Fatalf("the parts cost %d, the report says %d, the totals %d, the prompt %d\n%s", total, r.Tokens, sum, p.Tokens, asJSON(r))
	}
	if r.Budget != in.Budget || r.OverBudget != (r.Tokens > in.Budget) {
		t.Fatalf("budget %d of %d, tokens %d, over budget: %v", r.Budget, in.Budget, r.Tokens, r.OverBudget)
	}
	items, live := 0, 0
	for i, e := range r.Entries {
		if e.Reason == "" || e.Tokens < 0 {
			t.Fatalf("entry %d: %+v", i, e)
		}
		switch e.Kind {
		case assembly.KindSystem, assembly.KindTools:
			continue
		case assembly.KindSummary, assembly.KindRefresh, assembly.KindMessage:
			items++
		case assembly.KindLive:
			live++
		}
		// Thoughts of earlier turns are counted and not sent; of a live message's
		// results some may be covered.
		if e.Included && (costs[i] > e.Tokens || costs[i] < e.Tokens && e.Role != memory.RoleAssistant && e.Kind != assembly.KindLive) {
			t.Fatalf("the parts of entry %d, %+v, cost %d\n%s%s", i, e, costs[i], describe(in), sketched(p, r))
		}
		if e.Included != shows[i] {
			t.Fatalf("entry %d is included: %v, and has parts: %v\n%s", i, e.Included, shows[i], asJSON(r))
		}
	}
	if items != len(in.Items) || live != len(in.Live) {
		t.Fatalf("%d entries for %d items, %d for %d live messages", items, len(in.Items), live, len(in.Live))
	}
}

// checkComplete: what is said to be in is in, what has to be in is in, and nothing
// else.
func checkComplete(t checker, in assembly.Input, p assembly.Prompt, r assembly.Report) {
	t.Helper()
	shown := shownIn(p)
	entry := 1
	if len(in.Tools) > 0 {
		entry++
	}
	mustShow := func(e int, texts []string) {
		t.Helper()
		for _, text := range texts {
			if !strings.Contains(shown, text) {
				t.Fatalf("%q is not in the prompt; entry %+v\n%s%s", text, r.Entries[e], describe(in), asJSON(p))
			}
		}
	}
	var hidden []string
	last := -1
	for i, item := range in.Items {
		e := entry + i
		switch {
		case item.Summary != nil && r.Entries[e].Included:
			mustShow(e, []string{item.Summary.Text})
		case item.Summary != nil:
			hidden = append(hidden, item.Summary.Text)
		default:
			texts := textsOf(item.Message.Blocks, in.Mode)
			if r.Entries[e].Included {
				mustShow(e, texts)
			} else {
				hidden = append(hidden, texts...)
			}
			if item.Message.IsUsers() && item.Message.Role == memory.RoleUser && saysAnything(item.Message.Blocks) {
				last = e
			}
		}
	}
	entry += len(in.Items)
	shownElsewhere := map[string]bool{}
	for i, l := range in.Live {
		e := r.Entries[entry+i]
		texts := textsOf(l.Blocks, in.Mode)
		switch {
		case l.Persisted || l.Turn != in.Turn:
			missed := l.Persisted && e.Reason == assembly.ReasonMissed
			if e.Included && !missed || e.CoveredBy != 0 && !r.Entries[e.CoveredBy].Included {
				t.Fatalf("live message %d is not to be added: %+v", i, e)
			}
			if !missed {
				continue
			}
		case e.CoveredBy != 0 && (e.Included || !r.Entries[e.CoveredBy].Included || told(r.Entries[e.CoveredBy].Role) != told(e.Role)):
			t.Fatalf("live message %d: %+v, covered by %+v", i, e, r.Entries[e.CoveredBy])
		}
		mustShow(entry+i, texts)
		for _, text := range texts {
			shownElsewhere[text] = true
		}
	}
	if last >= 0 && !r.Entries[last].Included {
		t.Fatalf("the last input of the user is not in the prompt: %+v\n%s", r.Entries[last], describe(in))
	}
	for _, text := range hidden {
		if strings.HasPrefix(text, "w") && !shownElsewhere[text] && strings.Contains(shown, text) {
			t.Fatalf("%q is said to be left out, and is in the prompt\n%s", text, asJSON(p))
		}
	}
}

// saysAnything reports whether there is something to answer, not only the results
// of tools.
func saysAnything(blocks []memory.Block) bool {
	return slices.ContainsFunc(blocks, func(b memory.Block) bool {
		return b.Type != memory.BlockToolResult && strings.TrimSpace(memory.Shown([]memory.Block{b})) != ""
	})
}

// told is the role that a message is told in. A user's message may hold results of
// tools as well, which cover a tool's.
func told(r memory.Role) memory.Role {
	if r == memory.RoleAssistant {
		return r
	}
	return memory.RoleUser
}
