package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/compaction/assembly"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/host/sandbox"
	"github.com/gloveboxhq/glovebox/memory"
)

// handQueryName is the name of the tool by which a model has a hand asked.
const handQueryName = "hand_query"

// handQuery lets the model have a hand asked. What reaches the hand is the
// operator's: a model that was talked into carrying the conversation out finds
// no field to put it in, only a hand, the name of a prompt and a window, whose
// two ends are one of a dozen steps each. Free text is there alone for hands
// that the operator allows it, which Config.Check grants to none that could send
// it on.
//
// It is made for one user, of the configuration alone: the definition is the
// same at every turn, and says nothing of a hand that is not the user's. It is
// safe for concurrent use.
type handQuery struct {
	hands      map[string]askable
	definition llm.Tool
	// query is Host.Query; nil where only the definition is looked at.
	query func(context.Context, HandQuery) (sandbox.Result, error)
	now   func() time.Time
}

// askable is what a model may have one hand asked.
type askable struct {
	prompts map[string]string
	free    bool
}

// windowSteps are the hours by which a window reaches back or ahead: what the
// model wants is widened to the next. Any number would be a message to a hand
// that can send it on.
var windowSteps = []int{0, 1, 3, 6, 12, 24, 48, 72, 168, 336, 744, 2208, maxWindowHours}

const (
	maxWindowHours     = 366 * 24
	defaultWindowHours = 24
)

// shownPromptTokens is how much of a prompt the definition says.
const shownPromptTokens = 40

// toolsOf are what the model may call in the turns of a user: the same in each.
func (h *Host) toolsOf(ctx context.Context, user memory.UserID) []tool {
	set, release := h.handsFor(ctx)
	defer release()
	return h.toolsWith(set.tools[h.nameOf(user)])
}

// toolsWith are the host's tools and that of a user's hands, nil if there is none.
func (h *Host) toolsWith(hands *handQuery) []tool {
	if hands != nil {
		return append(slices.Clip(h.tools), hands)
	}
	return h.tools
}

// offeredTo describes toolsOf as prompts offer them. The list is made once, for all
// turns that have it: it is not to be changed.
func (h *Host) offeredTo(ctx context.Context, user memory.UserID) ([]assembly.Tool, error) {
	set, release := h.handsFor(ctx)
	defer release()
	hands := set.tools[h.nameOf(user)]
	if known, ok := set.offers.Load(hands); ok {
		return known.([]assembly.Tool), nil
	}
	tools, err := offered(h.toolsWith(hands))
	if err == nil {
		set.offers.Store(hands, tools)
	}
	return tools, err
}

// nameOf is the name of a user; "" if nobody has the id.
func (h *Host) nameOf(user memory.UserID) string {
	h.people.RLock()
	defer h.people.RUnlock()
	return h.usersByID[user].Name
}

// toolsOf is Host.toolsOf where no host runs, for looking at.
func (c Config) toolsOf(users []memory.User, user memory.UserID) []tool {
	name := ""
	for _, u := range users {
		if u.IsDefault {
			c.defaultName = u.Name
		}
		if u.ID == user {
			name = u.Name
		}
	}
	tools := c.memoryTools(nil)
	if t, ok := c.handTools(tools)[name]; ok {
		tools = append(tools, t)
	}
	return tools
}

// handTools returns the tool of each user who has hands that the model may have
// asked, by the user's name: nobody's if the model is offered no tools, and not
// those that would take more than a quarter of what a prompt may cost with the
// others.
func (c *Config) handTools(others []tool) map[string]*handQuery {
	tools := map[string]*handQuery{}
	if !c.offersTools() {
		return tools
	}
	cost := 0
	for _, t := range others {
		cost += t.Definition().Tokens()
	}
	for user, t := range c.handQueries() {
		if cost+t.definition.Tokens() <= c.budget()/4 {
			tools[user] = t
		}
	}
	return tools
}

// handQueries returns the tool of each user who has hands that the model may
// have asked, by the user's name.
func (c *Config) handQueries() map[string]*handQuery {
	hands := map[string]map[string]askable{}
	for name, h := range c.Hands {
		if len(h.Prompts) == 0 && !h.FreePrompts {
			continue
		}
		for _, user := range c.handUsers(h) {
			if hands[user] == nil {
				hands[user] = map[string]askable{}
			}
			hands[user][name] = askable{h.Prompts, h.FreePrompts}
		}
	}
	tools := map[string]*handQuery{}
	for user, own := range hands {
		tools[user] = &handQuery{hands: own, definition: defineHandQuery(own)}
	}
	return tools
}

// defineHandQuery describes the tool in the operator's words and the host's own;
// what a hand's manifest says of itself has no place in a prompt's system part.
func defineHandQuery(hands map[string]askable) llm.Tool {
	var description strings.Builder
	description.WriteString("Ask one of these sources for what it knows now, within a window of time. Its answer is external content. The sources, and what each may be asked:")
	names := slices.Sorted(maps.Keys(hands))
	var prompts []string
	free := false
	for _, name := range names {
		h := hands[name]
		fmt.Fprintf(&description, "\n%s:", name)
		for _, prompt := range slices.Sorted(maps.Keys(h.prompts)) {
			prompts = append(prompts, prompt)
			text := strings.Join(strings.Fields(h.prompts[prompt]), " ")
			if shown := tokens.Cut(text, shownPromptTokens); shown != text {
				text = strings.TrimSpace(shown) + "…"
			}
			fmt.Fprintf(&description, "\n- prompt %s: %s", prompt, text)
		}
		if h.free {
			free = true
			description.WriteString("\n- any question, in your own words")
		}
	}
	slices.Sort(prompts)
	hours := func(direction string) map[string]any {
		return map[string]any{"type": "integer", "minimum": 0, "maximum": maxWindowHours,
			"description": fmt.Sprintf("How many hours the window reaches %s from now; %d if absent.", direction, defaultWindowHours)}
	}
	properties := map[string]any{
		"hand":        map[string]any{"type": "string", "enum": names, "description": "The source."},
		"hours_back":  hours("back"),
		"hours_ahead": hours("ahead"),
	}
	required := []string{"hand"}
	if len(prompts) > 0 {
		properties["prompt"] = map[string]any{"type": "string", "enum": slices.Compact(prompts), "description": "The name of one of the source's prompts."}
		if !free {
			required = append(required, "prompt")
		}
	}
	if free {
		properties["question"] = map[string]any{"type": "string", "maxLength": abi.MaxPromptBytes,
			"description": "A question in your own words, in place of prompt, for a source that takes any."}
	}
	// Of strings, numbers and maps of them: it cannot fail.
	parameters, _ := json.Marshal(map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false})
	return llm.Tool{Name: handQueryName, Description: description.String(), Parameters: parameters}
}

// Definition implements tool.
func (t *handQuery) Definition() llm.Tool { return t.definition }

// maxHandQueryInput holds a question of which every byte is escaped, and the rest.
const maxHandQueryInput = 6*abi.MaxPromptBytes + 4<<10

type handQueryInput struct {
	Hand       string `json:"hand"`
	Prompt     string `json:"prompt"`
	Question   string `json:"question"`
	HoursBack  *int   `json:"hours_back"`
	HoursAhead *int   `json:"hours_ahead"`
}

// Call implements tool. The result is the hand's reply; a hand that fails or has
// nothing to say is a result too, in the host's words.
func (t *handQuery) Call(ctx context.Context, user memory.UserID, _ memory.SessionID, raw json.RawMessage, maxTokens int) (boundary.Content, error) {
	var input handQueryInput
	if err := llm.DecodeInput(raw, maxHandQueryInput, &input); err != nil {
		return boundary.Content{}, fmt.Errorf("%w: %w", err, memory.ErrInvalid)
	}
	q, err := t.question(input)
	if err != nil {
		return boundary.Content{}, err
	}
	q.User, q.MaxTokens = user, resultStep(maxTokens)
	result, err := t.query(ctx, q)
	if err == nil && !result.Reply.IsEmpty() {
		return result.Reply, nil
	}
	said := fmt.Sprintf("%s has nothing to say.", q.Hand)
	if err != nil {
		var failed *abi.Error
		if ctx.Err() != nil || !errors.As(err, &failed) {
			return boundary.Content{}, err
		}
		// Its own account of the failure is in the record of runs.
		said = fmt.Sprintf("%s could not answer: %s.", q.Hand, failed.Kind.Error())
	}
	source, err := boundary.ToolSource(handQueryName)
	if err != nil {
		return boundary.Content{}, err
	}
	content, _ := boundary.Wrap(source, said, maxTokens)
	return content, nil
}

// question turns what the model wants into what the operator allows. Errors name
// what exists for this user, and nothing else.
func (t *handQuery) question(in handQueryInput) (HandQuery, error) {
	fail := func(format string, args ...any) (HandQuery, error) {
		return HandQuery{}, fmt.Errorf(format+": %w", append(args, memory.ErrInvalid)...)
	}
	h, ok := t.hands[in.Hand]
	if !ok {
		return HandQuery{}, fmt.Errorf("the hands are %s: %w: %.64q", listed(t.hands), memory.ErrNotFound, in.Hand)
	}
	q := HandQuery{Hand: in.Hand}
	switch prompt, known := h.prompts[in.Prompt]; {
	case known && in.Question == "":
		q.Prompt = prompt
	case known:
		return fail("give prompt or question, not both")
	case in.Prompt != "":
		return HandQuery{}, fmt.Errorf("the prompts of %s are %s: %w: %.64q", in.Hand, listed(h.prompts), memory.ErrNotFound, in.Prompt)
	case !h.free:
		return fail("%s takes no words of yours: give prompt, one of %s", in.Hand, listed(h.prompts))
	case strings.TrimSpace(in.Question) == "":
		return fail("give question, or prompt, one of %s", listed(h.prompts))
	case len(in.Question) > abi.MaxPromptBytes:
		return fail("question is %d bytes long, and at most %d are allowed", len(in.Question), abi.MaxPromptBytes)
	default:
		q.Prompt = in.Question
	}
	back, backOK := windowHours(in.HoursBack)
	ahead, aheadOK := windowHours(in.HoursAhead)
	if !backOK || !aheadOK || back+ahead == 0 {
		return fail("hours_back and hours_ahead are 0 to %d, and not both 0", maxWindowHours)
	}
	now := t.now()
	q.From, q.To = now.Add(-back), now.Add(ahead)
	return q, nil
}

// windowHours widens what the model gave to a step.
func windowHours(given *int) (time.Duration, bool) {
	hours := defaultWindowHours
	if given != nil {
		hours = *given
	}
	i, _ := slices.BinarySearch(windowSteps, hours)
	if hours < 0 || i == len(windowSteps) {
		return 0, false
	}
	return time.Duration(windowSteps[i]) * time.Hour, true
}

// resultStep narrows what there is room for to a power of two. The hand is told of
// it, and the model decides by what else it calls how much room is left: any number
// would be a message.
func resultStep(maxTokens int) int {
	if maxTokens < 1 {
		return maxTokens
	}
	return 1 << (bits.Len(uint(maxTokens)) - 1)
}

func listed[V any](named map[string]V) string {
	if len(named) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(named)), ", ")
}

// maxPrompts bounds the prompts of a hand, all of which a definition names.
const maxPrompts = 64

// checkPrompts refuses what the model may not have a hand asked.
func (h HandConfig) checkPrompts(key string) error {
	if g := h.Grant; h.FreePrompts && (len(g.HTTP) > 0 || g.KV || g.LLM) {
		return fmt.Errorf("%s.free_prompts: the hand has a grant of http, kv or llm and could send away what the model writes: list prompts under [%s.prompts] in its place", key, key)
	}
	if len(h.Prompts) > maxPrompts {
		return fmt.Errorf("%s.prompts: %d are too many: use at most %d", key, len(h.Prompts), maxPrompts)
	}
	for _, name := range slices.Sorted(maps.Keys(h.Prompts)) {
		switch text := h.Prompts[name]; {
		case !validPromptName(name):
			return fmt.Errorf("%s.prompts: %q: a prompt's name is 1 to 63 of a-z, 0-9 and -", key, name)
		case strings.TrimSpace(text) == "":
			return fmt.Errorf("%s.prompts.%s: write what the hand is to be asked", key, name)
		case len(text) > abi.MaxPromptBytes:
			return fmt.Errorf("%s.prompts.%s: %d bytes, at most %d are allowed", key, name, len(text), abi.MaxPromptBytes)
		}
	}
	return nil
}

func validPromptName(name string) bool {
	return name != "" && len(name) <= 63 && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-'
	})
}
