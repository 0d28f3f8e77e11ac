package dashboard_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/control"
	"github.com/gloveboxhq/glovebox/memory"
)

// longSession is one of 100,000 messages, compacted as a long conversation is but for
// its last part: a summary for each 500 messages, the last 5,000 as they were said,
// and a row of the record for each 10.
func longSession(b *testing.B, h *house) memory.Session {
	b.Helper()
	const messages, chunk, plain = 100_000, 500, 5_000
	ctx := b.Context()
	agent, err := h.host.Agent("jeeves")
	if err != nil {
		b.Fatal(err)
	}
	session, err := h.store.CreateSession(ctx, memory.Session{Agent: agent.ID, User: h.anna.ID, Title: "long", CreatedAt: monday})
	if err != nil {
		b.Fatal(err)
	}
	for start := 0; start < messages; start += chunk {
		drafts := make([]memory.Draft, chunk)
		for i := range drafts {
			drafts[i] = memory.Draft{
				Role: memory.RoleUser, Source: memory.SourceUser, At: monday.Add(time.Duration(start+i) * time.Second),
				Blocks: []memory.Block{memory.Text(fmt.Sprintf("message %d, and some thirty words of what people say to each other when they have the time to, about the garden, the house, the weather and whatever else there is to do", start+i))},
			}
			if i%2 == 1 {
				drafts[i].Role, drafts[i].Source = memory.RoleAssistant, memory.SourceAssistant
			}
		}
		stored, err := h.store.Append(ctx, h.anna.ID, session.ID, drafts...)
		if err != nil {
			b.Fatal(err)
		}
		if start >= messages-plain {
			continue
		}
		tail, _, err := h.store.FrontierTail(ctx, h.anna.ID, session.ID, 1)
		if err != nil {
			b.Fatal(err)
		}
		summary := memory.NewSummary{ID: memory.NewID[memory.SummaryID](), At: stored[chunk-1].At, SummaryText: memory.SummaryText{Text: "they spoke of the garden", Level: memory.LevelNormal, Model: "m"}}
		for _, m := range stored {
			summary.Messages = append(summary.Messages, m.ID)
		}
		if _, err := h.store.CommitSummary(ctx, h.anna.ID, tail.Revision, summary); err != nil {
			b.Fatal(err)
		}
		for i := range chunk / 10 {
			if err := h.store.RecordCompaction(ctx, h.anna.ID, memory.CompactionRun{
				Session: session.ID, Agent: agent.ID, Trigger: memory.TriggerCadence, Outcome: memory.OutcomeDone, StartedAt: stored[i*10].At,
			}); err != nil {
				b.Fatal(err)
			}
		}
	}
	return session
}

// BenchmarkSessionPage is what the server takes for the pages of a session with
// 100,000 messages, each of which has 150 ms.
func BenchmarkSessionPage(b *testing.B) {
	h := open(b)
	session := longSession(b, h)
	at := sessionPath(session)
	frontier, err := h.store.Frontier(b.Context(), h.anna.ID, session.ID)
	if err != nil {
		b.Fatal(err)
	}
	for name, path := range map[string]string{
		"frontier": at, "messages": at + "/messages?page=1000", "timeline": at + "/timeline", "context": at + "/context",
		"summary": at + "/summaries/" + frontier.Items[0].Summary.ID.String(), "chat": "/users/" + h.anna.ID.String() + "/chat/" + session.ID.String(), "list": "/users/" + h.anna.ID.String() + "/sessions",
		"search": "/users/" + h.anna.ID.String() + "/sessions?q=77123", "overview": "/",
	} {
		b.Run(name, func(b *testing.B) { h.serves(b, path) })
	}
}

// BenchmarkTopicsPage is what the server takes for the pages of a user of whom 10,000
// things are remembered, under as many names or under one; each page has 150 ms.
func BenchmarkTopicsPage(b *testing.B) {
	const remembered = 10_000
	for _, of := range []struct {
		what  string
		names int
	}{{"names", remembered}, {"one", 1}} {
		h := open(b)
		answer, err := h.host.Send(b.Context(), host.Message{User: h.anna.ID, Text: "I have a garden."})
		if err != nil {
			b.Fatal(err)
		}
		said, err := h.store.Messages(b.Context(), h.anna.ID, answer.Session, memory.MessageQuery{Limit: 1})
		if err != nil {
			b.Fatal(err)
		}
		topics := make([]memory.NewTopic, remembered)
		for i := range topics {
			topics[i] = memory.NewTopic{
				Name: fmt.Sprintf("topic %05d", i%of.names), Sources: []memory.MessageID{said[0].ID},
				Content: fmt.Sprintf("%d: some thirty words of what people say of themselves when they have the time to, about the garden, the house, the work, the weather and whatever else there is to do", i),
			}
		}
		h.remember(b, h.anna, topics...)
		at := "/users/" + h.anna.ID.String()
		paths := map[string]string{"first": at}
		if of.names > 1 {
			paths["last"] = at + "?page=200"
		}
		for name, path := range paths {
			b.Run(of.what+"/"+name, func(b *testing.B) { h.serves(b, path) })
		}
	}
}

// serves measures a page as the operator has it.
func (h *house) serves(b *testing.B, path string) {
	secret, _ := h.token(b, h.anna, control.ScopeAdmin)
	size := 0
	for b.Loop() {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, h.url+path, nil)
		r.Header.Set("Authorization", "Bearer "+secret)
		h.handler.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			b.Fatalf("status %d: %s", w.Code, w.Body)
		}
		size = w.Body.Len()
	}
	b.ReportMetric(float64(size), "bytes/page")
}
