// Package registry turns bytes into hands. A Hand exists only after its digest,
// its signature, its manifest, its imports and what the operator grants and trusts agree; whoever holds
// one need not check again.
package registry

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/abi/manifest"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/registry/signature"
	"github.com/gloveboxhq/glovebox/host/sandbox"
)

// Grant is what the operator lets a hand reach.
type Grant struct {
	// Files maps the names of roots that the manifest asks for to
	// directories.
	Files map[string]string
	// HTTP lets it make requests, KV keep values, LLM ask the host's model.
	HTTP, KV, LLM bool
}

// IsZero reports whether g grants nothing.
func (g Grant) IsZero() bool { return len(g.capabilities()) == 0 }

func (g Grant) capabilities() []abi.Capability {
	var granted []abi.Capability
	for _, c := range []struct {
		capability abi.Capability
		granted    bool
	}{{abi.CapabilityHTTP, g.HTTP}, {abi.CapabilityFiles, len(g.Files) > 0}, {abi.CapabilityKV, g.KV}, {abi.CapabilityLLM, g.LLM}} {
		if c.granted {
			granted = append(granted, c.capability)
		}
	}
	return granted
}

func (g Grant) clone() Grant {
	g.Files = maps.Clone(g.Files)
	return g
}

// Request is what a hand is made from.
type Request struct {
	// Name is the operator's name for the hand; errors and frames bear it.
	Name string
	// Module is the bytes of the module.
	Module []byte
	// Bundled says that the module is part of this program. Any other needs
	// Digest beside a grant, so that a file that is replaced has no grant.
	Bundled bool
	// Digest, "sha256:…", is what the operator agreed to; "" if nothing.
	Digest string
	// Trusted are the keys, by the operator's names, one of which must have signed
	// a module that is not bundled; with none, no module needs a signature. One that
	// is there must hold in any case.
	Trusted map[string]signature.PublicKey
	// Unsigned is the operator's word that this module needs no signature of a trusted
	// key. It is for one file and thus needs Digest.
	Unsigned bool
	// Now is when signatures must not have expired; zero means now.
	Now   time.Time
	Grant Grant
	// Config holds the operator's values.
	Config map[string]any
	// Limits override the defaults where they are not zero.
	Limits abi.Limits
	// FromStart is sandbox.Options.FromStart.
	FromStart bool
}

// Hand is a hand that may be asked. It is safe for concurrent use.
type Hand struct {
	name        string
	description boundary.Content
	version     string
	bundled     bool
	signer      *Signer // nil if nobody signed
	module      *sandbox.Module
	permissions []manifest.Permission
	grant       Grant
	config      map[string]any
}

// descriptionTokens bounds what a manifest may say about its hand.
const descriptionTokens = 200

// Open checks a request and loads the module into the engine. Errors are
// *abi.Error; they name the hand and what to change.
func Open(ctx context.Context, engine *sandbox.Engine, r Request) (*Hand, error) {
	refuse := func(kind abi.Kind, format string, args ...any) (*Hand, error) {
		return nil, &abi.Error{Hand: r.Name, Kind: kind, Text: fmt.Sprintf(format, args...)}
	}
	if !manifest.ValidName(r.Name) {
		return refuse(abi.KindBadModule, "a hand's name is 1 to 63 of a-z, 0-9 and -, not beginning with -")
	}
	outline, err := sandbox.Describe(r.Module)
	if err != nil {
		return nil, named(r.Name, err)
	}
	switch {
	case r.Digest != "" && r.Digest != outline.Digest:
		return refuse(abi.KindNotGranted, "the module is not the one that was agreed to: its digest is %s, the configuration has %s; look at it with glovebox hand inspect, then change digest", outline.Digest, r.Digest)
	case r.Digest == "" && !r.Bundled && !r.Grant.IsZero():
		return refuse(abi.KindNotGranted, "a grant needs an agreement to the module: look at it with glovebox hand inspect, then agree with glovebox hand grant %s, or add digest = %q", r.Name, outline.Digest)
	}
	signer, err := r.signer()
	if err != nil {
		return nil, err
	}
	m, err := manifestOf(outline)
	if err != nil {
		return nil, &abi.Error{Hand: r.Name, Kind: kindOr(err, abi.KindBadModule), Text: "unusable manifest", Err: err}
	}
	if err := Agree(m, outline); err != nil {
		return nil, &abi.Error{Hand: r.Name, Kind: abi.KindBadModule, Text: "its manifest and its imports disagree", Err: err}
	}
	asked, _ := m.Permission(abi.CapabilityFiles)
	for _, root := range slices.Sorted(maps.Keys(r.Grant.Files)) {
		if !slices.Contains(asked.Paths, root) {
			return refuse(abi.KindNotGranted, "grant.files.%s: the hand does not ask for it; it asks for %s", root, list(asked.Paths))
		}
	}
	for _, c := range r.Grant.capabilities() {
		if _, ok := m.Permission(c); !ok && c != abi.CapabilityFiles {
			return refuse(abi.KindNotGranted, "grant.%s: the hand does not ask for it", c)
		}
	}
	config, err := m.Configure(r.Config)
	if err != nil {
		return nil, &abi.Error{Hand: r.Name, Kind: abi.KindBadRequest, Text: "unusable configuration", Err: err}
	}
	asksModel, _ := m.Permission(abi.CapabilityLLM)
	module, err := engine.Load(ctx, r.Module, sandbox.Options{Name: r.Name, Limits: orWish(r.Limits, m.Limits.Wish()), Granted: r.Grant.capabilities(), ModelTokens: asksModel.MaxTokens, Trusted: r.Bundled, FromStart: r.FromStart})
	if err != nil {
		return nil, err
	}
	source, err := boundary.HandSource(r.Name)
	if err != nil {
		return nil, err
	}
	description, _ := boundary.Wrap(source, m.Description, descriptionTokens)
	return &Hand{
		name: r.Name, description: description, version: m.Version, bundled: r.Bundled, signer: signer,
		module: module, permissions: m.Permissions, grant: r.Grant.clone(), config: config,
	}, nil
}

// Name returns the operator's name for the hand.
func (h *Hand) Name() string { return h.name }

// Version returns the manifest's version, a semantic version; "" if the module
// has no manifest.
func (h *Hand) Version() string { return h.version }

// Description returns what the manifest says of the hand.
func (h *Hand) Description() boundary.Content { return h.description }

// Bundled reports whether the hand is part of this program.
func (h *Hand) Bundled() bool { return h.bundled }

// Signer returns who signed the module; false if nobody did, or it is bundled. It
// tells what held when the module was opened.
func (h *Hand) Signer() (Signer, bool) {
	if h.signer == nil {
		return Signer{}, false
	}
	return *h.signer, true
}

// Module returns the loaded module.
func (h *Hand) Module() *sandbox.Module { return h.module }

// Permission returns what the manifest asks for of c; the zero Permission if it
// does not.
func (h *Hand) Permission(c abi.Capability) manifest.Permission {
	for _, p := range h.permissions {
		if p.Capability == c {
			return p
		}
	}
	return manifest.Permission{}
}

// Permissions returns all that the manifest asks for, in its order. The strings are
// its author's.
func (h *Hand) Permissions() []manifest.Permission { return slices.Clone(h.permissions) }

// Grant returns what the hand may reach.
func (h *Hand) Grant() Grant { return h.grant.clone() }

// Config returns the values that each query carries.
func (h *Hand) Config() map[string]any { return maps.Clone(h.config) }

// ReadModule reads a module from a file, at most what may be admitted.
func ReadModule(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("no module at %s: name a .wasm file, or a bundled hand as bundled:NAME", path)
	case err != nil:
		return nil, fmt.Errorf("read module: %w", err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("read module: %s is not a file", path)
	case info.Size() > sandbox.MaxModuleBytes:
		return nil, fmt.Errorf("read module: %s is %d bytes, at most %d are allowed", path, info.Size(), sandbox.MaxModuleBytes)
	}
	module, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read module: %w", err)
	}
	return module, nil
}

// manifestOf returns the manifest of a module; the zero Manifest if it has
// none.
func manifestOf(outline sandbox.Outline) (manifest.Manifest, error) {
	if outline.Manifest == nil {
		return manifest.Manifest{}, nil
	}
	return manifest.Parse(outline.Manifest)
}

// Agree returns an error that names the first capability which the manifest
// asks for and the module does not import, or the other way round.
func Agree(m manifest.Manifest, outline sandbox.Outline) error {
	for _, c := range outline.Permissions {
		if _, ok := m.Permission(c); !ok {
			return fmt.Errorf("the module imports %s, the manifest does not ask for %q: add a [[permissions]] entry", c.Module(), c)
		}
	}
	for _, p := range m.Permissions {
		if !slices.Contains(outline.Permissions, p.Capability) {
			return fmt.Errorf("the manifest asks for %q, the module does not import %s: take the entry out", p.Capability, p.Capability.Module())
		}
	}
	return nil
}

// orWish lets the manifest's wish stand where the operator set nothing, as far
// as it lowers the default; only the operator raises a limit.
func orWish(operator, wish abi.Limits) abi.Limits {
	standard := abi.DefaultLimits()
	if operator.Timeout == 0 && wish.Timeout > 0 {
		operator.Timeout = min(wish.Timeout, standard.Timeout)
	}
	if operator.MemoryBytes == 0 && wish.MemoryBytes > 0 {
		operator.MemoryBytes = min(wish.MemoryBytes, standard.MemoryBytes)
	}
	if operator.OutputBytes == 0 && wish.OutputBytes > 0 {
		operator.OutputBytes = min(wish.OutputBytes, standard.OutputBytes)
	}
	return operator
}

func named(hand string, err error) error {
	if e, ok := errors.AsType[*abi.Error](err); ok {
		e.Hand = hand
	}
	return err
}

func kindOr(err error, otherwise abi.Kind) abi.Kind {
	if kind := abi.KindOf(err); kind != "" {
		return kind
	}
	return otherwise
}

func list(names []string) string {
	if len(names) == 0 {
		return "no folder"
	}
	return strings.Join(names, ", ")
}
