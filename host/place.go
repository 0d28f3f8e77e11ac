package host

import (
	"fmt"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// placeOf finds the key that a complaint about a configuration begins with, such as
// server.drain_secs or users[1].name, in its text: of that key, or of what is there
// above it, the longest. Lines and columns count from 1.
func placeOf(data []byte, complaint string) (line, column int, ok bool) {
	var p unstable.Parser
	p.Reset(data)
	tables := map[string]int{} // of each array of tables, how many there were
	longest := 0
	note := func(path string, key *unstable.Node) {
		rest, found := strings.CutPrefix(complaint, path)
		if !found || len(path) <= longest || rest == "" || !strings.ContainsRune(".[:", rune(rest[0])) {
			return
		}
		start := p.Shape(key.Raw).Start
		longest, line, column, ok = len(path), start.Line, start.Column, true
	}
	table := ""
	for p.NextExpression() {
		e := p.Expression()
		if e.Kind == unstable.Comment {
			continue
		}
		path := ""
		if e.Kind == unstable.KeyValue {
			path = table
		}
		for key := e.Key(); key.Next(); {
			if path != "" {
				path += "."
			}
			path += string(key.Node().Data)
			if n, many := tables[path]; e.Kind == unstable.ArrayTable && key.IsLast() {
				tables[path] = n + 1
				path += fmt.Sprintf("[%d]", n)
			} else if many {
				path += fmt.Sprintf("[%d]", n-1)
			}
			note(path, key.Node())
		}
		if e.Kind != unstable.KeyValue {
			table = path
		}
	}
	return line, column, ok
}
