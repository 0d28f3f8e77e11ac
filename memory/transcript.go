package memory

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Digest stands for all that the holder of a conversation has seen of it, up to
// and with one message: who comes back with the same words is found by it. It is
// the caller's to compute; a store compares it. The zero Digest is none.
type Digest [sha256.Size]byte

// IsZero reports whether it is none.
func (d Digest) IsZero() bool { return d == Digest{} }

// String returns hexadecimal digits.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText writes hexadecimal digits.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads hexadecimal digits. The error wraps ErrInvalid.
func (d *Digest) UnmarshalText(text []byte) error {
	decoded, err := hex.DecodeString(string(text))
	if err != nil || len(decoded) != len(d) {
		return fmt.Errorf("a digest is %d hexadecimal digits: %w", 2*len(d), ErrInvalid)
	}
	copy(d[:], decoded)
	return nil
}

// MaxSessionName is the most bytes of a session's name.
const MaxSessionName = 200

// ValidSessionName reports whether name can be a session's: UTF-8 of 1 to
// MaxSessionName bytes without characters that control.
func ValidSessionName(name string) bool {
	return name != "" && len(name) <= MaxSessionName && utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsControl)
}

// Place is where a digest was found.
type Place struct {
	Session SessionID
	// Seq is the message that has the digest.
	Seq int64
	// Last says that no later message of the session has a digest.
	Last bool
}
