package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/compaction"
	"github.com/gloveboxhq/glovebox/compaction/assembly"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/memory"
)

// tool is something that the model may have done during a turn. It is safe for
// concurrent use.
type tool interface {
	// Definition is the same at every call. Its name differs from those of the
	// host's other tools.
	Definition() llm.Tool
	// Call runs the tool on behalf of a user, in the session where the model
	// asked. Input is a JSON object of at most llm.MaxToolInput bytes, written by
	// the model and held against nothing yet. The result is of at most maxTokens
	// by Content.Tokens; a longer one is an error to the model.
	//
	// Call returns soon after ctx is done; it is not waited for, and may find the
	// store closed. The model reads errors that wrap memory.ErrInvalid or
	// memory.ErrNotFound; of all others it learns only that the tool failed.
	Call(ctx context.Context, user memory.UserID, session memory.SessionID, input json.RawMessage, maxTokens int) (boundary.Content, error)
}

// memoryTool is one of compaction's tools.
type memoryTool struct{ compaction.Tool }

// Definition implements tool.
func (t memoryTool) Definition() llm.Tool {
	return llm.Tool{Name: t.Name, Description: t.Description, Parameters: t.Parameters}
}

// Call implements tool.
func (t memoryTool) Call(ctx context.Context, user memory.UserID, session memory.SessionID, input json.RawMessage, maxTokens int) (boundary.Content, error) {
	return t.Tool.Call(ctx, user, session, input, maxTokens)
}

// offered describes tools as prompts offer them.
func offered(tools []tool) ([]assembly.Tool, error) {
	all := make([]assembly.Tool, len(tools))
	for i, t := range tools {
		all[i] = assembly.Tool(t.Definition())
	}
	return assembly.CanonicalTools(all)
}

// The bounds of the tools in one turn. Calls and results have half of the budget
// together; the arguments of a round at most half of what is left of it, and so
// the results.
const (
	maxToolRounds      = 8
	maxRoundCalls      = 8
	defaultToolTimeout = 10 * time.Second // of one call

	maxResultTokens = 4096
	// minResultTokens is what a call gets whatever the others took: enough to
	// say that there is more.
	minResultTokens = 64
	maxFaultTokens  = 200
)

// courseOf is the course of a turn in which the agent says who it is and runs its
// tools itself.
func (h *Host) courseOf(ctx context.Context, user memory.UserID, a agent, said string, events *listener) (course, error) {
	tools, err := h.offeredTo(ctx, user)
	if err != nil {
		return course{}, fmt.Errorf("offer tools: %w", err)
	}
	return course{system: a.system(), tools: tools, said: said, events: events, left: h.config.budget() / 2}, nil
}

// converse asks the model until it answers, and runs the tools that it calls
// meanwhile. It returns the answer, which is not stored yet, and the calls in it,
// which are a client's to answer, and beside those the host's. What precedes it is
// stored: each message with calls before the calls run, their results together when
// all have ended. So a crash leaves calls without results at worst, which settle
// answers in the session's next turn.
//
// The prompt, the report and the counts go into answer, and the listener is told.
func (h *Host) converse(ctx context.Context, turn *compaction.Turn, a *agent, c *course, answer *Answer) (*memory.Draft, []llm.ToolCall, error) {
	h.recall(ctx, turn, a, c)
	for round := 0; ; round++ {
		c.noCalls = c.ask.NoCalls || round == maxToolRounds
		// Words before calls of the host's tools are not for a client, which cannot be
		// told to forget them.
		c.events.held = c.events.final && len(c.own) > 0 && !c.noCalls
		frontier, err := h.ask(ctx, turn, a, c, answer)
		if err != nil {
			return nil, nil, err
		}
		reply, calls, ends, err := h.said(c, answer, frontier)
		if err != nil || ends {
			return reply, calls, err
		}
		if err := h.answerRound(ctx, turn, c, reply, calls); err != nil {
			return nil, nil, err
		}
	}
}

// said is what the model said, and whether it ends the turn.
func (h *Host) said(c *course, answer *Answer, frontier *memory.Frontier) (reply *memory.Draft, calls []llm.ToolCall, ends bool, err error) {
	fail := func(err error) (*memory.Draft, []llm.ToolCall, bool, error) {
		return nil, nil, false, fmt.Errorf("ask the model: %w", err)
	}
	response := &c.response
	reply = &memory.Draft{Role: memory.RoleAssistant, Source: memory.SourceAssistant, Trust: memory.TrustDirect, At: h.now()}
	// What is said with the topics in view may repeat them, and must not be where
	// they are learned from again.
	if answer.Report.HasExternal() || answer.Report.Totals.Beside > 0 || holdsDerived(frontier) {
		reply.Trust = memory.TrustDerived
	}
	if strings.TrimSpace(response.Text) != "" {
		reply.Blocks = append(reply.Blocks, memory.Text(response.Text))
	}
	// A model that is no driver of ours may not have parsed its calls.
	calls = llm.ParseToolCalls(response.ToolCalls)
	if len(c.tools) == 0 || c.noCalls {
		calls = nil
	}
	if calls, err = c.deliverable(calls, response.Truncated); err != nil {
		return fail(err)
	}
	if len(calls) == 0 {
		if len(reply.Blocks) == 0 {
			return fail(llm.ErrEmpty)
		}
		if err := c.events.whole(response.Text); err != nil {
			return fail(err)
		}
		return reply, nil, true, nil
	}
	renameTaken(calls, frontier, c.called)
	ends = slices.ContainsFunc(calls, c.isClients)
	if ends {
		text := response.Text
		if strings.TrimSpace(text) == "" {
			text = ""
		}
		if err := c.events.whole(text); err != nil {
			return fail(err)
		}
	} else {
		c.events.restart()
	}
	c.refuseLarge(calls, c.left/2)
	reply.Blocks = append(thoughts(response, c.left/2), reply.Blocks...)
	for _, call := range calls {
		reply.Blocks = append(reply.Blocks, memory.ToolCall(call.ID, call.Name, call.Input))
	}
	return reply, calls, ends, nil
}

// answerRound stores what the model said with calls, and what they come to.
func (h *Host) answerRound(ctx context.Context, turn *compaction.Turn, c *course, reply *memory.Draft, calls []llm.ToolCall) error {
	// What the model said, and what came of it, is kept even if the caller
	// has gone meanwhile: a call has a result, be it an error.
	stored, err := h.store.Append(context.WithoutCancel(ctx), turn.User, turn.Session, *reply)
	if err != nil {
		return fmt.Errorf("store tool calls: %w", err)
	}
	c.left = max(c.left-stored[0].Tokens, 0)
	if err := h.answerCalls(ctx, *turn, c, calls); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("call tools: %w", err)
	}
	return nil
}

// answerCalls runs the calls of one round and stores their results.
func (h *Host) answerCalls(ctx context.Context, turn compaction.Turn, c *course, calls []llm.ToolCall) error {
	for i, call := range calls {
		if h.runs(ctx, turn.User, i, call) != nil {
			c.events.event(Event{Tool: call.Name})
		}
	}
	waited := turnIn(ctx).waits()
	results := h.runTools(ctx, turn.User, turn.Session, calls, c.left/2)
	waited()
	stored, err := h.store.Append(context.WithoutCancel(ctx), turn.User, turn.Session, resultDrafts(results, h.now())...)
	if err != nil {
		return fmt.Errorf("store tool results: %w", err)
	}
	for _, m := range stored {
		c.left = max(c.left-m.Tokens, 0)
	}
	return nil
}

// holdsDerived reports whether something in the frontier is not direct: an answer
// may repeat what an earlier one took from a hand, when the hand's own words have
// long left the prompt, and so may what another session or a task reports.
func holdsDerived(f *memory.Frontier) bool {
	return slices.ContainsFunc(f.Items, func(i memory.Item) bool {
		return i.Message != nil && i.Message.Trust != memory.TrustDirect || i.Summary != nil && i.Summary.Trust != memory.TrustDirect
	})
}

// course is how a turn goes and what it learns on its way to an answer. Nothing of it
// is stored.
type course struct {
	// system says who the model is.
	system string
	tools  []assembly.Tool
	// relayed says that the turn is a client's, whose calls end it: all of tools
	// that are not named in own, and of those that there are not.
	relayed bool
	own     map[string]bool
	// called are the calls that the client has in its conversation, by their ids: the
	// frontier has none of what was summarised.
	called map[string]bool
	// ask is how the model is asked beside the prompt; of it count what
	// Conversation.Ask counts. A limit of zero is the configuration's.
	ask    llm.Request
	events *listener
	// left is what calls and results of the host's tools may cost yet, in tokens.
	left int
	// response is the model's last answer, with the counts of all of the turn.
	response llm.Response
	// said is what is to be answered.
	said string
	// beside is what is remembered of the user.
	beside []memory.Block
	// drainUntil is when the turn has waited enough for mini-dreams; zero before
	// the first.
	drainUntil time.Time
	// noCalls says that the tools have had their rounds.
	noCalls bool
	// noThoughts leaves the model's thoughts out of the rest of the turn.
	noThoughts bool
	// relieved says that compaction had its chance to make room.
	relieved bool
	// demand is what all of the frontier would cost in the last prompt, at least.
	demand int
	// stage is how far the prompts are cut down: what was too long stays so for
	// the rest of the turn.
	stage assembly.Recovery
}

// isClients reports whether a call is one that the client answers.
func (c *course) isClients(call llm.ToolCall) bool { return c.relayed && !c.own[call.Name] }

// deliverable leaves out the calls for a client that were cut off with the answer,
// and fails for others that would reach it otherwise than the model wrote them.
func (c *course) deliverable(calls []llm.ToolCall, truncated bool) ([]llm.ToolCall, error) {
	var whole []llm.ToolCall
	for _, call := range calls {
		switch {
		case call.Fault == "" || !c.isClients(call):
			whole = append(whole, call)
		case !truncated:
			return nil, fmt.Errorf("a call of %s cannot be passed on, for %s: %w", call.Name, call.Fault, llm.ErrUnavailable)
		}
	}
	return whole, nil
}

// request is what the model is asked with a prompt.
func (c *course) request(p *assembly.Prompt, maxOutput int) *llm.Request {
	if c.ask.MaxOutputTokens > 0 {
		maxOutput = min(c.ask.MaxOutputTokens, maxOutput)
	}
	r := request(*p, maxOutput)
	r.NoCalls, r.Choice, r.Schema = c.noCalls, c.ask.Choice, c.ask.Schema
	r.TopP, r.Stop, r.Effort, r.Temperature = c.ask.TopP, c.ask.Stop, c.ask.Effort, c.ask.Temperature
	return &r
}

// take counts an answer.
func (c *course) take(r *llm.Response) {
	sum := c.response
	c.response = *r
	c.response.InputTokens += sum.InputTokens
	c.response.OutputTokens += sum.OutputTokens
	c.response.CachedTokens += sum.CachedTokens
	c.response.WrittenTokens += sum.WrittenTokens
	c.response.ThoughtTokens += sum.ThoughtTokens
}

// ask puts the session to the model once; c has the answer then. A prompt that is too
// long is cut down, stage by stage, until it is not; when nothing more may go, the
// error wraps *assembly.TooLargeError and llm.ErrContextTooLong.
//
// Too long is what the model's server refuses, and what is over the budget by the
// host's own count. The latter is never sent, even as the last resort: some
// servers do not refuse it but leave out its beginning without a word, and with
// it the system text, which says what external text is.
func (h *Host) ask(ctx context.Context, turn *compaction.Turn, a *agent, c *course, answer *Answer) (*memory.Frontier, error) {
	// refused is the last prompt that the server did not take, tooLong what it said
	// of it.
	var refused *llm.Request
	tooLong := llm.ErrContextTooLong
	for {
		frontier, in, err := h.show(ctx, turn, c, answer)
		if err != nil {
			return nil, err
		}
		if !c.relieved {
			c.relieved = true
			if h.relieve(ctx, *turn, c, &answer.Report) {
				continue
			}
		}
		r := c.request(&answer.Prompt, h.config.Model.maxOutput())
		// What is refused once is refused again: a stage that finds nothing to
		// leave out need not ask.
		if !answer.Report.OverBudget && !reflect.DeepEqual(r, refused) {
			err := h.put(ctx, r, c)
			answer.InputTokens, answer.OutputTokens = c.response.InputTokens, c.response.OutputTokens
			switch {
			case err == nil:
				h.traces.put(turn.Session, answer.Report.Trace)
				return frontier, nil
			case !errors.Is(err, llm.ErrContextTooLong) || c.events.isCommitted():
				return nil, fmt.Errorf("ask the model: %w", err)
			}
			tooLong, refused = err, r
			c.events.restart()
		}
		if err := h.cutDown(ctx, turn, a, c, answer, in, tooLong); err != nil {
			return nil, err
		}
	}
}

// cutDown has the next prompt be shorter than the last one, which was of in. The
// error is that nothing more may go.
func (h *Host) cutDown(ctx context.Context, turn *compaction.Turn, a *agent, c *course, answer *Answer, in *assembly.Input, tooLong error) error {
	if c.stage == assembly.RecoverShorten {
		if c.beside != nil {
			// What is remembered keeps nobody from being answered.
			c.beside = nil
			return nil
		}
		return fmt.Errorf("ask the model: %w: %w", tooLong, answer.Report.TooLarge())
	}
	c.stage++
	in.Recovery = c.stage
	h.log.WarnContext(ctx, "a prompt is too long", "session", turn.Session, "tokens", answer.Report.Tokens, "budget", answer.Report.Budget,
		"keep", c.stage, "messages_left_out", assembly.OverflowDrainCount(*in))
	if h.drain(ctx, *turn, *a, c, *in) {
		h.recall(ctx, turn, a, c)
	}
	return nil
}

// show assembles the prompt of what the session has now.
func (h *Host) show(ctx context.Context, turn *compaction.Turn, c *course, answer *Answer) (*memory.Frontier, *assembly.Input, error) {
	frontier, older, err := readTail(ctx, h.store, turn.User, turn.Session, h.config.budget())
	if err != nil {
		return nil, nil, fmt.Errorf("read frontier: %w", err)
	}
	c.demand = assembly.Demand(frontier.Items) + older.Tokens
	in := promptInput(h.config, c.system, c.tools)
	in.Items, in.Older, in.Beside, in.Previous = frontier.Items, older, c.beside, h.traces.get(turn.Session)
	for {
		in.Recovery, in.NoThoughts = c.stage, c.noThoughts
		if answer.Prompt, answer.Report, err = assembly.Assemble(in); err != nil {
			return nil, nil, fmt.Errorf("assemble prompt: %w", err)
		}
		if c.noThoughts || answer.Report.PrefixReuse.Whole || !answer.Prompt.HasThoughts() {
			return &frontier, &in, nil
		}
		// They are bound to what stood before them, those of a turn that was
		// interrupted too: compaction may have come since.
		c.noThoughts = true
	}
}

// put has a request answered, by a server that may not know how to forbid calls.
func (h *Host) put(ctx context.Context, r *llm.Request, c *course) error {
	response, err := h.complete(ctx, r, c.events)
	c.take(response)
	if r.NoCalls && err == nil && strings.TrimSpace(response.Text) == "" {
		c.events.restart()
		response, err = h.complete(ctx, withoutTools(r), c.events)
		c.take(response)
	}
	return err
}

func withoutTools(r *llm.Request) *llm.Request {
	without := *r
	without.Tools = nil
	return &without
}

// complete asks the model, and passes on what it says as it says it if it streams
// and somebody listens. The response is never nil. A panic of the model's driver is an
// error.
func (h *Host) complete(ctx context.Context, r *llm.Request, events *listener) (response *llm.Response, err error) {
	defer func() {
		if p := recover(); p != nil {
			h.log.ErrorContext(ctx, "panic in the model's driver", "panic", p, "stack", string(debug.Stack()))
			response, err = new(llm.Response), fmt.Errorf("the model's driver panicked: %w", llm.ErrUnavailable)
		}
	}()
	each := events.text
	if !events.listens() || events.held {
		each = nil
	}
	return h.model.ask(ctx, r, each)
}

// renameTaken gives calls a new id whose own is in the frontier already, in the
// prompt or not, or among those that the client has: some servers count from zero in
// every answer.
func renameTaken(calls []llm.ToolCall, f *memory.Frontier, called map[string]bool) {
	taken := map[string]bool{}
	for _, item := range f.Items {
		if item.Message == nil {
			continue
		}
		for _, b := range item.Message.Blocks {
			if b.Type == memory.BlockToolCall {
				taken[b.ID] = true
			}
		}
	}
	for i := range calls {
		if taken[calls[i].ID] || called[calls[i].ID] {
			calls[i].ID = llm.NewToolCallID()
		}
	}
}

// thoughts are what led to the calls of a response. Some models refuse to go on
// without them; once the turn is over they are of no use. What its provider
// cannot take back, or does not fit room tokens, is nothing: some of the thoughts
// would be a change of them.
func thoughts(r *llm.Response, room int) []memory.Block {
	var blocks []memory.Block
	for _, t := range r.Thinking {
		if room -= tokens.Estimate(string(t)); room < 0 || r.Provider == "" || !utf8.Valid(t) || !json.Valid(t) {
			return nil
		}
		blocks = append(blocks, memory.Thinking(r.Provider, "", t))
	}
	return blocks
}

// refuseLarge takes the arguments from calls that do not fit room tokens: the
// last messages go into a prompt whatever they cost, and a model that rambles
// would make the session too long to be answered. What a client is to be told stays
// as it is.
func (c *course) refuseLarge(calls []llm.ToolCall, room int) {
	for i := range calls {
		call := &calls[i]
		n := tokens.Estimate(string(call.Input))
		if n > max(room, minResultTokens) && !c.isClients(*call) {
			call.Input, call.Fault = json.RawMessage("{}"), "the arguments are too long"
			continue
		}
		room -= n
	}
}

// runTools runs the calls of one round side by side and returns a result for
// each, in their order. Together they may cost about room tokens.
func (h *Host) runTools(ctx context.Context, user memory.UserID, session memory.SessionID, calls []llm.ToolCall, room int) []memory.Block {
	limit := min(max(room/min(len(calls), maxRoundCalls), minResultTokens), maxResultTokens)
	results := make([]memory.Block, len(calls))
	var running sync.WaitGroup
	for i, c := range calls {
		if i >= maxRoundCalls {
			results[i] = failed(c.ID, c.Name, fmt.Sprintf("not run: at most %d calls at a time", maxRoundCalls))
			continue
		}
		running.Go(func() { results[i] = h.runTool(ctx, user, session, c, limit) })
	}
	running.Wait()
	return results
}

// runTool runs one call within its deadline.
func (h *Host) runTool(ctx context.Context, user memory.UserID, session memory.SessionID, c llm.ToolCall, limit int) memory.Block {
	return h.runToolOf(ctx, h.toolsOf(ctx, user), user, session, c, limit)
}

// runToolOf is runTool with the tools that there are.
func (h *Host) runToolOf(ctx context.Context, tools []tool, user memory.UserID, session memory.SessionID, c llm.ToolCall, limit int) (result memory.Block) {
	called := toolNamed(tools, c.Name)
	ctx, seen := h.instruments.calls(ctx, c.Name, called != nil)
	defer func() { seen(result.IsError) }()
	switch {
	case c.Fault != "":
		return failed(c.ID, c.Name, "not run: "+c.Fault)
	case called == nil:
		return failed(c.ID, c.Name, "not run: there is no tool of that name")
	}
	timed, cancel := context.WithTimeout(ctx, h.toolTimeout)
	defer cancel()
	type outcome struct {
		content boundary.Content
		err     error
	}
	ended := make(chan outcome, 1)
	go func() {
		var got outcome
		// A tool's panic is its own failure, not the process's.
		defer func() {
			if p := recover(); p != nil {
				got = outcome{err: fmt.Errorf("panic in tool %s: %v", c.Name, p)}
			}
			ended <- got
		}()
		got.content, got.err = called.Call(timed, user, session, c.Input, limit)
	}()
	var got outcome
	select {
	case got = <-ended:
	case <-timed.Done():
		// A tool that does not heed its context must not hold the turn.
		got.err = timed.Err()
	}
	switch n := got.content.Tokens(); {
	case got.err == nil && n > limit:
		return failed(c.ID, c.Name, fmt.Sprintf("the result is of %d tokens, and there is room for %d: ask for less", n, limit))
	case got.err == nil:
		return memory.ToolResult(c.ID, c.Name, got.content, false)
	case ctx.Err() != nil:
		return failed(c.ID, c.Name, "the turn was given up before the tool ended")
	case timed.Err() != nil:
		h.log.WarnContext(ctx, "tool", "tool", c.Name, "session", session, "error", got.err)
		return failed(c.ID, c.Name, fmt.Sprintf("the tool did not end within %s", h.toolTimeout))
	case errors.Is(got.err, memory.ErrInvalid), errors.Is(got.err, memory.ErrNotFound):
		return failed(c.ID, c.Name, got.err.Error())
	}
	h.log.WarnContext(ctx, "tool", "tool", c.Name, "session", session, "error", got.err)
	return failed(c.ID, c.Name, "the tool failed")
}

// runs returns the tool of call i of a user's round; nil if the call is not run.
func (h *Host) runs(ctx context.Context, user memory.UserID, i int, c llm.ToolCall) tool {
	if i >= maxRoundCalls || c.Fault != "" {
		return nil
	}
	return toolNamed(h.toolsOf(ctx, user), c.Name)
}

func toolNamed(tools []tool, name string) tool {
	if i := slices.IndexFunc(tools, func(t tool) bool { return t.Definition().Name == name }); i >= 0 {
		return tools[i]
	}
	return nil
}

// failed is the result of a call that came to nothing. Why may hold words from
// outside.
func failed(id, name, why string) memory.Block {
	source, err := boundary.ToolSource(name)
	if err != nil {
		source = boundary.Source{} // models may call what cannot be the name of a source
	}
	content, _ := boundary.Wrap(source, why, maxFaultTokens)
	return memory.ToolResult(id, name, content, true)
}

func resultDrafts(results []memory.Block, at time.Time) []memory.Draft {
	var drafts []memory.Draft
	for _, r := range results {
		drafts = append(drafts, memory.Draft{Role: memory.RoleTool, Source: memory.SourceTool, Blocks: []memory.Block{r}, At: at})
	}
	return drafts
}

// settle answers the tool calls that an earlier turn left without a result,
// because the process ended or the results could not be stored, or because a client
// never answered them. Only the last thing that the assistant said can have such.
// Those in coming are about to be answered.
func (h *Host) settle(ctx context.Context, user memory.UserID, session memory.Session, coming map[string]bool) error {
	last, err := h.lastMessages(ctx, user, session, 1)
	if err != nil || len(last) == 0 || last[0].Role == memory.RoleAssistant && !holdsCall(last[0]) {
		return err
	}
	// Behind a message with calls stand at most their results, and what came in
	// since.
	recent, err := h.lastMessages(ctx, user, session, 2*llm.MaxToolCalls)
	if err != nil {
		return err
	}
	answered := map[string]bool{}
	for i := len(recent) - 1; i >= 0; i-- {
		m := recent[i]
		if m.Role != memory.RoleAssistant {
			for _, b := range m.Blocks {
				if b.Type == memory.BlockToolResult {
					answered[b.ID] = true
				}
			}
			continue
		}
		var missing []memory.Block
		for _, b := range m.Blocks {
			if b.Type == memory.BlockToolCall && !answered[b.ID] && !coming[b.ID] {
				missing = append(missing, failed(b.ID, b.Name, "the turn ended before the tool did"))
			}
		}
		if len(missing) > 0 {
			// As of the calls: a result of now would hide that the user was away.
			_, err = h.store.Append(ctx, user, session.ID, resultDrafts(missing, m.At)...)
		}
		return err
	}
	return nil
}

// lastMessages returns up to n messages from the end of a session.
func (h *Host) lastMessages(ctx context.Context, user memory.UserID, session memory.Session, n int) ([]memory.Message, error) {
	return h.store.Messages(ctx, user, session.ID, memory.MessageQuery{After: int64(max(session.Messages-n, 0)), Limit: n})
}

func holdsCall(m memory.Message) bool {
	return slices.ContainsFunc(m.Blocks, func(b memory.Block) bool { return b.Type == memory.BlockToolCall })
}
