// Command git is the bundled git hand: it reads the repository in the granted
// folder "repository" and answers with the commits of the query's window, newest
// first, with their authors, the branches and tags that point at them, and the
// files that they changed.
//
// It reads the files of the repository itself: references, loose objects,
// packs with their indexes. No git runs. Whoever can push may write what is in a
// repository, so sizes, depths and counts are bounded, what is damaged costs
// itself alone, and every text is put on a line of the hand's own making.
// Framing the reply as external text is the host's work.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	_ "time/tzdata"

	"github.com/gloveboxhq/glovebox/plugins/internal/budget"
	"github.com/gloveboxhq/glovebox/sdk/go/hand"
	"github.com/gloveboxhq/glovebox/sdk/go/hand/files"
)

// rootName is the name under which the operator grants the folder.
const rootName = "repository"

// Errors that an operator can act on.
var (
	errNotGranted   = errors.New(`no folder to read: grant one under the name "repository" (files = { repository = "/path/to/repository" })`)
	errNoRepository = errors.New(`no git repository: grant a work tree or a bare repository under the name "repository", or name the folder below it in path`)
	errConfig       = errors.New("configuration")
)

func init() { hand.Register(answer) }

func main() { hand.Main() }

// answer lists the commits of q's window. It returns "" when there are none and
// everything was read.
func answer(ctx context.Context, q hand.Query) (string, error) {
	s, err := settingsOf(q)
	if err != nil {
		return "", err
	}
	r := &reader{ctx: ctx, budget: budget.New(ctx, maxCalls, maxReadBytes), fsys: files.Root(ctx, rootName)}
	defer r.close()
	if _, err := r.stat("."); err != nil {
		return "", endOf(ctx, fmt.Errorf("%w: %w", errNotGranted, err))
	}
	repo, err := openRepository(r, s.path)
	if err != nil {
		return "", endOf(ctx, err)
	}
	h, err := repo.history(s, q)
	if err != nil {
		return "", endOf(ctx, err)
	}
	reply, err := h.render(q)
	if err != nil {
		return "", endOf(ctx, err)
	}
	return reply, nil
}

func endOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return fmt.Errorf("read repository: %w", err)
}

// settings are the operator's, checked.
type settings struct {
	path       string
	branches   []string
	author     string // in lower case
	maxCommits int
}

const (
	defaultMaxCommits = 100
	mostCommits       = 1_000
	maxPatterns       = 100
)

func settingsOf(q hand.Query) (settings, error) {
	s := settings{path: ".", maxCommits: defaultMaxCommits}
	if p, _ := q.Config["path"].(string); p != "" {
		if s.path = path.Clean(p); !fs.ValidPath(s.path) {
			return s, fmt.Errorf("%w: path is %q: write one below the granted folder, such as \"projects/site\"", errConfig, p)
		}
	}
	if n, ok := q.Config["max_commits"].(int64); ok {
		if n < 1 || n > mostCommits {
			return s, fmt.Errorf("%w: max_commits is %d: write a number from 1 to %d", errConfig, n, mostCommits)
		}
		s.maxCommits = int(n)
	}
	author, _ := q.Config["author"].(string)
	s.author = strings.ToLower(strings.TrimSpace(author))
	s.branches, _ = q.Config["branches"].([]string)
	if len(s.branches) > maxPatterns {
		return s, fmt.Errorf("%w: branches has %d patterns, at most %d are looked at", errConfig, len(s.branches), maxPatterns)
	}
	for _, pattern := range s.branches {
		if _, err := path.Match(pattern, "x"); err != nil || pattern == "" {
			return s, fmt.Errorf("%w: branches has %q, which is no pattern: write names with * and ?, such as \"release/*\"", errConfig, pattern)
		}
	}
	return s, nil
}
