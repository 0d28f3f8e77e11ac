package lock

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/semver"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/abi/manifest"
	"github.com/gloveboxhq/glovebox/host/sandbox"
)

// Entry is what was agreed for one hand.
type Entry struct {
	// Facts are those of the module that was shown.
	Facts
	// Source is where the module came from, as a reference that can be installed
	// again. It is told, and nothing follows from it.
	Source string `toml:"source,omitempty"`
	// Installed says that the module is kept beside the lock. Else the configuration
	// names it, and what it may reach.
	Installed bool `toml:"installed,omitempty"`
	// Unsigned says that the operator took the module without a signature that is
	// trusted.
	Unsigned bool `toml:"unsigned,omitempty"`
	// Revoked are the capabilities that were taken back, sorted; RevokedAll says that
	// everything was. The hand is not asked before it is granted again.
	Revoked    []string `toml:"revoked,omitempty"`
	RevokedAll bool     `toml:"revoked_all,omitempty"`
	// At is when it was agreed or taken back, in whole seconds of UTC.
	At time.Time `toml:"at"`
	// Grant is what the operator gave to an installed hand, and Config the values.
	Grant  Grant          `toml:"grant,omitempty"`
	Config map[string]any `toml:"config,omitempty"`

	// Seal is of all the above and the name. File sets it.
	Seal string `toml:"seal"`
}

// Facts are what tells a module from others, and what it asks for.
type Facts struct {
	// Digest is of the module, Manifest of its manifest section, "" if it has none;
	// both "sha256:…".
	Digest   string `toml:"digest"`
	Manifest string `toml:"manifest,omitempty"`
	Version  string `toml:"version,omitempty"`
	// Key is the public key of who signed it; "" if nobody whose signature counts.
	Key string `toml:"key,omitempty"`
	// Asks are what the manifest asks for, by capability.
	Asks []Ask `toml:"asks,omitempty"`
}

// Ask is one capability that a module asks for, with its scope. The strings are its
// author's; the lists are sorted.
type Ask struct {
	Capability abi.Capability `toml:"capability"`
	Hosts      []string       `toml:"hosts,omitempty"`
	Secrets    []string       `toml:"secrets,omitempty"`
	Paths      []string       `toml:"paths,omitempty"`
	MaxTokens  int            `toml:"max_tokens,omitempty"`
}

// Grant is what an operator gave, in the forms of the configuration's
// [hands.NAME.grant].
type Grant struct {
	Files        map[string]string `toml:"files,omitempty"`
	HTTP         []string          `toml:"http,omitempty"`
	AllowPrivate []string          `toml:"allow_private,omitempty"`
	Secrets      map[string]Secret `toml:"secrets,omitempty"`
	KV           bool              `toml:"kv,omitempty"`
	LLM          bool              `toml:"llm,omitempty"`
}

// Secret binds a secret. Its value is never here: From is env:NAME or file:PATH.
type Secret struct {
	From     string `toml:"from"`
	Host     string `toml:"host"`
	Header   string `toml:"header,omitempty"`
	Format   string `toml:"format,omitempty"`
	Insecure bool   `toml:"insecure,omitempty"`
}

// FactsOf returns the facts of a module, without a key: who signed it is found out
// elsewhere. The error is one of sandbox.Describe or manifest.Parse.
func FactsOf(module []byte) (Facts, manifest.Manifest, error) {
	outline, err := sandbox.Describe(module)
	if err != nil {
		return Facts{}, manifest.Manifest{}, err
	}
	facts := Facts{Digest: outline.Digest}
	if outline.Manifest == nil {
		return facts, manifest.Manifest{}, nil
	}
	m, err := manifest.Parse(outline.Manifest)
	if err != nil {
		return facts, manifest.Manifest{}, err
	}
	sum := sha256.Sum256(outline.Manifest)
	facts.Manifest, facts.Version = "sha256:"+hex.EncodeToString(sum[:]), m.Version
	for _, p := range m.Permissions {
		facts.Asks = append(facts.Asks, Ask{p.Capability, sorted(p.Hosts), sorted(p.Secrets), sorted(p.Paths), p.MaxTokens})
	}
	slices.SortFunc(facts.Asks, func(a, b Ask) int { return cmp.Compare(a.Capability, b.Capability) })
	return facts, m, nil
}

func sorted(all []string) []string { return slices.Sorted(slices.Values(all)) }

func (f Facts) ask(c abi.Capability) (Ask, bool) {
	for _, a := range f.Asks {
		if a.Capability == c {
			return a, true
		}
	}
	return Ask{}, false
}

// maxDifferences bounds what is told: a manifest may ask for thousands of hosts.
const maxDifferences = 20

// Differences says in the host's words how a module differs from the one that was
// agreed to, a line each; nothing if it is the same one. What its author chose is
// quoted, and short.
func (f Facts) Differences(now Facts) []string {
	var all []string
	say := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	// Before what a manifest may make long.
	if f.Key != now.Key {
		say("it is signed by %s, agreed was %s", signer(now.Key), signer(f.Key))
	}
	switch order := semver.Compare("v"+now.Version, "v"+f.Version); {
	case f.Version == now.Version:
	case f.Version == "" || now.Version == "" || order == 0:
		say("its version is %s, agreed was %s", orNone(now.Version), orNone(f.Version))
	case order < 0:
		say("its version %s is older than %s, which was agreed", quoted(now.Version), quoted(f.Version))
	default:
		say("its version %s is newer than %s, which was agreed", quoted(now.Version), quoted(f.Version))
	}
	for _, a := range now.Asks {
		before, asked := f.ask(a.Capability)
		if !asked {
			say("it asks for %s, which was not agreed", a.Capability)
		}
		for _, scope := range []struct {
			what          string
			before, after []string
		}{{"host", before.Hosts, a.Hosts}, {"secret", before.Secrets, a.Secrets}, {"folder", before.Paths, a.Paths}} {
			for _, s := range scope.after {
				if !slices.Contains(scope.before, s) {
					say("it asks for the %s %s, which was not agreed", scope.what, quoted(s))
				}
			}
		}
		if a.MaxTokens != before.MaxTokens {
			say("it asks for %d tokens of the model, agreed were %d", a.MaxTokens, before.MaxTokens)
		}
	}
	for _, a := range f.Asks {
		after, asks := now.ask(a.Capability)
		if !asks {
			say("it does not ask for %s any more", a.Capability)
			continue
		}
		if n := missing(a.Hosts, after.Hosts) + missing(a.Secrets, after.Secrets) + missing(a.Paths, after.Paths); n > 0 {
			say("it asks for less of %s than was agreed", a.Capability)
		}
	}
	if f.Digest != now.Digest {
		say("its digest is %s, agreed was %s", now.Digest, f.Digest)
	}
	if len(all) > maxDifferences {
		rest := len(all) - maxDifferences
		all = append(all[:maxDifferences], fmt.Sprintf("and %d more differences", rest))
	}
	return all
}

func missing(before, after []string) (n int) {
	for _, s := range before {
		if !slices.Contains(after, s) {
			n++
		}
	}
	return n
}

func signer(key string) string {
	if key == "" {
		return "nobody who counts"
	}
	return "the key " + key
}

func orNone(version string) string {
	if version == "" {
		return "none"
	}
	return quoted(version)
}

const maxQuoted = 120

// quoted keeps words of others from being taken for ours, or for a terminal's.
func quoted(text string) string {
	if len(text) > maxQuoted {
		text = strings.ToValidUTF8(text[:maxQuoted], "") + "…"
	}
	return strconv.QuoteToASCII(text)
}

// IsRevoked reports whether something of it was taken back.
func (e *Entry) IsRevoked() bool { return e.RevokedAll || len(e.Revoked) > 0 }

// check refuses an entry that no version of this program wrote. Digests become file
// names.
func (e *Entry) check() error {
	switch {
	case !validDigest(e.Digest):
		return fmt.Errorf("digest %s is not sha256: and 64 hexadecimal digits", quoted(e.Digest))
	case e.Manifest != "" && !validDigest(e.Manifest):
		return fmt.Errorf("manifest %s is not sha256: and 64 hexadecimal digits", quoted(e.Manifest))
	}
	return nil
}

func validDigest(digest string) bool {
	text, ok := strings.CutPrefix(digest, "sha256:")
	return ok && len(text) == 2*sha256.Size && strings.Trim(text, "0123456789abcdef") == ""
}
