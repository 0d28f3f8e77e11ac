package main

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/gloveboxhq/glovebox/plugins/internal/compose"
)

const (
	maxSmallFile  = 64 << 10 // HEAD, a reference, a .git file
	maxPackedRefs = 8 << 20
	maxRefs       = 50_000
	maxLooseRefs  = 1_000
	maxRefDepth   = 8
	maxRefLinks   = 5 // from one reference to the next
	maxShallow    = 1 << 20
)

// repository is a git repository whose files are read.
type repository struct {
	reader  *reader
	dir     string // of HEAD
	common  string // of references and objects; differs from dir in a linked work tree
	objects *objects
	trouble compose.Trouble

	// tells whether commits of a time are told of.
	tells func(time.Time) bool

	partial bool // objects may be missing without fault
	shallow map[objectID]bool
}

// reference is a name for an object.
type reference struct {
	name string // in full, such as refs/heads/main
	id   objectID
	// peeled is the commit of an annotated tag, if the file of packed references
	// tells it.
	peeled   objectID
	isPeeled bool
}

// openRepository finds the repository at dir: a work tree with its .git, which
// may be a file that names another folder, or a bare repository.
func openRepository(r *reader, dir string) (*repository, error) {
	gitDir := path.Join(dir, ".git")
	info, err := r.stat(gitDir)
	switch {
	case err == nil && !info.IsDir():
		if gitDir, err = followGitFile(r, gitDir); err != nil {
			return nil, err
		}
	case errors.Is(err, fs.ErrNotExist):
		gitDir = dir
	case err != nil:
		return nil, err
	}
	if _, err := r.stat(path.Join(gitDir, "HEAD")); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", dir, errNoRepository)
	} else if err != nil {
		return nil, err
	}
	repo := &repository{reader: r, dir: gitDir, common: gitDir}
	if content, err := r.file(path.Join(gitDir, "commondir"), maxSmallFile); err == nil {
		if repo.common, err = locate(r, gitDir, strings.TrimSpace(string(content)), "objects"); err != nil {
			return nil, err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if info, err := r.stat(path.Join(repo.common, "objects")); errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return nil, fmt.Errorf("%s: %w", dir, errNoRepository)
	} else if err != nil {
		return nil, err
	}
	repo.objects = &objects{reader: r, dir: path.Join(repo.common, "objects"), hashSize: 20, trouble: &repo.trouble}
	if err := repo.readConfig(); err != nil {
		return nil, err
	}
	return repo, repo.readShallow()
}

// followGitFile returns the folder that a .git file names, as linked work trees
// and submodules have.
func followGitFile(r *reader, name string) (string, error) {
	content, err := r.file(name, maxSmallFile)
	if err != nil {
		return "", err
	}
	target, ok := strings.CutPrefix(strings.TrimSpace(string(content)), "gitdir:")
	if !ok {
		return "", fmt.Errorf("%s: %w", name, errNoRepository)
	}
	return locate(r, path.Dir(name), strings.TrimSpace(target), "HEAD")
}

// locate finds the folder that a file in dir names by a path of the machine, and
// which holds an entry of the name has. The hand does not know where on the
// machine the granted folder is: of an absolute path it tries each end, the
// longest first.
func locate(r *reader, dir, target, has string) (string, error) {
	outside := fmt.Errorf("%s: its repository is in %s, outside the granted folder: grant a folder that holds both, and name the work tree in path",
		dir, compose.OneLine(target, 200))
	slashed := strings.ReplaceAll(target, `\`, "/")
	absolute := strings.HasPrefix(slashed, "/") || len(slashed) > 2 && slashed[1] == ':'
	if !absolute {
		joined := path.Join(dir, slashed)
		if !fs.ValidPath(joined) {
			return "", outside
		}
		if _, err := r.stat(path.Join(joined, has)); err != nil {
			return "", fmt.Errorf("%s names %s: %w", dir, compose.OneLine(target, 200), err)
		}
		return joined, nil
	}
	parts := strings.Split(strings.Trim(path.Clean(slashed), "/"), "/")
	for from := max(1, len(parts)-32); from < len(parts); from++ {
		end := path.Join(parts[from:]...)
		if !fs.ValidPath(end) {
			continue
		}
		if _, err := r.stat(path.Join(end, has)); err == nil {
			return end, nil
		} else if ends := r.budget.Ends(err); ends != nil {
			return "", ends
		}
	}
	return "", outside
}

// readConfig reads of the repository's configuration what says how its files are
// to be read.
func (repo *repository) readConfig() error {
	content, err := repo.reader.file(path.Join(repo.common, "config"), 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	section := ""
	for line := range strings.Lines(string(content)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			name, _, _ := strings.Cut(line[1:], "]")
			section = strings.ToLower(strings.TrimSpace(name))
			continue
		}
		key, value, _ := strings.Cut(line, "=")
		value = strings.ToLower(strings.Trim(strings.TrimSpace(value), `"`))
		key = strings.ToLower(strings.TrimSpace(key))
		switch {
		case section == "extensions" && key == "objectformat":
			switch value {
			case "sha1":
			case "sha256":
				repo.objects.hashSize = 32
			default:
				return fmt.Errorf("its objects are named by %s, which this hand does not know", compose.OneLine(value, 40))
			}
		case section == "extensions" && key == "refstorage" && value != "files":
			return fmt.Errorf("its references are stored as %s, which this hand does not read: git refs migrate --ref-format=files", compose.OneLine(value, 40))
		case section == "extensions" && key == "partialclone", strings.HasPrefix(section, "remote ") && key == "promisor" && value != "false":
			repo.partial = true
		}
	}
	return nil
}

// readShallow reads which commits a shallow clone has without their parents.
func (repo *repository) readShallow() error {
	content, err := repo.reader.file(path.Join(repo.common, "shallow"), maxShallow)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	repo.shallow = make(map[objectID]bool)
	for line := range strings.Lines(string(content)) {
		if id, ok := repo.parseID(strings.TrimSpace(line)); ok {
			repo.shallow[id] = true
		}
	}
	return nil
}

func (repo *repository) parseID(s string) (id objectID, ok bool) {
	if len(s) != 2*repo.objects.hashSize {
		return id, false
	}
	_, err := hex.Decode(id[:], []byte(s))
	return id, err == nil
}

// references returns the references by their full names. Loose ones are those
// below the folders wanted, such as refs/heads.
func (repo *repository) references(wanted ...string) (map[string]reference, error) {
	all := make(map[string]reference)
	content, err := repo.reader.file(path.Join(repo.common, "packed-refs"), maxPackedRefs)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		if ends := repo.reader.budget.Ends(err); ends != nil {
			return nil, ends
		}
		repo.trouble.Broken("packed-refs", err)
	}
	last := ""
	for line := range bytes.Lines(content) {
		line := strings.TrimSpace(string(line))
		if peeled, ok := strings.CutPrefix(line, "^"); ok {
			if r, known := all[last]; known {
				r.peeled, r.isPeeled = repo.parseID(peeled)
				all[last] = r
			}
			continue
		}
		word, name, _ := strings.Cut(line, " ")
		if id, ok := repo.parseID(word); ok && len(all) < maxRefs {
			last = name
			all[name] = reference{name: name, id: id}
		}
	}
	loose := 0
	for _, dir := range wanted {
		if err := repo.readLoose(dir, 0, &loose, all); err != nil {
			return nil, err
		}
	}
	if loose > maxLooseRefs {
		repo.trouble.Note("Only %d references in files of their own were read: git pack-refs --all puts them together.", maxLooseRefs)
	}
	return all, nil
}

func (repo *repository) readLoose(dir string, depth int, read *int, into map[string]reference) error {
	entries, err := repo.reader.list(path.Join(repo.common, dir))
	if err != nil {
		if ends := repo.reader.budget.Ends(err); ends != nil {
			return ends
		}
		repo.trouble.Broken(dir, err)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		switch {
		case strings.HasSuffix(name, ".lock"):
		case e.IsDir() && depth < maxRefDepth:
			if err := repo.readLoose(name, depth+1, read, into); err != nil {
				return err
			}
		case e.Type().IsRegular():
			if *read++; *read > maxLooseRefs {
				return nil
			}
			id, _, err := repo.resolve(name, into, 0)
			if ends := repo.reader.budget.Ends(err); ends != nil {
				return ends
			}
			if err != nil {
				// Of a clone, origin/HEAD often names a branch that has gone.
				if !errors.Is(err, errNoCommitYet) {
					repo.trouble.Broken(name, err)
				}
				continue
			}
			into[name] = reference{name: name, id: id}
		}
	}
	return nil
}

var errNoCommitYet = errors.New("no commit yet")

// resolve returns what a reference, or HEAD, names: an object, by way of other
// references whose last it returns too.
func (repo *repository) resolve(name string, packed map[string]reference, links int) (id objectID, last string, err error) {
	dir := repo.common
	if name == "HEAD" {
		dir = repo.dir
	}
	content, err := repo.reader.file(path.Join(dir, name), maxSmallFile)
	if errors.Is(err, fs.ErrNotExist) {
		if r, ok := packed[name]; ok {
			return r.id, name, nil
		}
		return id, name, errNoCommitYet
	}
	if err != nil {
		return id, name, err
	}
	text := strings.TrimSpace(string(content))
	if target, ok := strings.CutPrefix(text, "ref:"); ok {
		target = strings.TrimSpace(target)
		if links >= maxRefLinks || !strings.HasPrefix(target, "refs/") || !fs.ValidPath(target) {
			return id, name, damaged("it names %s", compose.OneLine(target, 60))
		}
		return repo.resolve(target, packed, links+1)
	}
	id, ok := repo.parseID(text)
	if !ok {
		return id, name, damaged("it holds no object's name")
	}
	return id, name, nil
}

// noteMissing says why objects may be missing, once.
func (repo *repository) noteMissing() {
	if repo.partial {
		repo.trouble.Note("It is a partial clone: what was not fetched yet could not be read.")
	}
	if _, err := repo.reader.stat(path.Join(repo.common, "objects/info/alternates")); err == nil {
		repo.trouble.Note("It borrows objects of another repository (objects/info/alternates), which are not read.")
	}
}
