package transcript_test

import (
	"encoding/json"
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/gloveboxhq/glovebox/compaction/transcript"
	"github.com/gloveboxhq/glovebox/memory"
)

// tape is a list of choices. Properties draw it at random and fuzzing mutates it,
// so that both run over the same transcripts; an empty tape chooses the first of
// everything.
type tape struct{ rest []byte }

func drawTape(r *rapid.T) *tape {
	// Left alone, rapid chooses short ones.
	length := rapid.SampledFrom([]int{0, 30, 60, 120, 180, 240}).Draw(r, "length")
	return &tape{rapid.SliceOfN(rapid.Byte(), length, length).Draw(r, "choices")}
}

// pick chooses one of n, at most 256.
func (t *tape) pick(n int) int {
	if len(t.rest) == 0 {
		return 0
	}
	b := t.rest[0]
	t.rest = t.rest[1:]
	return int(b) % n
}

func (t *tape) more() bool { return len(t.rest) > 0 }

// one is true once in n.
func (t *tape) one(n int) bool { return t.pick(n) == n-1 }

// The alphabets are small, so that ids collide and texts repeat.
var (
	callIDs   = []string{"a", "b", "c", "d", ""}
	toolNames = []string{"read", "grep", "unknown", ""}
	words     = []string{"yes", "no", "go on", " ", ""}
)

// row chooses a row that costs up to most.
func (t *tape) row(origin, most int) transcript.Row {
	row := transcript.Row{Cost: t.pick(most + 1), Origin: origin, Continues: t.one(9)}
	switch t.pick(8) {
	default:
		row.Role = memory.RoleUser
		row.Parts = t.text()
	case 1, 2, 3:
		row.Role = memory.RoleAssistant
		row.Broken = t.one(6)
		for range t.pick(5) {
			row.Parts = append(row.Parts, t.part())
		}
	case 4, 5, 6:
		row.Role = memory.RoleTool
		row.CallID = callIDs[t.pick(len(callIDs))]
		row.ToolName = toolNames[t.pick(len(toolNames))]
		row.IsError = t.one(5)
		row.Placeholder = t.one(6)
		row.Parts = t.text()
	case 7:
		row.Role = memory.RoleSystem
		row.Parts = t.text()
	}
	return row
}

func (t *tape) text() []transcript.Part {
	return []transcript.Part{{Type: transcript.PartText, Text: words[t.pick(len(words))]}}
}

func (t *tape) part() transcript.Part {
	switch t.pick(6) {
	default:
		return transcript.Part{
			Type: transcript.PartCall, ID: callIDs[t.pick(len(callIDs))], Name: toolNames[t.pick(len(toolNames))],
			Raw: json.RawMessage(`{}`), Function: t.one(2),
		}
	case 3:
		return t.text()[0]
	case 4:
		return transcript.Part{Type: transcript.PartThinking, Name: "anthropic", Raw: json.RawMessage(`{"thinking":"hm"}`)}
	case 5:
		return transcript.Part{Type: transcript.PartOther, Text: "[a picture]", Raw: json.RawMessage(`{"type":"picture"}`)}
	}
}

// rows chooses a transcript of up to most rows.
func (t *tape) rows(most int) []transcript.Row {
	var rows []transcript.Row
	for len(rows) < most && t.more() {
		rows = append(rows, t.row(len(rows), 9))
	}
	return rows
}

// joinInput chooses rows and live messages, of which some repeat a row. Only the
// user and the system say what is volatile, and whether something is depends on
// what is said, unless mixed.
func (t *tape) joinInput(mixed bool) transcript.JoinInput {
	in := transcript.JoinInput{PlaceholderCost: t.pick(4)}
	eighths := 9 - t.pick(12)
	live := t.pick(7)
	for range t.pick(4) {
		in.Protected = append(in.Protected, t.pick(20)-2)
	}
	var chosen []transcript.Live
	repeat := make([]int, live)
	for i := range live {
		repeat[i] = -1
		if t.one(2) {
			repeat[i] = t.pick(16)
		}
		row := t.row(100+i, 9)
		if !t.one(3) {
			row = transcript.Row{Role: memory.RoleUser, Parts: t.text(), Cost: row.Cost, Origin: row.Origin}
		}
		chosen = append(chosen, transcript.Live{Row: row, Volatile: mixed && t.one(2)})
	}
	in.Rows = t.rows(16)
	for i := range chosen {
		if repeat[i] >= 0 && repeat[i] < len(in.Rows) {
			chosen[i].Row = in.Rows[repeat[i]]
			chosen[i].Origin = 100 + i
		}
		said := chosen[i].Role == memory.RoleUser || chosen[i].Role == memory.RoleSystem
		if !mixed {
			chosen[i].Volatile = said && chosen[i].Parts[0].Text != "go on"
		}
	}
	in.Live = chosen
	for i := range in.Rows {
		in.RowsCost += in.Rows[i].Cost
	}
	in.Budget = (in.RowsCost + 10) * eighths / 8
	in.RowsCost += t.pick(3) // what the caller believes may be wrong
	return in
}

// same reports whether two rows are the same in all that a caller sees. The words
// of a placeholder that is made anew are up to Repair.
func same(a, b transcript.Row) bool {
	if a.Placeholder && b.Placeholder {
		a.Parts, b.Parts = nil, nil
	}
	return a.Role == b.Role && transcript.Equal(a, b) && a.CallID == b.CallID && a.ToolName == b.ToolName &&
		a.IsError == b.IsError && a.Broken == b.Broken && a.Placeholder == b.Placeholder && a.Continues == b.Continues && a.Cost == b.Cost && a.Origin == b.Origin
}

func sameRows(a, b []transcript.Row) bool { return slices.EqualFunc(a, b, same) }

// copyRows copies rows and their parts, to be held against the rows later.
func copyRows(rows []transcript.Row) []transcript.Row {
	rows = slices.Clone(rows)
	for i := range rows {
		rows[i].Parts = slices.Clone(rows[i].Parts)
		for j := range rows[i].Parts {
			rows[i].Parts[j].Raw = slices.Clone(rows[i].Parts[j].Raw)
		}
	}
	return rows
}

// show writes rows for a person.
func show(rows []transcript.Row) string {
	var s string
	for _, r := range rows {
		s += fmt.Sprintf("\n  %d %s", r.Origin, r.Role)
		if r.Role == memory.RoleTool {
			s += fmt.Sprintf(" of %q by %q", r.CallID, r.ToolName)
		}
		for _, flag := range []struct {
			on   bool
			name string
		}{{r.Broken, "broken"}, {r.IsError, "error"}, {r.Placeholder, "placeholder"}, {r.Continues, "continues"}} {
			if flag.on {
				s += " " + flag.name
			}
		}
		s += fmt.Sprintf(" cost %d:", r.Cost)
		for _, p := range r.Parts {
			s += fmt.Sprintf(" %s(%q %q %q %v)", p.Type, p.Text, p.ID, p.Name, p.Function)
		}
	}
	return s
}

func showInput(in transcript.JoinInput) string {
	s := fmt.Sprintf("\nbudget %d, placeholders at %d, protected %v, rows:%s\nlive:", in.Budget, in.PlaceholderCost, in.Protected, show(in.Rows))
	for _, l := range in.Live {
		s += show([]transcript.Row{l.Row})
		if l.Volatile {
			s += " volatile"
		}
	}
	return s
}
