package assembly

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/compaction/transcript"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/memory"
)

// assembler holds one prompt on its way.
type assembler struct {
	in      Input
	entries []Entry
	// firstItem and firstLive are the entries of the first item and of the first
	// live message.
	firstItem, firstLive int
	// rows are those of the items, and then of those that are chosen. Their
	// Origin is their entry, and so is that of live ones.
	rows []transcript.Row
	live []transcript.Live
	// tail tells of each row of rows that it goes in whatever it costs.
	tail []bool
	// prompt is what goes in.
	prompt []transcript.Row
	// thinking is the entry from which on thoughts may go in: those of turns
	// that are done do not.
	thinking int
	// lastInput is the entry of what is to be answered; -1 if there is none.
	// lastRound is that of the calls whose turn goes on, or firstLive.
	lastInput, lastRound int
	// lastAnswer is the entry of the assistant's last words without a call, -1 if
	// there are none; missed is that of a live message that is said to be stored
	// and is shown all the same, or zero.
	lastAnswer, missed int
	// same is, by entry, the stored row that a live turn with calls is.
	same map[int]int
	// fixed is what goes in beside rows and live messages, reserve what is kept
	// for notes, demand what all would cost together.
	// older is what stands before the rows and is not shown.
	fixed, reserve, demand, older int

	beside string
	ids    ids
	parts  []transcript.Part // room for those of all rows
}

// collect turns everything into rows and entries.
func (a *assembler) collect() {
	in := &a.in
	if isBlank(in.System) {
		in.System = ""
	}
	blocks := 0
	for i := range in.Items {
		if m := in.Items[i].Message; m != nil {
			blocks += len(m.Blocks)
		} else {
			blocks++
		}
	}
	for i := range in.Live {
		blocks += len(in.Live[i].Blocks)
	}
	a.entries = make([]Entry, 0, len(in.Items)+len(in.Live)+6)
	a.parts = make([]transcript.Part, 0, blocks)
	a.rows = make([]transcript.Row, 0, len(in.Items)+len(in.Live))
	a.entries = append(a.entries, Entry{Kind: KindSystem, Tokens: a.count(in.System), Included: true, Reason: ReasonAlways})
	if len(in.Tools) > 0 {
		a.entries = append(a.entries, Entry{Kind: KindTools, Tokens: a.toolTokens(), Included: true, Reason: ReasonAlways})
	}
	if older := in.Older; older.Items > 0 {
		a.older = older.Tokens + perMessage*older.Items
		a.entries = append(a.entries, Entry{Kind: KindOlder, Items: older.Items, Tokens: a.older, Reason: ReasonNoRoom})
	}
	a.firstItem, a.lastInput, a.lastAnswer = len(a.entries), -1, -1
	a.lastRound = a.firstItem + roundUnderWay(in.Items)
	a.thinking = a.firstItem + turnStart(in.Items)
	out := in.Recovery.leavesOut(in.Items)
	for i := range in.Items {
		item := &in.Items[i]
		switch {
		case item.Summary != nil:
			a.addSummary(item.Summary, out[i])
		case item.Message != nil:
			a.addMessage(item.Message, out[i])
		default:
			a.entries = append(a.entries, Entry{Kind: KindMessage, Reason: ReasonEmpty})
		}
	}
	a.firstLive = len(a.entries)
	for i := range in.Live {
		a.addLive(&in.Live[i])
	}
	a.tellOrphans()
	a.beside = memory.ShownIn(in.Mode, in.Beside)
	if !isBlank(a.beside) {
		a.entries = append(a.entries, Entry{
			Kind: KindBeside, Role: memory.RoleUser, Tokens: a.count(a.beside) + perMessage, Included: true, Reason: ReasonBeside, External: sources(in.Beside),
		})
	} else {
		a.beside = ""
	}
}

// turnStart returns the last item that is words to the assistant after an answer
// of it without calls, so that nothing in a prompt can make results stand beside
// them: the turn before is done. It is 0 if there is none.
func turnStart(items []memory.Item) int {
	start := 0
	words, results := -1, false
	for i := range items {
		m := items[i].Message
		switch {
		case m == nil:
		case m.Role == memory.RoleAssistant:
			words, results = -1, holdsCall(m.Blocks)
		case m.Role == memory.RoleTool || slices.ContainsFunc(m.Blocks, isResult):
			results = true
		case isInput(m) && words < 0:
			words = i
		}
		if words == i && !results {
			start = i
		}
	}
	return start
}

func isResult(b memory.Block) bool { return b.Type == memory.BlockToolResult }

func holdsCall(blocks []memory.Block) bool {
	for i := range blocks {
		if blocks[i].Type == memory.BlockToolCall {
			return true
		}
	}
	return false
}

func (a *assembler) count(text string) int {
	if a.in.Count != nil {
		return a.in.Count(text)
	}
	return tokens.Estimate(text)
}

func (a *assembler) toolTokens() int {
	sum := 0
	for _, t := range a.in.Tools {
		sum += a.count(t.Name) + a.count(t.Description) + a.count(string(t.Parameters)) + perMessage
	}
	return sum
}

func (a *assembler) addSummary(s *memory.Summary, left bool) {
	entry := Entry{Kind: KindSummary, ID: uuid.UUID(s.ID), Role: memory.RoleUser, At: s.Latest, Tokens: s.Tokens}
	if !s.External.IsEmpty() {
		entry.External = []string{s.External.Source().String()}
	}
	a.entries = append(a.entries, entry)
	if left {
		a.entries[len(a.entries)-1].Reason = ReasonRecovery
		return
	}
	first := len(a.parts)
	a.parts = append(a.parts, transcript.Part{Type: transcript.PartText, Text: s.ShownIn(a.in.Mode)})
	row := transcript.Row{Role: memory.RoleUser, Parts: a.parts[first:len(a.parts):len(a.parts)], Origin: len(a.entries) - 1}
	row.Cost = a.costOf(&row, s.Tokens)
	a.rows = append(a.rows, row)
	a.entries[len(a.entries)-1].Tokens = row.Cost
}

func (a *assembler) addMessage(m *memory.Message, left bool) {
	entry := Entry{Kind: KindMessage, ID: uuid.UUID(m.ID), Role: m.Role, Source: m.Source, At: m.At, Tokens: m.Tokens, External: sources(m.Blocks)}
	if m.IsRefresh() {
		entry.Kind = KindRefresh
	}
	a.entries = append(a.entries, entry)
	if left {
		a.entries[len(a.entries)-1].Reason = ReasonRecovery
		return
	}
	a.rows = a.rowsOf(a.rows, m.Role, m.Blocks, m.Tokens)
}

func (a *assembler) addLive(m *Live) {
	entry := Entry{Kind: KindLive, Role: m.Role, Source: m.Source, External: sources(m.Blocks)}
	volatile := false
	switch {
	case m.Persisted:
		entry.Reason = ReasonElsewhere
	case m.Turn != a.in.Turn:
		entry.Reason = ReasonPastTurn
	default:
		volatile = true
	}
	a.entries = append(a.entries, entry)
	// Its calls have the ids of the stored ones that they may equal. Where they
	// do not, they are others.
	a.ids.resolve = true
	rows := a.rowsOf(nil, m.Role, m.Blocks, -1)
	if volatile && len(rows) == 1 && a.ids.resolved {
		if stored, ok := a.storedTurn(rows[0]); ok {
			// The ids say that it is the very same, however often it is held.
			volatile = false
			a.same[len(a.entries)-1] = stored
		} else {
			a.ids.resolve = false
			a.entries[len(a.entries)-1].Reason = ""
			rows = a.rowsOf(nil, m.Role, m.Blocks, -1)
		}
	}
	a.ids.resolve, a.ids.resolved = false, false
	for _, r := range rows {
		a.live = append(a.live, transcript.Live{Row: r, Volatile: volatile})
	}
}

// storedTurn returns the row that a turn with calls equals and has the ids of.
func (a *assembler) storedTurn(r transcript.Row) (row int, ok bool) {
	if a.ids.rows == nil {
		if a.same == nil {
			a.same = map[int]int{}
		}
		a.ids.rows = make(map[string]int, len(a.ids.used))
		for i := range a.rows {
			for _, p := range a.rows[i].Parts {
				if p.Type == transcript.PartCall {
					a.ids.rows[p.ID] = i
				}
			}
		}
	}
	for _, p := range r.Parts {
		if p.Type == transcript.PartCall {
			row, ok = a.ids.rows[p.ID]
			return row, ok && transcript.Equal(a.rows[row], r)
		}
	}
	return 0, false
}

// storedResults returns the stored result of each call: the first that there is.
func (a *assembler) storedResults() map[string]int {
	stored := make(map[string]int, len(a.rows))
	for i := range a.rows {
		if r := &a.rows[i]; r.Role == memory.RoleTool && r.CallID != "" {
			if _, ok := stored[r.CallID]; !ok {
				stored[r.CallID] = i
			}
		}
	}
	return stored
}

// tellOrphans turns the results that answer no call into words.
func (a *assembler) tellOrphans() {
	all := a.rows[:len(a.rows):len(a.rows)]
	var brought []int         // the live messages in all
	var stored map[string]int // results, by call
	for i := range a.live {
		if l := &a.live[i]; l.Volatile && (l.Role == memory.RoleAssistant || l.Role == memory.RoleTool) {
			all, brought = append(all, l.Row), append(brought, i)
		}
	}
	if len(brought) > 0 {
		stored = a.storedResults()
	}
	for _, i := range transcript.Leftover(all) {
		if i < len(a.rows) {
			a.tell(&a.rows[i])
			continue
		}
		l := &a.live[brought[i-len(a.rows)]]
		r := &l.Row
		if at, ok := stored[r.CallID]; ok && transcript.Equal(a.rows[at], *r) {
			// A call has one result: this is the very same, however often it is
			// held.
			l.Volatile = false
			if a.same == nil {
				a.same = map[int]int{}
			}
			a.same[l.Origin] = at
			continue
		}
		a.tell(r)
	}
}

// rowsOf adds the rows of the last entry. Counted is what the store says that
// its blocks cost; -1 if it says nothing.
func (a *assembler) rowsOf(rows []transcript.Row, role memory.Role, blocks []memory.Block, counted int) []transcript.Row {
	entry, before := len(a.entries)-1, len(rows)
	// A tool's result is a row of its own, in front of the words beside it.
	if role != memory.RoleAssistant {
		for i := range blocks {
			if b := &blocks[i]; b.Type == memory.BlockToolResult {
				first := len(a.parts)
				a.parts = append(a.parts, transcript.Part{Type: transcript.PartText, Text: a.resultText(b, entry)})
				rows = append(rows, transcript.Row{
					Role: memory.RoleTool, Parts: a.parts[first:len(a.parts):len(a.parts)],
					CallID: a.ids.answered(b.ID), ToolName: wireName(b.Name), IsError: b.IsError, Origin: entry, Continues: len(rows) > before,
				})
			}
		}
	}
	first := len(a.parts)
	for i := range blocks {
		if part, ok := a.part(role, &blocks[i], entry, i); ok {
			a.parts = append(a.parts, part)
		}
	}
	if parts := a.parts[first:len(a.parts):len(a.parts)]; showsAnything(parts) {
		told := role
		if role == memory.RoleTool {
			told = memory.RoleUser
		}
		row := transcript.Row{Role: told, Parts: parts, Origin: entry, Continues: len(rows) > before}
		if role == memory.RoleTool {
			row.ToolName = toldTool
		}
		rows = append(rows, row)
	}
	if len(rows) != before+1 {
		counted = -1
	}
	sum := 0
	for i := before; i < len(rows); i++ {
		rows[i].Cost = a.costOf(&rows[i], counted)
		sum += rows[i].Cost
	}
	if a.entries[entry].Tokens = sum; len(rows) == before {
		a.entries[entry].Reason = ReasonEmpty
	}
	return rows
}

// toldTool is the tool name of what a tool said and the prompt tells as words, so
// that it equals nothing that a user says.
const toldTool = "told"

// showsAnything reports whether parts are more than thoughts, which alone are no
// message.
func showsAnything(parts []transcript.Part) bool {
	for i := range parts {
		if parts[i].Type != transcript.PartThinking {
			return true
		}
	}
	return false
}

// part returns what a block is in a prompt; false if it shows nothing, or is a
// row of its own.
func (a *assembler) part(role memory.Role, b *memory.Block, entry, index int) (transcript.Part, bool) {
	text := func(s string) (transcript.Part, bool) {
		return transcript.Part{Type: transcript.PartText, Text: s}, !isBlank(s)
	}
	isPlain := b.File.IsZero()
	switch b.Type {
	case memory.BlockText:
		if isPlain {
			return text(b.Text)
		}
	case memory.BlockThinking:
		// Thoughts go back only to the provider that had them.
		return transcript.Part{Type: transcript.PartThinking, Text: b.Text, Name: b.Name, Raw: b.Input},
			role == memory.RoleAssistant && b.Name != "" && b.Name == string(a.in.Provider) && len(b.Input) > 0
	case memory.BlockToolCall:
		if role == memory.RoleAssistant {
			return transcript.Part{
				Type: transcript.PartCall, ID: a.ids.called(b.ID, &a.entries[entry], entry, index), Name: wireName(b.Name), Raw: callInput(b.Input),
			}, true
		}
	case memory.BlockToolResult:
		if role != memory.RoleAssistant {
			return transcript.Part{}, false
		}
	case memory.BlockExternal:
		if isPlain {
			return text(a.in.Mode.Render(b.External))
		}
	case memory.BlockFile:
	default:
		raw, err := b.MarshalJSON()
		if err != nil {
			raw = nil
		}
		return transcript.Part{Type: transcript.PartOther, Text: memory.ShownIn(a.in.Mode, []memory.Block{*b}), Raw: raw}, true
	}
	return text(memory.ShownIn(a.in.Mode, []memory.Block{*b}))
}

// callInput returns the input of a call, which providers want to be an object.
func callInput(input json.RawMessage) json.RawMessage {
	trimmed := strings.TrimLeft(string(input), " \t\r\n")
	switch {
	case json.Valid(input) && trimmed != "" && trimmed[0] == '{':
		return input
	case json.Valid(input):
		return json.RawMessage(`{"input":` + trimmed + `}`)
	case trimmed == "":
		return json.RawMessage(`{}`)
	}
	quoted, _ := json.Marshal(strings.ToValidUTF8(string(input), "\ufffd"))
	return json.RawMessage(`{"input":` + string(quoted) + `}`)
}

func (a *assembler) resultText(b *memory.Block, entry int) string {
	content := b.External
	if a.in.Recovery >= RecoverShorten && entry < a.lastRound {
		content = content.Shortened(shortResult)
	}
	text := a.in.Mode.Render(content)
	if !b.File.IsZero() {
		text = memory.FileNote(text, b.File)
	}
	switch {
	case b.IsError && text == "":
		return "[the tool failed]"
	case b.IsError:
		return "[the tool failed]\n" + text
	case text == "":
		return "[the tool returned nothing]"
	}
	return text
}

// tell turns a result that answers no call into words, so that it is not lost.
func (a *assembler) tell(r *transcript.Row) {
	first := len(a.parts)
	a.parts = append(a.parts, transcript.Part{Type: transcript.PartText, Text: "[result of tool call " + strconv.Quote(r.ToolName) + "]\n" + r.Parts[0].Text})
	r.Role, r.Parts, r.CallID = memory.RoleUser, a.parts[first:len(a.parts):len(a.parts)], ""
	cost := a.costOf(r, -1)
	a.entries[r.Origin].Tokens += cost - r.Cost
	r.Cost = cost
}

// costOf counts a row. Stored is what the store says, or -1. Where prompts show
// external text in another form, or are counted exactly, that says nothing.
func (a *assembler) costOf(r *transcript.Row, stored int) int {
	cost := perMessage
	if r.Role == memory.RoleTool {
		cost += perCall
	}
	counted := stored >= 0 && len(r.Parts) == 1 && a.in.Count == nil && (a.in.Mode == "" || a.in.Mode == boundary.ModeDelimit) && a.in.Recovery < RecoverShorten
	if counted {
		cost += stored
	}
	for i := range r.Parts {
		p := &r.Parts[i]
		if p.Type == transcript.PartCall {
			cost += perCall
		}
		if past := p.Type == transcript.PartThinking && (r.Origin < a.thinking || !a.in.hasThoughts()); !counted && !past {
			if cost += a.wordsOf(p); i > 0 {
				cost += perPart
			}
		}
	}
	return cost
}

func (a *assembler) wordsOf(p *transcript.Part) int {
	switch p.Type {
	case transcript.PartCall:
		return a.count(p.Name) + a.count(string(p.Raw))
	case transcript.PartThinking:
		return a.count(string(p.Raw))
	case transcript.PartOther:
		if p.Text == memory.ShownImage {
			return a.count(p.Text) + memory.ImageTokens
		}
	}
	return a.count(p.Text)
}

func sources(blocks []memory.Block) []string {
	var all []string
	for i := range blocks {
		if b := &blocks[i]; !b.External.IsEmpty() {
			all = append(all, b.External.Source().String())
		}
	}
	return all
}

// ids gives every call an id of its own in the form that all providers take, the
// same for the same items. Some servers count from zero in every answer, and so
// do transcripts made of several.
type ids struct {
	used   map[string]bool
	latest map[string]string // of the calls so far, by their own id
	// With resolve, a call with the own id of an earlier one has its id; resolved
	// says that there was one.
	resolve, resolved bool
	rows              map[string]int // of the stored calls, by id; nil until needed
}

// called returns the id of call number index of an entry.
func (s *ids) called(own string, e *Entry, entry, index int) string {
	if s.used == nil {
		s.used, s.latest = map[string]bool{}, map[string]string{}
	}
	if id, ok := s.latest[own]; ok && s.resolve {
		s.resolved = true
		return id
	}
	id := own
	if !ValidID(id) || s.used[id] {
		if e.ID != (uuid.UUID{}) {
			entry = 0 // where a message stands may change, its id does not
		}
		// A number makes it another one, should somebody have chosen ids for
		// theirs to be the same.
		for n := 0; n == 0 || s.used[id]; n++ {
			id = derivedID(own, e.ID, entry, index, n)
		}
	}
	s.used[id] = true
	if own != "" {
		s.latest[own] = id
	}
	return id
}

// answered returns the id of the call that a result with the id own answers: the
// last before it.
func (s *ids) answered(own string) string {
	if id, ok := s.latest[own]; ok {
		return id
	}
	if ValidID(own) {
		return own
	}
	return ""
}

func derivedID(own string, message uuid.UUID, numbers ...int) string {
	buf := append(make([]byte, 0, 64+len(own)), message[:]...)
	for _, n := range numbers {
		buf = binary.BigEndian.AppendUint64(buf, uint64(n))
	}
	sum := sha256.Sum256(append(buf, own...))
	return "call_" + hex.EncodeToString(sum[:12])
}

// hasThoughts reports whether the thoughts of the turn go in.
func (in *Input) hasThoughts() bool { return in.Recovery == RecoverNothing && !in.NoThoughts }
