// Package strictjson reads JSON that somebody else wrote, a model or a client, into a
// struct that it has to fit exactly, and says what does not fit in words that its
// author understands: those of JSON and of the fields' own names, and not of Go.
package strictjson

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gloveboxhq/glovebox/abi/jsonsize"
)

// Limits bound a text. Both are needed.
type Limits struct {
	// Bytes is how long it is at most, Depth how deep it nests.
	Bytes, Depth int
}

// Error says what is wrong with a text.
type Error struct {
	// Path is where it is wrong, such as messages[2].content; "" is the whole text. Names
	// in it are the author's own and quoted where they are no words, each of some 64 bytes
	// at most.
	Path string
	// Problem is what is wrong there. Of the text it quotes names of fields and numbers,
	// and what the types of the fields that decode themselves quote.
	Problem string
}

func (e *Error) Error() string {
	if e.Path == "" {
		return e.Problem
	}
	return e.Path + ": " + e.Problem
}

// Object reads the one JSON object in data into v, a pointer to a struct, in linear
// time. It refuses fields that v does not have, also those that differ from one in
// their capitals alone, fields that are there twice, anything behind the object, and
// bytes that are not UTF-8. Null leaves a field as it is. What a field that decodes
// itself makes of its value is its own.
//
// Errors are an *Error; v is as it was then.
func Object(data []byte, v any, limits Limits) error {
	switch {
	case len(data) > limits.Bytes:
		return &Error{Problem: fmt.Sprintf("it is longer than %d bytes", limits.Bytes)}
	case jsonsize.Of(data).Depth > limits.Depth:
		return &Error{Problem: fmt.Sprintf("it nests deeper than %d", limits.Depth)}
	case !utf8.Valid(data):
		return &Error{Problem: "it is not UTF-8"}
	}
	if first := bytes.TrimLeft(data, " \t\r\n"); len(first) == 0 || first[0] != '{' {
		return &Error{Problem: "it is not a JSON object"}
	}
	var whole json.RawMessage
	if err := json.Unmarshal(data, &whole); err != nil {
		return unreadable(err)
	}
	fresh := reflect.New(reflect.TypeOf(v).Elem())
	fresh.Elem().Set(reflect.ValueOf(v).Elem())
	if e := misfit(data, fresh.Type(), true); e != nil {
		return e
	}
	if err := json.Unmarshal(data, fresh.Interface()); err != nil {
		return Explain(data, v, err)
	}
	reflect.ValueOf(v).Elem().Set(fresh.Elem())
	return nil
}

// Explain says why data could not be read into v, a pointer, where err is the error of
// json.Unmarshal. Fields that v does not have are no reason.
func Explain(data []byte, v any, err error) *Error {
	if _, ok := errors.AsType[*json.SyntaxError](err); ok {
		return unreadable(err)
	}
	if e := misfit(data, reflect.TypeOf(v), false); e != nil {
		return e
	}
	// What a part of v has to say that decodes itself.
	return ExplainType(err)
}

// ExplainType is Explain where the text is not at hand: the path has the names of
// fields alone.
func ExplainType(err error) *Error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		kind, number, _ := strings.Cut(wrong.Value, " ")
		return &Error{wrong.Field, mismatch(wrong.Type, kind, number)}
	}
	if isOfTime(err) {
		return &Error{Problem: mismatch(timeType, "", "")}
	}
	return unreadable(err)
}

// isOfTime reports whether something is no time, in a type that decodes itself perhaps.
func isOfTime(err error) bool {
	_, parsed := errors.AsType[*time.ParseError](err)
	return parsed || strings.Contains(err.Error(), "Time.UnmarshalJSON")
}

func unreadable(err error) *Error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || err.Error() == "unexpected end of JSON input" {
		return &Error{Problem: "it ends too early"}
	}
	return &Error{Problem: "it is not JSON: " + strings.TrimPrefix(err.Error(), "json: ")}
}

// The kinds of values as encoding/json calls them, and in words.
const (
	aBool, aNumber, aString, anArray, anObject = "bool", "number", "string", "array", "object"

	text, number, whole, natural   = "a text", "a number", "a whole number", "a whole number from 0"
	truth, list, object, timestamp = "true or false", "a list", "an object", "a time such as 2030-12-31T18:00:00Z"
)

var inWords = map[string]string{aBool: truth, aNumber: number, aString: text, anArray: list, anObject: object}

// mismatch says what is wanted where a value of that kind stands, which does not fit;
// digits are those of a number, "" if they are not known.
func mismatch(t reflect.Type, kind, digits string) string {
	wanted, given := wantedFor(t), inWords[kind]
	if kind == aNumber && digits != "" && (wanted == whole || wanted == natural || wanted == number) {
		if strings.Trim(digits, "0123456789-") == "" && (wanted != natural || digits[0] != '-') || wanted == number {
			return "the number is out of range"
		}
		if given = digits; len(given) > maxDigits {
			given = given[:maxDigits] + "…"
		}
	}
	switch {
	case wanted == "":
		return "it cannot be read"
	case given == "":
		return "it has to be " + wanted
	}
	return "it has to be " + wanted + ", not " + given
}

// maxDigits is how many of a number are quoted.
const maxDigits = 24

// wantedFor is what is wanted for a type, in words; "" if nobody can say.
func wantedFor(t reflect.Type) string {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == nil:
		return ""
	case t == timeType:
		return timestamp
	case implements(t, unmarshaler):
		return ""
	case implements(t, textUnmarshaler):
		return text
	}
	switch t.Kind() {
	case reflect.String:
		return text
	case reflect.Bool:
		return truth
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return whole
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return natural
	case reflect.Float32, reflect.Float64:
		return number
	case reflect.Slice, reflect.Array:
		if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 {
			return text // in base64
		}
		return list
	case reflect.Map, reflect.Struct:
		return object
	}
	return ""
}

// misfit is the first thing in data, which is valid JSON, that does not fit a type; nil
// if there is none. Strict means that a struct has all fields that are there, once.
func misfit(data []byte, t reflect.Type, strict bool) *Error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	return (&walk{decoder: decoder, strict: strict}).value(t, "")
}

// walk goes along a text and a type at once.
type walk struct {
	decoder *json.Decoder
	strict  bool
}

var (
	unmarshaler     = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
	timeType        = reflect.TypeFor[time.Time]()
	rawType         = reflect.TypeFor[json.RawMessage]()
)

// value reads the value that comes next. A nil type takes all. Null fits every type, as
// it does for encoding/json.
func (w *walk) value(t reflect.Type, path string) *Error {
	mayBeNil := false
	for t != nil && t.Kind() == reflect.Pointer {
		t, mayBeNil = t.Elem(), true
	}
	switch {
	case t == nil || t == rawType || t.Kind() == reflect.Interface:
		return w.skip()
	case implements(t, unmarshaler) || implements(t, textUnmarshaler):
		return w.itself(t, path, mayBeNil)
	}
	token, err := w.decoder.Token()
	if err != nil {
		return unreadable(err)
	}
	wanted := wantedFor(t)
	kind, digits, fits := "", "", false
	switch token := token.(type) {
	case nil:
		return nil
	case bool:
		kind, fits = aBool, wanted == truth
	case string:
		kind, fits = aString, wanted == text
	case json.Number:
		digits = token.String()
		kind, fits = aNumber, holds(t, digits)
	case json.Delim:
		if token == '{' && wanted == object {
			return w.object(t, path)
		}
		if token == '[' && wanted == list {
			return w.list(t, path)
		}
		if kind = anArray; token == '{' {
			kind = anObject
		}
	}
	if !fits {
		return &Error{path, mismatch(t, kind, digits)}
	}
	return nil
}

// skip passes over a value, however large, without keeping it.
func (w *walk) skip() *Error {
	for depth := 0; ; {
		token, err := w.decoder.Token()
		if err != nil {
			return unreadable(err)
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}

// itself reads a value that its type decodes.
func (w *walk) itself(t reflect.Type, path string, mayBeNil bool) *Error {
	var raw json.RawMessage
	if err := w.decoder.Decode(&raw); err != nil {
		return unreadable(err)
	}
	if mayBeNil && string(raw) == "null" {
		return nil
	}
	err := json.Unmarshal(raw, reflect.New(t).Interface())
	if err == nil {
		return nil
	}
	if _, wrongType := errors.AsType[*json.UnmarshalTypeError](err); !wrongType && !isOfTime(err) && t != timeType {
		return &Error{path, strings.TrimPrefix(err.Error(), "json: ")}
	}
	e := ExplainType(err)
	if t == timeType {
		e = &Error{Problem: mismatch(t, "", "")}
	}
	if path != "" && e.Path != "" {
		path += "."
	}
	return &Error{path + e.Path, e.Problem}
}

func (w *walk) object(t reflect.Type, path string) *Error {
	var fields map[string]reflect.Type
	if t.Kind() == reflect.Struct {
		fields = fieldsOf(t)
	}
	for seen := map[string]bool{}; w.decoder.More(); {
		token, err := w.decoder.Token()
		if err != nil {
			return unreadable(err)
		}
		name, _ := token.(string)
		var of reflect.Type
		switch {
		case fields == nil:
			of = t.Elem()
		case w.strict:
			known, ok := fields[name]
			if !ok {
				return &Error{path, "unknown field " + quote(name)}
			}
			if seen[name] {
				return &Error{path, "the field " + quote(name) + " is there twice"}
			}
			seen[name], of = true, known
		default:
			of = loosely(fields, name)
		}
		if e := w.value(of, within(path, name)); e != nil {
			return e
		}
	}
	if _, err := w.decoder.Token(); err != nil {
		return unreadable(err)
	}
	return nil
}

func (w *walk) list(t reflect.Type, path string) *Error {
	for i := 0; w.decoder.More(); i++ {
		if e := w.value(t.Elem(), path+"["+strconv.Itoa(i)+"]"); e != nil {
			return e
		}
	}
	if _, err := w.decoder.Token(); err != nil {
		return unreadable(err)
	}
	return nil
}

// loosely is the type of a field as encoding/json finds it, nil if there is none.
func loosely(fields map[string]reflect.Type, name string) reflect.Type {
	if t, ok := fields[name]; ok {
		return t
	}
	for known, t := range fields {
		if strings.EqualFold(known, name) {
			return t
		}
	}
	return nil
}

func implements(t, what reflect.Type) bool {
	return t.Implements(what) || reflect.PointerTo(t).Implements(what)
}

// fieldsOf are the fields of a struct by their names in JSON, those of embedded structs
// among them.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Tag.Get("json") == "-":
		case f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct:
			for name, of := range fieldsOf(f.Type) {
				if _, outer := fields[name]; !outer {
					fields[name] = of
				}
			}
		case !f.IsExported():
		case name == "":
			fields[f.Name] = f.Type
		default:
			fields[name] = f.Type
		}
	}
	return fields
}

// holds reports whether a number fits a type.
func holds(t reflect.Type, number string) bool {
	switch t.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		_, err := strconv.ParseInt(number, 10, t.Bits())
		return err == nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		_, err := strconv.ParseUint(number, 10, t.Bits())
		return err == nil
	case reflect.Float32, reflect.Float64:
		_, err := strconv.ParseFloat(number, t.Bits())
		return err == nil
	}
	return false
}

func within(path, name string) string {
	if name == "" || len(name) > maxName || strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" {
		name = quote(name)
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

// maxName is how many bytes of a name are quoted.
const maxName = 64

func quote(name string) string {
	if len(name) <= maxName {
		return strconv.Quote(name)
	}
	return strconv.Quote(strings.ToValidUTF8(name[:maxName], "")) + "…"
}
