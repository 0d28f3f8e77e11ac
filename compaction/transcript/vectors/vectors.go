// Package vectors runs files of test vectors through the code that builds
// prompts: each case holds an input and the answer that a reference gave to it. A
// file is one JSON object,
//
//	{"kind": "append", "version": 1, "placeholder_cost": 24, "cases": [
//	  {"name": …, "contentious"?: …, "input": {…}, "expect": {…}}, …]}
//
// of one of five kinds. Messages in it have an id, a role, content (a string or a
// list of blocks: text, reasoning, tool_call, tool_result) and, of tools,
// tool_call_id and tool_name.
//
// The files are of others: whatever is in them is an error or an answer. It takes
// time and memory linear in the file.
package vectors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"

	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/compaction/transcript"
	"github.com/gloveboxhq/glovebox/memory"
)

// Kind says what the cases of a file put to the test.
type Kind string

// The kinds.
const (
	// Append adds live messages to an assembled prompt, with transcript.Join.
	Append Kind = "append"
	// Repair pairs calls with results, with transcript.Repair.
	Repair Kind = "repair"
	// Tokens estimates and cuts texts, with abi/tokens.
	Tokens Kind = "tokens"
	// Volatile tells announcements by their marks, with memory.MarkedSource.
	Volatile Kind = "volatile"
	// SummaryCover is what SummaryCarries decides.
	SummaryCover Kind = "summary-cover"
)

// MaxFile is the most bytes of a file that are read.
const MaxFile = 64 << 20

// ErrInvalid says that a document is no file of vectors. The error that wraps it
// says where and why.
var ErrInvalid = errors.New("not a file of vectors")

const version = 1

// DefaultPlaceholderCost is what a made up result costs in a case that stands
// alone, where no file says it.
const DefaultPlaceholderCost = 24

// File is a file of vectors that can be run.
type File struct {
	Kind  Kind
	Cases []Case
}

// Case is one input with the answer to it.
type Case struct {
	Name string
	Kind Kind
	// Contentious says why the answer of the reference may be an accident; "" if
	// it is none.
	Contentious string
	// Expect is the answer of the reference; nil for a case that has none, which
	// can be explained and not run.
	Expect json.RawMessage

	input input
}

// input is what a case is run on: the fields of its kind are set.
type input struct {
	// rows are of append and repair, live of append.
	rows, live                        []message
	protected                         []int
	budget, rowsCost, placeholderCost int
	text                              string
	cut                               bool // text is to be cut to maxTokens
	maxTokens                         int
	message                           message
	summary                           string
}

// Result is what became of a case.
type Result struct {
	Name string `json:"name"`
	Kind Kind   `json:"kind"`
	// Pass says that Got is what was expected.
	Pass bool `json:"pass"`
	// Deviates says why we answer a contentious case in another way. A case that
	// neither passes nor deviates has failed.
	Deviates string `json:"deviates,omitempty"`
	// Got is our answer, in the shape of Want.
	Got  json.RawMessage `json:"got"`
	Want json.RawMessage `json:"-"`
}

// Failed reports whether the answer is wrong.
func (r Result) Failed() bool { return !r.Pass && r.Deviates == "" }

// Totals counts results.
type Totals struct {
	Passed   int `json:"passed"`
	Failed   int `json:"failed"`
	Deviated int `json:"deviated"`
}

// Add counts a result.
func (t *Totals) Add(r Result) {
	switch {
	case r.Pass:
		t.Passed++
	case r.Deviates != "":
		t.Deviated++
	default:
		t.Failed++
	}
}

type fileJSON struct {
	Kind            Kind              `json:"kind"`
	Version         *int              `json:"version"`
	PlaceholderCost *int              `json:"placeholder_cost"`
	Cases           []json.RawMessage `json:"cases"`
}

type caseJSON struct {
	Name        string          `json:"name"`
	Contentious string          `json:"contentious"`
	Input       json.RawMessage `json:"input"`
	Expect      json.RawMessage `json:"expect"`
}

// Read reads a file of vectors. Errors: ErrInvalid, and those of r.
func Read(r io.Reader) (*File, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxFile+1))
	if err != nil {
		return nil, err
	}
	return Parse(data)
}

// Parse is Read of what has been read. Errors: ErrInvalid.
func Parse(data []byte) (*File, error) {
	if len(data) > MaxFile {
		return nil, invalidf("it is larger than %d MiB: split it", MaxFile>>20)
	}
	var in fileJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, located(data, err))
	}
	switch in.Kind {
	case Append, Repair, Tokens, Volatile, SummaryCover:
	case "":
		return nil, invalidf("it has no kind: give one of append, repair, tokens, volatile, summary-cover")
	default:
		return nil, invalidf("the kind %.40q is not one of append, repair, tokens, volatile, summary-cover", in.Kind)
	}
	if in.Version == nil || *in.Version != version {
		return nil, invalidf("this program reads version %d", version)
	}
	if len(in.Cases) == 0 {
		return nil, invalidf("it has no cases")
	}
	cost := DefaultPlaceholderCost
	switch {
	case in.PlaceholderCost != nil:
		cost = *in.PlaceholderCost
		if err := checkCost(cost); err != nil {
			return nil, invalidf("placeholder_cost: %w", err)
		}
	case in.Kind == Append:
		return nil, invalidf("it has no placeholder_cost: say beside kind what a made up result costs")
	}
	file := &File{Kind: in.Kind, Cases: make([]Case, 0, len(in.Cases))}
	for i, raw := range in.Cases {
		c, err := parseCase(raw, in.Kind, cost)
		if err == nil && c.Expect == nil {
			err = errors.New("it has no expect")
		}
		if err == nil && c.Name == "" {
			err = errors.New("it has no name")
		}
		if err != nil {
			return nil, invalidf("case %d %.60q: %w", i+1, c.Name, err)
		}
		file.Cases = append(file.Cases, c)
	}
	return file, nil
}

// ParseCase reads one case that stands alone, which is of the kind that the
// fields of its input are of. It needs neither a name nor an answer. Errors:
// ErrInvalid.
func ParseCase(data []byte) (Case, error) {
	var in caseJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return Case{}, fmt.Errorf("%w: %w", ErrInvalid, located(data, err))
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(in.Input, &fields); err != nil {
		return Case{}, invalidf("the input of the case is no object")
	}
	has := func(key string) bool { return fields[key] != nil }
	var kind Kind
	switch {
	case has("assembled") || has("live"):
		kind = Append
	case has("messages"):
		kind = Repair
	case has("message") && has("summary"):
		kind = SummaryCover
	case has("message"):
		kind = Volatile
	case has("text"):
		kind = Tokens
	default:
		return Case{}, invalidf("the input of the case has none of assembled, messages, message, text: what it tests cannot be told")
	}
	c, err := parseCase(data, kind, DefaultPlaceholderCost)
	if err != nil {
		return Case{}, invalidf("case %.60q: %w", c.Name, err)
	}
	return c, nil
}

func parseCase(data []byte, kind Kind, placeholderCost int) (Case, error) {
	var in caseJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return Case{}, err
	}
	c := Case{Name: in.Name, Kind: kind, Contentious: in.Contentious, Expect: in.Expect}
	if isNull(c.Expect) {
		c.Expect = nil
	}
	if isNull(in.Input) {
		return c, errors.New("it has no input")
	}
	c.input.placeholderCost = placeholderCost
	return c, c.input.parse(kind, in.Input)
}

func (in *input) parse(kind Kind, data json.RawMessage) error {
	var fields struct {
		Assembled *[]json.RawMessage `json:"assembled"`
		Live      *[]json.RawMessage `json:"live"`
		Messages  *[]json.RawMessage `json:"messages"`
		Protected []int              `json:"protected"`
		Cost      *int               `json:"assembled_cost"`
		Budget    *int               `json:"budget"`
		Text      *string            `json:"text"`
		MaxTokens *int               `json:"max_tokens"`
		Message   json.RawMessage    `json:"message"`
		Summary   *string            `json:"summary"`
	}
	if err := json.Unmarshal(data, &fields); err != nil {
		return fmt.Errorf("input: %w", err)
	}
	missing := func(what string) error { return fmt.Errorf("input has no %s", what) }
	ids := map[string]string{}
	var err error
	switch kind {
	case Append:
		switch {
		case fields.Assembled == nil:
			return missing("assembled")
		case fields.Live == nil:
			return missing("live")
		case fields.Budget == nil:
			return missing("budget")
		case fields.Cost == nil:
			return missing("assembled_cost")
		}
		in.protected, in.budget, in.rowsCost = fields.Protected, *fields.Budget, *fields.Cost
		if err := checkCost(in.rowsCost); err != nil {
			return fmt.Errorf("input: assembled_cost: %w", err)
		}
		if in.budget > maxCost || in.budget < -maxCost {
			return fmt.Errorf("input: a budget of %d is out of range", in.budget)
		}
		if in.rows, err = parseMessages("assembled", *fields.Assembled, ids, true); err != nil {
			return err
		}
		in.live, err = parseMessages("live", *fields.Live, ids, true)
		return err
	case Repair:
		if fields.Messages == nil {
			return missing("messages")
		}
		in.rows, err = parseMessages("messages", *fields.Messages, ids, false)
		return err
	case Tokens:
		if fields.Text == nil {
			return missing("text")
		}
		in.text = *fields.Text
		if fields.MaxTokens != nil {
			in.cut, in.maxTokens = true, *fields.MaxTokens
		}
		return nil
	}
	if isNull(fields.Message) {
		return missing("message")
	}
	if kind == SummaryCover {
		if fields.Summary == nil {
			return missing("summary")
		}
		in.summary = *fields.Summary
	}
	if in.message, err = parseMessage(fields.Message); err != nil {
		return fmt.Errorf("input: message: %w", err)
	}
	return nil
}

// maxCost bounds what one message costs, so that no sum over a file runs over.
const maxCost = 1 << 40

func checkCost(cost int) error {
	if cost < 0 || cost > maxCost {
		return fmt.Errorf("a cost of %d is out of range", cost)
	}
	return nil
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

func invalidf(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInvalid, fmt.Errorf(format, args...))
}

// located adds the line to an error of the decoder.
func located(data []byte, err error) error {
	offset := int64(0)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		offset = syntax.Offset
	} else if mismatch, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		offset = mismatch.Offset
	} else {
		return err
	}
	return fmt.Errorf("line %d: %w", 1+bytes.Count(data[:min(int(offset), len(data))], []byte("\n")), err)
}

// Run answers the case and holds the answer against the one that it has.
func (c *Case) Run() (Result, error) {
	r := Result{Name: c.Name, Kind: c.Kind, Want: c.Expect}
	if c.Expect == nil {
		return r, fmt.Errorf("case %q has no expect", c.Name)
	}
	got, err := c.answer()
	if err != nil {
		return r, fmt.Errorf("case %q: %w", c.Name, err)
	}
	if r.Got, err = encode(got); err != nil {
		return r, fmt.Errorf("case %q: %w", c.Name, err)
	}
	if r.Pass, err = same(r.Got, r.Want); err != nil {
		return r, fmt.Errorf("case %q: %w", c.Name, err)
	}
	if !r.Pass && c.Contentious != "" {
		r.Deviates = c.deviation(got)
	}
	return r, nil
}

type (
	appendAnswer struct {
		Output       []outputMessage `json:"output"`
		Cost         int             `json:"cost"`
		Appended     int             `json:"appended"`
		AppendedCost int             `json:"appended_cost"`
		Evicted      int             `json:"evicted"`
		EvictedIDs   []string        `json:"evicted_ids"`
		OverBudget   bool            `json:"over_budget"`
	}
	repairAnswer struct {
		Output []outputMessage `json:"output"`
	}
	tokensAnswer struct {
		Tokens *int    `json:"tokens,omitempty"`
		Text   *string `json:"text,omitempty"`
	}
	volatileAnswer struct {
		Text    bool `json:"text_is_volatile"`
		Message bool `json:"message_is_volatile"`
	}
	coverAnswer struct {
		Covered bool `json:"covered"`
	}
)

func (c *Case) answer() (any, error) {
	in := &c.input
	switch c.Kind {
	case Append:
		return in.appendAnswer(in.join())
	case Repair:
		output, err := in.output(transcript.Repair(in.transcript(), in.placeholderCost))
		return repairAnswer{output}, err
	case Tokens:
		if in.cut {
			return tokensAnswer{Text: new(tokens.Cut(in.text, in.maxTokens))}, nil
		}
		return tokensAnswer{Tokens: new(tokens.Estimate(in.text))}, nil
	case Volatile:
		text := in.message.words()
		return volatileAnswer{
			Text:    memory.MarkedSource(memory.RoleUser, text) != memory.SourceUnknown,
			Message: memory.MarkedSource(in.message.row.Role, text) != memory.SourceUnknown,
		}, nil
	case SummaryCover:
		return coverAnswer{SummaryCarries(in.message.words(), in.summary)}, nil
	}
	return nil, fmt.Errorf("kind %q: %w", c.Kind, ErrInvalid)
}

// transcript are the rows; the Origin of each is its index in in.rows.
func (in *input) transcript() []transcript.Row {
	rows := make([]transcript.Row, len(in.rows))
	for i, m := range in.rows {
		rows[i] = m.row
		rows[i].Origin = i
	}
	return rows
}

// join adds the live messages, whose Origins follow those of the rows.
func (in *input) join() transcript.Joined {
	live := make([]transcript.Live, len(in.live))
	for i, m := range in.live {
		live[i] = transcript.Live{Row: m.row, Volatile: m.isVolatile()}
		live[i].Origin = len(in.rows) + i
	}
	return transcript.Join(transcript.JoinInput{Rows: in.transcript(), Live: live, Protected: in.protected,
		Budget: in.budget, RowsCost: in.rowsCost, PlaceholderCost: in.placeholderCost})
}

func (in *input) appendAnswer(joined transcript.Joined) (appendAnswer, error) {
	a := appendAnswer{Cost: joined.Cost, Appended: len(joined.Appended), AppendedCost: joined.AppendedCost,
		Evicted: len(joined.Evicted), EvictedIDs: []string{}, OverBudget: joined.OverBudget}
	for _, i := range joined.Evicted {
		a.EvictedIDs = append(a.EvictedIDs, in.rows[i].id)
	}
	var err error
	a.Output, err = in.output(joined.Rows)
	return a, err
}

// at is the message that a row was made of.
func (in *input) at(origin int) *message {
	if origin < len(in.rows) {
		return &in.rows[origin]
	}
	return &in.live[origin-len(in.rows)]
}

func encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return bytes.TrimRight(b.Bytes(), "\n"), err
}

// same reports whether two answers are equal, whatever order their keys have. A
// string is the same content as a list of one text.
func same(a, b json.RawMessage) (bool, error) {
	x, err := decode(a)
	if err != nil {
		return false, err
	}
	y, err := decode(b)
	if err != nil {
		return false, fmt.Errorf("expect: %w", err)
	}
	return reflect.DeepEqual(x, y), nil
}

func decode(raw json.RawMessage) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var v any
	if err := decoder.Decode(&v); err != nil {
		return nil, err
	}
	answer, _ := v.(map[string]any)
	output, _ := answer["output"].([]any)
	for _, o := range output {
		o, _ := o.(map[string]any)
		if m, _ := o["message"].(map[string]any); m != nil {
			if text, ok := m["content"].(string); ok {
				m["content"] = []any{map[string]any{"type": "text", "text": text}}
			}
		}
	}
	return v, nil
}
