package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/abi/manifest"
	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/capability"
	"github.com/gloveboxhq/glovebox/host/datafile"
	"github.com/gloveboxhq/glovebox/host/registry"
	"github.com/gloveboxhq/glovebox/host/registry/lock"
	"github.com/gloveboxhq/glovebox/host/registry/signature"
	"github.com/gloveboxhq/glovebox/host/sandbox"
	"github.com/gloveboxhq/glovebox/host/sandbox/wasm"
	"github.com/gloveboxhq/glovebox/plugins"
)

const bundledPrefix = "bundled:"

func (a *app) hand() *cobra.Command {
	return group("hand", "Work with hands",
		a.handNew(), a.handBuild(), a.handTest(),
		a.handInspect(), a.handQuery(), a.handEmbed(),
		a.handKeygen(), a.handSign(), a.handVerify(),
		a.handPush(), a.handPull(),
		a.handInstall(), a.handGrant(), a.handRevoke(), a.handRemove(), a.handList(),
	)
}

// inspection is what hand inspect prints.
type inspection struct {
	Digest      string           `json:"digest"`
	Bytes       int              `json:"bytes"`
	Profile     sandbox.Profile  `json:"profile,omitempty"`
	ABI         int              `json:"abi"`
	Imports     []string         `json:"imports"`
	Exports     []string         `json:"exports"`
	Permissions []permission     `json:"permissions"`
	Memory      *memoryPages     `json:"memory"`
	Tables      []tableElements  `json:"tables"`
	Sections    []customSection  `json:"custom_sections"`
	Functions   int              `json:"functions"`
	Manifest    *manifestSummary `json:"manifest"`
	// Signature is absent for a bundled hand.
	Signature *signatureSummary `json:"signature,omitempty"`
	Admitted  bool              `json:"admitted"`
	Refusal   string            `json:"refusal,omitempty"`
	// Image is absent if the module is not admitted.
	Image *imageSummary `json:"image,omitempty"`
}

// imageSummary tells whether queries can begin from an image of the module.
type imageSummary struct {
	Carried bool   `json:"carried"`
	Reason  string `json:"reason,omitempty"`
	Warms   bool   `json:"warms"`
}

func (i imageSummary) String() string {
	switch {
	case !i.Carried:
		return "no, each query begins from nothing: " + i.Reason
	case i.Warms:
		return "yes, warmed up"
	}
	return "yes"
}

// beginning tells what the queries of a loaded module begin from.
type beginning struct {
	Stage sandbox.Stage `json:"stage"`
	// Bytes counts what of the memory is in place.
	Bytes  int64  `json:"bytes"`
	Reason string `json:"reason,omitempty"`
}

func beginningOf(i sandbox.ImageInfo) *beginning {
	if i.Stage == "" {
		return nil
	}
	return &beginning{i.Stage, i.Bytes, i.Reason}
}

// String is how a query begins.
func (b beginning) String() string {
	text := map[sandbox.Stage]string{
		sandbox.StagePlain: "from nothing", sandbox.StageData: "with its data alone", sandbox.StageInitialised: "initialised", sandbox.StageWarmed: "warmed up",
	}[b.Stage]
	if b.Stage == sandbox.StageInitialised && b.Reason != "" {
		text += ", not warmed up"
	}
	if b.Reason != "" {
		text += ": " + b.Reason
	}
	return text
}

type permission struct {
	Capability abi.Capability `json:"capability"`
	Reason     string         `json:"reason,omitempty"`
	Paths      []string       `json:"paths,omitempty"`
	Hosts      []string       `json:"hosts,omitempty"`
	Secrets    []string       `json:"secrets,omitempty"`
	MaxTokens  int            `json:"max_tokens,omitempty"`
}

// String is the permission on one line.
func (p permission) String() string {
	scope := slices.Concat(p.Paths, p.Hosts)
	for _, secret := range p.Secrets {
		scope = append(scope, "secret "+secret)
	}
	if p.MaxTokens > 0 {
		scope = append(scope, fmt.Sprintf("%d tokens", p.MaxTokens))
	}
	return strings.TrimSpace(string(p.Capability) + " " + strings.Join(scope, ", "))
}

type memoryPages struct {
	Min uint64  `json:"min_pages"`
	Max *uint64 `json:"max_pages,omitempty"`
	// Clamped is what it can grow to with the default limits.
	Clamped uint64 `json:"clamped_pages"`
}

type tableElements struct {
	Min uint32  `json:"min_elements"`
	Max *uint32 `json:"max_elements,omitempty"`
	// Clamped is its maximum with the default limits; absent if the module is
	// refused.
	Clamped *uint32 `json:"clamped_elements,omitempty"`
}

type customSection struct {
	Name  string `json:"name"`
	Bytes int    `json:"bytes"`
}

type manifestSummary struct {
	Name        string   `json:"name"`
	Version     string   `json:"version"`
	Description string   `json:"description,omitempty"`
	License     string   `json:"license,omitempty"`
	Authors     []string `json:"authors,omitempty"`
	Config      []string `json:"config,omitempty"`
}

func (a *app) handInspect() *cobra.Command {
	return &cobra.Command{
		Use: "inspect FILE.wasm|bundled:NAME", Short: "Show what a module is, asks for, and whether it would be admitted", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			module, bundled, err := host.ModuleOf(args[0], "")
			if err != nil {
				return err
			}
			seen, err := inspect(module)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			if !bundled {
				a.inspectSignature(module, &seen)
			}
			if a.asJSON {
				if err := a.printJSON(seen); err != nil {
					return err
				}
			} else {
				a.printInspection(seen)
			}
			if !seen.Admitted {
				return errReported
			}
			return nil
		},
	}
}

// inspectSignature adds who signed a module. A file that was configured wrongly does
// not keep anybody from looking at another one.
func (a *app) inspectSignature(module []byte, seen *inspection) {
	config, err := a.config()
	var trusted map[string]signature.PublicKey
	if err == nil {
		trusted, err = config.TrustedKeys()
	}
	if err != nil {
		fmt.Fprintf(a.stderr, "glovebox: whom you trust is not known: %v\n", err)
	}
	s, err := signatureOf(module, trusted, time.Now())
	seen.Signature = &s
	if seen.Admitted && (errors.Is(err, signature.ErrTampered) || errors.Is(err, signature.ErrMalformed)) {
		seen.Admitted, seen.Refusal = false, s.Refusal
	}
}

func inspect(module []byte) (inspection, error) {
	outline, err := sandbox.Inspect(module)
	if err != nil {
		return inspection{}, err
	}
	seen := inspection{
		Digest: outline.Digest, Bytes: outline.Bytes, Profile: outline.Profile, ABI: abi.Version, Functions: outline.Functions,
		Imports: []string{}, Exports: []string{}, Permissions: []permission{}, Tables: []tableElements{}, Sections: []customSection{},
	}
	for _, i := range outline.Imports {
		seen.Imports = append(seen.Imports, plain(i.Module+"."+i.Name))
	}
	for _, e := range outline.Exports {
		seen.Exports = append(seen.Exports, plain(e.Name))
	}
	if outline.Memory != nil {
		seen.Memory = &memoryPages{outline.Memory.Min, outline.Memory.Max, outline.MemoryPages}
	}
	for i, t := range outline.Tables {
		row := tableElements{Min: t.Min, Max: t.Max}
		if i < len(outline.TableMax) {
			row.Clamped = &outline.TableMax[i]
		}
		seen.Tables = append(seen.Tables, row)
	}
	for _, s := range outline.Sections {
		if s.ID == wasm.SectionCustom {
			seen.Sections = append(seen.Sections, customSection{plain(s.Name), len(s.Data)})
		}
	}
	var m manifest.Manifest
	refusal := outline.Refusal
	if outline.Manifest != nil {
		var err error
		if m, err = manifest.Parse(outline.Manifest); err != nil && refusal == nil {
			refusal = err
		} else if err == nil {
			seen.Manifest = &manifestSummary{
				Name: m.Name, Version: m.Version, Description: plain(m.Description), License: plain(m.License),
				Config: slices.Sorted(maps.Keys(m.Config)),
			}
			for _, author := range m.Authors {
				seen.Manifest.Authors = append(seen.Manifest.Authors, plain(author))
			}
		}
	}
	for _, c := range outline.Permissions {
		p := permission{Capability: c}
		if asked, ok := m.Permission(c); ok {
			p.Reason, p.Paths, p.MaxTokens = plain(asked.Reason), asked.Paths, asked.MaxTokens
			p.Hosts, p.Secrets = allPlain(asked.Hosts), allPlain(asked.Secrets)
		}
		seen.Permissions = append(seen.Permissions, p)
	}
	if refusal == nil {
		refusal = registry.Agree(m, outline)
	}
	if seen.Admitted = refusal == nil; refusal != nil {
		seen.Refusal = plain(refusal.Error())
	} else {
		seen.Image = &imageSummary{Carried: outline.NoImage == "", Reason: outline.NoImage, Warms: outline.Warms}
	}
	return seen, nil
}

// plain shows words that a hand's author chose: neutralised, on one line.
func plain(text string) string {
	content, _ := boundary.Wrap(boundary.Source{}, text, 500)
	return strings.ReplaceAll(boundary.Neutral(content), "\n", " ")
}

func allPlain(texts []string) []string {
	shown := make([]string, len(texts))
	for i, text := range texts {
		shown[i] = plain(text)
	}
	return shown
}

func (a *app) printInspection(s inspection) {
	a.printf("digest      %s\nsize        %d bytes, %d functions\n", s.Digest, s.Bytes, s.Functions)
	if s.Manifest != nil {
		a.printf("manifest    %s %s\n            %s\n", s.Manifest.Name, s.Manifest.Version, s.Manifest.Description)
	} else {
		a.printf("manifest    none\n")
	}
	if s.Signature != nil {
		a.printSignature(*s.Signature)
		trusted := "yes"
		if !s.Signature.Trusted {
			trusted = "no: " + s.Signature.Refusal
		}
		a.printf("trusted     %s\n", trusted)
	}
	if s.Profile != "" {
		a.printf("profile     %s, ABI %d\n", s.Profile, s.ABI)
	}
	if s.Memory != nil {
		a.printf("memory      %d pages of 64 KiB, may grow to %s: clamped to %d\n", s.Memory.Min, orWithout(s.Memory.Max), s.Memory.Clamped)
	}
	for i, t := range s.Tables {
		clamped := "not admitted"
		if t.Clamped != nil {
			clamped = fmt.Sprintf("clamped to %d", *t.Clamped)
		}
		a.printf("table %-5d %d elements, may grow to %s: %s\n", i, t.Min, orWithout(t.Max), clamped)
	}
	a.printf("imports     %s\n", listed(s.Imports))
	a.printf("exports     %s\n", listed(s.Exports))
	for _, c := range s.Sections {
		a.printf("section     %q, %d bytes: not given to the engine\n", c.Name, c.Bytes)
	}
	if len(s.Permissions) == 0 {
		a.printf("permissions none: it can only read its query and answer\n")
	}
	for _, p := range s.Permissions {
		a.printf("permission  %s\n            %s\n", p, p.Reason)
	}
	if s.Admitted {
		a.printf("admitted    yes\n")
		if s.Image != nil {
			a.printf("image       %s\n", s.Image)
		}
	} else {
		a.printf("admitted    no: %s\n", s.Refusal)
	}
}

func orWithout[T uint32 | uint64](most *T) string {
	if most == nil {
		return "any size"
	}
	return fmt.Sprint(*most)
}

// listed shows names once each.
func listed(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(slices.Compact(slices.Sorted(slices.Values(names))), ", ")
}

// queryResult is what hand query prints.
type queryResult struct {
	Hand        string   `json:"hand"`
	OK          bool     `json:"ok"`
	Text        string   `json:"text"`
	Framed      string   `json:"framed"`
	Tokens      int      `json:"tokens"`
	Cut         bool     `json:"cut"`
	Ms          float64  `json:"ms"`
	Fuel        int64    `json:"fuel"`
	MemoryBytes int64    `json:"memory_bytes"`
	Calls       int      `json:"calls"`
	Log         []string `json:"log"`
	LogDropped  int      `json:"log_dropped,omitempty"`
	// Image is absent if the hand is not loaded.
	Image *beginning  `json:"image,omitempty"`
	Error *queryError `json:"error,omitempty"`
}

type queryError struct {
	Kind    abi.Kind `json:"kind"`
	Message string   `json:"message"`
	// Said is the hand's own account, neutralised.
	Said string `json:"said,omitempty"`
}

func (a *app) handQuery() *cobra.Command {
	var (
		prompt, from, to, now, zone, name, user string
		granted                                 grantFlags
		values                                  []string
		timeout                                 time.Duration
		maxTokens                               int
		seed                                    uint64
	)
	c := &cobra.Command{
		Use:   "query HAND|FILE.wasm|bundled:NAME",
		Short: "Ask one hand one question",
		Long: "Ask one hand one question.\n\nA file or bundled hand runs in a data directory of its own that is thrown away; what --files names is\n" +
			"granted for this one query. A name is that of a hand in the configuration.",
		Example: `  glovebox hand query bundled:calendar --files calendars=$HOME/calendars --prompt "What is on?" --from 2026-03-23T00:00:00Z --to 2026-03-24T00:00:00Z`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if strings.TrimSpace(prompt) == "" {
				return usagef("--prompt is missing: write what the hand is to be asked")
			}
			if c.Flags().Changed("max-tokens") && maxTokens < 1 {
				return usagef("--max-tokens %d: at least 1", maxTokens)
			}
			q := host.HandQuery{Prompt: prompt, MaxTokens: maxTokens}
			config, cleanup, err := a.queryConfig(args[0], name, granted, values, timeout)
			if err != nil {
				return err
			}
			defer cleanup()
			if zone != "" {
				config.Sessions.Timezone = zone
			}
			if now != "" {
				at, err := parseTime(now)
				if err != nil {
					return usagef("--now: %w", err)
				}
				config.Now = func() time.Time { return at }
				if c.Flags().Changed("seed") {
					q.Fixed = &sandbox.Fixed{Now: at, Seed: seed}
				}
			} else if c.Flags().Changed("seed") {
				return usagef("--seed needs --now: a clock that runs is chance too")
			}
			if q.From, err = parseTime(from); err != nil {
				return usagef("--from: %w", err)
			}
			if q.To, err = parseTime(to); err != nil {
				return usagef("--to: %w", err)
			}
			h, err := open(c.Context(), config)
			if err != nil {
				shown := args[0]
				for name := range config.Hands {
					if isModule(args[0]) {
						shown = name
					}
				}
				return a.reportQuery(queryResult{Hand: shown}, sandbox.Result{}, err)
			}
			defer h.Close()
			q.Hand = args[0]
			if len(h.Hands()) == 1 && isModule(args[0]) {
				q.Hand = h.Hands()[0].Name
			}
			if user != "" {
				u, err := h.User(user)
				if err != nil {
					return err
				}
				q.User = u.ID
			}
			result, err := h.Query(c.Context(), q)
			if c.Context().Err() != nil {
				return c.Context().Err()
			}
			return a.reportQuery(queryResult{Hand: q.Hand, Image: beginningIn(h, q.Hand)}, result, err)
		},
	}
	flags := c.Flags()
	flags.StringVar(&prompt, "prompt", "", "what to ask")
	flags.StringVar(&from, "from", "", "begin of the window, RFC 3339 or a date (default a day before --to)")
	flags.StringVar(&to, "to", "", "end of the window (default now)")
	flags.StringVar(&now, "now", "", "time to give the hand as now (default the clock)")
	flags.StringVar(&zone, "timezone", "", "IANA time zone (default the configured one, else the machine's)")
	flags.StringVar(&name, "name", "", "name for a file (default its manifest's)")
	flags.StringVar(&user, "user", "", "for which user to ask a configured hand")
	flags.Uint64Var(&seed, "seed", 0, "seed of the hand's random numbers; with --now, equal queries use equal fuel")
	granted.register(flags)
	flags.StringArrayVar(&values, "set", nil, "set a value of the hand: KEY=VALUE, repeatable")
	flags.DurationVar(&timeout, "timeout", 0, "wall time for the query (default 30s)")
	flags.IntVar(&maxTokens, "max-tokens", 0, "tokens that the reply may cost (default 2000)")
	return c
}

// isModule tells a module from the name of a configured hand.
func isModule(reference string) bool {
	return strings.HasPrefix(reference, bundledPrefix) || strings.ContainsAny(reference, `./\`)
}

// queryConfig returns the configuration for one query: the user's own for a
// configured hand, else one that holds this module alone, in the user's engine, and
// lives in a directory that cleanup removes.
func (a *app) queryConfig(reference, name string, granted grantFlags, values []string, timeout time.Duration) (host.Config, func(), error) {
	nothing := func() {}
	if !isModule(reference) {
		if !granted.isZero() || len(values) > 0 || timeout != 0 || name != "" {
			return host.Config{}, nothing, usagef("--files, --http, --allow-private, --grant, --set, --timeout and --name are for a file or a bundled hand; %q is configured in the file", reference)
		}
		config, err := a.config()
		return config, nothing, err
	}
	module, bundled, err := host.ModuleOf(reference, "")
	if err != nil {
		return host.Config{}, nothing, err
	}
	handConfig := host.HandConfig{Module: reference}
	handConfig.Limits.TimeoutSecs = int(timeout.Round(time.Second) / time.Second)
	if err := checkTimeout(timeout); err != nil {
		return host.Config{}, nothing, err
	}
	if !bundled {
		// Naming the file on the command line is the agreement to it.
		handConfig.Digest = sandbox.Digest(module)
	}
	if name == "" {
		name = nameOf(module, reference)
	}
	if handConfig.Grant, err = granted.config(); err != nil {
		return host.Config{}, nothing, err
	}
	if handConfig.Config, err = setValues(module, values); err != nil {
		return host.Config{}, nothing, err
	}
	// The compilation cache is the user's, and so are its bounds, where there is a user's.
	var own host.Config
	if _, _, err := a.places(); err == nil || a.configPath != "" {
		if own, err = a.config(); err != nil {
			return host.Config{}, nothing, err
		}
	}
	temp, err := os.MkdirTemp("", "glovebox-query-")
	if err != nil {
		return host.Config{}, nothing, err
	}
	config := a.finished(host.Config{Engine: own.Engine, Hands: map[string]host.HandConfig{name: handConfig}}, temp)
	return config, func() { os.RemoveAll(temp) }, nil
}

// checkTimeout tells a wish that cannot be from none, which is zero.
func checkTimeout(timeout time.Duration) error {
	if most := abi.MaxLimits().Timeout; timeout != 0 && (timeout < time.Second || timeout > most) {
		return usagef("--timeout %v: between 1s and %v", timeout, most)
	}
	return nil
}

// grantFlags are what a query of a file grants for itself.
type grantFlags struct {
	files        []string // ROOT=DIR
	capabilities []string
	http         []string // host rules
	allowPrivate []string
}

func (g *grantFlags) register(flags *pflag.FlagSet) {
	flags.StringArrayVar(&g.files, "files", nil, "grant a directory: ROOT=DIR, repeatable")
	flags.StringArrayVar(&g.http, "http", nil, `grant requests: "https://api.example.com/v1/" or "GET,POST https://…", repeatable`)
	flags.StringArrayVar(&g.allowPrivate, "allow-private", nil, "let --http reach an address that is not public: 10.0.0.5:8080, repeatable")
	flags.StringArrayVar(&g.capabilities, "grant", nil, "grant a capability: kv or llm, repeatable")
}

func (g grantFlags) isZero() bool {
	return len(g.files)+len(g.capabilities)+len(g.http)+len(g.allowPrivate) == 0
}

func (g grantFlags) config() (host.GrantConfig, error) {
	grant := host.GrantConfig{Files: map[string]string{}, HTTP: g.http, AllowPrivate: g.allowPrivate}
	for _, f := range g.files {
		root, dir, ok := strings.Cut(f, "=")
		if !ok || root == "" || dir == "" {
			return grant, usagef("--files %q: write ROOT=DIR, such as calendars=/home/me/calendars", f)
		}
		if info, err := os.Stat(dir); !strings.Contains(dir, "{user}") && (err != nil || !info.IsDir()) {
			return grant, fmt.Errorf("--files %s: %s is not a directory that can be read", root, dir)
		}
		var err error
		if _, twice := grant.Files[root]; twice {
			return grant, usagef("--files %s: the root is granted twice", root)
		}
		if grant.Files[root], err = filepath.Abs(dir); err != nil {
			return grant, err
		}
	}
	for _, rule := range g.http {
		if _, err := capability.ParseHostRule(rule); err != nil {
			return grant, usagef("--http: %w", err)
		}
	}
	for _, target := range g.allowPrivate {
		if _, err := capability.ParsePrivateTarget(target); err != nil {
			return grant, usagef("--allow-private: %w", err)
		}
	}
	for _, c := range g.capabilities {
		switch abi.Capability(c) {
		case abi.CapabilityKV:
			grant.KV = true
		case abi.CapabilityLLM:
			grant.LLM = true
		default:
			return grant, usagef("--grant %q: write kv or llm; directories are granted with --files, requests with --http", c)
		}
	}
	return grant, nil
}

// setValues reads what --set has.
func setValues(module []byte, values []string) (map[string]any, error) {
	config := map[string]any{}
	for _, v := range values {
		key, text, ok := strings.Cut(v, "=")
		if !ok || key == "" {
			return nil, usagef("--set %q: write KEY=VALUE", v)
		}
		config[key] = valueFor(module, key, text)
	}
	return config, nil
}

// valueFor reads VALUE as the manifest's type of the key, and as TOML where the
// manifest has none.
func valueFor(module []byte, key, text string) any {
	if outline, err := sandbox.Describe(module); err == nil && outline.Manifest != nil {
		if m, err := manifest.Parse(outline.Manifest); err == nil {
			switch m.Config[key].Type {
			case manifest.TypeString:
				return text
			case manifest.TypeList:
				if !strings.HasPrefix(strings.TrimSpace(text), "[") {
					var list []any
					for _, item := range strings.Split(text, ",") {
						list = append(list, strings.TrimSpace(item))
					}
					return list
				}
			}
		}
	}
	var holder struct {
		V any `toml:"v"`
	}
	if err := manifest.Decode([]byte("v = "+text), &holder); err == nil && holder.V != nil {
		return holder.V
	}
	return text
}

// nameOf is the manifest's name, else one made from the file's.
func nameOf(module []byte, reference string) string {
	if outline, err := sandbox.Describe(module); err == nil && outline.Manifest != nil {
		if m, err := manifest.Parse(outline.Manifest); err == nil {
			return m.Name
		}
	}
	base := strings.ToLower(strings.TrimSuffix(filepath.Base(strings.TrimPrefix(reference, bundledPrefix)), ".wasm"))
	name := strings.Trim(strings.Map(func(r rune) rune {
		if (r >= 'a' && r <= 'z') || (r >= '0' && r <= '9') {
			return r
		}
		return '-'
	}, base), "-")
	if !manifest.ValidName(name) {
		return "hand"
	}
	return name
}

// beginningIn is what the queries of one of a host's hands begin from; nil if it is not
// loaded.
func beginningIn(h *host.Host, name string) *beginning {
	for _, info := range h.Hands() {
		if info.Name == name {
			return beginningOf(info.Image)
		}
	}
	return nil
}

func (a *app) reportQuery(out queryResult, result sandbox.Result, err error) error {
	out.OK = err == nil
	out.Text, out.Framed, out.Tokens = boundary.Neutral(result.Reply), result.Reply.Render(), result.Reply.Tokens()
	out.Cut, out.Fuel, out.MemoryBytes, out.Calls, out.LogDropped = result.Cut, result.Fuel, result.MemoryBytes, result.Calls, result.LogDropped
	out.Ms = float64(result.Took.Microseconds()) / 1000
	out.Log = []string{}
	if !result.Log.IsEmpty() {
		out.Log = strings.Split(boundary.Neutral(result.Log), "\n")
	}
	if err != nil {
		kind := abi.KindOf(err)
		if kind == "" {
			return err
		}
		out.Error = &queryError{Kind: kind, Message: err.Error(), Said: boundary.Neutral(result.Said)}
	}
	if a.asJSON {
		if err := a.printJSON(out); err != nil {
			return err
		}
		if !out.OK {
			return errReported
		}
		return nil
	}
	for _, line := range out.Log {
		fmt.Fprintf(a.stderr, "log: %s\n", line)
	}
	if err != nil {
		if out.Error.Said != "" {
			fmt.Fprintf(a.stderr, "the hand says:\n%s\n", indented(out.Error.Said))
		}
		return err
	}
	if out.Text == "" {
		a.printf("(nothing to say)\n")
	} else {
		a.printf("%s\n", out.Framed)
	}
	fmt.Fprintf(a.stderr, "%d tokens in %.1f ms", out.Tokens, out.Ms)
	if out.Image != nil {
		fmt.Fprintf(a.stderr, ", begun %s", out.Image)
	}
	fmt.Fprintln(a.stderr)
	return nil
}

func parseTime(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	if t, err := time.ParseInLocation(time.DateOnly, text, time.Local); err == nil {
		return t, nil
	}
	return time.Time{}, fmt.Errorf("%q is not a time: write 2026-03-23T09:00:00Z or 2026-03-23", text)
}

// listedHand is one row of hand list.
type listedHand struct {
	Name       string `json:"name"`
	Version    string `json:"version,omitempty"`
	Configured bool   `json:"configured"`
	Installed  bool   `json:"installed"`
	Bundled    bool   `json:"bundled"`
	// Disabled says why it is not asked.
	Disabled string `json:"disabled,omitempty"`
	// Granted are the capabilities that it has.
	Granted     []string `json:"granted"`
	Source      string   `json:"source,omitempty"`
	AgreedAt    string   `json:"agreed_at,omitempty"`
	Digest      string   `json:"digest"`
	Description string   `json:"description,omitempty"`
	// SignedBy is the configuration's name for the trusted key that signed it.
	SignedBy  string   `json:"signed_by,omitempty"`
	Users     []string `json:"users,omitempty"`
	Runs      int      `json:"runs"`
	Failed    int      `json:"failed"`
	LastRun   string   `json:"last_run,omitempty"`
	LastError string   `json:"last_error,omitempty"`
}

// agreedBeside is what was agreed for the hands of a configuration. Where there is no
// ledger yet, nothing was agreed here.
func agreedBeside(ctx context.Context, config host.Config) (*lock.File, error) {
	database, err := config.DatabasePath()
	if err != nil {
		return nil, err
	}
	dir := filepath.Dir(database)
	path := filepath.Join(dir, "hands.db")
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return lock.New(dir, []byte(rand.Text())), nil
	}
	ledger, err := capability.OpenLedger(ctx, path, nil)
	if err != nil {
		return nil, err
	}
	key, err := ledger.LockKey()
	return lock.New(dir, key), errors.Join(err, ledger.Close())
}

// healthOf reads what hands.db tells of the hands; nothing if there is none.
func healthOf(ctx context.Context, config host.Config) (map[string]capability.Health, error) {
	database, err := config.DatabasePath()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(filepath.Dir(database), "hands.db")
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	ledger, err := capability.OpenLedger(ctx, path, nil)
	if err != nil {
		return nil, err
	}
	healths, err := ledger.Health(ctx)
	return healths, errors.Join(err, ledger.Close())
}

func (a *app) handList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the installed, the configured and the bundled hands", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			config, err := a.config()
			if err != nil {
				return err
			}
			healths, err := healthOf(c.Context(), config)
			if err != nil {
				return err
			}
			if config.Agreed, err = agreedBeside(c.Context(), config); err != nil {
				return err
			}
			// The hands are loaded beside a database that may be in use.
			temp, err := os.MkdirTemp("", "glovebox-list-")
			if err != nil {
				return err
			}
			defer os.RemoveAll(temp)
			config.Data, config.Store.Path = temp, ""
			h, err := open(c.Context(), config)
			if err != nil {
				return err
			}
			defer h.Close()
			all := []listedHand{}
			for _, k := range h.Hands() {
				_, configured := config.Hands[k.Name]
				row := listedHand{Name: k.Name, Version: k.Version, Configured: configured, Installed: k.Installed, Bundled: k.Bundled, Digest: k.Digest,
					Disabled: k.Disabled, Granted: []string{}, Source: plain(k.Source), Description: boundary.Neutral(k.Description), Users: k.Users}
				for _, p := range k.Permissions {
					if p.Granted {
						row.Granted = append(row.Granted, string(p.Capability))
					}
				}
				if !k.AgreedAt.IsZero() {
					row.AgreedAt = k.AgreedAt.Format(time.RFC3339)
				}
				if k.Signer != nil {
					row.SignedBy = k.Signer.Name
				}
				health := healths[k.Name]
				row.Runs, row.Failed, row.LastError = health.Runs, health.Failed, health.LastText
				if health.Runs > 0 {
					row.LastRun = health.LastRun.Format(time.RFC3339)
				}
				all = append(all, row)
			}
			for _, name := range plugins.Names() {
				if slices.ContainsFunc(all, func(r listedHand) bool { return r.Name == name }) {
					continue
				}
				module, err := plugins.Module(name)
				if err != nil {
					return err
				}
				outline, err := sandbox.Describe(module)
				if err != nil {
					return err
				}
				m, err := manifest.Parse(outline.Manifest)
				if err != nil {
					return err
				}
				all = append(all, listedHand{Name: name, Version: m.Version, Bundled: true, Digest: outline.Digest, Granted: []string{}, Description: plain(m.Description)})
			}
			if a.asJSON {
				return a.printJSON(all)
			}
			for _, row := range all {
				state := "not configured"
				switch {
				case row.Disabled != "":
					state = "disabled: " + printable(row.Disabled)
				case row.Configured || row.Installed:
					state = fmt.Sprintf("for %s; %d of the last %d runs failed", strings.Join(row.Users, ", "), row.Failed, row.Runs)
					if len(row.Granted) > 0 {
						state = "may " + strings.Join(row.Granted, ", ") + "; " + state
					}
				}
				if row.Installed {
					state = "installed; " + state
				}
				if row.SignedBy != "" {
					state += "; signed by " + row.SignedBy
				}
				a.printf("%-12s %-8s %s\n%s\n", row.Name, row.Version, state, indented(row.Description))
			}
			return nil
		},
	}
}

func (a *app) handEmbed() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use: "embed FILE.wasm MANIFEST.toml", Short: "Write a manifest into a module", Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			module, err := registry.ReadModule(args[0])
			if err != nil {
				return err
			}
			document, m, err := readManifest(args[1])
			if err != nil {
				return err
			}
			embedded, seen, err := embed(module, document, m)
			if err != nil {
				return fmt.Errorf("%s and %s: %w", args[0], args[1], err)
			}
			if output == "" {
				output = args[0]
			}
			if err := replaceFile(output, embedded); err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(map[string]any{"file": output, "digest": seen.Digest, "bytes": len(embedded)})
			}
			a.printf("%s\n%s\n", output, seen.Digest)
			return nil
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "", "file to write (default FILE.wasm itself)")
	return c
}

// embed writes a manifest into a module whose imports agree with it.
func embed(module, document []byte, m manifest.Manifest) (embedded []byte, seen sandbox.Outline, err error) {
	decoded, err := wasm.Decode(module)
	if err != nil {
		return nil, seen, err
	}
	embedded = decoded.WithCustom(abi.ManifestSection, document)
	if seen, err = sandbox.Inspect(embedded); err != nil {
		return nil, seen, err
	}
	if err := registry.Agree(m, seen); err != nil {
		return nil, seen, fmt.Errorf("they disagree: %w", err)
	}
	return embedded, seen, nil
}

// replaceFile leaves either the old file or the new one, whatever happens. Of a link
// it replaces what that leads to. What is no file, such as a device or a pipe, is left
// alone.
func replaceFile(path string, data []byte) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("write %s: it is there and not a file: name a file to write with --output", path)
	}
	if err := datafile.Replace(path, data, 0o644); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
