package crashtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/memory"
)

// Bounds of what one child does: more than it lives to do, and no store grows
// without end.
const (
	workers        = 4
	maxOperations  = 2000 // by one worker
	wantedUsers    = 4
	wantedSessions = 3 // of one user
	largeText      = 110_000
)

// began is the time at which every history begins.
var began = time.Date(2026, 3, 23, 9, 0, 0, 0, time.UTC)

// transcripts is the title of sessions whose messages come from one worker: to
// ingest a transcript again is only well defined while nobody else speaks.
const transcripts = "transcripts"

// child is what the workers of one process share.
type child struct {
	store   memory.Store
	reports *pipe
	agent   memory.AgentID
	// wiping lets one wipe run at a time, so that it is known which have begun.
	wiping sync.Mutex
}

// errLost says that the parent does not listen any more.
var errLost = errors.New("nobody listens")

// work opens the store and writes to it until it is killed.
func work(ctx context.Context, engine Engine, o orders, reports *pipe) error {
	if err := reports.send(event{Step: stepIntent, Kind: kindOther}); err != nil {
		return err
	}
	store, err := engine.Open(ctx, o.Dir)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer store.Close()
	if err := reports.send(event{Step: stepOpened}); err != nil {
		return err
	}
	agent, err := store.PutAgent(ctx, "assistant", "", began)
	if err != nil {
		return err
	}
	c := &child{store: store, reports: reports, agent: agent.ID}
	random := rand.New(rand.NewPCG(o.Seed, uint64(o.Round)<<8))
	if err := c.resumeWipes(ctx); err != nil {
		return err
	}
	for _, b := range o.Again {
		if err := c.append(ctx, b.User, b.Session, b.Seeds...); err != nil {
			return err
		}
	}
	if err := c.populate(ctx, random); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	for i := range workers {
		w := &worker{child: c, number: i, random: rand.New(rand.NewPCG(o.Seed, uint64(o.Round)<<8+uint64(i)+1))}
		group.Go(func() {
			for range maxOperations {
				if err := w.operate(ctx); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}

// report does one write, and says so before and after. A refusal is no error.
func (c *child) report(e event, do func(*event) error) error {
	e.Op, e.Step = c.reports.op.Add(1), stepIntent
	if err := c.reports.send(e); err != nil {
		return errLost
	}
	err := do(&e)
	e.Digests, e.Seeds = nil, nil
	switch {
	case err == nil:
		e.Step = stepDone
	case errors.Is(err, memory.ErrNotFound), errors.Is(err, memory.ErrConflict), errors.Is(err, memory.ErrWiped), errors.Is(err, errors.ErrUnsupported):
		e.Step, e.Error = stepRefused, err.Error()
	default:
		return fmt.Errorf("%s: %w", e.Kind, err)
	}
	if err := c.reports.send(e); err != nil {
		return errLost
	}
	return nil
}

// populate makes users and sessions where there are few.
func (c *child) populate(ctx context.Context, random *rand.Rand) error {
	users, err := c.store.Users(ctx)
	if err != nil {
		return err
	}
	for len(users) < wantedUsers {
		u := memory.User{ID: memory.NewID[memory.UserID](), CreatedAt: began}
		u.Name = fmt.Sprintf("user-%x", random.Uint64())
		if err := c.report(event{Kind: kindUser, User: u.ID}, func(*event) error { return c.store.PutUser(ctx, u) }); err != nil {
			return err
		}
		users = append(users, u)
	}
	for _, u := range users {
		sessions, err := c.store.Sessions(ctx, u.ID, memory.SessionQuery{})
		if err != nil {
			return err
		}
		for i := len(sessions); i < wantedSessions; i++ {
			title := ""
			if !slices.ContainsFunc(sessions, func(s memory.Session) bool { return s.Title == transcripts }) && i == wantedSessions-1 {
				title = transcripts
			}
			if err := c.newSession(ctx, u.ID, title, memory.SessionID{}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *child) newSession(ctx context.Context, user memory.UserID, title string, parent memory.SessionID) error {
	s := memory.Session{ID: memory.NewID[memory.SessionID](), Agent: c.agent, User: user, Parent: parent, Title: title, CreatedAt: began}
	return c.report(event{Kind: kindSession, User: user, Session: s.ID}, func(*event) error {
		_, err := c.store.CreateSession(ctx, s)
		return err
	})
}

// resumeWipes ends the wipes that an earlier process began.
func (c *child) resumeWipes(ctx context.Context) error {
	wipes, err := c.store.Wipes(ctx)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	} else if err != nil {
		return err
	}
	for _, w := range wipes {
		if err := c.endWipe(ctx, w.User); err != nil {
			return err
		}
	}
	return nil
}

func (c *child) wipe(ctx context.Context, user memory.UserID) error {
	c.wiping.Lock()
	defer c.wiping.Unlock()
	begun := false
	if err := c.report(event{Kind: kindBegin, User: user}, func(*event) error {
		err := c.store.BeginWipe(ctx, user, began)
		begun = err == nil
		return err
	}); err != nil || !begun {
		return err
	}
	return c.endWipe(ctx, user)
}

func (c *child) endWipe(ctx context.Context, user memory.UserID) error {
	if err := c.report(event{Kind: kindWipe, User: user}, func(*event) error {
		_, err := c.store.WipeUser(ctx, user)
		return err
	}); err != nil {
		return err
	}
	if err := c.scrub(ctx); err != nil {
		return err
	}
	return c.report(event{Kind: kindEnd, User: user}, func(*event) error { return c.store.EndWipe(ctx, user) })
}

func (c *child) scrub(ctx context.Context) error {
	return c.report(event{Kind: kindScrub}, func(e *event) (err error) {
		e.Finished, err = c.store.Scrub(ctx)
		return err
	})
}

// append writes drafts that are made from seeds, as one batch.
func (c *child) append(ctx context.Context, user memory.UserID, session memory.SessionID, seeds ...uint64) error {
	var drafts []memory.Draft
	e := event{Kind: kindAppend, User: user, Session: session}
	keyed := true
	for _, seed := range seeds {
		d, err := draft(session, seed)
		if err != nil {
			return err
		}
		digest, err := draftDigest(d)
		if err != nil {
			return err
		}
		drafts, e.Digests = append(drafts, d), append(e.Digests, digest)
		keyed = keyed && d.EventKey != ""
	}
	if keyed {
		e.Seeds = seeds
	}
	return c.report(e, func(e *event) error {
		messages, err := c.store.Append(ctx, user, session, drafts...)
		if err != nil {
			return err
		}
		if len(messages) != len(drafts) {
			return fmt.Errorf("%d drafts became %d messages", len(drafts), len(messages))
		}
		return c.acknowledge(ctx, e, messages...)
	})
}

// acknowledge adds messages to e as they were returned.
func (c *child) acknowledge(ctx context.Context, e *event, messages ...memory.Message) error {
	for _, m := range messages {
		digest, err := messageDigest(ctx, c.store, e.User, m)
		if errors.Is(err, memory.ErrNotFound) {
			// It was stored, and its session was removed since.
			continue
		} else if err != nil {
			return err
		}
		e.Messages = append(e.Messages, stored{m.ID, m.Seq, digest})
	}
	return nil
}

// words are what texts are made of.
var words = strings.Fields("pump hall valve percent dentist invoice harbour train Tuesday noon budget draft garden letter engine river copper window ladder museum")

// draft is what one says in a session. No two are equal. One in four has an event
// key: all of it follows from the seed, so that it can be sent again. Of the
// others some have external text, whose frame has a random id. One in a hundred
// is too large to be shown.
func draft(session memory.SessionID, seed uint64) (memory.Draft, error) {
	random := rand.New(rand.NewPCG(seed, 1))
	text := sentence(session, seed, random)
	d := memory.Draft{Role: memory.RoleUser, Source: memory.SourceUser, At: began.Add(time.Duration(random.Int64N(1e12)) * time.Microsecond)}
	switch random.IntN(6) {
	case 0:
		d.Role, d.Source = memory.RoleAssistant, memory.SourceAssistant
	case 1:
		d.Role, d.Source, d.Trust = memory.RoleAssistant, memory.SourceAssistant, memory.TrustDerived
	case 2:
		d.Source = memory.SourceScheduledTick
	case 3:
		d.Source = memory.SourceUnknown
	}
	if random.IntN(4) == 0 {
		d.EventKey = fmt.Sprintf("event %x", seed)
	}
	d.Blocks = []memory.Block{memory.Text(text)}
	switch what := random.IntN(10); {
	case what == 0:
		input, err := json.Marshal(map[string]string{"query": sentence(session, seed+1, random)})
		if err != nil {
			return d, err
		}
		d.Blocks = append(d.Blocks, memory.ToolCall(fmt.Sprintf("call-%x", seed), "lookup", input))
	case what < 3 && d.EventKey == "":
		content, err := outside(sentence(session, seed+1, random))
		if err != nil {
			return d, err
		}
		d.Blocks = append(d.Blocks, memory.External(content))
	}
	if random.IntN(100) == 0 {
		var b strings.Builder
		for b.Len() < largeText {
			b.WriteString(sentence(session, random.Uint64(), random))
		}
		d.Blocks = append(d.Blocks, memory.Text(b.String()))
	}
	return d, nil
}

func sentence(session memory.SessionID, seed uint64, random *rand.Rand) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", canary(session), unique(seed))
	for range 1 + random.IntN(30) {
		b.WriteString(" " + words[random.IntN(len(words))])
	}
	b.WriteString(".\n")
	return b.String()
}

// unique is a word that the text of one draft has.
func unique(seed uint64) string { return fmt.Sprintf("u%016x", seed) }

func outside(text string) (boundary.Content, error) {
	source, err := boundary.HandSource("calendar")
	if err != nil {
		return boundary.Content{}, err
	}
	content, _ := boundary.Wrap(source, text, 1000)
	return content, nil
}

// worker does one thing after the other.
type worker struct {
	*child
	number int
	random *rand.Rand
	// last is what was appended last, to be sent again.
	last batch
}

// operate does one thing at random to a session at random.
func (w *worker) operate(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	users, err := w.store.Users(ctx)
	if err != nil {
		return err
	}
	user := users[w.random.IntN(len(users))].ID
	sessions, err := w.store.Sessions(ctx, user, memory.SessionQuery{})
	if err != nil {
		return err
	}
	dice := w.random.IntN(1000)
	if len(sessions) == 0 || dice < 5 {
		title := ""
		if w.number == 0 && !slices.ContainsFunc(sessions, func(s memory.Session) bool { return s.Title == transcripts }) {
			title = transcripts
		}
		var parent memory.SessionID
		if len(sessions) > 0 {
			parent = sessions[0].ID
		}
		return w.newSession(ctx, user, title, parent)
	}
	s := sessions[w.random.IntN(len(sessions))]
	if s.Title == transcripts && dice < 620 {
		if w.number != 0 {
			return nil
		}
		return w.ingest(ctx, user, s.ID)
	}
	switch {
	case dice < 400:
		return w.appendNew(ctx, user, s.ID, 1)
	case dice < 500:
		return w.appendNew(ctx, user, s.ID, 2+w.random.IntN(6))
	case dice < 550:
		if len(w.last.Seeds) == 0 {
			return nil
		}
		return w.append(ctx, w.last.User, w.last.Session, w.last.Seeds...)
	case dice < 620:
		return w.inject(ctx, user, s.ID)
	case dice < 760:
		return w.commitLeaf(ctx, user, s.ID)
	case dice < 820:
		return w.condense(ctx, user, s.ID)
	case dice < 870:
		return w.repair(ctx, user, s.ID)
	case dice < 900:
		return w.record(ctx, user, s.ID)
	case dice < 985:
		return w.search(ctx, user)
	case dice < 988 && len(users) > 1:
		if err := w.report(event{Kind: kindOther}, func(*event) error {
			_, err := w.store.WipeMemory(ctx, user)
			return err
		}); err != nil {
			return err
		}
		return w.wipe(ctx, user)
	case dice < 991 || len(sessions) > 3*wantedSessions:
		if err := w.report(event{Kind: kindDelete, User: user, Session: s.ID}, func(*event) error {
			return w.store.DeleteSession(ctx, user, s.ID)
		}); err != nil {
			return err
		}
		if w.random.IntN(2) == 0 {
			return w.scrub(ctx)
		}
		return nil
	default:
		return w.populate(ctx, w.random)
	}
}

func (w *worker) appendNew(ctx context.Context, user memory.UserID, session memory.SessionID, n int) error {
	seeds := make([]uint64, n)
	keyed := true
	for i := range seeds {
		seeds[i] = w.random.Uint64()
		d, err := draft(session, seeds[i])
		if err != nil {
			return err
		}
		keyed = keyed && d.EventKey != ""
	}
	if keyed {
		w.last = batch{user, session, seeds}
	}
	return w.append(ctx, user, session, seeds...)
}

// ingest replays the end of a transcript with something new after it.
func (w *worker) ingest(ctx context.Context, user memory.UserID, session memory.SessionID) error {
	messages, err := w.store.Messages(ctx, user, session, memory.MessageQuery{})
	if errors.Is(err, memory.ErrNotFound) {
		return nil
	} else if err != nil {
		return err
	}
	var drafts []memory.Draft
	for _, m := range messages[max(0, len(messages)-w.random.IntN(12)):] {
		if !m.IsRefresh() {
			drafts = append(drafts, memory.Draft{Role: m.Role, Source: m.Source, Blocks: m.Blocks, Trust: m.Trust, EventKey: m.EventKey, At: m.At})
		}
	}
	e := event{Kind: kindAppend, User: user, Session: session}
	for range w.random.IntN(5) {
		d, err := draft(session, w.random.Uint64())
		if err != nil {
			return err
		}
		digest, err := draftDigest(d)
		if err != nil {
			return err
		}
		drafts, e.Digests = append(drafts, d), append(e.Digests, digest)
	}
	added := len(e.Digests)
	return w.report(e, func(e *event) error {
		messages, err := w.store.Ingest(ctx, user, session, drafts...)
		if err != nil {
			return err
		}
		if len(messages) != added {
			return fmt.Errorf("a replay with %d new messages added %d", added, len(messages))
		}
		return w.acknowledge(ctx, e, messages...)
	})
}

func (w *worker) inject(ctx context.Context, user memory.UserID, session memory.SessionID) error {
	seed := w.random.Uint64()
	content, err := outside(sentence(session, seed, w.random))
	if err != nil {
		return err
	}
	i := memory.Injection{At: began.Add(time.Duration(seed%1e12) * time.Microsecond), Blocks: []boundary.Content{content}}
	digest, err := draftDigest(i.Draft())
	if err != nil {
		return err
	}
	return w.report(event{Kind: kindAppend, User: user, Session: session, Digests: []string{digest}}, func(e *event) error {
		m, err := w.store.Inject(ctx, user, session, i)
		if err != nil {
			return err
		}
		return w.acknowledge(ctx, e, m)
	})
}

// commitLeaf summarises the first run of messages that the frontier shows, or
// another one.
func (w *worker) commitLeaf(ctx context.Context, user memory.UserID, session memory.SessionID) error {
	return w.commit(ctx, user, session, func(items []memory.Item, n *memory.NewSummary) {
		length := 2 + w.random.IntN(8)
		start := w.random.IntN(max(1, len(items)/2))
		for _, item := range items[start:] {
			if item.Message == nil && len(n.Messages) == 0 {
				continue
			}
			if item.Message == nil || len(n.Messages) == length {
				break
			}
			n.Messages = append(n.Messages, item.Message.ID)
		}
	})
}

// condense summarises the longest run of summaries of one depth, if one is
// long.
func (w *worker) condense(ctx context.Context, user memory.UserID, session memory.SessionID) error {
	return w.commit(ctx, user, session, func(items []memory.Item, n *memory.NewSummary) {
		var run []memory.SummaryID
		depth := 0
		for _, item := range items {
			if item.Summary == nil || len(run) > 0 && item.Summary.Depth != depth {
				run = nil
			}
			if item.Summary == nil {
				continue
			}
			depth = item.Summary.Depth
			if run = append(run, item.Summary.ID); len(run) > len(n.Summaries) {
				n.Summaries = slices.Clone(run)
			}
		}
		if len(n.Summaries) < 3 {
			n.Summaries = nil
		}
	})
}

func (w *worker) commit(ctx context.Context, user memory.UserID, session memory.SessionID, choose func([]memory.Item, *memory.NewSummary)) error {
	frontier, err := w.store.Frontier(ctx, user, session)
	if errors.Is(err, memory.ErrNotFound) {
		return nil
	} else if err != nil {
		return err
	}
	n := memory.NewSummary{ID: memory.NewID[memory.SummaryID](), At: began}
	if choose(frontier.Items, &n); len(n.Messages)+len(n.Summaries) == 0 {
		return nil
	}
	seed := w.random.Uint64()
	n.SummaryText = memory.SummaryText{Text: sentence(session, seed, w.random), Level: memory.LevelNormal, Model: "test"}
	switch w.random.IntN(4) {
	case 0:
		n.Level = memory.LevelFallback
	case 1:
		if n.External, err = outside(sentence(session, seed+1, w.random)); err != nil {
			return err
		}
	}
	return w.report(event{Kind: kindCommit, User: user, Session: session, Summary: n.ID, Text: n.Text}, func(e *event) error {
		v, err := w.store.CommitSummary(ctx, user, frontier.Revision, n)
		if err != nil {
			return err
		}
		e.State, err = summaryState(v)
		return err
	})
}

// repair gives the first fallback that is shown another text.
func (w *worker) repair(ctx context.Context, user memory.UserID, session memory.SessionID) error {
	frontier, err := w.store.Frontier(ctx, user, session)
	if errors.Is(err, memory.ErrNotFound) {
		return nil
	} else if err != nil {
		return err
	}
	i := slices.IndexFunc(frontier.Items, func(i memory.Item) bool { return i.Summary != nil && i.Summary.Level == memory.LevelFallback })
	if i < 0 {
		return nil
	}
	text := memory.SummaryText{Text: sentence(session, w.random.Uint64(), w.random), Level: memory.LevelAggressive, Model: "repair"}
	id := frontier.Items[i].Summary.ID
	return w.report(event{Kind: kindRepair, User: user, Session: session, Summary: id, Text: text.Text}, func(e *event) error {
		v, err := w.store.RepairSummary(ctx, user, frontier.Revision, id, text)
		if err != nil {
			return err
		}
		e.State, err = summaryState(v)
		return err
	})
}

func (w *worker) record(ctx context.Context, user memory.UserID, session memory.SessionID) error {
	return w.report(event{Kind: kindOther}, func(*event) error {
		return w.store.RecordCompaction(ctx, user, memory.CompactionRun{
			Session: session, Agent: w.agent, Trigger: memory.TriggerManual, Outcome: memory.OutcomeDone, StartedAt: began,
		})
	})
}

// search reads what an index makes of the texts, beside the writers.
func (w *worker) search(ctx context.Context, user memory.UserID) error {
	q := memory.WordQuery{Words: []memory.WeightedWord{{Text: words[w.random.IntN(len(words))], Weight: 1}}, Limit: 5}
	_, err := w.store.SearchWords(ctx, user, q)
	if err == nil {
		_, err = w.store.SearchSummaries(ctx, user, q)
	}
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}
