package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/memory"
)

// The tools that a model in a turn does not have: it finds the hands in its
// definition of hand_query, and what is remembered in its prompt.
const (
	handListName = "hand_list"
	topicsName   = "memory_topics"
)

const handListDescription = "List the sources that hand_query asks for this user: what each says of itself, the prompts that it may be asked by name, " +
	"and how far a window of time may reach. What a source says of itself is external content."

const handListParameters = `{
  "type": "object",
  "properties": {
    "after": {"type": "string", "maxLength": 63, "description": "Where the list before ended, to go on."}
  },
  "additionalProperties": false
}`

const handListOutput = `{
  "type": "object",
  "properties": {
    "hands": {"type": "array", "items": {"type": "object",
      "properties": {
        "hand": {"type": "string", "description": "Its name, for hand_query."},
        "description": {"type": "string", "description": "What it says of itself: external content in its frame, or empty."},
        "prompts": {"type": "array", "items": {"type": "object",
          "properties": {
            "prompt": {"type": "string", "description": "Its name, for hand_query."},
            "text": {"type": "string", "description": "How it begins."}
          },
          "required": ["prompt", "text"], "additionalProperties": false}},
        "free_prompts": {"type": "boolean", "description": "Whether it takes a question in the caller's own words."},
        "disabled": {"type": "boolean", "description": "Whether the operator has yet to agree to it: it is not asked. Absent if not."}
      },
      "required": ["hand", "description", "prompts", "free_prompts"], "additionalProperties": false}},
    "window": {"type": "object",
      "properties": {
        "hours": {"type": "array", "items": {"type": "integer"}, "description": "The steps to which hours_back and hours_ahead are widened."},
        "default_hours": {"type": "integer"}
      },
      "required": ["hours", "default_hours"], "additionalProperties": false},
    "more_after": {"type": "string", "description": "The value of after that goes on with the list; absent if this is its end."}
  },
  "required": ["hands", "window"],
  "additionalProperties": false
}`

type listedHand struct {
	Hand        string         `json:"hand"`
	Description string         `json:"description"`
	Prompts     []listedPrompt `json:"prompts"`
	FreePrompts bool           `json:"free_prompts"`
	Disabled    bool           `json:"disabled,omitempty"`
}

type listedPrompt struct {
	Prompt string `json:"prompt"`
	Text   string `json:"text"`
}

type handList struct {
	Hands  []listedHand `json:"hands"`
	Window struct {
		Hours        []int `json:"hours"`
		DefaultHours int   `json:"default_hours"`
	} `json:"window"`
	MoreAfter string `json:"more_after,omitempty"`
}

const (
	// shownPrompts is how many prompts of a hand a list shows, shownPromptTokens how
	// much of each, and shownTokens how much of what a hand says of itself: together
	// they leave room for at least one hand.
	shownPrompts, shownPromptTokens, shownTokens = 64, 40, 200
	// roomTokens is what the entries of a list may cost; the rest is for its frame.
	roomTokens = resultTokens - 512
)

// listHands is hand_list.
func (p *person) listHands(ctx context.Context, raw json.RawMessage) answer {
	var in struct {
		After string `json:"after"`
	}
	if err := decode(raw, &in); err != nil {
		return p.refused(ctx, handListName, err)
	}
	hands, err := p.host.HandsOf(p.user)
	if err != nil {
		return p.refused(ctx, handListName, err)
	}
	list := handList{Hands: []listedHand{}}
	list.Window.Hours, list.Window.DefaultHours = host.WindowHours()
	var text strings.Builder
	left := roomTokens
	for i, info := range hands {
		if info.Name <= in.After {
			continue
		}
		shown := shownHand(info)
		entry := shown.text()
		if left -= tokens.Estimate(entry); left < 0 && len(list.Hands) > 0 {
			list.MoreAfter = list.Hands[len(list.Hands)-1].Hand
			fmt.Fprintf(&text, "%d more: call again with after %q.\n", len(hands)-i, list.MoreAfter)
			break
		}
		text.WriteString(entry)
		list.Hands = append(list.Hands, shown)
	}
	if len(list.Hands) == 0 {
		text.WriteString("There are no hands here.\n")
	}
	steps := strings.Trim(strings.ReplaceAll(fmt.Sprint(list.Window.Hours), " ", ", "), "[]")
	fmt.Fprintf(&text, "A window reaches back and ahead by these hours: %s; by %d where nothing is said.", steps, list.Window.DefaultHours)
	return answer{text: text.String(), structured: list}
}

func shownHand(info host.HandInfo) listedHand {
	shown := listedHand{
		Hand: info.Name, Description: info.Description.Shortened(shownTokens).Render(), Prompts: []listedPrompt{}, FreePrompts: info.FreePrompts,
		// Why is the operator's business.
		Disabled: info.Disabled != "",
	}
	for _, name := range slices.Sorted(maps.Keys(info.Prompts)) {
		if len(shown.Prompts) == shownPrompts {
			break
		}
		text := strings.Join(strings.Fields(info.Prompts[name]), " ")
		if begin := tokens.Cut(text, shownPromptTokens); begin != text {
			text = strings.TrimSpace(begin) + "…"
		}
		shown.Prompts = append(shown.Prompts, listedPrompt{name, text})
	}
	return shown
}

// text is the entry as a model reads it.
func (h listedHand) text() string {
	var b strings.Builder
	b.WriteString(h.Hand + ":\n")
	if h.Disabled {
		b.WriteString("- disabled: it is not asked before the operator agrees to it\n")
	}
	if h.Description != "" {
		b.WriteString(h.Description + "\n")
	}
	for _, prompt := range h.Prompts {
		fmt.Fprintf(&b, "- prompt %s: %s\n", prompt.Prompt, prompt.Text)
	}
	switch {
	case h.FreePrompts:
		b.WriteString("- any question, in your own words\n")
	case len(h.Prompts) == 0:
		b.WriteString("- nothing that it may be asked here\n")
	}
	return b.String()
}

const topicsDescription = "Say what is remembered of the user: topics with what each says, since when and until when. " +
	"With topic, that topic alone, also what it once said, and the ids of the messages that say so, for memory_expand."

const topicsParameters = `{
  "type": "object",
  "properties": {
    "topic": {"type": "string", "maxLength": 200, "description": "The name of one topic; all if absent."},
    "agent": {"type": "string", "maxLength": 63, "description": "The name of an agent: what is remembered of the user with that agent alone. What every agent may know if absent."},
    "after": {"type": "string", "maxLength": 200, "description": "Where the list before ended, to go on."}
  },
  "additionalProperties": false
}`

// topicsTimeout is how long the topics may take to be read: as long as a call of the
// host's own tools.
const topicsTimeout = 10 * time.Second

type topicsInput struct {
	Topic string `json:"topic"`
	Agent string `json:"agent"`
	After string `json:"after"`
}

// listTopics is memory_topics. What is remembered was said by the user, or by
// somebody whom the user quoted, and put into words by a model: it is external to
// whoever reads it here.
func (p *person) listTopics(ctx context.Context, raw json.RawMessage) answer {
	ctx, cancel := context.WithTimeout(ctx, topicsTimeout)
	defer cancel()
	text, err := p.topics(ctx, raw)
	if err != nil {
		return p.refused(ctx, topicsName, err)
	}
	source, err := boundary.ToolSource(topicsName)
	if err != nil {
		return p.refused(ctx, topicsName, err)
	}
	content, _ := boundary.Wrap(source, text, resultTokens)
	return answer{text: content.Render()}
}

func (p *person) topics(ctx context.Context, raw json.RawMessage) (string, error) {
	var in topicsInput
	if err := decode(raw, &in); err != nil {
		return "", err
	}
	q := memory.TopicQuery{At: p.now()}
	if in.Agent != "" {
		agents := p.host.Agents()
		i := slices.IndexFunc(agents, func(a host.AgentInfo) bool { return a.Name == in.Agent })
		if i < 0 || agents[i].ID.IsZero() {
			return "", fmt.Errorf("agent %.64q: %w", in.Agent, memory.ErrNotFound)
		}
		q.Agent = agents[i].ID
	}
	if in.Topic != "" {
		var err error
		if q.Name, err = memory.TopicName(in.Topic); err != nil {
			return "", fmt.Errorf("topic: %w", err)
		}
		q.At = time.Time{}
	}
	topics, _, err := p.host.Store().Topics(ctx, p.user, q)
	switch {
	case err != nil:
		return "", fmt.Errorf("read topics: %w", err)
	case q.Name == "":
		return allTopics(memory.ByName(topics), in.After), nil
	case len(topics) == 0:
		return "", fmt.Errorf("topic %.64q: %w", q.Name, memory.ErrNotFound)
	}
	return oneTopic(memory.WithHistory(q.Name, topics, p.now())), nil
}

// allTopics lists topics, those behind after, as long as there is room. Of one that
// is too much alone it tells what there is room for, lest the list should end there.
func allTopics(topics []memory.Remembered, after string) string {
	topics = slices.Clone(topics)
	slices.SortFunc(topics, func(a, b memory.Remembered) int { return strings.Compare(a.Name, b.Name) })
	first, _ := slices.BinarySearchFunc(topics, after+"\x00", func(t memory.Remembered, name string) int { return strings.Compare(t.Name, name) })
	if first == len(topics) {
		return "Nothing is remembered here."
	}
	var text strings.Builder
	left := roomTokens
	for i, t := range topics[first:] {
		entry := t.Name + ":\n"
		size := tokens.Estimate(entry)
		for n, item := range t.Items {
			line := fmt.Sprintf("- %s (%s)\n", item.Content, holding(item))
			if size += tokens.Estimate(line); size > roomTokens {
				entry += fmt.Sprintf("- and %d more\n", len(t.Items)-n)
				break
			}
			entry += line
		}
		if left -= size; left < 0 && i > 0 {
			fmt.Fprintf(&text, "%d more: call again with after %q.", len(topics)-first-i, topics[first+i-1].Name)
			break
		}
		text.WriteString(entry)
	}
	return text.String()
}

// oneTopic tells a topic with where it is from, what holds before what does not.
func oneTopic(t memory.TopicHistory) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s:\n", t.Name)
	tell := func(items []memory.Topic, before string) {
		for _, item := range items {
			fmt.Fprintf(&text, "- %s%s (%s; %s)\n", before, item.Content, holding(item), saidIn(item.Sources))
		}
	}
	tell(t.Items, "")
	tell(t.History, "not now: ")
	return text.String()
}

func holding(t memory.Topic) string {
	text := "since " + t.ValidFrom.UTC().Format(time.RFC3339)
	if !t.SupersededBy.IsZero() {
		text += ", until " + t.SupersededAt.UTC().Format(time.RFC3339) + ", when another took its place"
	} else if !t.ExpiresAt.IsZero() {
		text += ", until " + t.ExpiresAt.UTC().Format(time.RFC3339)
	}
	return text
}

// shownSources is how many messages an item of a topic names.
const shownSources = 8

func saidIn(sources []memory.MessageID) string {
	if len(sources) == 0 {
		return "written into the memory by hand"
	}
	var ids []string
	for _, id := range sources[:min(len(sources), shownSources)] {
		ids = append(ids, id.String())
	}
	text := "said in " + strings.Join(ids, ", ")
	if n := len(sources) - shownSources; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}

// decode reads what a caller sent.
func decode(raw json.RawMessage, to any) error {
	if err := llm.DecodeInput(raw, maxArguments, to); err != nil {
		return fmt.Errorf("%w: %w", err, memory.ErrInvalid)
	}
	return nil
}
