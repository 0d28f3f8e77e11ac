package host_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/compaction"
	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/crashtest"
)

// S5: whichever write of a turn fails, and however, what the caller sends until
// a turn ends well is stored. With an event key it is stored once and answered
// once. Without one, a message whose write was stored and reported as failed is
// there twice, and so is an answer: that is as far as at-least-once goes. The
// compactions that go with the turns lose nothing, and the next turn works.
func TestTurnWithEveryWriteFailing(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and does one thing after the other: left to the whole run")
	}
	for _, key := range []string{"", "event"} {
		for _, fault := range []crashtest.Fault{crashtest.Lost, crashtest.Unacknowledged} {
			t.Run(fmt.Sprintf("key %q, %s", key, fault), func(t *testing.T) {
				seen := map[string]bool{}
				for n := 1; ; n++ {
					failed := turnWithFault(t, key, crashtest.Plan{Write: n, Fault: fault})
					if failed == "" {
						break
					}
					seen[failed] = true
				}
				for _, method := range []string{"Append", "CommitSummary", "RecordCompaction"} {
					if !seen[method] {
						t.Errorf("%s never failed: this test looks at the wrong thing", method)
					}
				}
			})
		}
	}
}

// turnWithFault returns the method that was made to fail, or "" if the plan
// counts further than the writes.
func turnWithFault(t *testing.T, key string, plan crashtest.Plan) string {
	t.Helper()
	now := &clock{at: monday}
	h := open(t, host.Config{
		Now: now.now, LLM: &model{}, Summarizer: compaction.NewOffline(),
		Compaction: host.CompactionConfig{ContinuousInterval: 1, GapSecs: 3600, KeepRecent: 2},
	})
	long := strings.Repeat("The pump in hall 3 runs at 40 percent since Tuesday. ", 40)
	first := host.Message{Text: long + "0"}
	var faulty *crashtest.FaultyStore
	for i := range 3 {
		first.Text = fmt.Sprint(long, i)
		first.Session = send(t, h, first).Session
		now.advance(time.Minute)
	}
	if err := h.Interpose(t.Context(), func(s memory.Store) memory.Store {
		faulty = crashtest.Faulty(s, plan)
		return faulty
	}); err != nil {
		t.Fatal(err)
	}
	now.advance(2 * time.Hour)

	question := host.Message{Session: first.Session, Text: "What about the valve?", EventKey: key}
	answer, err := h.Send(t.Context(), question)
	attempts := 1
	for ; err != nil && attempts < 5; attempts++ {
		if !errors.Is(err, crashtest.ErrFault) {
			t.Fatalf("write %d: %v", plan.Write, err)
		}
		answer, err = h.Send(t.Context(), question)
	}
	if err := errors.Join(err, h.Idle(t.Context())); err != nil {
		t.Fatalf("write %d: %v after %d attempts", plan.Write, err, attempts)
	}
	failed := faulty.Failed()
	where := fmt.Sprintf("write %d, %v, %d attempts", plan.Write, failed, attempts)
	faulty.Heal()
	if answer.Message.Role != memory.RoleAssistant || answer.Message.ID.IsZero() {
		t.Errorf("%s: the answer is %+v", where, answer.Message)
	}

	user, err := h.User("")
	if err != nil {
		t.Fatal(err)
	}
	asked, answered := 0, 0
	texts := func() (list []string) {
		messages, err := h.Store().Messages(t.Context(), user.ID, question.Session, memory.MessageQuery{})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range messages {
			list = append(list, memory.Plain(m.Blocks))
		}
		return list
	}
	all := texts()
	for i := range 3 {
		if all[2*i] != fmt.Sprint(long, i) || all[2*i+1] != "ok" {
			t.Errorf("%s: message %d is not what it was", where, 2*i+1)
		}
	}
	for _, text := range all[6:] {
		switch text {
		case question.Text:
			asked++
		case "ok":
			answered++
		default:
			t.Errorf("%s: %q is there, which nobody said", where, text)
		}
	}
	most := 1
	if key == "" {
		most = attempts
	}
	if asked < 1 || asked > most || answered < 1 || answered > most {
		t.Errorf("%s: the question is there %d times, the answer %d times", where, asked, answered)
	}
	if err := crashtest.CheckSession(t.Context(), h.Store(), user.ID, question.Session); err != nil {
		t.Errorf("%s: %v", where, err)
	}

	// The next turn works, with all of it in view.
	now.advance(time.Minute)
	next := send(t, h, host.Message{Session: question.Session, Text: "And the door?"})
	if prompt := promptText(next); !strings.Contains(prompt, question.Text) || !strings.HasSuffix(strings.TrimSpace(prompt), "And the door?") {
		t.Errorf("%s: the next prompt is %q", where, prompt)
	}
	if after := texts(); !slices.Equal(after[:len(all)], all) {
		t.Errorf("%s: the next turn changed what was said", where)
	}
	if err := crashtest.CheckSession(t.Context(), h.Store(), user.ID, question.Session); err != nil {
		t.Errorf("%s: after the next turn: %v", where, err)
	}
	if len(failed) == 0 {
		return ""
	}
	return failed[0]
}

func TestEventKeyOfAMessage(t *testing.T) {
	fake := &model{}
	h := open(t, host.Config{LLM: fake})
	session := send(t, h, host.Message{Text: "hello"}).Session
	keyed := host.Message{Session: session, Text: "What is on today?", EventKey: "k"}
	first := send(t, h, keyed)
	send(t, h, host.Message{Session: session, Text: "Thanks."})
	again := send(t, h, keyed)
	if again.Message.ID != first.Message.ID || len(again.Prompt.Messages) != 0 {
		t.Errorf("sent again, it was answered by %s with a prompt of %d messages; %s was the answer", again.Message.ID, len(again.Prompt.Messages), first.Message.ID)
	}
	for _, invalid := range []host.Message{
		{Text: "a new session has no keys", EventKey: "k"},
		{Session: session, Text: "too long", EventKey: strings.Repeat("k", memory.MaxEventKey)},
		{Session: session, Text: "no text", EventKey: "a\x00b"},
	} {
		if _, err := h.Send(t.Context(), invalid); !errors.Is(err, memory.ErrInvalid) {
			t.Errorf("%q: %v", invalid.Text, err)
		}
	}
}

// A2: a message that is sent again without an answer of its own, after which
// another was answered, is not put to the model behind that answer.
func TestAMessageSentAgainAfterALaterAnswer(t *testing.T) {
	fake := &model{}
	h := open(t, host.Config{LLM: fake})
	session := send(t, h, host.Message{Text: "hello"}).Session
	fake.answer = func(context.Context) (llm.Response, error) { return llm.Response{}, errors.New("down") }
	keyed := host.Message{Session: session, Text: "What is on today?", EventKey: "k"}
	if _, err := h.Send(t.Context(), keyed); err == nil {
		t.Fatal("a model that is down answered")
	}
	fake.answer = nil
	later := send(t, h, host.Message{Session: session, Text: "And tomorrow?"})
	again := send(t, h, keyed)
	if again.Message.ID != later.Message.ID || len(again.Prompt.Messages) != 0 {
		t.Errorf("it was answered by %s with a prompt of %d messages; %s answered both", again.Message.ID, len(again.Prompt.Messages), later.Message.ID)
	}
}
