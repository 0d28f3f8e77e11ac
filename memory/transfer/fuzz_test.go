package transfer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/transfer"
)

var at = time.Date(2026, 3, 23, 9, 0, 0, 0, time.UTC)

// clock stands still: times that a transcript lacks grow all the same.
func clock() time.Time { return at }

var options = transfer.Options{Agent: "assistant", Now: clock}

// This file is built alone for fuzzing: it uses nothing of the others.

// blank is as much of a store as a fuzzer, which has no time for a disk, needs to
// see what a document comes to.
type blank struct {
	memory.Store
	said []string
}

func (b *blank) Agents(context.Context) ([]memory.Agent, error) {
	return []memory.Agent{{ID: memory.AgentID{1}, Name: options.Agent}}, nil
}

func (b *blank) Session(context.Context, memory.UserID, memory.SessionID) (memory.Session, error) {
	return memory.Session{}, memory.ErrNotFound
}

func (b *blank) Messages(context.Context, memory.UserID, memory.SessionID, memory.MessageQuery) ([]memory.Message, error) {
	return nil, memory.ErrNotFound
}

func (b *blank) CreateSession(_ context.Context, s memory.Session) (memory.Session, error) {
	b.said = append(b.said, s.ID.String())
	return s, nil
}

func (b *blank) Append(_ context.Context, _ memory.UserID, _ memory.SessionID, drafts ...memory.Draft) ([]memory.Message, error) {
	for _, d := range drafts {
		if err := d.Check(); err != nil {
			return nil, fmt.Errorf("a draft came that cannot be stored: %w", errStore)
		}
		if d.Role == memory.RoleTool && d.Sealed() == memory.TrustDirect && memory.Plain(d.Blocks) == memory.Shown(d.Blocks) && bytes.Contains([]byte(memory.Shown(d.Blocks)), []byte("CANARY")) {
			return nil, fmt.Errorf("a tool's words are no longer external: %w", errStore)
		}
		b.said = append(b.said, d.EventKey+memory.Plain(d.Blocks))
	}
	return nil, nil
}

func (b *blank) Ingest(ctx context.Context, user memory.UserID, session memory.SessionID, drafts ...memory.Draft) ([]memory.Message, error) {
	return b.Append(ctx, user, session, drafts...)
}

func (b *blank) Import(_ context.Context, _ memory.UserID, records iter.Seq2[memory.Record, error]) (memory.ImportReport, error) {
	for r, err := range records {
		if err != nil {
			return memory.ImportReport{}, err
		}
		line, err := r.MarshalJSON()
		if err != nil {
			return memory.ImportReport{}, err
		}
		b.said = append(b.said, string(line))
	}
	return memory.ImportReport{}, nil
}

var errStore = errors.New("the store is given something wrong")

// A document is refused or read, the same each time, and what a tool says stays
// external.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{"messages":[{"role":"user","content":"hi"},{"role":"tool","tool_call_id":"a","content":["CANARY",{"type":"text","text":"CANARY"},{"type":"file","text":"CANARY","file":"01890000-0000-7000-8000-000000000001"}]}]}`,
		"{\"role\":\"user\",\"content\":\"hi\",\"name\":\"bob\",\"created_at\":1}\n{\"role\":\"assistant\",\"content\":null,\"function_call\":{\"name\":\"x\"},\"tool_calls\":[{\"id\":\"a\",\"function\":{\"name\":\"b\",\"arguments\":\"{}\"}}]}",
		`[{"role":"tool","content":[{"type":"tool_result","tool_use_id":"x","content":[{"type":"image"}]},{"type":"thinking","text":"CANARY"},"x"]}]`,
		`[{"role":"tool","content":{"type":"text","text":"CANARY"}},{"messages":[]}]`,
		"{\"format\":\"glovebox-export\",\"version\":1}\n{\"kind\":\"topic\",\"topic\":{\"id\":\"01890000-0000-7000-8000-000000000003\",\"topic\":\"t\",\"content\":\"c\",\"valid_from\":\"2026-03-23T09:00:00Z\",\"updated_at\":\"2026-03-23T09:00:00Z\"}}\n{\"end\":{\"records\":1}}\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		var first, second blank
		_, err := transfer.Import(t.Context(), &first, memory.UserID{1}, bytes.NewReader(document), options)
		if err != nil && (errors.Is(err, errStore) || !errors.Is(err, memory.ErrInvalid)) {
			t.Fatal(err)
		}
		_, again := transfer.Import(t.Context(), &second, memory.UserID{1}, bytes.NewReader(document), options)
		if fmt.Sprint(err) != fmt.Sprint(again) || !reflect.DeepEqual(first.said, second.said) {
			t.Errorf("%q, %v\nthen %q, %v", first.said, err, second.said, again)
		}
	})
}
