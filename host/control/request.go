package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gloveboxhq/glovebox/abi/strictjson"
	"github.com/gloveboxhq/glovebox/memory"
)

// maxBody bounds the body of every request but an import, maxDepth how deep it nests.
const maxBody, maxDepth = 1 << 20, 16

const jsonType = "application/json"

// bytesText writes a power of two.
func bytesText(n int64) string {
	if n >= 1<<20 {
		return strconv.FormatInt(n>>20, 10) + " MiB"
	}
	return strconv.FormatInt(n, 10) + " bytes"
}

// readBody reads a JSON body of up to limit bytes into v, which it must fit
// exactly.
func readBody(w http.ResponseWriter, r *http.Request, v any) error {
	body, done, err := jsonBody(w, r, maxBody, bodyTimeout)
	if err != nil {
		return err
	}
	defer done()
	data, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	if err := strictjson.Object(data, v, strictjson.Limits{Bytes: maxBody, Depth: maxDepth}); err != nil {
		return refuse(http.StatusBadRequest, "body: "+err.Error())
	}
	return nil
}

// jsonBody returns a bounded body that says it is JSON. It comes in time or is an
// error; after done the connection is as before, so that a caller who goes away
// during a long answer is noticed.
func jsonBody(w http.ResponseWriter, r *http.Request, limit int64, within time.Duration) (_ io.Reader, done func(), err error) {
	kind, parameters, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if charset, named := parameters["charset"]; err != nil || kind != jsonType || named && !strings.EqualFold(charset, "utf-8") {
		return nil, nil, refuse(http.StatusUnsupportedMediaType, "send the body as "+jsonType).with("Accept", jsonType)
	}
	if r.Header.Get("Content-Encoding") != "" {
		return nil, nil, refuse(http.StatusUnsupportedMediaType, "send the body without a content encoding").with("Accept-Encoding", "identity")
	}
	if r.ContentLength > limit {
		return nil, nil, &http.MaxBytesError{Limit: limit}
	}
	connection := http.NewResponseController(w)
	_ = connection.SetReadDeadline(time.Now().Add(within))
	return received{http.MaxBytesReader(w, r.Body, limit)}, func() { _ = connection.SetReadDeadline(time.Time{}) }, nil
}

// received is a body, whose errors are those of whoever sends it.
type received struct{ from io.Reader }

func (b received) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	if _, tooLong := errors.AsType[*http.MaxBytesError](err); err == nil || err == io.EOF || tooLong {
		return n, err
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return n, refuse(http.StatusRequestTimeout, "the body took too long to come")
	}
	return n, refuse(http.StatusBadRequest, "body: it did not come whole")
}

// query reads the parameters of a request, of which it knows those that are asked
// for.
type query struct {
	values url.Values
	err    error
}

// queryOf reads the parameters, none of them twice and no others than known.
func queryOf(r *http.Request, known ...string) *query {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return &query{err: refuse(http.StatusBadRequest, "the query cannot be read")}
	}
	for name, all := range values {
		if !slices.Contains(known, name) {
			return &query{err: refuse(http.StatusBadRequest, "unknown parameter "+strconv.Quote(name))}
		}
		if len(all) > 1 {
			return &query{err: refuse(http.StatusBadRequest, "the parameter "+name+" is there twice")}
		}
	}
	return &query{values: values}
}

// number reads a parameter between least and most; otherwise is what it is when
// absent.
func (q *query) number(name string, least, most, otherwise int64) int64 {
	text := q.values.Get(name)
	if text == "" && !q.values.Has(name) {
		return otherwise
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if (err != nil || n < least || n > most) && q.err == nil {
		q.err = refuse(http.StatusBadRequest, fmt.Sprintf("%s is a number from %d to %d", name, least, most))
	}
	return n
}

// limit reads how many things a page has.
func (q *query) limit(otherwise, most int64) int {
	return int(q.number("limit", 1, most, otherwise))
}

// extraction reads an id.
func (q *query) extraction(name string) (id memory.ExtractionID) {
	if !q.values.Has(name) {
		return id
	}
	id, err := memory.ParseID[memory.ExtractionID](q.values.Get(name))
	if err != nil && q.err == nil {
		q.err = refuse(http.StatusBadRequest, name+" is an id that the page before gave")
	}
	return id
}

// writeJSON answers with a JSON value.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	body, err := encodeJSON(v)
	if err != nil {
		return err
	}
	return writeBody(w, status, jsonType, body)
}

func encodeJSON(v any) ([]byte, error) {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, fmt.Errorf("encode answer: %w", err)
	}
	return body.Bytes(), nil
}

func writeBody(w http.ResponseWriter, status int, kind string, body []byte) error {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	out := stream(w)
	// A reader that has gone is nobody to tell.
	_, _ = out.Write(body)
	return nil
}
