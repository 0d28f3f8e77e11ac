package memorytest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/memory"
)

// S9: several users do at random what a store allows; whatever one of them asks
// for afterwards, by id, by words of the others, by reading everything or by
// export, nothing of the others is in it.
func testNoForeignWord(t *testing.T, f *fixture) {
	rapid.Check(t, func(r *rapid.T) {
		var people []*person
		for range 3 {
			id := memory.NewID[memory.UserID]()
			name := "u" + strings.ReplaceAll(id.String(), "-", "")
			check(r, f.store.PutUser(t.Context(), memory.User{ID: id, Name: name, CreatedAt: at}))
			p := &person{f: f, user: id, canary: "canary" + name}
			people = append(people, p)
			p.begin(r)
		}
		for range rapid.IntRange(5, 30).Draw(r, "steps") {
			p := rapid.SampledFrom(people).Draw(r, "who")
			rapid.SampledFrom([]func(*rapid.T){p.begin, p.say, p.say, p.say, p.inject, p.condense, p.name, p.fork, p.forget, p.learn, p.learn, p.dream, p.dream, p.wipe}).Draw(r, "what")(r)
		}
		for _, p := range people {
			seen := p.everything(r, people)
			for _, other := range people {
				if found := strings.Contains(seen, other.canary); found != (other == p && (len(p.messages) > 0 || p.remembered)) {
					r.Errorf("the words of %s in what %s sees: %t", other.canary, p.canary, found)
				}
				if other != p {
					p.reachesNothingOf(r, other)
				}
			}
		}
	})
}

// person is a user who says one word that nobody else says.
type person struct {
	f         *fixture
	user      memory.UserID
	canary    string
	sessions  []memory.SessionID
	messages  []memory.Message
	summaries []memory.SummaryID
	// learned and topics are what is remembered of them, if remembered.
	remembered bool
	learned    []memory.Extraction
	topics     []memory.TopicID
}

func (p *person) begin(r *rapid.T) {
	session := must(p.f.store.CreateSession(p.f.t.Context(), memory.Session{Agent: p.f.agent, User: p.user, CreatedAt: at}))(r)
	p.sessions = append(p.sessions, session.ID)
}

func (p *person) session(r *rapid.T) memory.SessionID {
	if len(p.sessions) == 0 {
		p.begin(r)
	}
	return rapid.SampledFrom(p.sessions).Draw(r, "session")
}

func (p *person) say(r *rapid.T) {
	drafts := []memory.Draft{placed("said", says("user", "I say "+p.canary, 0)), placed("answered", says("assistant", "you said "+p.canary, 0))}
	p.messages = append(p.messages, must(p.f.store.Append(p.f.t.Context(), p.user, p.session(r), drafts...))(r)...)
}

func (p *person) inject(r *rapid.T) {
	i := memory.Injection{At: at, Blocks: []boundary.Content{content(r, "outside "+p.canary)}}
	p.messages = append(p.messages, must(p.f.store.Inject(p.f.t.Context(), p.user, p.session(r), i))(r))
}

func (p *person) condense(r *rapid.T) {
	frontier := must(p.f.store.Frontier(p.f.t.Context(), p.user, p.session(r)))(r)
	s := memory.NewSummary{ID: memory.NewID[memory.SummaryID](), SummaryText: memory.SummaryText{Text: "about " + p.canary, Level: memory.LevelNormal}, At: at}
	for _, item := range frontier.Items {
		if item.Message == nil {
			break
		}
		s.Messages = append(s.Messages, item.Message.ID)
	}
	if len(s.Messages) > 0 {
		p.summaries = append(p.summaries, must(p.f.store.CommitSummary(p.f.t.Context(), p.user, frontier.Revision, s))(r).ID)
	}
}

// name calls a session what everybody calls one of theirs.
func (p *person) name(r *rapid.T) {
	check(r, p.f.store.NameSession(p.f.t.Context(), p.user, p.session(r), "work"))
}

func (p *person) fork(r *rapid.T) {
	ctx, parent := p.f.t.Context(), p.session(r)
	last := rapid.IntRange(0, must(p.f.store.Session(ctx, p.user, parent))(r).Messages).Draw(r, "last")
	made := must(p.f.store.Fork(ctx, p.user, parent, int64(last), at))(r).ID
	p.sessions = append(p.sessions, made)
	p.messages = append(p.messages, must(p.f.store.Messages(ctx, p.user, made, memory.MessageQuery{}))(r)...)
	for _, v := range must(p.f.store.Summaries(ctx, p.user, made))(r) {
		p.summaries = append(p.summaries, v.ID)
	}
}

func (p *person) forget(r *rapid.T) {
	session := p.session(r)
	check(r, p.f.store.DeleteSession(p.f.t.Context(), p.user, session))
	p.sessions = slices.DeleteFunc(p.sessions, func(id memory.SessionID) bool { return id == session })
	p.messages = slices.DeleteFunc(p.messages, func(m memory.Message) bool { return m.Session == session })
	p.summaries = slices.DeleteFunc(p.summaries, func(id memory.SummaryID) bool {
		_, _, err := p.f.store.Summary(p.f.t.Context(), p.user, id)
		return err != nil
	})
}

// learn extracts from whatever was not looked at.
func (p *person) learn(r *rapid.T) {
	ctx, session := p.f.t.Context(), p.session(r)
	n := memory.NewExtraction{Session: session, At: at}
	for _, m := range must(p.f.store.UnseenMessages(ctx, p.user, session, memory.MessageQuery{}))(r) {
		n.Seen = append(n.Seen, memory.SeqRange{First: m.Seq, Last: m.Seq})
		if m.Source == memory.SourceUser {
			n.Facts = append(n.Facts, memory.Learned{Text: "said " + p.canary, Sources: []memory.MessageID{m.ID}})
		}
	}
	if len(n.Seen) > 0 {
		p.learned = append(p.learned, must(p.f.store.CommitExtraction(ctx, p.user, n))(r))
		p.remembered = p.remembered || len(n.Facts) > 0
	}
}

// dream makes a topic of whatever is pending, in the place of another one.
func (p *person) dream(r *rapid.T) {
	ctx := p.f.t.Context()
	_, revision, err := p.f.store.Topics(ctx, p.user, memory.TopicQuery{})
	check(r, err)
	d := memory.Dream{Agent: p.f.agent, At: at, Topics: []memory.NewTopic{{Name: p.canary, Content: "knows " + p.canary, OfAgent: rapid.Bool().Draw(r, "of agent")}}}
	for _, x := range must(p.f.store.Extractions(ctx, p.user, memory.ExtractionQuery{Pending: true}))(r) {
		d.Extractions = append(d.Extractions, x.ID)
		d.Topics[0].Sources = append(d.Topics[0].Sources, x.Facts[0].Sources...)
	}
	if len(d.Topics[0].Sources) > memory.MaxTopicSources {
		d.Topics[0].Sources = d.Topics[0].Sources[:memory.MaxTopicSources]
	}
	if len(p.topics) > 0 {
		d.Topics[0].Supersedes = []memory.TopicID{rapid.SampledFrom(p.topics).Draw(r, "supersedes")}
	}
	for _, t := range must(p.f.store.CommitDream(ctx, p.user, revision, d))(r) {
		p.topics = append(p.topics, t.ID)
	}
	p.remembered = true
}

func (p *person) wipe(r *rapid.T) {
	must(p.f.store.WipeMemory(p.f.t.Context(), p.user))(r)
	p.remembered, p.learned, p.topics = false, nil, nil
}

// everything is all that a user can read without an id, and with words that are
// not theirs.
func (p *person) everything(r *rapid.T, people []*person) string {
	ctx, store := p.f.t.Context(), p.f.store
	var seen strings.Builder
	add := func(v any) { seen.WriteString(string(must(json.Marshal(v))(r)) + fmt.Sprintf("%+v", v)) }
	sessions := must(store.Sessions(ctx, p.user, memory.SessionQuery{}))(r)
	add(sessions)
	for _, session := range must(store.Sessions(ctx, p.user, memory.SessionQuery{Name: "work"}))(r) {
		add(session)
		if session.User != p.user {
			r.Errorf("%s finds a session of %s by its name", p.canary, session.User)
		}
	}
	for _, words := range []string{"said", "answered"} {
		for _, place := range must(store.Places(ctx, p.user, p.f.agent, placed(words, memory.Draft{}).Transcript, 99))(r) {
			if !slices.Contains(p.sessions, place.Session) {
				r.Errorf("%s finds session %s by what was said in it", p.canary, place.Session)
			}
		}
	}
	for _, s := range sessions {
		add(must(store.Messages(ctx, p.user, s.ID, memory.MessageQuery{}))(r))
		add(must(store.Summaries(ctx, p.user, s.ID))(r))
	}
	add(must(store.Extractions(ctx, p.user, memory.ExtractionQuery{}))(r))
	for _, agent := range []memory.AgentID{{}, p.f.agent} {
		topics, _, err := store.Topics(ctx, p.user, memory.TopicQuery{Agent: agent})
		check(r, err)
		add(topics)
		for _, other := range people {
			topics, _, err = store.Topics(ctx, p.user, memory.TopicQuery{Agent: agent, Name: other.canary})
			check(r, err)
			add(topics)
		}
	}
	check(r, store.ExportMemory(ctx, p.user, func(record memory.Record) error { add(record); return nil }))
	for _, other := range people {
		query := memory.WordQuery{Words: []memory.WeightedWord{{Text: other.canary, Weight: 1}, {Text: "say", Weight: 1}}}
		add(must(store.SearchWords(ctx, p.user, query))(r))
		add(must(store.SearchSummaries(ctx, p.user, query))(r))
	}
	check(r, store.Texts(ctx, p.user, memory.TextQuery{}, func(text memory.StoredText) bool { add(text); return true }))
	check(r, store.Export(ctx, p.user, func(record memory.Record) error { add(record); return nil }))
	return seen.String()
}

func (p *person) reachesNothingOf(r *rapid.T, other *person) {
	ctx, store := p.f.t.Context(), p.f.store
	for _, id := range other.sessions {
		_, err := store.Session(ctx, p.user, id)
		wants(r, err, memory.ErrNotFound)
		wants(r, store.DeleteSession(ctx, p.user, id), memory.ErrNotFound)
		wants(r, store.NameSession(ctx, p.user, id, "work"), memory.ErrNotFound)
		_, err = store.Fork(ctx, p.user, id, 0, at)
		wants(r, err, memory.ErrNotFound)
		_, err = store.UnseenMessages(ctx, p.user, id, memory.MessageQuery{})
		wants(r, err, memory.ErrNotFound)
	}
	before := p.f.lines(r, store, other.user)
	_, revision, err := store.Topics(ctx, p.user, memory.TopicQuery{})
	check(r, err)
	for _, x := range other.learned {
		_, err = store.CommitDream(ctx, p.user, revision, memory.Dream{Agent: p.f.agent, Extractions: []memory.ExtractionID{x.ID}, At: at})
		wants(r, err, memory.ErrNotFound)
	}
	for _, id := range other.topics {
		_, err = store.CommitDream(ctx, p.user, revision, memory.Dream{Agent: p.f.agent, At: at, Topics: []memory.NewTopic{{Name: "x", Content: "x", Supersedes: []memory.TopicID{id}}}})
		wants(r, err, memory.ErrNotFound)
	}
	for _, m := range other.messages {
		_, err = store.CommitDream(ctx, p.user, revision, memory.Dream{Agent: p.f.agent, At: at, Topics: []memory.NewTopic{{Name: "x", Content: "x", Sources: []memory.MessageID{m.ID}}}})
		wants(r, err, memory.ErrInvalid)
	}
	for _, agent := range []memory.AgentID{{}, p.f.agent} {
		_, err = store.DeleteTopic(ctx, p.user, agent, other.canary)
		wants(r, err, memory.ErrNotFound)
	}
	if after := p.f.lines(r, store, other.user); !slices.Equal(after, before) {
		r.Errorf("%s changed what %s has", p.canary, other.canary)
	}
	for _, m := range other.messages {
		_, err := store.Message(ctx, p.user, m.ID)
		wants(r, err, memory.ErrNotFound)
	}
	for _, id := range other.summaries {
		_, _, err := store.Summary(ctx, p.user, id)
		wants(r, err, memory.ErrNotFound)
		_, err = store.Sources(ctx, p.user, id)
		wants(r, err, memory.ErrNotFound)
		_, err = store.Expand(ctx, p.user, id, memory.MessageQuery{})
		wants(r, err, memory.ErrNotFound)
	}
}
