package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/compaction"
	"github.com/gloveboxhq/glovebox/compaction/assembly"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/sqlite"
)

// policy is a way of making room.
type policy struct {
	name   string
	config compaction.Config
	// bare says that nothing is summarised: assembly leaves out what has no room.
	bare bool
	// oldest says that just as many of the oldest turns are left out as there is
	// no room for, and nothing is summarised.
	oldest bool
	// inSystem puts what changes per turn into the system text.
	inSystem bool
}

const (
	high, low = 0.75, 0.5
)

var marks = compaction.Config{Threshold: high, LowMark: low}

// ours is what the project does, with a cadence beside the thresholds or, with 0,
// without.
func ours(interval int) policy {
	p := policy{name: "two marks", config: marks}
	if p.config.Interval = interval; interval > 0 {
		p.name = fmt.Sprintf("two marks, interval %d", interval)
	}
	return p
}

// others are what else one might do.
var others = []policy{
	{name: "two marks, memory in the system text", config: marks, inSystem: true},
	{name: "no compaction", bare: true},
	{name: "drop oldest", oldest: true},
	{name: "summarise every turn", config: compaction.Config{Interval: 1}},
}

// system and tools are about as long as those of a small agent.
const system = `You are the assistant of a small plant. You help its people to keep the machines running: you look things up, you keep
notes, and you say so when you do not know. Answer in the language of the question. Be brief; give numbers with their units and times with
their day. What you remember of a user stands beside what the user says: use it where it helps, and do not recite it. Before you order, book or
delete anything, say what you are about to do and wait for a yes.

` + boundary.SystemParagraph

var tools = []assembly.Tool{
	{Name: "memory_describe", Description: "Describes a summary: its text, the time it covers, what it was made from and what it is part of.",
		Parameters: json.RawMessage(`{"properties":{"id":{"description":"The id in the heading of the summary.","type":"string"}},"required":["id"],"type":"object"}`)},
	{Name: "memory_expand", Description: "Gives back the messages that a summary stands for, word for word and in order, as far as the limit allows.",
		Parameters: json.RawMessage(`{"properties":{"id":{"description":"The id in the heading of the summary.","type":"string"},"max_tokens":{"maximum":4000,"minimum":100,"type":"integer"}},"required":["id"],"type":"object"}`)},
	{Name: "memory_search", Description: "Searches everything that was said in earlier conversations with this user, and in this one.",
		Parameters: json.RawMessage(`{"properties":{"after":{"format":"date-time","type":"string"},"before":{"format":"date-time","type":"string"},"limit":{"maximum":50,"minimum":1,"type":"integer"},"query":{"description":"Words, the fewer the better.","type":"string"}},"required":["query"],"type":"object"}`)},
}

// beside is what is another in every turn: the date, and what is remembered
// that has to do with the turn.
func beside(turn int, at time.Time) memory.Block {
	text := "[Now: " + at.Format("Monday, 2 January 2006, 15:04 MST") + "]\n[What you remember of the user]"
	for i := range 5 {
		topic := (turn*7 + i*13) % 31
		text += fmt.Sprintf("\n- topic %d: prefers reports of hall %d before the shift begins, last told %d days ago", topic, topic%4+1, (topic+turn)%30)
	}
	return memory.Text(text)
}

// aThird summarises by keeping the first third. It asks no model, so that
// neither guard nor breaker holds a policy up.
type aThird struct{}

func (aThird) Summarize(_ context.Context, r compaction.SummaryRequest) (compaction.SummaryResult, error) {
	limit := min(r.MaxTokens-10, tokens.Estimate(r.Transcript)/3)
	return compaction.SummaryResult{Text: tokens.Cut(r.Transcript, limit) + "\nExpand for: the rest.", Model: "a third"}, nil
}

func (aThird) Local() bool { return true }

// simulation is one chat under one policy.
type simulation struct {
	*measured
	policy policy
	budget int

	store   memory.Store
	engine  *compaction.Engine
	user    memory.UserID
	agent   memory.AgentID
	session memory.SessionID

	// said is every message, for the policies that summarise none.
	said []memory.Item

	at     time.Time
	cache  cache
	trace  assembly.Trace
	before []block // the prompt before, and how much of it was to stay
	stays  int
}

// chat lets one chat take place, in a store of its own.
func (m *measured) chat(ctx context.Context, path string, p policy, exchanges []exchange, budget int) (err error) {
	store, err := sqlite.Open(ctx, path, sqlite.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	s := simulation{measured: m, policy: p, budget: budget, store: store, at: time.Date(2026, 3, 23, 9, 0, 0, 0, time.UTC), cache: cache{}}
	user, err := store.DefaultUser(ctx)
	if err != nil {
		return err
	}
	agent, err := store.PutAgent(ctx, "prefixsim", "", s.at)
	if err != nil {
		return err
	}
	session, err := store.CreateSession(ctx, memory.Session{Agent: agent.ID, User: user.ID, CreatedAt: s.at})
	if err != nil {
		return err
	}
	s.user, s.agent, s.session = user.ID, agent.ID, session.ID
	config := p.config
	config.Now = func() time.Time { return s.at }
	s.engine = compaction.New(store, aThird{}, config, nil, nil)
	defer func() { err = errors.Join(err, s.engine.Close(context.WithoutCancel(ctx))) }()
	for turn, e := range exchanges {
		if err := s.exchange(ctx, turn, e); err != nil {
			return fmt.Errorf("exchange %d: %w", turn+1, err)
		}
	}
	return nil
}

func (s *simulation) exchange(ctx context.Context, turn int, e exchange) error {
	s.Turns++
	s.at = s.at.Add(e.pause)
	near := beside(turn, s.at)
	if err := s.put(ctx, memory.RoleUser, memory.SourceUser, memory.Text(e.said)); err != nil {
		return err
	}
	for i, r := range e.rounds {
		if err := s.prompt(ctx, turn, near); err != nil {
			return err
		}
		s.at = s.at.Add(5 * time.Second)
		var asked, got []memory.Block
		for j, c := range r.calls {
			id := fmt.Sprintf("call-%d-%d-%d", turn, i, j)
			source, err := boundary.ToolSource(c.name)
			if err != nil {
				return err
			}
			result, _ := boundary.Wrap(source, c.result, boundary.Unlimited)
			asked = append(asked, memory.ToolCall(id, c.name, c.input))
			got = append(got, memory.ToolResult(id, c.name, result, false))
		}
		if err := s.put(ctx, memory.RoleAssistant, memory.SourceAssistant, asked...); err != nil {
			return err
		}
		if err := s.put(ctx, memory.RoleTool, memory.SourceTool, got...); err != nil {
			return err
		}
	}
	if err := s.prompt(ctx, turn, near); err != nil {
		return err
	}
	s.at = s.at.Add(10 * time.Second)
	if err := s.put(ctx, memory.RoleAssistant, memory.SourceAssistant, memory.Text(e.answer)); err != nil {
		return err
	}
	t, err := s.turn(ctx)
	if err != nil {
		return err
	}
	if _, err := s.engine.Cadence(ctx, t); err != nil {
		return err
	}
	_, err = s.engine.Threshold(ctx, t, s.window(near))
	return err
}

func (s *simulation) put(ctx context.Context, role memory.Role, source memory.Source, blocks ...memory.Block) error {
	stored, err := s.store.Append(ctx, s.user, s.session, memory.Draft{Role: role, Source: source, Blocks: blocks, At: s.at})
	for i := range stored {
		s.said = append(s.said, memory.Item{Message: &stored[i]})
	}
	return err
}

func (s *simulation) turn(ctx context.Context) (compaction.Turn, error) {
	session, err := s.store.Session(ctx, s.user, s.session)
	return compaction.Turn{User: s.user, Agent: s.agent, Session: s.session, At: s.at, Source: memory.SourceUser, Exchanges: session.Exchanges}, err
}

// window is what the items have to fit into, beside the rest of a prompt.
func (s *simulation) window(beside memory.Block) compaction.Window {
	return compaction.Window{Budget: s.budget, System: fixed + memory.Count([]memory.Block{beside})}
}

// fixed is what stands in every prompt.
var fixed = func() int {
	cost := tokens.Estimate(system)
	for _, t := range tools {
		cost += tokens.Estimate(t.Name + t.Description + string(t.Parameters))
	}
	return cost
}()

// prompt assembles one prompt, sends it and takes notes.
func (s *simulation) prompt(ctx context.Context, turn int, near memory.Block) error {
	prompt, report, err := s.assemble(ctx, turn, near)
	if err != nil {
		return err
	}
	noRoom := func(e assembly.Entry) bool { return e.Reason == assembly.ReasonNoRoom }
	if s.policy.config.Threshold > 0 && (report.OverBudget || slices.ContainsFunc(report.Entries, noRoom)) {
		t, err := s.turn(ctx)
		if err != nil {
			return err
		}
		if _, err := s.engine.Relieve(ctx, t, s.window(near)); err != nil {
			return err
		}
		if prompt, report, err = s.assemble(ctx, turn, near); err != nil {
			return err
		}
	}
	s.trace = report.Trace
	blocks, stays := blocksOf(prompt, report)
	s.Prompts++
	s.Tokens += blocks[len(blocks)-1].tokens
	s.Reused += report.PrefixReuse.Tokens
	if report.OverBudget || prompt.Tokens > s.budget {
		s.Over++
	}
	switch {
	case common(s.before, blocks) < s.stays:
		s.Changes++
	case s.before != nil:
		s.grown++
		s.new += report.PrefixReuse.Of - report.PrefixReuse.Tokens
	}
	s.before, s.stays = blocks, stays
	read, written, plain := s.cache.send(s.at, blocks)
	s.Read, s.Written, s.Plain = s.Read+read, s.Written+written, s.Plain+plain
	return nil
}

// common returns how many tokens two prompts begin with together.
func common(a, b []block) int {
	n := 0
	for i := range min(len(a), len(b)) {
		if a[i].digest != b[i].digest {
			break
		}
		n = a[i].tokens
	}
	return n
}

func (s *simulation) assemble(ctx context.Context, turn int, near memory.Block) (assembly.Prompt, assembly.Report, error) {
	in := assembly.Input{
		System: system, Tools: tools, Turn: fmt.Sprint(turn), Beside: []memory.Block{near}, Budget: s.budget, Previous: s.trace,
	}
	switch {
	case s.policy.bare:
		in.Items = s.said
	case s.policy.oldest:
		in.Items = newest(s.said, s.budget-s.window(near).System)
	default:
		frontier, err := s.store.Frontier(ctx, s.user, s.session)
		if err != nil {
			return assembly.Prompt{}, assembly.Report{}, err
		}
		in.Items = frontier.Items
	}
	if s.policy.inSystem {
		in.System, in.Beside = system+"\n\n"+near.Text, nil
	}
	return assembly.Assemble(in)
}

// perItem is what an item costs beside its text, and a little more.
const perItem = 8

// newest returns the last turns that have room together, the last in any case.
func newest(items []memory.Item, room int) []memory.Item {
	from, cost := len(items), 0
	for i := len(items) - 1; i >= 0; i-- {
		cost += items[i].Tokens() + perItem
		if cost > room && from < len(items) {
			break
		}
		if items[i].Message.Role == memory.RoleUser {
			from = i
		}
	}
	return items[from:]
}
