package crashtest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"

	"github.com/gloveboxhq/glovebox/memory"
)

// ledger is what the parent knows: what must be in the store, what may be, and
// what must not.
type ledger struct {
	users    map[memory.UserID]*userAccount
	sessions map[memory.SessionID]*sessionAccount
	// open are the writes of the present child that have begun.
	open map[int64]event
	// gone are the sessions that were removed; true once a scrub that began
	// afterwards has finished, so that no byte of them is in a file.
	gone map[memory.SessionID]bool
	// scrubbing are the sessions that each scrub that goes on is to clean away.
	scrubbing map[int64][]memory.SessionID
	counts    Counts
}

// Counts tell what the children did, so that a run which proves nothing is
// noticed.
type Counts struct {
	// Kills counts deaths, Opening those before the store was open.
	Kills, Opening int
	// Messages, Summaries, Repairs, Deletes, Wipes and Scrubs were
	// acknowledged.
	Messages, Summaries, Repairs, Deletes, Wipes, Scrubs int
	// Kept and Dropped are writes without an acknowledgement that turned out to
	// be stored, or not.
	Kept, Dropped int
}

// certainty is what is known of a thing that is done once.
type certainty int

const (
	no certainty = iota
	maybe
	yes
)

type userAccount struct {
	exists certainty
	// begun says whether a wipe has begun that has not ended; wiped, whether it
	// has removed what there was.
	begun, wiped certainty
}

type sessionAccount struct {
	user   memory.UserID
	exists certainty
	// removed is by a deletion; wiped, by the wipe of its user.
	removed, wiped certainty
	messages       map[string]stored // by digest
	// unsettled are the batches whose writes died.
	unsettled []event
	summaries map[memory.SummaryID]*summaryAccount
}

type summaryAccount struct {
	committed, repaired certainty
	// texts are those that it may have; state is the digest of the whole, if
	// acknowledged.
	texts []string
	state string
}

func newLedger() *ledger {
	return &ledger{
		users: map[memory.UserID]*userAccount{}, sessions: map[memory.SessionID]*sessionAccount{},
		open: map[int64]event{}, gone: map[memory.SessionID]bool{}, scrubbing: map[int64][]memory.SessionID{},
	}
}

// user returns the account of a user, who may be the default one, of whom no
// child says that it makes it.
func (l *ledger) user(id memory.UserID) *userAccount {
	if l.users[id] == nil {
		l.users[id] = &userAccount{}
	}
	return l.users[id]
}

func (l *ledger) session(user memory.UserID, id memory.SessionID) *sessionAccount {
	if l.sessions[id] == nil {
		l.sessions[id] = &sessionAccount{user: user, messages: map[string]stored{}, summaries: map[memory.SummaryID]*summaryAccount{}}
	}
	return l.sessions[id]
}

func (s *sessionAccount) summary(id memory.SummaryID) *summaryAccount {
	if s.summaries[id] == nil {
		s.summaries[id] = &summaryAccount{}
	}
	return s.summaries[id]
}

// record takes one event of the child.
func (l *ledger) record(e event) error {
	switch e.Step {
	case stepFailed:
		return fmt.Errorf("the child failed: %s", e.Error)
	case stepIntent:
		l.open[e.Op] = e
		l.intend(e)
	case stepDone:
		intent := l.open[e.Op]
		delete(l.open, e.Op)
		return l.acknowledge(e, intent)
	case stepRefused:
		intent := l.open[e.Op]
		delete(l.open, e.Op)
		l.refuse(intent)
	}
	return nil
}

func (l *ledger) intend(e event) {
	switch e.Kind {
	case kindUser:
		l.user(e.User).exists = maybe
	case kindSession:
		l.session(e.User, e.Session).exists = maybe
	case kindCommit:
		v := l.session(e.User, e.Session).summary(e.Summary)
		v.committed, v.texts = maybe, append(v.texts, e.Text)
	case kindRepair:
		v := l.session(e.User, e.Session).summary(e.Summary)
		v.repaired, v.texts = max(v.repaired, maybe), append(v.texts, e.Text)
	case kindDelete:
		l.session(e.User, e.Session).removed = max(l.session(e.User, e.Session).removed, maybe)
	case kindBegin:
		l.user(e.User).begun = max(l.user(e.User).begun, maybe)
	case kindWipe:
		l.user(e.User).wiped = maybe
		for _, s := range l.sessions {
			if s.user == e.User && s.exists == yes {
				s.wiped = max(s.wiped, maybe)
			}
		}
	case kindEnd:
		l.user(e.User).begun = maybe
	case kindScrub:
		for id, s := range l.sessions {
			if s.removed == yes || s.wiped == yes {
				l.scrubbing[e.Op] = append(l.scrubbing[e.Op], id)
			}
		}
		l.scrubbing[e.Op] = slices.AppendSeq(l.scrubbing[e.Op], maps.Keys(l.gone))
	}
}

// refuse takes back what an intent made possible, where that matters. A
// deletion that another was faster with stays possible.
func (l *ledger) refuse(e event) {
	switch e.Kind {
	case kindSession:
		delete(l.sessions, e.Session)
	case kindCommit:
		delete(l.sessions[e.Session].summaries, e.Summary)
	case kindUser:
		delete(l.users, e.User)
	}
}

func (l *ledger) acknowledge(e, intent event) error {
	switch e.Kind {
	case kindUser:
		l.user(e.User).exists = yes
	case kindSession:
		l.session(e.User, e.Session).exists = yes
	case kindAppend:
		s := l.session(e.User, e.Session)
		for _, m := range e.Messages {
			if !slices.Contains(intent.Digests, m.Digest) {
				return fmt.Errorf("session %s: message %s was acknowledged, which says nothing of what was sent", e.Session, m.ID)
			}
			if known, ok := s.messages[m.Digest]; ok && known != m {
				return fmt.Errorf("a message of session %s was acknowledged as %v, and then as %v", e.Session, known, m)
			}
			s.messages[m.Digest] = m
			l.counts.Messages++
		}
	case kindCommit:
		v := l.session(e.User, e.Session).summary(e.Summary)
		v.committed = yes
		if v.repaired == no {
			v.state = e.State
		}
		l.counts.Summaries++
	case kindRepair:
		v := l.session(e.User, e.Session).summary(e.Summary)
		if v.repaired == yes {
			return fmt.Errorf("summary %s was repaired twice", e.Summary)
		}
		v.repaired, v.texts, v.state = yes, []string{e.Text}, e.State
		l.counts.Repairs++
	case kindDelete:
		l.session(e.User, e.Session).removed = yes
		l.counts.Deletes++
	case kindBegin:
		l.user(e.User).begun = yes
	case kindWipe:
		l.user(e.User).wiped = yes
		for _, s := range l.sessions {
			switch {
			case s.user != e.User:
			case s.wiped == maybe:
				s.wiped = yes
			case s.exists != no:
				// Made, or being made, while the wipe ran.
				s.wiped = maybe
			}
		}
		l.counts.Wipes++
	case kindEnd:
		l.user(e.User).begun = no
	case kindScrub:
		if e.Finished {
			for _, id := range l.scrubbing[e.Op] {
				l.gone[id] = true
			}
			l.counts.Scrubs++
		}
		delete(l.scrubbing, e.Op)
	}
	return nil
}

// bury settles what the dead child left open, as far as that is possible
// without the store, and returns the batches that its successor can send again.
func (l *ledger) bury() (again []batch) {
	for _, op := range slices.Sorted(maps.Keys(l.open)) {
		e := l.open[op]
		if e.Kind != kindAppend {
			continue
		}
		s := l.session(e.User, e.Session)
		s.unsettled = append(s.unsettled, e)
		if len(e.Seeds) > 0 {
			again = append(again, batch{e.User, e.Session, e.Seeds})
		}
	}
	clear(l.open)
	clear(l.scrubbing)
	l.counts.Kills++
	return again
}

// checkFiles looks for words of sessions whose last trace was removed.
func (l *ledger) checkFiles(paths []string) error {
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return err
		}
		for rest := data; ; {
			i := bytes.Index(rest, []byte(canaryPrefix))
			if i < 0 {
				break
			}
			rest = rest[i+len(canaryPrefix):]
			var id memory.SessionID
			if len(rest) < 2*len(id) {
				break
			}
			if _, err := hex.Decode(id[:], rest[:2*len(id)]); err == nil && l.gone[id] {
				return fmt.Errorf("%s has words of session %s at byte %d, which were removed", path, id, len(data)-len(rest))
			}
		}
	}
	return nil
}

// settle compares all that is known with the store, and takes from it what was
// open.
func (l *ledger) settle(ctx context.Context, store memory.Store) error {
	var faults []error
	users, err := store.Users(ctx)
	if err != nil {
		return err
	}
	known := map[memory.UserID]bool{}
	for _, u := range users {
		known[u.ID] = true
		account, made := l.users[u.ID]
		if (!made || account.exists == no) && !u.IsDefault {
			faults = append(faults, fmt.Errorf("user %s was never made", u.ID))
		}
		if made && account.wiped == yes && account.exists != no && !u.IsDefault {
			faults = append(faults, fmt.Errorf("user %s is still there after a wipe", u.ID))
		}
	}
	faults = append(faults, l.settleSessions(ctx, store, users)...)
	faults = append(faults, l.settleWipes(ctx, store)...)
	for id, u := range l.users {
		switch {
		case known[id]:
			u.exists = yes
		case u.exists == yes && u.wiped == no:
			faults = append(faults, fmt.Errorf("user %s is gone", id))
			fallthrough
		default:
			u.exists = no
		}
		if u.wiped = no; u.exists == no && u.begun == no {
			delete(l.users, id)
		}
	}
	return errors.Join(faults...)
}

// adopt takes all that is in a store for acknowledged.
func (l *ledger) adopt(ctx context.Context, store memory.Store) error {
	users, err := store.Users(ctx)
	if err != nil {
		return err
	}
	for _, u := range users {
		l.user(u.ID).exists = yes
		sessions, err := store.Sessions(ctx, u.ID, memory.SessionQuery{})
		if err != nil {
			return err
		}
		for _, s := range sessions {
			account := l.session(u.ID, s.ID)
			account.exists = yes
			messages, err := store.Messages(ctx, u.ID, s.ID, memory.MessageQuery{})
			if err != nil {
				return err
			}
			for _, m := range messages {
				digest, err := messageDigest(ctx, store, u.ID, m)
				if err != nil {
					return err
				}
				account.messages[digest] = stored{m.ID, m.Seq, digest}
			}
			summaries, err := store.Summaries(ctx, u.ID, s.ID)
			if err != nil {
				return err
			}
			for _, v := range summaries {
				state, err := summaryState(v)
				if err != nil {
					return err
				}
				account.summaries[v.ID] = &summaryAccount{committed: yes, texts: []string{v.Text}, state: state}
			}
		}
	}
	return nil
}

func (l *ledger) settleWipes(ctx context.Context, store memory.Store) (faults []error) {
	wipes, err := store.Wipes(ctx)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	} else if err != nil {
		return []error{err}
	}
	listed := map[memory.UserID]bool{}
	for _, w := range wipes {
		listed[w.User] = true
		if l.user(w.User).begun == no {
			faults = append(faults, fmt.Errorf("a wipe of user %s goes on that was not begun, or has ended", w.User))
		}
	}
	for id, u := range l.users {
		if u.begun == yes && !listed[id] {
			faults = append(faults, fmt.Errorf("the wipe of user %s was begun and is forgotten", id))
		}
		if u.begun = no; listed[id] {
			u.begun = yes
		}
	}
	return faults
}

func (l *ledger) settleSessions(ctx context.Context, store memory.Store, users []memory.User) (faults []error) {
	// there and gone count, by user, the sessions that a wipe of which nobody
	// knows the end has left and removed: it does all or nothing.
	there, gone := map[memory.UserID]int{}, map[memory.UserID]int{}
	for id, s := range l.sessions {
		_, err := store.Session(ctx, s.user, id)
		isGone := errors.Is(err, memory.ErrNotFound)
		if err != nil && !isGone {
			return append(faults, err)
		}
		if s.removed == no && s.wiped == maybe && s.exists == yes && l.user(s.user).wiped == maybe {
			if isGone {
				gone[s.user]++
			} else {
				there[s.user]++
			}
		}
		switch {
		case isGone && s.exists == yes && s.removed == no && s.wiped == no:
			faults = append(faults, fmt.Errorf("session %s with %d acknowledged messages is gone", id, len(s.messages)))
		case !isGone && (s.removed == yes || s.wiped == yes):
			faults = append(faults, fmt.Errorf("session %s is there again", id))
		}
		if isGone {
			delete(l.sessions, id)
			if _, ok := l.gone[id]; !ok {
				l.gone[id] = false
			}
			continue
		}
		s.exists, s.removed, s.wiped = yes, no, no
		faults = append(faults, CheckSession(ctx, store, s.user, id))
		faults = append(faults, l.settleMessages(ctx, store, id, s)...)
		faults = append(faults, s.settleSummaries(ctx, store, id)...)
	}
	for user, n := range there {
		if gone[user] > 0 {
			faults = append(faults, fmt.Errorf("of the sessions of user %s, %d were wiped and %d were not", user, gone[user], n))
		}
	}
	for _, u := range users {
		sessions, err := store.Sessions(ctx, u.ID, memory.SessionQuery{})
		if err != nil {
			return append(faults, err)
		}
		for _, s := range sessions {
			if account := l.sessions[s.ID]; account == nil || account.user != u.ID || s.User != u.ID {
				faults = append(faults, fmt.Errorf("user %s has session %s, which was not made for them", u.ID, s.ID))
			}
		}
	}
	return faults
}

func (l *ledger) settleMessages(ctx context.Context, store memory.Store, id memory.SessionID, s *sessionAccount) (faults []error) {
	messages, err := store.Messages(ctx, s.user, id, memory.MessageQuery{})
	if err != nil {
		return []error{err}
	}
	found := map[string]stored{}
	for _, m := range messages {
		digest, err := messageDigest(ctx, store, s.user, m)
		if err != nil {
			return append(faults, err)
		}
		if before, twice := found[digest]; twice {
			faults = append(faults, fmt.Errorf("session %s: message %d says the same as message %d", id, m.Seq, before.Seq))
		}
		found[digest] = stored{m.ID, m.Seq, digest}
	}
	for digest, m := range s.messages {
		if found[digest] != m {
			faults = append(faults, fmt.Errorf("session %s: message %s was acknowledged as number %d, and is not there as it was", id, m.ID, m.Seq))
		}
	}
	sent := maps.Clone(s.messages)
	for _, e := range s.unsettled {
		kept := 0
		for i, digest := range e.Digests {
			m, ok := found[digest]
			if !ok {
				continue
			}
			kept++
			if first := found[e.Digests[0]]; m.Seq != first.Seq+int64(i) {
				faults = append(faults, fmt.Errorf("session %s: a batch is torn between messages %d and %d", id, first.Seq, m.Seq))
			}
			sent[digest] = m
		}
		switch kept {
		case 0:
			l.counts.Dropped++
		case len(e.Digests):
			l.counts.Kept++
		default:
			var where []string
			for _, digest := range e.Digests {
				_, acknowledged := s.messages[digest]
				where = append(where, fmt.Sprintf("%+v, acknowledged before: %t", found[digest], acknowledged))
			}
			faults = append(faults, fmt.Errorf("session %s: %d of the %d messages of a batch with seeds %x are there: %q", id, kept, len(e.Digests), e.Seeds, where))
		}
	}
	for digest, m := range found {
		if _, ok := sent[digest]; !ok {
			faults = append(faults, fmt.Errorf("session %s: message %d, %s, was never sent", id, m.Seq, m.ID))
		}
	}
	s.messages, s.unsettled = found, nil
	return faults
}

func (s *sessionAccount) settleSummaries(ctx context.Context, store memory.Store, id memory.SessionID) (faults []error) {
	summaries, err := store.Summaries(ctx, s.user, id)
	if err != nil {
		return []error{err}
	}
	found := map[memory.SummaryID]*summaryAccount{}
	for _, v := range summaries {
		state, err := summaryState(v)
		if err != nil {
			return append(faults, err)
		}
		account := s.summaries[v.ID]
		switch {
		case account == nil || account.committed == no:
			faults = append(faults, fmt.Errorf("session %s: summary %s was never made", id, v.ID))
			continue
		case !slices.Contains(account.texts, v.Text),
			account.repaired != maybe && account.state != "" && account.state != state:
			faults = append(faults, fmt.Errorf("session %s: summary %s is not as it was acknowledged: %+v", id, v.ID, v))
		}
		found[v.ID] = &summaryAccount{committed: yes, texts: []string{v.Text}, state: state}
		if account.repaired != no && v.Level != memory.LevelFallback {
			found[v.ID].repaired = yes
		}
	}
	for lost, account := range s.summaries {
		if found[lost] == nil && account.committed == yes {
			faults = append(faults, fmt.Errorf("session %s: summary %s is gone", id, lost))
		}
	}
	s.summaries = found
	return faults
}

// sample returns some messages that are in the store, in an order of their own.
func (l *ledger) sample(n int) (list []sampled) {
	for id, s := range l.sessions {
		for _, m := range s.messages {
			list = append(list, sampled{s.user, id, m.ID})
		}
	}
	slices.SortFunc(list, func(a, b sampled) int { return cmp.Compare(a.message.String(), b.message.String()) })
	step := max(1, len(list)/max(1, n))
	for i := range min(n, len(list)) {
		list[i] = list[i*step]
	}
	return list[:min(n, len(list))]
}

type sampled struct {
	user    memory.UserID
	session memory.SessionID
	message memory.MessageID
}
