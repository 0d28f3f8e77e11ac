// Package capability is what stands behind the ports of the sandbox. Each call
// of a hand that reaches out of its box passes one door, which decides and
// records; a call that cannot be recorded is refused.
package capability

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
)

// Caller is on whose behalf a call is made.
type Caller struct {
	// Hand is the hand's name.
	Hand string
	// Subject stands for the user, as Ledger.Subject gives it.
	Subject string
	// Withdrawn, if not nil, says in the host's words why the hand may do nothing any
	// more of what it was granted, and "" while it may. It is asked before each call.
	Withdrawn func() string
}

// Action is what a call wants to do. No action implies another.
type Action string

// The actions.
const (
	ActionFilesList Action = "files.list"
	ActionFilesRead Action = "files.read"
)

// Decision is one row of the audit.
type Decision struct {
	// ID orders the decisions of a ledger: a later one has a larger. The ledger
	// gives it.
	ID      int64     `json:"id,omitzero"`
	At      time.Time `json:"at"`
	Hand    string    `json:"hand"`
	Subject string    `json:"subject"`
	Action  Action    `json:"action"`
	// Target is quoted, because the hand chose it.
	Target  string `json:"target"`
	Allowed bool   `json:"allowed"`
	// Reason says in the host's words why the call was refused.
	Reason string `json:"reason,omitempty"`
}

// refusal is a decision against a call.
type refusal struct {
	kind   abi.Kind
	reason string
}

// door decides and records. Every adapter of this package begins with decide.
type door struct {
	ledger *Ledger
	caller Caller
}

// decide records that the caller wants action on target, and refuses it if no
// is not nil, if the grant was withdrawn or if the record cannot be written. A
// refusal is durable when decide returns; a permission within a second.
func (d door) decide(ctx context.Context, action Action, target string, no *refusal) error {
	if gone := d.withdrawn(); gone != nil {
		no = gone
	}
	decision := Decision{
		Hand: d.caller.Hand, Subject: d.caller.Subject, Action: action,
		Target: strconv.Quote(target[:min(len(target), maxTargetBytes)]), Allowed: no == nil,
	}
	if no != nil {
		decision.Reason = no.reason
	}
	if err := d.ledger.recordDecision(ctx, decision); err != nil {
		return fmt.Errorf("record %s: %w: %w", action, err, abi.KindUnavailable)
	}
	if no != nil {
		return fmt.Errorf("%s: %s: %w", action, no.reason, no.kind)
	}
	return nil
}

// withdrawn is the refusal of every call once the grant was taken back.
func (d door) withdrawn() *refusal {
	if d.caller.Withdrawn == nil {
		return nil
	}
	if why := d.caller.Withdrawn(); why != "" {
		return &refusal{abi.KindDisabled, why}
	}
	return nil
}

const maxTargetBytes = 500
