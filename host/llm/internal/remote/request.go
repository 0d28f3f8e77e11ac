package remote

import (
	"iter"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gloveboxhq/glovebox/host/llm"
)

// unseen stands for pictures that the model cannot see, if nothing else does.
const unseen = "[a picture that the model cannot see]"

// Parts yields the words and the pictures of the user's message in order: words that
// are not blank, or else a picture. A message without pictures is one text. Blind
// leaves the pictures out.
func Parts(m llm.Message, blind bool) iter.Seq2[string, *llm.Image] {
	return func(yield func(string, *llm.Image) bool) {
		if len(m.Images) == 0 || blind {
			text := m.Text
			if len(m.Images) > 0 && strings.TrimSpace(text) == "" && len(m.ToolResults) == 0 {
				text = unseen
			}
			if strings.TrimSpace(text) != "" {
				yield(text, nil)
			}
			return
		}
		from := 0
		for i := range m.Images {
			at := max(from, min(m.Images[i].At, len(m.Text)))
			for at > from && at < len(m.Text) && !utf8.RuneStart(m.Text[at]) {
				at--
			}
			if words := m.Text[from:at]; strings.TrimSpace(words) != "" && !yield(words, nil) {
				return
			}
			if !yield("", &m.Images[i]) {
				return
			}
			from = at
		}
		if words := m.Text[from:]; strings.TrimSpace(words) != "" {
			yield(words, nil)
		}
	}
}

// HasImages reports whether a request shows a picture.
func HasImages(r llm.Request) bool {
	return slices.ContainsFunc(r.Messages, func(m llm.Message) bool { return len(m.Images) > 0 })
}

// Check returns what is wrong with a request that no server would take, in any
// protocol.
func Check(r llm.Request) *Failure {
	for _, m := range r.Messages {
		for _, i := range m.Images {
			if !llm.ValidImage(i) {
				return &Failure{Kind: llm.ErrRefused, What: "a picture is neither data of a known type nor an http or https address"}
			}
		}
	}
	if c := r.Choice; c.Required && c.Name != "" && !r.NoCalls && len(r.Tools) > 0 && !slices.ContainsFunc(r.Tools, func(t llm.Tool) bool { return t.Name == c.Name }) {
		return &Failure{Kind: llm.ErrRefused, What: "the tool that is to be called is none of those that there are"}
	}
	return nil
}
