package dream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/memory"
)

const (
	// maxPerField bounds what is taken of one list of an answer.
	maxPerField = 64
	// maxRun is the most messages that one extraction looks at: those that cost a
	// prompt nothing are held in memory all the same.
	maxRun = 512
	// maxHalvings is how often a run is halved that is too long for the model or
	// rejected: one that rejects whatever it is asked is not asked for long.
	maxHalvings = 3
	// maxRuns is how many runs are looked at after one turn: where a long conversation
	// is new, as one that was imported, the rest is for the turns that follow.
	maxRuns = 16
	// maxFailures bounds the sessions whose failed extractions are remembered.
	maxFailures = 4096
)

func (c Config) extractionTokens() int {
	if c.ExtractionTokens == 0 {
		return 4000
	}
	return c.ExtractionTokens
}

func (c Config) extractionToolCalls() int {
	if c.ExtractionToolCalls == 0 {
		return 20
	}
	return c.ExtractionToolCalls
}

func (c Config) miniTimeout() time.Duration {
	if c.MiniTimeout <= 0 {
		return 30 * time.Second
	}
	return c.MiniTimeout
}

// enter begins something for a user that Close ends and waits for.
func (d *Dreamer) enter(ctx context.Context, user memory.UserID) (_ context.Context, leave func(), err error) {
	ctx, end, err := d.begin(ctx)
	if err != nil || d.config.Enter == nil {
		return ctx, end, err
	}
	entered, leaves, err := d.config.Enter(ctx, user)
	if err != nil {
		end()
		return ctx, nil, err
	}
	return entered, func() { leaves(); end() }, nil
}

// extracting is what goes on in sessions, and what failed there. The zero value
// is ready. All is guarded by mu.
type extracting struct {
	mu sync.Mutex
	// busy holds the sessions that are looked at.
	busy map[memory.SessionID]*look
	// failed holds what was unseen when an extraction failed.
	failed map[memory.SessionID]memory.Unseen
}

// look is who looks at a session.
type look struct {
	// over is closed when that ends.
	over chan struct{}
	// wanted is set when somebody waits for it; yield is closed when that is somebody
	// who is waited for by a user.
	wanted bool
	yield  chan struct{}
	urgent bool // yield is closed
}

// lookKey is of the look that a context belongs to.
type lookKey struct{}

// errYielded says that an extraction which had to wait itself gave way to one that a
// user waits for: what it was of is still new.
var errYielded = errors.New("gave way to a mini-dream")

// admitted waits until the model may be asked for something that nobody waits for.
// The error is ctx's, or errYielded.
func (d *Dreamer) admitted(ctx context.Context) (release func(), err error) {
	if d.config.Admit == nil || !memory.InBackground(ctx) {
		return func() {}, nil
	}
	mine, looks := ctx.Value(lookKey{}).(*look)
	if !looks {
		return d.config.Admit(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	waited := make(chan struct{})
	defer close(waited)
	go func() {
		select {
		case <-mine.yield:
			cancel(errYielded)
		case <-waited:
		}
	}()
	release, err = d.config.Admit(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errYielded) {
		err = errYielded
	}
	return release, err
}

// lock waits until nobody looks at the session. Without it two would pay the model
// for the same messages, and the store refuse one of them. What is done with it is
// done with the context that it returns.
func (x *extracting) lock(ctx context.Context, session memory.SessionID) (_ context.Context, unlock func(), err error) {
	for {
		x.mu.Lock()
		other := x.busy[session]
		if other == nil {
			ctx, unlock = x.take(ctx, session)
			x.mu.Unlock()
			return ctx, unlock, nil
		}
		other.wanted = true
		if !other.urgent && !memory.InBackground(ctx) {
			other.urgent = true
			close(other.yield)
		}
		x.mu.Unlock()
		select {
		case <-other.over:
		case <-ctx.Done():
			return ctx, nil, fmt.Errorf("wait for another extraction: %w", ctx.Err())
		}
	}
}

// tryLock does not wait. Who has it asks wanted from time to time.
func (x *extracting) tryLock(ctx context.Context, session memory.SessionID) (_ context.Context, unlock func(), ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.busy[session] != nil {
		return ctx, nil, false
	}
	ctx, unlock = x.take(ctx, session)
	return ctx, unlock, true
}

// take is called with mu held.
func (x *extracting) take(ctx context.Context, session memory.SessionID) (_ context.Context, unlock func()) {
	if x.busy == nil {
		x.busy = map[memory.SessionID]*look{}
	}
	mine := &look{over: make(chan struct{}), yield: make(chan struct{})}
	x.busy[session] = mine
	return context.WithValue(ctx, lookKey{}, mine), func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		delete(x.busy, session)
		close(mine.over)
	}
}

// wanted reports whether somebody waits for a session that is looked at.
func (x *extracting) wanted(session memory.SessionID) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.busy[session] != nil && x.busy[session].wanted
}

// settle remembers that an extraction failed when so much was unseen, or, if
// there was no error, forgets that one did.
func (x *extracting) settle(session memory.SessionID, unseen memory.Unseen, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if delete(x.failed, session); err == nil {
		return
	}
	if x.failed == nil {
		x.failed = map[memory.SessionID]memory.Unseen{}
	}
	for other := range x.failed {
		if len(x.failed) < maxFailures {
			break
		}
		// Whichever it is: it is asked for once more than it had to be.
		delete(x.failed, other)
	}
	x.failed[session] = unseen
}

// since returns what has come in since the last failure in the session; all that
// is unseen if there was none, or if somebody has looked at what failed.
func (x *extracting) since(session memory.SessionID, u memory.Unseen) memory.Unseen {
	x.mu.Lock()
	defer x.mu.Unlock()
	before := x.failed[session]
	if u.Messages < before.Messages {
		delete(x.failed, session)
		return u
	}
	u.Tokens -= before.Tokens
	u.ToolResults -= before.ToolResults
	return u
}

// due reports whether enough has come in for an extraction.
func (d *Dreamer) due(session memory.SessionID, u memory.Unseen) bool {
	new := d.extracting.since(session, u)
	mostTokens, mostCalls := d.config.extractionTokens(), d.config.extractionToolCalls()
	return mostTokens > 0 && new.Tokens >= mostTokens || mostCalls > 0 && new.ToolResults >= mostCalls
}

// Extract returns earlier with what the messages add to it. It never fails: when
// the model errs, answers nothing or what cannot be read, it returns earlier as it
// is, and learned is false. An answer that the output limit cut off is asked for
// again with twice the limit. What a source does not bear out is dropped: each
// thing cites messages of the run whose source is the user. What says the same as
// an earlier thing of its kind adds to the messages that this one cites. Nobody is
// asked about messages in which the user says nothing: there learned is true.
func (d *Dreamer) Extract(ctx context.Context, messages []memory.Message, earlier memory.Learnings) (all memory.Learnings, learned bool) {
	all, err := d.extract(ctx, messages, earlier)
	if err != nil {
		if !errors.Is(err, ErrNoModel) {
			d.log.Warn("extract", "messages", len(messages), "error", err)
		}
		return earlier, false
	}
	return all, true
}

// fitting returns how many of the messages, from the first, one extraction looks
// at: as many as fit one prompt, and one at least.
func fitting(messages []memory.Message) int {
	room := runTokens
	for i := range messages[:min(len(messages), maxRun)] {
		for _, s := range learnable(messages[i : i+1]) {
			room -= lineTokens(s)
		}
		if room < 0 && i > 0 {
			return i
		}
	}
	return min(len(messages), maxRun)
}

// extract is Extract with the reason.
func (d *Dreamer) extract(ctx context.Context, messages []memory.Message, earlier memory.Learnings) (all memory.Learnings, err error) {
	defer func() {
		if p := recover(); p != nil {
			all, err = earlier, fmt.Errorf("panic in an extraction: %v", p)
		}
	}()
	if d.config.Model == nil {
		return earlier, ErrNoModel
	}
	n := newNotes(earlier)
	for len(messages) > 0 {
		some := fitting(messages)
		run := learnable(messages[:some])
		messages = messages[some:]
		if _, err := d.note(ctx, n, run, maxHalvings); err != nil {
			return earlier, err
		}
	}
	return n.learnings(), nil
}

// note asks what is to be remembered of one run. If the model's window is too small
// for it, or its server rejects it, it asks for each half: else one message that a
// filter does not let through keeps all that follows from being learned. Accepted
// says that the model answered. A part that is rejected while another one is
// accepted is left out; if all of it is, that need not be for what it says.
func (d *Dreamer) note(ctx context.Context, n *notes, run []said, halvings int) (accepted bool, err error) {
	if !anyUsers(run) {
		return false, nil
	}
	answer, err := d.ask(ctx, extractionRequest(run))
	if err == nil {
		n.take(answer, run)
		return true, nil
	}
	if halvings == 0 || len(run) == 1 || !errors.Is(err, llm.ErrContextTooLong) && !errors.Is(err, llm.ErrRefused) {
		return false, err
	}
	var refused error
	half := len(run) / 2
	for _, part := range [][]said{run[:half], run[half:]} {
		ok, err := d.note(ctx, n, part, halvings-1)
		switch {
		case errors.Is(err, llm.ErrRefused):
			refused = err
		case err != nil:
			return false, err
		}
		accepted = accepted || ok
	}
	if refused != nil && !accepted {
		return false, refused
	}
	if refused != nil {
		d.log.Warn("extract: a part of the run is left out", "error", refused)
	}
	return accepted, nil
}

// notes collects what is learned, each thing once.
type notes struct {
	fields [len(fieldNames)][]memory.Learned
	// known has the place of each in its field, which is the name of its statement.
	known map[statement]int
}

func newNotes(earlier memory.Learnings) *notes {
	n := &notes{known: map[statement]int{}}
	for i, list := range fieldsOf(&earlier) {
		// The lists are the caller's, and so are those of their sources.
		n.fields[i] = slices.Clone(*list)
		for k, item := range *list {
			n.fields[i][k].Sources = slices.Clone(item.Sources)
			n.known[statementOf(false, fieldNames[i], item.Text)] = k
		}
	}
	return n
}

// take adds what an answer says of a run, if the run bears it out.
func (n *notes) take(answer object, run []said) {
	for i, name := range fieldNames {
		for _, item := range answer.objects(name, maxPerField) {
			text := oneLine(strings.Map(shownRune, item.text("text")), memory.MaxTopicContent)
			sources := cited(item.names("from", memory.MaxTopicSources), run)
			if !strings.ContainsFunc(text, saysSomething) || len(sources) == 0 {
				continue
			}
			s := statementOf(false, name, text)
			at, known := n.known[s]
			if !known {
				at = len(n.fields[i])
				n.known[s] = at
				n.fields[i] = append(n.fields[i], memory.Learned{Text: text})
			}
			// Said again it is not learned again, but borne out once more: it may
			// have been something else in between.
			of := &n.fields[i][at].Sources
			for _, s := range sources {
				if len(*of) < memory.MaxTopicSources && !slices.Contains(*of, s) {
					*of = append(*of, s)
				}
			}
		}
	}
}

// saysSomething reports whether a text of such runes is more than dots and dashes.
func saysSomething(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.IsSymbol(r)
}

// cited returns the messages of the user that handles name, in the order of the
// run. What else they name bears out nothing.
func cited(names []string, run []said) []memory.MessageID {
	var places []int
	for _, name := range names {
		if i, ok := resolve('m', name, len(run)); ok && run[i].users {
			places = append(places, i)
		}
	}
	slices.Sort(places)
	var ids []memory.MessageID
	for _, i := range slices.Compact(places) {
		ids = append(ids, run[i].id)
	}
	return ids
}

func (n *notes) learnings() memory.Learnings {
	var l memory.Learnings
	for i, list := range fieldsOf(&l) {
		*list = n.fields[i]
	}
	return l
}

// fieldsOf returns the lists in the order of fieldNames.
func fieldsOf(l *memory.Learnings) [len(fieldNames)]*[]memory.Learned {
	return [...]*[]memory.Learned{&l.Facts, &l.Preferences, &l.Decisions, &l.Tasks, &l.OpenItems}
}

// AfterTurn extracts what is new in a session if enough has come in since the last
// time. It is for the background: it returns when that is over. A turn that goes on
// is left for later: only what was said up to the last answer is looked at. If
// somebody else looks at the session it does nothing, and if a mini-dream waits for
// it, it stops. After a failure it waits until as much again has come in.
//
// Errors wrap those of the store, of package llm, ErrUnreadable and ErrClosed. What
// was extracted before stays. Without a model nothing is due.
func (d *Dreamer) AfterTurn(ctx context.Context, at Place) (err error) {
	ctx = memory.Background(ctx)
	if d.config.Model == nil {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("extract: panic: %v", p)
		}
	}()
	ctx, leave, err := d.enter(ctx, at.User)
	if err != nil {
		return fmt.Errorf("extract: %w", err)
	}
	defer leave()
	ctx, unlock, ok := d.extracting.tryLock(ctx, at.Session)
	if !ok {
		return nil
	}
	defer unlock()
	for n := 0; n < maxRuns && !d.extracting.wanted(at.Session); n++ {
		unseen, err := d.store.Unseen(ctx, at.User, at.Session)
		if err != nil {
			return fmt.Errorf("extract: count what is new in session %s: %w", at.Session, err)
		}
		if !d.due(at.Session, unseen) {
			return nil
		}
		messages, err := d.nextFinished(ctx, at)
		if err != nil {
			return fmt.Errorf("extract: read what is new in session %s: %w", at.Session, err)
		}
		if len(messages) == 0 {
			return nil
		}
		if err := d.learn(ctx, at, messages); err != nil {
			// A dream, or a wipe of the memory, looked at them: they are not due.
			if errors.Is(err, memory.ErrConflict) || errors.Is(err, errYielded) {
				return nil
			}
			if ctx.Err() != nil {
				return fmt.Errorf("extract from session %s: %w", at.Session, context.Cause(ctx))
			}
			d.extracting.settle(at.Session, unseen, err)
			return fmt.Errorf("extract from session %s: %w", at.Session, err)
		}
		d.extracting.settle(at.Session, unseen, nil)
	}
	return nil
}

// nextFinished returns the first unseen messages of exchanges that are over, as
// many as one prompt holds.
func (d *Dreamer) nextFinished(ctx context.Context, at Place) ([]memory.Message, error) {
	var first []memory.Message
	finished := 0
	for q := (memory.MessageQuery{Limit: messagePage}); ; {
		page, err := d.store.UnseenMessages(ctx, at.User, at.Session, q)
		if err != nil {
			return nil, err
		}
		for _, m := range page {
			// Of what is too much it matters only whether there is an answer in it.
			if len(first) < maxRun {
				first = append(first, m)
			}
			if m.IsAnswer() {
				finished = len(first)
			}
			q.After = m.Seq
		}
		if n := fitting(first[:finished]); len(page) < messagePage || n < finished || n == maxRun {
			return first[:n], nil
		}
	}
}

// learn extracts from messages of one session that nobody has looked at, and
// stores what it learned with the record that it looked at exactly these. The
// error wraps memory.ErrConflict if somebody else did meanwhile: nothing is stored
// then. A crash before the commit leaves them unseen, one behind it leaves nothing
// to do.
func (d *Dreamer) learn(ctx context.Context, at Place, messages []memory.Message) error {
	learned, err := d.extract(ctx, messages, memory.Learnings{})
	if err == nil {
		// It was paid for, whoever has gone meanwhile: what was learned of a user who
		// is being wiped, the store refuses.
		_, err = d.store.CommitExtraction(context.WithoutCancel(ctx), at.User, memory.NewExtraction{
			Session: at.Session, Seen: seen(messages), Learnings: learned, At: d.now(),
		})
		if err != nil {
			err = fmt.Errorf("store what was learned: %w", err)
		}
	}
	switch {
	case err == nil:
		d.count(func(c *Counts) { c.Extractions++ })
	case !errors.Is(err, memory.ErrConflict) && !errors.Is(err, errYielded):
		d.count(func(c *Counts) { c.ExtractionsFailed++ })
	}
	return err
}

// Mini extracts from messages that are about to leave the prompt, exactly those of
// them that were not looked at, and merges what it learned into the topics. It is
// bounded by MiniTimeout; what is extracted by then stays and is merged by the next
// dream. Changed says that the topics are not what they were. It never fails.
func (d *Dreamer) Mini(ctx context.Context, at Place, leaving []memory.Message) (changed bool) {
	if d.config.Model == nil || len(leaving) == 0 {
		return false
	}
	report, err := d.mini(ctx, at, leaving)
	if err != nil {
		d.count(func(c *Counts) { c.MiniDreamsFailed++ })
		d.log.Warn("mini-dream", "session", at.Session, "messages", len(leaving), "error", err)
		return false
	}
	d.count(func(c *Counts) { c.MiniDreams++ })
	return len(report.Topics) > 0 || report.Retired > 0
}

func (d *Dreamer) mini(ctx context.Context, at Place, leaving []memory.Message) (report Report, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, d.config.miniTimeout())
	defer cancel()
	ctx, leave, err := d.enter(ctx, at.User)
	if err != nil {
		return Report{}, err
	}
	defer leave()
	if err := d.learnLeaving(ctx, at, leaving); err != nil {
		return Report{}, err
	}
	report, err = d.merge(ctx, at, nil)
	if errors.Is(err, ErrBusy) {
		// What was extracted is there for that dream, or for the next one.
		d.count(func(c *Counts) { c.Busy++ })
		return report, nil
	}
	return report, err
}

// learnLeaving extracts from those of the messages that are unseen, by itself or
// by waiting for who does.
func (d *Dreamer) learnLeaving(ctx context.Context, at Place, leaving []memory.Message) error {
	ctx, unlock, err := d.extracting.lock(ctx, at.Session)
	if err != nil {
		return err
	}
	defer unlock()
	const rereads = 2
	for n := 0; ; n++ {
		unseen, err := d.unseenOf(ctx, at, leaving)
		if err != nil {
			return fmt.Errorf("read what is new of the messages: %w", err)
		}
		for err == nil && len(unseen) > 0 {
			n := fitting(unseen)
			err = d.learn(ctx, at, unseen[:n])
			unseen = unseen[n:]
		}
		if !errors.Is(err, memory.ErrConflict) || n == rereads {
			return err
		}
	}
}

// unseenOf returns those of the messages that nobody has looked at, as they are
// stored: a prompt may show them shortened.
func (d *Dreamer) unseenOf(ctx context.Context, at Place, of []memory.Message) ([]memory.Message, error) {
	wanted := make(map[memory.MessageID]bool, len(of))
	first, last := of[0].Seq, of[0].Seq
	for _, m := range of {
		wanted[m.ID] = true
		first, last = min(first, m.Seq), max(last, m.Seq)
	}
	var unseen []memory.Message
	for after := first - 1; ; {
		page, err := d.store.UnseenMessages(ctx, at.User, at.Session, memory.MessageQuery{After: after, Limit: messagePage})
		if err != nil {
			return nil, err
		}
		for _, m := range page {
			if m.Seq > last {
				return unseen, nil
			}
			if wanted[m.ID] {
				unseen = append(unseen, m)
			}
			after = m.Seq
		}
		if len(page) < messagePage {
			return unseen, nil
		}
	}
}
