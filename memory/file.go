package memory

import "time"

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
