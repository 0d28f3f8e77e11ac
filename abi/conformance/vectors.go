package conformance

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
)

// ErrNoVectors is matched by the error of reading vectors of which there are
// none: a kit that checks nothing must not pass.
var ErrNoVectors = errors.New("no vectors")

// Text is a text or bytes in a vector. In JSON it is a string, or a list of parts
// that follow each other: strings, {"text": string, "times": int} and
// {"hex": string}. With "numbered": true, each # of a repeated text is the number of
// the repetition, from 0001 on.
type Text string

// maxTextBytes bounds what repetition can make of a vector.
const maxTextBytes = 8 << 20

// UnmarshalJSON reads either form.
func (t *Text) UnmarshalJSON(data []byte) error {
	var whole string
	if json.Unmarshal(data, &whole) == nil {
		*t = Text(whole)
		return nil
	}
	var parts []json.RawMessage
	if err := json.Unmarshal(data, &parts); err != nil {
		return fmt.Errorf("a text is a string or a list of parts: %w", err)
	}
	var b strings.Builder
	for _, raw := range parts {
		if json.Unmarshal(raw, &whole) == nil {
			b.WriteString(whole)
			continue
		}
		var part struct {
			Text  string `json:"text"`
			Times int    `json:"times"`
			Hex   string `json:"hex"`

			Numbered bool `json:"numbered"`
		}
		if err := decodeStrictly(raw, &part); err != nil {
			return fmt.Errorf("part of a text: %w", err)
		}
		decoded, err := hex.DecodeString(part.Hex)
		if err != nil {
			return fmt.Errorf("part of a text: hex: %w", err)
		}
		if part.Times < 0 || part.Times*len(part.Text)+b.Len() > maxTextBytes {
			return fmt.Errorf("part of a text: %d times %d bytes are too many", part.Times, len(part.Text))
		}
		b.Write(decoded)
		if !part.Numbered {
			b.WriteString(strings.Repeat(part.Text, part.Times))
			continue
		}
		for i := range part.Times {
			b.WriteString(strings.ReplaceAll(part.Text, "#", fmt.Sprintf("%04d", i+1)))
		}
	}
	*t = Text(b.String())
	return nil
}

// decodeStrictly refuses unknown keys, so that a vector with a typing error
// tests nothing else than it says.
func decodeStrictly(data []byte, v any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	decoder.UseNumber()
	if err := decoder.Decode(v); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the document")
	}
	return nil
}

// readVectors reads one file of vectors.
func readVectors(files fs.FS, name string, v any) error {
	data, err := fs.ReadFile(files, name)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: there is no %s", ErrNoVectors, name)
	}
	if err != nil {
		return fmt.Errorf("read vectors: %w", err)
	}
	if err := decodeStrictly(data, v); err != nil {
		return fmt.Errorf("read vectors: %s: %w", name, err)
	}
	return nil
}

// overlay returns the query base with the fields of over, of which null takes
// one away.
func overlay(base, over map[string]any) map[string]any {
	query := map[string]any{}
	for key, value := range base {
		query[key] = value
	}
	for key, value := range over {
		if query[key] = value; value == nil {
			delete(query, key)
		}
	}
	return query
}
