package transcript_test

import (
	"slices"
	"testing"

	"github.com/gloveboxhq/glovebox/compaction/transcript"
	"github.com/gloveboxhq/glovebox/memory"
)

// The faults of the reference implementation that are in repair and in append
// (design, "Faults of the reference that we do not inherit"). Those that are in
// what surrounds them are tested in compaction/assembly.

func TestResultBeforeItsCallIsKept(t *testing.T) {
	rows := toolRows(2)
	rows[0], rows[1] = rows[1], rows[0]
	got := transcript.Repair(rows, 8)
	if !sameRows(got, []transcript.Row{rows[1], rows[0]}) {
		t.Errorf("repaired:%s\nwant the call, and behind it the result that there is", show(got))
	}
	if left := transcript.Leftover(rows); len(left) > 0 {
		t.Errorf("left over: %v, want nothing", left)
	}
}

func TestResultOfAnotherCallIsNotTaken(t *testing.T) {
	rows := toolRows(2)
	rows[1].CallID = "call_of_long_ago"
	got := transcript.Repair(rows, 8)
	if len(got) != 2 || !got[1].Placeholder || !got[1].IsError || got[1].CallID != "call_0" || got[1].Cost != 8 {
		t.Errorf("repaired:%s\nwant the call and a placeholder", show(got))
	}
	if left := transcript.Leftover(rows); !slices.Equal(left, []int{1}) {
		t.Errorf("left over: %v, want the result", left)
	}
}

// The newest copy is both cover and anchor, so that the older one can go and
// nothing has to be restored.
func TestNewestCopyIsCredited(t *testing.T) {
	rows := plainRows(4)
	rows[0] = said(memory.RoleUser, 0, "task 1 is done")
	rows[2] = said(memory.RoleUser, 2, "task 1 is done")
	in := transcript.JoinInput{Rows: rows, RowsCost: costOf(rows), Protected: []int{1, 3}, Live: []transcript.Live{
		{Row: said(memory.RoleUser, 10, "task 1 is done"), Volatile: true},
		{Row: said(memory.RoleUser, 11, "task 2 is done"), Volatile: true},
	}}
	in.Budget = in.RowsCost
	got := transcript.Join(in)
	if !slices.Equal(got.CoveredBy, []int{2, -1}) || !slices.Equal(got.Appended, []int{1}) || !slices.Equal(got.Evicted, []int{0}) {
		t.Errorf("covered by %v, appended %v, evicted %v; want [2 -1], [1], [0]", got.CoveredBy, got.Appended, got.Evicted)
	}
}

// What is stored and what is not may say the same: the row is of the message that
// is stored, and the other has to reach the model.
func TestStoredCopyCoversNoOtherMessage(t *testing.T) {
	rows := []transcript.Row{said(memory.RoleUser, 0, "go on"), said(memory.RoleAssistant, 1, "I did.")}
	stored, retried := said(memory.RoleUser, 10, "go on"), said(memory.RoleUser, 11, "go on")
	got := transcript.Join(transcript.JoinInput{Rows: rows, RowsCost: costOf(rows), Budget: 1000, Live: []transcript.Live{
		{Row: stored}, {Row: retried, Volatile: true},
	}})
	if want := []transcript.Row{rows[0], rows[1], retried}; !sameRows(got.Rows, want) {
		t.Errorf("joined:%s\nwant:%s", show(got.Rows), show(want))
	}
}

// Three occurrences and one copy leave two to add; a text that quotes another or
// differs in white space or case is no copy.
func TestOneOccurrenceCoversOne(t *testing.T) {
	rows := []transcript.Row{
		said(memory.RoleUser, 0, "Task 1 is done"), said(memory.RoleUser, 1, "task 1 is done "),
		said(memory.RoleUser, 2, "[Summary] He said: task 1 is done"), said(memory.RoleAssistant, 3, "task 1 is done"),
		said(memory.RoleUser, 4, "task 1 is done"),
	}
	in := transcript.JoinInput{Rows: rows, RowsCost: costOf(rows), Budget: 1000}
	for i := range 3 {
		in.Live = append(in.Live, transcript.Live{Row: said(memory.RoleUser, 10+i, "task 1 is done"), Volatile: true})
	}
	got := transcript.Join(in)
	if !slices.Equal(got.CoveredBy, []int{4, -1, -1}) || !slices.Equal(got.Appended, []int{1, 2}) {
		t.Errorf("covered by %v, appended %v; want [4 -1 -1], [1 2]", got.CoveredBy, got.Appended)
	}
}

// A unit goes whole, and a protected result protects its call.
func TestPairsAreNotSplit(t *testing.T) {
	for name, test := range map[string]struct {
		protected, evicted []int
	}{
		"nothing protected":  {nil, []int{0, 1}},
		"a protected result": {[]int{1}, []int{2, 3}},
		"a protected call":   {[]int{0}, []int{2, 3}},
		"all protected":      {[]int{0, 3}, nil},
	} {
		rows := toolRows(4)
		in := transcript.JoinInput{Rows: rows, RowsCost: costOf(rows), Protected: test.protected, Live: []transcript.Live{
			{Row: said(memory.RoleUser, 10, "task 1 is done"), Volatile: true},
		}}
		// One half of a unit is not enough, and a whole one is; the first saves less.
		in.Budget = in.RowsCost + in.Live[0].Cost - rows[0].Cost - 1
		got := transcript.Join(in)
		if !slices.Equal(got.Evicted, test.evicted) || got.OverBudget != (test.evicted == nil) {
			t.Errorf("%s: evicted %v, over budget: %v; want %v", name, got.Evicted, got.OverBudget, test.evicted)
		}
	}
}

// What saves nothing stays: to take it out would not help, and it would be said
// that it had to go.
func TestWhatSavesNothingIsNotEvicted(t *testing.T) {
	rows := plainRows(2)
	rows[0].Cost = 0
	orphan := said(memory.RoleTool, 2, "the result of no call")
	orphan.CallID = "call_of_long_ago"
	in := transcript.JoinInput{Rows: append(rows, orphan), Live: []transcript.Live{{Row: said(memory.RoleUser, 10, "task 1 is done"), Volatile: true}}}
	if got := transcript.Join(in); !slices.Equal(got.Evicted, []int{1}) || !got.OverBudget {
		t.Errorf("evicted %v, over budget: %v; want [1], true", got.Evicted, got.OverBudget)
	}
}
