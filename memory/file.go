package memory

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/host/boundary"
)

// MaxBlockTokens is the most that one block of a stored message costs. What
// is larger becomes a File, with an outline in its place.
const MaxBlockTokens = 25_000

// File is a block that is too large to be shown. The message that it came with
// has a block in its place whose text is the outline and whose File is the id.
type File struct {
	ID      FileID    `json:"id"`
	Session SessionID `json:"session_id"`
	// Name and MIME are what the block said of itself, or "".
	Name string `json:"name,omitempty"`
	MIME string `json:"mime,omitempty"`
	// Bytes is the size of the block as it was encoded, Tokens what it would
	// cost in a prompt, Digest "sha256:" and the hex digits of its bytes.
	Bytes  int64  `json:"bytes"`
	Tokens int    `json:"tokens"`
	Digest string `json:"digest"`
	// Outline is what stands in its place; that of external text is external.
	Outline   string    `json:"outline"`
	Trust     Trust     `json:"trust"`
	CreatedAt time.Time `json:"created_at"`
}

// IsLarge reports whether a store keeps b as a file: the words of text,
// external and tool_result blocks that cost more than MaxBlockTokens. Binary
// payloads cost the same whatever their size, and what no version can outline
// stays where it is.
func (b Block) IsLarge() bool {
	if !b.File.IsZero() {
		return false
	}
	words, ok := b.words()
	// No text costs more than two tokens a byte.
	return ok && 2*len(words) > MaxBlockTokens && tokens.Estimate(words) > MaxBlockTokens
}

// words returns what a block that can become a file says, without a frame.
func (b Block) words() (text string, ok bool) {
	switch b.Type {
	case BlockText:
		return b.Text, true
	case BlockExternal, BlockToolResult:
		return boundary.Neutral(b.External), true
	}
	return "", false
}

// NewFile returns the file that b becomes and the block that takes its place: of
// type file for text, else of its own type, whose outline is of b's source. It is
// for stores, which call it for blocks that IsLarge, read back as they are
// encoded. Trust is that of the message; a block with external text is external
// whatever it says.
func NewFile(id FileID, session SessionID, b Block, trust Trust, at time.Time) (File, Block, error) {
	words, ok := b.words()
	if !ok || !b.File.IsZero() {
		return File{}, Block{}, fmt.Errorf("a block of type %q cannot become a file: %w", b.Type, ErrInvalid)
	}
	encoded, err := b.MarshalJSON()
	if err != nil {
		return File{}, Block{}, err
	}
	digest := sha256.Sum256(encoded)
	f := File{
		ID: id, Session: session, Bytes: int64(len(encoded)), Tokens: Count([]Block{b}), Digest: "sha256:" + hex.EncodeToString(digest[:]),
		Outline: Outline(words), Trust: trust, CreatedAt: at,
	}
	f.Name, f.MIME = labels(encoded)
	if f.Trust == "" {
		f.Trust = TrustDirect
	}
	place := Block{Type: BlockFile, Text: f.Outline, File: id}
	if b.Type != BlockText {
		outline, _ := boundary.Wrap(b.External.Source(), f.Outline, boundary.Unlimited)
		f.Outline, f.Trust = boundary.Neutral(outline), TrustExternal
		place = Block{Type: b.Type, ID: b.ID, Name: b.Name, External: outline, IsError: b.IsError, File: id}
	}
	return f, place, nil
}

// Refile returns b, which has a file, with another one in its place; every other
// byte stays as it is. It is for stores, which copy a block into another session.
// Errors: ErrInvalid for a block that has none or cannot be encoded.
func (b Block) Refile(id FileID) (Block, error) {
	if b.File.IsZero() {
		return Block{}, invalid("a block of type " + quote(string(b.Type)) + " has no file to be given another")
	}
	encoded, err := b.MarshalJSON()
	if err != nil {
		return Block{}, err
	}
	fail := func(err error) (Block, error) { return Block{}, fmt.Errorf("give a block another file: %w", err) }
	decoder := json.NewDecoder(bytes.NewReader(encoded))
	if _, err := decoder.Token(); err != nil {
		return fail(err)
	}
	// Of fields of one name, whatever their case, the last counts.
	from, to := 0, 0
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return fail(err)
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return fail(err)
		}
		if name, ok := name.(string); ok && strings.EqualFold(name, "file") {
			to = int(decoder.InputOffset())
			from = to - len(value)
		}
	}
	refiled := slices.Concat(encoded[:from], []byte(`"`+id.String()+`"`), encoded[to:])
	var read Block
	if err := read.UnmarshalJSON(refiled); err != nil {
		return fail(err)
	}
	if read.File != id {
		return fail(invalid("its field is not found"))
	}
	return read, nil
}

// maxLabel is the most bytes of a file's name or type.
const maxLabel = 255

// labels returns the name and the media type that an encoded block gives itself.
func labels(encoded []byte) (name, mime string) {
	var said struct {
		Name, Filename, MIME any
		MIMEType             any `json:"mime_type"`
		MediaType            any `json:"media_type"`
	}
	if json.Unmarshal(encoded, &said) != nil {
		return "", ""
	}
	return label(said.Filename, said.Name), label(said.MIME, said.MIMEType, said.MediaType)
}

// label returns the first that can be one.
func label(said ...any) string {
	for _, v := range said {
		text, ok := v.(string)
		if ok && text != "" && len(text) <= maxLabel && utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl) {
			return text
		}
	}
	return ""
}

// Utterance identifies what was said by whom, to know a transcript again.
type Utterance [sha256.Size]byte

// UtteranceOf returns the identity of a message: its role and its blocks as they
// came, those of its files in their place. The frames of external text have
// another id each time that it is read, which makes no difference.
func UtteranceOf(role Role, blocks []Block) (Utterance, error) {
	var all bytes.Buffer
	all.WriteString(string(role))
	for i, b := range blocks {
		encoded, err := b.MarshalJSON()
		if err != nil {
			return Utterance{}, fmt.Errorf("block %d: %w", i+1, err)
		}
		if !b.External.IsEmpty() {
			encoded = fmt.Appendf(nil, "%q %q %q %t %q %q", b.Type, b.ID, b.Name, b.IsError, b.External.Source(), boundary.Neutral(b.External))
		}
		sum := sha256.Sum256(encoded)
		all.WriteByte(0)
		all.Write(sum[:])
	}
	return sha256.Sum256(all.Bytes()), nil
}
