package main

import (
	"bytes"
	"cmp"
	"path"
	"strings"

	"github.com/gloveboxhq/glovebox/plugins/internal/compose"
)

const (
	maxDiffTrees  = 400   // read for one commit
	maxAllTrees   = 6_000 // read for all
	maxChanges    = 2_000 // told apart for one commit
	maxTreeDepth  = 64
	maxEntryBytes = 4 << 10 // of one name
)

// change is one file that a commit changed.
type change struct {
	verb     string // "" for changed, "added", "deleted"
	path     string
	id       objectID
	movedTo  string // for what was renamed
	repeated bool   // told as what another was renamed to
}

// changes is what a commit changed.
type changes struct {
	files []change
	count int
	// cut says that there may be more.
	cut bool
}

// treeEntry is one line of a tree.
type treeEntry struct {
	mode string
	name string
	id   objectID
}

func (e treeEntry) isTree() bool { return e.mode == "40000" }

// compare orders entries as git does: a folder as if its name ended in a slash.
func (e treeEntry) compare(other treeEntry) int {
	order := func(e treeEntry) string {
		if e.isTree() {
			return e.name + "/"
		}
		return e.name
	}
	return strings.Compare(order(e), order(other))
}

// nextEntry reads the entry that a tree begins with.
func nextEntry(tree []byte, hashSize int) (e treeEntry, rest []byte, err error) {
	head, rest, ok := bytes.Cut(tree[:min(len(tree), maxEntryBytes)], []byte{0})
	mode, name, ok2 := bytes.Cut(head, []byte(" "))
	rest = tree[min(len(tree), len(head)+1):]
	if !ok || !ok2 || len(name) == 0 || len(rest) < hashSize {
		return e, nil, damaged("a tree whose entries cannot be told apart")
	}
	e.mode, e.name = string(mode), string(name)
	copy(e.id[:], rest[:hashSize])
	return e, rest[hashSize:], nil
}

// afterEqual returns what follows the entries that two trees begin with alike,
// which are most of them.
func afterEqual(a, b []byte, hashSize int) (restA, restB []byte) {
	for {
		n := bytes.IndexByte(a, 0)
		if n += 1 + hashSize; n <= hashSize || n > len(a) || n > len(b) || !bytes.Equal(a[:n], b[:n]) {
			return a, b
		}
		a, b = a[n:], b[n:]
	}
}

// differ compares trees. It is used for one query.
type differ struct {
	objects *objects
	trees   int // read so far
}

// compare returns what is different between two trees; the zero id is an empty
// one. What it found before an error is returned with it.
func (d *differ) compare(from, to objectID) (*changes, error) {
	c := &changes{}
	limit := min(d.trees+maxDiffTrees, maxAllTrees)
	err := d.walk(c, from, to, "", 0, limit)
	c.findRenames()
	return c, err
}

func (d *differ) tree(id objectID) ([]byte, error) {
	if id == (objectID{}) {
		return nil, nil
	}
	d.trees++
	got, err := d.objects.get(id, kindTree)
	return got.data, err
}

func (d *differ) walk(c *changes, from, to objectID, dir string, depth, limit int) error {
	if d.trees+2 > limit || depth > maxTreeDepth {
		c.cut = true
		return nil
	}
	old, err := d.tree(from)
	if err != nil {
		return err
	}
	now, err := d.tree(to)
	if err != nil {
		return err
	}
	var a, b treeEntry
	for {
		if a.name == "" && b.name == "" {
			old, now = afterEqual(old, now, d.objects.hashSize)
		}
		if a.name == "" && len(old) > 0 {
			if a, old, err = nextEntry(old, d.objects.hashSize); err != nil {
				return err
			}
		}
		if b.name == "" && len(now) > 0 {
			if b, now, err = nextEntry(now, d.objects.hashSize); err != nil {
				return err
			}
		}
		order := 0
		switch {
		case a.name == "" && b.name == "":
			return nil
		case a.name == "":
			order = 1
		case b.name == "":
			order = -1
		default:
			order = a.compare(b)
		}
		switch {
		case order < 0:
			err = d.differs(c, a, treeEntry{}, dir, depth, limit)
			a = treeEntry{}
		case order > 0:
			err = d.differs(c, treeEntry{}, b, dir, depth, limit)
			b = treeEntry{}
		default:
			if a.id != b.id || a.mode != b.mode {
				err = d.differs(c, a, b, dir, depth, limit)
			}
			a, b = treeEntry{}, treeEntry{}
		}
		if err != nil {
			return err
		}
	}
}

// differs records that entry a became b; one of them may be absent.
func (d *differ) differs(c *changes, a, b treeEntry, dir string, depth, limit int) error {
	name := path.Join(dir, cmp.Or(b.name, a.name))
	if a.isTree() || b.isTree() {
		return d.walk(c, a.id, b.id, name, depth+1, limit)
	}
	c.count++
	if len(c.files) >= maxChanges {
		return nil
	}
	changed := change{path: name, id: b.id}
	switch {
	case a.name == "":
		changed.verb = "added"
	case b.name == "":
		changed.verb, changed.id = "deleted", a.id
	}
	c.files = append(c.files, changed)
	return nil
}

// findRenames makes one of a file that went and an equal one that came. Git also
// finds those that were changed a little, for which it reads the files.
func (c *changes) findRenames() {
	gone := make(map[objectID]int)
	for i, f := range c.files {
		if f.verb == "deleted" {
			gone[f.id] = i
		}
	}
	for i := range c.files {
		f := &c.files[i]
		if f.verb != "added" {
			continue
		}
		if from, ok := gone[f.id]; ok {
			delete(gone, f.id)
			c.files[from].verb, c.files[from].movedTo = "renamed", f.path
			f.repeated = true
			c.count--
		}
	}
}

// text tells the changes: how many files, and the names of the first most.
func (c *changes) text(most int) string {
	if c.count == 0 && !c.cut {
		return "no file changed"
	}
	count := compose.Plural(c.count, "file", "files")
	if c.cut {
		count = "at least " + count
	}
	var names []string
	shown := 0
	for _, f := range c.files {
		if f.repeated {
			continue
		}
		if shown++; shown > most {
			break
		}
		name := tail(f.path)
		switch {
		case f.movedTo != "":
			name += " → " + tail(f.movedTo)
		case f.verb != "":
			name += " (" + f.verb + ")"
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		return count
	}
	text := count + ": " + strings.Join(names, ", ")
	if more := c.count - len(names); more > 0 {
		text += ", " + compose.Plural(more, "more", "more")
	}
	return text
}

// maxPathShown is how much of a path is told, in runes: its end says most.
const maxPathShown = 60

func tail(name string) string {
	name = compose.OneLine(compose.Text([]byte(name)), maxEntryBytes)
	if runes := []rune(name); len(runes) > maxPathShown {
		return "…" + string(runes[len(runes)-maxPathShown+1:])
	}
	return name
}
