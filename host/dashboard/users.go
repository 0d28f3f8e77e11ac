package dashboard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/control"
	"github.com/gloveboxhq/glovebox/memory"
)

var userRoutes = []route{
	{"GET /users", control.ForAdmin, (*site).usersPage},
	{"GET /users/{user}", control.ForUser, (*site).memoryPage},
	{"GET /users/{user}/audit", control.ForUser, (*site).auditPage},
	{"GET /users/{user}/topic", control.ForUser, (*site).topicPage},
	{"POST /users/{user}/topic", control.ForUser, (*site).putTopic},
	{"POST /users/{user}/topic/delete", control.ForUser, (*site).deleteTopic},
	{"POST /users/{user}/memory/delete", control.ForUser, (*site).deleteMemory},
	{"GET /users/{user}/data", control.ForAdmin, (*site).dataPage},
	{"POST /users/{user}/delete", control.ForAdmin, (*site).deleteUser},
}

func (s *site) usersPage(w http.ResponseWriter, r *http.Request, v viewer) error {
	number, before := pageOf(r, math.MaxInt32)
	before = min(before, len(v.users))
	after := min(before+pageSize, len(v.users))
	return s.show(w, r, v, page{Name: "users", Title: "Users", Room: roomUsers, Data: struct {
		Users []memory.User
		Pager pager
	}{v.users[before:after], pagerAt(r, number, after < len(v.users))}})
}

// room is where pages about a user are: one's own are not among others'.
func (v viewer) room() string {
	if v.Admin {
		return roomUsers
	}
	return roomMemory
}

// tab is one page of a user.
type tab struct {
	Name, Path string
	Here       bool
}

// Tabs are the pages of the user, of which one is here.
func (v viewer) tabs(here string) []tab {
	all := []tab{{"Memory", v.Path(), here == "Memory"}, {"Extraction Audit", v.Path("audit"), here == "Extraction Audit"}}
	if v.Admin {
		all = append(all, tab{"All data", v.Path("data"), here == "All data"})
	}
	return all
}

// userData is what the pages of a user have in common.
type userData struct {
	Tabs []tab
	// Wrong says what of a form was not as it should be.
	Wrong string
}

// userTitle is the heading of the pages of a user.
func (v viewer) userTitle() string {
	if v.Admin {
		return "User " + v.User.Name
	}
	return "What is remembered"
}

// topics are what is remembered of a user, with every agent or with one.
type topics struct {
	// Agent is its name, "" for all.
	Agent string
	List  []shownTopic
}

// shownTopic is one line of a list.
type shownTopic struct {
	memory.Remembered
	Path string
	// Begin is the beginning of what it says.
	Begin string
}

// topicPath is the page of a topic. The name is anybody's words, and stands in the
// query, where it may have slashes and dots.
func (v viewer) topicPath(agent, name string) string {
	q := url.Values{"name": {name}}
	if agent != "" {
		q.Set("agent", agent)
	}
	return v.Path("topic") + "?" + q.Encode()
}

// memoryData is what the tab Memory shows.
type memoryData struct {
	userData
	Memory []topics
	Pager  pager
	Empty  bool
	// Agent, Name and Content are what was filled in.
	Agent, Name, Content string
	// Export is where the file is.
	Export string
	// Confirm says what to type to delete all.
	Confirm confirmation
}

// confirmation is a form that deletes something once its phrase was typed.
type confirmation struct {
	// ID begins the ids of its parts.
	ID, Action, Phrase, Button, About string
	Wrong                             string
}

// given reports whether the phrase was typed.
func (c confirmation) given(r *http.Request) bool {
	return strings.TrimSpace(r.PostForm.Get("confirm")) == c.Phrase
}

func (v viewer) confirmMemory() confirmation {
	return confirmation{
		ID: "all", Action: v.Path("memory", "delete"), Phrase: v.User.Name, Button: "Delete all memory",
		About: "All topics with their history and the record of what was learned go, for good. Conversations stay, and what was said so far is not learned from again.",
	}
}

func (v viewer) confirmUser() confirmation {
	return confirmation{
		ID: "user", Action: v.Path("delete"), Phrase: v.User.Name, Button: "Delete everything of the user",
		About: "Conversations, summaries, memory, and what hands keep of the user go, for good. A turn that goes on ends. There is no way back but an export.",
	}
}

func (s *site) memoryPage(w http.ResponseWriter, r *http.Request, v viewer) error {
	return s.showMemory(w, r, v, http.StatusOK, memoryData{Confirm: v.confirmMemory()})
}

func (s *site) showMemory(w http.ResponseWriter, r *http.Request, v viewer, status int, data memoryData) error {
	data.Tabs = v.tabs("Memory")
	data.Export = "/api/users/" + v.User.ID.String() + "/memory/export"
	data.Empty = true
	number, before := pageOf(r, math.MaxInt32)
	more, now := false, s.now()
	agents := append([]host.AgentInfo{{}}, s.host.Agents()...)
	for _, a := range agents {
		if a.Name != "" && a.ID.IsZero() {
			continue
		}
		q := memory.TopicQuery{Agent: a.ID, At: now, Names: pageSize + 1, SkipNames: before}
		found, _, err := s.store.Topics(r.Context(), v.User.ID, q)
		if err == nil && len(found) == 0 && before > 0 && data.Empty {
			// Is there nothing, or nothing any more?
			q.Names, q.SkipNames, q.Limit = 1, 0, 1
			var any []memory.Topic
			any, _, err = s.store.Topics(r.Context(), v.User.ID, q)
			data.Empty = len(any) == 0
		}
		if err != nil {
			return err
		}
		if len(found) == 0 {
			continue
		}
		data.Empty = false
		here := memory.ByName(found)
		more = more || len(here) > pageSize
		list := topics{Agent: a.Name}
		for _, t := range here[:min(len(here), pageSize)] {
			list.List = append(list.List, shownTopic{t, v.topicPath(a.Name, t.Name), excerpt(t.Content)})
		}
		data.Memory = append(data.Memory, list)
	}
	data.Pager = pagerAt(r, number, more)
	return s.show(w, r, v, page{Name: "user", Title: v.userTitle(), Room: v.room(), Data: data, Status: status})
}

// maxSources is how many messages a topic's line shows that it was learned from,
// maxItems how many lines its page has of what holds, and of what held last.
const maxSources, maxItems = 10, 50

// topicData is what the page of a topic shows.
type topicData struct {
	userData
	memory.TopicHistory
	Now, Was []shownItem
	// MoreNow and MoreWas are how many stand before those.
	MoreNow, MoreWas int
	// Revision is that of all topics of the user, which a change insists on.
	Revision int64
	Agent    string
	// Content and Expires are what is in the form.
	Content, Expires string
}

// shownItem is one line of a topic, and what it was learned from.
type shownItem struct {
	memory.Topic
	From []shownSource
	// More is how many sources are not shown, Gone how many are not there any more.
	More, Gone int
}

// shownSource is a message that something was learned from.
type shownSource struct {
	memory.Message
	Path, Text string
}

// errNoTopic says that a topic is not there, or not any more.
var errNoTopic = refused(http.StatusNotFound, "Nothing is remembered of that topic.")

// topicNamed reads which topic a request is about.
func (s *site) topicNamed(values url.Values) (agent host.AgentInfo, name string, err error) {
	if chosen := values.Get("agent"); chosen != "" {
		i := slices.IndexFunc(s.host.Agents(), func(a host.AgentInfo) bool { return a.Name == chosen })
		if i < 0 {
			return agent, "", refused(http.StatusNotFound, "There is no such agent.")
		}
		agent = s.host.Agents()[i]
	}
	name, err = memory.TopicName(values.Get("name"))
	return agent, name, err
}

func (s *site) topicPage(w http.ResponseWriter, r *http.Request, v viewer) error {
	agent, name, err := s.topicNamed(r.URL.Query())
	if err != nil {
		return err
	}
	return s.showTopic(w, r, v, http.StatusOK, agent, name, topicData{})
}

func (s *site) showTopic(w http.ResponseWriter, r *http.Request, v viewer, status int, agent host.AgentInfo, name string, data topicData) error {
	found, revision, err := s.store.Topics(r.Context(), v.User.ID, memory.TopicQuery{Agent: agent.ID, Name: name})
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return errNoTopic
	}
	data.Tabs = v.tabs("")
	data.TopicHistory = memory.WithHistory(name, found, s.now())
	data.Revision, data.Agent = revision.Number(), agent.Name
	if data.Wrong == "" {
		data.Content = strings.ReplaceAll(data.TopicHistory.Content, "\n", " ")
		if at := data.ExpiresAt; !at.IsZero() {
			data.Expires = at.UTC().Format(minuteForm)
		}
	}
	data.MoreNow, data.MoreWas = max(0, len(data.Items)-maxItems), max(0, len(data.History)-maxItems)
	if data.Now, err = s.itemsOf(r.Context(), v, data.Items[data.MoreNow:]); err != nil {
		return err
	}
	if data.Was, err = s.itemsOf(r.Context(), v, data.History[data.MoreWas:]); err != nil {
		return err
	}
	return s.show(w, r, v, page{Name: "topic", Title: name, Room: v.room(), Data: data, Status: status})
}

// itemsOf adds to topics what they were learned from.
func (s *site) itemsOf(ctx context.Context, v viewer, list []memory.Topic) ([]shownItem, error) {
	var all []shownItem
	for _, t := range list {
		item := shownItem{Topic: t, More: max(0, len(t.Sources)-maxSources)}
		for _, id := range t.Sources[:len(t.Sources)-item.More] {
			m, err := s.store.Message(ctx, v.User.ID, id)
			if errors.Is(err, memory.ErrNotFound) {
				item.Gone++
				continue
			} else if err != nil {
				return nil, err
			}
			item.From = append(item.From, shownSource{m, v.Path("sessions", m.Session, "messages", m.ID), excerpt(memory.Shown(m.Blocks))})
		}
		all = append(all, item)
	}
	return all, nil
}

// excerpt is the beginning of a text, on one line.
func excerpt(text string) string {
	const most = 160
	words := strings.Join(strings.Fields(text[:min(len(text), 8*most)]), " ")
	if runes := []rune(strings.ToValidUTF8(words, "")); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return strings.ToValidUTF8(words, "")
}

func (s *site) putTopic(w http.ResponseWriter, r *http.Request, v viewer) error {
	if err := readForm(w, r); err != nil {
		return err
	}
	form := func(name string) string { return r.PostForm.Get(name) }
	isNew := !r.PostForm.Has("revision")
	agent, name, err := s.topicNamed(r.PostForm)
	wrong := func(detail string) error {
		if isNew {
			return s.showMemory(w, r, v, http.StatusUnprocessableEntity, memoryData{
				userData: userData{Wrong: detail}, Agent: agent.Name, Name: form("name"), Content: form("content"), Confirm: v.confirmMemory()})
		}
		err := s.showTopic(w, r, v, http.StatusUnprocessableEntity, agent, name, topicData{
			userData: userData{Wrong: detail}, Content: form("content"), Expires: form("expires")})
		if !errors.Is(err, errNoTopic) || strings.TrimSpace(form("content")) == "" {
			return err
		}
		return s.showMemory(w, r, v, http.StatusUnprocessableEntity, memoryData{
			userData: userData{Wrong: "The topic was deleted meanwhile. Here are your words, should they be remembered again."},
			Agent:    agent.Name, Name: name, Content: form("content"), Confirm: v.confirmMemory()})
	}
	switch {
	case isNew && errors.Is(err, memory.ErrInvalid):
		return wrong("Give it a name of at most 200 bytes.")
	case err != nil:
		return err
	case strings.TrimSpace(form("content")) == "":
		return wrong("Say what is to be remembered.")
	}
	now := s.now()
	topic := memory.NewTopic{Name: name, Content: form("content")}
	if at := form("expires"); at != "" {
		if topic.ExpiresAt, err = time.Parse(minuteForm, at); err != nil || !topic.ExpiresAt.After(now) {
			return wrong("It may hold until a time to come, or for good.")
		}
	}
	var revision memory.TopicRevision
	if isNew {
		// What is there is not replaced by who did not see it.
		found, read, err := s.store.Topics(r.Context(), v.User.ID, memory.TopicQuery{Agent: agent.ID, Name: name, At: now, Limit: 1})
		if err != nil {
			return err
		}
		if len(found) > 0 {
			return wrong("There is a topic of that name: open it to change it.")
		}
		revision = read
	} else {
		number, err := strconv.ParseInt(form("revision"), 10, 64)
		if err != nil {
			return refused(http.StatusBadRequest, "The form cannot be read.")
		}
		revision = memory.NewTopicRevision(v.User.ID, number)
	}
	switch _, err := s.store.PutTopic(r.Context(), v.User.ID, agent.ID, revision, topic, now); {
	case errors.Is(err, memory.ErrConflict):
		return wrong("Something of this user was changed meanwhile. Here is what is remembered now, and your words.")
	case errors.Is(err, memory.ErrInvalid):
		return wrong("That cannot be stored: it is too long, or has characters that are none of a text.")
	case err != nil:
		return err
	}
	return s.saved(w, r, v, agent.Name, name)
}

// saved goes to the page of a topic.
func (s *site) saved(w http.ResponseWriter, r *http.Request, v viewer, agent, name string) error {
	http.Redirect(w, r, v.topicPath(agent, name)+"&notice=saved", http.StatusSeeOther)
	return nil
}

func (s *site) deleteTopic(w http.ResponseWriter, r *http.Request, v viewer) error {
	if err := readForm(w, r); err != nil {
		return err
	}
	agent, name, err := s.topicNamed(r.PostForm)
	if err != nil {
		return err
	}
	if _, err := s.store.DeleteTopic(r.Context(), v.User.ID, agent.ID, name); errors.Is(err, memory.ErrNotFound) {
		return errNoTopic
	} else if err != nil {
		return err
	}
	// What is deleted stays so if this fails: the next start tries again.
	clean, err := s.store.Scrub(r.Context())
	if err != nil {
		s.log.LogAttrs(r.Context(), slog.LevelWarn, "what was deleted is still in the files", slog.Any("error", err))
	}
	return redirect(w, r, v.Path(), noticeOf("topic-deleted", !clean || err != nil))
}

// noticeOf says that something was deleted, or that a trace of it is left.
func noticeOf(deleted string, residue bool) string {
	if residue {
		return "residue"
	}
	return deleted
}

func (s *site) deleteMemory(w http.ResponseWriter, r *http.Request, v viewer) error {
	if err := readForm(w, r); err != nil {
		return err
	}
	confirm := v.confirmMemory()
	if !confirm.given(r) {
		confirm.Wrong = "Nothing was deleted: type " + strconv.Quote(confirm.Phrase) + " to confirm."
		return s.showMemory(w, r, v, http.StatusUnprocessableEntity, memoryData{Confirm: confirm})
	}
	report, err := s.host.WipeMemory(r.Context(), v.User.ID, memory.AgentID{})
	if err != nil {
		return err
	}
	return redirect(w, r, v.Path(), noticeOf("memory-deleted", report.ResiduePending))
}

func (s *site) auditPage(w http.ResponseWriter, r *http.Request, v viewer) error {
	var after memory.ExtractionID
	if text := r.URL.Query().Get("after"); text != "" {
		var err error
		if after, err = memory.ParseID[memory.ExtractionID](text); err != nil {
			return refused(http.StatusNotFound, "There is no such page.")
		}
	}
	extractions, err := s.store.Extractions(r.Context(), v.User.ID, memory.ExtractionQuery{After: after, Limit: pageSize + 1})
	if err != nil {
		return fmt.Errorf("read extractions: %w", err)
	}
	agents, err := s.store.Agents(r.Context())
	if err != nil {
		return fmt.Errorf("read agents: %w", err)
	}
	data := struct {
		userData
		Events      []memory.LearningEvent
		First, Next string
	}{userData: userData{Tabs: v.tabs("Extraction Audit")}}
	if !after.IsZero() {
		data.First = v.Path("audit")
	}
	if len(extractions) > pageSize {
		extractions = extractions[:pageSize]
		data.Next = v.Path("audit") + "?" + url.Values{"after": {extractions[pageSize-1].ID.String()}}.Encode()
	}
	data.Events = memory.Audit(extractions, agents)
	return s.show(w, r, v, page{Name: "audit", Title: v.userTitle(), Room: v.room(), Data: data})
}

// allData is what the tab of a user's whole data shows.
type allData struct {
	userData
	Export  string
	Confirm confirmation
}

func (s *site) dataPage(w http.ResponseWriter, r *http.Request, v viewer) error {
	return s.showData(w, r, v, http.StatusOK, v.confirmUser())
}

func (s *site) showData(w http.ResponseWriter, r *http.Request, v viewer, status int, confirm confirmation) error {
	return s.show(w, r, v, page{Name: "data", Title: v.userTitle(), Room: v.room(), Status: status, Data: allData{
		userData: userData{Tabs: v.tabs("All data")}, Export: "/api/users/" + v.User.ID.String() + "/export", Confirm: confirm}})
}

func (s *site) deleteUser(w http.ResponseWriter, r *http.Request, v viewer) error {
	if err := readForm(w, r); err != nil {
		return err
	}
	confirm := v.confirmUser()
	if !confirm.given(r) {
		confirm.Wrong = "Nothing was deleted: type " + strconv.Quote(confirm.Phrase) + " to confirm."
		return s.showData(w, r, v, http.StatusUnprocessableEntity, confirm)
	}
	report, err := s.host.WipeUser(r.Context(), v.User.ID)
	if err != nil {
		return err
	}
	return redirect(w, r, "/users", noticeOf("user-deleted", report.ResiduePending))
}
