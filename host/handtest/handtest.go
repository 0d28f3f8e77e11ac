// Package handtest runs the conformance kit in the real sandbox: it is the Runner
// of abi/conformance. It takes what a hand says out of its frame, for people who
// test their own hand; nothing of it reaches a model.
package handtest

import (
	"context"
	"errors"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/abi/conformance"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/sandbox"
)

// Runner returns what asks module, and fromStart, the same module loaded with
// sandbox.Options.FromStart, where an Ask says so. Where an Ask has no ports of its
// own, reach gives those of the query and what closes them; a nil reach gives none.
func Runner(module, fromStart *sandbox.Module, reach func() (sandbox.Ports, func() error)) conformance.Runner {
	return func(ctx context.Context, ask conformance.Ask) (conformance.Outcome, error) {
		module := module
		if ask.FromStart {
			module = fromStart
		}
		var ports sandbox.Ports
		done := func() error { return nil }
		switch {
		case ask.Ports != nil:
			ports = portsOf(ask.Ports)
		case reach != nil:
			ports, done = reach()
		}
		ports.Fixed = &sandbox.Fixed{Now: ask.Now, Seed: ask.Seed}
		result, err := module.QueryEncoded(ctx, ask.Query, ports)
		if closed := done(); closed != nil {
			return conformance.Outcome{}, closed
		}
		if ctx.Err() != nil {
			return conformance.Outcome{}, ctx.Err()
		}
		return outcomeOf(module.Limits(), result, err)
	}
}

// portsOf leaves a port that the world does not have nil, which a nil pointer in
// an interface is not.
func portsOf(world *conformance.Ports) (ports sandbox.Ports) {
	if world.Files != nil {
		ports.Files = world.Files
	}
	if world.HTTP != nil {
		ports.HTTP = world.HTTP
	}
	if world.KV != nil {
		ports.KV = world.KV
	}
	if world.LLM != nil {
		ports.LLM = world.LLM
	}
	return ports
}

func outcomeOf(limits abi.Limits, r sandbox.Result, err error) (conformance.Outcome, error) {
	var failed *abi.Error
	if err != nil && !errors.As(err, &failed) {
		return conformance.Outcome{}, err
	}
	o := conformance.Outcome{
		Reply: boundary.Neutral(r.Reply), Said: boundary.Neutral(r.Said), Log: boundary.Neutral(r.Log),
		ReplyBytes: r.ReplyBytes, OverBytes: max(r.ReplyBytes-limits.OutputBytes, 0),
		OverTokens: r.Neutralised.CutTokens, InvalidUTF8: r.Neutralised.InvalidUTF8,
		Cost: conformance.Cost{Tokens: r.Reply.Tokens(), Bytes: r.ReplyBytes, Took: r.Took, Fuel: r.Fuel, MemoryBytes: r.MemoryBytes, Calls: r.Calls},
	}
	if r.Exact != nil {
		o.ReplyDigest, o.SaidDigest, o.LogDigest = r.Exact.Reply, r.Exact.Said, r.Exact.Log
	}
	if failed != nil {
		o.Kind, o.Text = failed.Kind, failed.Error()
	}
	return o, nil
}
