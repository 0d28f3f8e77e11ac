package host

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gloveboxhq/glovebox/memory"
)

// row is one message of a client's conversation, in the form in which it is known
// again whatever API it comes by: each result of a tool is a row of its own, and
// what one answer says and calls is one.
type row struct {
	memory.Draft
	// sum is what the row says. Draft.Transcript is that of all rows so far.
	sum [sha256.Size]byte
}

// transcript begins what the digests of a conversation are made from. Another way to
// make them has another one: nothing is found then, but nothing wrong either.
var transcript = memory.Digest(sha256.Sum256([]byte("glovebox: transcript 1")))

// detached takes the place of transcript in a session whose beginning no client has
// sent, so that nobody finds it by its words.
func detached(session memory.SessionID) memory.Digest {
	return sha256.Sum256([]byte("glovebox: detached transcript 1\n" + session.String()))
}

// after is the digest of one row more.
func after(d memory.Digest, sum [sha256.Size]byte) memory.Digest {
	var both [2 * sha256.Size]byte
	copy(both[:], d[:])
	copy(both[sha256.Size:], sum[:])
	return sha256.Sum256(both[:])
}

// rowsOf reads a conversation. Messages without a word are no rows. The error wraps
// memory.ErrInvalid.
func rowsOf(messages []memory.Draft) ([]row, error) {
	rows := make([]row, 0, len(messages)+1)
	called := map[string]string{}
	for i := range messages {
		m := &messages[i]
		if isPlain(m) {
			// Most are, and a conversation can have thousands of them.
			rows = append(rows, row{Draft: asSaid(m.Role, m.Blocks)})
			rows[len(rows)-1].At = m.At
			continue
		}
		read, err := readMessage(m, called)
		if err != nil {
			return nil, fmt.Errorf("message %d: %w: %w", i+1, err, memory.ErrInvalid)
		}
		for _, d := range read {
			d.At = m.At
			if last := len(rows) - 1; d.Role == memory.RoleAssistant && last >= 0 && joins(rows[last].Draft, d) {
				rows[last].Blocks = slices.Concat(rows[last].Blocks, d.Blocks)
				continue
			}
			rows = append(rows, row{Draft: d})
		}
	}
	last := len(rows) - 1
	for last >= 0 && rows[last].Role == memory.RoleSystem {
		last--
	}
	if last < 0 || rows[last].Role == memory.RoleAssistant {
		return nil, fmt.Errorf("the conversation does not end with anything to answer: %w", memory.ErrInvalid)
	}
	digest := transcript
	var sums summer
	for i := range rows {
		rows[i].sum = sums.row(rows[i].Role, rows[i].Blocks)
		digest = after(digest, rows[i].sum)
		rows[i].Transcript = digest
	}
	return rows, nil
}

// isPlain reports whether a message is a row as it is: words of the user or of the
// assistant.
func isPlain(m *memory.Draft) bool {
	return (m.Role == memory.RoleUser || m.Role == memory.RoleAssistant) && len(m.Blocks) == 1 &&
		m.Blocks[0].Type == memory.BlockText && m.Blocks[0].File.IsZero() && says(m.Blocks[0])
}

// asSaid is a message of what a client says that somebody said.
func asSaid(role memory.Role, blocks []memory.Block) memory.Draft {
	d := memory.Draft{Role: role, Blocks: blocks}
	switch role {
	case memory.RoleUser:
		d.Source = memory.SourceUser
	case memory.RoleAssistant:
		// Nobody knows what was in view when it was said.
		d.Source, d.Trust = memory.SourceAssistant, memory.TrustDerived
	}
	return d
}

// joins reports whether two messages of the assistant, one after the other, are one
// answer: some APIs have the words and each call apart.
func joins(before, next memory.Draft) bool {
	return before.Role == memory.RoleAssistant && !slices.ContainsFunc(next.Blocks, func(b memory.Block) bool { return b.Type == memory.BlockText })
}

// readMessage splits a message into what is stored of it. Called has the names of
// the tools by the ids of their calls.
func readMessage(m *memory.Draft, called map[string]string) ([]memory.Draft, error) {
	switch m.Role {
	case memory.RoleUser, memory.RoleTool, memory.RoleAssistant, memory.RoleSystem:
	default:
		return nil, fmt.Errorf("role %q is not one of user, assistant, system, tool", m.Role)
	}
	var results []memory.Draft
	var rest []memory.Block
	for k, b := range m.Blocks {
		isResult, isCall := b.Type == memory.BlockToolResult, b.Type == memory.BlockToolCall
		switch {
		case !b.File.IsZero() || b.Type == memory.BlockFile:
			return nil, fmt.Errorf("block %d names a file", k+1)
		case isCall && m.Role != memory.RoleAssistant, isResult && m.Role != memory.RoleTool && m.Role != memory.RoleUser,
			b.Type == memory.BlockThinking && m.Role != memory.RoleAssistant:
			return nil, fmt.Errorf("block %d: a %s does not stand in a message of role %s", k+1, b.Type, m.Role)
		case (isCall || isResult) && b.ID == "":
			return nil, fmt.Errorf("block %d: a %s without an id", k+1, b.Type)
		case isCall:
			called[b.ID] = b.Name
			rest = append(rest, b)
		case isResult:
			if name := called[b.ID]; b.Name == "" {
				b = memory.ToolResult(b.ID, name, b.External, b.IsError)
			}
			results = append(results, memory.Draft{Role: memory.RoleTool, Source: memory.SourceTool, Blocks: []memory.Block{b}})
		case m.Role == memory.RoleTool && len(results) > 0:
			// A picture that a tool returned.
			last := &results[len(results)-1]
			last.Blocks = append(last.Blocks, b)
		default:
			rest = append(rest, b)
		}
	}
	if !slices.ContainsFunc(rest, says) {
		return results, nil
	}
	if m.Role == memory.RoleTool {
		return nil, fmt.Errorf("a message of role tool is of no call")
	}
	return append(results, asSaid(m.Role, rest)), nil
}

// says reports whether there is anything in a block, thoughts aside.
func says(b memory.Block) bool {
	switch b.Type {
	case memory.BlockText:
		return strings.TrimSpace(b.Text) != ""
	case memory.BlockThinking:
		return false
	}
	return true
}

// summer computes the sums of rows. The zero value is ready.
type summer struct {
	buf []byte
	// lists are what a row has of each kind, in order.
	pictures, calls, results, others [][]byte
}

// row sums up what a client sees of a message: clients differ in how they write it
// down, so white space around texts, how texts are divided, the order of the keys of
// a call's input and where pictures stand among the words make no difference.
// Thoughts are no part of it.
func (s *summer) row(role memory.Role, blocks []memory.Block) [sha256.Size]byte {
	s.pictures, s.calls, s.results, s.others = s.pictures[:0], s.calls[:0], s.results[:0], s.others[:0]
	b := appendText(s.buf[:0], string(role))
	start := len(b)
	b = append(b, make([]byte, 8)...)
	for i := range blocks {
		block := &blocks[i]
		switch block.Type {
		case memory.BlockText:
			if text := strings.TrimSpace(block.Text); text != "" {
				if len(b) > start+8 {
					b = append(b, '\n')
				}
				b = append(b, wellFormed(text)...)
			}
		case memory.BlockThinking:
		case memory.BlockToolCall:
			call := appendText(appendText(nil, block.ID), block.Name)
			s.calls = append(s.calls, appendInput(call, block.Input))
		case memory.BlockToolResult:
			result := appendText(appendText(nil, block.ID), block.External.Digest())
			s.results = append(s.results, strconv.AppendBool(result, block.IsError))
		case memory.BlockImage:
			s.pictures = append(s.pictures, encodedSum(block))
		case memory.BlockExternal:
			s.others = append(s.others, appendText(nil, block.External.Digest()))
		default:
			s.others = append(s.others, encodedSum(block))
		}
	}
	binary.BigEndian.PutUint64(b[start:], uint64(len(b)-start-8))
	for _, list := range [][][]byte{s.pictures, s.calls, s.results, s.others} {
		b = binary.AppendUvarint(b, uint64(len(list)))
		for _, item := range list {
			b = binary.AppendUvarint(b, uint64(len(item)))
			b = append(b, item...)
		}
	}
	s.buf = b
	return sha256.Sum256(b)
}

func encodedSum(b *memory.Block) []byte {
	encoded, err := b.MarshalJSON()
	if err != nil {
		return []byte(b.Type) // it cannot be stored either
	}
	sum := sha256.Sum256(encoded)
	return sum[:]
}

func appendText(b []byte, text string) []byte {
	text = wellFormed(text)
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// wellFormed is a text as JSON carries it.
func wellFormed(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	return string([]rune(text))
}

// appendInput adds the input of a call as every program understands it: clients
// that read it and write it again change the order of keys, white space and how
// numbers are written.
func appendInput(b []byte, input json.RawMessage) []byte {
	decoder := json.NewDecoder(bytes.NewReader(input))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return appendText(append(b, '!'), string(input))
	}
	if _, err := decoder.Token(); err != io.EOF {
		return appendText(append(b, '!'), string(input))
	}
	return appendValue(b, value)
}

// appendValue recurs no deeper than encoding/json reads.
func appendValue(b []byte, value any) []byte {
	switch v := value.(type) {
	case map[string]any:
		b = binary.AppendUvarint(append(b, '{'), uint64(len(v)))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			b = appendValue(appendText(b, key), v[key])
		}
	case []any:
		b = binary.AppendUvarint(append(b, '['), uint64(len(v)))
		for _, item := range v {
			b = appendValue(b, item)
		}
	case string:
		b = appendText(append(b, '"'), v)
	case json.Number:
		// What a double has no room for, most programs cannot carry either.
		f, err := v.Float64()
		switch {
		case err != nil:
			b = appendText(append(b, '#'), v.String())
		case f == 0:
			b = appendText(append(b, '#'), "0")
		default:
			b = appendText(append(b, '#'), strconv.FormatFloat(f, 'g', -1, 64))
		}
	case bool:
		b = strconv.AppendBool(b, v)
	default:
		b = append(b, 'n')
	}
	return b
}
