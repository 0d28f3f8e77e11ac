package transfer_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/transfer"
)

// remembering is a store whose user has topics with a history, of both kinds, and
// extractions, of a session that has gone too.
func remembering(t testing.TB) (memory.Store, memory.UserID) {
	t.Helper()
	ctx := t.Context()
	store, user := open(t)
	agent := must(store.PutAgent(ctx, "assistant", "", at))(t).ID
	for _, session := range []string{"kept", "gone"} {
		s := must(store.CreateSession(ctx, memory.Session{Agent: agent, User: user, Title: session, CreatedAt: at}))(t).ID
		m := must(store.Append(ctx, user, s, memory.Draft{Role: memory.RoleUser, Source: memory.SourceUser, Blocks: []memory.Block{memory.Text(session)}, At: at}))(t)
		x := must(store.CommitExtraction(ctx, user, memory.NewExtraction{Session: s, Seen: []memory.SeqRange{{First: 1, Last: 1}}, At: at,
			Learnings: memory.Learnings{Facts: []memory.Learned{{Text: "<b>likes</b> " + session, Sources: []memory.MessageID{m[0].ID}}}}}))(t)
		topics, r, err := store.Topics(ctx, user, memory.TopicQuery{})
		if err != nil {
			t.Fatal(err)
		}
		d := memory.Dream{Agent: agent, Extractions: []memory.ExtractionID{x.ID}, At: at, Topics: []memory.NewTopic{
			{Name: "likings", Content: "likes " + session, Sources: []memory.MessageID{m[0].ID}, ExpiresAt: at.Add(time.Hour)}, {Name: "tone", Content: session, OfAgent: true}}}
		for _, old := range topics {
			d.Topics[0].Supersedes = append(d.Topics[0].Supersedes, old.ID)
		}
		must(store.CommitDream(ctx, user, r, d))(t)
		if session == "gone" {
			if err := store.DeleteSession(ctx, user, s); err != nil {
				t.Fatal(err)
			}
		}
	}
	return store, user
}

func exportMemory(t testing.TB, store memory.Store, user memory.UserID, at time.Time) string {
	t.Helper()
	var b bytes.Buffer
	if err := transfer.ExportMemory(t.Context(), store, user, at, &b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// S8, B8
func TestMemoryExportAndImport(t *testing.T) {
	ctx := t.Context()
	store, user := remembering(t)
	document := exportMemory(t, store, user, at)
	if strings.Contains(document, user.String()) || strings.Contains(document, `\u003c`) {
		t.Errorf("the document names the user, or escapes what JSON need not:\n%s", document)
	}
	if again := exportMemory(t, store, user, at.In(time.FixedZone("", 3600))); again != document {
		t.Errorf("the same content gives\n%s\nafter\n%s", again, document)
	}
	other, stranger := open(t)
	report := must(transfer.ImportMemory(ctx, other, stranger, strings.NewReader(document)))(t)
	if want := (memory.ImportReport{Added: map[memory.RecordKind]int{memory.RecordExtraction: 2, memory.RecordTopic: 4}, Skipped: map[memory.RecordKind]int{}}); !reflect.DeepEqual(report, want) {
		t.Errorf("%+v, want %+v", report, want)
	}
	if after := exportMemory(t, other, stranger, at); after != document {
		t.Errorf("was\n%s\nis\n%s", document, after)
	}
	// All but the time is the same at another time, and once more adds nothing.
	later := exportMemory(t, other, stranger, at.Add(time.Hour))
	if strings.Replace(later, "T10:00:00Z", "T09:00:00Z", 1) != document {
		t.Errorf("later it is\n%s", later)
	}
	report = must(transfer.ImportMemory(ctx, other, stranger, strings.NewReader(later)))(t)
	if len(report.Added) != 0 || report.Skipped[memory.RecordTopic] != 4 {
		t.Errorf("again: %+v", report)
	}
	// What a person is shown is the same too; what is superseded is not shown.
	shown := func(store memory.Store, user memory.UserID) []memory.Remembered {
		topics, _, err := store.Topics(ctx, user, memory.TopicQuery{At: at})
		if err != nil {
			t.Fatal(err)
		}
		return memory.ByName(topics)
	}
	if got := shown(other, stranger); len(got) != 1 || got[0].Content != "likes gone" || !reflect.DeepEqual(got, shown(store, user)) {
		t.Errorf("shown is %+v", got)
	}
	// There the sessions have gone, both of them.
	for _, x := range must(other.Extractions(ctx, stranger, memory.ExtractionQuery{}))(t) {
		if !x.SessionDeleted || x.MergedAt.IsZero() {
			t.Errorf("%+v", x)
		}
	}
	// What is one user's is nobody else's.
	second := memory.NewID[memory.UserID]()
	if err := store.PutUser(ctx, memory.User{ID: second, Name: "second", CreatedAt: at}); err != nil {
		t.Fatal(err)
	}
	if _, err := transfer.ImportMemory(ctx, store, second, strings.NewReader(document)); !errors.Is(err, memory.ErrConflict) {
		t.Errorf("another user of the same store: %v", err)
	}
	if empty := exportMemory(t, store, second, at); !strings.Contains(empty, `"records": []`) {
		t.Errorf("nothing is\n%s", empty)
	}
	if err := transfer.ExportMemory(ctx, store, memory.NewID[memory.UserID](), at, io.Discard); !errors.Is(err, memory.ErrNotFound) {
		t.Errorf("nobody's: %v", err)
	}
	full := errors.New("the disk is full")
	if err := transfer.ExportMemory(ctx, store, user, at, writerFunc(func([]byte) (int, error) { return 0, full })); !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
}

// A document that is none, or holds what it must not, changes nothing; one that
// breaks a rule further on says where.
func TestMemoryImportRefuses(t *testing.T) {
	ctx := t.Context()
	store, user := remembering(t)
	document := exportMemory(t, store, user, at)
	edit := func(part, with string) string {
		t.Helper()
		if !strings.Contains(document, part) {
			t.Fatalf("the document has no %s", part)
		}
		return strings.Replace(document, part, with, 1)
	}
	session := `{"kind":"session","session":{"id":"` + memory.NewID[memory.SessionID]().String() + `","agent":"a","created_at":"2026-03-23T09:00:00Z"}}`
	for _, test := range []struct {
		name, document string
		partly         bool
	}{
		{"nothing", "", false},
		{"no object", "[]", false},
		{"null", "null", false},
		{"half of it", document[:len(document)/2], false},
		{"two of them", document + document, false},
		{"another format", edit(transfer.MemoryFormat, "glovebox"), false},
		{"a later version", edit(`"version": 1`, `"version": 2`), false},
		{"an unknown field", edit(`"version": 1`, `"version": 1, "user": "x"`), false},
		{"an unknown field of a record", edit(`"kind": "topic"`, `"x": 1, "kind": "topic"`), false},
		{"a session", edit(`"records": [`, `"records": [`+session+`,`), false},
		{"a record of nothing", edit(`"records": [`, `"records": [{"kind":"topic"},`), false},
		{"null for a record", edit(`"records": [`, `"records": [null,`), false},
		{"deep nesting", strings.Repeat("[", 100_000), false},
		{"a name out of form", edit(`"topic": "likings"`, `"topic": "\u200b"`), true},
		{"a time that is none", edit(`"updated_at": "2026`, `"updated_at": "0000`), true},
		{"an agent's name", edit(`"agent": "assistant"`, `"agent": "../x"`), true},
	} {
		other, stranger := open(t)
		empty := exportMemory(t, other, stranger, at)
		if _, err := transfer.ImportMemory(ctx, other, stranger, strings.NewReader(test.document)); !errors.Is(err, memory.ErrInvalid) {
			t.Errorf("%s: %v", test.name, err)
		} else if test.partly && !strings.Contains(err.Error(), "record ") {
			t.Errorf("%s: %v does not say where", test.name, err)
		}
		if after := exportMemory(t, other, stranger, at); !test.partly && after != empty {
			t.Errorf("%s has changed what is remembered to\n%s", test.name, after)
		}
		if sessions := must(other.Sessions(ctx, stranger, memory.SessionQuery{}))(t); len(sessions) != 0 {
			t.Errorf("%s has made sessions", test.name)
		}
	}
	broken := errors.New("the connection broke")
	if _, err := transfer.ImportMemory(ctx, store, user, io.MultiReader(strings.NewReader(document[:100]), iotest.ErrReader(broken))); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	// What never ends is read up to the bound.
	endless := &spaces{}
	if _, err := transfer.ImportMemory(ctx, store, user, endless); !errors.Is(err, memory.ErrInvalid) || endless.read > transfer.MaxMemoryDocument+1<<20 {
		t.Errorf("got %v after %d bytes", err, endless.read)
	}
	if err := store.BeginWipe(ctx, user, at); err != nil {
		t.Fatal(err)
	}
	if _, err := transfer.ImportMemory(ctx, store, user, strings.NewReader(document)); !errors.Is(err, memory.ErrWiped) {
		t.Errorf("while the user is wiped: %v", err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := transfer.ImportMemory(ended, store, user, strings.NewReader(document)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

type spaces struct{ read int }

func (s *spaces) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	s.read += len(b)
	return len(b), nil
}
