package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gloveboxhq/glovebox/compaction"
	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/memory"
)

// maxLine bounds one line of input.
const maxLine = 1 << 20

func (a *app) chat() *cobra.Command {
	var user, agent, session string
	c := &cobra.Command{
		Use:   "chat",
		Short: "Talk in the terminal",
		Long: "Talk in the terminal, a line a message. With no conversation named, the last one of the user goes on;\n" +
			"--session new begins another. End with Ctrl-D.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			config, err := a.config()
			if err != nil {
				return err
			}
			h, err := open(c.Context(), config)
			if err != nil {
				return err
			}
			defer h.Close()
			return a.talk(c, h, user, agent, session)
		},
	}
	c.Flags().StringVar(&user, "user", memory.DefaultUserName, "who talks")
	c.Flags().StringVar(&agent, "agent", "", "who answers (default the first configured agent)")
	c.Flags().StringVar(&session, "session", "last", "conversation to go on with: an id, last or new")
	return c
}

func (a *app) talk(c *cobra.Command, h *host.Host, userName, agentName, session string) error {
	user, err := h.User(userName)
	if err != nil {
		return err
	}
	agent, err := h.Agent(agentName)
	if err != nil {
		return err
	}
	message := host.Message{User: user.ID, Agent: agent.Name}
	switch session {
	case "new":
	case "last":
		sessions, err := h.Store().Sessions(c.Context(), user.ID, memory.SessionQuery{Agent: agent.ID, Limit: 1})
		if err != nil {
			return err
		}
		if len(sessions) > 0 {
			message.Session = sessions[0].ID
		}
	default:
		s, err := find(c, h.Store(), user.ID, session)
		if err != nil {
			return err
		}
		message.Session = s.ID
	}
	lines := bufio.NewScanner(a.stdin)
	lines.Buffer(nil, maxLine)
	for {
		if onTerminal(a.stdout) {
			a.printf("> ")
		}
		if !lines.Scan() {
			break
		}
		if message.Text = strings.TrimSpace(lines.Text()); message.Text == "" {
			continue
		}
		answer, err := h.Send(c.Context(), message)
		message.Session = answer.Session
		if err != nil {
			if c.Context().Err() != nil {
				return err
			}
			// What was said is kept; the next line may fare better.
			fmt.Fprintf(a.stderr, "glovebox: error: %v\n", err)
			continue
		}
		a.printAnswer(answer)
	}
	if err := lines.Err(); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read input: %w", err)
	}
	return nil
}

// chatAnswer is one answer as JSON.
type chatAnswer struct {
	Session string   `json:"session"`
	Text    string   `json:"text"`
	Tokens  int      `json:"prompt_tokens"`
	Refresh []string `json:"refresh"`
}

func (a *app) printAnswer(answer host.Answer) {
	text := memory.Plain(answer.Message.Blocks)
	if a.asJSON {
		out := chatAnswer{Session: answer.Session.String(), Text: text, Tokens: answer.Report.Tokens, Refresh: []string{}}
		for _, b := range answer.Gap.Refresh.Blocks {
			out.Refresh = append(out.Refresh, b.Source)
		}
		_ = a.printJSON(out)
		return
	}
	if answer.Gap.Reason != compaction.ReasonNotDue && len(answer.Gap.Refresh.Blocks) > 0 {
		fmt.Fprintf(a.stderr, "(brought up to date by %d hands, %d tokens)\n", len(answer.Gap.Refresh.Blocks), answer.Gap.Refresh.Tokens())
	}
	a.printf("%s\n", printable(text))
}
