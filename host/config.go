package host

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pelletier/go-toml/v2"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/abi/manifest"
	"github.com/gloveboxhq/glovebox/compaction"
	"github.com/gloveboxhq/glovebox/compaction/assembly"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/capability"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/host/llm/anthropic"
	"github.com/gloveboxhq/glovebox/host/llm/openai"
	"github.com/gloveboxhq/glovebox/host/registry/lock"
	"github.com/gloveboxhq/glovebox/host/sandbox"
	"github.com/gloveboxhq/glovebox/host/tokenizer"
	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/dream"
)

// Config sets up a Host. The zero value works: the data directory of the user,
// the offline model, no triggers, and no hands. docs/configuration.md explains
// every key.
type Config struct {
	// Data is the data directory; "" means DefaultData.
	Data string `toml:"-"`
	// Cache is where compiled modules are kept; "" means the user's cache
	// directory. Hosts may share one.
	Cache string `toml:"-"`
	// Compiler compiles the modules that the cache does not have; nil means to
	// compile in this process, under caps that large modules do not meet.
	// registry.Self is this program, if its main function begins with
	// registry.CompilerMain.
	Compiler sandbox.Compiler `toml:"-"`
	// Agreed is what was agreed for hands; nil means glovebox.lock beside the
	// database, sealed by the ledger there.
	Agreed *lock.File `toml:"-"`
	// Model answers in place of the configured provider, if not nil.
	LLM llm.Model `toml:"-"`
	// Summarizer summarises in place of the one that belongs to the model, if
	// not nil.
	Summarizer compaction.Summarizer `toml:"-"`
	// Embedder chooses by meaning which topics a prompt has room for; nil means to
	// choose by words. An answer waits for it, 2 seconds at most.
	Embedder dream.Embedder `toml:"-"`
	// Now is the clock of turns, triggers and windows; nil means time.Now.
	Now func() time.Time `toml:"-"`
	// OnCompaction is told of every cadence and threshold run that was due, when
	// it is over or is no longer waited for: from the background, or from the
	// turn that waited. Nil means nobody is.
	OnCompaction func(compaction.Report) `toml:"-"`
	// Ticks sets when the host looks for sessions that a dream is due for; nil
	// means every 30 s. It receives again when the dreams of the last look are over.
	Ticks <-chan time.Time `toml:"-"`
	// Log takes what an operator may want to know; nil discards it.
	Log *slog.Logger `toml:"-"`
	// Tracer makes a span of each turn, refresh, compaction, question to a hand and
	// request to the model, Meter counts and measures them; nil means that nobody
	// does. Neither is told a word of what is said. docs/operating.md lists the names.
	Tracer trace.TracerProvider `toml:"-"`
	Meter  metric.MeterProvider `toml:"-"`

	Store      StoreConfig           `toml:"store"`
	Model      ModelConfig           `toml:"model"`
	Boundary   BoundaryConfig        `toml:"boundary"`
	Engine     EngineConfig          `toml:"engine"`
	Compaction CompactionConfig      `toml:"compaction"`
	Sessions   SessionsConfig        `toml:"sessions"`
	Memory     MemoryConfig          `toml:"memory"`
	Server     ServerConfig          `toml:"server"`
	Logging    LogConfig             `toml:"log"`
	Users      []UserConfig          `toml:"users"`
	Agents     []AgentConfig         `toml:"agents"`
	Trust      TrustConfig           `toml:"trust"`
	Hands      map[string]HandConfig `toml:"hands"`

	// defaultName is what the store calls the default user; a host sets it.
	defaultName string
}

// StoreConfig is [store].
type StoreConfig struct {
	// Path is the session database; "" means glovebox.db in Data.
	Path string `toml:"path"`
}

// ModelConfig is [model].
type ModelConfig struct {
	// Provider is "offline", the default, or "openai" or "anthropic" for any server
	// that speaks its protocol.
	Provider string `toml:"provider"`
	// BaseURL of the server; "" means $OPENAI_BASE_URL or $ANTHROPIC_BASE_URL, else
	// the provider's own.
	BaseURL string `toml:"base_url"`
	// Name of the model.
	Name string `toml:"name"`
	// APIKey is env:NAME or file:PATH; "" means env:OPENAI_API_KEY or
	// env:ANTHROPIC_API_KEY.
	APIKey string `toml:"api_key"`
	// ContextWindow is what prompt and answer may cost together; zero means
	// 32,768 tokens.
	ContextWindow int `toml:"context_window"`
	// MaxOutputTokens bounds an answer; zero means 1,024.
	MaxOutputTokens int `toml:"max_output_tokens"`
	// Tokenizer names the vocabulary by which prompts are counted, as package
	// tokenizer knows it; "" means to take the estimate.
	Tokenizer string `toml:"tokenizer"`
	// Tools offers the memory tools to the model; absent means true. The offline
	// model calls none.
	Tools *bool `toml:"tools"`
	// BackgroundCalls is how many calls go on at once that nobody waits for, of all
	// users together: summaries, extractions and dreams behind the turns. Zero means
	// 4. BackgroundCallsPerMinute is how many begin in any minute; zero means 120.
	BackgroundCalls          int `toml:"background_calls"`
	BackgroundCallsPerMinute int `toml:"background_calls_per_minute"`
}

// The most that may be configured: beyond, a limit limits nothing.
const (
	maxBackgroundCalls          = 1024
	maxBackgroundCallsPerMinute = 1_000_000
)

func (c ModelConfig) backgroundCalls() int          { return cmp.Or(c.BackgroundCalls, 4) }
func (c ModelConfig) backgroundCallsPerMinute() int { return cmp.Or(c.BackgroundCallsPerMinute, 120) }

// BoundaryConfig is [boundary].
type BoundaryConfig struct {
	// Mode is how prompts show external text, as boundary.ParseMode has it; ""
	// means "delimit".
	Mode string `toml:"mode"`
}

// boundaryMode is the mode of every prompt of an agent; that of a Config which
// Check refuses is boundary.ModeDelimit.
func (c Config) boundaryMode() boundary.Mode {
	mode, _ := boundary.ParseMode(c.Boundary.Mode)
	return mode
}

func (c *Config) checkBoundary() error {
	if _, err := boundary.ParseMode(c.Boundary.Mode); err != nil {
		return fmt.Errorf("boundary.mode: %w", err)
	}
	return nil
}

// CompactionConfig is [compaction]. Absent or zero, it arms no trigger.
type CompactionConfig struct {
	ContinuousInterval int  `toml:"continuous_interval"`
	KeepRecent         int  `toml:"keep_recent"`
	GapSecs            int  `toml:"gap_secs"`
	GapMaxLookbackSecs int  `toml:"gap_max_lookback_secs"`
	GapDeadlineSecs    int  `toml:"gap_deadline_secs"`
	ContextTokenCap    *int `toml:"context_token_cap"`
	SourceTimeoutSecs  int  `toml:"source_timeout_secs"`
	MaxSummaryTokens   int  `toml:"max_summary_tokens"`
	// Threshold is the part of what a prompt may cost that it may fill before
	// older messages are summarised; 0 turns that off.
	Threshold      float64         `toml:"threshold"`
	ContextSources []ContextSource `toml:"context_sources"`
}

// defaultContextTokenCap is the cap where none is written.
const defaultContextTokenCap = 2000

func (c CompactionConfig) tokenCap() int {
	if c.ContextTokenCap == nil {
		return defaultContextTokenCap
	}
	return *c.ContextTokenCap
}

func (c CompactionConfig) engine() compaction.Config {
	return compaction.Config{
		Interval: c.ContinuousInterval, KeepRecent: c.KeepRecent, Gap: seconds(c.GapSecs),
		GapMaxLookback: seconds(c.GapMaxLookbackSecs), GapDeadline: seconds(c.GapDeadlineSecs),
		ContextTokenCap: c.tokenCap(), SourceTimeout: seconds(c.SourceTimeoutSecs), MaxSummaryTokens: c.MaxSummaryTokens,
		Threshold: c.Threshold,
	}
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

// ContextSource is one [[compaction.context_sources]].
type ContextSource struct {
	// Hand is the name of a configured hand.
	Hand string `toml:"hand"`
	// Prompt is what it is asked.
	Prompt string `toml:"prompt"`
	// Users are those whose conversations get its text; empty means the
	// users of the hand.
	Users []string `toml:"users"`
}

// SessionsConfig is [sessions].
type SessionsConfig struct {
	// Timezone is the IANA zone in which hands show times; "" means the
	// machine's.
	Timezone string `toml:"timezone"`
	// GapSecs is how long a session with structured memory has rested when what
	// was said in it is merged into the topics; 0 turns that off, absent means 300.
	GapSecs *int `toml:"gap_secs"`
}

// defaultSessionGap is the gap where none is written.
const defaultSessionGap = 300

func (c SessionsConfig) gapSecs() int {
	if c.GapSecs == nil {
		return defaultSessionGap
	}
	return *c.GapSecs
}

// MemoryConfig is [memory]: how structured memory works for the agents that have
// it.
type MemoryConfig struct {
	// TopicTokenCap bounds what prompts say of the topics; zero means 800 tokens.
	// It is never more than a quarter of what a prompt may cost.
	TopicTokenCap int `toml:"topic_token_cap"`
	// ExtractionTokens and ExtractionToolCalls are after how much that is new an
	// extraction is due; zero means 4,000 tokens and 20 calls.
	ExtractionTokens    int `toml:"extraction_tokens"`
	ExtractionToolCalls int `toml:"extraction_tool_calls"`
}

// defaultTopicTokenCap is the cap where none is written, minTopicTokens the least
// that says anything.
const defaultTopicTokenCap, minTopicTokens = 800, 64

// topicTokens is what prompts may say of the topics. They go in whatever else has
// no room for it, so that it is never much of a small window.
func (c Config) topicTokens() int {
	return min(positiveOr(c.Memory.TopicTokenCap, defaultTopicTokenCap), c.budget()/4)
}

// EngineConfig is [engine]: what the code of hands may take, in MiB.
type EngineConfig struct {
	// CodeMiB bounds what loaded code and images take in memory, as
	// sandbox.Config.CodeBytes says; zero means 1024. CacheMiB bounds what the
	// compilation cache has on disk; zero means 2048.
	CodeMiB  int `toml:"code_mib"`
	CacheMiB int `toml:"cache_mib"`
}

// maxEngineMiB is 1 TiB.
const maxEngineMiB = 1 << 20

func (c *Config) checkEngine() error {
	for _, bound := range []struct {
		key string
		mib int
	}{{"code_mib", c.Engine.CodeMiB}, {"cache_mib", c.Engine.CacheMiB}} {
		if bound.mib < 0 || bound.mib > maxEngineMiB {
			return fmt.Errorf("engine.%s: %d is out of range: use 1 to %d", bound.key, bound.mib, maxEngineMiB)
		}
	}
	return nil
}

// sandbox is the configuration of the engine, whose zero values are those of the
// sandbox.
func (c Config) sandbox(cache string) sandbox.Config {
	return sandbox.Config{
		CacheDir: cache, Compiler: c.Compiler,
		CodeBytes: int64(c.Engine.CodeMiB) << 20, CacheBytes: int64(c.Engine.CacheMiB) << 20,
	}
}

// ServerConfig is [server].
type ServerConfig struct {
	// Listen is where glovebox serve listens; "" means 127.0.0.1:7780.
	Listen string `toml:"listen"`
	// Hosts are the names, with or without a port, that a request's Host header may
	// say beside the address of Listen and, on loopback, localhost.
	Hosts []string `toml:"hosts"`
	// Gateway is [server.gateway].
	Gateway GatewayConfig `toml:"gateway"`
	// DrainSecs is how long glovebox serve waits at its end for what is being
	// answered; zero means 30.
	DrainSecs int `toml:"drain_secs"`
}

// maxDrainSecs is longer than anything that manages services waits.
const maxDrainSecs = 3600

// Drain is DrainSecs as a duration.
func (c ServerConfig) Drain() time.Duration { return seconds(positiveOr(c.DrainSecs, 30)) }

// LogConfig is [log]: what glovebox serve writes to standard error.
type LogConfig struct {
	// Level is the least that is written: "debug", "info", which "" means, "warn" or
	// "error". What users, hands and models say is written at debug at most.
	Level string `toml:"level"`
	// Format is "text", which "" means, or "json", one object a line.
	Format string `toml:"format"`
}

// logLevels and logFormats are what the keys may say.
var (
	logLevels  = map[string]slog.Level{"debug": slog.LevelDebug, "": slog.LevelInfo, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
	logFormats = map[string]func(io.Writer, *slog.HandlerOptions) slog.Handler{
		"": newTextHandler, "text": newTextHandler,
		"json": func(w io.Writer, o *slog.HandlerOptions) slog.Handler { return slog.NewJSONHandler(w, o) },
	}
)

func newTextHandler(w io.Writer, o *slog.HandlerOptions) slog.Handler {
	return slog.NewTextHandler(w, o)
}

// Handler writes what c says to w; a Config that Check refuses writes text at info.
func (c LogConfig) Handler(w io.Writer) slog.Handler {
	open, ok := logFormats[c.Format]
	if !ok {
		open = newTextHandler
	}
	return open(w, &slog.HandlerOptions{Level: logLevels[c.Level]})
}

func (c *Config) checkLogging() error {
	if _, ok := logLevels[c.Logging.Level]; !ok {
		return fmt.Errorf("log.level: %q: use debug, info, warn or error", c.Logging.Level)
	}
	if _, ok := logFormats[c.Logging.Format]; !ok {
		return fmt.Errorf("log.format: %q: use text or json", c.Logging.Format)
	}
	return nil
}

// GatewayConfig is [server.gateway], about /v1.
type GatewayConfig struct {
	// HostTools offers the host's tools to the model beside the client's. They are
	// answered inside, and the client sees nothing of it.
	HostTools bool `toml:"host_tools"`
}

// defaultListen is reachable from this machine alone.
const defaultListen = "127.0.0.1:7780"

// Address is where to listen.
func (c ServerConfig) Address() string {
	if c.Listen == "" {
		return defaultListen
	}
	return c.Listen
}

func (c *Config) checkServer() error {
	if _, port, err := net.SplitHostPort(c.Server.Address()); err != nil || !isPort(port) {
		return fmt.Errorf("server.listen: %q: write an address and a port, such as %s or [::1]:7780", c.Server.Listen, defaultListen)
	}
	if n := c.Server.DrainSecs; n < 0 || n > maxDrainSecs {
		return fmt.Errorf("server.drain_secs: %d is out of range: use 1 to %d", n, maxDrainSecs)
	}
	for i, said := range c.Server.Hosts {
		name, port, err := net.SplitHostPort(said)
		if err != nil {
			name, port = strings.TrimSuffix(strings.TrimPrefix(said, "["), "]"), "1"
		}
		if !isPort(port) || port == "0" || !isHostName(name) {
			return fmt.Errorf("server.hosts[%d]: %q: write a name as it stands in a URL, such as glovebox.example.com or glovebox.example.com:8443", i, said)
		}
	}
	return nil
}

func isPort(text string) bool {
	_, err := strconv.ParseUint(text, 10, 16)
	return err == nil
}

// isHostName reports whether a browser may send name as the host of a URL: an
// address, or labels of letters, digits and hyphens.
func isHostName(name string) bool {
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || strings.Trim(strings.ToLower(label), "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	return len(name) <= 253
}

// UserConfig is one [[users]].
type UserConfig struct {
	// ID is the user's UUID; "" means to make one when the name is new.
	ID   string `toml:"id"`
	Name string `toml:"name"`
	// IsDefault attaches the entry to the default user; if no entry has it,
	// the first is attached.
	IsDefault bool `toml:"is_default"`
}

// AgentConfig is one [[agents]].
type AgentConfig struct {
	Name         string            `toml:"name"`
	SystemPrompt string            `toml:"system_prompt"`
	Memory       AgentMemoryConfig `toml:"memory"`
}

// AgentMemoryConfig is [agents.memory].
type AgentMemoryConfig struct {
	// System is MemorySummarization, which "" means, or MemoryStructured. What
	// SetMemorySystem stored goes before it.
	System string `toml:"system"`
}

// HandConfig is [hands.NAME].
type HandConfig struct {
	// Module is "bundled:NAME" or the path of a .wasm file; "" means the
	// bundled hand of this name.
	Module string `toml:"module"`
	// Digest, "sha256:…", is required beside a grant unless the hand is
	// bundled.
	Digest string `toml:"digest"`
	// Unsigned takes the module that Digest names without a signature of a trusted
	// key.
	Unsigned bool `toml:"unsigned"`
	// Users are those for whom the hand may be asked; empty means the default
	// user alone.
	Users []string `toml:"users"`
	// Shared lets paths and values without {user} serve more than one user.
	Shared bool `toml:"shared"`
	// Prompts are what the model may have the hand asked, by name; see
	// FreePrompts.
	Prompts map[string]string `toml:"prompts"`
	// FreePrompts lets the model write the prompt itself. A hand that may send
	// away what it is asked, through http, kv or llm, cannot have it.
	FreePrompts bool           `toml:"free_prompts"`
	Grant       GrantConfig    `toml:"grant"`
	Config      map[string]any `toml:"config"`
	Limits      LimitsConfig   `toml:"limits"`
}

// GrantConfig is [hands.NAME.grant].
type GrantConfig struct {
	// Files maps the names of the roots that the hand asks for to
	// directories; "{user}" in one stands for the user's name.
	Files map[string]string `toml:"files"`
	// HTTP are the rules for requests, in the form of a capability.HostRule:
	// what the manifest asks for and these allow.
	HTTP []string `toml:"http"`
	// AllowPrivate are addresses that are not on the public internet, with
	// their ports, in the form of a capability.PrivateTarget.
	AllowPrivate []string `toml:"allow_private"`
	// Secrets are bound by the names that the manifest asks for.
	Secrets map[string]SecretConfig `toml:"secrets"`
	// KV lets the hand keep values of its own for each user, LLM ask the
	// configured model.
	KV  bool `toml:"kv"`
	LLM bool `toml:"llm"`

	// written says that a configuration has the table, which is a ceiling for an
	// installed hand also where it grants nothing.
	written bool
}

// SecretConfig is [hands.NAME.grant.secrets.SECRET]; capability.SecretBinding
// explains it.
type SecretConfig struct {
	From     string `toml:"from"`
	Host     string `toml:"host"`
	Header   string `toml:"header"`
	Format   string `toml:"format"`
	Insecure bool   `toml:"insecure"`
}

// http returns the grant of requests. Load is that of capability.NewHTTPGrant.
func (g GrantConfig) http(asked manifest.Permission, load capability.SecretLoader) (*capability.HTTPGrant, error) {
	allowed := capability.HTTPConfig{Hosts: g.HTTP, AllowPrivate: g.AllowPrivate}
	for _, name := range slices.Sorted(maps.Keys(g.Secrets)) {
		c := g.Secrets[name]
		allowed.Secrets = append(allowed.Secrets, capability.SecretBinding{Name: name, From: c.From, Host: c.Host, Header: c.Header, Format: c.Format, Insecure: c.Insecure})
	}
	return capability.NewHTTPGrant(capability.HTTPRequest{Hosts: asked.Hosts, Secrets: asked.Secrets}, allowed, load)
}

// LimitsConfig is [hands.NAME.limits]. Zero means the default.
type LimitsConfig struct {
	TimeoutSecs     int   `toml:"timeout_secs"`
	Fuel            int64 `toml:"fuel"`
	MemoryMiB       int64 `toml:"memory_mib"`
	TableElements   int   `toml:"table_elements"`
	StackMiB        int   `toml:"stack_mib"`
	OutputBytes     int   `toml:"output_bytes"`
	LogBytes        int   `toml:"log_bytes"`
	LogLines        int   `toml:"log_lines"`
	Calls           int   `toml:"calls"`
	FileReadBytes   int64 `toml:"file_read_bytes"`
	FileTotalMiB    int64 `toml:"file_total_mib"`
	HTTPRequests    int   `toml:"http_requests"`
	HTTPBytes       int64 `toml:"http_bytes"`
	HTTPTimeoutSecs int   `toml:"http_timeout_secs"`
	KVValueBytes    int64 `toml:"kv_value_bytes"`
	KVTotalMiB      int64 `toml:"kv_total_mib"`
	LLMCalls        int   `toml:"llm_calls"`
	LLMInputTokens  int   `toml:"llm_input_tokens"`
	Concurrent      int   `toml:"concurrent"`
}

func (l LimitsConfig) abi() abi.Limits {
	return abi.Limits{
		Timeout: seconds(l.TimeoutSecs), Fuel: l.Fuel, MemoryBytes: mebibytes(l.MemoryMiB), TableElements: l.TableElements,
		StackBytes: int(mebibytes(int64(l.StackMiB))), OutputBytes: l.OutputBytes, LogBytes: l.LogBytes, LogLines: l.LogLines, Calls: l.Calls,
		FileReadBytes: l.FileReadBytes, FileTotalBytes: mebibytes(l.FileTotalMiB),
		HTTPRequests: l.HTTPRequests, HTTPBytes: l.HTTPBytes, HTTPTimeout: seconds(l.HTTPTimeoutSecs),
		KVValueBytes: l.KVValueBytes, KVTotalBytes: mebibytes(l.KVTotalMiB),
		LLMCalls: l.LLMCalls, LLMInputTokens: l.LLMInputTokens, Concurrent: l.Concurrent,
	}
}

// mebibytes keeps what is out of every range out of range.
func mebibytes(n int64) int64 {
	if n < 0 || n > 1<<30 {
		return -1
	}
	return n << 20
}

// userPlaceholder stands for the user's name in paths and values.
const userPlaceholder = "{user}"

// LoadConfig reads a configuration file. Relative paths in it count from its
// directory. Errors name the file, and for syntax the line and column.
func LoadConfig(path string) (Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("read configuration: %w", err)
	}
	config, err := ParseConfig(data, filepath.Dir(path))
	if err != nil {
		if at, ok := errors.AsType[*manifest.SyntaxError](err); ok {
			return Config{}, &placed{fmt.Sprintf("%s:%d:%d: %s", path, at.Line, at.Column, at.What()), err}
		}
		if line, column, ok := placeOf(bytes.TrimPrefix(data, []byte("\ufeff")), err.Error()); ok {
			return Config{}, &placed{fmt.Sprintf("%s:%d:%d: %v", path, line, column, err), err}
		}
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return config, nil
}

// placed is an error whose text begins with its place in a file.
type placed struct {
	text string
	err  error
}

func (p *placed) Error() string { return p.text }
func (p *placed) Unwrap() error { return p.err }

// ParseConfig reads a configuration; dir is what relative paths count from.
func ParseConfig(data []byte, dir string) (Config, error) {
	var c Config
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if err := manifest.Decode(data, &c); err != nil {
		return Config{}, err
	}
	if err := refuseZeros(data); err != nil {
		return Config{}, err
	}
	ceilings, err := writtenGrants(data)
	if err != nil {
		return Config{}, err
	}
	c.Store.Path = under(dir, c.Store.Path)
	for name, key := range c.Trust.Keys {
		if !isKeyText(key) {
			c.Trust.Keys[name] = under(dir, key)
		}
	}
	for name, h := range c.Hands {
		if h.Module != "" && !strings.HasPrefix(h.Module, bundledPrefix) {
			h.Module = under(dir, h.Module)
		}
		for root, path := range h.Grant.Files {
			h.Grant.Files[root] = under(dir, path)
		}
		h.Grant.written = ceilings[name]
		c.Hands[name] = h
	}
	if err := c.Check(); err != nil {
		return Config{}, err
	}
	return c, nil
}

// writtenGrants are the names of the hands that have a grant table, be it empty.
func writtenGrants(data []byte) (map[string]bool, error) {
	var written struct {
		Hands map[string]struct {
			Grant any `toml:"grant"`
		} `toml:"hands"`
	}
	if err := toml.Unmarshal(data, &written); err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for name, h := range written.Hands {
		names[name] = h.Grant != nil
	}
	return names, nil
}

// refuseZeros refuses what a Config cannot tell from a value that is absent.
func refuseZeros(data []byte) error {
	var written struct {
		Compaction struct {
			KeepRecent *int `toml:"keep_recent"`
		} `toml:"compaction"`
		Memory struct {
			TopicTokenCap       *int `toml:"topic_token_cap"`
			ExtractionTokens    *int `toml:"extraction_tokens"`
			ExtractionToolCalls *int `toml:"extraction_tool_calls"`
		} `toml:"memory"`
		Server struct {
			DrainSecs *int `toml:"drain_secs"`
		} `toml:"server"`
	}
	if err := toml.Unmarshal(data, &written); err != nil {
		return err
	}
	if n := written.Compaction.KeepRecent; n != nil && *n == 0 {
		return errors.New("compaction.keep_recent: 0 would summarise what was just said: use at least 1, or leave it out for 6")
	}
	if n := written.Server.DrainSecs; n != nil && *n == 0 {
		return errors.New("server.drain_secs: 0 would break off every answer: use at least 1, or leave it out for 30")
	}
	m := written.Memory
	if n := m.TopicTokenCap; n != nil && *n == 0 {
		return fmt.Errorf("memory.topic_token_cap: 0 would say nothing of what is remembered: use at least %d, leave it out for %d, or give the agent no structured memory", minTopicTokens, defaultTopicTokenCap)
	}
	if n := m.ExtractionTokens; n != nil && *n == 0 {
		return errors.New("memory.extraction_tokens: 0 is neither soon nor never: use at least 1, or leave it out for 4,000")
	}
	if n := m.ExtractionToolCalls; n != nil && *n == 0 {
		return errors.New("memory.extraction_tool_calls: 0 is neither soon nor never: use at least 1, or leave it out for 20")
	}
	return nil
}

func under(dir, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// Check returns an error that names the key, if a value is impossible or two
// contradict each other. It opens nothing.
func (c *Config) Check() error {
	for _, check := range []func() error{c.checkModel, c.checkBoundary, c.checkEngine, c.checkCompaction, c.checkMemory, c.checkNames, c.checkTrust, c.checkHands, c.checkSources, c.checkServer, c.checkLogging} {
		if err := check(); err != nil {
			return err
		}
	}
	if zone := c.Sessions.Timezone; zone != "" {
		if _, err := time.LoadLocation(zone); err != nil {
			return fmt.Errorf("sessions.timezone: %q is not an IANA time zone, such as Europe/Berlin", zone)
		}
	}
	return nil
}

func (c *Config) checkModel() error {
	m := c.Model
	switch {
	case m.Provider != "" && m.Provider != "offline" && !m.isRemote():
		return fmt.Errorf("model.provider: %q: use offline, %s", m.Provider, strings.Join(slices.Sorted(maps.Keys(protocols)), " or "))
	case m.isRemote() && m.Name == "":
		return fmt.Errorf("model.name: the provider %s needs the name of a model", m.Provider)
	case m.APIKey != "" && !strings.HasPrefix(m.APIKey, "env:") && !strings.HasPrefix(m.APIKey, "file:"):
		return errors.New("model.api_key: write env:NAME or file:PATH; a key does not belong into the file")
	case m.ContextWindow < 0 || m.MaxOutputTokens < 0:
		return errors.New("model: context_window and max_output_tokens are at least 1")
	case m.BackgroundCalls < 0 || m.BackgroundCalls > maxBackgroundCalls:
		return fmt.Errorf("model.background_calls: %d is out of range: use 1 to %d", m.BackgroundCalls, maxBackgroundCalls)
	case m.BackgroundCallsPerMinute < 0 || m.BackgroundCallsPerMinute > maxBackgroundCallsPerMinute:
		return fmt.Errorf("model.background_calls_per_minute: %d is out of range: use 1 to %d", m.BackgroundCallsPerMinute, maxBackgroundCallsPerMinute)
	case m.window() <= m.maxOutput():
		return fmt.Errorf("model.context_window: %d tokens leave no room beside max_output_tokens, %d", m.window(), m.maxOutput())
	}
	if m.Tokenizer != "" {
		if err := tokenizer.Known(m.Tokenizer); err != nil {
			return fmt.Errorf("model.tokenizer: %w", err)
		}
	}
	return nil
}

// counter counts the tokens of a text as the model does. It is nil where only
// the estimate is known.
func (c Config) counter() func(text string) int {
	if c.Model.Tokenizer == "" {
		return nil
	}
	counter, err := tokenizer.Named(c.Model.Tokenizer)
	if err != nil {
		return nil // Check refuses it
	}
	return counter.Count
}

// memoryTools are what the model of a configuration is offered: nothing if that
// alone would take more than a quarter of what a prompt may cost.
func (c Config) memoryTools(r *compaction.Retrieval) []tool {
	if !c.offersTools() {
		return nil
	}
	tools := allMemoryTools(r)
	cost := 0
	for _, t := range tools {
		cost += t.Definition().Tokens()
	}
	if cost > c.budget()/4 {
		return nil
	}
	return tools
}

func allMemoryTools(r *compaction.Retrieval) []tool {
	var tools []tool
	for _, t := range compaction.Tools(r) {
		tools = append(tools, memoryTool{t})
	}
	return tools
}

// offersTools reports whether the model is offered tools at all.
func (c Config) offersTools() bool { return !c.isOffline() && (c.Model.Tools == nil || *c.Model.Tools) }

// isOffline reports whether the offline model answers, which knows no tools and
// only quotes.
func (c Config) isOffline() bool { return c.LLM == nil && !c.Model.isRemote() }

// protocol is how a model on a server is asked.
type protocol struct {
	// shape is whose rules prompts keep.
	shape assembly.Provider
	// baseURL names the variable with the address, key is where the key is, if the
	// configuration names neither.
	baseURL, key string
	open         func(baseURL, key, name string) (llm.Model, error)
}

// protocols are those that model.provider may name, beside offline.
var protocols = map[string]protocol{
	"anthropic": {assembly.Anthropic, "ANTHROPIC_BASE_URL", "env:ANTHROPIC_API_KEY", func(baseURL, key, name string) (llm.Model, error) {
		return anthropic.New(anthropic.Config{BaseURL: baseURL, APIKey: key, Name: name})
	}},
	"openai": {assembly.OpenAIChat, "OPENAI_BASE_URL", "env:OPENAI_API_KEY", func(baseURL, key, name string) (llm.Model, error) {
		return openai.New(openai.Config{BaseURL: baseURL, APIKey: key, Name: name})
	}},
}

// isRemote reports whether the model is on a server.
func (m ModelConfig) isRemote() bool {
	_, ok := protocols[m.Provider]
	return ok
}

// open returns the configured model. Its error names the key.
func (m ModelConfig) open() (llm.Model, error) {
	p, ok := protocols[m.Provider]
	if !ok {
		return llm.NewExtractive(), nil
	}
	key, err := secret(cmp.Or(m.APIKey, p.key))
	if err != nil {
		return nil, fmt.Errorf("model.api_key: %w", err)
	}
	model, err := p.open(cmp.Or(m.BaseURL, os.Getenv(p.baseURL)), key, m.Name)
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	return model, nil
}

// shape is whose rules prompts keep; "" is all of them.
func (m ModelConfig) shape() assembly.Provider { return protocols[m.Provider].shape }

func (m ModelConfig) window() int    { return positiveOr(m.ContextWindow, 32_768) }
func (m ModelConfig) maxOutput() int { return positiveOr(m.MaxOutputTokens, 1024) }

func positiveOr(value, standard int) int {
	if value > 0 {
		return value
	}
	return standard
}

// maxConfigured is the most that a number of seconds, tokens or counts may be.
const maxConfigured = 1_000_000_000

func (c *Config) checkCompaction() error {
	k := c.Compaction
	values := map[string]int{
		"continuous_interval": k.ContinuousInterval, "keep_recent": k.KeepRecent, "gap_secs": k.GapSecs,
		"gap_max_lookback_secs": k.GapMaxLookbackSecs, "gap_deadline_secs": k.GapDeadlineSecs,
		"context_token_cap": k.tokenCap(), "source_timeout_secs": k.SourceTimeoutSecs, "max_summary_tokens": k.MaxSummaryTokens,
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if v := values[key]; v < 0 || v > maxConfigured {
			return fmt.Errorf("compaction.%s: %d is out of range: use 0 to 1,000,000,000", key, v)
		}
	}
	if k.MaxSummaryTokens != 0 && k.MaxSummaryTokens < minSummaryTokens {
		return fmt.Errorf("compaction.max_summary_tokens: %d tokens say nothing: use at least %d", k.MaxSummaryTokens, minSummaryTokens)
	}
	// Not a number is no threshold either.
	if k.Threshold != 0 && !(k.Threshold >= minThreshold && k.Threshold <= maxThreshold) {
		return fmt.Errorf("compaction.threshold: %v is out of range: use 0 to turn it off, else %v to %v", k.Threshold, minThreshold, maxThreshold)
	}
	return nil
}

func (c *Config) checkMemory() error {
	for _, value := range []struct {
		key string
		n   int
	}{
		{"memory.topic_token_cap", c.Memory.TopicTokenCap},
		{"memory.extraction_tokens", c.Memory.ExtractionTokens},
		{"memory.extraction_tool_calls", c.Memory.ExtractionToolCalls},
		{"sessions.gap_secs", c.Sessions.gapSecs()},
	} {
		if value.n < 0 || value.n > maxConfigured {
			return fmt.Errorf("%s: %d is out of range: use 0 to 1,000,000,000", value.key, value.n)
		}
	}
	if n := c.Memory.TopicTokenCap; n != 0 && n < minTopicTokens {
		return fmt.Errorf("memory.topic_token_cap: %d tokens say nothing: use at least %d", n, minTopicTokens)
	}
	return nil
}

// minThreshold and maxThreshold bound threshold: below, hardly anything would be
// shown; above, one long message passes the budget.
const minThreshold, maxThreshold = 0.2, 0.95

// minSummaryTokens is the least that max_summary_tokens may be.
const minSummaryTokens = 128

func (c *Config) checkNames() error {
	seen := map[string]bool{}
	defaults := 0
	for i, u := range c.Users {
		if !memory.ValidName(u.Name) {
			return fmt.Errorf("users[%d].name: %q: use 1 to 63 of a-z, 0-9, ., _ and -, beginning with a letter or digit", i, u.Name)
		}
		if seen[u.Name] {
			return fmt.Errorf("users[%d].name: %q is there twice", i, u.Name)
		}
		seen[u.Name] = true
		if u.ID != "" {
			if _, err := memory.ParseID[memory.UserID](u.ID); err != nil {
				return fmt.Errorf("users[%d].id: %w", i, err)
			}
			if seen[u.ID] {
				return fmt.Errorf("users[%d].id: %s is there twice", i, u.ID)
			}
			seen[u.ID] = true
		}
		if u.Name == memory.DefaultUserName && c.defaultUser() != u.Name {
			return fmt.Errorf("users[%d].name: %q always means the default user, who is %q: use another name", i, u.Name, c.defaultUser())
		}
		if u.IsDefault {
			defaults++
		}
	}
	if defaults > 1 {
		return errors.New("users: more than one has is_default = true")
	}
	agents := map[string]bool{}
	for i, a := range c.Agents {
		if !memory.ValidName(a.Name) || agents[a.Name] {
			return fmt.Errorf("agents[%d].name: %q: use a name of its own, of a-z, 0-9, ., _ and -", i, a.Name)
		}
		if s := a.Memory.System; s != "" && !isMemorySystem(s) {
			return fmt.Errorf("agents[%d].memory.system: %q: use %s or %s", i, s, MemorySummarization, MemoryStructured)
		}
		agents[a.Name] = true
	}
	return nil
}

// defaultUser is the name of the default user.
func (c *Config) defaultUser() string {
	for _, u := range c.Users {
		if u.IsDefault {
			return u.Name
		}
	}
	switch {
	case len(c.Users) > 0:
		return c.Users[0].Name
	case c.defaultName != "":
		return c.defaultName
	}
	return memory.DefaultUserName
}

// canonicalUser resolves the alias of the default user.
func (c *Config) canonicalUser(name string) string {
	if name == memory.DefaultUserName {
		return c.defaultUser()
	}
	return name
}

func (c *Config) knowsUser(name string) bool {
	return name == c.defaultUser() || slices.ContainsFunc(c.Users, func(u UserConfig) bool { return u.Name == name })
}

// handUsers are the names of those a hand may be asked for.
func (c *Config) handUsers(h HandConfig) []string {
	if len(h.Users) == 0 {
		return []string{c.defaultUser()}
	}
	names := make([]string, 0, len(h.Users))
	for _, name := range h.Users {
		if name = c.canonicalUser(name); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func (c *Config) checkHands() error {
	for _, name := range slices.Sorted(maps.Keys(c.Hands)) {
		if err := c.checkHand(name, c.Hands[name]); err != nil {
			return err
		}
	}
	return nil
}

// checkHand is Check of one hand.
func (c *Config) checkHand(name string, h HandConfig) error {
	key := "hands." + name
	if !manifest.ValidName(name) {
		return fmt.Errorf("%s: a hand's name is 1 to 63 of a-z, 0-9 and -, not beginning with -", key)
	}
	if h.Unsigned && h.Digest == "" {
		return fmt.Errorf(`%s.unsigned: add digest = "sha256:…" beside it, which glovebox hand inspect shows: the word is for one file`, key)
	}
	users := c.handUsers(h)
	for _, user := range users {
		if !c.knowsUser(user) {
			return fmt.Errorf("%s.users: there is no user %q: add it under [[users]]", key, user)
		}
	}
	if _, err := h.Limits.abi().WithDefaults(); err != nil {
		return fmt.Errorf("%s.limits: %w", key, err)
	}
	if err := h.checkPrompts(key); err != nil {
		return err
	}
	if len(users) < 2 || h.Shared {
		return nil
	}
	// What is one user's must not reach another by an oversight.
	for _, root := range slices.Sorted(maps.Keys(h.Grant.Files)) {
		// What a cleaned path has lost names nobody.
		if !strings.Contains(filepath.Clean(h.Grant.Files[root]), userPlaceholder) {
			return fmt.Errorf("%s.grant.files.%s: the path serves %d users and has no %s: put it in, or write shared = true", key, root, len(users), userPlaceholder)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(h.Config)) {
		if !ofEachUser(h.Config[k]) {
			return fmt.Errorf("%s.config.%s: the value serves %d users and has no %s: put it in, or write shared = true", key, k, len(users), userPlaceholder)
		}
	}
	return nil
}

// ofEachUser reports whether a value of a hand differs between users, or is none
// that could belong to one.
func ofEachUser(value any) bool {
	switch v := value.(type) {
	case string:
		return strings.Contains(v, userPlaceholder)
	case []string:
		return !slices.ContainsFunc(v, func(s string) bool { return !ofEachUser(s) })
	case []any:
		return !slices.ContainsFunc(v, func(s any) bool { return !ofEachUser(s) })
	}
	return true
}

func (c *Config) checkSources() error {
	for i, s := range c.Compaction.ContextSources {
		key := fmt.Sprintf("compaction.context_sources[%d]", i)
		h, ok := c.Hands[s.Hand]
		switch {
		case !ok:
			return fmt.Errorf("%s.hand: there is no hand %q: add [hands.%s]", key, s.Hand, s.Hand)
		case strings.TrimSpace(s.Prompt) == "":
			return fmt.Errorf("%s.prompt: write what the hand is to be asked", key)
		case len(s.Prompt) > abi.MaxPromptBytes:
			return fmt.Errorf("%s.prompt: %d bytes, at most %d are allowed", key, len(s.Prompt), abi.MaxPromptBytes)
		}
		allowed := c.handUsers(h)
		for _, user := range s.Users {
			if !slices.Contains(allowed, c.canonicalUser(user)) {
				return fmt.Errorf("%s.users: %q is not among the users of hand %q", key, user, s.Hand)
			}
		}
	}
	return nil
}

// sourceUsers are the names of those who get a source's text.
func (c *Config) sourceUsers(s ContextSource) []string {
	if len(s.Users) == 0 {
		return c.handUsers(c.Hands[s.Hand])
	}
	names := make([]string, 0, len(s.Users))
	for _, name := range s.Users {
		names = append(names, c.canonicalUser(name))
	}
	return names
}

// Notes returns what is allowed but probably not meant, a sentence each.
func (c *Config) Notes() []string {
	var notes []string
	k := c.Compaction
	armed := k.ContinuousInterval > 0 || k.GapSecs > 0
	if armed && k.tokenCap() == 0 && len(k.ContextSources) > 0 {
		notes = append(notes, "compaction.context_token_cap is 0: no context source will be asked")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Hands)) {
		if c.Hands[name].Unsigned && len(c.Trust.Keys) == 0 {
			notes = append(notes, fmt.Sprintf("hands.%s.unsigned changes nothing: without [trust.keys] no hand needs a signature", name))
		}
		if g := c.Hands[name].Grant; len(g.Files) > 0 && len(g.HTTP) > 0 {
			notes = append(notes, fmt.Sprintf("hands.%s.grant has files and http: what the hand reads, it can send away", name))
		}
	}
	if !armed && len(k.ContextSources) > 0 {
		notes = append(notes, "compaction has context sources but neither continuous_interval nor gap_secs: nothing will ask them")
	}
	if queries := c.handQueries(); len(queries) > 0 && !c.offersTools() {
		notes = append(notes, "hands have prompts, but the model is offered no tools: only programs that come over MCP can ask them")
	} else {
		offered := c.handTools(c.memoryTools(nil))
		for _, user := range slices.Sorted(maps.Keys(queries)) {
			if offered[user] == nil {
				notes = append(notes, fmt.Sprintf("the prompts of the hands of user %q take more than a quarter of a prompt with the other tools: the model is not offered them", user))
			}
		}
	}
	if c.isOffline() && c.boundaryMode() != boundary.ModeDelimit {
		notes = append(notes, fmt.Sprintf("boundary.mode is %q: the offline model quotes what it is shown as it stands, marks and base64 included", c.Boundary.Mode))
	}
	for _, a := range c.agents() {
		switch {
		case a.Memory.System != MemoryStructured:
		case c.isOffline():
			notes = append(notes, fmt.Sprintf("agent %q has structured memory and the offline model, which learns nothing: it is shown what was remembered before, and what users write themselves", a.Name))
		case c.Sessions.gapSecs() == 0:
			notes = append(notes, fmt.Sprintf("agent %q has structured memory and sessions.gap_secs is 0: what is noted waits for glovebox memory dream", a.Name))
		}
	}
	return notes
}

// DefaultData is $GLOVEBOX_HOME, else glovebox in the user's data directory.
func DefaultData() (string, error) {
	if dir := os.Getenv("GLOVEBOX_HOME"); dir != "" {
		return dir, nil
	}
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "glovebox"), nil
	}
	if runtime.GOOS == "windows" || runtime.GOOS == "darwin" {
		dir, err := os.UserConfigDir()
		if err != nil {
			return "", fmt.Errorf("find a data directory: %w: name one with --data or $GLOVEBOX_HOME", err)
		}
		return filepath.Join(dir, "glovebox"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find a data directory: %w: name one with --data or $GLOVEBOX_HOME", err)
	}
	return filepath.Join(home, ".local", "share", "glovebox"), nil
}

// DatabasePath is where the sessions are.
func (c *Config) DatabasePath() (string, error) {
	if c.Store.Path != "" {
		return c.Store.Path, nil
	}
	data := c.Data
	if data == "" {
		var err error
		if data, err = DefaultData(); err != nil {
			return "", err
		}
	}
	return filepath.Join(data, "glovebox.db"), nil
}

// secret resolves env:NAME and file:PATH.
func secret(reference string) (string, error) {
	if name, ok := strings.CutPrefix(reference, "env:"); ok {
		value := os.Getenv(name)
		if value == "" {
			return "", fmt.Errorf("the environment has no %s", name)
		}
		return value, nil
	}
	path := strings.TrimPrefix(reference, "file:")
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("no secret at %s", path)
	case err != nil:
		return "", fmt.Errorf("read secret: %w", err)
	}
	value := strings.TrimSpace(string(data))
	if value == "" {
		return "", fmt.Errorf("the secret at %s is empty", path)
	}
	return value, nil
}

// localZone names the machine's time zone, as it was within the last zoneKept: to
// find it reads a link and the zone's file.
func localZone() string {
	if last := lastZone.Load(); last != nil && time.Since(last.at) < zoneKept {
		return last.name
	}
	z := zoneRead{findZone(), time.Now()}
	lastZone.Store(&z)
	return z.name
}

// zoneKept is how late a host knows of a machine that has moved.
const zoneKept = time.Minute

type zoneRead struct {
	name string
	at   time.Time
}

var lastZone atomic.Pointer[zoneRead]

func findZone() string {
	// $TZ may be a name, or a path to the zone's file.
	name := time.Local.String()
	if _, inZoneinfo, ok := strings.Cut(name, "zoneinfo/"); ok {
		name = inZoneinfo
	}
	if name = strings.TrimPrefix(name, ":"); name != "Local" && name != "" {
		if _, err := time.LoadLocation(name); err == nil {
			return name
		}
	}
	if target, err := os.Readlink("/etc/localtime"); err == nil {
		if _, name, ok := strings.Cut(target, "zoneinfo/"); ok {
			if _, err := time.LoadLocation(name); err == nil {
				return name
			}
		}
	}
	return "UTC"
}
