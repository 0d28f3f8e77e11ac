package host_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/compaction"
	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/memory"
)

// kept are the reports of compactions.
type kept struct {
	mu      sync.Mutex
	reports []compaction.Report
}

func (k *kept) take(r compaction.Report) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.reports = append(k.reports, r)
}

func (k *kept) all() []compaction.Report {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]compaction.Report(nil), k.reports...)
}

// A threshold makes room after answers, so that no prompt leaves anything out;
// C1: without one, nothing is compacted, and the oldest messages are left out.
func TestThresholdMakesRoomAfterAnswers(t *testing.T) {
	for _, threshold := range []float64{0, 0.75} {
		t.Run(fmt.Sprint(threshold), func(t *testing.T) {
			var runs kept
			h := open(t, host.Config{
				LLM: &model{}, Summarizer: compaction.NewOffline(), Model: host.ModelConfig{ContextWindow: 4000, MaxOutputTokens: 500},
				Compaction: host.CompactionConfig{Threshold: threshold}, OnCompaction: runs.take,
			})
			var answer host.Answer
			left := 0
			for i := range 60 {
				answer = send(t, h, host.Message{Session: answer.Session, Text: fmt.Sprintf("question %d: %s", i, strings.Repeat("how does the pump in hall three do? ", 10))})
				for _, e := range answer.Report.Entries {
					if !e.Included {
						left++
					}
				}
			}
			switch changed := runs.all(); {
			case threshold == 0 && (len(changed) != 0 || left == 0 || strings.Contains(promptText(answer), "[Summary ")):
				t.Errorf("%d compactions, %d pieces left out", len(changed), left)
			case threshold > 0 && (len(changed) < 2 || len(changed) > 15 || left != 0 || !strings.Contains(promptText(answer), "[Summary ")):
				t.Errorf("%d compactions, %d pieces left out", len(changed), left)
			}
			for _, r := range runs.all() {
				if r.Trigger != memory.TriggerThreshold || !r.Sweep.Changed() {
					t.Errorf("%+v", r)
				}
			}
		})
	}
}

// A prompt that is over its budget gets room before the answer, in which all is
// covered.
func TestRoomIsMadeBeforeTheAnswer(t *testing.T) {
	data := t.TempDir()
	config := host.Config{Data: data, LLM: &model{}, Summarizer: compaction.NewOffline(), Model: host.ModelConfig{ContextWindow: 40_000}}
	h := open(t, config)
	var answer host.Answer
	for i := range 20 {
		answer = send(t, h, host.Message{Session: answer.Session, Text: fmt.Sprintf("question %d: %s", i, strings.Repeat("how does the pump in hall three do? ", 30))})
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	// The next model has a smaller window.
	var runs kept
	config.Model = host.ModelConfig{ContextWindow: 4000, MaxOutputTokens: 500}
	config.Compaction.Threshold, config.OnCompaction = 0.75, runs.take
	h = open(t, config)
	answer = send(t, h, host.Message{Session: answer.Session, Text: "and now?"})
	if text := promptText(answer); !strings.Contains(text, "[Summary ") || !strings.Contains(text, "and now?") || answer.Report.OverBudget {
		t.Errorf("the prompt of %d tokens is\n%s", answer.Report.Tokens, text)
	}
	for _, e := range answer.Report.Entries {
		if !e.Included {
			t.Errorf("left out: %+v", e)
		}
	}
	if got := runs.all(); len(got) == 0 || !got[0].Sweep.Changed() || got[0].Pending {
		t.Errorf("%+v", got)
	}
}

// stuck is a summarizer that does not answer until it is told to give up.
type stuck struct{ asked chan struct{} }

func (s stuck) Summarize(ctx context.Context, _ compaction.SummaryRequest) (compaction.SummaryResult, error) {
	select {
	case s.asked <- struct{}{}:
	default:
	}
	<-ctx.Done()
	return compaction.SummaryResult{}, ctx.Err()
}

// Invariant 9: a summarizer that hangs costs an answer its deadline at most.
func TestAHangingSummarizerHoldsNoAnswer(t *testing.T) {
	summarizer := stuck{make(chan struct{}, 1)}
	var runs kept
	h := open(t, host.Config{
		LLM: &model{}, Summarizer: summarizer, Model: host.ModelConfig{ContextWindow: 1500, MaxOutputTokens: 500},
		Compaction: host.CompactionConfig{Threshold: 0.75, GapDeadlineSecs: 1}, OnCompaction: runs.take,
	})
	var answer host.Answer
	var err error
	for i := range 12 {
		answer, err = h.Send(t.Context(), host.Message{Session: answer.Session, Text: fmt.Sprintf("question %d: %s", i, strings.Repeat("how does it do? ", 30))})
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-summarizer.asked:
			began := time.Now()
			if _, err := h.Send(t.Context(), host.Message{Session: answer.Session, Text: "still there?"}); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("the answer took %v", took)
			}
			return
		default:
		}
	}
	t.Error("the summarizer was never asked")
}

// A compaction by hand needs no trigger, and is the user's own.
func TestCompactByHand(t *testing.T) {
	h := open(t, host.Config{LLM: &model{}, Summarizer: compaction.NewOffline(), Users: []host.UserConfig{{Name: "anna", IsDefault: true}, {Name: "bert"}}})
	var answer host.Answer
	for i := range 12 {
		answer = send(t, h, host.Message{Session: answer.Session, Text: fmt.Sprintf("question %d: %s", i, strings.Repeat("how does it do? ", 30))})
	}
	anna, err := h.User("anna")
	if err != nil {
		t.Fatal(err)
	}
	bert, err := h.User("bert")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Compact(t.Context(), bert.ID, answer.Session); !errors.Is(err, memory.ErrNotFound) {
		t.Errorf("by another user: %v", err)
	}
	if _, _, err := h.CompactionStatus(t.Context(), bert.ID, answer.Session); !errors.Is(err, memory.ErrNotFound) {
		t.Errorf("shown to another user: %v", err)
	}
	status, _, err := h.CompactionStatus(t.Context(), anna.ID, answer.Session)
	if err != nil || status.Messages != 24 || status.Debt.Messages != 18 || status.Debt.Tokens == 0 {
		t.Errorf("before: %+v, %v", status, err)
	}
	report, err := h.Compact(t.Context(), anna.ID, answer.Session)
	if err != nil || !report.Sweep.Changed() || report.Trigger != memory.TriggerManual {
		t.Errorf("%+v, %v", report, err)
	}
	status, _, err = h.CompactionStatus(t.Context(), anna.ID, answer.Session)
	if err != nil || status.Messages != 6 || status.Debt != (compaction.Debt{}) || len(status.Layers) != 1 || status.Layers[0].Messages != 18 {
		t.Errorf("after: %+v, %v", status, err)
	}
}

func TestThresholdsOutOfRangeAreRefused(t *testing.T) {
	for value, fine := range map[float64]bool{0: true, 0.2: true, 0.75: true, 0.95: true, 0.1: false, 0.96: false, 75: false, -1: false, math.Inf(1): false, math.NaN(): false} {
		config := host.Config{Compaction: host.CompactionConfig{Threshold: value}}
		if err := config.Check(); (err == nil) != fine {
			t.Errorf("%v: %v", value, err)
		}
	}
}

// narrow is a model that refuses what passes its window, as servers do.
type narrow struct{ window int }

func (m narrow) Complete(_ context.Context, r llm.Request) (llm.Response, error) {
	if n := r.Tokens() + r.MaxOutputTokens; n > m.window {
		return llm.Response{}, fmt.Errorf("%d tokens do not fit a window of %d", n, m.window)
	}
	return llm.Response{Text: "It is at large.\nExpand for: the days.", Model: "narrow"}, nil
}

// A long conversation that came at once is summarised in parts that the model can
// read.
func TestSummariesFitTheWindowOfTheModel(t *testing.T) {
	config := host.Config{LLM: narrow{8192}}
	config.Model.ContextWindow = 8192
	h := open(t, config)
	session := newSession(t, h)
	user, err := h.User("")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		text := strings.Repeat(fmt.Sprintf("The aardvark of hall %d is at large again today. ", i), 8)
		if _, err := h.Store().Append(t.Context(), user.ID, session, memory.Draft{Role: memory.RoleUser, Source: memory.SourceUser, At: monday, Blocks: []memory.Block{memory.Text(text)}}); err != nil {
			t.Fatal(err)
		}
	}
	report, err := h.Compact(t.Context(), user.ID, session)
	if err != nil || len(report.Sweep.Summaries) == 0 {
		t.Fatalf("%+v, %v", report, err)
	}
	for _, s := range report.Sweep.Summaries {
		if s.Level != memory.LevelNormal {
			t.Errorf("a summary of %d messages is %s", s.Descendants, s.Level)
		}
	}
}
