package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/gloveboxhq/glovebox/host/capability"
	"github.com/gloveboxhq/glovebox/memory"
)

// WipeReport tells what a wipe removed from both databases.
type WipeReport struct {
	memory.WipeCounts
	Hands capability.Forgotten `json:"hands"`
	// ResiduePending says that all is removed, but that another process which
	// reads one of the files keeps its log, where deleted text still is. The
	// next wipe, start or doctor --repair finishes it.
	ResiduePending bool `json:"residue_pending"`
}

// WipeUser removes everything of a user: from the store, and what hands keep and
// what was recorded of their runs. Turns of the user that go on end with
// memory.ErrWiped, and so do those that begin meanwhile. The user is removed too;
// one that the configuration names exists again at once, with nothing, and so
// does the default user. Who is not known has nothing: a second wipe returns
// zeros.
//
// When it fails, or the process dies, nothing is written for the user until it is
// called again or the host is opened again, which finishes it first.
func (h *Host) WipeUser(ctx context.Context, user memory.UserID) (WipeReport, error) {
	end, err := h.sending.Begin()
	if err != nil {
		return WipeReport{}, fmt.Errorf("wipe user: the host is %w", err)
	}
	defer end()
	if user.IsZero() {
		return WipeReport{}, fmt.Errorf("wipe user: no id: %w", memory.ErrInvalid)
	}
	unlock, err := h.wiping.lock(ctx, user)
	if err != nil {
		return WipeReport{}, fmt.Errorf("wipe user %s: %w", user, err)
	}
	defer unlock()
	// From here on the wipe is for the next start, if this one cannot end it.
	if err := beginWipe(ctx, h.store, user, h.now()); err != nil {
		return WipeReport{}, err
	}
	returns, err := h.present.dismiss(ctx, user)
	defer returns()
	if err != nil {
		return WipeReport{}, fmt.Errorf("wipe user %s: wait for what runs for them: %w", user, err)
	}
	report, err := wipe(ctx, h.store, h.ledger, user)
	if err != nil {
		return report, err
	}
	if err := h.bindUsers(ctx); err != nil {
		return report, fmt.Errorf("wipe user %s: bind the configured users: %w", user, err)
	}
	return report, nil
}

// WipeUser is Host.WipeUser where no host runs: the caller has both databases open
// for writing, and the user's name is bound when a host opens them.
func WipeUser(ctx context.Context, store memory.Store, ledger *capability.Ledger, user memory.UserID, at time.Time) (WipeReport, error) {
	if err := beginWipe(ctx, store, user, at); err != nil {
		return WipeReport{}, err
	}
	return wipe(ctx, store, ledger, user)
}

func beginWipe(ctx context.Context, store memory.Store, user memory.UserID, at time.Time) error {
	// Of somebody who is gone there may be something in the other database.
	if err := store.BeginWipe(ctx, user, at); err != nil && !errors.Is(err, memory.ErrNotFound) {
		return fmt.Errorf("wipe user: %w", err)
	}
	return nil
}

// wipe does what a begun wipe is about. Two files share no transaction: a process
// that dies between the steps leaves the row of BeginWipe, and all steps can be
// taken twice. What is left to be scrubbed is recorded in each file.
func wipe(ctx context.Context, store memory.Store, ledger *capability.Ledger, user memory.UserID) (report WipeReport, err error) {
	if report.WipeCounts, err = store.WipeUser(ctx, user); err != nil {
		return report, fmt.Errorf("wipe user: %w", err)
	}
	forgotten, forgottenAll := false, false
	if report.Hands, forgotten, err = ledger.ForgetUser(ctx, user.String()); err != nil {
		return report, fmt.Errorf("wipe user: %w", err)
	}
	if forgottenAll, err = store.Scrub(ctx); err != nil {
		return report, fmt.Errorf("wipe user: %w", err)
	}
	report.ResiduePending = !forgotten || !forgottenAll
	if err := store.EndWipe(ctx, user); err != nil {
		return report, fmt.Errorf("wipe user: %w", err)
	}
	return report, nil
}

// Scrubber is a store that knows whether it is to be scrubbed.
type Scrubber interface {
	memory.Store
	ScrubPending(context.Context) (bool, error)
}

// ResumeWipes finishes the wipes that were begun and not ended, and scrubs what
// could not be scrubbed. Another process that reads the files can keep it from
// the latter, which is logged.
func ResumeWipes(ctx context.Context, store Scrubber, ledger *capability.Ledger, log *slog.Logger) error {
	wipes, err := store.Wipes(ctx)
	if err != nil {
		return fmt.Errorf("resume wipes: %w", err)
	}
	for _, w := range wipes {
		report, err := wipe(ctx, store, ledger, w.User)
		if err != nil {
			return fmt.Errorf("resume the wipe of %s: %w", w.BegunAt.Format(time.RFC3339), err)
		}
		log.Info("finished a wipe that was begun before", "begun_at", w.BegunAt, "messages", report.Messages, "residue_pending", report.ResiduePending)
	}
	done, err := ledger.Scrub(ctx)
	if err != nil {
		return fmt.Errorf("resume wipes: scrub: %w", err)
	}
	pending, err := store.ScrubPending(ctx)
	if err == nil && pending {
		pending, err = store.Scrub(ctx)
		pending = !pending
	}
	if err != nil {
		return fmt.Errorf("resume wipes: %w", err)
	}
	if pending || !done {
		log.Warn("deleted text is still in the log of a database, because another process reads it")
	}
	return nil
}

// presence knows for which users something is done now. The zero value is empty.
type presence struct {
	mu    sync.Mutex
	users map[memory.UserID]*visit // guarded by mu: who has anything running, or is away
}

// visit is what runs for one user.
type visit struct {
	running map[*context.CancelCauseFunc]struct{}
	// away is set while the user is wiped; left is closed when nothing runs
	// any more.
	away bool
	left chan struct{}
}

func (p *presence) of(user memory.UserID) *visit {
	if p.users == nil {
		p.users = map[memory.UserID]*visit{}
	}
	v := p.users[user]
	if v == nil {
		v = &visit{running: map[*context.CancelCauseFunc]struct{}{}}
		p.users[user] = v
	}
	return v
}

// enter begins something for a user. Its context ends when the user is wiped, with
// memory.ErrWiped as cause; one that is being wiped does not enter.
func (p *presence) enter(ctx context.Context, user memory.UserID) (_ context.Context, leave func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := p.of(user)
	if v.away {
		return ctx, nil, memory.ErrWiped
	}
	ctx, cancel := context.WithCancelCause(ctx)
	v.running[&cancel] = struct{}{}
	return ctx, func() {
		cancel(nil)
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(v.running, &cancel)
		if len(v.running) > 0 {
			return
		}
		if v.away {
			close(v.left)
		} else {
			delete(p.users, user)
		}
	}, nil
}

// dismiss ends what runs for a user and waits for that. Until returns is called
// nobody enters.
func (p *presence) dismiss(ctx context.Context, user memory.UserID) (returns func(), err error) {
	p.mu.Lock()
	v := p.of(user)
	v.away, v.left = true, make(chan struct{})
	for cancel := range v.running {
		(*cancel)(memory.ErrWiped)
	}
	if len(v.running) == 0 {
		close(v.left)
	}
	p.mu.Unlock()
	returns = func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if v.away = false; len(v.running) == 0 {
			delete(p.users, user)
		}
	}
	select {
	case <-v.left:
		return returns, nil
	case <-ctx.Done():
		return returns, ctx.Err()
	}
}

// wipedMeanwhile says of an error that it comes from a wipe, if it does.
func wipedMeanwhile(ctx context.Context, err error) error {
	if err != nil && !errors.Is(err, memory.ErrWiped) && errors.Is(context.Cause(ctx), memory.ErrWiped) {
		return fmt.Errorf("%w: %w", memory.ErrWiped, err)
	}
	return err
}
