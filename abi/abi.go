// Package abi is the contract between a hand and its host: the names of
// exports and imports, the query, the capability requests and results, the
// kinds of error, and the limits. ABI.md beside this file is the same contract
// byte by byte, for authors who write in another language.
//
// It imports only the standard library, so that it costs a guest nothing, and
// exports nothing that a caller could change.
package abi

import "time"

// Version is the major version of the contract that this package describes.
// It stands in the name of the entry export.
const Version = 1

// Exports of a hand.
const (
	// ExportQuery is the entry of the reactor profile, of type () -> i32.
	// Zero means that the query was answered; anything else is a failure.
	ExportQuery = "glovebox_query_v1"
	// ExportQueryPrefix is what the entry's name has in every version.
	ExportQueryPrefix = "glovebox_query_v"
	// ExportInitialize is called once before ExportQuery, if exported.
	ExportInitialize = "_initialize"
	// ExportWarm, of type () -> (), may be called once after ExportInitialize and
	// before a host keeps the memory as the image that queries begin from. There
	// is no query then, and no module but WASI's answers. A hand that has it must
	// answer the same where it is never called; a host may ignore it.
	ExportWarm = "glovebox_warm_v1"
	// ExportStart is the entry of the command profile, of type () -> ().
	ExportStart = "_start"
	// ExportMemory is the memory that (ptr, len) pairs point into.
	ExportMemory = "memory"
)

// Import modules. Each capability is a module of its own, so that the import
// section alone tells what a hand can ever reach.
const (
	ModuleCore  = "glovebox"
	ModuleHTTP  = "glovebox_http"
	ModuleFiles = "glovebox_files"
	ModuleKV    = "glovebox_kv"
	ModuleLLM   = "glovebox_llm"
	ModuleWASI  = "wasi_snapshot_preview1"
)

// ManifestSection is the name of the custom section that carries the manifest.
const ManifestSection = "glovebox.manifest"

// Capability names something that a hand can be granted. The zero value is not
// a capability.
type Capability string

// The capabilities of version 1.
const (
	CapabilityHTTP  Capability = "http"
	CapabilityFiles Capability = "files"
	CapabilityKV    Capability = "kv"
	CapabilityLLM   Capability = "llm"
)

// AnyHost, alone among the hosts of a manifest, asks for whatever the operator
// allows: an author does not know where the operator's feeds or servers are.
const AnyHost = "*"

// Capabilities returns every capability, in the order of the specification.
func Capabilities() []Capability {
	return []Capability{CapabilityHTTP, CapabilityFiles, CapabilityKV, CapabilityLLM}
}

// Module returns the import module that asks for c, or "" if c is not a
// capability.
func (c Capability) Module() string {
	switch c {
	case CapabilityHTTP:
		return ModuleHTTP
	case CapabilityFiles:
		return ModuleFiles
	case CapabilityKV:
		return ModuleKV
	case CapabilityLLM:
		return ModuleLLM
	}
	return ""
}

// CapabilityOf returns the capability that the import module asks for. It
// reports false for the modules that every hand may import and for unknown
// ones.
func CapabilityOf(module string) (Capability, bool) {
	for _, c := range Capabilities() {
		if c.Module() == module {
			return c, true
		}
	}
	return "", false
}

// Fixed bounds of the contract.
const (
	MaxPromptBytes  = 16 << 10
	MaxRequestBytes = 1 << 20
	// MaxFailureBytes is what is kept of the text of a failure.
	MaxFailureBytes = 16 << 10
	// MaxPageEntries bounds one page of a listing of files or keys.
	MaxPageEntries = 1000
	// MaxKeyBytes bounds the key of a kept value.
	MaxKeyBytes = 512
)

// Query is what a hand is asked. It is encoded as one JSON object in UTF-8; a
// hand ignores the fields that it does not know. There is no session, no
// message and no user name in it, and there never will be.
type Query struct {
	// Prompt is the operator's question, at most MaxPromptBytes.
	Prompt string `json:"prompt"`
	// From and To bound the window asked about: From ≤ t < To.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Now is the host's time of asking. A guest's own clock may differ.
	Now time.Time `json:"now"`
	// Timezone is the IANA name of the zone to show times in.
	Timezone string `json:"timezone"`
	// MaxOutputTokens is the size that the reply should keep; the host cuts
	// what is longer. Package tokens says how it counts.
	MaxOutputTokens int `json:"max_output_tokens"`
	// Config holds the operator's values, checked against the manifest.
	Config map[string]any `json:"config,omitempty"`
	// Subject is opaque and stable for one hand and one user.
	Subject string `json:"subject,omitempty"`
}

// Level is the severity of a log line.
type Level int32

// The levels of the log call; other values count as LevelInfo.
const (
	LevelDebug Level = 0
	LevelInfo  Level = 1
	LevelWarn  Level = 2
	LevelError Level = 3
)

func (l Level) String() string {
	switch l {
	case LevelDebug:
		return "debug"
	case LevelWarn:
		return "warn"
	case LevelError:
		return "error"
	}
	return "info"
}

// FilesListRequest asks about one path of a granted root.
type FilesListRequest struct {
	// Root is the name under which the operator granted a directory.
	Root string `json:"root"`
	// Path is slash-separated and relative to the root; "" and "." are the
	// root itself.
	Path string `json:"path"`
	// After is the name of the last entry already seen; "" starts over.
	After string `json:"after,omitempty"`
	// Limit bounds the entries of one page, 1 to 1,000; 0 means 1,000.
	Limit int `json:"limit,omitempty"`
}

// FilesListResult describes the path asked for and, if it is a directory, one
// page of its entries, sorted by name in byte order.
type FilesListResult struct {
	Self    FileEntry   `json:"self"`
	Entries []FileEntry `json:"entries"`
	// More says that entries follow the last one.
	More bool `json:"more"`
}

// FileEntry describes one directory entry, after following links inside the
// root.
type FileEntry struct {
	Name string `json:"name"`
	// Type is "file", "dir" or "other"; only files can be read.
	Type string `json:"type"`
	// Size is in bytes; 0 for what is not a file.
	Size int64 `json:"size"`
	// ModTime is the last modification.
	ModTime time.Time `json:"mtime"`
}

// FilesReadRequest asks for a piece of a regular file. The result is the raw
// bytes; fewer than Length, and none at all, mean the end of the file.
type FilesReadRequest struct {
	Root   string `json:"root"`
	Path   string `json:"path"`
	Offset int64  `json:"offset"`
	Length int    `json:"length"`
}

// HTTPFetchRequest asks for one HTTP exchange. The request is followed by one LF
// and its body, if it has one. The result is a header in JSON
// (HTTPFetchResult), one LF, and the raw body.
type HTTPFetchRequest struct {
	Method string      `json:"method"`
	URL    string      `json:"url"`
	Header [][2]string `json:"header,omitempty"`
	// Body follows the JSON.
	Body []byte `json:"-"`
	// TimeoutMillis is at most the host's limit; 0 means the limit.
	TimeoutMillis int `json:"timeout_ms,omitempty"`
}

// HTTPFetchResult precedes the body.
type HTTPFetchResult struct {
	Status int         `json:"status"`
	URL    string      `json:"url"`
	Header [][2]string `json:"header"`
	// Truncated says that the body was longer than the host's limit.
	Truncated bool `json:"truncated"`
}

// HTTPBudget is what one exchange may use, as the host counts it; a guest never
// sees it.
type HTTPBudget struct {
	// Requests bounds the requests, redirects included; at least 1.
	Requests int
	// BodyBytes bounds the body of the answer.
	BodyBytes int64
	// Timeout bounds the exchange.
	Timeout time.Duration
}

// KVGetRequest asks for one value; the result is its raw bytes.
type KVGetRequest struct {
	Key string `json:"key"`
}

// KVSetRequest stores one value. The request is followed by one LF and the
// value.
type KVSetRequest struct {
	Key string `json:"key"`
	// Value follows the JSON.
	Value []byte `json:"-"`
}

// KVDeleteRequest removes one value; an absent one is not an error.
type KVDeleteRequest struct {
	Key string `json:"key"`
}

// KVListRequest asks for the keys that begin with Prefix, in byte order.
type KVListRequest struct {
	Prefix string `json:"prefix,omitempty"`
	After  string `json:"after,omitempty"`
	Limit  int    `json:"limit,omitempty"`
}

// KVListResult is one page of keys.
type KVListResult struct {
	Keys []string `json:"keys"`
	More bool     `json:"more"`
}

// LLMCompleteRequest asks the host's model for one completion, without tools.
type LLMCompleteRequest struct {
	System          string `json:"system,omitempty"`
	Prompt          string `json:"prompt"`
	MaxOutputTokens int    `json:"max_output_tokens,omitempty"`
}

// LLMCompleteResult is the answer and what it cost.
type LLMCompleteResult struct {
	Text         string `json:"text"`
	InputTokens  int    `json:"input_tokens"`
	OutputTokens int    `json:"output_tokens"`
}
