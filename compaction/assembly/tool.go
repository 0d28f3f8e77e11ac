package assembly

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxParameters is the most bytes of a tool's parameters.
const MaxParameters = 256 << 10

const maxParametersDepth = 100

// Errors of the parameters of tools.
var (
	errNoObject   = errors.New("no JSON object in UTF-8")
	errTooLarge   = fmt.Errorf("over %d KiB", MaxParameters>>10)
	errTooDeep    = fmt.Errorf("over %d levels deep", maxParametersDepth)
	errNotCompact = errors.New("white space between tokens")
	errKeyOrder   = errors.New("keys out of order")
)

// CanonicalTools returns tools in the one form that a list of tools has in a
// prompt, so that what providers keep of it stays good however the list was put
// together: in the order of the names' bytes, and the parameters without white
// space between tokens, the keys of every object in the order of their bytes.
// Numbers stay as they are written; of a key that an object has twice, the last
// counts. Parameters that are absent, empty or null are left absent.
//
// It refuses, with the tool's name in the error: a name that is not ValidName, or
// that two tools have; parameters that are no JSON object in UTF-8, are over 256
// KiB, or are over 100 levels deep. The tools given are not changed.
func CanonicalTools(tools []Tool) ([]Tool, error) {
	if len(tools) == 0 {
		return nil, nil
	}
	canonical := slices.Clone(tools)
	slices.SortStableFunc(canonical, func(a, b Tool) int { return strings.Compare(a.Name, b.Name) })
	for i := range canonical {
		t := &canonical[i]
		if !ValidName(t.Name) {
			return nil, fmt.Errorf("tool %s: name out of form", quoteName(t.Name))
		}
		if i > 0 && canonical[i-1].Name == t.Name {
			return nil, fmt.Errorf("tool %s: two have this name", quoteName(t.Name))
		}
		parameters, err := canonicalObject(t.Parameters)
		if err != nil {
			return nil, fmt.Errorf("tool %s: parameters: %w", quoteName(t.Name), err)
		}
		t.Parameters = parameters
	}
	return canonical, nil
}

// quoteName quotes a name that may be anything.
func quoteName(name string) string {
	if len(name) > maxNameBytes {
		return fmt.Sprintf("%q…", name[:maxNameBytes])
	}
	return fmt.Sprintf("%q", name)
}

func canonicalObject(raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) > MaxParameters {
		return nil, errTooLarge
	}
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	if depth(raw) > maxParametersDepth {
		return nil, errTooDeep
	}
	if !utf8.Valid(raw) {
		return nil, errNoObject
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var object map[string]any
	if err := decoder.Decode(&object); err != nil {
		return nil, errNoObject // the decoder's error quotes what is not ours
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, errNoObject
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(object); err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	canonical := bytes.TrimRight(b.Bytes(), "\n")
	if len(canonical) > MaxParameters {
		return nil, errTooLarge // escapes can be longer than what they stand for
	}
	return canonical, nil
}

// depth returns how deep brackets nest, whatever else there is.
func depth(raw []byte) int {
	deepest, now := 0, 0
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			i = stringEnd(raw, i) - 1
		case '{', '[':
			now++
			deepest = max(deepest, now)
		case '}', ']':
			now--
		}
	}
	return deepest
}

// stringEnd returns where the string ends that begins at start, behind its
// closing quote.
func stringEnd(raw []byte, start int) int {
	for i := start + 1; i < len(raw); i++ {
		switch raw[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(raw)
}

// checkCanonical reports in what parameters differ from the form that
// CanonicalTools gives them, but for the escapes within strings.
func checkCanonical(raw []byte) error {
	switch {
	case len(raw) > MaxParameters:
		return errTooLarge
	case raw[0] != '{' || !utf8.Valid(raw) || !json.Valid(raw):
		return errNoObject
	}
	// keys holds, for each level, the key before in the object that is open there.
	var keys [maxParametersDepth + 1][]byte
	level := 0
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '{', '[':
			if level++; level > maxParametersDepth {
				return errTooDeep
			}
			keys[level] = nil
		case '}', ']':
			level--
		case ' ', '\t', '\r', '\n':
			return errNotCompact
		case '"':
			end := stringEnd(raw, i)
			if end < len(raw) && raw[end] == ':' {
				key := raw[i:end]
				if keys[level] != nil && compareKeys(keys[level], key) >= 0 {
					return errKeyOrder
				}
				keys[level] = key
			}
			i = end - 1
		}
	}
	return nil
}

// compareKeys compares what two strings of valid JSON stand for.
func compareKeys(a, b []byte) int {
	if bytes.IndexByte(a, '\\') < 0 && bytes.IndexByte(b, '\\') < 0 {
		return bytes.Compare(a[1:len(a)-1], b[1:len(b)-1])
	}
	return strings.Compare(unquote(a), unquote(b))
}

func unquote(quoted []byte) string {
	var s string
	if err := json.Unmarshal(quoted, &s); err != nil {
		return string(quoted) // not of valid JSON
	}
	return s
}
