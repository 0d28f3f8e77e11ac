// Package signature signs modules and verifies who signed them.
//
// A signature is Ed25519, by a key in minisign's format, over the whole module but
// the section that holds it: code, manifest and every other custom section. It is
// made and stored as the convention for WebAssembly signatures has it
// (https://github.com/WebAssembly/tool-conventions/blob/main/Signatures.md): the
// payload of a custom section "signature", which is the first of the module, over
//
//	"wasmsig" ‖ version 1 ‖ content type 1 ‖ hash 1 ‖ SHA-256(all sections after it)
//
// The convention is a draft, and its text does not say what stands before each record
// of a variable length; this is the encoding of wasmsign2 0.2.6, the implementation
// of its authors, which writes a length there.
//
// What of the convention is not there: more than one signature, parts of a module
// that are signed on their own (signature_delimiter), signatures beside the module.
// Nothing that a hand needs takes them, and each makes "signed" mean less. What it
// leaves open is fixed: the id of a key is the whole minisign public key, so that who
// signed is known without a list to look it up in. And one thing is added, in a way that
// other verifiers need not know of: an expiry and a comment stand in a custom section
// "glovebox.signing" at the end, which is signed like any other.
//
// All functions are safe for concurrent use.
package signature

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"aead.dev/minisign"

	"github.com/gloveboxhq/glovebox/host/sandbox/wasm"
)

// Why a module is not verified. Verify wraps one of them, with the reason.
var (
	// ErrUnsigned: no signature section.
	ErrUnsigned = errors.New("the module is not signed")
	// ErrMalformed: no module, or a signature that is not of the form which Sign
	// gives it: several of them, not at the beginning, bytes after its end.
	ErrMalformed = errors.New("the signature cannot be read")
	// ErrTampered: the signature is not one of this module by the key that it names.
	ErrTampered = errors.New("the signature does not hold")
	// ErrUnknownKey: it holds, but its key is not among the trusted ones.
	ErrUnknownKey = errors.New("the module is signed by a key that is not trusted")
	// ErrExpired: it holds and its key is trusted, but its time is over.
	ErrExpired = errors.New("the signature has expired")
)

// The names of the custom sections that belong to a signature.
const (
	Section          = "signature"
	StatementSection = "glovebox.signing"
)

// MaxCommentBytes bounds a comment.
const MaxCommentBytes = 1 << 10

// maxStatementBytes is more than a comment of which each byte is escaped takes.
const maxStatementBytes = 8 << 10

// Options say what is signed beside the module.
type Options struct {
	// Comment is for people: UTF-8, at most MaxCommentBytes.
	Comment string
	// Expires is when the signature ends, in whole seconds; zero means never.
	Expires time.Time
}

// Signed is what a signature says. The Comment is its author's words: whoever shows
// them shows text from outside.
type Signed struct {
	Key     PublicKey
	Comment string
	// Expires is in UTC; zero if never.
	Expires time.Time
}

// Sign returns module with a signature of key. One that it had is replaced, whoever
// made it. The error wraps ErrMalformed for what is no module.
func Sign(module []byte, key PrivateKey, o Options) ([]byte, error) {
	m, err := wasm.Sections(module)
	if err != nil {
		return nil, fmt.Errorf("sign: %w: %w", ErrMalformed, err)
	}
	m.Sections = slices.DeleteFunc(m.Sections, func(s wasm.Section) bool {
		return isCustom(s, Section) || isCustom(s, StatementSection)
	})
	if o != (Options{}) {
		said, err := newStatement(o)
		if err != nil {
			return nil, fmt.Errorf("sign: %w", err)
		}
		m.Sections = append(m.Sections, wasm.Section{ID: wasm.SectionCustom, Name: StatementSection, Data: said})
	}
	content := m.Encode()[len(preamble):]
	p := payload{key: key.Public(), digest: sha256.Sum256(content)}
	if p.signature, err = key.sign(message(p.digest)); err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	return append(p.beginning(), content...), nil
}

// sign returns the Ed25519 signature of a message. minisign gives it in a frame of its
// own, with a comment that nobody will see.
func (k PrivateKey) sign(message []byte) (out [ed25519.SignatureSize]byte, err error) {
	framed, err := k.key.Sign(nil, message, crypto.Hash(0))
	if err != nil {
		return out, err
	}
	var s minisign.Signature
	if err := s.UnmarshalText(framed); err != nil {
		return out, err
	}
	// What a damaged key signs gives that key away.
	if !ed25519.Verify(k.Public().ed25519(), message, s.Signature[:]) {
		return out, fmt.Errorf("%w: its two halves do not belong together: the file is damaged", ErrKey)
	}
	return s.Signature, nil
}

// Verify returns what the signature of a module says, if it holds, one of the trusted
// keys made it and it has not expired at now. With ErrUnknownKey and ErrExpired it
// returns it too: it holds, but it is not for this caller. With any other error it
// returns the zero Signed.
func Verify(module []byte, trusted []PublicKey, now time.Time) (Signed, error) {
	m, err := wasm.Sections(module)
	if err != nil {
		return Signed{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	p, err := payloadOf(m)
	if err != nil {
		return Signed{}, err
	}
	content, ok := bytes.CutPrefix(module, p.beginning())
	if !ok {
		return Signed{}, fmt.Errorf("%w: the section %q is encoded in a way of its own", ErrMalformed, Section)
	}
	if !ed25519.Verify(p.key.ed25519(), message(p.digest), p.signature[:]) {
		return Signed{}, fmt.Errorf("%w: it is not one of the key %s, which it names", ErrTampered, p.key)
	}
	if sha256.Sum256(content) != p.digest {
		return Signed{}, fmt.Errorf("%w: the module was changed after it was signed with %s, or the signature is that of another module", ErrTampered, p.key)
	}
	signed, err := statementOf(m)
	if err != nil {
		return Signed{}, err
	}
	signed.Key = p.key
	switch {
	case !slices.Contains(trusted, p.key):
		return signed, fmt.Errorf("%w: it is %s, id %s", ErrUnknownKey, p.key, p.key.ID())
	case !signed.Expires.IsZero() && !now.Before(signed.Expires):
		return signed, fmt.Errorf("%w: it ended at %s", ErrExpired, signed.Expires.Format(time.RFC3339))
	}
	return signed, nil
}

func isCustom(s wasm.Section, name string) bool { return s.ID == wasm.SectionCustom && s.Name == name }

var preamble = []byte("\x00asm\x01\x00\x00\x00")

// message is what Ed25519 signs.
func message(digest [sha256.Size]byte) []byte {
	return append([]byte("wasmsig\x01\x01\x01"), digest[:]...)
}

// payload is what the signature section holds, in the one form that is written:
//
//	01 01 01       version, content type (module), hash (SHA-256)
//	01             sets of hashes
//	90 01          bytes of the set, 144
//	01             hashes
//	..             32 bytes, SHA-256 of all that follows the section
//	01             signatures
//	6d             bytes of the signature's record, 109
//	2a ..          42 bytes, the public key as minisign has it
//	01             Ed25519
//	40 ..          64 bytes, the signature
type payload struct {
	digest    [sha256.Size]byte
	key       PublicKey
	signature [ed25519.SignatureSize]byte
}

const (
	payloadHead  = "\x01\x01\x01\x01\x90\x01\x01"
	beforeKey    = "\x01\x6d\x2a"
	beforeSigned = "\x01\x40"
	payloadBytes = len(payloadHead) + sha256.Size + len(beforeKey) + publicKeyBytes + len(beforeSigned) + ed25519.SignatureSize
)

func (p payload) encode() []byte {
	return slices.Concat([]byte(payloadHead), p.digest[:], []byte(beforeKey), p.key.packed[:], []byte(beforeSigned), p.signature[:])
}

// beginning is what a module with this signature begins with.
func (p payload) beginning() []byte {
	m := wasm.Module{Sections: []wasm.Section{{ID: wasm.SectionCustom, Name: Section, Data: p.encode()}}}
	return m.Encode()
}

func payloadOf(m *wasm.Module) (payload, error) {
	at := -1
	for i, s := range m.Sections {
		switch {
		case !isCustom(s, Section):
		case at >= 0:
			return payload{}, fmt.Errorf("%w: there are several sections %q", ErrMalformed, Section)
		case i > 0:
			return payload{}, fmt.Errorf("%w: the section %q is not the first of the module", ErrMalformed, Section)
		default:
			at = i
		}
	}
	if at < 0 {
		return payload{}, ErrUnsigned
	}
	return parse(m.Sections[at].Data)
}

func parse(data []byte) (p payload, err error) {
	switch {
	case len(data) < 3 || data[0] != payloadHead[0] || data[1] != payloadHead[1] || data[2] != payloadHead[2]:
		return p, fmt.Errorf("%w: it is of another version, for another kind of content or of another hash", ErrMalformed)
	case len(data) > payloadBytes:
		return p, fmt.Errorf("%w: %d bytes after the one signature over the whole module that it may hold", ErrMalformed, len(data)-payloadBytes)
	case len(data) < payloadBytes:
		return p, fmt.Errorf("%w: %d bytes, one signature that names its minisign key has %d", ErrMalformed, len(data), payloadBytes)
	}
	rest := data[len(payloadHead):]
	rest = rest[copy(p.digest[:], rest)+len(beforeKey):]
	rest = rest[copy(p.key.packed[:], rest)+len(beforeSigned):]
	copy(p.signature[:], rest)
	if !bytes.Equal(p.encode(), data) || string(p.key.packed[:2]) != "Ed" {
		return p, fmt.Errorf("%w: it is not one Ed25519 signature over the whole module that names its minisign key", ErrMalformed)
	}
	return p, nil
}

// statement is what the section for it holds, as JSON in this form exactly.
type statement struct {
	Comment string     `json:"comment,omitempty"`
	Expires *time.Time `json:"expires,omitempty"`
}

func newStatement(o Options) ([]byte, error) {
	if len(o.Comment) > MaxCommentBytes || !utf8.ValidString(o.Comment) {
		return nil, fmt.Errorf("the comment has %d bytes: write at most %d, in UTF-8", len(o.Comment), MaxCommentBytes)
	}
	s := statement{Comment: o.Comment}
	if !o.Expires.IsZero() {
		expires := o.Expires.UTC().Truncate(time.Second)
		s.Expires = &expires
	}
	said, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("the expiry: %w", err)
	}
	return said, nil
}

func statementOf(m *wasm.Module) (signed Signed, err error) {
	var said []byte
	for _, s := range m.Sections {
		if !isCustom(s, StatementSection) {
			continue
		}
		if said != nil {
			return signed, fmt.Errorf("%w: there are several sections %q", ErrMalformed, StatementSection)
		}
		said = s.Data
	}
	if said == nil {
		return signed, nil
	}
	var s statement
	if len(said) > maxStatementBytes || json.Unmarshal(said, &s) != nil {
		return signed, fmt.Errorf("%w: the section %q is not what was written there", ErrMalformed, StatementSection)
	}
	signed.Comment = s.Comment
	if s.Expires != nil {
		signed.Expires = *s.Expires
	}
	// A second reader of the same bytes must not see another expiry.
	if again, err := newStatement(Options{Comment: signed.Comment, Expires: signed.Expires}); err != nil || !bytes.Equal(again, said) {
		return Signed{}, fmt.Errorf("%w: the section %q is not what was written there", ErrMalformed, StatementSection)
	}
	return signed, nil
}
