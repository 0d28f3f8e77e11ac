// Command hand-go is the sample hand in Go. It does what its prompt says, as
// abi/conformance/SAMPLE.md has it; smallest beside it is a hand to begin with.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/sdk/go/hand"
	"github.com/gloveboxhq/glovebox/sdk/go/hand/files"
	"github.com/gloveboxhq/glovebox/sdk/go/hand/http"
	"github.com/gloveboxhq/glovebox/sdk/go/hand/kv"
	"github.com/gloveboxhq/glovebox/sdk/go/hand/llm"
)

func init() { hand.Register(answer) }

func main() { hand.Main() }

// command gives the text of one line; false means that it gives none.
type command func(ctx context.Context, q hand.Query, arguments string) (text string, given bool, err error)

// What a command fails with in place of a kind of the contract.
var (
	errNotText   = errors.New("not text")
	errArguments = errors.New("bad arguments")
)

// failure ends the query.
type failure string

func (f failure) Error() string { return string(f) }

func answer(ctx context.Context, q hand.Query) (string, error) {
	var texts []string
	for line := range strings.Lines(q.Prompt) {
		word, arguments, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		run, known := commands[word]
		if !known {
			texts = append(texts, "error: unknown command "+word)
			continue
		}
		text, given, err := run(ctx, q, arguments)
		switch failed := failure(""); {
		case errors.As(err, &failed):
			return "", failed
		case errors.Is(err, errArguments):
			texts = append(texts, "error: bad arguments for "+word)
		case errors.Is(err, errNotText):
			texts = append(texts, "error: not text")
		case err != nil:
			texts = append(texts, "error: "+string(kindOf(err)))
		case given:
			texts = append(texts, text)
		}
	}
	return tokens.Cut(strings.Join(texts, "\n"), q.MaxOutputTokens), nil
}

// kindOf is why a call failed. Package files refuses paths that the host would
// refuse as denied before they get there; the files of a native test have no kinds.
func kindOf(err error) abi.Kind {
	kind := abi.KindOf(err)
	switch {
	case kind != "":
		return kind
	case errors.Is(err, fs.ErrInvalid):
		return abi.KindDenied
	case errors.Is(err, fs.ErrNotExist):
		return abi.KindNotFound
	}
	return abi.KindUnavailable
}

var commands = map[string]command{
	"say": func(_ context.Context, _ hand.Query, text string) (string, bool, error) { return text, true, nil },
	"query": func(_ context.Context, q hand.Query, _ string) (string, bool, error) {
		return fmt.Sprintf("from=%s\nto=%s\nnow=%s\ntimezone=%s\nmax_output_tokens=%d\nsubject=%s",
			second(q.From), second(q.To), second(q.Now), q.Timezone, q.MaxOutputTokens, q.Subject), true, nil
	},
	"config": config,
	"log":    log,
	"fail": func(_ context.Context, _ hand.Query, text string) (string, bool, error) {
		return "", false, failure(text)
	},
	"tokens": func(_ context.Context, _ hand.Query, text string) (string, bool, error) {
		return strconv.Itoa(tokens.Estimate(text)), true, nil
	},
	"cut": func(_ context.Context, _ hand.Query, arguments string) (string, bool, error) {
		n, text, _ := strings.Cut(arguments, " ")
		most, err := strconv.Atoi(n)
		if err != nil || len(n) > 9 || strings.Trim(n, "0123456789") != "" {
			return "", false, errArguments
		}
		return tokens.Cut(text, most), true, nil
	},
	"list": list,
	"read": func(ctx context.Context, _ hand.Query, path string) (string, bool, error) {
		data, err := fs.ReadFile(files.Root(ctx, root), inRoot(path))
		return text(data, err)
	},
	"size": func(ctx context.Context, _ hand.Query, path string) (string, bool, error) {
		data, err := fs.ReadFile(files.Root(ctx, root), inRoot(path))
		return strconv.Itoa(len(data)), true, err
	},
	"get": func(ctx context.Context, _ hand.Query, url string) (string, bool, error) {
		return fetch(ctx, http.Request{URL: url})
	},
	"post": func(ctx context.Context, _ hand.Query, arguments string) (string, bool, error) {
		url, body, _ := strings.Cut(arguments, " ")
		return fetch(ctx, http.Request{Method: "POST", URL: url, Header: http.Header{{"Content-Type", "text/plain"}}, Body: []byte(body), Timeout: 2 * time.Second})
	},
	"kv-set": func(ctx context.Context, _ hand.Query, arguments string) (string, bool, error) {
		key, value, two := strings.Cut(arguments, " ")
		if key == "" || !two {
			return "", false, errArguments
		}
		return "ok", true, kv.Set(ctx, key, []byte(value))
	},
	"kv-get": func(ctx context.Context, _ hand.Query, key string) (string, bool, error) {
		if key == "" {
			return "", false, errArguments
		}
		return text(kv.Get(ctx, key))
	},
	"kv-delete": func(ctx context.Context, _ hand.Query, key string) (string, bool, error) {
		if key == "" {
			return "", false, errArguments
		}
		return "ok", true, kv.Delete(ctx, key)
	},
	"kv-list": func(ctx context.Context, _ hand.Query, prefix string) (string, bool, error) {
		var keys []string
		for key, err := range kv.Keys(ctx, prefix) {
			if err != nil {
				return "", false, err
			}
			keys = append(keys, key)
		}
		return lines(keys)
	},
	"ask": func(ctx context.Context, _ hand.Query, prompt string) (string, bool, error) {
		response, err := llm.Complete(ctx, llm.Request{System: "Answer in one sentence.", Prompt: prompt, MaxOutputTokens: 64})
		return fmt.Sprintf("%s (%d+%d tokens)", response.Text, response.InputTokens, response.OutputTokens), true, err
	},
}

// second is a time down to the second.
func second(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func lines(all []string) (string, bool, error) {
	return strings.Join(all, "\n"), len(all) > 0, nil
}

func text(data []byte, err error) (string, bool, error) {
	if err == nil && !utf8.Valid(data) {
		err = errNotText
	}
	return string(data), true, err
}

func config(_ context.Context, q hand.Query, _ string) (string, bool, error) {
	var all []string
	for _, key := range []string{"greeting", "loud", "ratio", "times", "words"} {
		value, ok := q.Config[key]
		if !ok {
			continue
		}
		switch v := value.(type) {
		case []string:
			value = strings.Join(v, ",")
		case float64:
			value = thousandths(v)
		case int64:
			if key == "ratio" {
				value = thousandths(float64(v))
			}
		}
		all = append(all, fmt.Sprintf("%s=%v", key, value))
	}
	return lines(all)
}

// thousandths rounds half away from zero.
func thousandths(v float64) string { return fmt.Sprintf("%d/1000", int64(math.Round(v*1000))) }

func log(_ context.Context, _ hand.Query, arguments string) (string, bool, error) {
	name, text, _ := strings.Cut(arguments, " ")
	for _, level := range []abi.Level{abi.LevelDebug, abi.LevelInfo, abi.LevelWarn, abi.LevelError} {
		if level.String() == name {
			hand.Logf(level, "%s", text)
			return "", false, nil
		}
	}
	return "", false, errArguments
}

const root = "docs"

// inRoot names the root itself as package fs does.
func inRoot(path string) string {
	if path == "" {
		return "."
	}
	return path
}

func list(ctx context.Context, _ hand.Query, path string) (string, bool, error) {
	fsys := files.Root(ctx, root)
	self, err := fs.Stat(fsys, inRoot(path))
	if err != nil {
		return "", false, err
	}
	if !self.IsDir() {
		return row(self), true, nil
	}
	entries, err := fs.ReadDir(fsys, inRoot(path))
	if err != nil {
		return "", false, err
	}
	var rows []string
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return "", false, err
		}
		rows = append(rows, row(info))
	}
	return lines(rows)
}

func row(info fs.FileInfo) string {
	kind := "other"
	switch {
	case info.IsDir():
		kind = "dir"
	case info.Mode().IsRegular():
		kind = "file"
	}
	return fmt.Sprintf("%s %d %s %s", kind, info.Size(), second(info.ModTime()), info.Name())
}

func fetch(ctx context.Context, r http.Request) (string, bool, error) {
	if r.URL == "" {
		return "", false, errArguments
	}
	response, err := http.Fetch(ctx, r)
	if err != nil {
		return "", false, err
	}
	body, _, err := text(response.Body, nil)
	if err != nil {
		return "", false, err
	}
	header := response.Header.Get("X-Answer")
	if header == "" {
		header = "-"
	}
	cut := ""
	if response.Truncated {
		cut = " (cut)"
	}
	return fmt.Sprintf("%d %s %s%s", response.Status, header, body, cut), true, nil
}
