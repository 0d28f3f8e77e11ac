package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/compaction/assembly"
	"github.com/gloveboxhq/glovebox/compaction/transcript/vectors"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/tokenizer"
	"github.com/gloveboxhq/glovebox/memory"
)

func (a *app) assemble() *cobra.Command {
	var (
		from, run, name, provider string
		budget                    int
	)
	c := &cobra.Command{
		Use: "assemble", Short: "Build a prompt out of a file and explain it", Args: cobra.NoArgs,
		Long: "Build a prompt out of a file and say what went in, what did not, and why; or run a file of test vectors.\n\n" +
			"--from takes what glovebox session context --dump writes, a file of vectors of the kind append or repair, or one\n" +
			"case of it. --vectors takes a file of vectors of any kind and fails if an answer is wrong. FILE may be -.",
		RunE: func(c *cobra.Command, _ []string) error {
			if (from == "") == (run == "") {
				return usagef("give one of --from FILE and --vectors FILE")
			}
			if run != "" {
				for _, flag := range []string{"case", "budget", "provider"} {
					if c.Flags().Changed(flag) {
						return usagef("--%s goes with --from", flag)
					}
				}
				return a.inFile(run, a.runVectors)
			}
			options := assembleOptions{caseName: name, provider: assembly.Provider(provider)}
			if c.Flags().Changed("budget") {
				if budget < 0 {
					return usagef("--budget %d: give a number of tokens", budget)
				}
				options.budget = &budget
			}
			if !isProvider(options.provider) {
				return usagef("--provider %.40q: give one of %s", provider, providerNames)
			}
			return a.inFile(from, func(data []byte) error { return a.assembleFrom(data, options) })
		},
	}
	c.Flags().StringVar(&from, "from", "", "file with what a prompt is made of")
	c.Flags().StringVar(&run, "vectors", "", "file of test vectors to run")
	c.Flags().StringVar(&name, "case", "", "case of a file of vectors")
	c.Flags().IntVar(&budget, "budget", 0, "tokens that the prompt may cost (default what the file says)")
	c.Flags().StringVar(&provider, "provider", "", "whose rules the prompt has to keep: "+providerNames+" (default what the file says, else all)")
	return c
}

const providerNames = string(assembly.Anthropic + ", " + assembly.OpenAIChat + ", " + assembly.OpenAIResponses + ", " + assembly.Gemini)

// isProvider reports whether p is the name of a provider, or "".
func isProvider(p assembly.Provider) bool {
	switch p {
	case "", assembly.Anthropic, assembly.OpenAIChat, assembly.OpenAIResponses, assembly.Gemini:
		return true
	}
	return false
}

// assembleOptions are what the command line says beside the file.
type assembleOptions struct {
	caseName string
	budget   *int
	provider assembly.Provider
}

// inFile gives what is in a file to use, whose errors name the file.
func (a *app) inFile(path string, use func([]byte) error) error {
	in := a.stdin
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		in = file
	}
	data, err := io.ReadAll(io.LimitReader(in, vectors.MaxFile+1))
	if err == nil && len(data) > vectors.MaxFile {
		err = fmt.Errorf("it is larger than %d MiB", vectors.MaxFile>>20)
	}
	if err == nil {
		// A mark of the byte order is no part of JSON.
		err = use(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")))
	}
	if err == nil || errors.Is(err, errReported) {
		return err
	}
	if usage := (*usageError)(nil); errors.As(err, &usage) {
		return err
	}
	if path == "-" {
		path = "standard input"
	}
	return fmt.Errorf("%s: %w", path, err)
}

// runVectors prints a line for each case and how many came out right.
func (a *app) runVectors(data []byte) error {
	file, err := vectors.Parse(data)
	if err != nil {
		return err
	}
	lines := json.NewEncoder(a.stdout)
	lines.SetEscapeHTML(false)
	var totals vectors.Totals
	for i := range file.Cases {
		r, err := file.Cases[i].Run()
		if err != nil {
			return err
		}
		totals.Add(r)
		switch {
		case a.asJSON:
			if err := lines.Encode(r); err != nil {
				return err
			}
		case r.Pass:
			a.printf("pass      %s\n", oneLine(r.Name))
		case r.Deviates != "":
			a.printf("deviates  %s: %s\n", oneLine(r.Name), r.Deviates)
		default:
			a.printf("FAIL      %s\n    got  %s\n    want %s\n", oneLine(r.Name), printable(string(r.Got)), printable(string(r.Want)))
		}
	}
	if a.asJSON {
		if err := lines.Encode(totals); err != nil {
			return err
		}
	} else {
		a.printf("%s: %d passed, %d deviated, %d failed\n", file.Kind, totals.Passed, totals.Deviated, totals.Failed)
	}
	if totals.Failed > 0 {
		return errReported
	}
	return nil
}

// assembleFrom tells from its fields what a document is.
func (a *app) assembleFrom(data []byte, options assembleOptions) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil || fields == nil {
		return notJSON(data, err)
	}
	has := func(key string) bool { return fields[key] != nil }
	switch {
	case has("kind"), has("cases"):
		file, err := vectors.Parse(data)
		if err != nil {
			return err
		}
		c, err := caseOf(file, options.caseName)
		if err != nil {
			return err
		}
		return a.explainCase(c, options)
	case has("input"):
		c, err := vectors.ParseCase(data)
		if err != nil {
			return err
		}
		if options.caseName != "" && options.caseName != c.Name {
			return fmt.Errorf("it is the case %.60q, not %.60q", c.Name, options.caseName)
		}
		return a.explainCase(&c, options)
	case has("frontier"), has("live"):
		if options.caseName != "" {
			return usagef("--case goes with a file of vectors, this is a dump")
		}
		return a.assembleDump(data, options)
	}
	return errors.New(`it is none of what can be assembled: a dump has "frontier" and "live", a file of vectors "kind" and "cases", a case of it "input"`)
}

// notJSON says where a document stops to be a JSON object.
func notJSON(data []byte, err error) error {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		line := 1 + bytes.Count(data[:min(int(syntax.Offset), len(data))], []byte("\n"))
		return fmt.Errorf("it is not JSON: line %d: %w", line, err)
	}
	return errors.New("it is not one JSON object")
}

// mostNames bounds how many cases an error names.
const mostNames = 20

func caseOf(file *vectors.File, name string) (*vectors.Case, error) {
	var found []*vectors.Case
	var names []string
	for i := range file.Cases {
		c := &file.Cases[i]
		if name == "" || c.Name == name {
			found = append(found, c)
		}
		if len(names) < mostNames {
			names = append(names, oneLine(c.Name))
		}
	}
	list := strings.Join(names, ", ")
	if more := len(file.Cases) - len(names); more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case name == "":
		return nil, fmt.Errorf("it has %d cases: name one with --case: %s", len(found), list)
	case len(found) == 0:
		return nil, fmt.Errorf("it has no case %.60q: it has %s", name, list)
	}
	return nil, fmt.Errorf("it has %d cases of the name %.60q: put one of them into a file of its own", len(found), name)
}

// explainCase prints what became of the messages of a case.
func (a *app) explainCase(c *vectors.Case, options assembleOptions) error {
	if options.provider != "" {
		return usagef("--provider goes with a dump: a case of vectors has no provider")
	}
	e, err := c.Explain(options.budget)
	if err != nil {
		return err
	}
	if a.asJSON {
		return a.printJSON(e)
	}
	a.printf("%s %s\n", e.Kind, oneLine(e.Name))
	if e.Kind == vectors.Append {
		a.printf("%d of %d tokens", e.Cost, e.Budget)
		if e.OverBudget {
			a.printf(", OVER BUDGET")
		}
		a.printf("\n")
	}
	for _, entry := range e.Entries {
		mark := "  in"
		if !entry.Included {
			mark = " out"
		}
		a.printf("%s  %-8s %-8s %-10s %6d  %s\n", mark, entry.What, oneLine(entry.ID), entry.Role, entry.Cost, printable(entry.Reason))
	}
	a.printf("prompt:")
	for _, m := range e.Prompt {
		a.printf(" %s", oneLine(cmp.Or(m.ID, "(made up)")))
	}
	a.printf("\n")
	return nil
}

// A dump is what a prompt is made of, as session context --dump writes it and
// assemble --from reads it.
type dump struct {
	dumpHead
	Frontier []dumpItem
	Live     []dumpLive
}

// dumpHead is what a dump says beside its messages.
type dumpHead struct {
	System string          `json:"system"`
	Tools  []assembly.Tool `json:"tools,omitempty"`
	Turn   string          `json:"turn,omitempty"`
	// Budget is nil if the file has none.
	Budget   *int              `json:"budget,omitempty"`
	Provider assembly.Provider `json:"provider,omitempty"`
	// Mode and FreshTail are as those of assembly.Input.
	Mode      boundary.Mode `json:"mode,omitempty"`
	FreshTail int           `json:"fresh_tail,omitempty"`
	// Older is what stands before the frontier that is here.
	Older *memory.FrontierRest `json:"older,omitempty"`
	// Tokenizer is that of the model, if its tokens are counted exactly.
	Tokenizer string `json:"tokenizer,omitempty"`
}

// dumpItem has exactly one of its fields.
type dumpItem struct {
	Message *dumpMessage    `json:"message,omitempty"`
	Summary *memory.Summary `json:"summary,omitempty"`
}

// dumpLive is a live message. One that does not say whether it is persisted is,
// unless its source or the marks in its text say that it never is, or it stands
// behind all that the frontier has.
type dumpLive struct {
	Role      memory.Role   `json:"role"`
	Source    memory.Source `json:"source,omitempty"`
	Content   dumpContent   `json:"content"`
	Persisted *bool         `json:"persisted,omitempty"`
	// Turn is the dump's if it is nil.
	Turn *string `json:"turn,omitempty"`
}

// dumpMessage is a stored message as session export writes it. It reads those of
// session show --json, too, whose content is a string and whose time has another
// name.
type dumpMessage struct{ memory.Message }

func (m *dumpMessage) UnmarshalJSON(data []byte) error {
	// A field of the struct that holds another comes before that one's.
	type stored memory.Message
	var in struct {
		stored
		Content dumpContent `json:"content"`
		Shown   time.Time   `json:"at"`
	}
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	m.Message = memory.Message(in.stored)
	m.Blocks = in.Content
	if m.At.IsZero() {
		m.At = in.Shown
	}
	if m.Tokens == 0 {
		m.Tokens = memory.Count(m.Blocks)
	}
	return nil
}

// dumpContent is a list of blocks, or a string for one text.
type dumpContent []memory.Block

func (c *dumpContent) UnmarshalJSON(data []byte) error {
	if data[0] == '"' {
		var text string
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
		*c = dumpContent{memory.Text(text)}
		return nil
	}
	var blocks []memory.Block
	if err := json.Unmarshal(data, &blocks); err != nil {
		return fmt.Errorf("content: %w", err)
	}
	*c = blocks
	return nil
}

// words are the texts, one a line.
func (c dumpContent) words() string {
	var texts []string
	for _, b := range c {
		if b.Type == memory.BlockText {
			texts = append(texts, b.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// readDump reads a dump strictly: a field that is misspelt would change the
// prompt and nobody would know.
func readDump(data []byte) (dump, error) {
	var in struct {
		dumpHead
		Frontier []json.RawMessage `json:"frontier"`
		Live     []json.RawMessage `json:"live"`
	}
	if err := strictly(data, &in); err != nil {
		return dump{}, err
	}
	d := dump{dumpHead: in.dumpHead}
	if d.Budget != nil && *d.Budget < 0 {
		return d, fmt.Errorf("budget: %d is no number of tokens", *d.Budget)
	}
	if d.FreshTail < 0 {
		return d, fmt.Errorf("fresh_tail: %d is no number of messages", d.FreshTail)
	}
	if _, err := boundary.ParseMode(string(d.Mode)); err != nil {
		return d, fmt.Errorf("mode: %w", err)
	}
	if !isProvider(d.Provider) {
		return d, fmt.Errorf("provider: %.40q is not one of %s", d.Provider, providerNames)
	}
	for i, raw := range in.Frontier {
		var item dumpItem
		err := strictly(raw, &item)
		if err == nil {
			err = item.check()
		}
		if err != nil {
			return d, fmt.Errorf("frontier[%d]: %w", i, err)
		}
		d.Frontier = append(d.Frontier, item)
	}
	for i, raw := range in.Live {
		var live dumpLive
		err := strictly(raw, &live)
		if err == nil {
			err = checkMessage(live.Role, live.Source, live.Content)
		}
		if err != nil {
			return d, fmt.Errorf("live[%d]: %w", i, err)
		}
		d.Live = append(d.Live, live)
	}
	return d, d.checkOrder()
}

// strictly decodes one value and refuses fields that there are not.
func strictly(data []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

func (i *dumpItem) check() error {
	switch {
	case (i.Message == nil) == (i.Summary == nil):
		return errors.New(`give either "message" or "summary"`)
	case i.Message != nil && !isCount(i.Message.Tokens):
		return fmt.Errorf("tokens: %d is no number of tokens of a message", i.Message.Tokens)
	case i.Message != nil:
		return checkMessage(i.Message.Role, i.Message.Source, i.Message.Blocks)
	case !isCount(i.Summary.Tokens):
		return fmt.Errorf("tokens: %d is no number of tokens of a summary", i.Summary.Tokens)
	case i.Summary.Tokens == 0:
		i.Summary.Tokens = tokens.Estimate(i.Summary.Shown())
	}
	return nil
}

// isCount reports whether n can be what a piece costs: sums of any number of such
// do not overflow.
func isCount(n int) bool { return n >= 0 && n <= math.MaxInt32 }

func checkMessage(role memory.Role, source memory.Source, blocks []memory.Block) error {
	return memory.Draft{Role: role, Source: source, Blocks: blocks, At: time.Unix(0, 0)}.Check()
}

// checkOrder refuses a frontier that has something twice or not in the order of
// the conversation. Messages without a number or an id are where they stand.
func (d dump) checkOrder() error {
	last, at := int64(0), 0
	seen := map[string]int{}
	for i, item := range d.Frontier {
		id := ""
		switch m := item.Message; {
		case m == nil && !item.Summary.ID.IsZero():
			id = "summary " + item.Summary.ID.String()
		case m != nil && !m.ID.IsZero():
			id = "message " + m.ID.String()
		}
		if other, twice := seen[id]; twice && id != "" {
			return fmt.Errorf("frontier[%d] and frontier[%d] are both %s: a frontier has each once", other, i, id)
		}
		seen[id] = i
		if m := item.Message; m != nil && m.Seq != 0 {
			if m.Seq <= last {
				return fmt.Errorf("frontier[%d] has seq %d and frontier[%d] behind it seq %d: a frontier stands in the order of the conversation", at, last, i, m.Seq)
			}
			last, at = m.Seq, i
		}
	}
	return nil
}

// input is what assembly takes.
func (d dump) input(options assembleOptions) (assembly.Input, error) {
	in := assembly.Input{System: d.System, Tools: d.Tools, Turn: d.Turn, FreshTail: d.FreshTail, Mode: d.Mode, Provider: cmp.Or(options.provider, d.Provider)}
	if d.Older != nil {
		in.Older = *d.Older
	}
	if d.Tokenizer != "" {
		counter, err := tokenizer.Named(d.Tokenizer)
		if err != nil {
			return in, fmt.Errorf("tokenizer: %w", err)
		}
		in.Count = counter.Count
	}
	switch {
	case options.budget != nil:
		in.Budget = *options.budget
	case d.Budget != nil:
		in.Budget = *d.Budget
	default:
		return in, errors.New(`it has no budget: add "budget", or give --budget`)
	}
	for _, item := range d.Frontier {
		if item.Message != nil {
			in.Items = append(in.Items, memory.Item{Message: &item.Message.Message})
		} else {
			in.Items = append(in.Items, memory.Item{Summary: item.Summary})
		}
	}
	unsaid := d.unsaid()
	for i, l := range d.Live {
		marked := memory.MarkedSource(l.Role, l.Content.words())
		live := assembly.Live{Role: l.Role, Source: cmp.Or(l.Source, marked), Blocks: l.Content, Turn: d.Turn}
		if l.Turn != nil {
			live.Turn = *l.Turn
		}
		if l.Persisted != nil {
			live.Persisted = *l.Persisted
		} else {
			switch live.Source {
			case memory.SourceInterSession, memory.SourceTaskCompletion, memory.SourceRetry:
			default:
				live.Persisted = marked == memory.SourceUnknown && i < unsaid
			}
		}
		in.Live = append(in.Live, live)
	}
	return in, nil
}

// unsaid returns the index of the first live message behind all that say the same
// as one of the frontier: what is not stored yet stands at the end. If none does,
// that is the first, unless they may be in what the frontier does not show.
func (d dump) unsaid() int {
	key := func(role memory.Role, blocks []memory.Block) string {
		encoded, _, err := memory.Encode(blocks)
		if err != nil {
			return ""
		}
		return string(role) + " " + strings.Join(encoded, ",")
	}
	stored, whole := map[string]bool{}, d.Older == nil
	for _, item := range d.Frontier {
		if item.Message == nil {
			whole = false
			continue
		}
		stored[key(item.Message.Role, item.Message.Blocks)] = true
	}
	for i := len(d.Live) - 1; i >= 0; i-- {
		if stored[key(d.Live[i].Role, d.Live[i].Content)] {
			return i + 1
		}
	}
	if whole {
		return 0
	}
	return len(d.Live)
}

func (a *app) assembleDump(data []byte, options assembleOptions) error {
	d, err := readDump(data)
	if err != nil {
		return err
	}
	in, err := d.input(options)
	if err != nil {
		return err
	}
	prompt, report, err := assembly.Assemble(in)
	if err != nil {
		return err
	}
	if a.asJSON {
		return a.printJSON(struct {
			Prompt assembly.Prompt `json:"prompt"`
			Report assembly.Report `json:"report"`
		}{prompt, report})
	}
	a.printContents(report, time.Local)
	return nil
}

// printDump writes what a prompt was made of, an item a line. Blocks stand in it
// in their own bytes, which an encoder of the whole would reformat: what a tool was
// called with goes into the prompt byte for byte.
func (a *app) printDump(in assembly.Input, tokenizer string) error {
	head := dumpHead{
		System: in.System, Tools: in.Tools, Turn: in.Turn, Budget: &in.Budget, Provider: in.Provider, Mode: in.Mode, FreshTail: in.FreshTail, Tokenizer: tokenizer,
	}
	if in.Older.Items > 0 {
		head.Older = &in.Older
	}
	encoded, err := compact(head)
	if err != nil {
		return err
	}
	a.printf("%s,\n\"frontier\":[", bytes.TrimSuffix(encoded, []byte("}")))
	for i, item := range in.Items {
		kind, value := "summary", []byte(nil)
		if item.Message != nil {
			kind = "message"
			value, err = exact(*item.Message)
		} else {
			value, err = compact(item.Summary)
		}
		if err != nil {
			return err
		}
		between := ","
		if i == 0 {
			between = ""
		}
		a.printf("%s\n{%q:%s}", between, kind, value)
	}
	a.printf("\n],\n\"live\":[]}\n")
	return nil
}

// exact writes a message with its blocks in their own bytes.
func exact(m memory.Message) ([]byte, error) {
	blocks, _, err := memory.Encode(m.Blocks)
	if err != nil {
		return nil, err
	}
	rest, err := compact(struct {
		memory.Message
		Content *struct{} `json:"content,omitempty"` // in the place of the message's
	}{Message: m})
	if err != nil {
		return nil, err
	}
	return append(bytes.TrimSuffix(rest, []byte("}")), `,"content":[`+strings.Join(blocks, ",")+`]}`...), nil
}

func compact(v any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
