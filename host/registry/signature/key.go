package signature

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"

	"aead.dev/minisign"
)

// ErrKey says that a text is no key in minisign's format, or that its password is
// not the one given.
var ErrKey = errors.New("not a usable key")

// publicKeyBytes is the length of a public key in minisign's format: an algorithm of
// 2 bytes, an id of 8 that its maker chose, and the key itself.
const publicKeyBytes = 2 + 8 + ed25519.PublicKeySize

// MaxKeyFileBytes is more than a file with a key has.
const MaxKeyFileBytes = 4 << 10

// PublicKey is a minisign public key. Two are equal (==) only if all of them is: ids
// are anybody's to choose. The zero PublicKey has signed nothing.
type PublicKey struct {
	packed [publicKeyBytes]byte
}

// ParsePublicKey reads the 56 characters "RW…", or a public key file as minisign
// writes it, of which they are the second line. Errors match ErrKey.
func ParsePublicKey(text string) (PublicKey, error) {
	text = strings.TrimSpace(text)
	if len(text) > MaxKeyFileBytes {
		return PublicKey{}, fmt.Errorf("%w: %d bytes, a public key has at most %d", ErrKey, len(text), MaxKeyFileBytes)
	}
	var key minisign.PublicKey
	if err := key.UnmarshalText([]byte(text)); err != nil {
		return PublicKey{}, fmt.Errorf("%w: a minisign public key is 56 characters that begin with RW: %w", ErrKey, err)
	}
	return packed(key), nil
}

func packed(key minisign.PublicKey) PublicKey {
	var p PublicKey
	// The text of a key is this encoding of all of it.
	_, _ = base64.StdEncoding.Decode(p.packed[:], []byte(key.String()))
	return p
}

// String is the key as 56 characters "RW…".
func (p PublicKey) String() string { return base64.StdEncoding.EncodeToString(p.packed[:]) }

// File is the key as minisign writes it into a file.
func (p PublicKey) File() []byte {
	return fmt.Appendf(nil, "untrusted comment: minisign public key %s\n%s\n", p.ID(), p)
}

// ID is what minisign shows of a key: a hexadecimal number that helps to recognise
// it and prove nothing.
func (p PublicKey) ID() string {
	var id uint64
	for i := range 8 {
		id |= uint64(p.packed[2+i]) << (8 * i)
	}
	return fmt.Sprintf("%X", id)
}

func (p PublicKey) ed25519() ed25519.PublicKey { return p.packed[2+8:] }

// PrivateKey is a minisign secret key.
type PrivateKey struct {
	key minisign.PrivateKey
}

// Generate makes a key of the bytes that random gives; nil means those of the
// operating system.
func Generate(random io.Reader) (PrivateKey, error) {
	_, key, err := minisign.GenerateKey(random)
	if err != nil {
		return PrivateKey{}, fmt.Errorf("make a key: %w", err)
	}
	return PrivateKey{key}, nil
}

// IsEncrypted reports whether a secret key file needs a password.
func IsEncrypted(file []byte) bool {
	return len(file) <= MaxKeyFileBytes && minisign.IsEncrypted(bytes.TrimSpace(file))
}

// ParsePrivateKey reads a secret key file as minisign writes it. One that
// IsEncrypted takes about a second and 1 GiB of memory to decrypt, as whoever
// guesses passwords must spend for each; the password of another is ignored. Errors
// match ErrKey.
func ParsePrivateKey(file []byte, password string) (PrivateKey, error) {
	if len(file) > MaxKeyFileBytes {
		return PrivateKey{}, fmt.Errorf("%w: %d bytes, a secret key has at most %d", ErrKey, len(file), MaxKeyFileBytes)
	}
	file = bytes.TrimSpace(file)
	if minisign.IsEncrypted(file) {
		key, err := minisign.DecryptKey(password, file)
		if err != nil {
			return PrivateKey{}, fmt.Errorf("%w: the password is wrong, or the file is damaged", ErrKey)
		}
		return PrivateKey{key}, nil
	}
	var key minisign.PrivateKey
	if err := key.UnmarshalText(file); err != nil {
		return PrivateKey{}, fmt.Errorf("%w: a secret key file as minisign -G or glovebox hand keygen writes it is expected: %w", ErrKey, err)
	}
	return PrivateKey{key}, nil
}

// Public is the key that verifies what k signs.
func (k PrivateKey) Public() PublicKey {
	public, ok := k.key.Public().(minisign.PublicKey)
	if !ok {
		return PublicKey{}
	}
	return packed(public)
}

// Encrypt returns a secret key file that a password opens, at the cost that
// ParsePrivateKey says.
func (k PrivateKey) Encrypt(password string) ([]byte, error) {
	if password == "" {
		return nil, errors.New("encrypt the key: the password is empty")
	}
	file, err := minisign.EncryptKey(password, k.key)
	if err != nil {
		return nil, fmt.Errorf("encrypt the key: %w", err)
	}
	return append(file, '\n'), nil
}

// File returns a secret key file that needs no password.
func (k PrivateKey) File() ([]byte, error) {
	file, err := k.key.MarshalText()
	if err != nil {
		return nil, fmt.Errorf("write the key: %w", err)
	}
	return append(file, '\n'), nil
}
