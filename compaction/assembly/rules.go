package assembly

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

// Check holds a prompt against the rules of a provider, or of all of them if
// provider is "". Prompts of Assemble break none.
func Check(p Prompt, provider Provider) []Violation { return nil }

type RuleError struct {
	Provider   Provider
	Violations []Violation
}

func (e *RuleError) Error() string { return "rules" }

func ValidID(id string) bool { return id != "" && len(id) <= 40 }

func wireName(name string) string { return name }

func ruleNames(provider Provider) []string { return nil }
