package host

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/capability"
	"github.com/gloveboxhq/glovebox/host/registry/lock"
	"github.com/gloveboxhq/glovebox/host/registry/signature"
)

// terms are what a hand is and may do, by the configuration and the lock together.
type terms struct {
	module    []byte
	bundled   bool
	installed bool
	source    string
	at        time.Time
	// config is the configuration with what was agreed: its Digest is that of an
	// agreement, and its Grant no more than was agreed.
	config HandConfig
	// state is that of the lock.
	state string
	// off says why the hand is disabled; "" if it is not.
	off string
}

// termsOf returns the terms of a hand that is configured, or else installed. What the
// lock says never keeps a host from starting: it disables the hand. The error is one
// of the configuration alone.
func termsOf(name string, written HandConfig, file *lock.File, agreed *lock.Snapshot) (terms, error) {
	t := terms{config: written, state: agreed.State(name)}
	entry, wrong := agreed.Entry(name)
	none := errors.Is(wrong, lock.ErrNoEntry)
	var err error
	if entry.Installed && written.Module == "" {
		t.installed, t.source, t.at = true, entry.Source, entry.At
		t.module, err = file.Module(entry.Digest)
	} else {
		t.module, t.bundled, err = ModuleOf(written.Module, name)
		t.bundled = t.bundled && err == nil
		if err != nil && written.Module == "" && none {
			t.off = fmt.Sprintf("no hand of this name is bundled or installed: install it with glovebox hand install REFERENCE --name %s, or take [hands.%s] out", name, name)
			return t, nil
		}
		if err != nil && none {
			return t, fmt.Errorf("hands.%s.module: %w", name, err)
		}
	}
	switch {
	case wrong != nil && !none:
		t.off = howToMend(name, wrong)
	case entry.RevokedAll:
		t.off = fmt.Sprintf("it was revoked at %s: glovebox hand grant %s grants it again", entry.At.Format(time.RFC3339), name)
	case len(entry.Revoked) > 0:
		t.off = fmt.Sprintf("%s was revoked at %s, and it cannot run without: glovebox hand grant %s grants it again", strings.Join(entry.Revoked, " and "), entry.At.Format(time.RFC3339), name)
	case err != nil:
		t.off = err.Error()
	case t.installed:
		t.take(entry)
	case !none && !t.bundled:
		t.off = t.compare(name, entry)
	}
	return t, nil
}

func howToMend(name string, wrong error) string {
	if errors.Is(wrong, lock.ErrDamaged) {
		return fmt.Sprintf("what was agreed for it is not known: %v: put a copy of the file back, or move it away and install and grant the hands again", wrong)
	}
	return fmt.Sprintf("%s is refused: %v: glovebox hand grant %s shows it and asks again", lock.Name, wrong, name)
}

// take joins what was agreed for an installed hand with its section. Values of the
// section go before those of the installation; a grant in it is a ceiling.
func (t *terms) take(entry lock.Entry) {
	t.config.Digest, t.config.Unsigned = cmp.Or(t.config.Digest, entry.Digest), t.config.Unsigned || entry.Unsigned
	values := maps.Clone(entry.Config)
	if values == nil {
		values = map[string]any{}
	}
	maps.Copy(values, t.config.Config)
	t.config.Config = values
	given := grantOf(entry.Grant)
	if t.config.Grant.written || !t.config.Grant.IsZero() {
		given = given.below(t.config.Grant)
	}
	t.config.Grant = given
}

// agree makes what was agreed the agreement to a module that the configuration names.
// One that was installed had a grant of its own, which naming it does not widen.
func (t *terms) agree(entry lock.Entry) {
	t.config.Digest, t.config.Unsigned = entry.Digest, t.config.Unsigned || entry.Unsigned
	if entry.Installed {
		t.config.Grant = grantOf(entry.Grant).below(t.config.Grant)
	}
}

// compare holds a module that the configuration names against the one that was
// agreed to, and returns the difference; "" if there is an agreement. A digest in the
// configuration is one too.
func (t *terms) compare(name string, entry lock.Entry) string {
	facts, _, err := lock.FactsOf(t.module)
	if err != nil {
		return err.Error()
	}
	if t.config.Digest == facts.Digest {
		return ""
	}
	if t.config.Digest == "" && facts.Digest == entry.Digest {
		t.agree(entry)
		return ""
	}
	if facts.Digest == entry.Digest {
		return fmt.Sprintf("the module is the one that was agreed to, but hands.%s.digest is of another one: change or remove that", name)
	}
	facts.Key = keyOf(t.module)
	return differs(name, entry.Differences(facts))
}

// keyOf is the key of who signed a module, trusted or not; "" if nobody did or the
// signature does not hold.
func keyOf(module []byte) string {
	signed, err := signature.Verify(module, nil, time.Time{})
	if !errors.Is(err, signature.ErrUnknownKey) {
		return ""
	}
	return signed.Key.String()
}

func differs(name string, differences []string) string {
	return fmt.Sprintf("it is not what was agreed to: %s: look at it with glovebox hand inspect, and agree with glovebox hand grant %s", strings.Join(differences, "; "), name)
}

// grantOf and agreedGrant have one grant in the forms of the configuration and of the
// lock.
func grantOf(g lock.Grant) GrantConfig {
	out := GrantConfig{Files: maps.Clone(g.Files), HTTP: slices.Clone(g.HTTP), AllowPrivate: slices.Clone(g.AllowPrivate), KV: g.KV, LLM: g.LLM}
	for name, s := range g.Secrets {
		if out.Secrets == nil {
			out.Secrets = map[string]SecretConfig{}
		}
		out.Secrets[name] = SecretConfig(s)
	}
	return out
}

func agreedGrant(g GrantConfig) lock.Grant {
	out := lock.Grant{Files: maps.Clone(g.Files), HTTP: slices.Clone(g.HTTP), AllowPrivate: slices.Clone(g.AllowPrivate), KV: g.KV, LLM: g.LLM}
	for name, s := range g.Secrets {
		if out.Secrets == nil {
			out.Secrets = map[string]lock.Secret{}
		}
		out.Secrets[name] = lock.Secret(s)
	}
	return out
}

// IsZero reports whether nothing is granted.
func (g GrantConfig) IsZero() bool {
	return len(g.Files)+len(g.HTTP)+len(g.AllowPrivate)+len(g.Secrets) == 0 && !g.KV && !g.LLM
}

// below returns what both g and a ceiling grant. A directory, an address and a secret
// is granted where both say the same: a directory within another one may be a link
// that leads out of it.
func (g GrantConfig) below(ceiling GrantConfig) GrantConfig {
	out := GrantConfig{Files: map[string]string{}, Secrets: map[string]SecretConfig{}, KV: g.KV && ceiling.KV, LLM: g.LLM && ceiling.LLM}
	for root, dir := range g.Files {
		if other, ok := ceiling.Files[root]; ok && filepath.Clean(dir) == filepath.Clean(other) {
			out.Files[root] = dir
		}
	}
	for name, s := range g.Secrets {
		if ceiling.Secrets[name] == s {
			out.Secrets[name] = s
		}
	}
	for _, address := range g.AllowPrivate {
		if slices.Contains(ceiling.AllowPrivate, address) {
			out.AllowPrivate = append(out.AllowPrivate, address)
		}
	}
	agreed, err := capability.ParseHostRules(g.HTTP)
	allowed, wrong := capability.ParseHostRules(ceiling.HTTP)
	if err == nil && wrong == nil {
		for _, rule := range capability.Intersect(agreed, allowed) {
			out.HTTP = append(out.HTTP, rule.String())
		}
	}
	return out
}

// disabledHand is a hand that is known and not asked.
type disabledHand struct {
	info  HandInfo
	state string
}

func (d *disabledHand) err() error {
	return &abi.Error{Hand: d.info.Name, Kind: abi.KindDisabled, Text: "it is disabled: " + d.info.Disabled}
}

// disable returns what is known of a hand with the terms t, which is not asked for
// the reason why. A section without anything of its name is no reason to guess.
func disable(name string, t terms, users []string, why string) *disabledHand {
	info := HandInfo{Name: name}
	if t.module != nil {
		if seen, err := infoOf(name, t.module); err == nil {
			info = seen
		}
	}
	info.Bundled, info.Installed, info.Source, info.AgreedAt = t.bundled, t.installed, t.source, t.at
	info.Users, info.Disabled, info.Absent = users, why, t.module == nil && t.state == ""
	info.Prompts, info.FreePrompts = maps.Clone(t.config.Prompts), t.config.FreePrompts
	return &disabledHand{info, t.state}
}
