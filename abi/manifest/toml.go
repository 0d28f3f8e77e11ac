package manifest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// SyntaxError says where a TOML document is wrong. Lines and columns count
// from 1.
type SyntaxError struct {
	Line, Column int
	// Key is the dotted key concerned, if one is.
	Key  string
	Text string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.What())
}

// What is the error without its place.
func (e *SyntaxError) What() string {
	if e.Key != "" {
		return e.Key + ": " + e.Text
	}
	return e.Text
}

// Decode reads a TOML document into v, as toml.Unmarshal does, and refuses
// keys that v has no place for. Errors are of type *SyntaxError.
func Decode(data []byte, v any) error {
	err := toml.NewDecoder(strings.NewReader(string(data))).DisallowUnknownFields().Decode(v)
	if strict, ok := errors.AsType[*toml.StrictMissingError](err); ok && len(strict.Errors) > 0 {
		unknown := strict.Errors[0]
		return syntaxError(&unknown, "unknown key")
	}
	if decode, ok := errors.AsType[*toml.DecodeError](err); ok {
		return syntaxError(decode, strings.TrimPrefix(decode.Error(), "toml: "))
	}
	return err
}

func syntaxError(err *toml.DecodeError, text string) error {
	line, column := err.Position()
	return &SyntaxError{Line: line, Column: column, Key: dotted(err.Key()), Text: text}
}

// dotted is a key as TOML writes it. What is not a bare key is quoted: it may be
// anybody's, and is shown.
func dotted(parts []string) string {
	shown := make([]string, len(parts))
	for i, part := range parts {
		if shown[i] = part; !isBare(part) {
			shown[i] = strconv.Quote(part)
		}
	}
	return strings.Join(shown, ".")
}

func isBare(key string) bool {
	return key != "" && strings.Trim(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == ""
}
