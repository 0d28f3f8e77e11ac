package gateway

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/memory"
)

// Bounds are those of a handler that a test may change; zero leaves one as it is.
type Bounds struct {
	// Alive is how long a stream is silent before it says that it lives.
	Alive time.Duration
	// Room is how many bytes of bodies may be in memory.
	Room int
}

// NewFor is New with something in place of the host.
func NewFor(c Config, h relayer, b Bounds) http.Handler {
	s := newServer(c, h)
	if b.Alive != 0 {
		s.alive = b.Alive
	}
	if b.Room != 0 {
		s.room = newAllotment(b.Room)
	}
	return s.handler()
}

// Allotment is the room for the bodies of all users.
type Allotment struct{ of *allotment }

// NewAllotment returns one of so many bytes.
func NewAllotment(size int) Allotment { return Allotment{newAllotment(size)} }

// Take reports whether there were n bytes for a user, who has them then.
func (a Allotment) Take(user memory.UserID, n int) bool { return a.of.take(user, n) }

// Give takes n bytes back.
func (a Allotment) Give(user memory.UserID, n int) { a.of.give(user, n) }

// Known counts the users of whom there is a record.
func (a Allotment) Known() int { return len(a.of.taken) }

// The bounds of a body.
const (
	MaxBody   = maxBody
	MaxBodies = maxBodies
	MaxDepth  = maxDepth
	MaxValues = maxValues
)

// ParseChat reads the body of a request for a chat completion.
func ParseChat(body []byte) (*host.Conversation, error) {
	return parsed(body, (*chatRequest).fill)
}

// ParseMessages reads the body of a request for a message.
func ParseMessages(body []byte) (*host.Conversation, error) {
	return parsed(body, func(r *messagesRequest, c *host.Conversation) error { return r.into(c, true) })
}

// ParseResponses reads the body of a request for a response.
func ParseResponses(body []byte) (*host.Conversation, error) {
	return parsed(body, func(r *responsesRequest, c *host.Conversation) error { return r.into(c, nil) })
}

func parsed[R any](body []byte, into func(*R, *host.Conversation) error) (*host.Conversation, error) {
	var asked R
	c := new(host.Conversation)
	if err := decode(body, &asked); err != nil {
		return c, err
	}
	return c, into(&asked, c)
}

// Fault is what a client is told of an error.
type Fault struct {
	Status               int
	Code, Param, Message string
}

// FaultOf is what a client is told of err, if it is known what that is.
func FaultOf(err error) (Fault, bool) {
	f, ok := errors.AsType[*fault](err)
	if !ok {
		return Fault{}, false
	}
	return Fault{f.status, f.code, f.param, f.message}, true
}

// ResponseID is the id of a response.
func ResponseID(session memory.SessionID, key string) string {
	return responseID{session, key}.String()
}

// ParseResponseID reads one.
func ParseResponseID(s string) (session memory.SessionID, key string, ok bool) {
	id, ok := parseResponseID(s)
	return id.session, id.key, ok
}

// ResponseTo is an answer to the body of a request, that nothing was said of yet, as
// it is sent.
func ResponseTo(body []byte) ([]byte, error) {
	var asked responsesRequest
	if err := decode(body, &asked); err != nil {
		return nil, err
	}
	return json.Marshal(responsesOf(asked, responseID{memory.NewID[memory.SessionID](), newResponseKey()}, time.Unix(1, 0)))
}
