package search

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/internal/index"
)

// question is what can be read from a Question without a model.
type question struct {
	// words are sought; terms are what the index makes of each, and at is its
	// place in the query. Two words have no term in common.
	words []string
	terms [][]string
	at    []int
	// speaker is who the question names alone, if that is known.
	speaker string
	// first and second say that it is about who asks, or about who is asked.
	first, second bool
	// wantsMoment and wantsNumber tell what an answer has to hold.
	wantsMoment, wantsNumber bool
	period                   period
}

// maxLetters bounds the part of a question that is read.
const maxLetters = 4096

var wordPattern = regexp.MustCompile(`[\p{L}\p{M}\p{N}]+`)

func read(q Question, tokenizer *index.Tokenizer) question {
	text := strings.ToLower(q.Text)
	if len(text) > maxLetters {
		text = strings.ToValidUTF8(text[:maxLetters], "")
	}
	a := question{
		wantsMoment: momentPattern.MatchString(text),
		wantsNumber: numberPattern.MatchString(text),
		period:      readPeriod(text, q.Now),
	}
	all := wordPattern.FindAllString(text, -1)
	for _, w := range all {
		a.first = a.first || firstPerson[w]
		a.second = a.second || secondPerson[w]
	}
	a.take(all, tokenizer, func(w string) bool { return !functionWords[w] })
	if len(a.words) == 0 {
		a.take(all, tokenizer, func(string) bool { return true })
	}
	return a
}

// take adds the words that f keeps, each once.
func (a *question) take(all []string, tokenizer *index.Tokenizer, f func(string) bool) {
	known := map[string]bool{}
	for _, w := range all {
		terms := tokenizer.Terms(w)
		isNew := slices.ContainsFunc(terms, func(t string) bool { return !known[t] })
		if !isNew || !f(w) || len(a.words) == memory.MaxWords {
			continue
		}
		for _, t := range terms {
			known[t] = true
		}
		a.at = append(a.at, len(a.words))
		a.words, a.terms = append(a.words, w), append(a.terms, terms)
	}
}

// withoutSpeakers returns the question without the names of those who speak in
// the candidates: who is named says who is to have spoken, not what about.
func (a question) withoutSpeakers(list []candidate) question {
	speakers := map[string]string{} // by each part of their names
	for _, c := range list {
		for _, part := range wordPattern.FindAllString(strings.ToLower(c.speaker), -1) {
			speakers[part] = c.speaker
		}
	}
	named := map[string]bool{}
	if a.first {
		named[string(memory.RoleUser)] = true
	}
	if a.second {
		named[string(memory.RoleAssistant)] = true
	}
	rest := a
	rest.words, rest.terms, rest.at = nil, nil, nil
	for i, w := range a.words {
		if speaker, ok := speakers[w]; ok && speaker != string(memory.RoleUser) && speaker != string(memory.RoleAssistant) {
			named[speaker] = true
			continue
		}
		rest.words, rest.terms, rest.at = append(rest.words, w), append(rest.terms, a.terms[i]), append(rest.at, a.at[i])
	}
	if len(rest.words) == 0 {
		rest.words, rest.terms, rest.at = a.words, a.terms, a.at
	}
	if len(named) == 1 {
		for speaker := range named {
			rest.speaker = speaker
		}
	}
	return rest
}

// label is how transcripts of several people say who speaks.
var label = regexp.MustCompile(`^(\p{Lu}[\p{L}\p{M}\p{N}.'’ -]{0,40}): `)

// speakerOf returns who speaks and what: the name before the text, else the
// role.
func speakerOf(m memory.Message) (speaker, text string) {
	text = memory.Plain(m.Blocks)
	if found := label.FindStringSubmatch(text); found != nil {
		return found[1], text[len(found[0]):]
	}
	return string(m.Role), text
}

// asks reports whether a text ends with a question, whatever note in brackets
// stands behind it.
func asks(text string) bool {
	text = strings.TrimRight(text, " \t\r\n")
	if strings.HasSuffix(text, "]") {
		if note := strings.LastIndexByte(text, '['); note > 0 {
			text = text[:note]
		}
	}
	return strings.HasSuffix(strings.TrimRight(text, " \t\r\n\"')”"), "?")
}

// functionWords say how a question is asked, not what about: English pronouns,
// articles, prepositions, conjunctions, auxiliary verbs and question words.
var functionWords = set(`a about above after again all also am an and any are as at be because been before being between both but by can
	could did do does doing don during each few for from further had has have having he her here hers herself him himself his how i if in
	into is it its itself just ll m me might more most my myself no nor not now of off on once only or other our ours out over own
	re s same she should so some such t than that the their theirs them themselves then there these they this those through to too under
	until up ve very was we were what when where which while who whom whose why will with would d you your yours yourself`)

var (
	firstPerson  = set("i me my mine myself")
	secondPerson = set("you your yours yourself")
)

var (
	momentPattern = regexp.MustCompile(`^when\b|\bsince when\b|\b(what|which) (date|day|month|year|time)\b|\bhow long ago\b`)
	numberPattern = regexp.MustCompile(`\bhow (many|much|long|old|often|far)\b`)
	moments       = stems(`yesterday today tomorrow tonight last next week weekend month year ago monday tuesday wednesday thursday friday
		saturday sunday morning recently`)
	numbers = stems("one two three four five six seven eight nine ten dozen couple several few first second third twice once")
)

func set(words string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(words) {
		m[w] = true
	}
	return m
}

func stems(words string) map[string]bool {
	var tokenizer index.Tokenizer
	return set(strings.Join(tokenizer.Terms(words), " "))
}

func namesMoment(terms []string) bool {
	return slices.ContainsFunc(terms, func(t string) bool { return moments[t] })
}

func namesNumber(terms []string) bool {
	return slices.ContainsFunc(terms, func(t string) bool { return numbers[t] || t[0] >= '0' && t[0] <= '9' })
}

// period is the time that a question names. The zero period holds nothing.
type period struct {
	months []time.Month
	years  []int
	// from and to bound it as counted from the question's Now.
	from, to time.Time
}

func (p period) holds(at time.Time) bool {
	if !p.from.IsZero() && !at.Before(p.from) && at.Before(p.to) {
		return true
	}
	if len(p.months)+len(p.years) == 0 {
		return false
	}
	return (len(p.months) == 0 || slices.Contains(p.months, at.Month())) && (len(p.years) == 0 || slices.Contains(p.years, at.Year()))
}

var (
	monthPattern = regexp.MustCompile(`\b(january|february|april|june|july|august|september|october|november|december)\b|` +
		`\b(?:in|of|since|until|during|\d+(?:st|nd|rd|th)?) (march|may)\b|\b(march|may) \d`)
	yearPattern = regexp.MustCompile(`\b(?:19|20)\d\d\b`)
	agoPattern  = regexp.MustCompile(`\b(\d{1,3}|a|an|one|two|three|four|five|six) (day|week|month|year)s? ago\b|\b(last|this) (week|month|year)\b|\b(yesterday|today)\b`)
)

func readPeriod(text string, now time.Time) (p period) {
	for _, found := range monthPattern.FindAllStringSubmatch(text, -1) {
		name := found[1] + found[2] + found[3]
		for m := time.January; m <= time.December; m++ {
			if strings.EqualFold(m.String(), name) {
				p.months = append(p.months, m)
			}
		}
	}
	for _, year := range yearPattern.FindAllString(text, -1) {
		n, _ := strconv.Atoi(year)
		p.years = append(p.years, n)
	}
	if found := agoPattern.FindStringSubmatch(text); found != nil && !now.IsZero() {
		p.from, p.to = ago(found, now)
	}
	return p
}

// ago returns the time that a match of agoPattern is about.
func ago(found []string, now time.Time) (from, to time.Time) {
	today := now.Truncate(24 * time.Hour)
	back := func(unit string, n int) time.Time {
		switch unit {
		case "day":
			return today.AddDate(0, 0, -n)
		case "week":
			return today.AddDate(0, 0, -7*n)
		case "month":
			return today.AddDate(0, -n, 0)
		}
		return today.AddDate(-n, 0, 0)
	}
	switch {
	case found[5] == "today":
		return today, today.AddDate(0, 0, 1)
	case found[5] == "yesterday":
		return today.AddDate(0, 0, -1), today
	case found[3] == "this":
		return back(found[4], 1), today.AddDate(0, 0, 1)
	case found[3] == "last":
		// People are loose with it: the last seven days, or the week before.
		return back(found[4], 2), today
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		n = max(slices.Index([]string{"", "one", "two", "three", "four", "five", "six"}, found[1]), 1)
	}
	// Half a unit to either side.
	middle, next := back(found[2], n), back(found[2], n+1)
	half := middle.Sub(next) / 2
	return middle.Add(-half), middle.Add(half + 24*time.Hour)
}
