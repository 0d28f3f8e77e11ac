package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/abi/manifest"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/capability"
	"github.com/gloveboxhq/glovebox/host/registry"
	"github.com/gloveboxhq/glovebox/host/registry/lock"
	"github.com/gloveboxhq/glovebox/host/registry/signature"
	"github.com/gloveboxhq/glovebox/host/sandbox"
	"github.com/gloveboxhq/glovebox/plugins"
)

// Installer installs hands and removes them, and agrees to what they may do or takes
// it back. It works beside hosts of the same data directory, in whatever process: what
// it writes holds for their next query, and for the next call of a capability by one
// that goes on. It is safe for concurrent use.
type Installer struct {
	config  Config
	engine  *sandbox.Engine
	ledger  *capability.Ledger
	file    *lock.File
	trusted map[string]signature.PublicKey
	now     func() time.Time
	close   func() error
}

// OpenInstaller opens what an Installer needs where no host is at hand: the ledger and
// the cache of compiled modules. It creates the data directory if need be.
func OpenInstaller(ctx context.Context, config Config) (_ *Installer, err error) {
	if err := config.Check(); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if config.Data == "" {
		if config.Data, err = DefaultData(); err != nil {
			return nil, err
		}
	}
	database, err := config.DatabasePath()
	if err != nil {
		return nil, err
	}
	dir := filepath.Dir(database)
	i := &Installer{config: config, file: config.Agreed, now: config.Now}
	if i.now == nil {
		i.now = time.Now
	}
	i.close = func() error {
		var errs []error
		if i.engine != nil {
			errs = append(errs, i.engine.Close())
		}
		if i.ledger != nil {
			errs = append(errs, i.ledger.Close())
		}
		return errors.Join(errs...)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, i.close())
		}
	}()
	if i.trusted, err = config.TrustedKeys(); err != nil {
		return nil, err
	}
	if i.ledger, err = capability.OpenLedger(ctx, filepath.Join(dir, "hands.db"), config.Now); err != nil {
		return nil, err
	}
	if i.file == nil {
		if i.file, err = lockBeside(dir, i.ledger); err != nil {
			return nil, err
		}
	}
	cache := cmp.Or(config.Cache, defaultCache(config.Data))
	if i.engine, err = sandbox.New(config.sandbox(cache)); err != nil {
		return nil, err
	}
	return i, nil
}

func lockBeside(dir string, ledger *capability.Ledger) (*lock.File, error) {
	key, err := ledger.LockKey()
	if err != nil {
		return nil, err
	}
	return lock.New(dir, key), nil
}

// Installer returns one that works with what the host has open, and with the
// configuration that is in force now. It is closed with the host.
func (h *Host) Installer() (*Installer, error) {
	config := h.Config()
	trusted, err := config.TrustedKeys()
	if err != nil {
		return nil, err
	}
	return &Installer{config: config, engine: h.engine, ledger: h.ledger, file: h.agreed, trusted: trusted, now: h.now, close: func() error { return nil }}, nil
}

// Close closes what OpenInstaller opened.
func (i *Installer) Close() error { return i.close() }

// Proposal is a hand as it is shown before somebody agrees to it. What Agree agrees
// to is these bytes and nothing else.
type Proposal struct {
	Name string
	// Source is where the module came from.
	Source string
	// Installed says that the module is or will be kept beside glovebox.lock; else the
	// configuration names it, or it is Bundled.
	Installed, Bundled bool
	// Facts tell the module from others; their strings are its author's.
	Facts       lock.Facts
	Bytes       int
	Description boundary.Content
	// Permissions are what it asks for. None is granted yet.
	Permissions []HandPermission
	// Signer is who signed, SignedBy the operator's name for that key. Unsigned says
	// why that is not enough, and wraps ErrUnsigned, ErrUnknownKey or ErrExpired of
	// package signature; nil if it is, or if the hand is bundled.
	Signer   signature.Signed
	SignedBy string
	Comment  boundary.Content
	Unsigned error
	// Agreed is what was agreed for the name before; nil for nothing. Refused says why
	// it does not count, if it does not. Differences tell how the module differs from
	// the one that was agreed to, a line each.
	Agreed      *lock.Entry
	Refused     error
	Differences []string

	module   []byte
	manifest manifest.Manifest
	state    string
}

// Asks reports whether the module asks for a capability.
func (p *Proposal) Asks(c abi.Capability) bool {
	_, asks := p.manifest.Permission(c)
	return asks
}

// Module returns the bytes, which are not to be changed.
func (p *Proposal) Module() []byte { return p.module }

// Ungranted returns what is to be said on the command line, --files ROOT=DIR or --http
// RULE, for what the module asks for and an agreement to it does not give yet: folders,
// none of which is granted, and requests to whatever the operator allows.
func (p *Proposal) Ungranted(given GrantConfig) []string {
	if !p.Installed {
		return nil
	}
	var all []string
	granted := p.grant(given)
	if asked, _ := p.manifest.Permission(abi.CapabilityFiles); len(granted.Files) == 0 {
		for _, root := range asked.Paths {
			all = append(all, "--files "+root+"=DIR")
		}
	}
	if p.Asks(abi.CapabilityHTTP) && len(granted.HTTP) == 0 {
		all = append(all, "--http https://HOST/")
	}
	return all
}

// Capabilities are those that the module asks for, sorted.
func (p *Proposal) Capabilities() []abi.Capability {
	var all []abi.Capability
	for _, a := range p.Facts.Asks {
		all = append(all, a.Capability)
	}
	return all
}

// Look returns what installing a module as name would agree to; "" is the name in its
// manifest. It runs and writes nothing. A module that could not be loaded whatever was
// granted, and a signature that does not hold, are errors.
func (i *Installer) Look(name string, module []byte, source string) (*Proposal, error) {
	p := &Proposal{Name: name, Source: source, Installed: true, module: module}
	if err := i.examine(p); err != nil {
		return nil, err
	}
	if slices.Contains(plugins.Names(), p.Name) {
		return nil, fmt.Errorf("%q is the name of a bundled hand: give the hand another one", p.Name)
	}
	if i.config.Hands[p.Name].Module != "" {
		return nil, fmt.Errorf("hands.%s.module in the configuration names a module of its own: give the hand another name, or take that out", p.Name)
	}
	return p, nil
}

// LookAgain is Look for a hand that is installed or configured.
func (i *Installer) LookAgain(name string) (*Proposal, error) {
	written, configured := i.config.Hands[name]
	entry, err := i.file.Read().Entry(name)
	if errors.Is(err, lock.ErrDamaged) {
		return nil, err
	}
	p := &Proposal{Name: name, Source: cmp.Or(written.Module, bundledPrefix+name)}
	switch {
	case written.Module == "" && (entry.Installed || !configured && errors.Is(err, lock.ErrUnsealed)):
		p.Installed, p.Source = true, entry.Source
		p.module, err = i.file.Module(entry.Digest)
	case configured:
		p.module, p.Bundled, err = ModuleOf(written.Module, name)
	default:
		return nil, fmt.Errorf("no hand %q is installed or configured: %w", name, abi.KindUnknownHand)
	}
	if err != nil {
		return nil, fmt.Errorf("hand %q: %w", name, err)
	}
	return p, i.examine(p)
}

func (i *Installer) examine(p *Proposal) error {
	outline, err := sandbox.Inspect(p.module)
	if err != nil {
		return err
	}
	if outline.Refusal != nil {
		return outline.Refusal
	}
	if p.Facts, p.manifest, err = lock.FactsOf(p.module); err != nil {
		return err
	}
	if err := registry.Agree(p.manifest, outline); err != nil {
		return fmt.Errorf("its manifest and its imports disagree: %w", err)
	}
	if p.Name = cmp.Or(p.Name, p.manifest.Name); p.Name == "" {
		return errors.New("the module has no manifest and so no name: give it one")
	}
	if !manifest.ValidName(p.Name) {
		return fmt.Errorf("%q: a hand's name is 1 to 63 of a-z, 0-9 and -, not beginning with -", p.Name)
	}
	p.Bytes = len(p.module)
	info, err := infoOf(p.Name, p.module)
	if err != nil {
		return err
	}
	p.Description, p.Permissions = info.Description, info.Permissions
	if err := i.whoSigned(p); err != nil {
		return err
	}
	snapshot := i.file.Read()
	p.state = snapshot.State(p.Name)
	entry, err := snapshot.Entry(p.Name)
	switch {
	case errors.Is(err, lock.ErrDamaged):
		return err
	case errors.Is(err, lock.ErrNoEntry):
	case err != nil:
		p.Agreed, p.Refused = &entry, err
	default:
		p.Agreed, p.Differences = &entry, entry.Differences(p.Facts)
	}
	return nil
}

func (i *Installer) whoSigned(p *Proposal) error {
	if p.Bundled {
		return nil
	}
	signed, err := signature.Verify(p.module, slices.Collect(maps.Values(i.trusted)), i.now())
	if errors.Is(err, signature.ErrTampered) || errors.Is(err, signature.ErrMalformed) {
		return err
	}
	if p.Unsigned = err; errors.Is(err, signature.ErrUnsigned) {
		return nil
	}
	p.Signer, p.Facts.Key = signed, signed.Key.String()
	for name, key := range i.trusted {
		if key == signed.Key {
			p.SignedBy = name
		}
	}
	source, err := boundary.HandSource(p.Name)
	if err != nil {
		return err
	}
	p.Comment, _ = boundary.Wrap(source, signed.Comment, reasonTokens)
	return nil
}

// Terms are what somebody agrees to.
type Terms struct {
	// Capabilities must be all that the module asks for: it cannot run with less.
	Capabilities []abi.Capability
	// Grant is for a hand that is Installed. What it leaves out of directories,
	// addresses and secrets is as it was granted before; requests are as before too if
	// they were narrowed then, and else those that the manifest asks for, but never
	// abi.AnyHost. KV and LLM
	// follow from Capabilities.
	Grant GrantConfig
	// Config are values, beside those that were set before.
	Config map[string]any
	// Unsigned takes a module whose Proposal is Unsigned.
	Unsigned bool
}

// Agree checks that the hand can be loaded with the terms, compiles it ahead, and
// then, in one step, makes it an agreement, which is returned without its Seal. When
// it fails nothing has changed. The
// error wraps lock.ErrChanged if somebody else changed what is agreed for the name
// since Look; those of a hand are *abi.Error.
func (i *Installer) Agree(ctx context.Context, p *Proposal, agreed Terms) (lock.Entry, error) {
	refuse := func(format string, args ...any) (lock.Entry, error) {
		return lock.Entry{}, &abi.Error{Hand: p.Name, Kind: abi.KindNotGranted, Text: fmt.Sprintf(format, args...)}
	}
	for _, c := range p.Capabilities() {
		if !slices.Contains(agreed.Capabilities, c) {
			return refuse("it asks for %s, which is not agreed to, and it cannot run without", c)
		}
	}
	for _, c := range agreed.Capabilities {
		if !p.Asks(c) {
			return refuse("%s is agreed to, and it does not ask for that", c)
		}
	}
	if p.Unsigned != nil && !agreed.Unsigned && p.Installed {
		return lock.Entry{}, &abi.Error{Hand: p.Name, Kind: abi.KindNotGranted, Text: "it needs the word that it is taken without a signature that is trusted", Err: p.Unsigned}
	}
	if !p.Installed && (!agreed.Grant.IsZero() || len(agreed.Config) > 0) {
		return refuse("it is configured: [hands.%s] grants what it may reach and sets its values", p.Name)
	}
	entry := lock.Entry{Facts: p.Facts, Source: p.Source, Installed: p.Installed, Unsigned: agreed.Unsigned && p.Unsigned != nil, At: i.now()}
	if p.Installed {
		entry.Grant, entry.Config = agreedGrant(p.grant(agreed.Grant)), p.values(agreed.Config)
	}
	if err := i.try(ctx, p, entry); err != nil {
		return lock.Entry{}, err
	}
	var module []byte
	if p.Installed {
		module = p.module
	}
	if err := i.file.Change(ctx, func(e *lock.Edit) error {
		if err := e.Expect(p.Name, p.state); err != nil {
			return err
		}
		return e.Put(p.Name, entry, module)
	}); err != nil {
		return lock.Entry{}, err
	}
	return entry, nil
}

// grant completes what was given.
func (p *Proposal) grant(given GrantConfig) GrantConfig {
	var before GrantConfig
	var asked []string
	if p.Agreed != nil && p.Refused == nil {
		before = grantOf(p.Agreed.Grant)
		for _, a := range p.Agreed.Asks {
			asked = append(asked, a.Hosts...)
		}
	}
	out := GrantConfig{KV: p.Asks(abi.CapabilityKV), LLM: p.Asks(abi.CapabilityLLM)}
	files, _ := p.manifest.Permission(abi.CapabilityFiles)
	out.Files = maps.Clone(given.Files)
	for root, dir := range before.Files {
		if _, ok := out.Files[root]; !ok && slices.Contains(files.Paths, root) {
			if out.Files == nil {
				out.Files = map[string]string{}
			}
			out.Files[root] = dir
		}
	}
	requests, asks := p.manifest.Permission(abi.CapabilityHTTP)
	if !asks {
		// What is given for requests is refused where it is checked.
		out.HTTP, out.AllowPrivate, out.Secrets = given.HTTP, given.AllowPrivate, given.Secrets
		return out
	}
	out.AllowPrivate = given.AllowPrivate
	if len(out.AllowPrivate) == 0 {
		out.AllowPrivate = before.AllowPrivate
	}
	anyHost := slices.Equal(requests.Hosts, []string{abi.AnyHost})
	switch narrowed := !slices.Equal(slices.Sorted(slices.Values(before.HTTP)), slices.Sorted(slices.Values(asked))); {
	case len(given.HTTP) > 0:
		out.HTTP = given.HTTP
	case len(before.HTTP) > 0 && (narrowed || anyHost):
		out.HTTP = before.HTTP
	case anyHost: // which is the operator's to say
	default:
		out.HTTP = slices.Clone(requests.Hosts)
	}
	out.Secrets = maps.Clone(given.Secrets)
	for _, text := range requests.Secrets {
		name, _, _ := strings.Cut(text, " ")
		_, isGiven := out.Secrets[name]
		if s, ok := before.Secrets[name]; ok && !isGiven {
			if out.Secrets == nil {
				out.Secrets = map[string]SecretConfig{}
			}
			out.Secrets[name] = s
		}
	}
	return out
}

// values completes those that were given by those before that there still are.
func (p *Proposal) values(given map[string]any) map[string]any {
	out := maps.Clone(given)
	if p.Agreed == nil || p.Refused != nil {
		return out
	}
	for key, value := range p.Agreed.Config {
		_, isGiven := out[key]
		if _, known := p.manifest.Config[key]; known && !isGiven {
			if out == nil {
				out = map[string]any{}
			}
			out[key] = value
		}
	}
	return out
}

// try loads the hand as a host would with the entry, which leaves it compiled in the
// cache.
func (i *Installer) try(ctx context.Context, p *Proposal, entry lock.Entry) error {
	t := terms{config: i.config.Hands[p.Name], module: p.module, bundled: p.Bundled, installed: p.Installed}
	if p.Installed {
		t.take(entry)
	} else if !p.Bundled {
		if t.config.Digest != "" && t.config.Digest != entry.Digest {
			return fmt.Errorf("hands.%s.digest in the configuration is of another module: change it to %q, or take it out", p.Name, entry.Digest)
		}
		t.agree(entry)
	}
	if err := i.config.checkHand(p.Name, t.config); err != nil {
		return err
	}
	opened, err := registry.Open(ctx, i.engine, requestFor(p.Name, t, i.trusted, i.now()))
	if err != nil {
		return err
	}
	defer opened.Module().Close()
	g := t.config.Grant
	switch {
	case opened.Grant().HTTP:
		// The values of secrets are those of the process that asks the hand.
		if _, err := g.http(opened.Permission(abi.CapabilityHTTP), capability.NameSecret); err != nil {
			return fmt.Errorf("hand %q: %w", p.Name, err)
		}
	case len(g.AllowPrivate)+len(g.Secrets) > 0:
		return fmt.Errorf("hand %q: allowed addresses and secrets belong to http, which it does not ask for", p.Name)
	}
	return nil
}

// Revoke takes capabilities back that a hand asks for; none means all that it may do.
// The hand is disabled until it is agreed to again. It works also for a hand whose
// entry is refused, and for one that only the configuration agreed to.
func (i *Installer) Revoke(ctx context.Context, name string, capabilities ...abi.Capability) (entry lock.Entry, err error) {
	written, configured := i.config.Hands[name]
	err = i.file.Change(ctx, func(e *lock.Edit) error {
		var wrong error
		entry, wrong = e.Entry(name)
		switch {
		case errors.Is(wrong, lock.ErrNoEntry) && !configured:
			return fmt.Errorf("no hand %q is installed or configured: %w", name, abi.KindUnknownHand)
		case errors.Is(wrong, lock.ErrNoEntry):
			module, _, err := ModuleOf(written.Module, name)
			if err != nil {
				return fmt.Errorf("hands.%s.module: %w", name, err)
			}
			entry = lock.Entry{Source: written.Module}
			if entry.Facts, _, err = lock.FactsOf(module); err != nil {
				return err
			}
		case errors.Is(wrong, lock.ErrUnsealed):
			entry = i.withoutTerms(entry)
			capabilities = nil
		case wrong != nil:
			return wrong
		}
		for _, c := range capabilities {
			if !slices.ContainsFunc(entry.Asks, func(a lock.Ask) bool { return a.Capability == c }) {
				return &abi.Error{Hand: name, Kind: abi.KindNotGranted, Text: fmt.Sprintf("it does not ask for %s", c)}
			}
			if !slices.Contains(entry.Revoked, string(c)) {
				entry.Revoked = append(entry.Revoked, string(c))
			}
		}
		slices.Sort(entry.Revoked)
		entry.RevokedAll = entry.RevokedAll || len(capabilities) == 0
		entry.At = i.now()
		return e.Put(name, entry, nil)
	})
	return entry, err
}

// withoutTerms is an entry that somebody else wrote, of which nothing is agreed to by
// being sealed.
func (i *Installer) withoutTerms(written lock.Entry) lock.Entry {
	entry := lock.Entry{Facts: lock.Facts{Digest: written.Digest}, Installed: written.Installed, Source: written.Source}
	if module, err := i.file.Module(entry.Digest); entry.Installed && err == nil {
		if facts, _, err := lock.FactsOf(module); err == nil {
			entry.Facts = facts
		}
	}
	return entry
}

// Remove removes an installed hand: what was agreed, the module, and the values that
// it kept. What it did stays in the ledger. The hand is revoked first and its name is
// free last, so that whoever takes that finds no value, whenever this was cut short;
// then it is to be called again.
func (i *Installer) Remove(ctx context.Context, name string) error {
	written, configured := i.config.Hands[name]
	if err := i.file.Change(ctx, func(e *lock.Edit) error {
		entry, err := e.Entry(name)
		switch {
		case errors.Is(err, lock.ErrNoEntry) && !configured:
			return fmt.Errorf("no hand %q is installed: %w", name, abi.KindUnknownHand)
		case errors.Is(err, lock.ErrNoEntry), configured && (!entry.Installed || written.Module != ""):
			return fmt.Errorf("hand %q is not installed but configured: take [hands.%s] out, or revoke what it may do", name, name)
		case errors.Is(err, lock.ErrUnsealed):
			entry = i.withoutTerms(entry)
		case err != nil:
			return err
		}
		entry.RevokedAll, entry.At = true, i.now()
		return e.Put(name, entry, nil)
	}); err != nil {
		return err
	}
	if err := i.ledger.ForgetValues(ctx, name); err != nil {
		return fmt.Errorf("hand %q is revoked and not removed: %w", name, err)
	}
	return i.file.Change(ctx, func(e *lock.Edit) error {
		switch entry, err := e.Entry(name); {
		case errors.Is(err, lock.ErrNoEntry): // somebody else removed it too
		case err == nil && !entry.RevokedAll:
			return fmt.Errorf("%q: %w: look at it again", name, lock.ErrChanged)
		}
		e.Delete(name)
		return nil
	})
}
