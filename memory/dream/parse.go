package dream

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// maxAnswer is the most bytes of an answer that are looked at: many times what
	// the largest budget of tokens can fill.
	maxAnswer = 1 << 20
	// maxDepth is how deep an answer may nest. What is asked for has 4 levels.
	maxDepth = 16
)

// What is wrong with an answer. All wrap ErrUnreadable, and none quotes the answer,
// for they go to a log.
var (
	// errCutOff says that it ends inside of its object.
	errCutOff    = fmt.Errorf("it breaks off: %w", ErrUnreadable)
	errMalformed = fmt.Errorf("it is no JSON: %w", ErrUnreadable)
	errTooDeep   = fmt.Errorf("it nests deeper than %d: %w", maxDepth, ErrUnreadable)
)

// object is a JSON object by its fields, whose names are in lower case. Its methods
// read what a model writes for what it was asked for: a value of another kind is
// as one that is not there.
type object map[string]json.RawMessage

// readObject decodes an object. One of several fields whose names differ only in
// case is taken as it is spelled here, else the first in the order of bytes.
func readObject(encoded json.RawMessage) (object, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(encoded, &all); err != nil {
		return nil, fmt.Errorf("it is no object: %w", ErrUnreadable)
	}
	o := make(object, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		lower := strings.ToLower(name)
		if _, taken := o[lower]; !taken || name == lower {
			o[lower] = all[name]
		}
	}
	return o, nil
}

// objects returns the objects of a list, at most most.
func (o object) objects(name string, most int) []object {
	var elements []json.RawMessage
	if json.Unmarshal(o[name], &elements) != nil {
		return nil
	}
	var list []object
	for _, e := range elements {
		if len(list) == most {
			break
		}
		if one, err := readObject(e); err == nil && one != nil {
			list = append(list, one)
		}
	}
	return list
}

// text returns a string; "" for anything else.
func (o object) text(name string) string {
	var s string
	if json.Unmarshal(o[name], &s) != nil {
		return ""
	}
	return s
}

// names returns a list of handles, at most most: strings, or one string with
// commas or white space between them.
func (o object) names(name string, most int) []string {
	var elements []any
	if json.Unmarshal(o[name], &elements) != nil {
		elements = []any{o.text(name)}
	}
	var list []string
	for _, e := range elements {
		s, _ := e.(string)
		for one := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == ',' || unicode.IsSpace(r) }) {
			if len(list) == most {
				return list
			}
			list = append(list, one)
		}
	}
	return list
}

// parseObject finds the object in a model's answer and returns it as valid JSON in
// UTF-8. Models put prose and fences around it, think aloud in objects before, break
// lines inside of strings, escape what needs no escape and leave commas at the
// end of lists: all that is forgiven. If there are several objects side by side,
// it is the last that has one of the fields, which are in lower case; without
// fields, the last. Errors wrap ErrUnreadable; errCutOff if the answer ends before its object
// does. It takes linear time.
func parseObject(text string, fields ...string) (json.RawMessage, error) {
	if len(text) > maxAnswer {
		return nil, fmt.Errorf("%d bytes are more than %d: %w", len(text), maxAnswer, ErrUnreadable)
	}
	var found json.RawMessage
	failure := fmt.Errorf("no object with the fields that were asked for: %w", ErrUnreadable)
	// What was read is not read again, whatever it was: else an answer of many open
	// braces takes quadratic time.
	for r := (repairer{text: text}); ; {
		next := strings.IndexByte(text[r.at:], '{')
		if next < 0 {
			break
		}
		r.at, r.out = r.at+next, r.out[:0]
		if err := r.value(0); err != nil {
			failure = err
		} else if hasField(r.out, fields) {
			found = slices.Clone(r.out)
		}
	}
	// An object that is whole stands even if something was cut off behind it.
	if found == nil {
		return nil, failure
	}
	return found, nil
}

func hasField(encoded []byte, fields []string) bool {
	o, err := readObject(encoded)
	return err == nil && (len(fields) == 0 || slices.ContainsFunc(fields, func(name string) bool { return o[name] != nil }))
}

// repairer reads one JSON value and writes it as it should have been.
type repairer struct {
	text string
	at   int
	out  []byte
}

func (r *repairer) space() {
	for r.at < len(r.text) && strings.IndexByte(" \t\r\n", r.text[r.at]) >= 0 {
		r.at++
	}
}

// peek returns the next byte that is no white space; 0 at the end.
func (r *repairer) peek() byte {
	if r.space(); r.at < len(r.text) {
		return r.text[r.at]
	}
	return 0
}

func (r *repairer) fail() error {
	if r.at >= len(r.text) {
		return errCutOff
	}
	return errMalformed
}

// value leaves at behind what it read, which is one byte at least.
func (r *repairer) value(depth int) error {
	switch c := r.peek(); {
	case c == '{' || c == '[':
		return r.list(c, depth)
	case c == '"':
		return r.str()
	default:
		return r.scalar()
	}
}

// list reads an object or an array.
func (r *repairer) list(open byte, depth int) error {
	r.at++
	if depth >= maxDepth {
		return errTooDeep
	}
	r.out = append(r.out, open)
	closing := open + 2 // in ASCII, of both kinds
	for first := true; ; first = false {
		c := r.peek()
		if c == ',' && !first {
			r.at++
			c = r.peek()
		} else if c != closing && !first {
			return r.fail()
		}
		if c == closing {
			r.at++
			r.out = append(r.out, closing)
			return nil
		}
		if !first {
			r.out = append(r.out, ',')
		}
		if open == '{' {
			if c != '"' {
				return r.fail()
			}
			if err := r.str(); err != nil {
				return err
			}
			if r.peek() != ':' {
				return r.fail()
			}
			r.at++
			r.out = append(r.out, ':')
		}
		if err := r.value(depth + 1); err != nil {
			return err
		}
	}
}

// str reads a string, in which control characters and needless escapes are
// forgiven.
func (r *repairer) str() error {
	r.at++
	r.out = append(r.out, '"')
	for r.at < len(r.text) {
		switch c := r.text[r.at]; {
		case c == '"':
			r.at++
			r.out = append(r.out, '"')
			return nil
		case c == '\\':
			if r.at+1 >= len(r.text) {
				r.at = len(r.text)
				return errCutOff
			}
			r.escape(r.text[r.at+1])
		case c < ' ':
			r.at++
			r.out = append(r.out, `\u00`...)
			r.out = append(r.out, "0123456789abcdef"[c>>4], "0123456789abcdef"[c&15])
		default:
			char, size := utf8.DecodeRuneInString(r.text[r.at:])
			r.at += size
			r.out = utf8.AppendRune(r.out, char)
		}
	}
	return errCutOff
}

// escape reads a backslash and what follows it. Before what has no escape the
// backslash is the author's own, as in a path.
func (r *repairer) escape(next byte) {
	const simple = `"\/bfnrt`
	switch {
	case strings.IndexByte(simple, next) >= 0:
		r.out = append(r.out, '\\', next)
		r.at += 2
	case next == 'u' && r.at+6 <= len(r.text) && isHex(r.text[r.at+2:r.at+6]):
		r.out = append(r.out, r.text[r.at:r.at+6]...)
		r.at += 6
	case next == '\'':
		r.out = append(r.out, '\'')
		r.at += 2
	default:
		r.out = append(r.out, '\\', '\\')
		r.at++
	}
}

func isHex(s string) bool {
	_, err := strconv.ParseUint(s, 16, 32)
	return err == nil
}

// scalar reads a number, true, false or null.
func (r *repairer) scalar() error {
	start := r.at
	for r.at < len(r.text) && isScalar(r.text[r.at]) {
		r.at++
	}
	word := r.text[start:r.at]
	switch {
	case r.at == len(r.text):
		return errCutOff
	case word == "" || !json.Valid([]byte(word)):
		return errMalformed
	}
	r.out = append(r.out, word...)
	return nil
}

func isScalar(c byte) bool {
	return c >= '0' && c <= '9' || c == '-' || c == '+' || c == '.' || c|0x20 >= 'a' && c|0x20 <= 'z'
}
