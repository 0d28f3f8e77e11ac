package conformance

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"strings"
	"time"
)

// SampleCase is one question to the sample hand and what has to come of it.
type SampleCase struct {
	Name string `json:"name"`
	// Prompt is the query's prompt. Query has fields that differ from those of
	// all cases; null takes one away. Raw, if not "", is the whole query as the
	// hand gets it.
	Prompt Text           `json:"prompt"`
	Query  map[string]any `json:"query"`
	Raw    Text           `json:"raw"`
	World  *World         `json:"world"`
	// Reply is what the hand answers, or Fail what it fails with.
	Reply Text  `json:"reply"`
	Fail  *Text `json:"fail"`
	// Log holds the lines of the log, "LEVEL: TEXT".
	Log []string `json:"log"`
	// Kept is what kv holds afterwards; nil means what it held before.
	Kept map[string]Text `json:"kept"`

	encoded []byte
}

// Encoded returns the query as the hand gets it.
func (c *SampleCase) Encoded() []byte { return c.encoded }

// Sample holds the cases of the sample hand, which SAMPLE.md describes.
type Sample struct {
	Cases []SampleCase
}

// ReadSample reads sample.json.
func ReadSample(files fs.FS) (Sample, error) {
	var document struct {
		About string         `json:"about"`
		Query map[string]any `json:"query"`
		Cases []SampleCase   `json:"cases"`
	}
	const name = "sample.json"
	if err := readVectors(files, name, &document); err != nil {
		return Sample{}, err
	}
	if len(document.Cases) == 0 {
		return Sample{}, fmt.Errorf("%w: %s has no cases", ErrNoVectors, name)
	}
	seen := map[string]bool{}
	for i := range document.Cases {
		c := &document.Cases[i]
		switch {
		case c.Name == "" || seen[c.Name]:
			return Sample{}, fmt.Errorf("read vectors: %s: case %d, %q, needs a name of its own", name, i, c.Name)
		case c.Raw != "" && (c.Prompt != "" || c.Query != nil):
			return Sample{}, fmt.Errorf("read vectors: %s: case %q has raw beside prompt or query", name, c.Name)
		case c.Fail != nil && c.Reply != "":
			return Sample{}, fmt.Errorf("read vectors: %s: case %q has reply and fail", name, c.Name)
		}
		seen[c.Name] = true
		if c.encoded = []byte(c.Raw); c.Raw == "" {
			query := overlay(document.Query, c.Query)
			query["prompt"] = string(c.Prompt)
			var err error
			if c.encoded, err = json.Marshal(query); err != nil {
				return Sample{}, fmt.Errorf("read vectors: %s: case %q: %w", name, c.Name, err)
			}
		}
	}
	return Sample{document.Cases}, nil
}

// sampleNow is what the clock of the box says while a sample is checked: not what
// the queries say, which a hand is to use.
var sampleNow = time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)

// Check asks a sample hand every case, from its image and from its start, and returns a
// row for each. The error is the runner's own.
func (s Sample) Check(ctx context.Context, run Runner) (Report, error) {
	var report Report
	for _, c := range s.Cases {
		row := Check{Name: c.Name}
		for _, fromStart := range []bool{false, true} {
			ports := c.World.Ports()
			outcome, err := run(ctx, Ask{Query: c.encoded, Now: sampleNow, Seed: 1, FromStart: fromStart, Ports: ports})
			if err != nil {
				return report, fmt.Errorf("case %q: %w", c.Name, err)
			}
			faults := append(c.faults(outcome, ports), ports.Faults()...)
			if !fromStart {
				row.Faults, row.Cost = faults, &outcome.Cost
			} else if len(row.Faults) == 0 {
				for _, fault := range faults {
					row.Faults = append(row.Faults, "without an image, "+fault)
				}
			}
		}
		report.Checks = append(report.Checks, row)
	}
	return report, nil
}

// faults tells what is not as the case has it.
func (c *SampleCase) faults(o Outcome, ports *Ports) (faults []string) {
	addf := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	switch {
	case c.Fail != nil && o.Kind == "":
		addf("it answers %s where it has to fail with %s", shown(o.Reply), shown(string(*c.Fail)))
	case c.Fail != nil && o.Kind != kindFailed:
		addf("it ends as %s (%s) where it has to fail with %s", string(o.Kind), o.Text, shown(string(*c.Fail)))
	case c.Fail != nil && o.SaidDigest != sha256.Sum256([]byte(*c.Fail)):
		addf("it fails with %s, not with %s", shown(o.Said), shown(string(*c.Fail)))
	case c.Fail == nil && o.Kind != "":
		addf("it ends as %s (%s; the hand says %s) where it has to answer %s", string(o.Kind), o.Text, shown(o.Said), shown(string(c.Reply)))
	case c.Fail == nil && (o.ReplyDigest != sha256.Sum256([]byte(c.Reply)) || o.ReplyBytes != len(c.Reply)):
		addf("it answers %s, %d bytes, not %s, %d bytes%s", shown(o.Reply), o.ReplyBytes, shown(string(c.Reply)), len(c.Reply), firstDifference(o.Reply, string(c.Reply)))
	}
	log := ""
	for _, line := range c.Log {
		log += line + "\n"
	}
	if o.LogDigest != sha256.Sum256([]byte(log)) {
		addf("it logs %s, not %s", shown(o.Log), shown(log))
	}
	if ports.KV != nil {
		want := c.Kept
		if want == nil {
			want = c.World.KV.Values
		}
		if kept := ports.KV.kept(); !maps.Equal(kept, want) {
			addf("it leaves %.300q in kv, not %.300q", kept, want)
		}
	}
	return faults
}

// shown is a text in an error.
func shown(text string) string {
	const most = 300
	if len(text) > most {
		return fmt.Sprintf("%.*q… (%d bytes)", most, text, len(text))
	}
	return fmt.Sprintf("%q", text)
}

// firstDifference says where two long texts part.
func firstDifference(have, want string) string {
	if len(have) < 100 && len(want) < 100 {
		return ""
	}
	haveLines, wantLines := strings.Split(have, "\n"), strings.Split(want, "\n")
	for i := range min(len(haveLines), len(wantLines)) {
		if haveLines[i] != wantLines[i] {
			return fmt.Sprintf("; line %d is %s, not %s", i+1, shown(haveLines[i]), shown(wantLines[i]))
		}
	}
	return ""
}
