package host

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/abi/conformance"
	"github.com/gloveboxhq/glovebox/host/capability"
	"github.com/gloveboxhq/glovebox/host/handtest"
	"github.com/gloveboxhq/glovebox/host/registry"
	"github.com/gloveboxhq/glovebox/host/sandbox"
)

// HandRunner returns what asks one hand the questions of a conformance test, with
// all that is granted to it. Each question meets values of its own, of which there
// are none at the beginning; a request that was made before is answered as it was
// then. What it is asked is not in the record of runs. It serves until the hands are
// loaded anew or h is closed. Errors are unknown_hand, disabled, and those of loading
// the module once more, to be asked from its start.
func (h *Host) HandRunner(ctx context.Context, name string) (conformance.Runner, error) {
	h.catchUp(ctx)
	set, release := h.handsFor(ctx)
	defer release()
	k, ok := set.hands[name]
	if off, known := set.disabled[name]; known {
		return nil, off.err()
	}
	if !ok {
		return nil, &abi.Error{Hand: name, Kind: abi.KindUnknownHand, Text: "no such hand"}
	}
	fromStart, err := h.loadFromStart(ctx, set, k)
	if err != nil {
		return nil, err
	}
	replay := &replay{answers: map[[sha256.Size]byte]fetched{}}
	return handtest.Runner(k.Module(), fromStart, func() (sandbox.Ports, func() error) {
		caller := capability.Caller{Hand: name, Subject: h.ledger.Subject(name, "test "+rand.Text()), Withdrawn: h.withdrawn(name, k)}
		files := capability.NewFiles(h.ledger, caller, k.grant.Files)
		ports := sandbox.Ports{Files: files}
		done := files.Close
		if k.grant.KV {
			ports.KV = capability.NewKV(h.ledger, caller, k.Module().Limits())
		}
		if k.grant.LLM {
			ports.LLM = capability.NewLLM(h.ledger, caller, h.instruments.asks(h.model, forHand))
		}
		if k.http != nil {
			requests := capability.NewHTTP(h.ledger, caller, k.http, nil)
			ports.HTTP = replayed{replay, requests}
			done = func() error { return errors.Join(requests.Close(), files.Close()) }
		}
		return ports, done
	}), nil
}

// loadFromStart loads the module of a hand of set again, as what begins from no image.
// It is the engine's, which frees it.
func (h *Host) loadFromStart(ctx context.Context, set *handSet, k *hand) (*sandbox.Module, error) {
	name := k.Name()
	t, err := termsOf(name, set.config.Hands[name], h.agreed, set.agreed)
	if err != nil {
		return nil, err
	}
	if t.off != "" {
		return nil, &abi.Error{Hand: name, Kind: abi.KindDisabled, Text: t.off}
	}
	request := requestFor(name, t, set.trusted, h.now())
	request.FromStart = true
	opened, err := registry.Open(ctx, h.engine, request)
	if err != nil {
		return nil, err
	}
	if opened.Module().Digest() != k.Module().Digest() {
		return nil, errors.Join(&abi.Error{Hand: name, Kind: abi.KindDisabled, Text: "its module was replaced while it was loaded: test it again"}, opened.Module().Close())
	}
	return opened.Module(), nil
}

// replay remembers what requests were answered: a server may say another thing each
// time, which is no fault of the hand, and need not be asked fifty times. Beyond
// maxReplayBytes nothing more is remembered. It is safe for concurrent use.
type replay struct {
	mu sync.Mutex
	// answers and bytes, about what they hold, are guarded by mu.
	answers map[[sha256.Size]byte]fetched
	bytes   int
}

type fetched struct {
	head abi.HTTPFetchResult
	body []byte
	sent int
	err  error
}

const maxReplayBytes = 64 << 20

type replayed struct {
	*replay
	http *capability.HTTP
}

// Fetch implements sandbox.HTTP.
func (r replayed) Fetch(ctx context.Context, request abi.HTTPFetchRequest, budget abi.HTTPBudget) (abi.HTTPFetchResult, []byte, int, error) {
	line, err := json.Marshal(request)
	if err != nil {
		return abi.HTTPFetchResult{}, nil, 0, fmt.Errorf("remember request: %w", err)
	}
	key := sha256.Sum256(append(append(line, '\n'), request.Body...))
	r.mu.Lock()
	defer r.mu.Unlock()
	known, ok := r.answers[key]
	if !ok {
		known.head, known.body, known.sent, known.err = r.http.Fetch(ctx, request, budget)
		if ended := ctx.Err(); ended != nil {
			return known.head, known.body, known.sent, errors.Join(known.err, ended)
		}
		if size := 1<<10 + len(known.body); r.bytes+size <= maxReplayBytes {
			r.answers[key] = known
			r.bytes += size
		}
	}
	return known.head, known.body, known.sent, known.err
}
