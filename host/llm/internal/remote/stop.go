package remote

import (
	"strings"
	"unicode/utf8"

	"github.com/gloveboxhq/glovebox/host/llm"
)

// Stops ends an answer before a text that the server was not told of, because it does
// not know how. It is used by one goroutine, for one attempt.
type Stops struct {
	each  func(text string) // nil if nobody listens
	stops []*stop
	found string
	text  strings.Builder
	// held was not given out yet: it may end with the beginning of a stop, or is white
	// space with nothing before it.
	held []byte
}

// stop is a text that is looked for byte by byte, after Knuth, Morris and Pratt: in
// time linear in what is said, whatever the text.
type stop struct {
	text    string
	matched int
	// back is, for each beginning of text, the length of the longest one that it ends
	// with.
	back []int
}

// StopBefore returns what ends an answer before the first of texts; each is told what
// is said, and may be nil.
func StopBefore(texts []string, each func(text string)) *Stops {
	s := &Stops{each: each}
	for _, text := range texts {
		if text == "" || !utf8.ValidString(text) {
			continue // a model says neither
		}
		t := &stop{text: text, back: make([]int, len(text)+1)}
		for i, n := 1, 0; i < len(text); i++ {
			for n > 0 && text[i] != text[n] {
				n = t.back[n]
			}
			if text[i] == text[n] {
				n++
			}
			t.back[i+1] = n
		}
		s.stops = append(s.stops, t)
	}
	return s
}

// Listener is what the attempt gives pieces of the answer to; nil if nobody listens.
func (s *Stops) Listener() func(text string) {
	if s.each == nil || len(s.stops) == 0 {
		return s.each
	}
	return s.say
}

// say takes a piece of whole characters.
func (s *Stops) say(piece string) {
	if s.found != "" {
		return
	}
	for i := range len(piece) {
		for _, t := range s.stops {
			if t.next(piece[i]) && len(t.text) > len(s.found) {
				s.found = t.text
			}
		}
		if s.found != "" {
			s.held = append(s.held, piece[:i+1]...)
			s.give(len(s.held) - len(s.found))
			return
		}
	}
	s.held = append(s.held, piece...)
	begun := 0
	for _, t := range s.stops {
		begun = max(begun, t.matched)
	}
	s.give(len(s.held) - begun)
}

// next takes a byte and reports whether the stop ends with it.
func (t *stop) next(b byte) bool {
	for t.matched > 0 && t.text[t.matched] != b {
		t.matched = t.back[t.matched]
	}
	if t.text[t.matched] == b {
		t.matched++
	}
	return t.matched == len(t.text)
}

// give gives out the first n bytes of what is held.
func (s *Stops) give(n int) {
	piece := string(s.held[:n])
	if piece == "" || s.text.Len() == 0 && strings.TrimSpace(piece) == "" {
		return
	}
	s.held = append(s.held[:0], s.held[n:]...)
	s.text.WriteString(piece)
	if s.each != nil {
		s.each(piece)
	}
}

// End cuts the answer off where it ends, and gives out what is left of it.
func (s *Stops) End(response *llm.Response, failed *Failure) (*llm.Response, *Failure) {
	if len(s.stops) == 0 || failed != nil {
		return response, failed
	}
	if s.each == nil {
		s.say(response.Text)
	}
	if s.found == "" {
		s.give(len(s.held))
		return response, nil
	}
	response.Text, response.Stopped = s.text.String(), s.found
	response.Truncated, response.Filtered, response.ToolCalls = false, false, nil // of what is behind it
	if response.Text == "" {
		return response, &Failure{Kind: llm.ErrEmpty, What: "no content"}
	}
	return response, nil
}
