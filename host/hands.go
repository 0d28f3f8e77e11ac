package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
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
}

// HandInfo tells of one configured hand.
type HandInfo struct {
	Name        string
	Version     string
	Digest      string
	Bundled     bool
	Description boundary.Content
	Users       []string
	// Files maps the granted roots to directories as they are configured.
	Files map[string]string
	// HTTP are the rules in force for requests.
	HTTP []string
	// KV and LLM tell of grants.
	KV, LLM bool
}

// Hands returns the configured hands by name.
func (h *Host) Hands() []HandInfo {
	var all []HandInfo
	for _, name := range slices.Sorted(maps.Keys(h.hands)) {
		k := h.hands[name]
		info := HandInfo{
			Name: name, Version: k.Version(), Digest: k.Module().Digest(), Bundled: k.Bundled(),
			Description: k.Description(), Users: slices.Clone(k.users),
			Files: k.Grant().Files, KV: k.Grant().KV, LLM: k.Grant().LLM,
		}
		if k.http != nil {
			for _, rule := range k.http.Hosts() {
				info.HTTP = append(info.HTTP, rule.String())
			}
		}
		all = append(all, info)
	}
	return all
}

func (h *Host) openHands(ctx context.Context) error {
	h.hands = map[string]*hand{}
	for _, name := range slices.Sorted(maps.Keys(h.config.Hands)) {
		c := h.config.Hands[name]
		module, bundled, err := ModuleOf(c.Module, name)
		if err != nil {
			return fmt.Errorf("hands.%s.module: %w", name, err)
		}
		opened, err := registry.Open(ctx, h.engine, registry.Request{
			Name: name, Module: module, Bundled: bundled, Digest: c.Digest,
			Grant:  registry.Grant{Files: c.Grant.Files, HTTP: len(c.Grant.HTTP) > 0, KV: c.Grant.KV, LLM: c.Grant.LLM},
			Config: c.Config, Limits: c.Limits.abi(),
		})
		if err != nil {
			return err
		}
		k := &hand{Hand: opened, users: h.config.handUsers(c)}
		if opened.Grant().HTTP {
			if k.http, err = c.Grant.http(opened.Permission(abi.CapabilityHTTP)); err != nil {
				return fmt.Errorf("hands.%s.grant: %w", name, err)
			}
			if len(c.Grant.Files) > 0 {
				h.log.WarnContext(ctx, "a hand may read files and make requests: what it reads, it can send away", "hand", name)
			}
		} else if len(c.Grant.AllowPrivate)+len(c.Grant.Secrets) > 0 {
			return fmt.Errorf("hands.%s.grant: allow_private and secrets belong to http, which is not granted", name)
		}
		h.hands[name] = k
	}
	return nil
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
// not nil; errors are those of sandbox.Module.Query, unknown_hand, and
// not_granted if the hand is not the user's.
func (h *Host) Query(ctx context.Context, q HandQuery) (sandbox.Result, error) {
	k, ok := h.hands[q.Hand]
	if !ok {
		return sandbox.Result{}, &abi.Error{Hand: q.Hand, Kind: abi.KindUnknownHand,
			Text: fmt.Sprintf("no such hand: configured are %v", slices.Sorted(maps.Keys(h.hands)))}
	}
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
	caller := capability.Caller{Hand: q.Hand, Subject: subject}
	files := capability.NewFiles(h.ledger, caller, forUser(k.Grant().Files, user.Name))
	ports := sandbox.Ports{Files: files, Fixed: q.Fixed}
	if k.Grant().KV {
		ports.KV = capability.NewKV(h.ledger, caller, k.Module().Limits())
	}
	if k.Grant().LLM {
		ports.LLM = capability.NewLLM(h.ledger, caller, h.model)
	}
	var targets []string
	if k.http != nil {
		requests := capability.NewHTTP(h.ledger, caller, k.http, nil)
		defer requests.Close()
		ports.HTTP = recorded{requests, &targets}
	}
	result, err := k.Module().Query(ctx, abi.Query{
		Prompt: q.Prompt, From: q.From, To: q.To, Now: now, Timezone: h.timezone(),
		MaxOutputTokens: q.MaxTokens, Config: configFor(k.Config(), user.Name), Subject: subject,
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

// forUser puts the user's name into paths.
func forUser(paths map[string]string, user string) map[string]string {
	own := make(map[string]string, len(paths))
	for root, path := range paths {
		own[root] = strings.ReplaceAll(path, userPlaceholder, user)
	}
	return own
}

func configFor(config map[string]any, user string) map[string]any {
	for key, value := range config {
		switch v := value.(type) {
		case string:
			config[key] = strings.ReplaceAll(v, userPlaceholder, user)
		case []string:
			own := make([]string, len(v))
			for i, s := range v {
				own[i] = strings.ReplaceAll(s, userPlaceholder, user)
			}
			config[key] = own
		}
	}
	return config
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
	var sources []compaction.Source
	for _, s := range h.config.Compaction.ContextSources {
		if slices.Contains(h.config.sourceUsers(s), user.Name) {
			sources = append(sources, handSource{h, s.Hand, s.Prompt})
		}
	}
	return sources
}

// handSource is a hand with the operator's prompt.
type handSource struct {
	host   *Host
	hand   string
	prompt string
}

// Name implements compaction.Source.
func (s handSource) Name() string { return "hand://" + s.hand }

// Ask implements compaction.Source.
func (s handSource) Ask(ctx context.Context, q compaction.Question) (boundary.Content, error) {
	result, err := s.host.Query(ctx, HandQuery{Hand: s.hand, User: q.User, Prompt: s.prompt, From: q.From, To: q.To, MaxTokens: q.MaxTokens})
	if err != nil {
		return result.Said, err
	}
	return result.Reply, nil
}
