// A hand that keeps values and asks the model as its prompt says, one command a
// line, and answers with what came of each. Words of a command are quoted in Go.
package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/sdk/go/hand"
	"github.com/gloveboxhq/glovebox/sdk/go/hand/kv"
	"github.com/gloveboxhq/glovebox/sdk/go/hand/llm"
)

func init() { hand.Register(answer) }

func main() { hand.Main() }

func answer(ctx context.Context, q hand.Query) (string, error) {
	var out []string
	for line := range strings.Lines(q.Prompt) {
		words, err := split(strings.TrimSpace(line))
		if err != nil {
			return "", err
		}
		said, err := run(ctx, q, words)
		if err != nil {
			said = "error: " + string(abi.KindOf(err))
		}
		out = append(out, said)
	}
	return strings.Join(out, "\n"), nil
}

// split gives each command four words, empty if it has fewer.
func split(line string) ([4]string, error) {
	var words [4]string
	for i := 0; line != ""; i++ {
		quoted, err := strconv.QuotedPrefix(line)
		if err != nil || i == len(words) {
			return words, fmt.Errorf("cannot read the command %q", line)
		}
		if words[i], err = strconv.Unquote(quoted); err != nil {
			return words, err
		}
		line = strings.TrimSpace(line[len(quoted):])
	}
	return words, nil
}

func run(ctx context.Context, q hand.Query, words [4]string) (string, error) {
	number, _ := strconv.Atoi(words[3])
	switch words[0] {
	case "get":
		value, err := kv.Get(ctx, words[1])
		return strconv.Quote(string(value)), err
	case "set":
		return "set", kv.Set(ctx, words[1], []byte(words[2]))
	case "fill":
		return "set", kv.Set(ctx, words[1], make([]byte, number))
	case "delete":
		return "deleted", kv.Delete(ctx, words[1])
	case "list":
		page, err := kv.List(ctx, words[1], words[2], number)
		return fmt.Sprintf("%q %v", page.Keys, page.More), err
	case "keys":
		var keys []string
		for key, err := range kv.Keys(ctx, words[1]) {
			if err != nil {
				return "", err
			}
			keys = append(keys, key)
		}
		return fmt.Sprintf("%q", keys), nil
	case "calls":
		for i := 0; ; i++ {
			if _, err := kv.Get(ctx, words[1]); err != nil && !errors.Is(err, abi.KindNotFound) {
				return fmt.Sprintf("%d calls, then %s", i, abi.KindOf(err)), nil
			}
		}
	case "ask":
		r, err := llm.Complete(ctx, llm.Request{System: words[1], Prompt: words[2], MaxOutputTokens: number})
		return fmt.Sprintf("%q %d %d", r.Text, r.InputTokens, r.OutputTokens), err
	case "spend":
		r, err := llm.Complete(ctx, llm.Request{System: words[1], Prompt: words[2], MaxOutputTokens: number})
		return strconv.Itoa(tokens.Estimate(r.Text)), err
	case "budget":
		return strconv.Itoa(q.MaxOutputTokens), nil
	}
	return "", fmt.Errorf("no such command %q", words[0])
}
