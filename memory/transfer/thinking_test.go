package transfer_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/sqlite"
	"github.com/gloveboxhq/glovebox/memory/transfer"
)

// A provider refuses its thoughts unless every byte is as it was: so through the
// store, an export, another store and the doctor.
func TestThoughtsKeepTheirBytes(t *testing.T) {
	ctx := t.Context()
	raw := json.RawMessage("{ \"type\":\"thinking\",\n \"signature\":\"a\\u003d/<&>\\u2028\", \"thinking\":\"\u2028 数\",\"n\":1.0,\"n\":2e0 }")
	path := filepath.Join(t.TempDir(), "glovebox.db")
	store := must(sqlite.Open(ctx, path, sqlite.Options{}))(t)
	defer store.Close()
	user := must(store.DefaultUser(ctx))(t).ID
	agent := must(store.PutAgent(ctx, "assistant", "", at))(t)
	session := must(store.CreateSession(ctx, memory.Session{Agent: agent.ID, User: user, CreatedAt: at}))(t)
	blocks := []memory.Block{memory.Thinking("anthropic", "hm", raw), memory.Thinking("anthropic", "", json.RawMessage(`"opaque=="`)), memory.Text("Four.")}
	must(store.Append(ctx, user, session.ID,
		memory.Draft{Role: memory.RoleUser, Source: memory.SourceUser, Blocks: []memory.Block{memory.Text("2 + 2?")}, At: at},
		memory.Draft{Role: memory.RoleAssistant, Source: memory.SourceAssistant, Blocks: blocks, At: at}))(t)

	check := func(where string, got memory.Message) {
		t.Helper()
		if len(got.Blocks) != len(blocks) {
			t.Fatalf("%s: %d blocks", where, len(got.Blocks))
		}
		for i, want := range blocks {
			b := got.Blocks[i]
			if b.Type != want.Type || b.Name != want.Name || b.Text != want.Text || !bytes.Equal(b.Input, want.Input) {
				t.Errorf("%s: block %d is %q of %q: %s", where, i, b.Text, b.Name, b.Input)
			}
		}
		if shown := memory.Shown(got.Blocks); shown != "Four." {
			t.Errorf("%s: shown is %q", where, shown)
		}
	}
	check("stored", messages(t, ctx, store, user)[0][1])
	if found := must(store.Check(ctx))(t); len(found) != 0 {
		t.Errorf("the doctor finds %+v", found)
	}

	var first, second bytes.Buffer
	if err := transfer.Export(ctx, store, user, &first); err != nil {
		t.Fatal(err)
	}
	other, otherUser := open(t)
	must(transfer.Import(ctx, other, otherUser, bytes.NewReader(first.Bytes()), transfer.Options{}))(t)
	check("imported", messages(t, ctx, other, otherUser)[0][1])
	if err := transfer.Export(ctx, other, otherUser, &second); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Errorf("exported %s\nthen     %s", first.Bytes(), second.Bytes())
	}
}
