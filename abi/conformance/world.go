package conformance

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
)

// World is what a hand of one sample case can reach: files, pages, values and a
// model that answer the same each time, with the errors that they give. A part
// that is absent is not granted.
//
// Its methods have the form of the ports of a sandbox. Ports makes one that
// begins afresh; a World itself is never changed.
type World struct {
	Files *FilesWorld `json:"files"`
	HTTP  []Exchange  `json:"http"`
	KV    *KVWorld    `json:"kv"`
	LLM   []Answer    `json:"llm"`
}

// FilesWorld is the root "docs".
type FilesWorld struct {
	// Page is the most entries of one page; 0 means as many as are asked for.
	Page    int    `json:"page"`
	Entries []File `json:"entries"`
}

// File is one file or directory; directories above it exist.
type File struct {
	// Path is relative to the root.
	Path string `json:"path"`
	// Type is "file", "dir" or "other"; "" means file.
	Type string `json:"type"`
	Text Text   `json:"text"`
	// ModTime is what the host says, down to its spelling; zero means
	// 2026-03-01T00:00:00Z.
	ModTime time.Time `json:"mtime"`
	// Error is the kind with which list and read of this path fail.
	Error abi.Kind `json:"error"`
	// Copies, if not 0, makes so many files, at Path with "0001" and so on
	// behind it.
	Copies int `json:"copies"`
}

// Exchange is a request that is expected and what comes of it.
type Exchange struct {
	Method string `json:"method"`
	URL    string `json:"url"`
	// Sent are the request's headers, SentBody its body and TimeoutMillis the
	// time it is given: all of them are compared.
	Sent          [][2]string `json:"sent"`
	SentBody      Text        `json:"sent_body"`
	TimeoutMillis int         `json:"timeout_ms"`

	Status    int         `json:"status"`
	Header    [][2]string `json:"header"`
	Body      Text        `json:"body"`
	Truncated bool        `json:"truncated"`
	Error     abi.Kind    `json:"error"`
}

// KVWorld is what is kept at the beginning.
type KVWorld struct {
	// Page is the most keys of one page; 0 means as many as are asked for.
	Page   int             `json:"page"`
	Values map[string]Text `json:"values"`
	// Errors are kinds by "get KEY", "set KEY", "delete KEY" and "list PREFIX".
	Errors map[string]abi.Kind `json:"errors"`
}

// Answer is a prompt that is expected and what the model says.
type Answer struct {
	System string `json:"system"`
	Prompt Text   `json:"prompt"`
	// MaxOutputTokens is what the model may spend, as the host tells it.
	MaxOutputTokens int `json:"max_output_tokens"`

	Text         Text     `json:"text"`
	InputTokens  int      `json:"input_tokens"`
	OutputTokens int      `json:"output_tokens"`
	Error        abi.Kind `json:"error"`
}

// Ports serve one world to one query. Each is nil where the world does not have
// it. They are safe for concurrent use.
type Ports struct {
	Files *FilesPort
	HTTP  *HTTPPort
	KV    *KVPort
	LLM   *LLMPort

	faults faults
}

// faults are the requests that the world does not expect.
type faults struct {
	mu  sync.Mutex
	all []string
}

func (f *faults) addf(format string, args ...any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, fmt.Sprintf(format, args...))
	return abi.KindUnavailable
}

// Ports returns ports that begin with w. A nil World has none.
func (w *World) Ports() *Ports {
	p := &Ports{}
	if w == nil {
		return p
	}
	if w.Files != nil {
		p.Files = &FilesPort{world: w.Files, all: w.Files.tree()}
	}
	if w.HTTP != nil {
		p.HTTP = &HTTPPort{left: slices.Clone(w.HTTP), faults: &p.faults}
	}
	if w.KV != nil {
		p.KV = &KVPort{world: w.KV, values: map[string][]byte{}}
		for key, value := range w.KV.Values {
			p.KV.values[key] = []byte(value)
		}
	}
	if w.LLM != nil {
		p.LLM = &LLMPort{left: slices.Clone(w.LLM), faults: &p.faults}
	}
	return p
}

// Faults tell of requests that the world does not expect, and of those that it
// does and that did not come.
func (p *Ports) Faults() []string {
	all := slices.Clone(p.faults.all)
	if p.HTTP != nil {
		for _, e := range p.HTTP.left {
			all = append(all, fmt.Sprintf("%s %s was not requested", e.Method, e.URL))
		}
	}
	if p.LLM != nil {
		for _, a := range p.LLM.left {
			all = append(all, fmt.Sprintf("the model was not asked %.80q", a.Prompt))
		}
	}
	return all
}

// FilesPort serves a FilesWorld.
type FilesPort struct {
	world *FilesWorld
	all   map[string]File
}

const sampleRoot = "docs"

// tree adds the directories that files stand in.
func (w *FilesWorld) tree() map[string]File {
	all := map[string]File{".": {Path: ".", Type: "dir"}}
	add := func(f File) {
		if f.Type == "" {
			f.Type = "file"
		}
		for dir := path.Dir(f.Path); dir != "."; dir = path.Dir(dir) {
			if _, ok := all[dir]; !ok {
				all[dir] = File{Path: dir, Type: "dir"}
			}
		}
		all[f.Path] = f
	}
	for _, f := range w.Entries {
		if f.Copies == 0 {
			add(f)
			continue
		}
		name := f.Path
		for i := range f.Copies {
			f.Path = fmt.Sprintf("%s%04d", name, i+1)
			add(f)
		}
	}
	return all
}

func (f File) entry() abi.FileEntry {
	e := abi.FileEntry{Name: path.Base(f.Path), Type: f.Type, ModTime: f.ModTime}
	if e.ModTime.IsZero() {
		e.ModTime = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	}
	if f.Type == "file" {
		e.Size = int64(len(f.Text))
	}
	return e
}

// find answers for a path as ABI.md §2.3 has it.
func (p *FilesPort) find(root, name string) (File, error) {
	switch {
	case root != sampleRoot:
		return File{}, abi.KindNotGranted
	case name == "":
		name = "."
	case name != "." && (path.Clean(name) != name || strings.HasPrefix(name, "/") || name == ".." || strings.HasPrefix(name, "../") || strings.ContainsAny(name, "\x00\\")):
		return File{}, abi.KindDenied
	}
	f, ok := p.all[name]
	switch {
	case !ok:
		return File{}, abi.KindNotFound
	case f.Error != "":
		return File{}, f.Error
	}
	return f, nil
}

// List is a sandbox's.
func (p *FilesPort) List(_ context.Context, r abi.FilesListRequest) (abi.FilesListResult, error) {
	f, err := p.find(r.Root, r.Path)
	if err != nil {
		return abi.FilesListResult{}, err
	}
	result := abi.FilesListResult{Self: f.entry(), Entries: []abi.FileEntry{}}
	if f.Type != "dir" {
		return result, nil
	}
	for _, name := range slices.Sorted(maps.Keys(p.all)) {
		if name != "." && path.Dir(name) == f.Path && path.Base(name) > r.After {
			result.Entries = append(result.Entries, p.all[name].entry())
		}
	}
	result.Entries, result.More = page(result.Entries, r.Limit, p.world.Page)
	return result, nil
}

// page cuts a list to what was asked for and to what the world gives.
func page[T any](all []T, asked, most int) ([]T, bool) {
	if most > 0 {
		asked = min(asked, most)
	}
	if len(all) <= asked {
		return all, false
	}
	return all[:asked], true
}

// Read is a sandbox's.
func (p *FilesPort) Read(_ context.Context, r abi.FilesReadRequest) ([]byte, error) {
	f, err := p.find(r.Root, r.Path)
	switch {
	case err != nil:
		return nil, err
	case f.Type != "file":
		return nil, abi.KindDenied
	}
	from := min(r.Offset, int64(len(f.Text)))
	return []byte(f.Text[from:min(from+int64(r.Length), int64(len(f.Text)))]), nil
}

// HTTPPort serves exchanges in their order.
type HTTPPort struct {
	mu     sync.Mutex
	left   []Exchange
	faults *faults
}

// Fetch is a sandbox's.
func (p *HTTPPort) Fetch(_ context.Context, r abi.HTTPFetchRequest, _ abi.HTTPBudget) (abi.HTTPFetchResult, []byte, int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fault := func(format string, args ...any) (abi.HTTPFetchResult, []byte, int, error) {
		return abi.HTTPFetchResult{}, nil, 0, p.faults.addf(format, args...)
	}
	if len(p.left) == 0 {
		return fault("%s %s is requested, and nothing more is expected", r.Method, r.URL)
	}
	e := p.left[0]
	p.left = p.left[1:]
	switch {
	case r.Method != e.Method || r.URL != e.URL:
		return fault("%s %s is requested, expected is %s %s", r.Method, r.URL, e.Method, e.URL)
	case !sameHeader(r.Header, e.Sent):
		return fault("%s %s is sent with the headers %q, expected are %q", r.Method, r.URL, r.Header, e.Sent)
	case string(r.Body) != string(e.SentBody):
		return fault("%s %s is sent with the body %.80q, expected is %.80q", r.Method, r.URL, r.Body, e.SentBody)
	case r.TimeoutMillis != e.TimeoutMillis:
		return fault("%s %s is sent with a timeout of %d ms, expected are %d", r.Method, r.URL, r.TimeoutMillis, e.TimeoutMillis)
	case e.Error != "":
		return abi.HTTPFetchResult{}, nil, 1, e.Error
	}
	return abi.HTTPFetchResult{Status: e.Status, URL: e.URL, Header: append([][2]string{}, e.Header...), Truncated: e.Truncated}, []byte(e.Body), 1, nil
}

// sameHeader compares names in letters of any case.
func sameHeader(a, b [][2]string) bool {
	return slices.EqualFunc(a, b, func(a, b [2]string) bool { return strings.EqualFold(a[0], b[0]) && a[1] == b[1] })
}

// KVPort keeps values.
type KVPort struct {
	world *KVWorld
	mu    sync.Mutex
	// values is guarded by mu.
	values map[string][]byte
}

// Get is a sandbox's.
func (p *KVPort) Get(_ context.Context, r abi.KVGetRequest) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if kind := p.world.Errors["get "+r.Key]; kind != "" {
		return nil, kind
	}
	value, ok := p.values[r.Key]
	if !ok {
		return nil, abi.KindNotFound
	}
	return bytes.Clone(value), nil
}

// Set is a sandbox's.
func (p *KVPort) Set(_ context.Context, r abi.KVSetRequest) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if kind := p.world.Errors["set "+r.Key]; kind != "" {
		return kind
	}
	p.values[r.Key] = bytes.Clone(r.Value)
	return nil
}

// Delete is a sandbox's.
func (p *KVPort) Delete(_ context.Context, r abi.KVDeleteRequest) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if kind := p.world.Errors["delete "+r.Key]; kind != "" {
		return kind
	}
	delete(p.values, r.Key)
	return nil
}

// List is a sandbox's.
func (p *KVPort) List(_ context.Context, r abi.KVListRequest) (abi.KVListResult, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if kind := p.world.Errors["list "+r.Prefix]; kind != "" {
		return abi.KVListResult{}, kind
	}
	keys := []string{}
	for _, key := range slices.Sorted(maps.Keys(p.values)) {
		if strings.HasPrefix(key, r.Prefix) && key > r.After {
			keys = append(keys, key)
		}
	}
	keys, more := page(keys, r.Limit, p.world.Page)
	return abi.KVListResult{Keys: keys, More: more}, nil
}

// kept returns what is kept now.
func (p *KVPort) kept() map[string]Text {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[string]Text{}
	for key, value := range p.values {
		all[key] = Text(value)
	}
	return all
}

// LLMPort serves answers in their order.
type LLMPort struct {
	mu     sync.Mutex
	left   []Answer
	faults *faults
}

// Complete is a sandbox's.
func (p *LLMPort) Complete(_ context.Context, r abi.LLMCompleteRequest) (abi.LLMCompleteResult, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.left) == 0 {
		return abi.LLMCompleteResult{}, p.faults.addf("the model is asked %.80q, and nothing more is expected", r.Prompt)
	}
	a := p.left[0]
	p.left = p.left[1:]
	if r.System != a.System || r.Prompt != string(a.Prompt) || r.MaxOutputTokens != a.MaxOutputTokens {
		return abi.LLMCompleteResult{}, p.faults.addf("the model is asked %.80q in at most %d tokens with the system text %.80q, expected is %.80q, %d, %.80q",
			r.Prompt, r.MaxOutputTokens, r.System, a.Prompt, a.MaxOutputTokens, a.System)
	}
	if a.Error != "" {
		return abi.LLMCompleteResult{}, a.Error
	}
	return abi.LLMCompleteResult{Text: string(a.Text), InputTokens: a.InputTokens, OutputTokens: a.OutputTokens}, nil
}
