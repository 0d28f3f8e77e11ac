// Package conformance proves that a hand keeps the contract. It asks any hand the
// published queries of testdata/abi and holds what comes of them against ABI.md;
// and it asks the sample hand of an SDK what SAMPLE.md describes, and compares the
// answers to the byte.
//
// It runs nothing itself: whoever has a sandbox supplies a Runner.
package conformance

import "github.com/gloveboxhq/glovebox/abi"

const kindFailed = abi.KindHandFailed

// Report is what was checked, in order.
type Report struct {
	Checks []Check
}

// Check is one row.
type Check struct {
	Name string
	// Faults tell what is wrong; none means that the check is passed.
	Faults []string
	// Note says what is worth knowing and no fault.
	Note string
	// Cost is nil for what asks nothing.
	Cost *Cost
}

// Passed reports whether c has no fault.
func (c Check) Passed() bool { return len(c.Faults) == 0 }

// Passed reports whether all checks are passed and there is one.
func (r Report) Passed() bool {
	for _, c := range r.Checks {
		if !c.Passed() {
			return false
		}
	}
	return len(r.Checks) > 0
}
