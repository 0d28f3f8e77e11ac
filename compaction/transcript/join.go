package transcript

// Live is one message in the caller's hands.
type Live struct {
	Row
	// Volatile says that the message is not stored, so that the model sees it
	// only if it is added to the prompt.
	Volatile bool
}

// JoinInput is what Join works on.
type JoinInput struct {
	// Rows are those of the assembled prompt.
	Rows []Row
	Live []Live
	// Protected are indices of rows that stay; others than there are count for
	// nothing.
	Protected []int
	// Budget is what the result may cost, RowsCost what the caller believes that
	// the rows cost, and PlaceholderCost what a made up result costs.
	Budget, RowsCost, PlaceholderCost int
}

// Joined is what came of it.
type Joined struct {
	// Rows is the prompt: JoinInput.Rows as they are, if nothing had to be
	// added, else repaired.
	Rows []Row
	Cost int
	// Appended are the indices of the live messages that were added, in order.
	Appended     []int
	AppendedCost int
	// Evicted are the indices of the rows that had to go, in order.
	Evicted []int
	// CoveredBy tells for each live message which row says the same in its place;
	// -1 if none does, or if it is not volatile.
	CoveredBy []int
	// OverBudget says that Cost is more than the budget although nothing more
	// may go.
	OverBudget bool
}

// Join adds the volatile messages that no row covers, in their places among
// the rows that the other live messages equal, and evicts stored rows while the
// result costs more than the budget.
func Join(in JoinInput) Joined { return Joined{Rows: in.Rows} }
