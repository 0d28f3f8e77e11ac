package main

import (
	"cmp"
	"container/heap"
	"errors"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/gloveboxhq/glovebox/plugins/internal/budget"
	"github.com/gloveboxhq/glovebox/plugins/internal/compose"
	"github.com/gloveboxhq/glovebox/sdk/go/hand"
)

const (
	// maxWalked is how many commits are looked at. One takes about 350,000 units
	// of fuel, of which the host gives 10,000 million.
	maxWalked = 12_000
	maxTips   = 500 // branches
	maxTags   = 300 // that are not in the file of packed references
	// slop is how many commits older than the window are looked at after the last
	// of the window: the clock that made a commit may have been behind that of its
	// parents.
	slop = 128
	// maxKept is how many commits of the window are remembered; of more only the
	// newest are told, and all are counted.
	maxKept = 4 * mostCommits
)

// history is the commits of a window.
type history struct {
	repo     *repository
	settings settings

	head    string // the branch that HEAD is, "" if it is a commit
	commits []*commit
	count   int // of commits, also of those that are not kept
	authors map[string]bool
	// names are those of the branches and tags at a commit.
	names map[objectID][]string
	// read are the branches that were looked at.
	read []string
}

// queue is a heap of commits, the newest first.
type queue []*commit

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return cmp.Or(q[j].at.Compare(q[i].at), slices.Compare(q[i].id[:], q[j].id[:])) < 0
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(*commit)) }
func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

// history finds the commits of q's window on the branches that s wants. It fails
// if no branch can be found, or the query is to end.
func (repo *repository) history(s settings, q hand.Query) (*history, error) {
	h := &history{repo: repo, settings: s, authors: make(map[string]bool), names: make(map[objectID][]string)}
	repo.tells = func(at time.Time) bool { return !at.Before(q.From) && at.Before(q.To) }
	wanted := []string{"refs/heads", "refs/tags"}
	if len(s.branches) > 0 {
		wanted = append(wanted, "refs/remotes")
	}
	refs, err := repo.references(wanted...)
	if err != nil && !errors.Is(err, budget.ErrSpent) {
		return nil, err
	}
	if err == nil {
		err = h.walk(refs, q)
	}
	if errors.Is(err, budget.ErrSpent) {
		repo.trouble.Note("Reading stopped at a limit; some commits were not looked at.")
		err = nil
	}
	return h, err
}

// problem records that an object could not be read, and passes on what must end
// the query.
func (h *history) problem(what string, err error) error {
	if ends := h.repo.reader.budget.Ends(err); ends != nil {
		return ends
	}
	if errors.Is(err, errMissing) {
		h.repo.noteMissing()
		if h.repo.partial {
			return nil
		}
	}
	h.repo.trouble.Broken(what, err)
	return nil
}

// tips returns the references of the branches that are wanted.
func (h *history) tips(refs map[string]reference) ([]reference, error) {
	repo := h.repo
	id, last, err := repo.resolve("HEAD", refs, 0)
	if ends := repo.reader.budget.Ends(err); ends != nil {
		return nil, ends
	}
	branch, isBranch := strings.CutPrefix(last, "refs/heads/")
	if isBranch {
		h.head = branch
		if err == nil {
			refs[last] = reference{name: last, id: id} // whatever else was left out
		}
	}
	if err != nil && !errors.Is(err, errNoCommitYet) {
		repo.trouble.Broken("HEAD", err)
	}
	var tips []reference
	if err == nil && len(h.settings.branches) == 0 && !isBranch {
		tips = append(tips, reference{name: "HEAD", id: id})
	}
	for _, r := range refs {
		if h.wants(r.name) {
			tips = append(tips, r)
		}
	}
	slices.SortFunc(tips, func(a, b reference) int {
		isHead := func(r reference) int {
			if r.name == last {
				return 0
			}
			return 1
		}
		return cmp.Or(isHead(a)-isHead(b), strings.Compare(a.name, b.name))
	})
	if len(tips) > maxTips {
		repo.trouble.Note("Only %d of %d branches were looked at: name those that matter in branches.", maxTips, len(tips))
		tips = tips[:maxTips]
	}
	if len(h.settings.branches) > 0 && len(tips) == 0 {
		repo.trouble.Note("No branch is called %s.", compose.OneLine(strings.Join(h.settings.branches, " or "), 100))
	}
	return tips, nil
}

// wants tells whether the commits of a reference are told of.
func (h *history) wants(name string) bool {
	local, isLocal := strings.CutPrefix(name, "refs/heads/")
	if len(h.settings.branches) == 0 {
		return isLocal
	}
	remote, isRemote := strings.CutPrefix(name, "refs/remotes/")
	if !isLocal && !isRemote || isRemote && strings.HasSuffix(remote, "/HEAD") {
		return false
	}
	short := remote
	if isLocal {
		short = local
	}
	return slices.ContainsFunc(h.settings.branches, func(pattern string) bool {
		ok, _ := path.Match(pattern, short)
		return ok
	})
}

// walk goes from the tips to the past, always on from the newest commit that was
// not looked at, until all that is left is older than the window.
func (h *history) walk(refs map[string]reference, q hand.Query) error {
	repo := h.repo
	tips, err := h.tips(refs)
	if err != nil {
		return err
	}
	seen := make(map[objectID]bool)
	var next queue
	look := func(id objectID, what string) error {
		if seen[id] {
			return nil
		}
		seen[id] = true
		c, err := repo.commit(id)
		if err != nil {
			return h.problem(what, err)
		}
		heap.Push(&next, c)
		return nil
	}
	for _, r := range tips {
		short := shortName(r.name)
		h.read = append(h.read, short)
		h.names[r.id] = append(h.names[r.id], short)
		if err := look(r.id, short); err != nil {
			return err
		}
	}
	stale := 0
	for len(next) > 0 && stale <= slop {
		c := heap.Pop(&next).(*commit)
		switch {
		case repo.tells(c.at):
			stale = 0
			h.keep(c)
		case c.at.Before(q.From):
			stale++
		}
		for _, parent := range c.parents {
			if len(seen) >= maxWalked {
				repo.trouble.Note("Only %d commits were looked at.", maxWalked)
				next = nil
				break
			}
			if err := look(parent, repo.objects.short(parent)); err != nil {
				return err
			}
		}
	}
	slices.SortFunc(h.commits, newestFirst)
	return h.addTags(refs)
}

func newestFirst(a, b *commit) int {
	return cmp.Or(b.at.Compare(a.at), slices.Compare(a.id[:], b.id[:]))
}

// keep takes a commit of the window, unless it is by another author than those
// asked for.
func (h *history) keep(c *commit) {
	if h.settings.author != "" && !strings.Contains(strings.ToLower(c.author+" <"+c.email+">"), h.settings.author) {
		return
	}
	h.count++
	h.authors[cmp.Or(strings.ToLower(c.email), c.author)] = true
	if h.commits = append(h.commits, c); len(h.commits) >= 2*maxKept {
		slices.SortFunc(h.commits, newestFirst)
		h.commits = h.commits[:maxKept]
	}
}

// addTags names the tags at the commits of the window.
func (h *history) addTags(refs map[string]reference) error {
	told := make(map[objectID]bool, len(h.commits))
	for _, c := range h.commits {
		told[c.id] = true
	}
	if len(told) == 0 {
		return nil
	}
	var tags []reference
	for _, r := range refs {
		if strings.HasPrefix(r.name, "refs/tags/") {
			tags = append(tags, r)
		}
	}
	// The last names are likely those of the last versions.
	slices.SortFunc(tags, func(a, b reference) int { return strings.Compare(b.name, a.name) })
	opened := 0
	for _, r := range tags {
		id := r.id
		if !told[id] {
			if !r.isPeeled {
				if opened++; opened > maxTags {
					continue
				}
			}
			var err error
			if id, err = h.repo.commitOf(r); err != nil {
				if err := h.problem(shortName(r.name), err); err != nil {
					return err
				}
				continue
			}
		}
		if told[id] {
			h.names[id] = append(h.names[id], shortName(r.name))
		}
	}
	return nil
}

// shortName is how a reference is told: "main", "origin/main", "tag v1.0".
func shortName(name string) string {
	if tag, ok := strings.CutPrefix(name, "refs/tags/"); ok {
		return "tag " + compose.OneLine(compose.Text([]byte(tag)), maxName)
	}
	name = strings.TrimPrefix(strings.TrimPrefix(name, "refs/heads/"), "refs/remotes/")
	return compose.OneLine(compose.Text([]byte(name)), maxName)
}
