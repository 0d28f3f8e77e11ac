package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/memory"
)

// Those who wait for the writer together are stored together, and each gets what is
// its own: its place, its error, and nothing of the others.
func TestAppendsThatWaitTogether(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "glovebox.db")
	s, err := Open(ctx, path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.StopIndexer() // it would write too
	now := time.UnixMicro(1_700_000_000_000_000).UTC()
	user, err := s.DefaultUser(ctx)
	if err != nil {
		t.Fatal(err)
	}
	agent, err := s.PutAgent(ctx, "agent", "", now)
	if err != nil {
		t.Fatal(err)
	}
	sessions := make([]memory.SessionID, 3)
	for i := range sessions {
		made, err := s.CreateSession(ctx, memory.Session{Agent: agent.ID, User: user.ID, CreatedAt: now})
		if err != nil {
			t.Fatal(err)
		}
		sessions[i] = made.ID
	}
	said := func(key string, n int) []memory.Draft {
		drafts := make([]memory.Draft, n)
		for i := range drafts {
			drafts[i] = memory.Draft{Role: memory.RoleUser, Source: memory.SourceUser, At: now, Blocks: []memory.Block{memory.Text(fmt.Sprint(key, " ", i))}}
			if i == 0 {
				drafts[i].EventKey = key
			}
		}
		return drafts
	}
	for _, faulty := range []bool{false, true} {
		name := fmt.Sprint("faulty ", faulty)
		gone, leave := context.WithCancel(ctx)
		held, release := make(chan struct{}), make(chan struct{})
		go s.asWriter(ctx, "hold", func(*sql.Conn) error { close(held); <-release; return nil })
		<-held
		type outcome struct {
			stored []memory.Message
			err    error
		}
		var group sync.WaitGroup
		outcomes := map[string]*outcome{}
		queue := 0
		waits := func() {
			for front := -1; front != queue; front, _ = s.writer.waiting() {
				runtime.Gosched()
			}
		}
		come := func(key string, ctx context.Context, user memory.UserID, session memory.SessionID, n int) {
			o := new(outcome)
			outcomes[key] = o
			group.Go(func() { o.stored, o.err = s.Append(ctx, user, session, said(name+key, n)...) })
			queue++
			waits()
		}
		come("first", ctx, user.ID, sessions[0], 2)
		come("second", ctx, user.ID, sessions[1], 1)
		come("first, after it", ctx, user.ID, sessions[0], 1)
		if faulty {
			come("another's", ctx, memory.UserID{1}, sessions[0], 1)
			come("who left", gone, user.ID, sessions[1], 1)
			leave()
			queue--
			waits()
		}
		come("second", ctx, user.ID, sessions[1], 1) // the event that is stored just now
		come("many", ctx, user.ID, sessions[2], maxTogether+1)
		come("last", ctx, user.ID, sessions[2], 1)
		close(release)
		group.Wait()
		leave()
		if front, back := s.writer.waiting(); front+back+len(s.appends.next()) > 0 {
			t.Errorf("%s: somebody is left: %d, %d", name, front, back)
		}
		for key, o := range outcomes {
			var want error
			switch key {
			case "another's":
				want = memory.ErrNotFound
			case "who left":
				want = context.Canceled
			}
			if !errors.Is(o.err, want) || (o.err == nil) != (len(o.stored) > 0) {
				t.Errorf("%s: %s: %d messages, %v, want %v", name, key, len(o.stored), o.err, want)
			}
			for i, m := range o.stored {
				if text := memory.Plain(m.Blocks); text != fmt.Sprint(name, key, " ", i) || m.Seq != o.stored[0].Seq+int64(i) {
					t.Errorf("%s: %s: message %d is %q at %d", name, key, i, text, m.Seq)
				}
			}
		}
	}
	// What was acknowledged is there, once and in order, for who opens the file.
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(ctx, path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	for i, want := range []int{6, 2, 2 * (maxTogether + 2)} {
		messages, err := again.Messages(ctx, user.ID, sessions[i], memory.MessageQuery{})
		session, err2 := again.Session(ctx, user.ID, sessions[i])
		if err := errors.Join(err, err2); err != nil || len(messages) != want || session.Messages != want || session.UserMessages != want {
			t.Errorf("session %d: %d messages, %+v, %v, want %d", i, len(messages), session, err, want)
		}
		for n, m := range messages {
			if m.Seq != int64(n+1) {
				t.Errorf("session %d: message %d at %d", i, m.Seq, n+1)
			}
		}
	}
}

// Who is gone while somebody else stores what it brought is told what came of that.
func TestAppendsInTheHandOfAnother(t *testing.T) {
	ctx := t.Context()
	s, err := Open(ctx, filepath.Join(t.TempDir(), "glovebox.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.StopIndexer() // it would write too
	now := time.UnixMicro(1_700_000_000_000_000).UTC()
	user, err := s.DefaultUser(ctx)
	if err != nil {
		t.Fatal(err)
	}
	agent, err := s.PutAgent(ctx, "agent", "", now)
	if err != nil {
		t.Fatal(err)
	}
	for together := 1; together <= 2; together++ {
		session, err := s.CreateSession(ctx, memory.Session{Agent: agent.ID, User: user.ID, CreatedAt: now})
		if err != nil {
			t.Fatal(err)
		}
		held, release, stored := make(chan struct{}), make(chan struct{}), make(chan error)
		gone, leave := context.WithCancel(ctx)
		waits := func(queue int) {
			for front := -1; front != queue; front, _ = s.writer.waiting() {
				runtime.Gosched()
			}
		}
		go func() {
			stored <- s.asWriter(ctx, "hold", func(writer *sql.Conn) error {
				close(held)
				<-release
				taken := s.appends.next()
				leave()
				waits(together - 1)
				_, err := s.appendTogether(writer, taken)
				for _, a := range taken {
					a.settle(err)
				}
				return nil
			})
		}()
		<-held
		var group sync.WaitGroup
		var messages []memory.Message
		errs := make([]error, 2)
		for i, ctx := range []context.Context{gone, ctx}[:together] {
			group.Go(func() {
				var appended []memory.Message
				appended, errs[i] = s.Append(ctx, user.ID, session.ID, memory.Draft{
					Role: memory.RoleUser, Source: memory.SourceUser, At: now, Blocks: []memory.Block{memory.Text("hello")},
				})
				if i == 0 {
					messages = appended
				}
			})
			waits(i + 1)
		}
		close(release)
		group.Wait()
		if err := errors.Join(<-stored, errs[1]); err != nil {
			t.Fatal(err)
		}
		after, err := s.Session(ctx, user.ID, session.ID)
		if err != nil {
			t.Fatal(err)
		}
		if told := errs[0] == nil; told != (len(messages) == 1) || told != (after.Messages == together) {
			t.Errorf("%d together: who left is given %d messages, %v; %d are stored", together, len(messages), errs[0], after.Messages)
		}
	}
}
