package vectors

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/gloveboxhq/glovebox/compaction/transcript"
	"github.com/gloveboxhq/glovebox/memory"
)

// The reasons for which we answer a contentious case in another way.
const (
	ReasonEvictOnlyShown = "a row that repair takes out anyway saves nothing and is not evicted"
	ReasonNewestCounts   = "of equal rows the newest is credited as cover and anchor, so that no copy is added while one is in the prompt"
	ReasonEarlyResult    = "a result that stands before its call is used, not replaced by a made up one"
	ReasonIDInBlock      = "a result's id is read from its block where the message has none"
)

// Reasons lists them all.
func Reasons() []string {
	return []string{ReasonEvictOnlyShown, ReasonNewestCounts, ReasonEarlyResult, ReasonIDInBlock}
}

// deviation returns why our answer to a contentious case differs from the
// expected one; "" if none of the reasons explains it.
func (c *Case) deviation(got any) string {
	switch got := got.(type) {
	case repairAnswer:
		var want repairAnswer
		if json.Unmarshal(c.Expect, &want) != nil {
			return ""
		}
		return strings.Join(c.input.resultReasons(got.Output, want.Output), "; ")
	case appendAnswer:
		var want appendAnswer
		if json.Unmarshal(c.Expect, &want) != nil {
			return ""
		}
		return c.input.appendReason(got, want)
	}
	return ""
}

// resultReasons compares two answers message by message: where they differ, the
// other has a made up result and ours a stored one. Nil if they differ in
// anything else.
func (in *input) resultReasons(got, want []outputMessage) []string {
	if len(got) != len(want) {
		return nil
	}
	callAt := in.firstCalls()
	var reasons []string
	for i := range got {
		if sameMessage(got[i], want[i]) {
			continue
		}
		if got[i].ID == "" || got[i].Message != nil || !want[i].Synthetic || want[i].Message == nil {
			return nil
		}
		result := in.at(got[i].origin)
		call, called := callAt[result.row.CallID]
		if !called || result.row.CallID != deref(want[i].Message.ToolCallID) {
			return nil
		}
		reason := ""
		switch {
		case deref(result.fields.ToolCallID) == "":
			reason = ReasonIDInBlock
		case got[i].origin < call:
			reason = ReasonEarlyResult
		default:
			return nil
		}
		if !slices.Contains(reasons, reason) {
			reasons = append(reasons, reason)
		}
	}
	return reasons
}

// firstCalls tells for the id of each call that was not broken off which row
// first makes it.
func (in *input) firstCalls() map[string]int {
	calls := map[string]int{}
	for i, m := range in.rows {
		if m.row.Role != memory.RoleAssistant || m.row.Broken {
			continue
		}
		for _, p := range m.row.Parts {
			if _, known := calls[p.ID]; p.Type == transcript.PartCall && p.ID != "" && !known {
				calls[p.ID] = i
			}
		}
	}
	return calls
}

func sameMessage(a, b outputMessage) bool {
	return sameValue(repairAnswer{[]outputMessage{a}}, repairAnswer{[]outputMessage{b}})
}

func sameValue(a, b any) bool {
	x, errX := encode(a)
	y, errY := encode(b)
	if errX != nil || errY != nil {
		return false
	}
	equal, err := same(x, y)
	return err == nil && equal
}

// appendReason explains a difference by what is in the input that a reason is
// about. What follows from that reaches far, so that our answer is held against
// the rules themselves and not against every step of the other.
func (in *input) appendReason(got, want appendAnswer) string {
	shown := map[string]bool{}
	for _, row := range transcript.Repair(in.transcript(), in.placeholderCost) {
		shown[in.rows[row.Origin].id] = true
	}
	if !in.keepsRules(got, shown) {
		return ""
	}
	rest := want
	rest.EvictedIDs = slices.DeleteFunc(slices.Clone(want.EvictedIDs), func(id string) bool { return !shown[id] })
	if rest.Evicted = len(rest.EvictedIDs); rest.Evicted < want.Evicted && sameValue(got, rest) {
		return ReasonEvictOnlyShown
	}
	switch {
	case in.hasEqualAnnouncements():
		return ReasonNewestCounts
	case in.hasEarlyResult():
		return ReasonEarlyResult
	case in.hasIDInBlock():
		return ReasonIDInBlock
	}
	return ""
}

// keepsRules reports whether an answer shows every volatile message as often as
// it is held, shows or evicts every row that repair shows, evicts no protected
// one, and adds up.
func (in *input) keepsRules(a appendAnswer, shown map[string]bool) bool {
	if a.Appended == 0 {
		return false
	}
	present, said, cost := map[string]bool{}, map[string]int{}, 0
	for _, o := range a.Output {
		if o.Synthetic {
			cost += in.placeholderCost
			continue
		}
		m := in.at(o.origin)
		if present[m.id] {
			return false
		}
		present[m.id] = true
		said[m.key()]++
		cost += m.row.Cost
	}
	for _, m := range in.live {
		if m.isVolatile() {
			said[m.key()]--
		}
	}
	for _, n := range said {
		if n < 0 {
			return false
		}
	}
	evicted := map[string]bool{}
	for _, id := range a.EvictedIDs {
		evicted[id] = true
	}
	for _, m := range in.rows {
		if evicted[m.id] && present[m.id] || shown[m.id] && !evicted[m.id] && !present[m.id] {
			return false
		}
	}
	for _, i := range in.protected {
		if i >= 0 && i < len(in.rows) && evicted[in.rows[i].id] {
			return false
		}
	}
	return a.Cost == cost && a.OverBudget == (cost > in.budget) && a.Evicted == len(a.EvictedIDs)
}

// hasEqualAnnouncements reports whether several rows say what a volatile message
// says.
func (in *input) hasEqualAnnouncements() bool {
	rows := map[string]int{}
	for _, m := range in.rows {
		rows[m.key()]++
	}
	return slices.ContainsFunc(in.live, func(m message) bool { return m.isVolatile() && rows[m.key()] > 1 })
}

// hasEarlyResult reports whether a call's results all stand before it.
func (in *input) hasEarlyResult() bool {
	callAt, early := in.firstCalls(), map[string]bool{}
	for i, m := range in.rows {
		if m.row.Role != memory.RoleTool || m.row.Placeholder {
			continue
		}
		if call, called := callAt[m.row.CallID]; called {
			if _, known := early[m.row.CallID]; !known || i > call {
				early[m.row.CallID] = i < call
			}
		}
	}
	for _, is := range early {
		if is {
			return true
		}
	}
	return false
}

// hasIDInBlock reports whether a result of a call says so in its block only.
func (in *input) hasIDInBlock() bool {
	calls := in.firstCalls()
	return slices.ContainsFunc(in.rows, func(m message) bool {
		_, called := calls[m.row.CallID]
		return called && m.row.Role == memory.RoleTool && deref(m.fields.ToolCallID) == ""
	})
}

// key is equal for messages that say the same.
func (m *message) key() string {
	row := m.row
	if row.Role == memory.RoleSystem {
		row.Role = memory.RoleUser
	}
	if row.Role == memory.RoleTool && row.ToolName == transcript.UnknownTool {
		row.ToolName = ""
	}
	key, err := encode([]any{row.Role, row.CallID, row.ToolName, row.Parts})
	if err != nil {
		// Parts hold nothing but texts and JSON that was read.
		return ""
	}
	return string(key)
}
