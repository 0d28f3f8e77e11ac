package hand

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/gloveboxhq/glovebox/abi"
)

func parseQuery(data []byte) (Query, error) {
	q, ok := scanQuery(data)
	if !ok {
		var err error
		if q, err = decodeQuery(data); err != nil {
			return Query{}, fmt.Errorf("read query: %w", err)
		}
	}
	loc, err := time.LoadLocation(q.Timezone)
	if err != nil {
		loc = time.UTC
	}
	return Query{
		Prompt: q.Prompt, From: q.From, To: q.To, Now: q.Now,
		Location: loc, Timezone: q.Timezone, MaxOutputTokens: q.MaxOutputTokens,
		Config: q.Config, Subject: q.Subject,
	}, nil
}

// decodeQuery reads any query of the contract. The values of Config are of the
// types that Query promises.
func decodeQuery(data []byte) (q abi.Query, err error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber() // a double does not hold every integer
	if err := decoder.Decode(&q); err != nil {
		return q, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return q, errors.New("something follows the object")
	}
	for key, value := range q.Config {
		q.Config[key] = configValue(value)
	}
	return q, nil
}

// configValue gives a value the Go type that Query.Config promises. JSON has
// one kind of number; those without a fraction are the manifest's integers.
func configValue(value any) any {
	switch v := value.(type) {
	case json.Number:
		if whole, err := v.Int64(); err == nil {
			return whole
		}
		float, err := v.Float64()
		if err == nil && float == float64(int64(float)) && math.Abs(float) < 1<<63 {
			return int64(float)
		}
		return float
	case []any:
		list := make([]string, 0, len(v))
		for _, item := range v {
			s, _ := item.(string)
			list = append(list, s)
		}
		return list
	}
	return value
}

// scanQuery reads a query of the form that hosts write, at a tenth of what
// decodeQuery costs, which would be most of what a small hand costs. It reports
// false for whatever is not quite of that form, an error among it; of what it
// reads it makes the same as decodeQuery.
func scanQuery(data []byte) (q abi.Query, ok bool) {
	s := scanner{rest: data}
	var seen [8]bool
	s.object(func(key []byte) {
		field := -1
		switch string(key) {
		case "prompt":
			field, q.Prompt = 0, s.text()
		case "from":
			field, q.From = 1, s.time()
		case "to":
			field, q.To = 2, s.time()
		case "now":
			field, q.Now = 3, s.time()
		case "timezone":
			field, q.Timezone = 4, s.text()
		case "max_output_tokens":
			field, q.MaxOutputTokens = 5, s.count()
		case "subject":
			field, q.Subject = 6, s.text()
		case "config":
			field, q.Config = 7, s.config()
		}
		if field < 0 || seen[field] {
			s.bad = true // one of tomorrow, or one that comes twice
			return
		}
		seen[field] = true
	})
	s.space()
	return q, !s.bad && len(s.rest) == 0
}

// scanner reads JSON from the beginning of rest. Once bad, it stays where it is
// and gives zero values.
type scanner struct {
	rest []byte
	bad  bool
}

func (s *scanner) space() {
	for len(s.rest) > 0 && (s.rest[0] == ' ' || s.rest[0] == '\n' || s.rest[0] == '\r' || s.rest[0] == '\t') {
		s.rest = s.rest[1:]
	}
}

// next takes c, with the white space before it, if it comes next.
func (s *scanner) next(c byte) bool {
	s.space()
	if s.bad || len(s.rest) == 0 || s.rest[0] != c {
		return false
	}
	s.rest = s.rest[1:]
	return true
}

func (s *scanner) want(c byte) {
	if !s.next(c) {
		s.bad = true
	}
}

// object calls member after each key, to read the value.
func (s *scanner) object(member func(key []byte)) {
	s.want('{')
	if s.next('}') {
		return
	}
	for !s.bad {
		key, plain := s.literal()
		if !plain {
			s.bad = true
		}
		s.want(':')
		if s.bad {
			return
		}
		if member(key[1 : len(key)-1]); s.next('}') {
			return
		}
		s.want(',')
	}
}

// literal takes a string as it is written, its quotes included, and tells
// whether it says what is written. If not, json.Unmarshal is to judge it.
func (s *scanner) literal() (written []byte, plain bool) {
	s.space()
	rest := s.rest
	if s.bad || len(rest) == 0 || rest[0] != '"' {
		s.bad = true
		return nil, false
	}
	plain = true
	for i := 1; i < len(rest); i++ {
		switch c := rest[i]; {
		case c == '"':
			s.rest = rest[i+1:]
			return rest[:i+1], plain
		case c == '\\':
			plain = false
			i++
		case c < ' ' || c >= utf8.RuneSelf:
			plain = false
		}
	}
	s.bad = true
	return nil, false
}

func (s *scanner) text() string {
	written, plain := s.literal()
	if plain {
		return string(written[1 : len(written)-1])
	}
	var text string
	if s.bad || json.Unmarshal(written, &text) != nil {
		s.bad = true
	}
	return text
}

func (s *scanner) time() (t time.Time) {
	written, _ := s.literal()
	if s.bad || t.UnmarshalJSON(written) != nil {
		s.bad = true
	}
	return t
}

// number takes a number as it is written.
func (s *scanner) number() []byte {
	s.space()
	n := 0
	for n < len(s.rest) && (s.rest[n] >= '0' && s.rest[n] <= '9' || s.rest[n] == '-' || s.rest[n] == '+' || s.rest[n] == '.' || s.rest[n] == 'e' || s.rest[n] == 'E') {
		n++
	}
	written := s.rest[:n]
	if s.bad || !json.Valid(written) {
		s.bad = true
		return nil
	}
	s.rest = s.rest[n:]
	return written
}

func (s *scanner) count() int {
	n, err := strconv.Atoi(string(s.number()))
	if err != nil {
		s.bad = true
	}
	return n
}

func (s *scanner) config() map[string]any {
	config := map[string]any{}
	s.object(func(written []byte) {
		key := string(written)
		switch s.space(); {
		case len(s.rest) == 0:
			s.bad = true
		case s.rest[0] == '"':
			config[key] = s.text()
		case s.rest[0] == '[':
			config[key] = s.texts()
		case bytes.HasPrefix(s.rest, []byte("true")):
			config[key], s.rest = true, s.rest[4:]
		case bytes.HasPrefix(s.rest, []byte("false")):
			config[key], s.rest = false, s.rest[5:]
		default:
			config[key] = configValue(json.Number(s.number()))
		}
	})
	return config
}

func (s *scanner) texts() []string {
	list := []string{}
	s.want('[')
	if s.next(']') {
		return list
	}
	for !s.bad {
		if list = append(list, s.text()); s.next(']') {
			break
		}
		s.want(',')
	}
	return list
}
