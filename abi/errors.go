package abi

import (
	"context"
	"errors"
	"strings"
)

// Kind says what went wrong in words that are the same in every language, log
// and API. The set is closed. A Kind is an error, so that
// errors.Is(err, abi.KindTimeout) works on everything the host returns.
type Kind string

// The kinds. Those with a code can reach a guest as the negative result of a
// host call.
const (
	KindUnknownHand   Kind = "unknown_hand"
	KindBadModule     Kind = "bad_module"
	KindABIMismatch   Kind = "abi_mismatch"
	KindNotGranted    Kind = "not_granted"
	KindTimeout       Kind = "timeout"
	KindOutOfFuel     Kind = "out_of_fuel"
	KindOutOfMemory   Kind = "out_of_memory"
	KindTrap          Kind = "trap"
	KindExit          Kind = "exit"
	KindHandFailed    Kind = "hand_failed"
	KindBadReply      Kind = "bad_reply"
	KindBusy          Kind = "busy"
	KindBadPointer    Kind = "bad_pointer"
	KindHostClosed    Kind = "host_closed"
	KindStackOverflow Kind = "stack_overflow"
	KindTooManyCalls  Kind = "too_many_calls"
	KindQuotaExceeded Kind = "quota_exceeded"
	KindTooLarge      Kind = "too_large"
	KindDenied        Kind = "denied"
	KindNotFound      Kind = "not_found"
	KindDisabled      Kind = "disabled"
	KindBadRequest    Kind = "bad_request"
	KindUnavailable   Kind = "unavailable"
)

// Error returns the kind in words.
func (k Kind) Error() string { return strings.ReplaceAll(string(k), "_", " ") }

// guestKinds lists the kinds that a guest can meet; the code of each is minus
// its position, counted from one. The order is part of the contract.
const guestKinds = "bad_pointer not_granted bad_request too_large too_many_calls quota_exceeded denied not_found timeout disabled unavailable"

// Code returns the negative number that stands for k in the result of a host
// call, or 0 if a guest never meets k.
func (k Kind) Code() int32 {
	for i, name := range strings.Fields(guestKinds) {
		if name == string(k) {
			return int32(-1 - i)
		}
	}
	return 0
}

// KindOfCode is the inverse of Kind.Code. It returns "" for a code that the
// contract does not have.
func KindOfCode(code int32) Kind {
	names := strings.Fields(guestKinds)
	if i := -1 - int(code); i >= 0 && i < len(names) {
		return Kind(names[i])
	}
	return ""
}

// Error is a failure of or around a hand. It never holds words of the hand:
// those travel as external content beside it.
type Error struct {
	// Hand is the hand's name; empty while it has none.
	Hand string
	Kind Kind
	// Text says what happened, with the limit and its value, in the host's
	// own words.
	Text string
	// Err is the cause, if another error was.
	Err error
}

func (e *Error) Error() string {
	var b strings.Builder
	if e.Hand != "" {
		b.WriteString(`hand "` + e.Hand + `": `)
	}
	if e.Text != "" {
		b.WriteString(e.Text)
	} else {
		b.WriteString(e.Kind.Error())
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is the error's kind; a timeout that nobody
// cancelled also is context.DeadlineExceeded.
func (e *Error) Is(target error) bool {
	if target == context.DeadlineExceeded {
		return e.Kind == KindTimeout && e.Err == nil
	}
	k, ok := target.(Kind)
	return ok && k == e.Kind
}

// KindOf returns the kind of the first Error or Kind in err's chain, or "".
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	if k, ok := errors.AsType[Kind](err); ok {
		return k
	}
	return ""
}
