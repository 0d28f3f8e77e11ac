package assembly

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/gloveboxhq/glovebox/memory"
)

// Provider is the shape of an API. Which rules hold depends on it.
type Provider string

// The providers.
const (
	Anthropic       Provider = "anthropic"
	OpenAIChat      Provider = "openai-chat"
	OpenAIResponses Provider = "openai-responses"
	Gemini          Provider = "gemini"
)

// Violation is a rule that a prompt breaks.
type Violation struct {
	// Rule is the name of the rule; see Rules.
	Rule string `json:"rule"`
	// Message is the index of the message; -1 for the prompt as a whole.
	Message int `json:"message"`
	// Detail says what is wrong, in the host's own words.
	Detail string `json:"detail"`
}

// RuleError says that a prompt was not sent because providers refuse it.
type RuleError struct {
	// Provider is whose rules were held against the prompt; "" means all.
	Provider Provider
	// Violations are what Check found, at least one.
	Violations []Violation
}

// Error lists the first three violations.
func (e *RuleError) Error() string {
	const listed = 3
	var b strings.Builder
	b.WriteString("prompt breaks the rules of ")
	if e.Provider == "" {
		b.WriteString("providers")
	} else {
		b.WriteString(string(e.Provider))
	}
	for i, v := range e.Violations[:min(listed, len(e.Violations))] {
		b.WriteString([]string{": ", "; ", "; "}[i])
		b.WriteString(v.Rule)
		if v.Message >= 0 {
			fmt.Fprintf(&b, " in message %d", v.Message)
		}
		b.WriteString(" (" + v.Detail + ")")
	}
	if more := len(e.Violations) - listed; more > 0 {
		fmt.Fprintf(&b, "; and %d more", more)
	}
	return b.String()
}

// Rule is one demand on a prompt.
type Rule struct {
	// Name is stable: Violation.Rule and Report.Rules hold it.
	Name string
	// Text says what has to hold, in one sentence.
	Text string
	// Source says which providers demand it, and "own choice" where this package
	// asks for more than they do. docs/providers.md has the evidence.
	Source string
}

// Rules returns the rules that hold for a provider, in the order in which Check
// goes through them. All of them hold for "" and for an unknown provider.
func Rules(provider Provider) []Rule {
	var holding []Rule
	for _, r := range rules {
		if r.holdsFor(provider) {
			holding = append(holding, r.Rule)
		}
	}
	return holding
}

// Check holds a prompt against the rules of a provider, or of all of them if
// provider is "". Prompts of Assemble break none. It takes any prompt, in time
// linear in its size, and finds the violations of one rule after the other, each
// in the order of the messages.
func Check(p Prompt, provider Provider) []Violation {
	c := checker{Prompt: p, provider: provider}
	for i := range rules {
		if rules[i].holdsFor(provider) {
			c.rule = rules[i].Name
			rules[i].check(&c)
		}
	}
	return c.found
}

const (
	maxIDBytes   = 40 // OpenAI Chat, observed; the others allow more
	maxNameBytes = 64 // OpenAI; the others allow 128
)

type rule struct {
	Rule
	providers []Provider // nil means all
	check     func(*checker)
}

func (r *rule) holdsFor(provider Provider) bool {
	switch provider {
	case Anthropic, OpenAIChat, OpenAIResponses, Gemini:
		return r.providers == nil || slices.Contains(r.providers, provider)
	}
	return true
}

var rules = []rule{
	{Rule{"first_is_user", "The first message is the user's.",
		"Gemini, if it has calls; own choice for Anthropic, which no longer refuses it, and OpenAI"}, nil, (*checker).firstIsUser},
	{Rule{"roles_alternate", "Messages are the user's and the assistant's in turns.",
		"Gemini around tool calls; own choice for Anthropic, which merges neighbours, and OpenAI"}, nil, (*checker).rolesAlternate},
	{Rule{"last_is_user", "The last message is the user's.",
		"Anthropic, models from 4.6 on; Gemini; own choice for OpenAI"}, nil, (*checker).lastIsUser},
	{Rule{"calls_answered", "Each tool call has its result in the next message.",
		"all providers"}, nil, (*checker).callsAnswered},
	{Rule{"results_called", "Each result has its call, by id, in the message before it, and no call has two.",
		"all providers; Gemini counts instead of comparing ids"}, nil, (*checker).resultsCalled},
	{Rule{"results_first", "A message with results begins with one.",
		"Anthropic; own choice for the others"}, nil, (*checker).resultsFirst},
	{Rule{"results_together", "The results of parallel calls stand side by side in one message.",
		"Anthropic, Gemini; own choice for OpenAI"}, nil, (*checker).resultsTogether},
	{Rule{"result_name", "A result has the name of its call.",
		"Gemini"}, []Provider{Gemini}, (*checker).resultName},
	{Rule{"pair_unbroken", "Nothing but calls and results stands between a call and its result.",
		"Anthropic, OpenAI, Gemini"}, nil, (*checker).pairUnbroken},
	{Rule{"ids_unique", "No two calls of a prompt have the same id.",
		"Anthropic, OpenAI; own choice for Gemini"}, nil, (*checker).idsUnique},
	{Rule{"id_form", "Ids of calls are 1 to 40 letters, digits, _ and -.",
		"Anthropic the characters, OpenAI the length; own choice for Gemini"}, nil, (*checker).idForm},
	{Rule{"name_form", "Names of tools are 1 to 64 letters, digits, _ and -, and begin with a letter or _.",
		"OpenAI the length, Anthropic and OpenAI the characters, Gemini the beginning"}, nil, (*checker).nameForm},
	{Rule{"input_object", "A tool is called with a JSON object in UTF-8.",
		"Anthropic, Gemini; own choice for OpenAI, which takes any string"}, nil, (*checker).inputObject},
	{Rule{"no_blank_text", "No message is without parts, and no text or result is blank.",
		"Anthropic, Gemini; own choice for OpenAI, and for results"}, nil, (*checker).noBlankText},
	{Rule{"parts_order", "The assistant's parts are thinking before anything else and no results, the user's neither thinking nor calls.",
		"Anthropic; the others by the types of their APIs"}, nil, (*checker).partsOrder},
	{Rule{"thinking_provider", "Thinking is whole, made by the provider that it goes to, and of the turn that is running.",
		"Anthropic, OpenAI Responses, Gemini: whole, or refused; own choice: none of an earlier turn"}, nil, (*checker).thinkingProvider},
	{Rule{"breakpoints", "There are at most 4 cache breakpoints, and none behind thinking or blank text.",
		"Anthropic"}, []Provider{Anthropic}, (*checker).breakpoints},
	{Rule{"breakpoint_reach", "A breakpoint stands before the last words of the user, and one before those before if the first does not reach back to there.",
		"own choice, from Anthropic's window of 20 blocks"}, []Provider{Anthropic}, (*checker).breakpointReach},
	{Rule{"tools_order", "Tools are in the order of their names, each name once, with parameters as CanonicalTools writes them.",
		"Anthropic: names once; own choice: the order, on which every provider's cache depends"}, nil, (*checker).toolsOrder},
	{Rule{"system_not_blank", "The system text is empty or has words, and something is there to be cached if it is to be.",
		"Anthropic"}, nil, (*checker).systemNotBlank},
}

// checker goes through a prompt for one rule after the other.
type checker struct {
	Prompt
	provider Provider
	rule     string // of which a violation would be
	found    []Violation
}

func (c *checker) add(message int, format string, args ...any) {
	c.found = append(c.found, Violation{Rule: c.rule, Message: message, Detail: fmt.Sprintf(format, args...)})
}

func (c *checker) firstIsUser() {
	switch {
	case len(c.Messages) == 0:
		c.add(-1, "there is no message")
	case c.Messages[0].Role != memory.RoleUser:
		c.add(0, "the first message is not the user's")
	}
}

func (c *checker) rolesAlternate() {
	for i := range c.Messages {
		switch role := c.Messages[i].Role; {
		case role != memory.RoleUser && role != memory.RoleAssistant:
			c.add(i, "the role is neither the user's nor the assistant's")
		case i > 0 && c.Messages[i-1].Role == role:
			c.add(i, "the message before it has the same role")
		}
	}
}

func (c *checker) lastIsUser() {
	if n := len(c.Messages); n > 0 && c.Messages[n-1].Role != memory.RoleUser {
		c.add(n-1, "the last message is not the user's")
	}
}

func (c *checker) callsAnswered() {
	for i := range c.Messages {
		m := &c.Messages[i]
		if !m.has(PartCall) {
			continue
		}
		results := c.pairs(i+1, PartResult)
		for j := range m.Parts {
			if p := &m.Parts[j]; p.Type == PartCall && results.find(p.ID) < 0 {
				c.add(i, "the call in part %d has no result in the next message", j)
			}
		}
	}
}

func (c *checker) resultsCalled() {
	for i := range c.Messages {
		m := &c.Messages[i]
		if !m.has(PartResult) {
			continue
		}
		calls, results := c.pairs(i-1, PartCall), c.pairs(i, PartResult)
		for j := range m.Parts {
			p := &m.Parts[j]
			switch {
			case p.Type != PartResult:
			case calls.find(p.ID) < 0:
				c.add(i, "the result in part %d has no call in the message before", j)
			case results.find(p.ID) != j:
				c.add(i, "the result in part %d is the second of its call", j)
			}
		}
	}
}

func (c *checker) resultsFirst() {
	for i := range c.Messages {
		if m := &c.Messages[i]; m.has(PartResult) && m.Parts[0].Type != PartResult {
			c.add(i, "something stands before the results")
		}
	}
}

func (c *checker) resultsTogether() {
	for i := range c.Messages {
		m := &c.Messages[i]
		if !m.has(PartResult) {
			continue
		}
		if i > 0 && c.Messages[i-1].has(PartResult) {
			c.add(i, "the message before it has results too")
		}
		parted := false // something stands behind a result
		for j := range m.Parts {
			if m.Parts[j].Type != PartResult {
				parted = parted || j > 0 && m.Parts[j-1].Type == PartResult
			} else if parted {
				c.add(i, "something stands between the results")
				break
			}
		}
	}
}

func (c *checker) resultName() {
	for i := 1; i < len(c.Messages); i++ {
		m := &c.Messages[i]
		if !m.has(PartResult) {
			continue
		}
		calls := c.pairs(i-1, PartCall)
		for j := range m.Parts {
			p := &m.Parts[j]
			if p.Type != PartResult {
				continue
			}
			if call := calls.find(p.ID); call >= 0 && calls.parts[call].Name != p.Name {
				c.add(i, "the result in part %d has another name than its call", j)
			}
		}
	}
}

func (c *checker) pairUnbroken() {
	var last map[string]int // the last message with a result, by id; made if it is needed
	for i := range c.Messages {
		m := &c.Messages[i]
		if !m.has(PartCall) {
			continue
		}
		results := c.pairs(i+1, PartResult)
		called := false
		for j := range m.Parts {
			p := &m.Parts[j]
			if p.Type != PartCall {
				if called {
					c.add(i, "part %d stands behind a call and is none", j)
				}
				continue
			}
			called = true
			if results.find(p.ID) >= 0 {
				continue
			}
			if last == nil {
				last = c.lastResults()
			}
			if at, ok := last[p.ID]; ok && at > i+1 {
				c.add(i, "the result of the call in part %d stands in message %d", j, at)
			}
		}
	}
}

func (c *checker) lastResults() map[string]int {
	last := map[string]int{}
	for i := range c.Messages {
		for j := range c.Messages[i].Parts {
			if p := &c.Messages[i].Parts[j]; p.Type == PartResult {
				last[p.ID] = i
			}
		}
	}
	return last
}

func (c *checker) idsUnique() {
	n := 0
	for i := range c.Messages {
		for j := range c.Messages[i].Parts {
			if c.Messages[i].Parts[j].Type == PartCall {
				n++
			}
		}
	}
	if n < 2 {
		return
	}
	seen := make(map[string]struct{}, n)
	for i := range c.Messages {
		for j := range c.Messages[i].Parts {
			p := &c.Messages[i].Parts[j]
			if p.Type != PartCall {
				continue
			}
			if _, ok := seen[p.ID]; ok {
				c.add(i, "the call in part %d has the id of an earlier one", j)
			}
			seen[p.ID] = struct{}{}
		}
	}
}

func (c *checker) idForm() {
	for i := range c.Messages {
		for j := range c.Messages[i].Parts {
			if p := &c.Messages[i].Parts[j]; p.ofTool() && !ValidID(p.ID) {
				c.add(i, "the id of part %d is out of form", j)
			}
		}
	}
}

func (c *checker) nameForm() {
	for i := range c.Tools {
		if !ValidName(c.Tools[i].Name) {
			c.add(-1, "the name of tool %d is out of form", i)
		}
	}
	for i := range c.Messages {
		for j := range c.Messages[i].Parts {
			if p := &c.Messages[i].Parts[j]; p.ofTool() && !ValidName(p.Name) {
				c.add(i, "the name in part %d is out of form", j)
			}
		}
	}
}

func (c *checker) inputObject() {
	for i := range c.Messages {
		for j := range c.Messages[i].Parts {
			if p := &c.Messages[i].Parts[j]; p.Type == PartCall && !isObject(p.Raw) {
				c.add(i, "the input of the call in part %d is no JSON object", j)
			}
		}
	}
}

func (c *checker) noBlankText() {
	for i := range c.Messages {
		m := &c.Messages[i]
		if len(m.Parts) == 0 {
			c.add(i, "the message has no parts")
		}
		for j := range m.Parts {
			if m.Parts[j].isBlank() {
				c.add(i, "the text of part %d is blank", j)
			}
		}
	}
}

func (c *checker) partsOrder() {
	for i := range c.Messages {
		m := &c.Messages[i]
		user, assistant := m.Role == memory.RoleUser, m.Role == memory.RoleAssistant
		thought := true // nothing but thinking so far
		for j := range m.Parts {
			switch m.Parts[j].Type {
			case PartText, PartOther:
			case PartThinking:
				switch {
				case user:
					c.add(i, "part %d of the user is thinking", j)
				case !thought:
					c.add(i, "something stands before the thinking in part %d", j)
				}
			case PartCall:
				if user {
					c.add(i, "part %d of the user is a call", j)
				}
			case PartResult:
				if assistant {
					c.add(i, "part %d of the assistant is a result", j)
				}
			default:
				c.add(i, "part %d is of no known type", j)
			}
			thought = thought && m.Parts[j].Type == PartThinking
		}
	}
}

func (c *checker) thinkingProvider() {
	turn := lastBefore(c.Messages, len(c.Messages), (*Message).saysOnly)
	for i := range c.Messages {
		m := &c.Messages[i]
		if m.Role != memory.RoleAssistant {
			continue
		}
		for j := range m.Parts {
			p := &m.Parts[j]
			switch {
			case p.Type != PartThinking:
			case c.provider == "" || Provider(p.Name) != c.provider:
				c.add(i, "the thinking in part %d was made by another provider", j)
			case i < turn:
				c.add(i, "the thinking in part %d is of an earlier turn", j)
			case !isObject(p.Raw):
				c.add(i, "the thinking in part %d is no JSON object", j)
			}
		}
	}
}

func (c *checker) breakpoints() {
	n := 0
	if c.CacheSystem {
		n++
	}
	for i := range c.Messages {
		m := &c.Messages[i]
		if !m.Breakpoint {
			continue
		}
		n++
		if !m.holdsBreakpoint() {
			c.add(i, "the breakpoint stands behind thinking, blank text or nothing")
		}
	}
	if n > maxBreakpoints {
		c.add(-1, "there are %d breakpoints, more than %d", n, maxBreakpoints)
	}
}

// breakpointReach is what can be held of "a breakpoint at least every 20 blocks":
// with four of them a long prompt cannot have that. What it is for is that the
// provider finds, in this prompt, the end of what it kept of the one before.
//
// What stays the same from turn to turn ends before the last words of the user,
// so there a breakpoint has to stand; at the turn before, that was before the
// words before those. Going back from the first the provider examines lookback
// blocks; if they do not go as far as the second, that needs a breakpoint as well,
// unless a round of calls has ended since: then the prompt of the round before had
// both.
//
// A user's message that has results and words may be the user's own, with results
// put in for calls that nobody answered, or may be told in the middle of a turn. A
// prompt does not tell one from the other, so the rule is kept if it is kept
// either way.
func (c *checker) breakpointReach() {
	at := c.unreached((*Message).says)
	if at >= 0 && c.unreached((*Message).saysOnly) >= 0 {
		c.add(at, "no breakpoint stands at the end of this message")
	}
}

// unreached returns the message that lacks a breakpoint; -1 if none does.
func (c *checker) unreached(opens func(*Message) bool) int {
	last := lastBefore(c.Messages, len(c.Messages), opens)
	if last < 1 {
		return -1
	}
	if m := &c.Messages[last-1]; !m.Breakpoint && m.holdsBreakpoint() {
		return last - 1
	}
	before := lastBefore(c.Messages, last, opens)
	if before < 1 || last < len(c.Messages)-1 {
		return -1
	}
	blocks := 0
	for i := before; i < last; i++ {
		blocks += len(c.Messages[i].Parts)
	}
	if m := &c.Messages[before-1]; blocks >= lookback && !m.Breakpoint && m.holdsBreakpoint() {
		return before - 1
	}
	return -1
}

func (c *checker) toolsOrder() {
	for i := range c.Tools {
		if i > 0 {
			switch strings.Compare(c.Tools[i-1].Name, c.Tools[i].Name) {
			case 0:
				c.add(-1, "tool %d has the name of the one before it", i)
			case 1:
				c.add(-1, "tool %d stands behind one with a later name", i)
			}
		}
		if len(c.Tools[i].Parameters) > 0 {
			if err := checkCanonical(c.Tools[i].Parameters); err != nil {
				c.add(-1, "the parameters of tool %d are not canonical: %v", i, err)
			}
		}
	}
}

func (c *checker) systemNotBlank() {
	switch {
	case c.System != "" && isBlank(c.System):
		c.add(-1, "the system text is blank")
	case c.CacheSystem && c.System == "" && len(c.Tools) == 0:
		c.add(-1, "there is neither a system text nor a tool to be cached")
	}
}

// pairing finds calls or results by id.
type pairing struct {
	parts []Part
	of    PartType
	index map[string]int // nil if parts are few
}

// pairs returns those of a message, which need not exist.
func (c *checker) pairs(message int, of PartType) pairing {
	const few = 16
	if message < 0 || message >= len(c.Messages) {
		return pairing{}
	}
	p := pairing{parts: c.Messages[message].Parts, of: of}
	if len(p.parts) <= few {
		return p
	}
	p.index = make(map[string]int, len(p.parts))
	for i := range p.parts {
		if p.parts[i].Type == of {
			if _, ok := p.index[p.parts[i].ID]; !ok {
				p.index[p.parts[i].ID] = i
			}
		}
	}
	return p
}

// find returns the first part with the id; -1 if there is none.
func (p pairing) find(id string) int {
	if p.index != nil {
		if i, ok := p.index[id]; ok {
			return i
		}
		return -1
	}
	for i := range p.parts {
		if p.parts[i].Type == p.of && p.parts[i].ID == id {
			return i
		}
	}
	return -1
}

func (m *Message) has(t PartType) bool {
	for i := range m.Parts {
		if m.Parts[i].Type == t {
			return true
		}
	}
	return false
}

// says reports whether something in words is told to the assistant.
func (m *Message) says() bool {
	return m.Role == memory.RoleUser && (m.has(PartText) || m.has(PartOther))
}

// saysOnly reports whether words are all that is told to the assistant.
func (m *Message) saysOnly() bool { return m.says() && !m.has(PartResult) }

// holdsBreakpoint reports whether providers take a breakpoint at the end.
func (m *Message) holdsBreakpoint() bool {
	if len(m.Parts) == 0 {
		return false
	}
	p := &m.Parts[len(m.Parts)-1]
	return p.Type != PartThinking && !p.isBlank()
}

// lastBefore returns the last message before end that is of a kind; -1 if none is.
func lastBefore(messages []Message, end int, is func(*Message) bool) int {
	for i := end - 1; i >= 0; i-- {
		if is(&messages[i]) {
			return i
		}
	}
	return -1
}

func (p *Part) ofTool() bool { return p.Type == PartCall || p.Type == PartResult }

// isBlank reports whether a part of words lacks them.
func (p *Part) isBlank() bool {
	return p.Type != PartCall && p.Type != PartThinking && isBlank(p.Text)
}

// isBlank reports whether a text is nothing but white space, to which some count
// the separators U+001C to U+001F.
func isBlank(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool {
		return !unicode.IsSpace(r) && (r < 0x1c || r > 0x1f)
	}) < 0
}

func isObject(raw json.RawMessage) bool {
	space := bytes.TrimLeft(raw, " \t\r\n")
	return len(space) > 0 && space[0] == '{' && utf8.Valid(raw) && json.Valid(raw)
}

// ValidID reports whether every provider takes an id of a tool call as it is: 1
// to 40 letters, digits, _ and - of ASCII.
func ValidID(id string) bool {
	return id != "" && len(id) <= maxIDBytes && formed(id)
}

// ValidName reports whether every provider takes a tool's name as it is: 1 to 64
// letters, digits, _ and - of ASCII, beginning with a letter or _.
func ValidName(name string) bool {
	return name != "" && len(name) <= maxNameBytes && opensName(name[0]) && formed(name)
}

func formed(s string) bool {
	for i := range len(s) {
		if !inForm(rune(s[i])) {
			return false
		}
	}
	return true
}

func inForm(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' || r == '-'
}

func opensName(b byte) bool { return inForm(rune(b)) && b != '-' && (b < '0' || b > '9') }

// wireName returns a tool's name that providers take: name itself if they do,
// else what is left of it. It is for calls of the past, whose tools need not exist.
func wireName(name string) string {
	switch {
	case ValidName(name):
		return name
	case name == "":
		return "unknown"
	}
	var b strings.Builder
	if !opensName(name[0]) && inForm(rune(name[0])) {
		b.WriteByte('_')
	}
	for _, r := range name {
		if b.Len() == maxNameBytes {
			break
		}
		if !inForm(r) {
			r = '_'
		}
		b.WriteByte(byte(r))
	}
	return b.String()
}
