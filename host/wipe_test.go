package host_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/capability"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/memory"
)

// traces returns the files of a data directory in which a text is.
func traces(t *testing.T, dir, text string) (files []string) {
	t.Helper()
	for _, pattern := range []string{"glovebox.db*", "hands.db*"} {
		names, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(data, []byte(text)) {
				files = append(files, filepath.Base(name))
			}
		}
	}
	return files
}

// hear has both databases know something of a user, which holds the text.
func hear(t *testing.T, h *host.Host, user memory.User, text string) memory.SessionID {
	t.Helper()
	answer := send(t, h, host.Message{User: user.ID, Text: "It is " + text})
	for _, hand := range []string{"calendar", "one that is configured no longer"} {
		caller := capability.Caller{Hand: hand, Subject: h.Ledger().Subject(hand, user.ID.String())}
		if err := h.Ledger().RecordRun(t.Context(), capability.Run{Hand: hand, Subject: caller.Subject, Text: "about " + text}); err != nil {
			t.Fatal(err)
		}
	}
	return answer.Session
}

// S7: both databases, and twice.
func TestWipeUser(t *testing.T) {
	data := t.TempDir()
	config := host.Config{Data: data, Users: []host.UserConfig{{Name: "alice"}, {Name: "bob"}}}
	h := open(t, config)
	alice, err := h.User("alice")
	if err != nil {
		t.Fatal(err)
	}
	bob, err := h.User("bob")
	if err != nil {
		t.Fatal(err)
	}
	const hers, his = "xq7aurelia", "xq7basilisk"
	session := hear(t, h, alice, hers)
	kept := hear(t, h, bob, his)
	for _, user := range []memory.User{alice, bob} {
		text, zero := hers, host.WipeReport{}
		if user == bob {
			text = his
		}
		report, err := h.WipeUser(t.Context(), user.ID)
		if err != nil || report.Sessions != 1 || report.Messages != 2 || report.Hands.Runs != 2 || report.ResiduePending {
			t.Errorf("%+v, %v", report, err)
		}
		if found := traces(t, data, text); len(found) > 0 {
			t.Errorf("%q is still in %v", text, found)
		}
		if again, err := h.WipeUser(t.Context(), user.ID); err != nil || again != zero && user != alice {
			t.Errorf("again: %+v, %v", again, err)
		}
		if user == alice {
			if _, err := h.Store().Session(t.Context(), bob.ID, kept); err != nil {
				t.Errorf("another user's session: %v", err)
			}
			if len(traces(t, data, his)) == 0 {
				t.Error("another user's words are gone")
			}
		}
	}
	if _, err := h.Store().Session(t.Context(), alice.ID, session); !errors.Is(err, memory.ErrNotFound) {
		t.Errorf("her session: %v", err)
	}
	// Those of the configuration begin anew: the default user as before, another
	// one as somebody else.
	if again, err := h.User("alice"); err != nil || again.ID != alice.ID {
		t.Errorf("the default user: %+v, %v", again, err)
	}
	if again, err := h.User("bob"); err != nil || again.ID == bob.ID {
		t.Errorf("bob: %+v, %v", again, err)
	}
	send(t, h, host.Message{User: alice.ID, Text: "Hello again"})
	if _, err := h.Send(t.Context(), host.Message{User: bob.ID, Text: "Hello"}); !errors.Is(err, memory.ErrNotFound) {
		t.Errorf("who is wiped says: %v", err)
	}
}

// waitingModel answers when it is told to, or not.
type waitingModel struct{ asked chan struct{} }

func (m waitingModel) Complete(ctx context.Context, _ llm.Request) (llm.Response, error) {
	close(m.asked)
	<-ctx.Done()
	return llm.Response{}, ctx.Err()
}

func TestAWipeEndsTurns(t *testing.T) {
	data := t.TempDir()
	model := waitingModel{make(chan struct{})}
	h := open(t, host.Config{Data: data, LLM: model})
	user, err := h.User("")
	if err != nil {
		t.Fatal(err)
	}
	const text = "xq7aurelia"
	ended := make(chan error)
	go func() {
		_, err := h.Send(t.Context(), host.Message{Text: "It is " + text})
		ended <- err
	}()
	<-model.asked
	report := make(chan error)
	go func() {
		_, err := h.WipeUser(t.Context(), user.ID)
		report <- err
	}()
	if err := <-ended; !errors.Is(err, memory.ErrWiped) {
		t.Errorf("the turn ended with %v", err)
	}
	if err := <-report; err != nil {
		t.Error(err)
	}
	if found := traces(t, data, text); len(found) > 0 {
		t.Errorf("it is still in %v", found)
	}
}

// S7: a wipe that was cut off after any of its steps is finished by the next start,
// before anything else.
func TestAWipeIsResumed(t *testing.T) {
	const text = "xq7aurelia"
	for _, test := range []struct {
		name  string
		until func(h *host.Host, user memory.UserID) error
	}{
		{"begun", func(*host.Host, memory.UserID) error { return nil }},
		{"removed from the store", func(h *host.Host, user memory.UserID) error {
			_, err := h.Store().WipeUser(t.Context(), user)
			return err
		}},
		{"removed from both", func(h *host.Host, user memory.UserID) error {
			if _, err := h.Store().WipeUser(t.Context(), user); err != nil {
				return err
			}
			_, _, err := h.Ledger().ForgetUser(t.Context(), user.String())
			return err
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			data := t.TempDir()
			h := open(t, host.Config{Data: data})
			user, err := h.User("")
			if err != nil {
				t.Fatal(err)
			}
			hear(t, h, user, text)
			if err := errors.Join(h.Store().BeginWipe(t.Context(), user.ID, monday), test.until(h, user.ID)); err != nil {
				t.Fatal(err)
			}
			if _, err := h.Send(t.Context(), host.Message{Text: "meanwhile"}); !errors.Is(err, memory.ErrWiped) {
				t.Errorf("before: %v", err)
			}
			if err := h.Close(); err != nil {
				t.Fatal(err)
			}
			h = open(t, host.Config{Data: data})
			if found := traces(t, data, text); len(found) > 0 {
				t.Errorf("it is still in %v", found)
			}
			if wipes, err := h.Store().Wipes(t.Context()); err != nil || len(wipes) > 0 {
				t.Errorf("wipes that stand: %v, %v", wipes, err)
			}
			send(t, h, host.Message{Text: "Hello again"})
		})
	}
}
