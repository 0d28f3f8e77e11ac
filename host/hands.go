package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/abi/manifest"
	"github.com/gloveboxhq/glovebox/compaction"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/capability"
	"github.com/gloveboxhq/glovebox/host/registry"
	"github.com/gloveboxhq/glovebox/host/sandbox"
	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/plugins"
)

// bundledPrefix marks a module that is part of this program.
const bundledPrefix = "bundled:"

// hand is a loaded hand and those for whom it may be asked.
type hand struct {
	*registry.Hand
	users []string
	http  *capability.HTTPGrant // nil if none
	asks  []HandPermission
	terms terms // without the module

	// What each query needs of the registry.Hand, which copies all that it returns. It
	// is not to be changed.
	grant  registry.Grant
	config map[string]any
	// personal says that a value of config, or a directory of grant, has a place for the
	// user's name.
	personal struct{ config, files bool }
}

// hold keeps what each query needs of k.Hand.
func (k *hand) hold() {
	k.grant, k.config = k.Grant(), k.Config()
	for _, value := range k.config {
		switch v := value.(type) {
		case string:
			k.personal.config = k.personal.config || strings.Contains(v, userPlaceholder)
		case []string:
			k.personal.config = k.personal.config || slices.ContainsFunc(v, func(s string) bool { return strings.Contains(s, userPlaceholder) })
		}
	}
	for _, dir := range k.grant.Files {
		k.personal.files = k.personal.files || strings.Contains(dir, userPlaceholder)
	}
}

// filesFor returns the directories that are granted for a user, by their roots.
func (k *hand) filesFor(user string) map[string]string {
	if !k.personal.files {
		return k.grant.Files
	}
	own := make(map[string]string, len(k.grant.Files))
	for root, path := range k.grant.Files {
		own[root] = strings.ReplaceAll(path, userPlaceholder, user)
	}
	return own
}

// configFor returns the values for a user.
func (k *hand) configFor(user string) map[string]any {
	if !k.personal.config {
		return k.config
	}
	own := maps.Clone(k.config)
	for key, value := range own {
		switch v := value.(type) {
		case string:
			own[key] = strings.ReplaceAll(v, userPlaceholder, user)
		case []string:
			all := make([]string, len(v))
			for i, s := range v {
				all[i] = strings.ReplaceAll(s, userPlaceholder, user)
			}
			own[key] = all
		}
	}
	return own
}

// HandInfo tells of one hand that is configured or installed.
type HandInfo struct {
	Name    string
	Version string
	Digest  string
	Bundled bool
	// Installed says that the module is kept beside glovebox.lock, Source where it
	// came from, and AgreedAt when it was agreed to.
	Installed bool
	Source    string
	AgreedAt  time.Time
	// Disabled says why the hand is not asked, in the host's words; "" if it is. Of
	// such a hand what its module says is told, and nothing is granted. Absent says
	// that there is no module of its name at all.
	Disabled string
	Absent   bool
	// Signer is who signed the module; nil if nobody did or it is bundled.
	Signer      *registry.Signer
	Description boundary.Content
	Users       []string
	// Files maps the granted roots to directories as they are configured.
	Files map[string]string
	// HTTP are the rules in force for requests.
	HTTP []string
	// KV and LLM tell of grants.
	KV, LLM bool
	// Permissions are what the manifest asks for, granted or not, in its order.
	Permissions []HandPermission
	// Limits are those in force.
	Limits abi.Limits
	// Image tells what queries begin from; zero for a hand that is not asked.
	Image sandbox.ImageInfo
	// Prompts are what the operator lets the model have the hand asked, by name;
	// FreePrompts says that it may ask in its own words.
	Prompts     map[string]string
	FreePrompts bool
}

// HandPermission is one capability that a hand asks for.
type HandPermission struct {
	Capability abi.Capability
	// Reason is why, in the words of the manifest, and Asked what of it: hosts and
	// names of secrets, names of folders or a number of tokens, one a line; empty
	// where the capability is asked for as a whole.
	Reason, Asked boundary.Content
	// Granted says that the operator allows it, and Reach, in the words of the
	// configuration, what of it.
	Granted bool
	Reach   []string
	// Key is where the configuration grants it.
	Key string
}

// The most that is shown of a permission, in tokens: a manifest is hostile too. What
// is asked for is never cut, for it is agreed to as a whole: package manifest bounds it
// to 64 entries of 200 bytes, of which one costs at most half a token.
const (
	reasonTokens = 200
	askedTokens  = 7_000
)

// BundledHands returns the hands of this program that are not configured, by name:
// what they are and ask for, of which nothing is granted.
func (h *Host) BundledHands() ([]HandInfo, error) {
	set, release := h.handSets.use()
	defer release()
	known, err := bundledHands()
	if err != nil {
		return nil, err
	}
	var all []HandInfo
	for _, info := range known {
		if !set.knows(info.Name) {
			info.Permissions = slices.Clone(info.Permissions)
			all = append(all, info)
		}
	}
	return all, nil
}

// bundledHands reads the modules of this program once: it takes a while, and they
// stay as they are.
var bundledHands = sync.OnceValues(func() ([]HandInfo, error) {
	var all []HandInfo
	for _, name := range plugins.Names() {
		info, err := bundledHand(name)
		if err != nil {
			return nil, fmt.Errorf("bundled hand %q: %w", name, err)
		}
		all = append(all, info)
	}
	return all, nil
})

func bundledHand(name string) (HandInfo, error) {
	module, err := plugins.Module(name)
	if err != nil {
		return HandInfo{}, err
	}
	info, err := infoOf(name, module)
	info.Bundled = true
	return info, err
}

// infoOf tells of a module of which nothing is granted.
func infoOf(name string, module []byte) (HandInfo, error) {
	outline, err := sandbox.Describe(module)
	if err != nil {
		return HandInfo{}, err
	}
	var m manifest.Manifest
	if outline.Manifest != nil {
		if m, err = manifest.Parse(outline.Manifest); err != nil {
			return HandInfo{}, err
		}
	}
	permissions, err := permissionsOf(name, m.Permissions, registry.Grant{}, nil)
	if err != nil {
		return HandInfo{}, err
	}
	source, err := boundary.HandSource(name)
	if err != nil {
		return HandInfo{}, err
	}
	description, _ := boundary.Wrap(source, m.Description, reasonTokens)
	return HandInfo{Name: name, Version: m.Version, Digest: outline.Digest, Description: description, Permissions: permissions, Limits: abi.DefaultLimits()}, nil
}

// permissionsOf holds what a manifest asks for against what is granted; rules are
// those for requests, nil for none.
func permissionsOf(name string, asks []manifest.Permission, grant registry.Grant, rules *capability.HTTPGrant) ([]HandPermission, error) {
	source, err := boundary.HandSource(name)
	if err != nil {
		return nil, err
	}
	var all []HandPermission
	for _, asked := range asks {
		p := HandPermission{Capability: asked.Capability, Key: "hands." + name + ".grant." + string(asked.Capability)}
		p.Reason, _ = boundary.Wrap(source, asked.Reason, reasonTokens)
		scope := slices.Concat(asked.Hosts, asked.Paths)
		for _, secret := range asked.Secrets {
			scope = append(scope, "secret "+secret)
		}
		if asked.MaxTokens > 0 {
			scope = append(scope, fmt.Sprintf("%d tokens", asked.MaxTokens))
		}
		p.Asked, _ = boundary.Wrap(source, strings.Join(scope, "\n"), askedTokens)
		switch asked.Capability {
		case abi.CapabilityFiles:
			p.Granted = len(grant.Files) > 0
			for _, root := range slices.Sorted(maps.Keys(grant.Files)) {
				p.Reach = append(p.Reach, root+" = "+grant.Files[root])
			}
		case abi.CapabilityHTTP:
			if p.Granted = rules != nil; p.Granted {
				for _, rule := range rules.Hosts() {
					p.Reach = append(p.Reach, rule.String())
				}
			}
		case abi.CapabilityKV:
			p.Granted = grant.KV
		case abi.CapabilityLLM:
			p.Granted = grant.LLM
		}
		all = append(all, p)
	}
	return all, nil
}

// Hands returns the hands that are configured or installed by name, those that are
// disabled among them.
func (h *Host) Hands() []HandInfo {
	h.catchUp(h.ending)
	var all []HandInfo
	set, release := h.handSets.use()
	defer release()
	for _, name := range slices.Sorted(maps.Keys(set.hands)) {
		k := set.hands[name]
		info := HandInfo{
			Installed: k.terms.installed, Source: k.terms.source, AgreedAt: k.terms.at,
			Name: name, Version: k.Version(), Digest: k.Module().Digest(), Bundled: k.Bundled(),
			Description: k.Description(), Users: slices.Clone(k.users),
			Files: k.Grant().Files, KV: k.Grant().KV, LLM: k.Grant().LLM,
			Permissions: slices.Clone(k.asks), Limits: k.Module().Limits(), Image: k.Module().Image(),
			Prompts: maps.Clone(k.terms.config.Prompts), FreePrompts: k.terms.config.FreePrompts,
		}
		if signer, ok := k.Signer(); ok {
			info.Signer = &signer
		}
		if k.http != nil {
			for _, rule := range k.http.Hosts() {
				info.HTTP = append(info.HTTP, rule.String())
			}
		}
		all = append(all, info)
	}
	for _, off := range set.disabled {
		info := off.info
		info.Users, info.Permissions, info.Prompts = slices.Clone(info.Users), slices.Clone(info.Permissions), maps.Clone(info.Prompts)
		all = append(all, info)
	}
	slices.SortFunc(all, func(a, b HandInfo) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// ModuleOf returns the bytes that reference names, "bundled:NAME" or a path;
// "" is the bundled hand called name.
func ModuleOf(reference, name string) (module []byte, bundled bool, err error) {
	if reference == "" {
		reference = bundledPrefix + name
	}
	if name, ok := strings.CutPrefix(reference, bundledPrefix); ok {
		module, err := plugins.Module(name)
		return module, true, err
	}
	module, err = registry.ReadModule(reference)
	return module, false, err
}

// HandQuery is one question to one hand.
type HandQuery struct {
	Hand string
	// User is for whom the hand is asked; zero means the default user.
	User   memory.UserID
	Prompt string
	// From and To bound the window; zero values mean the 24 hours up to now.
	From, To time.Time
	// MaxTokens bounds the text; zero means sandbox.DefaultOutputTokens.
	MaxTokens int
	// Fixed gives the hand a clock and random numbers without chance; nil
	// means the machine's.
	Fixed *sandbox.Fixed
}

// Query asks a hand one question in a fresh instance. It leaves one row in the
// ledger and touches no session. The result is valid also when the error is
// not nil; errors are those of sandbox.Module.Query, unknown_hand, disabled, and
// not_granted if the hand is not the user's.
func (h *Host) Query(ctx context.Context, q HandQuery) (sandbox.Result, error) {
	set, release := h.handsFor(ctx)
	defer release()
	return h.queryOf(ctx, set, q)
}

// queryOf is Query of one of a set, which the caller has.
func (h *Host) queryOf(ctx context.Context, set *handSet, q HandQuery) (sandbox.Result, error) {
	agreed := h.catchUp(ctx)
	if set.state(q.Hand) != agreed.State(q.Hand) {
		// A turn keeps the hands that it began with, but nothing that was taken back.
		now, release := h.handSets.use()
		defer release()
		set = now
	}
	k, ok := set.hands[q.Hand]
	off, known := set.disabled[q.Hand]
	ctx, ended := h.instruments.queries(ctx, q.Hand, ok || known)
	var result sandbox.Result
	var err error
	stale := set.state(q.Hand) != agreed.State(q.Hand)
	switch {
	case stale && (ok || set.agreed != agreed && agreed.Err() == nil):
		err = &abi.Error{Hand: q.Hand, Kind: abi.KindDisabled, Text: "what was agreed for it has changed, and the hands could not be loaded again: the log says why"}
	case ok:
		result, err = h.query(ctx, q, k)
	case known:
		err = off.err()
	case agreed.Err() != nil:
		err = &abi.Error{Hand: q.Hand, Kind: abi.KindDisabled, Text: howToMend(q.Hand, agreed.Err())}
	default:
		err = &abi.Error{Hand: q.Hand, Kind: abi.KindUnknownHand,
			Text: fmt.Sprintf("no such hand: there are %v", slices.Sorted(maps.Keys(set.hands)))}
	}
	ended(result, err)
	return result, err
}

func (h *Host) query(ctx context.Context, q HandQuery, k *hand) (sandbox.Result, error) {
	user, err := h.userOrDefault(q.User)
	if err != nil {
		return sandbox.Result{}, err
	}
	if !slices.Contains(k.users, user.Name) {
		return sandbox.Result{}, &abi.Error{Hand: q.Hand, Kind: abi.KindNotGranted,
			Text: fmt.Sprintf("it is not for user %q: add the name to hands.%s.users", user.Name, q.Hand)}
	}
	ctx, leave, err := h.present.enter(ctx, user.ID)
	if err != nil {
		return sandbox.Result{}, fmt.Errorf("query hand %q: %w", q.Hand, err)
	}
	defer leave()
	now := h.now()
	if q.To.IsZero() {
		q.To = now
	}
	if q.From.IsZero() {
		q.From = q.To.Add(-24 * time.Hour)
	}
	if !q.From.Before(q.To) {
		return sandbox.Result{}, &abi.Error{Hand: q.Hand, Kind: abi.KindBadRequest, Text: fmt.Sprintf(
			"the window ends before it begins: %s to %s", q.From.Format(time.RFC3339), q.To.Format(time.RFC3339))}
	}
	subject := h.ledger.Subject(q.Hand, user.ID.String())
	caller := capability.Caller{Hand: q.Hand, Subject: subject, Withdrawn: h.withdrawn(q.Hand, k)}
	files := capability.NewFiles(h.ledger, caller, k.filesFor(user.Name))
	ports := sandbox.Ports{Files: files, Fixed: q.Fixed}
	if k.grant.KV {
		ports.KV = capability.NewKV(h.ledger, caller, k.Module().Limits())
	}
	if k.grant.LLM {
		ports.LLM = capability.NewLLM(h.ledger, caller, h.instruments.asks(h.model, forHand))
	}
	var targets []string
	if k.http != nil {
		requests := capability.NewHTTP(h.ledger, caller, k.http, nil)
		defer requests.Close()
		ports.HTTP = recorded{requests, &targets}
	}
	result, err := k.Module().Query(ctx, abi.Query{
		Prompt: q.Prompt, From: q.From, To: q.To, Now: now, Timezone: h.timezone(),
		MaxOutputTokens: q.MaxTokens, Config: k.configFor(user.Name), Subject: subject,
	}, ports)
	err = errors.Join(err, files.Close())
	run := capability.Run{
		Hand: q.Hand, Digest: k.Module().Digest(), Subject: subject, Outcome: abi.KindOf(err),
		Took: result.Took, Fuel: result.Fuel, MemoryBytes: result.MemoryBytes,
		ReplyBytes: result.ReplyBytes, ReplyTokens: result.Reply.Tokens(), Calls: result.Calls,
		HTTPTargets: targets,
	}
	if err != nil {
		run.Text = err.Error()
	}
	return result, errors.Join(err, h.ledger.RecordRun(context.WithoutCancel(ctx), run))
}

// withdrawn is capability.Caller.Withdrawn of a hand that is being asked.
func (h *Host) withdrawn(name string, k *hand) func() string {
	return func() string {
		if h.agreed.Read().State(name) != k.terms.state {
			return "what was agreed for the hand has changed since the query began"
		}
		return ""
	}
}

// recorded keeps the URLs of requests for the run's row.
type recorded struct {
	*capability.HTTP
	targets *[]string
}

// maxRecordedTargets is more than a row keeps.
const maxRecordedTargets = 200

// Fetch implements sandbox.HTTP.
func (r recorded) Fetch(ctx context.Context, request abi.HTTPFetchRequest, budget abi.HTTPBudget) (abi.HTTPFetchResult, []byte, int, error) {
	head, body, sent, err := r.HTTP.Fetch(ctx, request, budget)
	if sent > 0 && len(*r.targets) < maxRecordedTargets {
		*r.targets = append(*r.targets, request.URL)
		if err == nil && head.URL != request.URL {
			*r.targets = append(*r.targets, head.URL)
		}
	}
	return head, body, sent, err
}

func (h *Host) userOrDefault(id memory.UserID) (memory.User, error) {
	if id.IsZero() {
		return h.User("")
	}
	h.people.RLock()
	defer h.people.RUnlock()
	if u, ok := h.usersByID[id]; ok {
		return u, nil
	}
	return memory.User{}, fmt.Errorf("user %s: %w", id, memory.ErrNotFound)
}

func (h *Host) timezone() string {
	if zone := h.config.Sessions.Timezone; zone != "" {
		return zone
	}
	return localZone()
}

// sourcesOf returns the context sources of a user, in the configuration's
// order.
func (h *Host) sourcesOf(id memory.UserID) []compaction.Source {
	h.people.RLock()
	defer h.people.RUnlock()
	user, ok := h.usersByID[id]
	if !ok {
		return nil
	}
	set, release := h.handSets.use()
	defer release()
	config := set.config
	config.defaultName = h.config.defaultName
	var sources []compaction.Source
	for _, s := range config.Compaction.ContextSources {
		if slices.Contains(config.sourceUsers(s), user.Name) {
			sources = append(sources, handSource{h, set, s.Hand, s.Prompt})
		}
	}
	return sources
}

// handSource is a hand with the operator's prompt.
type handSource struct {
	host *Host
	// set is the one that had the source in force.
	set    *handSet
	hand   string
	prompt string
}

// Name implements compaction.Source.
func (s handSource) Name() string { return "hand://" + s.hand }

// Ask implements compaction.Source.
func (s handSource) Ask(ctx context.Context, q compaction.Question) (boundary.Content, error) {
	set, release := s.set, s.set.release
	if !set.reuse() {
		set, release = s.host.handSets.use()
	}
	defer release()
	result, err := s.host.queryOf(ctx, set, HandQuery{Hand: s.hand, User: q.User, Prompt: s.prompt, From: q.From, To: q.To, MaxTokens: q.MaxTokens})
	if err != nil {
		return result.Said, err
	}
	return result.Reply, nil
}
