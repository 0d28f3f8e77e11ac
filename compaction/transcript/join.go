package transcript

import (
	"cmp"
	"hash/maphash"
	"slices"
	"sort"

	"github.com/gloveboxhq/glovebox/memory"
)

// Live is one message in the caller's hands.
type Live struct {
	Row
	// Volatile says that the message is not stored, so that the model sees it
	// only if it is added to the prompt.
	Volatile bool
}

// JoinInput is what Join works on. It is not changed.
type JoinInput struct {
	// Rows are those of the assembled prompt.
	Rows []Row
	Live []Live
	// Protected are indices of rows that stay; others than there are count for
	// nothing.
	Protected []int
	// CoverFrom is the first row that may cover a volatile message: those before
	// it are of earlier turns. A tool's result is covered wherever it stands.
	CoverFrom int
	// Budget is what the result may cost, RowsCost what the caller believes that
	// the rows cost, and PlaceholderCost what a made up result costs.
	Budget, RowsCost, PlaceholderCost int
}

// Joined is what came of it.
type Joined struct {
	// Rows is the prompt: JoinInput.Rows as they are, if nothing had to be
	// added, else repaired.
	Rows []Row
	// Cost is what Rows cost, or JoinInput.RowsCost if nothing had to be added.
	Cost int
	// Appended are the indices of the live messages that were added, ascending.
	Appended     []int
	AppendedCost int
	// Evicted are the indices of the rows that had to go, ascending.
	Evicted []int
	// CoveredBy tells for each live message, volatile or not, which row says the
	// same in its place; -1 if none does. Such a row is never evicted.
	CoveredBy []int
	// OverBudget says that Cost is more than the budget although nothing more
	// may go.
	OverBudget bool
}

// Join adds the volatile messages that no row covers, and evicts stored rows
// while the result costs more than the budget.
//
// Only an Equal row covers a message, and one row covers one: of n equal live
// messages and k equal rows, the first min(n, k) are covered and the others
// added. (Being equal is an equivalence, so that counting finds the maximum
// matching.) Of more rows than that, the newest are taken. Live messages of the
// same words that are stored have their rows before volatile ones.
//
// A row that equals a live message is an anchor; it has the message's place. An
// added message stands before the first anchor whose place is behind its own,
// else at the end. A system message that is added has the user's role.
//
// What is evicted is whole units: a turn with calls and the results of these,
// or another row alone. Units with an anchor, a protected row or the other half
// of an added pair stay. While the result costs too much: if one unit is enough,
// the one goes that leaves the most in place, else the one that saves the most;
// of equal ones the first. One that saves nothing never goes.
//
// It takes time linear in the rows but for sorting the units.
func Join(in JoinInput) Joined {
	j := joiner{JoinInput: in}
	out := Joined{Rows: in.Rows, Cost: in.RowsCost, CoveredBy: j.cover()}
	for i := range in.Live {
		if in.Live[i].Volatile && out.CoveredBy[i] < 0 {
			out.Appended = append(out.Appended, i)
			out.AppendedCost += in.Live[i].Cost
		}
	}
	if len(out.Appended) == 0 {
		out.OverBudget = out.Cost > in.Budget
		return out
	}
	j.appended = out.Appended
	j.unite()
	rows := Repair(j.ordered(), in.PlaceholderCost)
	out.Cost = cost(rows)
	// Once is enough but where turns share an id: what one of them saved, another
	// may cost when it is gone.
	for range maxEvictions {
		if out.Cost <= in.Budget || !j.evict(rows, out.Cost-in.Budget) {
			break
		}
		rows = Repair(j.ordered(), in.PlaceholderCost)
		out.Cost = cost(rows)
	}
	for i := range j.evicted {
		if j.evicted[j.unit[i]] {
			out.Evicted = append(out.Evicted, i)
		}
	}
	out.OverBudget = out.Cost > in.Budget
	for i := range rows {
		rows[i].Origin = j.origin(rows[i].Origin)
	}
	out.Rows = rows
	return out
}

// maxEvictions bounds how often units are chosen anew.
const maxEvictions = 16

type joiner struct {
	JoinInput
	// place of a row is the index of the live message that it equals; -1 if it
	// is no anchor.
	place []int
	// unit of a row is the first row of it. stays and places are of units.
	unit   []int
	stays  []bool
	places []int

	appended []int
	evicted  []bool // of units; nil if none is
	room     []Row  // for ordered, each time
}

// saying is one distinct content of live messages.
type saying struct {
	live, rows     list
	stored         int // live messages that are not volatile
	nextOfSameHash int // -1 if there is none
}

// list is a list of indices whose links are kept for all lists together.
type list struct{ first, last, size int }

func (l *list) add(links []int, i int) {
	if l.size == 0 {
		l.first = i
	} else {
		links[l.last] = i
	}
	l.last = i
	l.size++
}

var seed = maphash.MakeSeed()

func hash(r *Row) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	text := func(s string) {
		_, _ = h.WriteString(s)
		_ = h.WriteByte(0)
	}
	text(string(told(r.Role)))
	text(r.CallID)
	text(toolName(*r))
	for i := range r.Parts {
		p := &r.Parts[i]
		text(string(p.Type))
		text(p.Text)
		text(p.ID)
		text(p.Name)
		_, _ = h.Write(p.Raw)
		_ = h.WriteByte(0)
	}
	return h.Sum64()
}

// cover pairs rows with the live messages that they equal.
func (j *joiner) cover() []int {
	j.place = fill(len(j.Rows), -1)
	coveredBy := fill(len(j.Live), -1)
	if len(j.Live) == 0 {
		return coveredBy
	}
	sayings := make([]saying, 0, len(j.Live))
	byHash := make(map[uint64]int, len(j.Live))
	find := func(r *Row, h uint64) int {
		at, ok := byHash[h]
		for ok && at >= 0 {
			if Equal(j.Live[sayings[at].live.first].Row, *r) {
				return at
			}
			at = sayings[at].nextOfSameHash
		}
		return -1
	}
	links := make([]int, len(j.Live)+len(j.Rows))
	liveLinks, rowLinks := links[:len(j.Live)], links[len(j.Live):]
	for i := range j.Live {
		r := &j.Live[i].Row
		h := hash(r)
		at := find(r, h)
		if at < 0 {
			next := -1
			if first, ok := byHash[h]; ok {
				next = first
			}
			at = len(sayings)
			byHash[h] = at
			sayings = append(sayings, saying{nextOfSameHash: next})
		}
		sayings[at].live.add(liveLinks, i)
		if !j.Live[i].Volatile {
			sayings[at].stored++
		}
	}
	for i := range j.Rows {
		if at := find(&j.Rows[i], hash(&j.Rows[i])); at >= 0 {
			sayings[at].rows.add(rowLinks, i)
		}
	}
	for i := range sayings {
		j.pair(&sayings[i], liveLinks, rowLinks, coveredBy)
	}
	return coveredBy
}

func fill(n, value int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = value
	}
	return list
}

// pair gives the newest rows of one content to the newest messages of it that
// are stored, and then to the first of those that are not.
func (j *joiner) pair(s *saying, liveLinks, rowLinks, coveredBy []int) {
	from := j.CoverFrom
	if j.Live[s.live.first].Role == memory.RoleTool {
		from = 0 // its call says which turn it is of
	}
	current := 0 // rows that may cover
	row := s.rows.first
	for range s.rows.size {
		if row >= from {
			current++
		}
		row = rowLinks[row]
	}
	stored := min(s.stored, s.rows.size)
	covers := min(s.live.size-s.stored, s.rows.size-stored, current)
	skipStored := s.stored - stored
	row = s.rows.first
	for range s.rows.size - stored - covers {
		row = rowLinks[row]
	}
	i := s.live.first
	for range s.live.size {
		volatile := j.Live[i].Volatile
		switch {
		case !volatile && skipStored > 0:
			skipStored--
		case !volatile || covers > 0 && row >= from:
			if volatile {
				covers--
			}
			coveredBy[i] = row
			j.place[row] = i
			row = rowLinks[row]
		}
		i = liveLinks[i]
	}
}

// Units returns for each row the first row of its unit: a turn with calls and the
// results with their ids, and other turns with the ids of these, and what continues
// a row of the unit. Turns that share an id which no result has are units of their
// own, and so are results that no turn calls.
func Units(rows []Row) []int {
	unit := make([]int, len(rows))
	find := func(i int) int {
		for unit[i] != i {
			unit[i] = unit[unit[i]]
			i = unit[i]
		}
		return i
	}
	union := func(a, b int) {
		a, b = find(a), find(b)
		unit[max(a, b)] = min(a, b)
	}
	calls := 0
	for i := range rows {
		if unit[i] = i; i > 0 && rows[i].Continues {
			union(i-1, i)
		}
		if rows[i].Role == memory.RoleTool {
			calls++
		}
	}
	if calls > 0 {
		result := make(map[string]int, calls) // the first of each id
		for i := range rows {
			if r := &rows[i]; r.Role == memory.RoleTool && r.CallID != "" {
				if _, ok := result[r.CallID]; !ok {
					result[r.CallID] = i
				}
			}
		}
		called := make(map[string]bool, len(result))
		for i := range rows {
			if rows[i].Role != memory.RoleAssistant {
				continue
			}
			for id := range rows[i].callIDs {
				if at, ok := result[id]; ok {
					called[id] = true
					union(at, i)
				}
			}
		}
		for i := range rows {
			if r := &rows[i]; r.Role == memory.RoleTool && called[r.CallID] {
				union(result[r.CallID], i)
			}
		}
	}
	for i := range unit {
		unit[i] = find(i)
	}
	return unit
}

// callIDs visits the ids of the calls of a turn, or that of a result.
func (r *Row) callIDs(visit func(id string) bool) {
	switch r.Role {
	case memory.RoleTool:
		if r.CallID != "" {
			visit(r.CallID)
		}
	case memory.RoleAssistant:
		for i := range r.Parts {
			if c := &r.Parts[i]; c.Type == PartCall && c.ID != "" && !visit(c.ID) {
				return
			}
		}
	}
}

// unite finds the units, which of them stay, and their places.
func (j *joiner) unite() {
	j.unit = Units(j.Rows)
	j.stays = make([]bool, len(j.Rows))
	j.places = fill(len(j.Rows), -1)
	for i, place := range j.place {
		if place < 0 {
			continue
		}
		u := j.unit[i]
		j.stays[u] = true
		if j.places[u] < 0 || place < j.places[u] {
			j.places[u] = place
		}
	}
	for _, i := range j.Protected {
		if i >= 0 && i < len(j.Rows) {
			j.stays[j.unit[i]] = true
		}
	}
	added := map[string]bool{}
	for _, i := range j.appended {
		for id := range j.Live[i].callIDs {
			added[id] = true
		}
	}
	if len(added) == 0 {
		return
	}
	for i := range j.Rows {
		for id := range j.Rows[i].callIDs {
			if added[id] {
				j.stays[j.unit[i]] = true
			}
		}
	}
}

// ordered returns the rows that are not evicted, with the appended messages
// among them. Origin is the index of the row, or len(Rows) and the index of the
// live message.
func (j *joiner) ordered() []Row {
	if j.room == nil {
		j.room = make([]Row, 0, len(j.Rows)+len(j.appended))
	}
	rows := j.room[:0]
	pending := j.appended
	appendUpTo := func(place int) {
		for len(pending) > 0 && pending[0] < place {
			r := j.Live[pending[0]].Row
			r.Role = told(r.Role)
			r.Origin = len(j.Rows) + pending[0]
			rows = append(rows, r)
			pending = pending[1:]
		}
	}
	for i := range j.Rows {
		u := j.unit[i]
		if j.evicted != nil && j.evicted[u] {
			continue
		}
		if j.places[u] >= 0 {
			appendUpTo(j.places[u])
		}
		r := j.Rows[i]
		r.Origin = i
		rows = append(rows, r)
	}
	appendUpTo(len(j.Live))
	return rows
}

func (j *joiner) origin(i int) int {
	if i >= len(j.Rows) {
		return j.Live[i-len(j.Rows)].Origin
	}
	return j.Rows[i].Origin
}

func cost(rows []Row) int {
	sum := 0
	for i := range rows {
		sum += rows[i].Cost
	}
	return sum
}

// candidate is a unit that may go.
type candidate struct{ unit, saving int }

// evict chooses the units that go to save the excess, and reports whether any
// may.
func (j *joiner) evict(repaired []Row, excess int) bool {
	saving := make([]int, len(j.Rows))
	for i := range repaired {
		if origin := repaired[i].Origin; origin < len(j.Rows) {
			saving[j.unit[origin]] += repaired[i].Cost
		}
	}
	units := make([]candidate, 0, len(j.Rows))
	for u := range j.Rows {
		if j.unit[u] == u && !j.stays[u] && saving[u] > 0 {
			units = append(units, candidate{u, saving[u]})
		}
	}
	if len(units) == 0 {
		return false
	}
	slices.SortFunc(units, func(a, b candidate) int {
		if a.saving != b.saving {
			return cmp.Compare(b.saving, a.saving)
		}
		return a.unit - b.unit
	})
	if j.evicted == nil {
		j.evicted = make([]bool, len(j.Rows))
	}
	for excess > 0 && len(units) > 0 {
		if units[0].saving < excess {
			excess -= units[0].saving
			j.evicted[units[0].unit] = true
			units = units[1:]
			continue
		}
		// One is enough: the last that is, and the first of those that save as
		// much.
		enough := sort.Search(len(units), func(k int) bool { return units[k].saving < excess }) - 1
		least := units[enough].saving
		first := sort.Search(len(units), func(k int) bool { return units[k].saving <= least })
		j.evicted[units[first].unit] = true
		break
	}
	return true
}
