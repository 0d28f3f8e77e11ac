package registry

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/registry/signature"
)

// Signer is who signed a module. Its signature holds.
type Signer struct {
	Key signature.PublicKey
	// Name is what the operator calls the key; "" if it is not a trusted one, or
	// its signature has expired.
	Name string
	// Comment is what the signer says of the module.
	Comment boundary.Content
	// Expires is when the signature ends; zero if never.
	Expires time.Time
}

// commentTokens bounds what a signature may say.
const commentTokens = 200

// signer holds the module's signature against what the operator trusts. It is nil
// where nobody signed and nobody had to.
func (r Request) signer() (*Signer, error) {
	if r.Bundled {
		return nil, nil
	}
	if r.Unsigned && r.Digest == "" {
		return nil, &abi.Error{Hand: r.Name, Kind: abi.KindNotGranted, Text: "unsigned = true needs the module's digest beside it, so that it is the word for one file"}
	}
	now := r.Now
	if now.IsZero() {
		now = time.Now()
	}
	signed, err := signature.Verify(r.Module, slices.Collect(maps.Values(r.Trusted)), now)
	required := len(r.Trusted) > 0 && !r.Unsigned
	switch {
	case err == nil:
	case errors.Is(err, signature.ErrTampered), errors.Is(err, signature.ErrMalformed):
		return nil, &abi.Error{Hand: r.Name, Kind: abi.KindBadModule, Text: "get the module anew, or have it signed again by its author", Err: err}
	case required:
		return nil, &abi.Error{Hand: r.Name, Kind: abi.KindNotGranted, Err: err, Text: fmt.Sprintf(
			"[trust.keys] does not let it in: %s, or write unsigned = true and its digest under [hands.%s] to take exactly this file", remedy(err), r.Name)}
	case errors.Is(err, signature.ErrUnsigned):
		return nil, nil
	}
	source, bad := boundary.HandSource(r.Name)
	if bad != nil {
		return nil, bad
	}
	s := &Signer{Key: signed.Key, Expires: signed.Expires}
	s.Comment, _ = boundary.Wrap(source, signed.Comment, commentTokens)
	if err == nil {
		for _, name := range slices.Sorted(maps.Keys(r.Trusted)) {
			if r.Trusted[name] == signed.Key {
				s.Name = name
				break
			}
		}
	}
	return s, nil
}

// remedy is what makes a module with this fault one that is signed as it has to be.
func remedy(err error) string {
	switch {
	case errors.Is(err, signature.ErrUnknownKey):
		return "add the key if you trust its owner"
	case errors.Is(err, signature.ErrExpired):
		return "get one with a later expiry from its author"
	}
	return "have its author sign it"
}
