package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/abi/manifest"
)

// Hand is a module under test, as the kit needs it.
type Hand struct {
	// Refusal says why the module is none that could be admitted, with all
	// permissions granted; nil if it is one.
	Refusal error
	// Imports are the import modules that it names, of which some may come twice.
	Imports []string
	// Manifest is the manifest section; nil if there is none.
	Manifest []byte
	// Values are the operator's, by the manifest's keys.
	Values map[string]any
	// Load admits the module with what is granted and returns what asks it, and
	// what frees it. Its error says why it is refused.
	Load func(ctx context.Context) (run Runner, free func() error, err error)
}

// Kit is the published queries.
type Kit struct {
	base    map[string]any
	queries []query
}

// query is one of them.
type query struct {
	Name   string         `json:"name"`
	Why    string         `json:"why"`
	Prompt Text           `json:"prompt"`
	Query  map[string]any `json:"query"`
	Raw    string         `json:"raw"`
	SameAs string         `json:"same_as"`
}

// ReadKit reads queries.json.
func ReadKit(files fs.FS) (Kit, error) {
	var document struct {
		About   string         `json:"about"`
		Query   map[string]any `json:"query"`
		Queries []query        `json:"queries"`
	}
	const name = "queries.json"
	if err := readVectors(files, name, &document); err != nil {
		return Kit{}, err
	}
	if len(document.Queries) == 0 {
		return Kit{}, fmt.Errorf("%w: %s has no queries", ErrNoVectors, name)
	}
	var seen []string
	for _, q := range document.Queries {
		switch {
		case q.Name == "" || slices.Contains(seen, q.Name):
			return Kit{}, fmt.Errorf("read vectors: %s: query %q needs a name of its own", name, q.Name)
		case q.SameAs != "" && !slices.Contains(seen, q.SameAs):
			return Kit{}, fmt.Errorf("read vectors: %s: query %q has to be answered as %q, which does not stand before it", name, q.Name, q.SameAs)
		}
		seen = append(seen, q.Name)
		if _, err := q.encode(document.Query, map[string]any{}); err != nil {
			return Kit{}, fmt.Errorf("read vectors: %s: query %q: %w", name, q.Name, err)
		}
	}
	return Kit{document.Query, document.Queries}, nil
}

// encode returns the query as the hand gets it.
func (q query) encode(base, config map[string]any) ([]byte, error) {
	if q.Raw != "" {
		values, err := json.Marshal(config)
		if err != nil {
			return nil, err
		}
		encoded := []byte(strings.ReplaceAll(q.Raw, "%config%", string(values)))
		if !json.Valid(encoded) {
			return nil, errors.New("raw is not JSON")
		}
		return encoded, nil
	}
	whole := overlay(base, q.Query)
	if q.Prompt != "" {
		whole["prompt"] = string(q.Prompt)
	}
	if len(config) > 0 {
		whole["config"] = config
	}
	if prompt, _ := whole["prompt"].(string); len(prompt) > abi.MaxPromptBytes {
		return nil, fmt.Errorf("a prompt of %d bytes, more than %d", len(prompt), abi.MaxPromptBytes)
	}
	return json.Marshal(whole)
}

// The names of the checks that ask nothing; those of the others are the queries'.
const (
	// CheckModule is whether the module is one that could be admitted.
	CheckModule = "module"
	// CheckManifest is whether the manifest can be read.
	CheckManifest = "manifest"
	// CheckImports is whether the manifest asks for what the module imports.
	CheckImports = "imports"
	// CheckConfig is whether the operator's values are those that the manifest
	// declares.
	CheckConfig = "config"
	// CheckLoad is whether it is loaded with what is granted.
	CheckLoad = "load"
)

// Check checks one hand and returns a row for each thing that was checked. A hand
// that cannot be loaded is asked nothing. The error is the runner's own.
func (k Kit) Check(ctx context.Context, h Hand) (Report, error) {
	if len(k.queries) == 0 {
		return Report{}, ErrNoVectors
	}
	var report Report
	add := func(c Check) bool {
		report.Checks = append(report.Checks, c)
		return c.Passed()
	}
	if !add(check(CheckModule, h.Refusal)) {
		return report, nil
	}
	m, err := manifestOf(h)
	row := check(CheckManifest, err)
	if h.Manifest == nil {
		row.Note = "there is none: a hand without permissions, which is given a name when it is installed"
	}
	if !add(row) {
		return report, nil
	}
	config, err := m.Configure(h.Values)
	agreed, configured := add(Check{Name: CheckImports, Faults: disagreements(m, h.Imports)}), add(check(CheckConfig, err))
	if !agreed || !configured {
		return report, nil
	}
	run, free, err := h.Load(ctx)
	if ctx.Err() != nil {
		return report, ctx.Err()
	}
	if !add(check(CheckLoad, err)) {
		return report, nil
	}
	err = k.ask(ctx, run, config, add)
	return report, errors.Join(err, free())
}

// check is a row with at most one fault; what has a kind begins with it.
func check(name string, err error) Check {
	c := Check{Name: name}
	if err != nil {
		text := err.Error()
		if kind := abi.KindOf(err); kind != "" {
			text = string(kind) + ": " + text
		}
		c.Faults = []string{text}
	}
	return c
}

func manifestOf(h Hand) (manifest.Manifest, error) {
	if h.Manifest == nil {
		return manifest.Manifest{}, nil
	}
	return manifest.Parse(h.Manifest)
}

// disagreements are what the module imports and its manifest does not ask for, and
// the other way round.
func disagreements(m manifest.Manifest, imports []string) (faults []string) {
	for _, c := range abi.Capabilities() {
		_, asked := m.Permission(c)
		switch imported := slices.Contains(imports, c.Module()); {
		case imported && !asked:
			faults = append(faults, fmt.Sprintf("the module imports %s, and its manifest does not ask for %q: add a [[permissions]] entry with the reason", c.Module(), c))
		case asked && !imported:
			faults = append(faults, fmt.Sprintf("the manifest asks for %q, and the module does not import %s: take the entry out", c, c.Module()))
		}
	}
	return faults
}

// The clock and the chance of the box, and others: neither is to show in an answer.
var (
	fixedNow   = time.Date(2026, 3, 24, 8, 0, 0, 0, time.UTC)
	anotherNow = time.Date(2031, 11, 5, 21, 43, 11, 7, time.UTC)
)

const (
	fixedSeed   uint64 = 1
	anotherSeed uint64 = 7919
)

// ask asks every query, each three times, and more often what answers differently.
func (k Kit) ask(ctx context.Context, run Runner, config map[string]any, add func(Check) bool) error {
	before := map[string]Outcome{}
	for n, q := range k.queries {
		encoded, err := q.encode(k.base, config)
		if err != nil {
			return err
		}
		// What has few values is drawn the same now and then: not for all queries.
		anotherSeed := anotherSeed + uint64(n)
		at := func(now time.Time, seed uint64, fromStart bool) (Outcome, error) {
			o, err := run(ctx, Ask{Query: encoded, Now: now, Seed: seed, FromStart: fromStart})
			if err != nil {
				return o, fmt.Errorf("query %s: %w", q.Name, err)
			}
			return o, nil
		}
		first, err := at(fixedNow, fixedSeed, false)
		if err != nil {
			return err
		}
		row := Check{Name: q.Name, Faults: faultsOf(first, q.limit(k.base)), Note: noteOf(first), Cost: &first.Cost}
		if answersOrFails(first) {
			again, err := at(fixedNow, fixedSeed, false)
			if err != nil {
				return err
			}
			row.Cost = &again.Cost
			// What an image holds was drawn before the query, in a world of its own: only
			// from its start does a guest draw all that it draws in another.
			elsewhere, err := at(anotherNow, anotherSeed, true)
			if err != nil {
				return err
			}
			switch {
			case !same(first, again):
				row.Faults = append(row.Faults, "asked twice with the same clock and the same random numbers, it answers "+differently(first, again))
			case !same(first, elsewhere):
				fault, err := whyElsewhere(first, elsewhere, anotherSeed, at)
				if err != nil {
					return err
				}
				row.Faults = append(row.Faults, fault)
			}
		}
		if model, ok := before[q.SameAs]; ok && !same(first, model) {
			row.Faults = append(row.Faults, fmt.Sprintf("to the same question as %s it answers %s: it has to ignore unknown fields, and to read JSON in any spelling", q.SameAs, differently(model, first)))
		}
		before[q.Name] = first
		add(row)
	}
	return nil
}

// whyElsewhere says why a hand answers another thing from its start, with another clock
// and other random numbers, than at first: for what it draws in the query, for what it
// drew before, or for what else it did before.
func whyElsewhere(first, elsewhere Outcome, anotherSeed uint64, at func(now time.Time, seed uint64, fromStart bool) (Outcome, error)) (string, error) {
	drawn, err := at(anotherNow, anotherSeed, false)
	if err != nil {
		return "", err
	}
	if !same(first, drawn) {
		reshuffled, err := at(fixedNow, anotherSeed, false)
		if err != nil {
			return "", err
		}
		if same(first, reshuffled) {
			return "with another clock in the box, it answers " + differently(first, drawn) + ": the time to answer with is the query's now", nil
		}
		return "with other random numbers, it answers " + differently(first, reshuffled) + ": the order of a map is such a number too", nil
	}
	started, err := at(fixedNow, fixedSeed, true)
	if err != nil {
		return "", err
	}
	if same(started, elsewhere) {
		return fmt.Sprintf("beginning from its image it answers %s, and %s where all runs in the query: an answer may not depend on what "+
			"_initialize drew or %s left: do early only what the answer does anyway", inWords(first), inWords(started), abi.ExportWarm), nil
	}
	reshuffled, err := at(fixedNow, anotherSeed, true)
	if err != nil {
		return "", err
	}
	if same(started, reshuffled) {
		return "with another clock before the query, it answers " + differently(started, elsewhere) + ": the time to answer with is the query's now, " +
			"and what a clock said before may be older than an image", nil
	}
	return "with other random numbers before the query, it answers " + differently(started, reshuffled) + ": what is drawn before is the same in all queries " +
		"of an image, and no answer may depend on it; the order of a map is such a number too", nil
}

// limit is the query's max_output_tokens.
func (q query) limit(base map[string]any) any {
	return overlay(base, q.Query)["max_output_tokens"]
}

// answersOrFails leaves out what ends in the middle of something.
func answersOrFails(o Outcome) bool { return o.Kind == "" || o.Kind == kindFailed }

func same(a, b Outcome) bool {
	return a.Kind == b.Kind && a.ReplyDigest == b.ReplyDigest && a.SaidDigest == b.SaidDigest
}

func differently(a, b Outcome) string {
	return fmt.Sprintf("%s and then %s", inWords(a), inWords(b))
}

func inWords(o Outcome) string {
	switch o.Kind {
	case "":
		return shown(o.Reply)
	case kindFailed:
		return "with the failure " + shown(o.Said)
	}
	return "not, but ends as " + string(o.Kind)
}

// faultsOf holds one outcome against ABI.md.
func faultsOf(o Outcome, limit any) (faults []string) {
	if !answersOrFails(o) {
		faults = append(faults, fmt.Sprintf("%s: %s", string(o.Kind), o.Text))
	}
	if o.Kind == kindFailed && strings.TrimSpace(o.Said) == "" {
		faults = append(faults, fmt.Sprintf("%s: it fails without a message: say in a sentence what the operator can do", string(o.Kind)))
	}
	if o.InvalidUTF8 > 0 {
		faults = append(faults, fmt.Sprintf("%s: the reply has %d bytes that are not UTF-8", string(abi.KindBadReply), o.InvalidUTF8))
	}
	if o.OverBytes > 0 {
		faults = append(faults, fmt.Sprintf("%s: the reply is %d bytes, of which the last %d are over the host's limit", string(abi.KindTooLarge), o.ReplyBytes, o.OverBytes))
	}
	if o.OverTokens > 0 {
		faults = append(faults, fmt.Sprintf("the reply costs more than max_output_tokens = %v, and the host has to cut it: leave out what matters least", limit))
	}
	return faults
}

func noteOf(o Outcome) string {
	switch {
	case o.Kind == kindFailed:
		return "fails: " + o.Said
	case o.Kind == "" && o.ReplyBytes == 0:
		return "nothing to say"
	}
	return ""
}
