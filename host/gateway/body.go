package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/gloveboxhq/glovebox/abi/jsonsize"
	"github.com/gloveboxhq/glovebox/abi/strictjson"
	"github.com/gloveboxhq/glovebox/memory"
)

const (
	// maxBody bounds one request, pictures included; maxBodies all that are in memory
	// at once, of which one user has at most half.
	maxBody, maxBodies = 32 << 20, 256 << 20
	// bodyTimeout is how long a request may take to come.
	bodyTimeout = time.Minute
	// maxDepth bounds how deep a request nests, maxValues how many members and elements
	// it has: what is decoded from two bytes takes some hundred.
	maxDepth, maxValues = 64, 200_000

	jsonType = "application/json"
)

// allotment is the room for the bodies of all users.
type allotment struct {
	mu sync.Mutex
	// free and taken are guarded by mu. A user's part is half of all there is.
	free  int
	share int
	taken map[memory.UserID]int
}

func newAllotment(size int) *allotment {
	return &allotment{free: size, share: size / 2, taken: map[memory.UserID]int{}}
}

// take reports whether there were n bytes for a user, who has them then.
func (a *allotment) take(user memory.UserID, n int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n > a.free || n > a.share-a.taken[user] {
		return false
	}
	a.free -= n
	a.taken[user] += n
	return true
}

func (a *allotment) give(user memory.UserID, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.free += n
	if a.taken[user] -= n; a.taken[user] == 0 {
		delete(a.taken, user)
	}
}

// read decodes the body of a request into v, which passes over fields that it does
// not have. What the body takes in memory is the caller's until done is called, also
// after an error. Errors are faults.
func (s *server) read(w http.ResponseWriter, r *http.Request, v any) (done func(), err error) {
	user, taken := s.user(r.Context()), 0
	done = func() { s.room.give(user, taken) }
	kind, parameters, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if charset, named := parameters["charset"]; err != nil || kind != jsonType || named && !strings.EqualFold(charset, "utf-8") {
		return done, refuse(http.StatusUnsupportedMediaType, "", "send the body as "+jsonType)
	}
	if r.Header.Get("Content-Encoding") != "" {
		return done, refuse(http.StatusUnsupportedMediaType, "", "send the body without a content encoding")
	}
	if r.ContentLength > maxBody {
		return done, tooLarge()
	}
	connection := http.NewResponseController(w)
	_ = connection.SetReadDeadline(time.Now().Add(bodyTimeout))
	// Lifted, so that a caller who goes away during a long answer is noticed.
	defer func() { _ = connection.SetReadDeadline(time.Time{}) }()

	// As much as has come is taken, not as much as is announced: who announces and
	// does not send keeps nobody out.
	var data []byte
	from := http.MaxBytesReader(w, r.Body, maxBody)
	for ended := false; !ended; {
		if len(data) == cap(data) {
			more := max(64<<10, min(cap(data), maxBody-cap(data)), 1)
			if r.ContentLength > 0 && int(r.ContentLength) >= len(data) {
				more = min(more, int(r.ContentLength)+1-len(data))
			}
			if !s.room.take(user, more) {
				f := refuse(http.StatusServiceUnavailable, "", "too much is being answered at once: come back soon")
				f.retryAfter = time.Second
				return done, f
			}
			taken += more
			grown := make([]byte, len(data), cap(data)+more)
			copy(grown, data)
			data = grown
		}
		n, err := from.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		switch _, tooLong := errors.AsType[*http.MaxBytesError](err); {
		case err == nil:
		case err == io.EOF:
			ended = true
		case tooLong:
			return done, tooLarge()
		case errors.Is(err, os.ErrDeadlineExceeded):
			return done, refuse(http.StatusRequestTimeout, "", "the body took too long to come")
		default:
			return done, badf("", "the body did not come whole")
		}
	}
	return done, decode(data, v)
}

func tooLarge() *fault {
	return refuse(http.StatusRequestEntityTooLarge, "", "the body is longer than "+strconv.Itoa(maxBody>>20)+" MiB")
}

// decode reads one JSON object into v, in linear time and memory. Of a field that
// is there twice the last one counts.
func decode(data []byte, v any) error {
	switch size := jsonsize.Of(data); {
	case size.Depth > maxDepth:
		return badf("", "the body nests deeper than %d", maxDepth)
	case size.Values > maxValues:
		return badf("", "the body has more than %d values", maxValues)
	}
	if !utf8.Valid(data) {
		return badf("", "the body is not UTF-8")
	}
	if first := bytes.TrimLeft(data, " \t\r\n"); len(first) == 0 || first[0] != '{' {
		return badf("", "the body is not a JSON object")
	}
	err := json.Unmarshal(data, v)
	if err == nil {
		return nil
	}
	if f, ok := errors.AsType[*fault](err); ok {
		return f
	}
	wrong := strictjson.Explain(data, v, err)
	if wrong.Path == "" {
		return badf("", "the body: %s", wrong.Problem)
	}
	return badf(wrong.Path, "%s", wrong.Problem)
}
