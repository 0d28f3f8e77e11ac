package host

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/gloveboxhq/glovebox/abi/manifest"
	"github.com/gloveboxhq/glovebox/host/registry/signature"
)

// TrustConfig is [trust]. With no key in it, no hand needs a signature.
type TrustConfig struct {
	// Keys are minisign public keys by the operator's names for their owners: "RW…",
	// or the path of a file with one. A hand that is not bundled must be signed by
	// one of them, or be Unsigned.
	Keys map[string]string `toml:"keys"`
}

// isKeyText tells a key from the path of one: write ./ before a path that looks like
// a key.
func isKeyText(value string) bool {
	return strings.HasPrefix(value, "RW") && !strings.HasSuffix(value, ".pub")
}

func (c *Config) checkTrust() error {
	names := map[signature.PublicKey]string{}
	for _, name := range slices.Sorted(maps.Keys(c.Trust.Keys)) {
		key := "trust.keys." + name
		value := c.Trust.Keys[name]
		switch {
		case !manifest.ValidName(name):
			return fmt.Errorf("%s: a key's name is 1 to 63 of a-z, 0-9 and -, not beginning with -", key)
		case value == "":
			return fmt.Errorf("%s: write a minisign public key, RW…, or the path of a .pub file", key)
		case isKeyText(value):
			public, err := signature.ParsePublicKey(value)
			if err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
			if other, twice := names[public]; twice {
				return fmt.Errorf("%s: it is the key that trust.keys.%s has", key, other)
			}
			names[public] = name
		}
	}
	return nil
}

// TrustedKeys reads the keys of [trust.keys], and the files that are named there. The
// error names the key that is not one.
func (c Config) TrustedKeys() (map[string]signature.PublicKey, error) {
	keys := map[string]signature.PublicKey{}
	for _, name := range slices.Sorted(maps.Keys(c.Trust.Keys)) {
		public, err := ReadPublicKey(c.Trust.Keys[name])
		if err != nil {
			return nil, fmt.Errorf("trust.keys.%s: %w", name, err)
		}
		keys[name] = public
	}
	return keys, nil
}

// ReadPublicKey reads a minisign public key: "RW…", or the path of a file with one.
func ReadPublicKey(value string) (signature.PublicKey, error) {
	if isKeyText(value) {
		return signature.ParsePublicKey(value)
	}
	file, err := os.Open(value)
	if err != nil {
		return signature.PublicKey{}, fmt.Errorf("read the public key: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(file, signature.MaxKeyFileBytes+1))
	if err = errors.Join(err, file.Close()); err != nil {
		return signature.PublicKey{}, fmt.Errorf("read the public key: %w", err)
	}
	public, err := signature.ParsePublicKey(string(text))
	if err != nil {
		return public, fmt.Errorf("%s: %w", value, err)
	}
	return public, nil
}
