package main

import (
	"context"
	"errors"
	"io/fs"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/plugins/internal/golden"
	"github.com/gloveboxhq/glovebox/sdk/go/hand"
	"github.com/gloveboxhq/glovebox/sdk/go/hand/files"
)

// march2 is a query for 2 March 2026 in UTC, the day of most mails here.
func march2() hand.Query {
	day := time.Date(2026, time.March, 2, 0, 0, 0, 0, time.UTC)
	return hand.Query{From: day, To: day.AddDate(0, 0, 1), Now: day.AddDate(0, 0, 1), Location: time.UTC, MaxOutputTokens: 2_000}
}

func ask(t testing.TB, fsys fs.FS, q hand.Query) string {
	t.Helper()
	reply, err := answer(files.WithRoot(t.Context(), rootName, fsys), q)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

func mapFS(t testing.TB, contents map[string]string) fs.FS {
	t.Helper()
	fsys := make(fstest.MapFS)
	for name, data := range contents {
		fsys[name] = &fstest.MapFile{Data: []byte(data)}
	}
	return fsys
}

// TestReplies compares whole replies. An archive holds a query, the tree of the
// granted folder and the reply.
func TestReplies(t *testing.T) {
	golden.Replies(t, func(t *testing.T, files []txtar.File) string {
		fsys := make(fstest.MapFS)
		var q hand.Query
		for _, f := range files {
			switch below, isMail := strings.CutPrefix(f.Name, "mail/"); {
			case isMail:
				fsys[below] = &fstest.MapFile{Data: f.Data}
			case f.Name == "query":
				q = parseQuery(t, string(f.Data))
			default:
				t.Fatalf("unknown file %q", f.Name)
			}
		}
		got := ask(t, fsys, q)
		if n := tokens.Estimate(got); n > q.MaxOutputTokens {
			t.Errorf("%d tokens, limit %d", n, q.MaxOutputTokens)
		}
		return got
	})
}

func parseQuery(t *testing.T, text string) hand.Query {
	t.Helper()
	q := hand.Query{MaxOutputTokens: 1_000, Config: map[string]any{}}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		var err error
		switch key {
		case "from":
			q.From, err = time.Parse(time.RFC3339, value)
		case "to":
			q.To, err = time.Parse(time.RFC3339, value)
		case "now":
			q.Now, err = time.Parse(time.RFC3339, value)
		case "timezone":
			q.Timezone = value
			q.Location, err = time.LoadLocation(value)
		case "tokens":
			q.MaxOutputTokens, err = strconv.Atoi(value)
		case "me":
			q.Config["me"] = strings.Fields(value)
		default:
			t.Fatalf("unknown key %q", key)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return q
}

func TestNoFolder(t *testing.T) {
	_, err := answer(t.Context(), march2())
	if !errors.Is(err, errNotGranted) || !errors.Is(err, fs.ErrPermission) {
		t.Errorf("without a granted folder: %v", err)
	}
	_, err = answer(files.WithRoot(t.Context(), rootName, mapFS(t, map[string]string{"notes.txt": "From a friend"})), march2())
	if err != nil {
		t.Errorf("a file that begins with From is an mbox: %v", err)
	}
	_, err = answer(files.WithRoot(t.Context(), rootName, mapFS(t, map[string]string{"notes.txt": "hello"})), march2())
	if !errors.Is(err, errNoMailbox) {
		t.Errorf("without a mailbox: %v", err)
	}
	ctx, cancel := context.WithCancel(files.WithRoot(t.Context(), rootName, mapFS(t, map[string]string{"a.eml": "From: a\n"})))
	cancel()
	if _, err := answer(ctx, march2()); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
