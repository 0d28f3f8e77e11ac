// Package mcp offers a host's hands and memory to clients of the Model Context
// Protocol, over HTTP and over standard input and output. docs/mcp.md lists the
// tools.
//
// A client is led by a model, and reads what hands and conversations say. So it is
// told what a model in a turn of the host is told, and no more: the tools are the
// host's own (host/handquery.go, compaction), what is external comes in the frame of
// host/boundary, and a failure is a result in the host's words. No tool writes, and
// none has a field that names a user.
package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/memory"
)

// Config sets up a server. Host is needed.
type Config struct {
	Host *host.Host
	// User returns whose request it is, out of its context; nil means the default
	// user's.
	User func(context.Context) memory.UserID
	// Version is what clients are told of this program.
	Version string
	// Now is the clock, by which topics hold or do not; nil means time.Now.
	Now func() time.Time
	// Log takes what an operator may want to know; nil discards it.
	Log *slog.Logger
}

func (c Config) user(ctx context.Context) memory.UserID {
	if c.User == nil {
		return memory.UserID{}
	}
	return c.User(ctx)
}

func (c Config) log() *slog.Logger {
	if c.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return c.Log
}

const (
	// maxArguments bounds the bytes of a call's arguments, maxMessage those of a
	// message.
	maxArguments, maxMessage = 64 << 10, 512 << 10
	// maxCalls is how many calls of one user run at a time.
	maxCalls = 16
	// resultTokens bounds a result, failureTokens one that says what went wrong.
	resultTokens, failureTokens = 4096, 200
)

// instructions go into the client's system text, if it takes them.
const instructions = "These tools ask the user's own sources, called hands, and search what was said in the user's conversations. " +
	"They change nothing. " + boundary.SystemParagraph

// person is one user's view of the host.
type person struct {
	host   *host.Host
	user   memory.UserID
	now    func() time.Time
	log    *slog.Logger
	server *sdk.Server
	// calls has room for those that run.
	calls chan struct{}

	mu sync.Mutex
	// guarded by mu: those of the server's tools that are the host's.
	offered []llm.Tool
}

// person makes the server of a user: which tools there are, and what they may be
// asked for, differs between users.
func (c Config) person(ctx context.Context, user memory.UserID) (*person, error) {
	if user.IsZero() {
		standard, err := c.Host.User("")
		if err != nil {
			return nil, err
		}
		user = standard.ID
	}
	p := &person{host: c.Host, user: user, now: c.Now, log: c.log(), calls: make(chan struct{}, maxCalls)}
	if p.now == nil {
		p.now = time.Now
	}
	p.server = sdk.NewServer(
		&sdk.Implementation{Name: "glovebox", Title: "Glovebox", Version: c.Version},
		&sdk.ServerOptions{
			// What there is changes with a reload of the configuration alone, and nobody is
			// told: who lists the tools again sees it, and calls are held against what is
			// in force.
			Instructions: instructions, Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}},
			// It is not the same for somebody else.
			SetCacheable: func(_ context.Context, _ sdk.Request, c *sdk.Cacheable) { c.CacheScope = "private" },
		},
	)
	hands := definition(handListName, handListDescription, json.RawMessage(handListParameters))
	hands.OutputSchema = json.RawMessage(handListOutput)
	p.add(hands, p.listHands)
	p.add(definition(topicsName, topicsDescription, json.RawMessage(topicsParameters)), p.listTopics)
	return p, p.refresh(ctx)
}

// refresh offers the host's tools as they are now.
func (p *person) refresh(ctx context.Context) error {
	tools, err := p.host.ProgramTools(ctx, p.user)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if reflect.DeepEqual(tools, p.offered) {
		return nil
	}
	// What stays is replaced, and never gone: calls run meanwhile.
	for _, t := range p.offered {
		if !slices.ContainsFunc(tools, func(stays llm.Tool) bool { return stays.Name == t.Name }) {
			p.server.RemoveTools(t.Name)
		}
	}
	for _, t := range tools {
		p.add(definition(t.Name, t.Description, t.Parameters), func(ctx context.Context, input json.RawMessage) answer {
			result := p.host.CallTool(ctx, p.user, llm.ToolCall{Name: t.Name, Input: input})
			return answer{text: result.Content.Render(), isError: result.IsError}
		})
	}
	p.offered = tools
	return nil
}

// titles are the names of the tools for people.
var titles = map[string]string{
	"hand_query": "Ask a hand", handListName: "List the hands", topicsName: "What is remembered",
	"memory_search": "Search the conversations", "memory_describe": "Describe a place in them", "memory_expand": "Read a place in them",
}

func definition(name, description string, parameters json.RawMessage) *sdk.Tool {
	// A hand may ask the world; all else is in the host's database.
	open := name == "hand_query"
	return &sdk.Tool{
		Name: name, Title: titles[name], Description: description, InputSchema: parameters,
		Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: !open, OpenWorldHint: &open},
	}
}

// answer is what a call came to, as the client reads it.
type answer struct {
	text string
	// structured is what there is beside the text; nil for nothing.
	structured any
	isError    bool
}

// add makes a tool callable. A panic in one is its own failure.
func (p *person) add(t *sdk.Tool, run func(context.Context, json.RawMessage) answer) {
	p.server.AddTool(t, func(ctx context.Context, request *sdk.CallToolRequest) (_ *sdk.CallToolResult, _ error) {
		return p.call(ctx, t.Name, request.Params.Arguments, run).result(), nil
	})
}

func (p *person) call(ctx context.Context, name string, input json.RawMessage, run func(context.Context, json.RawMessage) answer) (a answer) {
	select {
	case p.calls <- struct{}{}:
		defer func() { <-p.calls }()
	default:
		return failed(name, fmt.Sprintf("not run: at most %d calls at a time", maxCalls))
	}
	// Some clients write that there are no arguments.
	if len(input) == 0 || string(input) == "null" {
		input = json.RawMessage("{}")
	}
	if len(input) > maxArguments {
		return failed(name, "not run: the arguments are too long")
	}
	defer func() {
		if r := recover(); r != nil {
			p.log.ErrorContext(ctx, "mcp: panic in a tool", "tool", name, "panic", r)
			a = failed(name, "the tool failed")
		}
	}()
	return run(ctx, input)
}

// failed is the answer to a call that came to nothing. Why may hold words of the
// caller's.
func failed(name, why string) answer {
	text := why
	if source, err := boundary.ToolSource(name); err == nil {
		content, _ := boundary.Wrap(source, why, failureTokens)
		text = content.Render()
	}
	return answer{text: text, isError: true}
}

// refused is the answer to a call that failed with an error; of one that is neither
// the caller's fault nor its finding, the client learns nothing.
func (p *person) refused(ctx context.Context, name string, err error) answer {
	if errors.Is(err, memory.ErrInvalid) || errors.Is(err, memory.ErrNotFound) {
		return failed(name, err.Error())
	}
	p.log.WarnContext(ctx, "mcp: a tool failed", "tool", name, "error", err)
	return failed(name, "the tool failed")
}

func (a answer) result() *sdk.CallToolResult {
	r := &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: a.text}}, IsError: a.isError}
	if a.structured != nil {
		r.StructuredContent = a.structured
	}
	return r
}
