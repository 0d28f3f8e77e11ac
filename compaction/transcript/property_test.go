package transcript_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/gloveboxhq/glovebox/compaction/transcript"
	"github.com/gloveboxhq/glovebox/memory"
)

// A1: whatever a transcript looks like, Repair answers by the rules, once and for
// all, and changes nothing of what it was given.
func TestRepairIsWhatTheRulesSay(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) { checkRepair(r, drawTape(r)) })
}

// A1
func FuzzRepair(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x01\x01\x00\x04\x00\x00\x00\x00\x00\x00\x00\x04\x00\x00"))
	f.Fuzz(func(t *testing.T, choices []byte) { checkRepair(t, &tape{choices}) })
}

type checker interface {
	Helper()
	Fatalf(format string, args ...any)
}

func checkRepair(t checker, choices *tape) {
	t.Helper()
	placeholderCost := choices.pick(10)
	rows := choices.rows(64)
	before := copyRows(rows)
	got, want := transcript.Repair(rows, placeholderCost), naiveRepair(before, placeholderCost)
	mustBeRows(t, "repaired", got, want)
	mustBeRows(t, "what was given", rows, before)
	if sameRows(want, before) && !sharesArray(got, rows) {
		t.Fatalf("nothing is wrong, and yet the rows were copied:%s", show(rows))
	}
	if again := transcript.Repair(got, placeholderCost); !sharesArray(again, got) {
		t.Fatalf("repairing twice:%s\nis not repairing once:%s", show(again), show(got))
	}
	mustBePaired(t, got)
}

func mustBeRows(t checker, what string, got, want []transcript.Row) {
	t.Helper()
	if !sameRows(got, want) {
		t.Fatalf("%s:%s\nwant:%s", what, show(got), show(want))
	}
}

func sharesArray(a, b []transcript.Row) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// mustBePaired holds rows against what providers ask for: directly behind a turn
// its results, one for each call with an id, in order, and no other result.
func mustBePaired(t checker, rows []transcript.Row) {
	t.Helper()
	var waiting []string
	seen := map[string]bool{}
	for i, row := range rows {
		if row.Role == memory.RoleTool {
			if len(waiting) == 0 || waiting[0] != row.CallID {
				t.Fatalf("row %d is a result of %q, want %q:%s", i, row.CallID, waiting, show(rows))
			}
			waiting = waiting[1:]
			continue
		}
		if len(waiting) > 0 {
			t.Fatalf("row %d stands before the results of %q:%s", i, waiting, show(rows))
		}
		if row.Role == memory.RoleAssistant {
			waiting = callsOf(row)
		}
		for _, id := range waiting {
			if seen[id] {
				t.Fatalf("two calls %q:%s", id, show(rows))
			}
			seen[id] = true
		}
	}
	if len(waiting) > 0 {
		t.Fatalf("no results of %q:%s", waiting, show(rows))
	}
}

// A1, A5: Join covers as many as a maximum matching does, evicts what the
// reference's search evicts, and keeps what it must.
func TestJoinIsWhatTheRulesSay(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) { checkJoin(r, drawTape(r), false) })
}

// A1, A5: a message that is stored and one that is not may say the same, and tools may
// say what nobody stored. The rules go on to hold.
func TestJoinIsWhatTheRulesSayWhateverIsVolatile(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) { checkJoin(r, drawTape(r), true) })
}

// A1, A5
func FuzzJoin(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x00\x20\x02\x00\x00\x00\x01\x05\x00\x00\x00\x01\x00\x03\x00\x02\x05\x01\x01\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, choices []byte) { checkJoin(t, &tape{choices}, len(choices)%2 == 1) })
}

func checkJoin(t checker, choices *tape, mixed bool) {
	t.Helper()
	in := choices.joinInput(mixed)
	before := copyInput(in)
	got, want := transcript.Join(in), bruteJoin(before)
	mustBeRows(t, "rows", in.Rows, before.Rows)
	mustBeRows(t, "live messages", liveRows(in), liveRows(before))
	if !slices.Equal(in.Protected, before.Protected) {
		t.Fatalf("protected: %v, were %v", in.Protected, before.Protected)
	}
	if !slices.Equal(got.CoveredBy, want.CoveredBy) || !slices.Equal(got.Appended, want.Appended) || !slices.Equal(got.Evicted, want.Evicted) {
		t.Fatalf("covered by %v, appended %v, evicted %v; want %v, %v, %v%s", got.CoveredBy, got.Appended, got.Evicted,
			want.CoveredBy, want.Appended, want.Evicted, showInput(in))
	}
	if got.Cost != want.Cost || got.AppendedCost != want.AppendedCost || got.OverBudget != want.OverBudget {
		t.Fatalf("cost %d, of that appended %d, over budget: %v; want %d, %d, %v%s", got.Cost, got.AppendedCost, got.OverBudget,
			want.Cost, want.AppendedCost, want.OverBudget, showInput(in))
	}
	mustBeRows(t, "joined"+showInput(in)+"\nto", got.Rows, want.Rows)
	mustKeep(t, in, got)
	covered := 0
	for i, row := range got.CoveredBy {
		if row >= 0 && in.Live[i].Volatile {
			covered++
		}
	}
	// Volatile messages are covered by what stored ones leave.
	most := matching(in, false)
	for i := range in.Live {
		in.Live[i].Volatile = !in.Live[i].Volatile
	}
	if want := most - matching(in, true); covered != want {
		t.Fatalf("%d are covered, a matching covers %d%s", covered, want, showInput(in))
	}
}

// mustKeep holds a result against what Join promises, without the oracle.
func mustKeep(t checker, in transcript.JoinInput, got transcript.Joined) {
	t.Helper()
	if len(got.Appended) == 0 {
		if !sharesArray(got.Rows, in.Rows) || got.Cost != in.RowsCost || len(got.Evicted) > 0 {
			t.Fatalf("nothing had to be added, and yet something was done%s\nto:%s", showInput(in), show(got.Rows))
		}
	} else if got.Cost != costOf(got.Rows) {
		t.Fatalf("cost %d, the rows cost %d", got.Cost, costOf(got.Rows))
	}
	if got.OverBudget != (got.Cost > in.Budget) {
		t.Fatalf("cost %d, budget %d, over budget: %v", got.Cost, in.Budget, got.OverBudget)
	}
	shown := map[int]int{} // rows and live messages by their origin
	for _, row := range got.Rows {
		if !row.Placeholder {
			shown[row.Origin]++
		}
	}
	evicted := map[int]bool{}
	for _, i := range got.Evicted {
		evicted[i] = true
		if slices.Contains(in.Protected, i) {
			t.Fatalf("row %d is protected and was evicted%s", i, showInput(in))
		}
		if shown[in.Rows[i].Origin] > 0 {
			t.Fatalf("row %d was evicted and is still there%s", i, showInput(in))
		}
		for j, row := range in.Rows {
			if row.Role != in.Rows[i].Role && shareCall(in.Rows[i], row) && !slices.Contains(got.Evicted, j) {
				t.Fatalf("row %d was evicted, and row %d, which has a call of it, was not%s", i, j, showInput(in))
			}
		}
	}
	credited := map[int]bool{}
	for i, l := range in.Live {
		row := got.CoveredBy[i]
		// Repair may take out what tools say and a turn that broke off.
		once := func(origin int) bool {
			return shown[origin] == 1 || l.Role == memory.RoleTool || l.Role == memory.RoleAssistant
		}
		switch {
		case !l.Volatile && slices.Contains(got.Appended, i):
			t.Fatalf("live message %d is not volatile, and yet appended%s", i, showInput(in))
		case !l.Volatile && row < 0:
		case row >= 0:
			if credited[row] || evicted[row] || !transcript.Equal(in.Rows[row], l.Row) || !once(in.Rows[row].Origin) || slices.Contains(got.Appended, i) {
				t.Fatalf("live message %d is covered by row %d, which cannot be%s", i, row, showInput(in))
			}
			credited[row] = true
		case !slices.Contains(got.Appended, i) || !once(l.Origin):
			t.Fatalf("live message %d is neither covered nor shown once%s", i, showInput(in))
		}
	}
}

func copyInput(in transcript.JoinInput) transcript.JoinInput {
	in.Rows = copyRows(in.Rows)
	live := copyRows(liveRows(in))
	in.Live = slices.Clone(in.Live)
	for i := range in.Live {
		in.Live[i].Row = live[i]
	}
	in.Protected = slices.Clone(in.Protected)
	return in
}

func liveRows(in transcript.JoinInput) []transcript.Row {
	var rows []transcript.Row
	for _, l := range in.Live {
		rows = append(rows, l.Row)
	}
	return rows
}
