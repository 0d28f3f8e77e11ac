package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/compaction"
	"github.com/gloveboxhq/glovebox/compaction/assembly"
	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/llm"
	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/testdata/demo"
)

// demoZone is where the sample week takes place.
const demoZone = "Europe/Berlin"

func (a *app) demo() *cobra.Command {
	var o demoOptions
	c := &cobra.Command{
		Use:   "demo",
		Short: "Play a week of work through the host, with both bundled hands",
		Long: "Play a recorded conversation through the host: hands are asked, their text is framed and injected, the\n" +
			"conversation is compacted, and the last prompt is taken apart. Everything happens in a directory that is\n" +
			"thrown away, unless --data names one to keep.\n\n" +
			"With a calendar or mailbox of your own and no --transcript, the sample conversation is moved so that it ends\n" +
			"today, and only the hands that you brought something for are asked. The answers are recorded: whatever model a\n" +
			"configuration names, none is asked.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.playDemo(c.Context(), o) },
	}
	c.Flags().StringVar(&o.calendar, "calendar", "", "folder with .ics files (default the sample)")
	c.Flags().StringVar(&o.mail, "mail", "", "folder with mailboxes (default the sample)")
	c.Flags().StringVar(&o.transcript, "transcript", "", `conversation, one {"role","content","at"} a line (default the sample)`)
	c.Flags().StringVar(&o.at, "at", "", "move the sample conversation by whole days so that it ends on this date")
	return c
}

type demoOptions struct{ calendar, mail, transcript, at string }

// line is one line of a transcript.
type line struct {
	Role    memory.Role `json:"role"`
	Content string      `json:"content"`
	At      time.Time   `json:"at"`
}

// exchange is what a user said and what was answered.
type exchange struct{ user, assistant line }

// demoResult is what demo --json prints.
type demoResult struct {
	Exchanges   int              `json:"exchanges"`
	Refreshes   []demoRefresh    `json:"refreshes"`
	Compactions []demoCompaction `json:"compactions"`
	Prompt      demoPrompt       `json:"prompt"`
	Messages    int              `json:"messages"`
	Summaries   int              `json:"summaries"`
	Seconds     float64          `json:"seconds"`
}

type demoRefresh struct {
	Trigger memory.Trigger `json:"trigger"`
	At      time.Time      `json:"at"`
	Blocks  []demoBlock    `json:"blocks"`
	Skipped []demoSkipped  `json:"skipped"`
}

type demoBlock struct {
	Source string `json:"source"`
	Tokens int    `json:"tokens"`
	Bytes  int    `json:"bytes"`
}

type demoSkipped struct {
	Source string `json:"source"`
	Reason string `json:"reason"`
	// Said is the hand's own account, neutralised.
	Said string `json:"said,omitempty"`
}

type demoCompaction struct {
	Trigger      memory.Trigger `json:"trigger"`
	ItemsBefore  int            `json:"items_before"`
	ItemsAfter   int            `json:"items_after"`
	TokensBefore int            `json:"tokens_before"`
	TokensAfter  int            `json:"tokens_after"`
}

type demoPrompt struct {
	Tokens int `json:"tokens"`
	Budget int `json:"budget"`
	Items  int `json:"items"`
}

func (a *app) playDemo(ctx context.Context, o demoOptions) error {
	began := time.Now()
	exchanges, err := o.exchanges()
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "glovebox-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	config, err := a.demoConfig(o, temp)
	if err != nil {
		return err
	}
	play := &playback{at: exchanges[0].user.At}
	config.LLM, config.Now, config.Summarizer = play, play.now, compaction.NewOffline()
	var reports reportLog
	config.OnCompaction = reports.add
	h, err := open(ctx, config)
	if err != nil {
		return err
	}
	defer h.Close()
	if err := refuseUsed(ctx, h); err != nil {
		return err
	}
	ready := time.Since(began)

	result := demoResult{Exchanges: len(exchanges), Refreshes: []demoRefresh{}, Compactions: []demoCompaction{}}
	var last host.Answer
	for i, e := range exchanges {
		a.progress(i, len(exchanges))
		play.next(e)
		last, err = h.Send(ctx, host.Message{Session: last.Session, Text: e.user.Content})
		if err != nil {
			return fmt.Errorf("exchange %d: %w", i+1, err)
		}
		// The cadence run of this exchange is to see this exchange's clock.
		if err := h.Idle(ctx); err != nil {
			return err
		}
		a.report(&result, last.Gap)
		for _, r := range reports.take() {
			a.report(&result, r)
		}
	}
	a.progress(len(exchanges), len(exchanges))
	return a.finishDemo(ctx, h, last, result, ready, began)
}

// refuseUsed keeps the recorded week from a data directory that is in use: its
// clock would not fit the conversations that are there.
func refuseUsed(ctx context.Context, h *host.Host) error {
	user, err := h.User("")
	if err != nil {
		return err
	}
	sessions, err := h.Store().Sessions(ctx, user.ID, memory.SessionQuery{Limit: 1})
	if err == nil && len(sessions) > 0 {
		err = usagef("--data: the directory has conversations already: name another, or leave it out")
	}
	return err
}

func (a *app) finishDemo(ctx context.Context, h *host.Host, last host.Answer, result demoResult, ready time.Duration, began time.Time) error {
	user, err := h.User("")
	if err != nil {
		return err
	}
	session, err := h.Store().Session(ctx, user.ID, last.Session)
	if err != nil {
		return err
	}
	summaries, err := h.Store().Summaries(ctx, user.ID, last.Session)
	if err != nil {
		return err
	}
	for _, e := range last.Report.Entries {
		if e.Included && e.Kind != assembly.KindSystem {
			result.Prompt.Items++
		}
	}
	result.Prompt.Tokens, result.Prompt.Budget = last.Report.Tokens, last.Report.Budget
	result.Messages, result.Summaries = session.Messages, len(summaries)
	result.Seconds = time.Since(began).Seconds()
	if a.asJSON {
		return a.printJSON(result)
	}
	a.printf("== The last prompt: what the model was shown\n\n")
	a.printContents(last.Report, sampleZone())
	whole := 0
	if err := forEachStored(ctx, h.Store(), user.ID, last.Session, func(m memory.Message) { whole += m.Tokens }); err != nil {
		return err
	}
	a.printf("\nThe whole conversation is %d tokens in %d messages, all of them kept; %d summaries stand for the oldest.\n", whole, result.Messages, result.Summaries)
	a.offlineAnswer(ctx, last.Prompt)
	a.printf("\n%d exchanges, %d refreshes, %d compactions in %.1f s, %.1f s of them to load the hands.\n",
		result.Exchanges, len(result.Refreshes), len(result.Compactions), result.Seconds, ready.Seconds())
	return nil
}

// offlineAnswer shows what the model that needs no network makes of the same
// prompt; the answers in the transcript are recorded.
func (a *app) offlineAnswer(ctx context.Context, prompt assembly.Prompt) {
	request := llm.Request{System: prompt.System, MaxOutputTokens: 400}
	for _, m := range prompt.Messages {
		role := llm.RoleUser
		if m.Role == memory.RoleAssistant {
			role = llm.RoleAssistant
		}
		request.Messages = append(request.Messages, llm.Message{Role: role, Text: m.Text()})
	}
	response, err := llm.NewExtractive().Complete(ctx, request)
	if err != nil {
		return
	}
	a.printf("\n== What the offline model answers to that prompt\n\n%s\n", indented(response.Text))
}

func forEachStored(ctx context.Context, store memory.Store, user memory.UserID, session memory.SessionID, visit func(memory.Message)) error {
	messages, err := store.Messages(ctx, user, session, memory.MessageQuery{})
	for _, m := range messages {
		visit(m)
	}
	return err
}

// report adds one compaction run to the result and shows it.
func (a *app) report(result *demoResult, r compaction.Report) {
	if r.Refresh.Message != nil || len(r.Refresh.Skipped) > 0 {
		refresh := demoRefresh{Trigger: r.Trigger, At: r.At.UTC(), Blocks: []demoBlock{}, Skipped: []demoSkipped{}}
		for _, b := range r.Refresh.Blocks {
			refresh.Blocks = append(refresh.Blocks, demoBlock{b.Source, b.Content.Tokens(), len(memory.Plain([]memory.Block{memory.External(b.Content)}))})
		}
		for _, s := range r.Refresh.Skipped {
			refresh.Skipped = append(refresh.Skipped, demoSkipped{s.Source, s.Reason, boundary.Neutral(s.Said)})
		}
		result.Refreshes = append(result.Refreshes, refresh)
		a.showRefresh(r)
	}
	if r.Sweep.Changed() {
		result.Compactions = append(result.Compactions, demoCompaction{
			r.Trigger, r.Sweep.ItemsBefore, r.Sweep.ItemsAfter, r.Sweep.TokensBefore, r.Sweep.TokensAfter,
		})
		if !a.asJSON {
			saved := r.Sweep.TokensBefore - r.Sweep.TokensAfter
			a.printf("-- compacted (%s): %d → %d items, %d → %d tokens, %d %% saved\n\n", r.Trigger,
				r.Sweep.ItemsBefore, r.Sweep.ItemsAfter, r.Sweep.TokensBefore, r.Sweep.TokensAfter, 100*saved/max(r.Sweep.TokensBefore, 1))
		}
	}
}

func (a *app) showRefresh(r compaction.Report) {
	if a.asJSON {
		return
	}
	zone := sampleZone()
	a.printf("== %s, %s: asked about %s to %s\n\n", r.Trigger, r.At.In(zone).Format("Mon 2 Jan 15:04"),
		r.Refresh.From.In(zone).Format("Mon 15:04"), r.Refresh.To.In(zone).Format("Mon 15:04"))
	for _, b := range r.Refresh.Blocks {
		a.printf("%s\n    (%d tokens in %d ms)\n\n", indented(b.Content.Render()), b.Content.Tokens(), b.Took.Milliseconds())
	}
	for _, s := range r.Refresh.Skipped {
		a.printf("    %s: %s\n\n", s.Source, s.Reason)
		if !s.Said.IsEmpty() {
			a.printf("%s\n\n", indented(s.Said.Render()))
		}
	}
}

// sampleZone is the zone of demoZone, or UTC on a machine that does not know it.
func sampleZone() *time.Location {
	zone, err := time.LoadLocation(demoZone)
	if err != nil {
		return time.UTC
	}
	return zone
}

func (a *app) progress(done, all int) {
	if a.asJSON || !onTerminal(a.stderr) {
		return
	}
	fmt.Fprintf(a.stderr, "\r%d of %d exchanges", done, all)
	if done == all {
		fmt.Fprint(a.stderr, "\r\x1b[K")
	}
}

// demoConfig is the file's configuration, or the sample's, with the folders
// that the command line names.
func (a *app) demoConfig(o demoOptions, temp string) (host.Config, error) {
	config := host.Config{}
	if a.configPath != "" {
		var err error
		if config, err = host.LoadConfig(a.configPath); err != nil {
			return config, err
		}
	} else {
		config.Compaction = host.CompactionConfig{ContinuousInterval: 5, KeepRecent: 6, GapSecs: 900}
		config.Sessions.Timezone = demoZone
	}
	config = a.finished(config, temp)
	if a.data != "" {
		config.Data = a.data
	}
	// The conversations of the configuration's own database are no place for
	// a recorded one.
	config.Store.Path = ""
	if len(config.Hands) > 0 && o.calendar == "" && o.mail == "" {
		return config, nil
	}
	if err := unpack(demo.Files, temp); err != nil {
		return config, fmt.Errorf("unpack the sample data: %w", err)
	}
	calendar, mail := o.calendar, o.mail
	if calendar == "" && mail == "" {
		calendar, mail = filepath.Join(temp, "calendars"), filepath.Join(temp, "mail")
	}
	if config.Hands == nil {
		config.Hands = map[string]host.HandConfig{}
	}
	for _, hand := range []struct{ name, root, dir, prompt string }{
		{"calendar", "calendars", calendar, "Summarize calendar events in the window and upcoming in the next 24h."},
		{"mail", "mail", mail, "Which unread or notable mail came in?"},
	} {
		if hand.dir == "" {
			continue
		}
		dir, err := filepath.Abs(hand.dir)
		if err != nil {
			return config, err
		}
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return config, fmt.Errorf("--%s: %s is not a directory that can be read", hand.name, hand.dir)
		}
		config.Hands[hand.name] = host.HandConfig{Module: bundledPrefix + hand.name, Grant: host.GrantConfig{Files: map[string]string{hand.root: dir}}}
		if !asked(config, hand.name) {
			config.Compaction.ContextSources = append(config.Compaction.ContextSources, host.ContextSource{Hand: hand.name, Prompt: hand.prompt})
		}
	}
	return config, nil
}

func asked(config host.Config, hand string) bool {
	for _, s := range config.Compaction.ContextSources {
		if s.Hand == hand {
			return true
		}
	}
	return false
}

// unpack writes the sample data to a directory, for hands read directories.
func unpack(from fs.FS, dir string) error {
	return fs.WalkDir(from, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(dir, filepath.FromSlash(name))
		if d.IsDir() {
			return os.MkdirAll(to, 0o700)
		}
		data, err := fs.ReadFile(from, name)
		if err != nil {
			return err
		}
		return os.WriteFile(to, data, 0o600)
	})
}

func (o demoOptions) exchanges() ([]exchange, error) {
	if o.transcript != "" {
		if o.at != "" {
			return nil, usagef("--at moves the sample conversation; a transcript of your own has its own times")
		}
		file, err := os.Open(o.transcript)
		if err != nil {
			return nil, fmt.Errorf("read transcript: %w", err)
		}
		defer file.Close()
		return readTranscript(file, o.transcript)
	}
	data, err := fs.ReadFile(demo.Files, "transcript.jsonl")
	if err != nil {
		return nil, err
	}
	exchanges, err := readTranscript(bytes.NewReader(data), "transcript.jsonl")
	if err != nil {
		return nil, err
	}
	var end time.Time
	switch {
	case o.at != "":
		if end, err = parseTime(o.at); err != nil {
			return nil, usagef("--at: %w", err)
		}
	case o.calendar != "" || o.mail != "":
		end = time.Now()
	default:
		return exchanges, nil
	}
	// Whole days, so that mornings stay mornings.
	days := int(end.Sub(exchanges[len(exchanges)-1].assistant.At).Hours() / 24)
	for i := range exchanges {
		exchanges[i].user.At = exchanges[i].user.At.AddDate(0, 0, days)
		exchanges[i].assistant.At = exchanges[i].assistant.At.AddDate(0, 0, days)
	}
	return exchanges, nil
}

// maxTranscriptLine bounds one line of a transcript.
const maxTranscriptLine = 16 << 20

// readTranscript reads and pairs the lines; neighbours of one role are one
// message. Other keys than the three are ignored. Errors name the line.
func readTranscript(r io.Reader, name string) ([]exchange, error) {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, maxTranscriptLine)
	var exchanges []exchange
	var before line
	n := 1
	for ; scanner.Scan(); n++ {
		text := strings.TrimPrefix(scanner.Text(), "\ufeff")
		if strings.TrimSpace(text) == "" {
			continue
		}
		fail := func(format string, args ...any) ([]exchange, error) {
			return nil, fmt.Errorf("%s:%d: %s", name, n, fmt.Sprintf(format, args...))
		}
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			return fail(`not a line {"role": "user" or "assistant", "content": text, "at": a time in RFC 3339}`)
		}
		switch {
		case strings.TrimSpace(l.Content) == "":
			return fail("content is empty")
		case l.At.IsZero():
			return fail("at is missing: write the time in RFC 3339")
		case l.At.Before(before.At):
			return fail("at is before that of the line above")
		case l.Role != memory.RoleUser && l.Role != memory.RoleAssistant:
			return fail("role %q is neither user nor assistant", l.Role)
		case l.Role == memory.RoleUser && before.Role != memory.RoleUser:
			exchanges = append(exchanges, exchange{user: l})
		case len(exchanges) == 0:
			return fail("the assistant speaks first: a transcript begins with the user")
		case l.Role == memory.RoleUser:
			exchanges[len(exchanges)-1].user = l.after(exchanges[len(exchanges)-1].user)
		default:
			exchanges[len(exchanges)-1].assistant = l.after(exchanges[len(exchanges)-1].assistant)
		}
		before = l
	}
	switch err := scanner.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return nil, fmt.Errorf("%s:%d: the line is longer than %d MiB", name, n, maxTranscriptLine>>20)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(exchanges) == 0 {
		return nil, fmt.Errorf("%s: the transcript is empty", name)
	}
	if before.Role != memory.RoleAssistant {
		return nil, fmt.Errorf("%s: the last message has no answer: end with one of role assistant", name)
	}
	return exchanges, nil
}

// after joins a line to the one that it goes on with; an absent one has no
// role.
func (l line) after(before line) line {
	if before.Role != "" {
		l.Content = before.Content + "\n\n" + l.Content
	}
	return l
}

// playback is a model whose answers are recorded, and the clock that goes with
// them.
type playback struct {
	mu     sync.Mutex
	at     time.Time
	answer line
}

func (p *playback) next(e exchange) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at, p.answer = e.user.At, e.assistant
}

func (p *playback) now() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.at
}

// Complete implements llm.Model.
func (p *playback) Complete(ctx context.Context, r llm.Request) (llm.Response, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.answer.Content == "" {
		return llm.Response{}, errors.New("the recording has no answer")
	}
	p.at = p.answer.At
	input := tokens.Estimate(r.System)
	for _, m := range r.Messages {
		input += tokens.Estimate(m.Text)
	}
	return llm.Response{Text: p.answer.Content, InputTokens: input, OutputTokens: tokens.Estimate(p.answer.Content), Model: "recording"}, ctx.Err()
}

// reportLog collects what the background tells.
type reportLog struct {
	mu      sync.Mutex
	reports []compaction.Report
}

func (l *reportLog) add(r compaction.Report) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reports = append(l.reports, r)
}

func (l *reportLog) take() []compaction.Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.reports
	l.reports = nil
	return taken
}
