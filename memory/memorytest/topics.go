package memorytest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gloveboxhq/glovebox/memory"
)

// sorted are ids as stores return them.
func sorted(messages ...memory.Message) (ids []memory.MessageID) {
	for _, m := range messages {
		ids = append(ids, m.ID)
	}
	slices.SortFunc(ids, func(a, b memory.MessageID) int { return bytes.Compare(a[:], b[:]) })
	return ids
}

// names are those of topics, each with what it says.
func names(topics []memory.Topic) (list []string) {
	for _, t := range topics {
		list = append(list, t.Name+": "+t.Content)
	}
	return list
}

// says what the default user remembers at an instant, with every agent.
func (f *fixture) remembers(t tester, at time.Time, want ...string) {
	t.Helper()
	if got := names(f.topics(memory.TopicQuery{At: at})); !slices.Equal(got, want) {
		t.Errorf("remembered is %q, want %q", got, want)
	}
}

func testDream(t *testing.T, f *fixture) {
	ctx := t.Context()
	session := f.session(f.user)
	messages := f.mixed(session)
	boat, dog := messages[0], messages[6]
	x := f.learn(session, 1, 2, fact("has a boat", boat))
	equal(t, len(f.topics(memory.TopicQuery{})), 0)
	_, r, err := f.store.Topics(ctx, f.user, memory.TopicQuery{})
	check(t, err)
	d := memory.Dream{
		Agent: f.agent, Extractions: []memory.ExtractionID{x.ID, x.ID}, Session: session, Seen: []memory.SeqRange{{First: 3, Last: 7}}, At: at,
		Topics: []memory.NewTopic{
			{Name: " The\nBoat ", Content: "is\t called Aurelia", Sources: []memory.MessageID{dog.ID, boat.ID, dog.ID}},
			{Name: "TONE", Content: "brief", OfAgent: true, ValidFrom: at.Add(-time.Hour), ExpiresAt: at.Add(time.Hour), Sources: []memory.MessageID{dog.ID}},
			{Name: "Export", Content: "once"},
		},
	}
	stored := must(f.store.CommitDream(ctx, f.user, r, d))(t)
	listed := stored[0]
	listed.Sources = nil
	equal(t, f.topics(memory.TopicQuery{Names: 1, SkipNames: 1}), []memory.Topic{listed})
	want := []memory.Topic{
		{ID: stored[0].ID, Name: "the boat", Content: "is called Aurelia", ValidFrom: kept, UpdatedAt: kept, Sources: sorted(boat, dog)},
		{ID: stored[1].ID, Agent: f.agent, Name: "tone", Content: "brief", ValidFrom: kept.Add(-time.Hour), ExpiresAt: kept.Add(time.Hour), UpdatedAt: kept, Sources: sorted(dog)},
		{ID: stored[2].ID, Name: "export-topic", Content: "once", ValidFrom: kept, UpdatedAt: kept},
	}
	equal(t, stored, want)
	f.reopen()
	equal(t, f.topics(memory.TopicQuery{}), []memory.Topic{want[2], want[0]})
	equal(t, f.topics(memory.TopicQuery{Limit: 1}), want[2:])
	// What was learned last, where one moment has two, by id.
	boatAlone := want[0]
	boatAlone.Sources = nil
	equal(t, f.topics(memory.TopicQuery{Latest: 1}), want[2:])
	equal(t, f.topics(memory.TopicQuery{Latest: 2, At: at}), []memory.Topic{want[2], boatAlone})
	equal(t, f.topics(memory.TopicQuery{Name: "THE  boat"}), want[:1])
	equal(t, f.topics(memory.TopicQuery{Name: "export"}), want[2:])
	equal(t, f.topics(memory.TopicQuery{Agent: f.agent}), want[1:2])
	for _, q := range []memory.TopicQuery{{Name: "boat"}, {Name: "\n"}, {Name: strings.Repeat("x", 10_000)}, {Name: "tone"}, {Agent: f.agent, Name: "the boat"}, {At: at.Add(-time.Second)}} {
		if got := f.topics(q); len(got) != 0 {
			t.Errorf("%+v selects %+v", q, got)
		}
	}
	equal(t, must(f.store.Unseen(ctx, f.user, session))(t), memory.Unseen{})
	equal(t, f.extractions(memory.ExtractionQuery{})[0].MergedAt, kept)
	equal(t, len(f.extractions(memory.ExtractionQuery{Pending: true})), 0)

	// The same again changes nothing.
	_, err = f.store.CommitDream(ctx, f.user, r, d)
	wants(t, err, memory.ErrConflict)
	_, r, err = f.store.Topics(ctx, f.user, memory.TopicQuery{})
	check(t, err)
	_, err = f.store.CommitDream(ctx, f.user, r, d)
	wants(t, err, memory.ErrConflict)
	equal(t, f.topics(memory.TopicQuery{}), []memory.Topic{want[2], want[0]})
	// Nobody else has any of it.
	for _, user := range []memory.UserID{f.other, memory.NewID[memory.UserID](), {}} {
		topics, r, err := f.store.Topics(ctx, user, memory.TopicQuery{})
		check(t, err)
		if len(topics) != 0 || r.User() != user {
			t.Errorf("user %s has %+v at %+v", user, topics, r)
		}
	}
}

func testDreamRefuses(t *testing.T, f *fixture) {
	ctx := t.Context()
	session, second := f.session(f.user), f.session(f.user)
	messages := f.mixed(session)
	theirs := f.session(f.other)
	foreign := must(f.store.Append(ctx, f.other, theirs, says("user", "theirs", 0)))(t)
	foreignX := must(f.store.CommitExtraction(ctx, f.other, memory.NewExtraction{Session: theirs, Seen: []memory.SeqRange{{First: 1, Last: 1}}, Learnings: fact("x", foreign...), At: at}))(t)
	foreignT := must(f.store.PutTopic(ctx, f.other, memory.AgentID{}, memory.TopicRevision{}, memory.NewTopic{Name: "x", Content: "x"}, at))(t)
	other := must(f.store.PutAgent(ctx, "other", "", at))(t).ID
	withOther := must(f.store.CreateSession(ctx, memory.Session{Agent: other, User: f.user, CreatedAt: at}))(t).ID
	said := f.append(withOther, says("user", "to the other", 0))
	otherX := f.learn(withOther, 1, 1, fact("x", said...))
	otherT := must(f.store.PutTopic(ctx, f.user, other, memory.TopicRevision{}, memory.NewTopic{Name: "x", Content: "x"}, at))(t)
	x := f.learn(session, 1, 1, fact("x", messages[0]))
	f.dream(memory.Dream{Session: second, Topics: []memory.NewTopic{{Name: "kept", Content: "kept"}}})
	topic := func(change func(*memory.NewTopic)) memory.Dream {
		n := memory.NewTopic{Name: "x", Content: "x"}
		change(&n)
		return memory.Dream{Topics: []memory.NewTopic{{Name: "fine", Content: "fine"}, n}}
	}
	sources := func(ids ...memory.MessageID) memory.Dream {
		return topic(func(n *memory.NewTopic) { n.Sources = ids })
	}
	supersedes := func(id memory.TopicID) memory.Dream {
		return topic(func(n *memory.NewTopic) { n.Supersedes = []memory.TopicID{id} })
	}
	tooMany := make([]memory.MessageID, memory.MaxTopicSources+1)
	for i := range tooMany {
		tooMany[i] = messages[0].ID
	}
	before := f.everything(session)
	for _, test := range []struct {
		name string
		d    memory.Dream
		want error
	}{
		{"no name", topic(func(n *memory.NewTopic) { n.Name = " \u200b" }), memory.ErrInvalid},
		{"a long name", topic(func(n *memory.NewTopic) { n.Name = longText(memory.MaxTopicName + 1) }), memory.ErrInvalid},
		{"no content", topic(func(n *memory.NewTopic) { n.Content = "\n" }), memory.ErrInvalid},
		{"a long content", topic(func(n *memory.NewTopic) { n.Content = longText(memory.MaxTopicContent + 1) }), memory.ErrInvalid},
		{"the year 10000", topic(func(n *memory.NewTopic) { n.ExpiresAt = time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC) }), memory.ErrInvalid},
		{"before all years", topic(func(n *memory.NewTopic) { n.ValidFrom = time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC) }), memory.ErrInvalid},
		{"too many sources", sources(tooMany...), memory.ErrInvalid},
		{"the zero source", sources(memory.MessageID{}), memory.ErrInvalid},
		{"a source that is not there", sources(memory.NewID[memory.MessageID]()), memory.ErrInvalid},
		{"the assistant's message", sources(messages[1].ID), memory.ErrInvalid},
		{"a tick", sources(messages[2].ID), memory.ErrInvalid},
		{"a tool's result", sources(messages[4].ID), memory.ErrInvalid},
		{"an injection", sources(messages[0].ID, messages[5].ID), memory.ErrInvalid},
		{"another user's message", sources(foreign[0].ID), memory.ErrInvalid},
		{"a message and no session", memory.Dream{Seen: []memory.SeqRange{{First: 1, Last: 1}}}, memory.ErrInvalid},
		{"a message that is not there", memory.Dream{Session: session, Seen: []memory.SeqRange{{First: 7, Last: 8}}}, memory.ErrInvalid},
		{"one that was looked at", memory.Dream{Session: session, Seen: []memory.SeqRange{{First: 1, Last: 7}}}, memory.ErrConflict},
		{"another user's session", memory.Dream{Session: theirs}, memory.ErrNotFound},
		{"a session with another agent", memory.Dream{Session: withOther}, memory.ErrNotFound},
		{"no such session", memory.Dream{Session: memory.NewID[memory.SessionID]()}, memory.ErrNotFound},
		{"no such agent", memory.Dream{Agent: memory.NewID[memory.AgentID]()}, memory.ErrNotFound},
		{"no such extraction", memory.Dream{Extractions: []memory.ExtractionID{x.ID, memory.NewID[memory.ExtractionID]()}}, memory.ErrNotFound},
		{"another user's extraction", memory.Dream{Extractions: []memory.ExtractionID{x.ID, foreignX.ID}}, memory.ErrNotFound},
		{"an extraction of another agent", memory.Dream{Extractions: []memory.ExtractionID{otherX.ID}}, memory.ErrNotFound},
		{"no such topic", supersedes(memory.NewID[memory.TopicID]()), memory.ErrNotFound},
		{"the zero topic", supersedes(memory.TopicID{}), memory.ErrNotFound},
		{"another user's topic", supersedes(foreignT.ID), memory.ErrNotFound},
		{"a topic with another agent", supersedes(otherT.ID), memory.ErrNotFound},
		{"no time", memory.Dream{At: time.Unix(1<<40, 0)}, memory.ErrInvalid},
	} {
		d := test.d
		if d.Agent.IsZero() {
			d.Agent = f.agent
		}
		if d.At.IsZero() {
			d.At = at
		}
		_, r, err := f.store.Topics(ctx, f.user, memory.TopicQuery{})
		check(t, err)
		if _, err := f.store.CommitDream(ctx, f.user, r, d); !errors.Is(err, test.want) {
			t.Errorf("%s: got %v, want %v", test.name, err, test.want)
		}
	}
	_, theirR, err := f.store.Topics(ctx, f.other, memory.TopicQuery{})
	check(t, err)
	for _, r := range []memory.TopicRevision{{}, theirR} {
		_, err = f.store.CommitDream(ctx, f.user, r, memory.Dream{Agent: f.agent, At: at})
		wants(t, err, memory.ErrInvalid)
	}
	equal(t, f.everything(session), before)
	// All together are fine: the least and the most.
	f.dream(memory.Dream{})
	f.dream(memory.Dream{Extractions: []memory.ExtractionID{x.ID}, Topics: []memory.NewTopic{
		{Name: longText(memory.MaxTopicName), Content: longText(memory.MaxTopicContent), Sources: tooMany[1:], ExpiresAt: at.Add(-time.Hour)}}})
}

// Of several dreams that read the same topics one is stored; and each extraction
// is merged once.
func testDreamsOneAfterTheOther(t *testing.T, f *fixture) {
	const workers, each = 4, 8
	ctx := t.Context()
	session := f.session(f.user)
	var extractions []memory.Extraction
	for i := range workers * each {
		m := f.append(session, says("user", fmt.Sprint(i), 0))
		extractions = append(extractions, f.learn(session, m[0].Seq, m[0].Seq, fact(fmt.Sprint(i), m...)))
	}
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for {
				_, r, err := f.store.Topics(ctx, f.user, memory.TopicQuery{})
				if err != nil {
					t.Errorf("read: %v", err)
					return
				}
				pending, err := f.store.Extractions(ctx, f.user, memory.ExtractionQuery{Pending: true, Limit: 3})
				if err != nil {
					t.Errorf("read: %v", err)
					return
				}
				if len(pending) == 0 {
					return
				}
				d := memory.Dream{Agent: f.agent, At: at}
				for _, x := range pending {
					d.Extractions = append(d.Extractions, x.ID)
					d.Topics = append(d.Topics, memory.NewTopic{Name: "all", Content: x.Facts[0].Text, Sources: x.Facts[0].Sources})
				}
				if _, err := f.store.CommitDream(ctx, f.user, r, d); err != nil && !errors.Is(err, memory.ErrConflict) {
					t.Errorf("commit: %v", err)
					return
				}
			}
		})
	}
	group.Wait()
	said := map[string]int{}
	for _, topic := range f.topics(memory.TopicQuery{}) {
		said[topic.Content]++
	}
	for _, x := range extractions {
		if said[x.Facts[0].Text] != 1 {
			t.Errorf("%q is remembered %d times", x.Facts[0].Text, said[x.Facts[0].Text])
		}
	}

	// Whatever changes topics is seen by a dream that goes on, and nothing else is.
	for _, test := range []struct {
		name   string
		change func() error
		want   error
	}{
		{"nothing", func() error { return nil }, nil},
		{"a message", func() error { _, err := f.store.Append(ctx, f.user, session, says("user", "x", 0)); return err }, nil},
		{"a dream without a topic", func() error { return f.dreamOf(ctx, f.user, memory.Dream{}) }, nil},
		{"a topic with another agent", func() error {
			agent, err := f.store.PutAgent(ctx, "other", "", at)
			if err == nil {
				_, err = f.store.PutTopic(ctx, f.user, agent.ID, memory.TopicRevision{}, memory.NewTopic{Name: "x", Content: "y"}, at)
			}
			return err
		}, memory.ErrConflict},
		{"another user's topic", func() error {
			_, err := f.store.PutTopic(ctx, f.other, memory.AgentID{}, memory.TopicRevision{}, memory.NewTopic{Name: "x", Content: "y"}, at)
			return err
		}, nil},
		{"a topic", func() error {
			_, err := f.store.PutTopic(ctx, f.user, memory.AgentID{}, memory.TopicRevision{}, memory.NewTopic{Name: "x", Content: "y"}, at)
			return err
		}, memory.ErrConflict},
		{"a topic deleted", func() error { _, err := f.store.DeleteTopic(ctx, f.user, memory.AgentID{}, "x"); return err }, memory.ErrConflict},
		{"an import", func() error {
			_, err := f.store.Import(ctx, f.user, recordsOf(memory.Record{Kind: memory.RecordTopic, Topic: &memory.TopicRecord{ID: memory.NewID[memory.TopicID](), Topic: "x", Content: "y", ValidFrom: at, UpdatedAt: at}}))
			return err
		}, memory.ErrConflict},
		{"a wipe", func() error { _, err := f.store.WipeMemory(ctx, f.user); return err }, memory.ErrConflict},
		{"a wipe of nothing", func() error { _, err := f.store.WipeAgentMemory(ctx, f.user, f.agent); return err }, memory.ErrConflict},
		{"a wipe of everything", func() error { _, err := f.store.WipeUser(ctx, f.user); return err }, memory.ErrConflict},
	} {
		_, r, err := f.store.Topics(ctx, f.user, memory.TopicQuery{})
		check(t, err)
		check(t, test.change())
		if _, err := f.store.CommitDream(ctx, f.user, r, memory.Dream{Agent: f.agent, At: at, Topics: []memory.NewTopic{{Name: "late", Content: "late"}}}); !errors.Is(err, test.want) {
			t.Errorf("after %s: got %v, want %v", test.name, err, test.want)
		}
	}
}

// What is selected of an instant is what ValidAt says of it, and a page of it the
// topics of as many names; and what superseded another began when that ended.
func testTopicsAsOf(t *testing.T, f *fixture) {
	ctx := t.Context()
	rapid.Check(t, func(r *rapid.T) {
		user := memory.NewID[memory.UserID]()
		check(r, f.store.PutUser(ctx, memory.User{ID: user, Name: user.String(), CreatedAt: at}))
		instant := func(name string) time.Time {
			return at.Add(time.Duration(rapid.IntRange(-5, 5).Draw(r, name)) * time.Hour)
		}
		type lifetime struct{ from, until time.Time }
		lives := map[memory.TopicID]lifetime{}
		var ids []memory.TopicID
		for range rapid.IntRange(1, 8).Draw(r, "dreams") {
			_, revision, err := f.store.Topics(ctx, user, memory.TopicQuery{})
			check(r, err)
			d := memory.Dream{Agent: f.agent, At: at}
			for range rapid.IntRange(1, 2).Draw(r, "topics") {
				n := memory.NewTopic{Name: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(r, "name"), Content: "x", ValidFrom: instant("from")}
				if rapid.Bool().Draw(r, "expires") {
					n.ExpiresAt = instant("until")
				}
				if len(ids) > 0 && rapid.Bool().Draw(r, "supersedes") {
					n.Supersedes = []memory.TopicID{rapid.SampledFrom(ids).Draw(r, "which")}
				}
				d.Topics = append(d.Topics, n)
			}
			stored, err := f.store.CommitDream(ctx, user, revision, d)
			check(r, err)
			replaced := map[memory.TopicID]bool{}
			for i, topic := range stored {
				life := lifetime{topic.ValidFrom, topic.ExpiresAt}
				for _, old := range d.Topics[i].Supersedes {
					before := lives[old]
					known, _, err := f.store.Topics(ctx, user, memory.TopicQuery{})
					check(r, err)
					at := slices.IndexFunc(known, func(k memory.Topic) bool { return k.ID == old })
					if known[at].SupersededBy != topic.ID || replaced[old] {
						continue
					}
					replaced[old] = true
					if before.until.IsZero() || topic.ValidFrom.Before(before.until) {
						before.until = topic.ValidFrom
					}
					lives[old] = before
				}
				lives[topic.ID] = life
				ids = append(ids, topic.ID)
			}
		}
		all, _, err := f.store.Topics(ctx, user, memory.TopicQuery{})
		check(r, err)
		if len(all) != len(ids) {
			r.Errorf("%d of %d topics are kept", len(all), len(ids))
		}
		for hour := -6; hour <= 6; hour++ {
			then := at.Add(time.Duration(hour) * time.Hour)
			var want []memory.Topic
			for _, topic := range all {
				life := lives[topic.ID]
				held := !life.from.After(then.Truncate(time.Microsecond)) && (life.until.IsZero() || life.until.After(then))
				if topic.ValidAt(then) != held {
					r.Errorf("%+v at %v: ValidAt says %t", topic, then, !held)
				}
				if held {
					want = append(want, topic)
				}
			}
			got, _, err := f.store.Topics(ctx, user, memory.TopicQuery{At: then})
			check(r, err)
			if len(got)+len(want) > 0 {
				equal(r, got, want)
			}
			for skipped := range 4 {
				for names := 1; names <= 3; names++ {
					page, _, err := f.store.Topics(ctx, user, memory.TopicQuery{At: then, Names: names, SkipNames: skipped})
					check(r, err)
					var want []memory.Topic
					for i, named := range memory.ByName(got) {
						if skipped <= i && i < skipped+names {
							want = append(want, named.Items...)
						}
					}
					if len(page)+len(want) > 0 {
						equal(r, page, want)
					}
				}
			}
		}
	})
}

// M10: what was stored before takes the place of what it contradicts, and of
// nothing else; neither is another user's.
func testRetirement(t *testing.T, f *fixture) {
	day := 24 * time.Hour
	first := f.dream(memory.Dream{Topics: []memory.NewTopic{{Name: "plans", Content: "to be a vet"}, {Name: "home", Content: "lives in Rome"}}})
	later := f.dream(memory.Dream{At: at.Add(day), Topics: []memory.NewTopic{{Name: "plans", Content: "to be a cook"}}})
	f.remembers(t, at.Add(day), "home: lives in Rome", "plans: to be a vet", "plans: to be a cook")
	_, before, err := f.store.Topics(t.Context(), f.user, memory.TopicQuery{})
	check(t, err)
	f.dream(memory.Dream{At: at.Add(2 * day), Retired: []memory.Retirement{{Topic: first[0].ID, By: later[0].ID}}})
	f.remembers(t, at.Add(2*day), "home: lives in Rome", "plans: to be a cook")
	_, after, err := f.store.Topics(t.Context(), f.user, memory.TopicQuery{})
	check(t, err)
	if before == after {
		t.Error("the revision is the same")
	}
	_, others, err := f.store.Topics(t.Context(), f.other, memory.TopicQuery{})
	check(t, err)
	foreign := must(f.store.PutTopic(t.Context(), f.other, memory.AgentID{}, others, memory.NewTopic{Name: "home", Content: "lives in Bonn"}, at))(t)
	for name, r := range map[string]memory.Retirement{
		"by another user's":           {Topic: first[1].ID, By: foreign.ID},
		"of another user's":           {Topic: foreign.ID, By: first[1].ID},
		"by itself":                   {Topic: first[1].ID, By: first[1].ID},
		"by nothing":                  {Topic: first[1].ID, By: memory.NewID[memory.TopicID]()},
		"of nothing":                  {Topic: memory.NewID[memory.TopicID](), By: first[1].ID},
		"by one of the zero ID":       {Topic: first[1].ID},
		"of one that has the zero ID": {By: first[1].ID},
	} {
		_, err := f.store.CommitDream(t.Context(), f.user, after, memory.Dream{Agent: f.agent, At: at.Add(3 * day), Retired: []memory.Retirement{r}})
		if !errors.Is(err, memory.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	f.remembers(t, at.Add(3*day), "home: lives in Rome", "plans: to be a cook")
}

// M10
func testSupersession(t *testing.T, f *fixture) {
	ctx := t.Context()
	day := 24 * time.Hour
	first := f.dream(memory.Dream{Topics: []memory.NewTopic{
		{Name: "home", Content: "lives in Rome"}, {Name: "home", Content: "has a balcony"}, {Name: "family", Content: "wife Ann, son Ben"},
		{Name: "home", Content: "rents, says the agent", OfAgent: true}, {Name: "visit", Content: "Zoe comes", ExpiresAt: at.Add(2 * day)},
	}})
	f.remembers(t, at, "family: wife Ann, son Ben", "home: lives in Rome", "home: has a balcony", "visit: Zoe comes")
	moved := f.dream(memory.Dream{At: at.Add(day), Topics: []memory.NewTopic{
		{Name: "city", Content: "lives in Paris", Supersedes: []memory.TopicID{first[0].ID}},
		// One becomes two.
		{Name: "wife", Content: "Ann", Supersedes: []memory.TopicID{first[2].ID}}, {Name: "son", Content: "Ben", Supersedes: []memory.TopicID{first[2].ID}},
		// What the agent alone knew everybody is to know.
		{Name: "home", Content: "rents", Supersedes: []memory.TopicID{first[3].ID}},
	}})
	f.remembers(t, at.Add(day), "city: lives in Paris", "home: has a balcony", "home: rents", "son: Ben", "visit: Zoe comes", "wife: Ann")
	f.remembers(t, at.Add(2*day), "city: lives in Paris", "home: has a balcony", "home: rents", "son: Ben", "wife: Ann")
	// As it was.
	f.remembers(t, at.Add(day-time.Microsecond), "family: wife Ann, son Ben", "home: lives in Rome", "home: has a balcony", "visit: Zoe comes")
	f.remembers(t, at.Add(-time.Second))
	equal(t, len(f.topics(memory.TopicQuery{Agent: f.agent, At: at.Add(day)})), 0)
	equal(t, names(f.topics(memory.TopicQuery{Agent: f.agent, At: at})), []string{"home: rents, says the agent"})

	// The first that took a place keeps it.
	family := f.topics(memory.TopicQuery{Name: "family"})[0]
	equal(t, family.SupersededBy, moved[1].ID)
	equal(t, family.SupersededAt, kept.Add(day))
	again := f.dream(memory.Dream{At: at.Add(3 * day), Topics: []memory.NewTopic{{Name: "family", Content: "three", Supersedes: []memory.TopicID{first[2].ID, moved[1].ID, moved[1].ID}}}})
	for _, topic := range f.topics(memory.TopicQuery{}) {
		switch topic.ID {
		case first[2].ID:
			equal(t, topic.SupersededBy, moved[1].ID)
		case moved[1].ID:
			equal(t, topic.SupersededBy, again[0].ID)
		}
	}
	// A move that is still to come: until then nothing changes.
	f.dream(memory.Dream{At: at.Add(4 * day), Topics: []memory.NewTopic{{Name: "city", Content: "lives in Oslo", ValidFrom: at.Add(9 * day), Supersedes: []memory.TopicID{moved[0].ID}}}})
	equal(t, names(f.topics(memory.TopicQuery{Name: "city", At: at.Add(8 * day)})), []string{"city: lives in Paris"})
	equal(t, names(f.topics(memory.TopicQuery{Name: "city", At: at.Add(9 * day)})), []string{"city: lives in Oslo"})
	// What has expired can be superseded, and does not come back by it.
	f.dream(memory.Dream{At: at.Add(5 * day), Topics: []memory.NewTopic{{Name: "visit", Content: "Zoe left", ExpiresAt: at.Add(5 * day), Supersedes: []memory.TopicID{first[4].ID}}}})
	equal(t, len(f.topics(memory.TopicQuery{Name: "visit", At: at.Add(5 * day)})), 0)
	equal(t, len(f.topics(memory.TopicQuery{Name: "visit", At: at.Add(3 * day)})), 0)
	equal(t, len(f.topics(memory.TopicQuery{Name: "visit", At: at.Add(day)})), 1)
	equal(t, len(must(f.store.Users(ctx))(t)), 2)
}

func testPutTopic(t *testing.T, f *fixture) {
	ctx := t.Context()
	session := f.session(f.user)
	messages := f.append(session, says("user", "one", 0), says("assistant", "two", 0), says("user", "three", 0), says("user", "four", 0))
	ids := sorted(messages...)
	f.dream(memory.Dream{Topics: []memory.NewTopic{
		{Name: "boat", Content: "is called Aurelia", Sources: ids[:1]}, {Name: "boat", Content: "will be painted", Sources: ids[2:3], ValidFrom: at.Add(9 * time.Hour)},
		{Name: "boat", Content: "was hired", Sources: ids[3:], ExpiresAt: at.Add(time.Minute)}, {Name: "boats", Content: "likes them"}, {Name: "boat", Content: "the agent's", OfAgent: true},
	}})
	later := at.Add(time.Hour)
	put := func(agent memory.AgentID, r memory.TopicRevision, n memory.NewTopic) (memory.Topic, error) {
		return f.store.PutTopic(ctx, f.user, agent, r, n, later)
	}
	_, r, err := f.store.Topics(ctx, f.user, memory.TopicQuery{})
	check(t, err)
	topic := must(put(memory.AgentID{}, r, memory.NewTopic{Name: "BOAT", Content: "is sold", Supersedes: []memory.TopicID{memory.NewID[memory.TopicID]()}}))(t)
	equal(t, topic, memory.Topic{ID: topic.ID, Name: "boat", Content: "is sold", ValidFrom: kept.Add(time.Hour), UpdatedAt: kept.Add(time.Hour)})
	f.reopen()
	f.remembers(t, later, "boat: is sold", "boats: likes them")
	f.remembers(t, later.Add(99*time.Hour), "boat: is sold", "boats: likes them")
	f.remembers(t, at, "boat: is called Aurelia", "boat: was hired", "boats: likes them")
	equal(t, names(f.topics(memory.TopicQuery{Agent: f.agent, At: later})), []string{"boat: the agent's"})
	// What the retired ones were learned from was looked at; the expired one is none
	// of them.
	var unseen []int64
	for _, m := range must(f.store.UnseenMessages(ctx, f.user, session, memory.MessageQuery{}))(t) {
		unseen = append(unseen, m.Seq)
	}
	equal(t, unseen, []int64{2, 4})

	_, err = put(memory.AgentID{}, r, memory.NewTopic{Name: "boat", Content: "x"})
	wants(t, err, memory.ErrConflict)
	_, theirs, err := f.store.Topics(ctx, f.other, memory.TopicQuery{})
	check(t, err)
	_, err = put(memory.AgentID{}, theirs, memory.NewTopic{Name: "boat", Content: "x"})
	wants(t, err, memory.ErrInvalid)
	_, err = put(memory.NewID[memory.AgentID](), memory.TopicRevision{}, memory.NewTopic{Name: "boat", Content: "x"})
	wants(t, err, memory.ErrNotFound)
	_, err = f.store.PutTopic(ctx, memory.NewID[memory.UserID](), memory.AgentID{}, memory.TopicRevision{}, memory.NewTopic{Name: "boat", Content: "x"}, at)
	wants(t, err, memory.ErrNotFound)
	_, err = f.store.PutTopic(ctx, f.user, memory.AgentID{}, memory.TopicRevision{}, memory.NewTopic{Name: "boat", Content: "x"}, time.Time{})
	wants(t, err, memory.ErrInvalid)
	for _, n := range []memory.NewTopic{{Name: "", Content: "x"}, {Name: "x", Content: ""}, {Name: "x", Content: "x", Sources: []memory.MessageID{messages[1].ID}}} {
		_, err = put(memory.AgentID{}, memory.TopicRevision{}, n)
		wants(t, err, memory.ErrInvalid)
	}
	f.remembers(t, later, "boat: is sold", "boats: likes them")
	// Of the user with the agent alone.
	mine := must(put(f.agent, memory.TopicRevision{}, memory.NewTopic{Name: "boat", Content: "between us", Sources: ids[:1]}))(t)
	equal(t, mine.Agent, f.agent)
	equal(t, f.topics(memory.TopicQuery{Agent: f.agent, At: later}), []memory.Topic{mine})
	f.remembers(t, later, "boat: is sold", "boats: likes them")
}

// M11
func testDeleteTopic(t *testing.T, f *fixture) {
	ctx := t.Context()
	session, second := f.session(f.user), f.session(f.user)
	messages := f.append(session, says("user", "one", 0), says("user", "two", 0), says("user", "three", 0), says("user", "four", 0))
	more := f.append(second, says("user", "five", 0))
	one, two, three, four, five := messages[0].ID, messages[1].ID, messages[2].ID, messages[3].ID, more[0].ID
	item := func(text string, sources ...memory.MessageID) memory.Learned {
		return memory.Learned{Text: text, Sources: sources}
	}
	x := must(f.store.CommitExtraction(ctx, f.user, memory.NewExtraction{Session: session, Seen: []memory.SeqRange{{First: 1, Last: 2}}, At: at, Learnings: memory.Learnings{
		Facts: []memory.Learned{item("has a boat", one), item("has a dog", two), item("boat and dog", two, one)}, Tasks: []memory.Learned{item("paint the boat", one)}}}))(t)
	pending := f.learn(second, 1, 1, fact("the boat again", more[0]))
	_ = five
	f.dream(memory.Dream{Extractions: []memory.ExtractionID{x.ID}, Topics: []memory.NewTopic{
		{Name: "boat", Content: "old", Sources: []memory.MessageID{one}}, {Name: "dog", Content: "barks", Sources: []memory.MessageID{one, two}},
		{Name: "boat", Content: "the agent's", OfAgent: true, Sources: []memory.MessageID{four}},
	}})
	boats := f.topics(memory.TopicQuery{Name: "boat"})
	f.dream(memory.Dream{Topics: []memory.NewTopic{{Name: "boat", Content: "new", Sources: []memory.MessageID{three, five}, Supersedes: []memory.TopicID{boats[0].ID}}}})

	for _, name := range []string{"cat", "", strings.Repeat("x", 1000), "boat/"} {
		_, err := f.store.DeleteTopic(ctx, f.user, memory.AgentID{}, name)
		wants(t, err, memory.ErrNotFound)
	}
	_, err := f.store.DeleteTopic(ctx, f.other, memory.AgentID{}, "boat")
	wants(t, err, memory.ErrNotFound)
	_, err = f.store.DeleteTopic(ctx, f.user, f.agent, "dog")
	wants(t, err, memory.ErrNotFound)
	equal(t, must(f.store.DeleteTopic(ctx, f.user, memory.AgentID{}, " Boat"))(t), 2)
	_, err = f.store.DeleteTopic(ctx, f.user, memory.AgentID{}, "boat")
	wants(t, err, memory.ErrNotFound)
	f.reopen()
	equal(t, names(f.topics(memory.TopicQuery{})), []string{"dog: barks"})
	equal(t, names(f.topics(memory.TopicQuery{Agent: f.agent})), []string{"boat: the agent's"})

	// The counts stay, and what was learned from other messages.
	got := f.extractions(memory.ExtractionQuery{})
	x.MergedAt = kept
	x.Facts = []memory.Learned{{}, item("has a dog", two), {}}
	x.Tasks = []memory.Learned{{}}
	pending.Facts = []memory.Learned{{}}
	// Nothing is left for a dream to look at.
	pending.MergedAt = pending.CreatedAt
	equal(t, got, []memory.Extraction{x, pending})
	// Nobody learns again from what the topic came from.
	unseen := must(f.store.UnseenMessages(ctx, f.user, session, memory.MessageQuery{}))(t)
	equal(t, unseen, messages[3:])
	equal(t, must(f.store.IdleSessions(ctx, []memory.AgentID{f.agent}, at.Add(time.Hour), 0))(t), []memory.IdleSession{{User: f.user, Agent: f.agent, Session: session, LastActive: kept}})
	equal(t, must(f.store.DeleteTopic(ctx, f.user, f.agent, "boat"))(t), 1)
	equal(t, must(f.store.Unseen(ctx, f.user, session))(t), memory.Unseen{})
	equal(t, len(must(f.store.IdleSessions(ctx, []memory.AgentID{f.agent}, at.Add(time.Hour), 0))(t)), 0)
}

// The history of a topic are those whose place it took, whatever they were called;
// what took its own place stays, and nothing comes back.
func testDeleteTopicWithHistory(t *testing.T, f *fixture) {
	ctx := t.Context()
	supersede := func(n memory.NewTopic, old ...memory.Topic) memory.Topic {
		for _, o := range old {
			n.Supersedes = append(n.Supersedes, o.ID)
		}
		n.Content = n.Name
		return f.dream(memory.Dream{Topics: []memory.NewTopic{n}})[0]
	}
	shop := supersede(memory.NewTopic{Name: "shop"})
	job := supersede(memory.NewTopic{Name: "job"}, shop)
	secret := supersede(memory.NewTopic{Name: "secret", OfAgent: true})
	work := supersede(memory.NewTopic{Name: "work"}, job, secret)
	supersede(memory.NewTopic{Name: "pension"}, work)
	supersede(memory.NewTopic{Name: "boat"})
	equal(t, must(f.store.DeleteTopic(ctx, f.user, memory.AgentID{}, "work"))(t), 4)
	equal(t, names(f.topics(memory.TopicQuery{})), []string{"boat: boat", "pension: pension"})
	equal(t, len(f.topics(memory.TopicQuery{Agent: f.agent})), 0)
}

func testWipeMemory(t *testing.T, f *fixture) {
	ctx := t.Context()
	other := must(f.store.PutAgent(ctx, "other", "", at))(t).ID
	sessions := []memory.SessionID{f.session(f.user), must(f.store.CreateSession(ctx, memory.Session{Agent: other, User: f.user, CreatedAt: at}))(t).ID, f.session(f.user)}
	theirs := f.session(f.other)
	must(f.store.Append(ctx, f.other, theirs, says("user", "theirs", 0)))(t)
	must(f.store.PutTopic(ctx, f.other, memory.AgentID{}, memory.TopicRevision{}, memory.NewTopic{Name: "x", Content: "theirs"}, at))(t)
	messages := f.append(sessions[0], says("user", "one", 0), says("user", "two", 0), says("assistant", "three", 0))
	f.append(sessions[1], says("user", "four", 0))
	f.learn(sessions[0], 2, 2, fact("x", messages[1]))
	f.dream(memory.Dream{Topics: []memory.NewTopic{{Name: "x", Content: "x"}, {Name: "y", Content: "y", OfAgent: true, Sources: []memory.MessageID{messages[0].ID}}}})
	equal(t, must(f.store.WipeMemory(ctx, f.user))(t), memory.WipeCounts{Topics: 1, AgentTopics: 1, Extractions: 1})
	f.reopen()
	equal(t, must(f.store.WipeMemory(ctx, f.user))(t), memory.WipeCounts{})
	equal(t, len(f.topics(memory.TopicQuery{})), 0)
	equal(t, len(f.topics(memory.TopicQuery{Agent: f.agent})), 0)
	equal(t, len(f.extractions(memory.ExtractionQuery{})), 0)
	for _, id := range sessions {
		equal(t, must(f.store.Unseen(ctx, f.user, id))(t), memory.Unseen{})
	}
	idle := func() []memory.IdleSession {
		return must(f.store.IdleSessions(ctx, []memory.AgentID{f.agent, other}, at.Add(time.Hour), 0))(t)
	}
	equal(t, idle(), []memory.IdleSession{{User: f.other, Agent: f.agent, Session: theirs, LastActive: kept}})
	equal(t, len(must(f.store.Messages(ctx, f.user, sessions[0], memory.MessageQuery{}))(t)), 3)
	topics, _, err := f.store.Topics(ctx, f.other, memory.TopicQuery{})
	check(t, err)
	equal(t, names(topics), []string{"x: theirs"})
	// What is said from then on is new.
	f.append(sessions[0], says("user", "five", 0))
	f.append(sessions[2], says("user", "six", 0))
	equal(t, must(f.store.Unseen(ctx, f.user, sessions[0]))(t).Messages, 1)
	equal(t, len(idle()), 3)
	equal(t, must(f.store.WipeMemory(ctx, memory.NewID[memory.UserID]()))(t), memory.WipeCounts{})
}

func testWipeAgentMemory(t *testing.T, f *fixture) {
	ctx := t.Context()
	other := must(f.store.PutAgent(ctx, "other", "", at))(t).ID
	with := f.session(f.user)
	without := must(f.store.CreateSession(ctx, memory.Session{Agent: other, User: f.user, CreatedAt: at}))(t).ID
	messages := f.append(with, says("user", "one", 0), says("user", "two", 0))
	others := f.append(without, says("user", "three", 0))
	f.learn(with, 1, 1, fact("x", messages[0]))
	kept := f.learn(without, 1, 1, fact("y", others...))
	old := f.dream(memory.Dream{Topics: []memory.NewTopic{{Name: "all", Content: "everybody's"}, {Name: "old", Content: "was everybody's"}}})
	f.dream(memory.Dream{Topics: []memory.NewTopic{{Name: "mine", Content: "the agent's", OfAgent: true, Supersedes: []memory.TopicID{old[1].ID}}}})
	must(f.store.PutTopic(ctx, f.user, other, memory.TopicRevision{}, memory.NewTopic{Name: "mine", Content: "the other's"}, at))(t)
	equal(t, must(f.store.WipeAgentMemory(ctx, f.other, f.agent))(t), memory.WipeCounts{})
	equal(t, must(f.store.WipeAgentMemory(ctx, f.user, memory.AgentID{}))(t), memory.WipeCounts{})
	equal(t, must(f.store.WipeAgentMemory(ctx, f.user, f.agent))(t), memory.WipeCounts{Topics: 1, AgentTopics: 1, Extractions: 1})
	f.reopen()
	equal(t, must(f.store.WipeAgentMemory(ctx, f.user, f.agent))(t), memory.WipeCounts{})
	equal(t, names(f.topics(memory.TopicQuery{})), []string{"all: everybody's"})
	equal(t, names(f.topics(memory.TopicQuery{Agent: other})), []string{"mine: the other's"})
	equal(t, len(f.topics(memory.TopicQuery{Agent: f.agent})), 0)
	equal(t, f.extractions(memory.ExtractionQuery{}), []memory.Extraction{kept})
	equal(t, must(f.store.Unseen(ctx, f.user, with))(t), memory.Unseen{})
	equal(t, must(f.store.Unseen(ctx, f.user, without))(t), memory.Unseen{})
	idle := must(f.store.IdleSessions(ctx, []memory.AgentID{f.agent, other}, at.Add(time.Hour), 0))(t)
	if len(idle) != 1 || idle[0].Session != without {
		t.Errorf("due are %+v", idle)
	}
}

// M5, what stores keep of it.
func testLearnedOutlivesSession(t *testing.T, f *fixture) {
	ctx := t.Context()
	session := f.session(f.user)
	messages := f.append(session, says("user", "one", 0), says("user", "two", 0))
	x := f.learn(session, 1, 1, fact("x", messages[0]))
	topic := f.dream(memory.Dream{Session: session, Seen: []memory.SeqRange{{First: 2, Last: 2}}, Topics: []memory.NewTopic{{Name: "y", Content: "y", Sources: []memory.MessageID{messages[1].ID}}}})[0]
	check(t, f.store.DeleteSession(ctx, f.user, session))
	f.reopen()
	x.SessionDeleted = true
	equal(t, f.extractions(memory.ExtractionQuery{Pending: true}), []memory.Extraction{x})
	equal(t, f.topics(memory.TopicQuery{}), []memory.Topic{topic})
	equal(t, len(must(f.store.IdleSessions(ctx, []memory.AgentID{f.agent}, at.Add(time.Hour), 0))(t)), 0)
	events := memory.Audit(f.extractions(memory.ExtractionQuery{}), must(f.store.Agents(ctx))(t))
	equal(t, events, []memory.LearningEvent{{ID: x.ID, Agent: "assistant", Session: session, SessionDeleted: true, Facts: 1, CreatedAt: kept}})

	// A dream still takes it in, and carries on what a topic came from: the messages
	// have gone, but something names them.
	merged := f.dream(memory.Dream{Extractions: []memory.ExtractionID{x.ID}, Topics: []memory.NewTopic{{Name: "z", Content: "z", Sources: sorted(messages...), Supersedes: []memory.TopicID{topic.ID}}}})
	equal(t, merged[0].Sources, sorted(messages...))
	// So does somebody who deletes it.
	equal(t, must(f.store.DeleteTopic(ctx, f.user, memory.AgentID{}, "z"))(t), 2)
	got := f.extractions(memory.ExtractionQuery{})
	equal(t, got[0].Facts, []memory.Learned{{}})
	err := f.dreamOf(ctx, f.user, memory.Dream{Topics: []memory.NewTopic{{Name: "z", Content: "z", Sources: sorted(messages...)}}})
	wants(t, err, memory.ErrInvalid)
}
