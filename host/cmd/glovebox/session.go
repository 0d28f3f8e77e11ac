package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/gloveboxhq/glovebox/compaction/assembly"
	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/sqlite"
)

func (a *app) session() *cobra.Command {
	return group("session", "Look at conversations", a.sessionList(), a.sessionShow(), a.sessionStatus(), a.sessionContext(), a.sessionSearch(),
		a.sessionExpand(), a.sessionCompact(), a.sessionExport(), a.sessionImport(), a.sessionDelete())
}

// reader opens the session database for reading, beside whoever writes it.
func (a *app) reader(c *cobra.Command) (memory.Store, error) {
	path, err := a.databasePath()
	if err != nil {
		return nil, err
	}
	return sqlite.Open(c.Context(), path, sqlite.Options{ReadOnly: true})
}

// userFlag adds --user to a command.
func userFlag(c *cobra.Command, name *string) {
	c.Flags().StringVar(name, "user", memory.DefaultUserName, "whose conversations")
}

func userNamed(c *cobra.Command, store memory.Store, name string) (memory.User, error) {
	users, err := store.Users(c.Context())
	if err != nil {
		return memory.User{}, err
	}
	var names []string
	for _, u := range users {
		if u.Name == name || name == memory.DefaultUserName && u.IsDefault {
			return u, nil
		}
		names = append(names, u.Name)
	}
	return memory.User{}, fmt.Errorf("no user %q: there are %v", name, names)
}

// find returns the user's session that id names; "last" is the one that was
// active last.
func find(c *cobra.Command, store memory.Store, user memory.UserID, id string) (memory.Session, error) {
	if id == "last" {
		sessions, err := store.Sessions(c.Context(), user, memory.SessionQuery{Limit: 1})
		if err != nil {
			return memory.Session{}, err
		}
		if len(sessions) == 0 {
			return memory.Session{}, errors.New("there is no session yet: begin with glovebox chat")
		}
		return sessions[0], nil
	}
	parsed, err := memory.ParseID[memory.SessionID](id)
	if err != nil {
		return memory.Session{}, usagef("session %q: give an id from glovebox session list, or last", id)
	}
	session, err := store.Session(c.Context(), user, parsed)
	if errors.Is(err, memory.ErrNotFound) {
		return memory.Session{}, fmt.Errorf("no session %s of this user: glovebox session list shows them", id)
	}
	return session, err
}

// withUser opens the database for reading and finds the user.
func (a *app) withUser(c *cobra.Command, name string, run func(memory.Store, memory.User) error) error {
	store, err := a.reader(c)
	if err != nil {
		return err
	}
	defer store.Close()
	user, err := userNamed(c, store, name)
	if err != nil {
		return err
	}
	return run(store, user)
}

// withSession finds the user's session too.
func (a *app) withSession(c *cobra.Command, name, id string, run func(memory.Store, memory.User, memory.Session) error) error {
	return a.withUser(c, name, func(store memory.Store, user memory.User) error {
		session, err := find(c, store, user.ID, id)
		if err != nil {
			return err
		}
		return run(store, user, session)
	})
}

func (a *app) sessionList() *cobra.Command {
	var user string
	c := &cobra.Command{
		Use: "list", Short: "List conversations, the last active first", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.withUser(c, user, func(store memory.Store, u memory.User) error {
				sessions, err := store.Sessions(c.Context(), u.ID, memory.SessionQuery{})
				if err != nil {
					return err
				}
				if a.asJSON {
					return a.printJSON(append([]memory.Session{}, sessions...))
				}
				for _, s := range sessions {
					a.printf("%s  %s  %4d messages  %3d exchanges  %s%s\n", s.ID, s.LastActive.Local().Format("2006-01-02 15:04"), s.Messages, s.Exchanges, oneLine(s.Title), origin(s))
				}
				return nil
			})
		},
	}
	userFlag(c, &user)
	return c
}

// origin tells what a session is called and what it was forked from, after
// something else; "" if neither.
func origin(s memory.Session) string {
	text := ""
	if s.Name != "" {
		text += "  named " + strconv.Quote(s.Name)
	}
	if !s.Parent.IsZero() {
		text += "  from " + s.Parent.String()
	}
	return text
}

// shownMessage is one message as session show and export print it: external
// text is neutral and keeps its source.
type shownMessage struct {
	Seq     int64         `json:"seq"`
	ID      string        `json:"id"`
	At      time.Time     `json:"at"`
	Role    memory.Role   `json:"role"`
	Source  memory.Source `json:"source,omitempty"`
	Trust   memory.Trust  `json:"trust"`
	Tokens  int           `json:"tokens"`
	Content string        `json:"content"`
}

func shown(m memory.Message) shownMessage {
	return shownMessage{m.Seq, m.ID.String(), m.At, m.Role, m.Source, m.Trust, m.Tokens, memory.Shown(m.Blocks)}
}

// messagesPage bounds how many messages are in memory at once.
const messagesPage = 500

// eachMessage calls visit for every message of a session, in order.
func eachMessage(c *cobra.Command, store memory.Store, user memory.UserID, session memory.SessionID, visit func(memory.Message) error) error {
	for after := int64(0); ; {
		page, err := store.Messages(c.Context(), user, session, memory.MessageQuery{After: after, Limit: messagesPage})
		if err != nil {
			return err
		}
		for _, m := range page {
			if err := visit(m); err != nil {
				return err
			}
			after = m.Seq
		}
		if len(page) < messagesPage {
			return nil
		}
	}
}

func (a *app) sessionShow() *cobra.Command {
	var user string
	c := &cobra.Command{
		Use: "show SESSION|last", Short: "Show a conversation, its summaries and compactions", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withSession(c, user, args[0], func(store memory.Store, u memory.User, session memory.Session) error {
				summaries, err := store.Summaries(c.Context(), u.ID, session.ID)
				if err != nil {
					return err
				}
				runs, err := store.Compactions(c.Context(), u.ID, session.ID, 0)
				if err != nil {
					return err
				}
				if a.asJSON {
					return a.printWhole(c, store, u.ID, session, summaries, runs)
				}
				if from := origin(session); from != "" {
					a.printf("session %s%s\n\n", session.ID, from)
				}
				if err := eachMessage(c, store, u.ID, session.ID, func(m memory.Message) error {
					a.printf("#%d %s %s (%d tokens)\n%s\n\n", m.Seq, m.At.Local().Format("2006-01-02 15:04"), speaker(m), m.Tokens, indented(memory.Shown(m.Blocks)))
					return nil
				}); err != nil {
					return err
				}
				for _, s := range summaries {
					a.printf("summary %s (%s, %s, %d tokens)\n%s\n\n", s.ID, s.Level, s.Model, s.Tokens, indented(s.Shown()))
				}
				for _, r := range runs {
					a.printf("%s %s %s: %d → %d items, %d → %d tokens, %d refresh blocks %s\n", r.StartedAt.Local().Format("2006-01-02 15:04"),
						r.Trigger, r.Outcome, r.ItemsBefore, r.ItemsAfter, r.TokensBefore, r.TokensAfter, r.RefreshBlocks, printable(r.Reason))
				}
				return nil
			})
		},
	}
	userFlag(c, &user)
	return c
}

// printWhole prints a conversation with everything made from it as JSON.
func (a *app) printWhole(c *cobra.Command, store memory.Store, user memory.UserID, session memory.Session, summaries []memory.Summary, runs []memory.CompactionRun) error {
	messages := []shownMessage{}
	if err := eachMessage(c, store, user, session.ID, func(m memory.Message) error {
		messages = append(messages, shown(m))
		return nil
	}); err != nil {
		return err
	}
	return a.printJSON(struct {
		Session     memory.Session         `json:"session"`
		Messages    []shownMessage         `json:"messages"`
		Summaries   []memory.Summary       `json:"summaries"`
		Compactions []memory.CompactionRun `json:"compactions"`
	}{session, messages, append([]memory.Summary{}, summaries...), append([]memory.CompactionRun{}, runs...)})
}

func speaker(m memory.Message) string {
	if m.Source != "" && string(m.Source) != string(m.Role) {
		return string(m.Role) + " (" + string(m.Source) + ")"
	}
	return string(m.Role)
}

func (a *app) sessionContext() *cobra.Command {
	var (
		user   string
		budget int
		dumped bool
	)
	c := &cobra.Command{
		Use: "context SESSION|last", Short: "Show what the model is shown, and why", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if budget < 0 || budget == 0 && c.Flags().Changed("budget") {
				return usagef("--budget %d: give a number of tokens, at least 1", budget)
			}
			config, err := a.config()
			if err != nil {
				return err
			}
			return a.withSession(c, user, args[0], func(store memory.Store, u memory.User, session memory.Session) error {
				in, err := host.PromptOf(c.Context(), config, store, u.ID, session.ID, budget)
				if err != nil {
					return err
				}
				if dumped {
					return a.printDump(in, config.Model.Tokenizer)
				}
				prompt, report, err := assembly.Assemble(in)
				if err != nil {
					return err
				}
				if a.asJSON {
					return a.printJSON(struct {
						Session  memory.SessionID   `json:"session"`
						Report   assembly.Report    `json:"report"`
						System   string             `json:"system"`
						Tools    []assembly.Tool    `json:"tools"`
						Messages []assembly.Message `json:"messages"`
					}{session.ID, report, prompt.System, append([]assembly.Tool{}, prompt.Tools...), prompt.Messages})
				}
				a.printf("system\n%s\n\n", indented(prompt.System))
				for _, m := range prompt.Messages {
					a.printf("%s\n%s\n\n", m.Role, indented(m.String()))
				}
				a.printContents(report, time.Local)
				return nil
			})
		},
	}
	userFlag(c, &user)
	c.Flags().IntVar(&budget, "budget", 0, "tokens that the prompt may cost (default the configured window)")
	c.Flags().BoolVar(&dumped, "dump", false, "write what the prompt is made of, for glovebox assemble --from")
	return c
}

// printContents is a prompt's table of contents.
func (a *app) printContents(report assembly.Report, zone *time.Location) {
	a.printf("%d of %d tokens", report.Tokens, report.Budget)
	if report.OverBudget {
		a.printf(", OVER BUDGET")
	}
	t := report.Totals
	a.printf(": system %d, tools %d, summaries %d, messages %d, last messages %d, live %d, beside the input %d, notes %d\n",
		t.System, t.Tools, t.Summaries, t.Messages, t.Tail, t.Live, t.Beside, t.Notes)
	p := report.Pressure
	a.printf("all of it would be %d %% of the budget (%s)", p.Percent, p.Level)
	if p.Advice != "" {
		a.printf(": %s", p.Advice)
	}
	a.printf("\n")
	if r := report.PrefixReuse; r.Tokens > 0 {
		a.printf("%.0f %% of the prompt begins as the one before it did\n", 100*r.Part())
	}
	if report.Recovery > assembly.RecoverNothing {
		a.printf("cut down because it was too long: %s\n", report.Recovery)
	}
	a.printf("%d rules of the provider are kept\n", len(report.Rules))
	for i, e := range report.Entries {
		mark := "  in"
		if !e.Included {
			mark = " out"
		}
		what := string(e.Kind)
		if e.Kind == assembly.KindMessage {
			what = string(e.Role)
		}
		when := ""
		if !e.At.IsZero() {
			when = e.At.In(zone).Format("2006-01-02 15:04")
		}
		a.printf("%4d %s  %-10s %-16s %6d  %s", i, mark, what, when, e.Tokens, e.Reason)
		if e.Items > 1 {
			a.printf(" (%d pieces)", e.Items)
		}
		if e.CoveredBy > 0 {
			a.printf(" (number %d)", e.CoveredBy)
		}
		for _, source := range e.External {
			a.printf("  [%s]", source)
		}
		a.printf("\n")
	}
}

func (a *app) sessionExport() *cobra.Command {
	var user string
	c := &cobra.Command{
		Use: "export SESSION|last", Short: "Write every message of a conversation as JSON lines", Args: cobra.ExactArgs(1),
		Long: "Write every message of a conversation as JSON lines, with its blocks as they are stored: external text is\n" +
			"neutralised and keeps its source.",
		RunE: func(c *cobra.Command, args []string) error {
			return a.withSession(c, user, args[0], func(store memory.Store, u memory.User, session memory.Session) error {
				encoder := json.NewEncoder(a.stdout)
				encoder.SetEscapeHTML(false)
				return eachMessage(c, store, u.ID, session.ID, func(m memory.Message) error { return encoder.Encode(m) })
			})
		},
	}
	userFlag(c, &user)
	return c
}

// oneLine shortens text for a list.
func oneLine(text string) string {
	const most = 60
	runes := []rune(text)
	for i, r := range runes {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			runes[i] = ' '
		}
	}
	if len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return string(runes)
}
