// Package manifest reads what a hand says about itself and asks for: the TOML
// document in the custom section "glovebox.manifest" of its module.
//
// A Manifest holds plain strings that the hand's author chose. Whoever shows
// them to a model frames them first.
package manifest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/mod/semver"

	"github.com/gloveboxhq/glovebox/abi"
)

// MaxBytes bounds the document.
const MaxBytes = 64 << 10

// maxScope bounds each list in a permission, maxScopeBytes what stands in one.
const (
	maxScope      = 32
	maxScopeBytes = 200
)

// maxWish is more than any host allows of a limit, and no more than can be counted.
const maxWish = 1 << 30

// Manifest is a checked manifest.
type Manifest struct {
	// Name matches [a-z0-9][a-z0-9-]{0,62}.
	Name string `toml:"name"`
	// Version is a semantic version without the "v".
	Version     string       `toml:"version"`
	ABI         int          `toml:"abi"`
	Description string       `toml:"description"`
	Authors     []string     `toml:"authors"`
	License     string       `toml:"license"`
	Homepage    string       `toml:"homepage"`
	Permissions []Permission `toml:"permissions"`
	// Config is keyed by the names that the operator may set.
	Config map[string]ConfigKey `toml:"config"`
	Limits Limits               `toml:"limits"`
}

// Permission asks for one capability.
type Permission struct {
	Capability abi.Capability `toml:"capability"`
	// Reason is shown to the operator word for word.
	Reason string `toml:"reason"`
	// Hosts is the scope of http: rules for requests, or abi.AnyHost alone. Paths are
	// the names of the roots of files, Secrets the names that the operator binds.
	// MaxTokens is the scope of llm: the output tokens of all that the model answers
	// in one query; zero leaves that to the query.
	Hosts     []string `toml:"hosts"`
	Paths     []string `toml:"paths"`
	Secrets   []string `toml:"secrets"`
	MaxTokens int      `toml:"max_tokens"`
}

// ConfigType is the type of a configuration value.
type ConfigType string

// The types. A list is a list of strings.
const (
	TypeString  ConfigType = "string"
	TypeInteger ConfigType = "integer"
	TypeNumber  ConfigType = "number"
	TypeBoolean ConfigType = "boolean"
	TypeList    ConfigType = "list"
)

// ConfigKey describes one value that the operator may set.
type ConfigKey struct {
	Type        ConfigType `toml:"type"`
	Required    bool       `toml:"required"`
	Default     any        `toml:"default"`
	Description string     `toml:"description"`
}

// Limits are a wish: the operator decides. Zero means no wish.
type Limits struct {
	TimeoutSecs int `toml:"timeout_secs"`
	MemoryMiB   int `toml:"memory_mib"`
	OutputBytes int `toml:"output_bytes"`
}

// Wish returns the limits as the host counts them; what is not wished for is
// zero.
func (l Limits) Wish() abi.Limits {
	return abi.Limits{
		Timeout:     time.Duration(l.TimeoutSecs) * time.Second,
		MemoryBytes: int64(l.MemoryMiB) << 20,
		OutputBytes: l.OutputBytes,
	}
}

// Parse reads and checks a manifest. Syntax errors, unknown keys and wrong
// types are *SyntaxError with line and column; broken rules name the key.
func Parse(data []byte) (Manifest, error) {
	var m Manifest
	if len(data) > MaxBytes {
		return m, fmt.Errorf("manifest is %d bytes: at most %d are allowed", len(data), MaxBytes)
	}
	if !utf8.Valid(data) {
		return m, fmt.Errorf("manifest is not UTF-8")
	}
	if err := Decode(data, &m); err != nil {
		return Manifest{}, fmt.Errorf("manifest: %w", err)
	}
	if err := m.check(); err != nil {
		return Manifest{}, fmt.Errorf("manifest: %w", err)
	}
	return m, nil
}

func (m *Manifest) check() error {
	switch {
	case !ValidName(m.Name):
		return fmt.Errorf("name %q: use 1 to 63 of a-z, 0-9 and -, not beginning with -", m.Name)
	case !validVersion(m.Version):
		return fmt.Errorf("version %q: use a semantic version such as 1.2.3", m.Version)
	case m.ABI == 0:
		return fmt.Errorf("abi is missing: write abi = %d", abi.Version)
	case m.ABI != abi.Version:
		return fmt.Errorf("abi = %d, this host speaks %d: %w", m.ABI, abi.Version, abi.KindABIMismatch)
	}
	seen := map[abi.Capability]bool{}
	for i, p := range m.Permissions {
		if err := p.check(); err != nil {
			return fmt.Errorf("permissions[%d]: %w", i, err)
		}
		if seen[p.Capability] {
			return fmt.Errorf("permissions[%d]: capability %q is asked for twice", i, p.Capability)
		}
		seen[p.Capability] = true
	}
	for _, key := range slices.Sorted(maps.Keys(m.Config)) {
		if err := checkConfigKey(key, m.Config[key]); err != nil {
			return err
		}
	}
	for _, wish := range []struct {
		key   string
		value int
	}{{"timeout_secs", m.Limits.TimeoutSecs}, {"memory_mib", m.Limits.MemoryMiB}, {"output_bytes", m.Limits.OutputBytes}} {
		if wish.value < 0 || wish.value > maxWish {
			return fmt.Errorf("limits.%s = %d: use 0 to %d", wish.key, wish.value, maxWish)
		}
	}
	return nil
}

func (p Permission) check() error {
	if p.Capability.Module() == "" {
		return fmt.Errorf("capability %q: use one of %v", p.Capability, abi.Capabilities())
	}
	if strings.TrimSpace(p.Reason) == "" {
		return fmt.Errorf("capability %q has no reason: say in a sentence what it is for", p.Capability)
	}
	for scope, set := range map[string]struct {
		used bool
		of   abi.Capability
	}{
		"hosts":      {len(p.Hosts) > 0, abi.CapabilityHTTP},
		"secrets":    {len(p.Secrets) > 0, abi.CapabilityHTTP},
		"paths":      {len(p.Paths) > 0, abi.CapabilityFiles},
		"max_tokens": {p.MaxTokens != 0, abi.CapabilityLLM},
	} {
		if set.used && p.Capability != set.of {
			return fmt.Errorf("%s belongs to capability %q, not %q", scope, set.of, p.Capability)
		}
	}
	if p.MaxTokens < 0 {
		return fmt.Errorf("max_tokens = %d: at least 1, or leave it out", p.MaxTokens)
	}
	if p.Capability == abi.CapabilityFiles && len(p.Paths) == 0 {
		return fmt.Errorf(`capability "files" needs paths: the names of the folders that it reads`)
	}
	// An operator who agrees to them has seen them all.
	for key, scope := range map[string][]string{"hosts": p.Hosts, "paths": p.Paths, "secrets": p.Secrets} {
		if len(scope) > maxScope {
			return fmt.Errorf("%d %s: at most %d", len(scope), key, maxScope)
		}
		for _, entry := range scope {
			if len(entry) > maxScopeBytes {
				return fmt.Errorf("%s: an entry of %d bytes, at most %d", key, len(entry), maxScopeBytes)
			}
		}
	}
	if len(p.Hosts) > 1 && slices.Contains(p.Hosts, abi.AnyHost) {
		return fmt.Errorf("hosts: %q asks for whatever the operator allows and stands alone", abi.AnyHost)
	}
	for _, name := range p.Paths {
		if !ValidName(name) {
			return fmt.Errorf("path %q: use 1 to 63 of a-z, 0-9 and -, not beginning with -", name)
		}
	}
	return nil
}

// Permission returns what m asks for of c.
func (m *Manifest) Permission(c abi.Capability) (Permission, bool) {
	for _, p := range m.Permissions {
		if p.Capability == c {
			return p, true
		}
	}
	return Permission{}, false
}

// ValidName reports whether name can be a hand's or a root's:
// [a-z0-9][a-z0-9-]{0,62}.
func ValidName(name string) bool {
	if len(name) == 0 || len(name) > 63 || name[0] == '-' {
		return false
	}
	for i := range len(name) {
		c := name[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// validVersion excludes the short forms v1 and v1.2, which package semver
// takes.
func validVersion(version string) bool {
	v := "v" + version
	return semver.IsValid(v) && strings.HasPrefix(v, semver.Canonical(v))
}
