package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/gloveboxhq/glovebox/memory"
)

// The bounds of the search for a conversation.
const (
	// maxLookups is how many of the last answers in it are looked up, beside the
	// first.
	maxLookups = 64
	// maxPlaces is how many sessions with the same beginning are looked at: what is
	// asked anew again and again has many.
	maxPlaces = 32
	// maxTailRead is how many messages from the end of a named session the end of a
	// conversation is compared with.
	maxTailRead = 4096
	// maxAncestors is how many forks of forks are known as one family.
	maxAncestors = 64
	// readAtOnce is how many messages are read at a time.
	readAtOnce = 64
)

// seat is where a conversation goes on. Who has it holds the session's lock.
type seat struct {
	Placed
	session memory.Session
	agent   agent
	// fresh are the rows to be stored, with their digests; transcript is that of all.
	fresh      []row
	transcript memory.Digest
	// answered says that the session ends with an answer that calls nothing.
	answered bool
}

// named is a name that a client gave a session.
type named struct {
	user memory.UserID
	name string
}

// spot says how much of a conversation a session has.
type spot struct {
	session memory.SessionID
	// known of the rows are stored, the last of them, or what the host did for it, as
	// message last. What comes behind them rolls on from digest.
	known  int
	last   int64
	digest memory.Digest
	// goesOn says that behind last there is nothing that the client has not seen.
	goesOn bool
}

// locate looks how much of a conversation a session has now. It is called again when
// the session is locked: another turn may have been handled meanwhile.
type locate func(ctx context.Context) (spot, error)

// seat finds the session of a conversation, or makes one, and locks it. Release is
// to be called if err is nil.
func (h *Host) seat(ctx context.Context, user memory.User, c Conversation, rows []row) (_ seat, release func(), err error) {
	switch {
	case c.Session == "" && c.After != "":
		return seat{}, nil, fmt.Errorf("an answer is looked for in a session: %w", memory.ErrInvalid)
	case c.Session == "":
		a, err := h.agentNamed(c.Agent)
		if err != nil {
			return seat{}, nil, err
		}
		for range maxPlaces {
			found, look, err := h.search(ctx, user.ID, a.ID, rows, nil)
			if err != nil {
				return seat{}, nil, err
			}
			if look == nil {
				break
			}
			s, release, err := h.take(ctx, user.ID, a, found.session, look, memory.SessionID{}, rows)
			if !errors.Is(err, memory.ErrNotFound) {
				return s, release, err
			}
			// It was deleted since it was found, and will not be found again.
		}
		return h.begin(ctx, user.ID, a, "", rows)
	}
	if id, err := memory.ParseID[memory.SessionID](c.Session); err == nil {
		session, a, err := h.sessionFor(ctx, user, Message{Agent: c.Agent, Session: id})
		if err != nil {
			return seat{}, nil, err
		}
		if c.After != "" {
			return h.take(ctx, user.ID, a, id, func(ctx context.Context) (spot, error) { return h.behind(ctx, user.ID, id, c.After, rows) }, id, rows)
		}
		return h.seatIn(ctx, user.ID, a, session.ID, rows)
	}
	if c.After != "" {
		return seat{}, nil, fmt.Errorf("an answer is looked for in a session by its id: %w", memory.ErrInvalid)
	}
	return h.seatNamed(ctx, user, c, rows)
}

// seatNamed is seat for a name. Turns of one name go one after the other, whichever
// session has it by then.
func (h *Host) seatNamed(ctx context.Context, user memory.User, c Conversation, rows []row) (_ seat, release func(), err error) {
	if len(c.Session) > memory.MaxSessionName || !utf8.ValidString(c.Session) || strings.ContainsFunc(c.Session, unicode.IsControl) {
		return seat{}, nil, fmt.Errorf("a session's name is at most %d bytes of UTF-8 without control characters: %w", memory.MaxSessionName, memory.ErrInvalid)
	}
	unlock, err := h.naming.lock(ctx, named{user.ID, c.Session})
	if err != nil {
		return seat{}, nil, fmt.Errorf("wait for the turn before: %w", err)
	}
	defer func() {
		if err != nil {
			unlock()
		}
	}()
	sessions, err := h.store.Sessions(ctx, user.ID, memory.SessionQuery{Name: c.Session, Limit: 1})
	if err != nil {
		return seat{}, nil, fmt.Errorf("look for session %q: %w", c.Session, err)
	}
	var s seat
	var leave func()
	if len(sessions) == 0 {
		a, err := h.agentNamed(c.Agent)
		if err != nil {
			return seat{}, nil, err
		}
		s, leave, err = h.begin(ctx, user.ID, a, c.Session, rows)
		if err != nil {
			return seat{}, nil, err
		}
	} else {
		session, a, err := h.sessionFor(ctx, user, Message{Agent: c.Agent, Session: sessions[0].ID})
		if err != nil {
			return seat{}, nil, err
		}
		if s, leave, err = h.seatIn(ctx, user.ID, a, session.ID, rows); err != nil {
			return seat{}, nil, err
		}
	}
	return s, func() { leave(); unlock() }, nil
}

// seatIn is seat for a session that the client names, by its id or otherwise.
func (h *Host) seatIn(ctx context.Context, user memory.UserID, a agent, session memory.SessionID, rows []row) (seat, func(), error) {
	var elsewhere locate
	s, release, err := h.take(ctx, user, a, session, func(ctx context.Context) (at spot, err error) {
		at, elsewhere, err = h.spotIn(ctx, user, a, session, rows)
		return at, err
	}, session, rows)
	if errors.Is(err, errElsewhere) {
		return h.take(ctx, user, a, s.session.ID, elsewhere, session, rows)
	}
	return s, release, err
}

// errElsewhere says that a conversation goes on in another session than the one that
// is locked.
var errElsewhere = errors.New("another session has more of it")

// spotIn looks where a conversation goes on that the client says is that session: in
// it, or in one that it and this one were forked from. Either the client has the
// whole conversation, or its end; the more of it is known, the better.
func (h *Host) spotIn(ctx context.Context, user memory.UserID, a agent, session memory.SessionID, rows []row) (spot, locate, error) {
	root, err := h.root(ctx, user, session)
	if err != nil {
		return spot{}, nil, err
	}
	whole, look, err := h.search(ctx, user, a.ID, rows, func(other memory.SessionID) (bool, error) {
		if other == session {
			return true, nil
		}
		of, err := h.root(ctx, user, other)
		return of == root, err
	})
	if err != nil || look != nil && whole.goesOn {
		return whole, look, err
	}
	end, err := h.overlap(ctx, user, session, rows)
	if err != nil {
		return spot{}, nil, err
	}
	if look == nil || end.goesOn && end.known >= whole.known || !end.goesOn && end.known > whole.known {
		return end, nil, nil
	}
	return whole, look, nil
}

// root is the session that one was forked from, over all forks.
func (h *Host) root(ctx context.Context, user memory.UserID, id memory.SessionID) (memory.SessionID, error) {
	for range maxAncestors {
		session, err := h.store.Session(ctx, user, id)
		if err != nil {
			return id, err
		}
		if session.Parent.IsZero() {
			break
		}
		id = session.Parent
	}
	return id, nil
}

// search looks for the session that has the most of a conversation, which begins
// with what is stored of it and has at least one answer in it. Of those that have the
// same, it is one in which the conversation goes on, else the one that was active
// last. The locate is nil if there is none.
//
// Nil for allowed means any. Then one that has nobody to be chosen before is not yet
// followed: the spot is where it was found, and locate follows it.
func (h *Host) search(ctx context.Context, user memory.UserID, agent memory.AgentID, rows []row, allowed func(memory.SessionID) (bool, error)) (spot, locate, error) {
	lookups, first := 0, 0
	for first < len(rows) && rows[first].Role != memory.RoleAssistant {
		first++
	}
	for i := len(rows) - 1; i >= first; i-- {
		if rows[i].Role != memory.RoleAssistant {
			continue
		}
		if lookups++; lookups > maxLookups {
			i = first
		}
		places, err := h.store.Places(ctx, user, agent, rows[i].Transcript, maxPlaces)
		if err != nil {
			return spot{}, nil, fmt.Errorf("look for the conversation: %w", err)
		}
		var best spot
		var look locate
		for _, p := range places {
			// A session that was deleted since is none.
			if allowed != nil {
				ok, err := allowed(p.Session)
				if err != nil && !errors.Is(err, memory.ErrNotFound) {
					return spot{}, nil, err
				}
				if !ok || err != nil {
					continue
				}
			}
			at := spot{session: p.Session, known: i + 1, last: p.Seq, digest: rows[i].Transcript}
			follow := func(ctx context.Context) (spot, error) { return h.follow(ctx, user, at, rows) }
			found := at
			if allowed != nil || len(places) > 1 {
				var err error
				if found, err = follow(ctx); errors.Is(err, memory.ErrNotFound) {
					continue
				} else if err != nil {
					return spot{}, nil, err
				}
			}
			if look == nil || found.goesOn && !best.goesOn || found.goesOn == best.goesOn && found.known > best.known {
				best, look = found, follow
			}
		}
		if look != nil {
			return best, look, nil
		}
	}
	return spot{}, nil, nil
}

// follow goes from a spot along the rows as far as the session has them.
func (h *Host) follow(ctx context.Context, user memory.UserID, at spot, rows []row) (spot, error) {
	// What the host did beside the calls that the client answers belongs to the
	// answer.
	calls, beside := answeredIn(rows), true
	if at.known > 0 {
		calls = callsOf(rows[at.known-1].Blocks)
	}
	// Most often the session ends here, or departs with what comes next.
	few := min(len(rows)-at.known+1, readAtOnce)
	for seq := at.last; ; few = readAtOnce {
		messages, err := h.store.Messages(ctx, user, at.session, memory.MessageQuery{After: seq, Limit: few})
		if err != nil {
			return spot{}, fmt.Errorf("read the conversation: %w", err)
		}
		for _, m := range messages {
			seq = m.Seq
			switch {
			case !isShown(m):
				if beside = beside && isResultBeside(m, calls); beside {
					at.last = m.Seq
				}
				continue
			case at.known == len(rows) || !continues(at.digest, m, rows[at.known]):
				return at, nil
			}
			at.digest = after(at.digest, rows[at.known].sum)
			calls, beside = callsOf(rows[at.known].Blocks), true
			at.known, at.last = at.known+1, m.Seq
		}
		if len(messages) < few {
			at.goesOn = true
			return at, nil
		}
	}
}

// continues reports whether a stored message is that row, behind what has the
// digest.
func continues(digest memory.Digest, m memory.Message, r row) bool {
	return !m.Transcript.IsZero() && m.Transcript == after(digest, r.sum)
}

// isShown reports whether a client who has the whole session has seen m: not what
// the host does on its own between a question and its answer.
func isShown(m memory.Message) bool {
	switch {
	case !m.Transcript.IsZero():
		return true
	case m.Role == memory.RoleTool || m.IsRefresh():
		return false
	case m.Role == memory.RoleAssistant:
		return m.IsAnswer()
	}
	return true
}

// isResultBeside reports whether m is the result of a call that the host answered,
// where calls are those for the client.
func isResultBeside(m memory.Message, calls map[string]bool) bool {
	if m.Role != memory.RoleTool {
		return false
	}
	for _, b := range m.Blocks {
		if b.Type == memory.BlockToolResult && calls[b.ID] {
			return false
		}
	}
	return true
}

func callsOf(blocks []memory.Block) map[string]bool {
	var ids map[string]bool
	for i := range blocks {
		if blocks[i].Type == memory.BlockToolCall {
			if ids == nil {
				ids = map[string]bool{}
			}
			ids[blocks[i].ID] = true
		}
	}
	return ids
}

// behind is the spot behind the answer with that key.
func (h *Host) behind(ctx context.Context, user memory.UserID, session memory.SessionID, key string, rows []row) (spot, error) {
	answers, err := h.store.Messages(ctx, user, session, memory.MessageQuery{EventKey: key, Limit: 1})
	switch {
	case err != nil:
		return spot{}, fmt.Errorf("look for the answer: %w", err)
	case len(answers) == 0 || answers[0].Role != memory.RoleAssistant:
		return spot{}, fmt.Errorf("look for the answer in session %s: %w", session, memory.ErrNotFound)
	}
	at := spot{session: session, last: answers[0].Seq, digest: answers[0].Transcript}
	if at.digest.IsZero() {
		at.digest = detached(session)
	}
	return h.follow(ctx, user, at, rows)
}

// shown is a stored message as a client has seen it.
type shown struct {
	seq    int64
	before memory.Digest
	memory.Message
	sum [32]byte
}

// is reports whether the client's row is this message.
func (s *shown) is(r *row, base memory.Digest) bool {
	if s.Transcript.IsZero() {
		return s.sum == r.sum
	}
	if s.before.IsZero() {
		return s.Transcript == after(transcript, r.sum) || s.Transcript == after(base, r.sum)
	}
	return s.Transcript == after(s.before, r.sum)
}

// overlap is the spot of the end of a conversation: behind the rows that are the end
// of the session. If there are none, and there is an answer among the rows, it is
// where the session has the most of them, or else before its beginning, and the
// conversation departs from there.
func (h *Host) overlap(ctx context.Context, user memory.UserID, id memory.SessionID, rows []row) (spot, error) {
	session, err := h.store.Session(ctx, user, id)
	if err != nil {
		return spot{}, err
	}
	messages, err := h.lastMessages(ctx, user, session, min(2*len(rows)+readAtOnce, maxTailRead))
	if err != nil {
		return spot{}, fmt.Errorf("read the end of the session: %w", err)
	}
	base := detached(id)
	at := spot{session: id, digest: base}
	var stored []shown
	var sums summer
	var before memory.Digest
	for _, m := range messages {
		if at.last = m.Seq; !isShown(m) {
			continue
		}
		s := shown{seq: m.Seq, before: before, Message: m}
		if m.Transcript.IsZero() {
			s.sum = sums.row(m.Role, m.Blocks)
		} else {
			before, at.digest = m.Transcript, m.Transcript
		}
		stored = append(stored, s)
	}
	answers := 0 // rows before the first answer
	for answers < len(rows) && rows[answers].Role != memory.RoleAssistant {
		answers++
	}
	// Knuth, Morris, Pratt: k is how many of the first rows end here.
	borders := make([]int, len(rows))
	for i, k := 1, 0; i < len(rows); i++ {
		for k > 0 && rows[i].sum != rows[k].sum {
			k = borders[k-1]
		}
		if rows[i].sum == rows[k].sum {
			k++
		}
		borders[i] = k
	}
	k, most, where := 0, 0, -1
	for i := range stored {
		if k == len(rows) {
			k = borders[k-1]
		}
		for k > 0 && !stored[i].is(&rows[k], base) {
			k = borders[k-1]
		}
		if stored[i].is(&rows[k], base) {
			k++
		}
		if k > answers && k >= most {
			most, where = k, i
		}
	}
	if len(stored) == 0 && len(messages) == session.Messages {
		at.digest = transcript
	}
	at.known = k
	if k > 0 || answers == len(rows) || len(stored) == 0 {
		at.goesOn = true
		return at, nil
	}
	if where < 0 {
		return spot{session: id, digest: transcript}, nil
	}
	depart := spot{session: id, known: most, last: stored[where].seq, digest: base}
	for i := where; i >= 0; i-- {
		if d := stored[i].Transcript; !d.IsZero() {
			depart.digest = d
			break
		}
	}
	calls := callsOf(rows[most-1].Blocks)
	for _, m := range messages {
		if m.Seq <= depart.last {
			continue
		}
		if isShown(m) || !isResultBeside(m, calls) {
			break
		}
		depart.last = m.Seq
	}
	return depart, nil
}

// take goes on in a session if the conversation still does when it is locked, else in
// a fork of it. The name of from goes with it; the zero id means that none does. If
// another session has more of the conversation, the error is errElsewhere and the
// seat says which.
func (h *Host) take(ctx context.Context, user memory.UserID, a agent, session memory.SessionID, look locate, from memory.SessionID, rows []row) (_ seat, release func(), err error) {
	unlock, err := h.sessions.lock(ctx, session)
	if err != nil {
		return seat{}, nil, fmt.Errorf("wait for the turn before: %w", err)
	}
	sits := false
	defer func() {
		if !sits {
			unlock()
		}
	}()
	at, err := look(ctx)
	switch {
	case err != nil:
		return seat{}, nil, err
	case at.session != session:
		return seat{session: memory.Session{ID: at.session}}, nil, errElsewhere
	}
	name := ""
	if !from.IsZero() {
		of, err := h.store.Session(ctx, user, from)
		if err != nil {
			return seat{}, nil, err
		}
		name = of.Name
	}
	if !at.goesOn {
		return h.fork(ctx, user, a, at, name, rows)
	}
	s, err := h.sit(ctx, user, a, at, rows)
	if err == nil && name != "" && s.session.Name != name {
		err = h.store.NameSession(ctx, user, session, name)
	}
	if err != nil {
		return seat{}, nil, err
	}
	sits = true
	return s, unlock, nil
}

// sit is the seat in a session that is locked.
func (h *Host) sit(ctx context.Context, user memory.UserID, a agent, at spot, rows []row) (seat, error) {
	session, err := h.store.Session(ctx, user, at.session)
	if err != nil {
		return seat{}, err
	}
	fresh, digest := rollOn(at.digest, rows[at.known:])
	s := seat{session: session, agent: a, fresh: fresh, transcript: digest, Placed: Placed{Session: session.ID, Added: len(fresh)}}
	if at.known > 0 && at.last == int64(session.Messages) {
		last := &rows[at.known-1]
		s.answered = last.Role == memory.RoleAssistant && len(callsOf(last.Blocks)) == 0
	}
	return s, nil
}

// fork is the seat in a new session that begins with what the spot has.
func (h *Host) fork(ctx context.Context, user memory.UserID, a agent, at spot, name string, rows []row) (seat, func(), error) {
	if at.last == 0 {
		at.digest = transcript
	}
	fresh, digest := rollOn(at.digest, rows[at.known:])
	for {
		session, err := h.store.Fork(ctx, user, at.session, at.last, h.now())
		if err != nil {
			return seat{}, nil, fmt.Errorf("fork session %s: %w", at.session, err)
		}
		s, release, err := h.occupy(ctx, user, a, session, name, fresh, digest)
		if err != nil || s.session.Messages == session.Messages {
			s.Parent = at.session
			return s, release, err
		}
		// Somebody who sent the same found it first, and goes on in it.
		release()
	}
}

// begin is the seat in a new session.
func (h *Host) begin(ctx context.Context, user memory.UserID, a agent, name string, rows []row) (seat, func(), error) {
	fresh, digest := rollOn(transcript, rows)
	session, err := h.store.CreateSession(ctx, memory.Session{Agent: a.ID, User: user, CreatedAt: h.now()})
	if err != nil {
		return seat{}, nil, err
	}
	return h.occupy(ctx, user, a, session, name, fresh, digest)
}

// occupy locks a session that was just made, and names it.
func (h *Host) occupy(ctx context.Context, user memory.UserID, a agent, session memory.Session, name string, fresh []row, digest memory.Digest) (_ seat, release func(), err error) {
	unlock, err := h.sessions.lock(ctx, session.ID)
	if err != nil {
		return seat{}, nil, err
	}
	if name != "" {
		err = h.store.NameSession(ctx, user, session.ID, name)
	}
	if err == nil {
		session, err = h.store.Session(ctx, user, session.ID)
	}
	if err != nil {
		unlock()
		return seat{}, nil, fmt.Errorf("begin a session: %w", err)
	}
	return seat{session: session, agent: a, fresh: fresh, transcript: digest, Placed: Placed{Session: session.ID, New: true, Added: len(fresh)}}, unlock, nil
}

// rollOn gives rows the digests that they have behind what has that one, and returns
// the last.
func rollOn(digest memory.Digest, rows []row) ([]row, memory.Digest) {
	for i := range rows {
		digest = after(digest, rows[i].sum)
		rows[i].Transcript = digest
	}
	return rows, digest
}

// calledIn are the calls in rows, by their ids.
func calledIn(rows []row) map[string]bool {
	ids := map[string]bool{}
	for i := range rows {
		maps.Copy(ids, callsOf(rows[i].Blocks))
	}
	return ids
}

// answeredIn are the calls that rows have the results of.
func answeredIn(rows []row) map[string]bool {
	ids := map[string]bool{}
	for i := range rows {
		for _, b := range rows[i].Blocks {
			if b.Type == memory.BlockToolResult {
				ids[b.ID] = true
			}
		}
	}
	return ids
}
