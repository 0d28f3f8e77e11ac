package compaction

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/memory"
)

// Bounds of an AnswerQuery.
const (
	DefaultEvidenceTokens = 2048
	MinEvidenceTokens     = 256
	MaxEvidenceTokens     = 16_000
	defaultAnswerTokens   = 512
	maxAnswerTokens       = 4096
)

// AnswerQuery is a question to what was said.
type AnswerQuery struct {
	// Question is in plain words, at most MaxQueryBytes.
	Question string
	// Session and Agent, if not zero, keep what belongs to them.
	Session memory.SessionID
	Agent   memory.AgentID
	// From and To bound the time: From ≤ t < To. A zero bound is none.
	From, To time.Time
	// EvidenceTokens bounds what the model is shown: 0 means
	// DefaultEvidenceTokens; else from MinEvidenceTokens to MaxEvidenceTokens.
	EvidenceTokens int
	// MaxTokens bounds the answer: 0 means 512, 4,096 is the most.
	MaxTokens int
}

// Citation is one thing that the model was shown, under its number.
type Citation struct {
	Number  int              `json:"number"`
	Kind    memory.TextKind  `json:"kind"`
	ID      string           `json:"id"`
	Session memory.SessionID `json:"session_id"`
	Seq     int64            `json:"seq,omitempty"`
	Role    memory.Role      `json:"role,omitempty"`
	Trust   memory.Trust     `json:"trust"`
	At      time.Time        `json:"at"`
}

// Answer is what a model makes of what was said. It cites as [1] or [1, 2].
type Answer struct {
	// Text is the answer if all that the model was shown was said directly, or
	// derived; External is it if the model was shown external text, which may
	// speak through it. Both are empty if nothing was found: the model is not
	// asked then.
	Text     string           `json:"text,omitempty"`
	External boundary.Content `json:"external,omitzero"`
	// Trust is external beside External; else derived, if anything shown was;
	// else direct.
	Trust memory.Trust `json:"trust"`
	// Cited are what the answer cites, in the order of its numbers. An answer
	// that cites nothing is not supported by anything that was shown.
	Cited []Citation `json:"cited"`
	// Shown is everything that the model was shown.
	Shown []Citation `json:"shown"`
	// Unknown counts citations of what was not shown; each is [?] in the text.
	Unknown int `json:"unknown,omitempty"`
	// Truncated says that MaxTokens cut the answer off.
	Truncated bool   `json:"truncated,omitempty"`
	Model     string `json:"model,omitempty"`
}

// evidence is one thing to be shown.
type evidence struct {
	Citation
	blocks []memory.Block
}

// Answer searches, expands what it finds as far as there is room, and asks the
// model once. Errors: memory.ErrInvalid for a query out of bounds, ErrNoModel,
// and the model's own.
func (r *Retrieval) Answer(ctx context.Context, user memory.UserID, q AnswerQuery) (Answer, error) {
	a, err := r.answer(ctx, user, q)
	if err != nil {
		return Answer{}, fmt.Errorf("answer: %w", err)
	}
	return a, nil
}

func (r *Retrieval) answer(ctx context.Context, user memory.UserID, q AnswerQuery) (Answer, error) {
	q.EvidenceTokens, q.MaxTokens = orDefault(q.EvidenceTokens, DefaultEvidenceTokens), orDefault(q.MaxTokens, defaultAnswerTokens)
	switch {
	case r.model == nil:
		return Answer{}, ErrNoModel
	case strings.TrimSpace(q.Question) == "" || len(q.Question) > MaxQueryBytes || !utf8.ValidString(q.Question):
		return Answer{}, invalidf("a question is from 1 to %d bytes of UTF-8", MaxQueryBytes)
	case q.EvidenceTokens < MinEvidenceTokens || q.EvidenceTokens > MaxEvidenceTokens:
		return Answer{}, invalidf("the evidence has from %d to %d tokens", MinEvidenceTokens, MaxEvidenceTokens)
	case q.MaxTokens < 0 || q.MaxTokens > maxAnswerTokens:
		return Answer{}, invalidf("an answer has from 1 to %d tokens", maxAnswerTokens)
	}
	shown, err := r.gather(ctx, user, q)
	if err != nil {
		return Answer{}, err
	}
	a := Answer{Trust: memory.TrustDirect, Cited: []Citation{}, Shown: []Citation{}}
	if len(shown) == 0 {
		return a, nil
	}
	for _, e := range shown {
		a.Shown = append(a.Shown, e.Citation)
		a.Trust = a.Trust.Least(e.Trust)
	}
	response, err := r.model.Complete(ctx, llm.Request{
		System:          answerSystem,
		Messages:        []llm.Message{{Role: llm.RoleUser, Text: answerPrompt(shown, q.Question)}},
		MaxOutputTokens: q.MaxTokens,
	})
	if response.Filtered {
		err = llm.ErrRefused
	}
	if err != nil {
		return Answer{}, err
	}
	a.Model, a.Truncated = response.Model, response.Truncated
	text, cited, unknown := checkCitations(response.Text, len(shown))
	a.Unknown = unknown
	for _, number := range cited {
		a.Cited = append(a.Cited, a.Shown[number-1])
	}
	if a.Trust != memory.TrustExternal {
		a.Text = text
		return a, nil
	}
	source, err := boundary.ToolSource("memory_answer")
	if err != nil {
		return Answer{}, err
	}
	a.External, _ = boundary.Wrap(source, text, boundary.Unlimited)
	return a, nil
}

const answerSystem = `Answer the question from the numbered passages of earlier conversations alone. ` +
	`Cite the passage behind each statement by its number, as [1] or [1, 2]. ` +
	`If the passages do not answer the question, say so. Do not add anything else. ` + boundary.SystemParagraph

// answerPrompt is the passages, in the order in which they were said, and the
// question. A line that begins with a number in brackets is the host's alone:
// all words without a frame are indented.
func answerPrompt(shown []evidence, question string) string {
	var b strings.Builder
	for _, e := range shown {
		fmt.Fprintf(&b, "[%d] (%s", e.Number, e.Kind)
		if e.Role != "" {
			b.WriteString(" of the " + string(e.Role))
		}
		b.WriteString(", " + e.At.UTC().Format("2006-01-02 15:04") + trustNote(e.Trust) + ")")
		for i, block := range e.blocks {
			text := memory.Shown([]memory.Block{block})
			switch {
			case !block.External.IsEmpty():
				text = "\n" + text
			case i == 0:
				// On one line with its number, it is quoted with it.
				text = " " + strings.ReplaceAll(text, "\n", "\n  ")
			default:
				text = "\n  " + strings.ReplaceAll(text, "\n", "\n  ")
			}
			b.WriteString(text)
		}
		b.WriteString("\n\n")
	}
	b.WriteString("Question: " + question)
	return b.String()
}

// citation matches [1] and [1, 2].
var citation = regexp.MustCompile(`\[[0-9]+(?:, ?[0-9]+)*\]`)

// checkCitations returns the text with [?] for every citation of what was not
// shown, which numbers it cites, in order, and how many were not shown.
func checkCitations(text string, shown int) (checked string, cited []int, unknown int) {
	checked = citation.ReplaceAllStringFunc(text, func(c string) string {
		var known []string
		for digits := range strings.SplitSeq(strings.Trim(c, "[]"), ",") {
			number, err := strconv.Atoi(strings.TrimSpace(digits))
			if err != nil || number < 1 || number > shown {
				unknown++
				continue
			}
			cited = append(cited, number)
			known = append(known, strconv.Itoa(number))
		}
		if len(known) == 0 {
			return "[?]"
		}
		return "[" + strings.Join(known, ", ") + "]"
	})
	slices.Sort(cited)
	return checked, slices.Compact(cited), unknown
}

// gather finds what the question is about and reads on from there: the best
// places first, each whole if it is not long, and the best of them with what
// was said before and after.
func (r *Retrieval) gather(ctx context.Context, user memory.UserID, q AnswerQuery) ([]evidence, error) {
	const (
		places = 20
		// neighbours is for how many places the context is read.
		neighbours = 5
	)
	found, err := r.Grep(ctx, user, GrepQuery{
		Words: q.Question, Session: q.Session, Agent: q.Agent, From: q.From, To: q.To,
		Limit: places, ExcerptTokens: min(maxExcerptTokens, q.EvidenceTokens/4),
	})
	if err != nil {
		return nil, err
	}
	room := q.EvidenceTokens
	var shown []evidence
	add := func(e evidence) {
		cost := evidenceHeading + tokens.Estimate(memory.Shown(e.blocks))
		taken := slices.ContainsFunc(shown, func(s evidence) bool { return s.ID == e.ID })
		if taken || cost > room || len(e.blocks) == 0 {
			return
		}
		room -= cost
		shown = append(shown, e)
	}
	for i, h := range found.Hits {
		add(evidence{Citation{Kind: h.Kind, ID: h.ID, Session: h.Session, Seq: h.Seq, Role: h.Role, Trust: h.Trust, At: h.At}, h.Excerpt})
		if i >= neighbours || h.Kind != memory.TextMessage {
			continue
		}
		around, err := r.archive.Messages(ctx, user, h.Session, memory.MessageQuery{After: max(0, h.Seq-2), Limit: 3})
		if errors.Is(err, memory.ErrNotFound) {
			continue // deleted meanwhile
		}
		if err != nil {
			return nil, err
		}
		for _, m := range around {
			if m.Seq == h.Seq || !q.From.IsZero() && m.At.Before(q.From) || !q.To.IsZero() && !m.At.Before(q.To) {
				continue
			}
			add(evidence{Citation{Kind: memory.TextMessage, ID: m.ID.String(), Session: m.Session, Seq: m.Seq, Role: m.Role, Trust: m.Trust, At: m.At},
				beginning(m.Blocks, m.Trust, q.EvidenceTokens/8)})
		}
	}
	slices.SortStableFunc(shown, func(a, b evidence) int {
		return cmp.Or(a.At.Compare(b.At), strings.Compare(a.Session.String(), b.Session.String()), cmp.Compare(a.Seq, b.Seq), strings.Compare(a.ID, b.ID))
	})
	for i := range shown {
		shown[i].Number = i + 1
	}
	return shown, nil
}

// evidenceHeading is what the line above one thing that is shown may cost.
const evidenceHeading = 24
