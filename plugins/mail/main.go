// Command mail is the bundled mail hand: it finds the mailboxes below the
// granted folder "mail" (Maildir, mbox, single .eml files) and answers with the
// unread and notable mail that arrived in the query's window, most important
// first, newsletters and notifications left out.
//
// Everything in a mail is written by strangers. The hand bounds what it reads,
// and puts every quoted value on a line of its own making, so that one mail
// cannot pass for two; it does not judge what a mail says. Framing the reply as
// external text is the host's work.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"
	_ "time/tzdata"

	"github.com/gloveboxhq/glovebox/sdk/go/hand"
	"github.com/gloveboxhq/glovebox/sdk/go/hand/files"
)

// rootName is the name under which the operator grants the folder.
const rootName = "mail"

// Errors that an operator can act on.
var (
	errNotGranted = errors.New(`no folder to read: grant one under the name "mail" (files = { mail = "/path/to/Maildir" })`)
	errNoMailbox  = errors.New(`no mailbox found in the folder granted as "mail": it should be or contain a Maildir (a folder with cur and new), an mbox file or .eml files`)
)

func init() { hand.Register(answer) }

func main() { hand.Main() }

// answer lists the mail of q's window. It returns "" when no mail arrived and
// nothing went wrong, and an error when there is no mailbox to read.
func answer(ctx context.Context, q hand.Query) (string, error) {
	c := newCollector(ctx, files.Root(ctx, rootName), window{from: q.From, to: q.To, now: q.Now})
	if err := c.collect(); err != nil {
		switch {
		case ctx.Err() != nil:
			return "", fmt.Errorf("read mail: %w", context.Cause(ctx))
		case errors.Is(err, fs.ErrPermission), errors.Is(err, fs.ErrNotExist):
			return "", fmt.Errorf("%w: %w", errNotGranted, err)
		}
		return "", fmt.Errorf("read mail: %w", err)
	}
	if !c.found && c.trouble.Problems() == 0 && !c.incomplete {
		return "", errNoMailbox
	}
	me, _ := q.Config["me"].([]string)
	return newDigest(c, me).render(q), nil
}

// window is the time asked about, from ≤ t < to.
type window struct{ from, to, now time.Time }

func (w window) contains(t time.Time) bool { return !t.Before(w.from) && t.Before(w.to) }

const (
	// slack allows for clocks and time stamps that are off when a file's or
	// envelope's time is all that is known of a mail.
	slack = 3 * 24 * time.Hour
	// farFuture is how far ahead of now a time may lie and still be believed.
	farFuture = 24 * time.Hour
	// longTransit is the longest delivery believed: a later Received line comes
	// from moving the mail between servers, not from its arrival.
	longTransit = 48 * time.Hour
)

// plausible tells whether a mail may have carried t by w.now.
func (w window) plausible(t time.Time) bool {
	return !t.IsZero() && t.Year() >= 1980 && !t.After(w.now.Add(farFuture))
}

// mayHold tells whether a mail stored at t, the zero time if unknown, is worth
// opening.
func (w window) mayHold(t time.Time) bool {
	return t.IsZero() || !t.Before(w.from.Add(-slack)) && t.Before(w.to.Add(slack))
}

// ownAddresses returns the addresses as a set, in lower case.
func ownAddresses(lists ...[]string) map[string]bool {
	set := make(map[string]bool)
	for _, list := range lists {
		for _, a := range list {
			if a = strings.ToLower(strings.TrimSpace(a)); strings.Contains(a, "@") {
				set[a] = true
			}
		}
	}
	return set
}
