package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gloveboxhq/glovebox/compaction"
	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/memory"
)

const (
	// maxLine bounds one line of input.
	maxLine = 1 << 20
	// patience is how long the end of a talk waits for what goes on in the
	// background, unnoticed how long without a word.
	patience, unnoticed = 30 * time.Second, 500 * time.Millisecond
)

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
			talked := a.talk(c, h, user, agent, session)
			return cmp.Or(talked, a.finish(c.Context(), h))
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
	lines := readLines(c.Context(), a.stdin)
	failed := false
	for {
		if a.terminal {
			a.printf("> ")
		}
		select {
		case <-c.Context().Done():
			return c.Context().Err()
		case line, ok := <-lines:
			switch {
			case !ok && failed && !a.terminal:
				return errReported
			case !ok:
				return nil
			case line.err != nil:
				return fmt.Errorf("read input: %w", line.err)
			case line.tooLong:
				failed = true
				fmt.Fprintf(a.stderr, "glovebox: error: a line of more than %d bytes was not sent\n", maxLine)
				continue
			}
			if message.Text = strings.TrimSpace(line.text); message.Text == "" {
				continue
			}
			answer, err := h.Send(c.Context(), message)
			if !answer.Session.IsZero() {
				message.Session = answer.Session
			}
			if err != nil {
				if c.Context().Err() != nil {
					return err
				}
				// What was said is kept; the next line may fare better.
				failed = true
				fmt.Fprintf(a.stderr, "glovebox: error: %v\n", err)
				if a.asJSON {
					if err := a.printJSON(map[string]any{"session": message.Session.String(), "error": err.Error()}); err != nil {
						return err
					}
				}
				continue
			}
			if err := a.printAnswer(answer); err != nil {
				return err
			}
		}
	}
}

// finish waits for what the talk began in the background: a process that ends at once
// would leave a summary to the next time, and pay for it twice.
func (a *app) finish(ctx context.Context, h *host.Host) error {
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	quick, cancel := context.WithTimeout(ctx, unnoticed)
	defer cancel()
	if h.Idle(quick) == nil {
		return nil
	}
	if a.terminal && ctx.Err() == nil {
		fmt.Fprintln(a.stderr, "summarising what was said; Ctrl-C leaves it for the next time")
	}
	if err := h.Idle(bounded); err != nil && ctx.Err() == nil {
		fmt.Fprintf(a.stderr, "glovebox: what goes on in the background is left for the next time, after %s\n", patience)
	}
	return ctx.Err()
}

// inputLine is one line of input, or why there is none.
type inputLine struct {
	text    string
	tooLong bool
	err     error
}

// readLines reads in the background, for a read cannot be interrupted. The
// channel is closed at the end of the input. The reader is left behind when ctx
// is done first.
func readLines(ctx context.Context, from io.Reader) <-chan inputLine {
	lines := make(chan inputLine)
	send := func(l inputLine) bool {
		select {
		case lines <- l:
			return true
		case <-ctx.Done():
			return false
		}
	}
	go func() {
		defer close(lines)
		reader := bufio.NewReaderSize(from, 64<<10)
		for {
			line, err := readLine(reader)
			if line.text != "" || line.tooLong || err == nil {
				if !send(line) {
					return
				}
			}
			if err != nil {
				if !errors.Is(err, io.EOF) {
					send(inputLine{err: err})
				}
				return
			}
		}
	}()
	return lines
}

// readLine reads one line, of which at most maxLine bytes are kept.
func readLine(reader *bufio.Reader) (inputLine, error) {
	var text []byte
	for {
		piece, err := reader.ReadSlice('\n')
		if len(text) <= maxLine {
			text = append(text, piece...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if len(text) > maxLine {
			return inputLine{tooLong: true}, err
		}
		return inputLine{text: string(text)}, err
	}
}

// chatAnswer is one answer as JSON.
type chatAnswer struct {
	Session string   `json:"session"`
	Text    string   `json:"text"`
	Tokens  int      `json:"prompt_tokens"`
	Refresh []string `json:"refresh"`
}

func (a *app) printAnswer(answer host.Answer) error {
	text := memory.Plain(answer.Message.Blocks)
	if a.asJSON {
		out := chatAnswer{Session: answer.Session.String(), Text: text, Tokens: answer.Report.Tokens, Refresh: []string{}}
		for _, b := range answer.Gap.Refresh.Blocks {
			out.Refresh = append(out.Refresh, b.Source)
		}
		return a.printJSON(out)
	}
	if answer.Gap.Reason != compaction.ReasonNotDue && len(answer.Gap.Refresh.Blocks) > 0 {
		fmt.Fprintf(a.stderr, "(brought up to date by %d hands, %d tokens)\n", len(answer.Gap.Refresh.Blocks), answer.Gap.Refresh.Tokens())
	}
	a.printf("%s\n", printable(text))
	return nil
}
