package control

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gloveboxhq/glovebox/abi/strictjson"
	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/transfer"
)

// errPrecondition says that what a caller had read is no longer so.
var errPrecondition = errors.New("the precondition does not hold")

func (s *server) topics(w http.ResponseWriter, r *http.Request, at place) error {
	topics, revision, err := s.store.Topics(r.Context(), at.user.ID, memory.TopicQuery{Agent: at.agent.ID, At: s.now()})
	if err != nil {
		return err
	}
	return s.writeTopics(w, r, revision, struct {
		Topics []memory.Remembered `json:"topics"`
	}{memory.ByName(topics)})
}

func (s *server) topic(w http.ResponseWriter, r *http.Request, at place) error {
	name, err := topicAt(r, at)
	if err != nil {
		return err
	}
	topics, revision, err := s.store.Topics(r.Context(), at.user.ID, memory.TopicQuery{Agent: at.agent.ID, Name: name})
	if err != nil {
		return err
	}
	if len(topics) == 0 {
		return noTopic()
	}
	return s.writeTopics(w, r, revision, memory.WithHistory(name, topics, s.now()))
}

// topicAt returns the name of the topic in the path.
func topicAt(r *http.Request, at place) (string, error) {
	written := r.PathValue("topic")
	if at.agent.Name == "" {
		// The path says audit, export or import itself, which no topic is called.
		switch written {
		case "audit", "export":
			return "", noMethod("GET, HEAD")
		case "import":
			return "", noMethod("POST")
		}
	}
	if !utf8.ValidString(written) {
		return "", refuse(http.StatusBadRequest, "the topic is not UTF-8")
	}
	return memory.TopicName(written)
}

// writeTopics answers with what was read of a user's topics. The tag names the
// revision, which a later PUT may insist on, and the answer itself: what has
// expired is gone from it without a new revision.
func (s *server) writeTopics(w http.ResponseWriter, r *http.Request, revision memory.TopicRevision, v any) error {
	body, err := encodeJSON(v)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(body)
	tag := revisionTag(revision) + "." + hex.EncodeToString(sum[:8])
	w.Header().Set("ETag", strconv.Quote(tag))
	for _, known := range tagsOf(r.Header, "If-None-Match") {
		if known == tag || known == anyTag {
			w.WriteHeader(http.StatusNotModified)
			return nil
		}
	}
	return writeBody(w, http.StatusOK, jsonType, body)
}

// revisionTag begins the tags of a revision, up to a dot: the number may be less
// than zero.
func revisionTag(r memory.TopicRevision) string { return strconv.FormatInt(r.Number(), 10) }

const anyTag = "*"

// tagsOf returns the entity tags of a header, without their quotes, and without the
// W/ that a proxy which packs answers puts before them: what is compared is the
// revision, not the bytes.
func tagsOf(h http.Header, name string) []string {
	var tags []string
	for _, value := range h.Values(name) {
		for tag := range strings.SplitSeq(value, ",") {
			tag = strings.TrimPrefix(strings.TrimSpace(tag), "W/")
			if tag == anyTag {
				tags = append(tags, tag)
			} else if len(tag) >= 2 && tag[0] == '"' && tag[len(tag)-1] == '"' {
				tags = append(tags, tag[1:len(tag)-1])
			}
		}
	}
	return tags
}

func (s *server) putTopic(w http.ResponseWriter, r *http.Request, at place) error {
	name, err := topicAt(r, at)
	if err != nil {
		return err
	}
	var asked struct {
		Content   *string    `json:"content"`
		ExpiresAt *time.Time `json:"expires_at"`
	}
	if err := readBody(w, r, &asked); err != nil {
		return err
	}
	now := s.now()
	topic := memory.NewTopic{Name: name}
	switch {
	case asked.Content == nil || strings.TrimSpace(*asked.Content) == "":
		return refuse(http.StatusBadRequest, "content says what is to be remembered; DELETE forgets a topic")
	case asked.ExpiresAt != nil && !asked.ExpiresAt.After(now):
		return refuse(http.StatusBadRequest, "expires_at has passed")
	}
	topic.Content = *asked.Content
	if asked.ExpiresAt != nil {
		topic.ExpiresAt = *asked.ExpiresAt
	}
	revision, err := s.precondition(r, at, name)
	if err != nil {
		return err
	}
	stored, err := s.store.PutTopic(r.Context(), at.user.ID, at.agent.ID, revision, topic, now)
	if errors.Is(err, memory.ErrConflict) && revision != (memory.TopicRevision{}) {
		return fmt.Errorf("%w: %w", errPrecondition, err)
	} else if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, stored)
}

// precondition returns the revision that If-Match insists on, the zero one if it
// does not. The revision is of all topics of the user: any change is one.
func (s *server) precondition(r *http.Request, at place, name string) (memory.TopicRevision, error) {
	if r.Header.Get("If-Match") == "" {
		return memory.TopicRevision{}, nil
	}
	topics, revision, err := s.store.Topics(r.Context(), at.user.ID, memory.TopicQuery{Agent: at.agent.ID, Name: name, Limit: 1})
	if err != nil {
		return memory.TopicRevision{}, err
	}
	for _, tag := range tagsOf(r.Header, "If-Match") {
		if tag == anyTag && len(topics) > 0 || strings.HasPrefix(tag, revisionTag(revision)+".") {
			return revision, nil
		}
	}
	return memory.TopicRevision{}, errPrecondition
}

func (s *server) deleteTopic(w http.ResponseWriter, r *http.Request, at place) error {
	name, err := topicAt(r, at)
	if err != nil {
		return err
	}
	deleted, err := s.store.DeleteTopic(r.Context(), at.user.ID, at.agent.ID, name)
	if errors.Is(err, memory.ErrNotFound) {
		return noTopic()
	} else if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, struct {
		Deleted        int  `json:"deleted"`
		ResiduePending bool `json:"residue_pending"`
	}{deleted, !s.scrub(r.Context())})
}

// scrub removes the last trace of what was deleted. What is deleted stays so if
// that fails: the next start tries again.
func (s *server) scrub(ctx context.Context) (clean bool) {
	clean, err := s.store.Scrub(ctx)
	if err != nil {
		s.log.WarnContext(ctx, "what was deleted is still in the files", "error", err)
	}
	return clean && err == nil
}

func (s *server) wipeMemory(w http.ResponseWriter, r *http.Request, at place) error {
	report, err := s.host.WipeMemory(r.Context(), at.user.ID, at.agent.ID)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, struct {
		memory.WipeCounts
		ResiduePending bool `json:"residue_pending"`
	}{report.WipeCounts, report.ResiduePending})
}

func (s *server) audit(w http.ResponseWriter, r *http.Request, at place) error {
	q := at.query
	after, limit := q.extraction("after"), q.limit(100, 1000)
	if q.err != nil {
		return q.err
	}
	// One more than asked for tells whether there are any.
	extractions, err := s.store.Extractions(r.Context(), at.user.ID, memory.ExtractionQuery{After: after, Limit: limit + 1})
	if err != nil {
		return err
	}
	agents, err := s.store.Agents(r.Context())
	if err != nil {
		return err
	}
	var page struct {
		Events    []memory.LearningEvent `json:"events"`
		NextAfter memory.ExtractionID    `json:"next_after,omitzero"`
	}
	if len(extractions) > limit {
		extractions = extractions[:limit]
		page.NextAfter = extractions[limit-1].ID
	}
	page.Events = memory.Audit(extractions, agents)
	return writeJSON(w, http.StatusOK, page)
}

func (s *server) exportMemory(w http.ResponseWriter, r *http.Request, at place) error {
	now := s.now()
	var document bytes.Buffer
	if err := transfer.ExportMemory(r.Context(), s.store, at.user.ID, now, &document); err != nil {
		return err
	}
	w.Header().Set("Content-Disposition", attachment("memory", at.user, now, "json"))
	return writeBody(w, http.StatusOK, jsonType, document.Bytes())
}

// attachment names a file of a user.
func attachment(what string, user memory.User, now time.Time, ending string) string {
	return mime.FormatMediaType("attachment", map[string]string{"filename": what + "_" + user.Name + "_" + now.UTC().Format("20060102") + "." + ending})
}

func (s *server) importMemory(w http.ResponseWriter, r *http.Request, at place) error {
	if _, busy := s.importers.LoadOrStore(at.user.ID, true); busy {
		return refuse(http.StatusConflict, "another import for this user is going on")
	}
	defer s.importers.Delete(at.user.ID)
	select {
	case s.importing <- struct{}{}:
		defer func() { <-s.importing }()
	case <-r.Context().Done():
		return r.Context().Err()
	}
	body, done, err := jsonBody(w, r, transfer.MaxMemoryDocument, importTimeout)
	if err != nil {
		return err
	}
	defer done()
	report, err := transfer.ImportMemory(r.Context(), s.store, at.user.ID, body)
	if wrong, ok := errors.AsType[*strictjson.Error](err); ok {
		return refuse(http.StatusBadRequest, "body: "+wrong.Error())
	} else if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, report)
}
