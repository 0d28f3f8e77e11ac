package crashtest

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/gloveboxhq/glovebox/memory"
)

// CheckSession returns what breaks the rules of package memory in a session, as
// far as a caller of the store can see: messages in an unbroken row, counts that
// are what the messages make them, a frontier that stands for every message
// once, and summaries that expand to the very messages they were made from.
func CheckSession(ctx context.Context, store memory.Store, user memory.UserID, id memory.SessionID) error {
	session, err := store.Session(ctx, user, id)
	if err != nil {
		return err
	}
	messages, err := store.Messages(ctx, user, id, memory.MessageQuery{})
	if err != nil {
		return err
	}
	var faults []error
	fault := func(format string, arguments ...any) {
		faults = append(faults, fmt.Errorf("session %s: "+format, append([]any{id}, arguments...)...))
	}
	want := session
	want.LastActive, want.Messages, want.UserMessages, want.Exchanges = session.CreatedAt, len(messages), 0, 0
	awaiting := false
	ids, keys := map[memory.MessageID]bool{}, map[string]bool{}
	for i, m := range messages {
		if m.Seq != int64(i+1) || m.Session != id || ids[m.ID] || m.EventKey != "" && keys[m.EventKey] {
			fault("message %d is %s with number %d of session %s, event key %q", i+1, m.ID, m.Seq, m.Session, m.EventKey)
		}
		ids[m.ID], keys[m.EventKey] = true, true
		if m.Source.IsActivity() && m.At.After(want.LastActive) {
			want.LastActive = m.At
		}
		switch {
		case m.IsUsers():
			want.UserMessages++
			awaiting = true
		case awaiting && m.IsAnswer():
			want.Exchanges++
			awaiting = false
		}
	}
	if !reflect.DeepEqual(session, want) {
		fault("it says of itself %+v, its messages make it %+v", session, want)
	}
	frontier, err := store.Frontier(ctx, user, id)
	if err != nil {
		return errors.Join(append(faults, err)...)
	}
	_, counted, err := store.FrontierTail(ctx, user, id, 0)
	if err != nil {
		return errors.Join(append(faults, err)...)
	}
	if has := (memory.FrontierRest{Items: len(frontier.Items), Tokens: frontier.Tokens()}); counted != has {
		fault("the frontier has %+v, %+v is counted", has, counted)
	}
	var covered []memory.Message
	shown := map[memory.SummaryID]bool{}
	for _, item := range frontier.Items {
		if item.Message != nil {
			covered = append(covered, *item.Message)
			continue
		}
		shown[item.Summary.ID] = true
		expanded, err := store.Expand(ctx, user, item.Summary.ID, memory.MessageQuery{})
		if err != nil {
			fault("a summary that is shown: %w", err)
		}
		covered = append(covered, expanded...)
	}
	if len(covered) != len(messages) || len(messages) > 0 && !reflect.DeepEqual(covered, messages) {
		fault("the frontier stands for %d messages, or in another order, where there are %d", len(covered), len(messages))
	}
	summaries, err := store.Summaries(ctx, user, id)
	if err != nil {
		return errors.Join(append(faults, err)...)
	}
	made := map[memory.SummaryID]memory.Summary{}
	for _, v := range summaries {
		if err := checkSummary(ctx, store, user, v, made, shown[v.ID]); err != nil {
			fault("summary %s: %w", v.ID, err)
		}
		made[v.ID] = v
		delete(shown, v.ID)
	}
	if len(shown) > 0 {
		fault("the frontier shows %d summaries that are not listed", len(shown))
	}
	return errors.Join(faults...)
}

// checkSummary compares a summary with its sources, of which those that are
// summaries are in made.
func checkSummary(ctx context.Context, store memory.Store, user memory.UserID, v memory.Summary, made map[memory.SummaryID]memory.Summary, shown bool) error {
	_, parent, err := store.Summary(ctx, user, v.ID)
	if err != nil {
		return err
	}
	if parent.IsZero() != shown {
		return fmt.Errorf("shown is %t, and it was condensed into %s", shown, parent)
	}
	sources, err := store.Sources(ctx, user, v.ID)
	if err != nil {
		return err
	}
	var expanded []memory.Message
	for i, item := range sources {
		if item.Message != nil {
			if v.Depth != 0 {
				return fmt.Errorf("depth %d with a message as source %d", v.Depth, i+1)
			}
			expanded = append(expanded, *item.Message)
			continue
		}
		if before, ok := made[item.Summary.ID]; !ok || before.Depth != v.Depth-1 {
			return fmt.Errorf("depth %d with source %d of depth %d, listed before: %t", v.Depth, i+1, item.Summary.Depth, ok)
		}
		messages, err := store.Expand(ctx, user, item.Summary.ID, memory.MessageQuery{})
		if err != nil {
			return err
		}
		expanded = append(expanded, messages...)
	}
	whole, err := store.Expand(ctx, user, v.ID, memory.MessageQuery{})
	if err != nil {
		return err
	}
	if len(whole) == 0 || !reflect.DeepEqual(whole, expanded) {
		return fmt.Errorf("it expands to %d messages, its sources to %d, or in another order", len(whole), len(expanded))
	}
	earliest, latest, trust := whole[0].At, whole[0].At, v.Trust
	for _, m := range whole {
		if m.At.Before(earliest) {
			earliest = m.At
		}
		if m.At.After(latest) {
			latest = m.At
		}
		trust = trust.Least(m.Trust)
	}
	if v.Descendants != len(whole) || !v.Earliest.Equal(earliest) || !v.Latest.Equal(latest) || v.Trust != trust {
		return fmt.Errorf("it stands for %d messages from %s to %s of trust %s; %d from %s to %s of %s there are",
			v.Descendants, v.Earliest, v.Latest, v.Trust, len(whole), earliest, latest, trust)
	}
	return nil
}
