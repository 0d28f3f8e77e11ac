package sandbox

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/sandbox/wasm"
)

// MaxModuleBytes bounds a module.
const MaxModuleBytes = 32 << 20

// admitted is a module that may be compiled, as it goes to the engine.
type admitted struct {
	module     []byte
	digest     string
	profile    Profile
	initialize bool
}

// admit decides whether a module may be compiled at all, before the engine
// sees a byte of it. Clamping and metering, which rewrite the module, have
// their place between the checks and the return.
func admit(module []byte, limits abi.Limits, granted []abi.Capability) (admitted, error) {
	refuse := func(kind abi.Kind, format string, args ...any) (admitted, error) {
		return admitted{}, &abi.Error{Kind: kind, Text: fmt.Sprintf(format, args...)}
	}
	if len(module) > MaxModuleBytes {
		return refuse(abi.KindBadModule, "module is %d bytes: at most %d are allowed", len(module), MaxModuleBytes)
	}
	outline, err := wasm.Parse(module)
	if err != nil {
		return admitted{}, &abi.Error{Kind: abi.KindBadModule, Text: "malformed module", Err: err}
	}
	profile, err := profileOf(outline)
	if err != nil {
		return admitted{}, err
	}
	for i, imported := range outline.Imports {
		if imported.Kind != wasm.KindFunction {
			return refuse(abi.KindBadModule, "import %d is a %s: a hand imports functions only", i, imported.Kind)
		}
		if c, ok := abi.CapabilityOf(imported.Module); ok && !slices.Contains(granted, c) {
			return refuse(abi.KindNotGranted, "it imports %s, which needs the capability %q: grant it, or use a hand that does not need it", imported.Module, c)
		}
		if !known(imported) {
			return refuse(abi.KindBadModule, "import %d is not in ABI %d (%s)", i, abi.Version, plainName(imported))
		}
	}
	if m := outline.Memory; m != nil && m.Min*wasm.PageBytes > uint64(limits.MemoryBytes) {
		return refuse(abi.KindOutOfMemory, "it needs %d MiB of memory from the start: the limit is %d MiB",
			m.Min*wasm.PageBytes>>20, limits.MemoryBytes>>20)
	}
	return admitted{
		module:  outline.Bare(),
		digest:  Digest(module),
		profile: profile,
		initialize: slices.ContainsFunc(outline.Exports, func(e wasm.Export) bool {
			return e.Name == abi.ExportInitialize && e.Kind == wasm.KindFunction
		}),
	}, nil
}

// profileOf finds the entry. By WASI's convention a module that exports _start
// is a command, whatever else it exports: nothing else may be called in it.
func profileOf(outline *wasm.Module) (Profile, error) {
	query, foreign := false, ""
	for _, e := range outline.Exports {
		switch {
		case e.Kind != wasm.KindFunction:
		case e.Name == abi.ExportStart:
			return ProfileCommand, nil
		case e.Name == abi.ExportQuery:
			query = true
		case strings.HasPrefix(e.Name, abi.ExportQueryPrefix):
			foreign = strings.TrimPrefix(e.Name, abi.ExportQueryPrefix)
		}
	}
	switch {
	case query:
		return ProfileReactor, nil
	case isNumber(foreign):
		return "", &abi.Error{Kind: abi.KindABIMismatch, Text: fmt.Sprintf("needs ABI %s, this host speaks %d", foreign, abi.Version)}
	}
	return "", &abi.Error{Kind: abi.KindBadModule, Text: fmt.Sprintf(
		"it exports neither %s nor %s: build it as a reactor or as a WASI command", abi.ExportQuery, abi.ExportStart)}
}

func isNumber(s string) bool {
	return s != "" && len(s) < 10 && strings.Trim(s, "0123456789") == ""
}

// known reports whether the contract has the function. WASI's functions are
// checked by the engine, which has them all.
func known(i wasm.Import) bool {
	if i.Module == abi.ModuleWASI {
		return true
	}
	return slices.ContainsFunc(hostFunctions, func(f hostFunction) bool {
		return f.module == i.Module && f.name == i.Name
	})
}

// plainName shows an import in an error if its names are made of letters that
// cannot carry anything else; they are the author's words.
func plainName(i wasm.Import) string {
	name := i.Module + "." + i.Name
	plain := len(name) <= 80 && strings.IndexFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("_.-", r)
	}) < 0
	if !plain {
		return "its name is not shown: it is long or has unusual characters"
	}
	return name
}

// Outline is what a module says of itself without being run.
type Outline struct {
	Digest      string
	Bytes       int
	Profile     Profile
	Imports     []wasm.Import
	Exports     []wasm.Export
	Memory      *wasm.Memory
	Functions   int
	Permissions []abi.Capability
	// Manifest is the manifest section; nil if the module has none.
	Manifest []byte
	// Refusal says why the module would not be admitted with the default
	// limits and all permissions granted; nil if it would.
	Refusal error
}

// Inspect reads a module's outline. It runs and compiles nothing. The error is
// of kind bad_module and returned only if not even the outline can be read;
// otherwise what is wrong is the outline's Refusal.
func Inspect(module []byte) (Outline, error) {
	if len(module) > MaxModuleBytes {
		return Outline{}, &abi.Error{Kind: abi.KindBadModule, Text: fmt.Sprintf("module is %d bytes: at most %d are allowed", len(module), MaxModuleBytes)}
	}
	outline, err := wasm.Parse(module)
	if err != nil {
		return Outline{}, &abi.Error{Kind: abi.KindBadModule, Text: "malformed module", Err: err}
	}
	out := Outline{
		Digest: Digest(module), Bytes: len(module), Imports: outline.Imports, Exports: outline.Exports,
		Memory: outline.Memory, Functions: outline.Functions,
	}
	out.Manifest, _ = outline.Custom(abi.ManifestSection)
	for _, i := range outline.Imports {
		if c, ok := abi.CapabilityOf(i.Module); ok && !slices.Contains(out.Permissions, c) {
			out.Permissions = append(out.Permissions, c)
		}
	}
	result, err := admit(module, abi.DefaultLimits(), abi.Capabilities())
	out.Profile, out.Refusal = result.profile, err
	return out, nil
}
