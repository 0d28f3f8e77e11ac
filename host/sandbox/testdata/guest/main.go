// A hand that does what its prompt says: the worst that tests can think of.
package main

import (
	"bytes"
	"context"
	crypto "crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/sdk/go/hand"
	"github.com/gloveboxhq/glovebox/sdk/go/hand/files"
)

func init() { hand.Register(answer) }

func main() { hand.Main() }

// kept would survive in an instance that is used twice.
var kept = "nothing"

var sink [][]byte

func answer(ctx context.Context, q hand.Query) (string, error) {
	verb, rest, _ := strings.Cut(q.Prompt, " ")
	switch verb {
	case "say":
		return rest, nil
	case "query":
		return fmt.Sprintf("%s|%s|%s|%s|%d|%v|%s", q.From.Format(time.RFC3339), q.To.Format(time.RFC3339), q.Now.Format(time.RFC3339),
			q.Timezone, q.MaxOutputTokens, q.Config, q.Subject), nil
	case "bytes":
		n, _ := strconv.Atoi(rest)
		return strings.Repeat("ä", n/2), nil
	case "invalid":
		return "a\xff\xfeb", nil
	case "keep":
		was := kept
		kept = rest
		return was, nil
	case "fail":
		return "", errors.New(rest)
	case "panic":
		panic(rest)
	case "exit":
		os.Exit(7)
	case "loop":
		for i := 0; ; i++ {
			kept = strconv.Itoa(i)
		}
	case "nap":
		d, err := time.ParseDuration(rest)
		if err != nil {
			return "", err
		}
		time.Sleep(d)
		return "awake", nil
	case "sleep":
		time.Sleep(time.Hour)
	case "random":
		b := make([]byte, 16<<20)
		for {
			if _, err := crypto.Read(b); err != nil {
				return "", err
			}
		}
	case "recurse":
		return strconv.Itoa(recurse(0)), nil
	case "grow":
		for {
			b := make([]byte, 1<<20)
			for i := range b {
				b[i] = byte(i)
			}
			sink = append(sink, b)
		}
	case "log":
		n, _ := strconv.Atoi(rest)
		for i := range n {
			hand.Logf(abi.LevelWarn, "line %d %s", i, strings.Repeat("x", 100))
		}
		return "logged", nil
	case "print":
		fmt.Println("to stdout")
		fmt.Fprintln(os.Stderr, "to stderr")
		return "printed", nil
	case "pieces":
		for _, piece := range []string{"one ", "two", " three\n", "no ", "end"} {
			os.Stderr.WriteString(piece)
		}
		return "done", nil
	case "reach":
		return reach(), nil
	case "read":
		root, name, _ := strings.Cut(rest, " ")
		data, err := fs.ReadFile(files.Root(ctx, root), name)
		return string(data), err
	case "walk":
		var names []string
		err := fs.WalkDir(files.Root(ctx, rest), ".", func(name string, d fs.DirEntry, err error) error {
			names = append(names, fmt.Sprint(name, d.IsDir()))
			return err
		})
		return strings.Join(names, " "), err
	case "calls":
		for i := 0; ; i++ {
			if _, err := fs.Stat(files.Root(ctx, rest), "."); err != nil {
				return fmt.Sprintf("%d calls, then: %v", i, err), nil
			}
		}
	case "readall":
		f, err := files.Root(ctx, "docs").Open(rest)
		if err != nil {
			return "", err
		}
		n, err := io.Copy(io.Discard, f)
		return fmt.Sprintf("%d bytes, then: %v", n, err), nil
	}
	return "", fmt.Errorf("no such verb %q", verb)
}

//go:noinline
func recurse(depth int) int {
	var frame [256]byte
	frame[depth%256] = byte(depth)
	return recurse(depth+1) + int(frame[(depth+1)%256])
}

// reach tries what WASI has for leaving the box.
func reach() string {
	var out bytes.Buffer
	_, err := os.ReadFile("/etc/passwd")
	fmt.Fprintln(&out, "file:", err != nil)
	_, err = os.ReadDir(".")
	fmt.Fprintln(&out, "dir:", err != nil)
	fmt.Fprintln(&out, "create:", os.WriteFile("x", nil, 0o600) != nil)
	fmt.Fprintln(&out, "environment:", len(os.Environ()))
	fmt.Fprintln(&out, "arguments:", len(os.Args))
	_, err = net.Dial("tcp", "127.0.0.1:80")
	fmt.Fprintln(&out, "dial:", err != nil)
	stdin, err := io.ReadAll(os.Stdin)
	fmt.Fprintln(&out, "stdin:", len(stdin), err)
	return out.String()
}
