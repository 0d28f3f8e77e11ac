package main

import (
	"bytes"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/text/encoding/charmap"

	"github.com/gloveboxhq/glovebox/plugins/internal/compose"
)

const (
	maxParents  = 64 // more make no sense, and each is a search
	maxName     = 60
	maxSubject  = 150
	maxTagLinks = 5 // from one tag to the next
)

// commit is what is told of one. Of those that are not in the window the words are
// left out.
type commit struct {
	id      objectID
	tree    objectID
	parents []objectID
	at      time.Time // when it was committed, zero if that is not told
	author  string
	email   string
	subject string
}

// commit reads a commit (git's object format, gitformat-… and git-commit-tree(1)):
// lines of a word and a value, an empty line, the message.
func (repo *repository) commit(id objectID) (*commit, error) {
	got, err := repo.objects.get(id, kindCommit)
	if err != nil {
		return nil, err
	}
	if len(got.data) > maxCommitBytes {
		return nil, errTooLarge
	}
	return repo.parseCommit(id, got.data)
}

func (repo *repository) parseCommit(id objectID, data []byte) (*commit, error) {
	c := &commit{id: id}
	head, message, _ := bytes.Cut(data, []byte("\n\n"))
	encoding, haveTree := "", false
	var author []byte
	for line := range bytes.Lines(head) {
		word, value, _ := bytes.Cut(bytes.TrimRight(line, "\n"), []byte(" "))
		switch string(word) {
		case "tree":
			c.tree, haveTree = repo.parseID(string(value))
		case "parent":
			if parent, ok := repo.parseID(string(value)); !ok {
				return nil, damaged("a parent that is no object's name")
			} else if len(c.parents) < maxParents {
				c.parents = append(c.parents, parent)
			}
		case "author":
			author = value
		case "committer":
			c.at = timeOf(value)
		case "encoding":
			encoding = string(value)
		}
	}
	if !haveTree {
		return nil, damaged("a commit without a tree")
	}
	if repo.shallow[id] {
		c.parents = nil
	}
	if !repo.tells(c.at) {
		return c, nil // it is only on the way to others
	}
	name, rest, _ := bytes.Cut(author, []byte("<"))
	email, _, _ := bytes.Cut(rest, []byte(">"))
	c.author = compose.OneLine(decode(name, encoding), maxName)
	c.email = compose.OneLine(decode(email, encoding), maxName)
	if c.author == "" {
		c.author = c.email
	}
	// The first paragraph is the subject, as git has it.
	message = bytes.TrimLeft(message, "\n")
	subject, _, _ := bytes.Cut(message, []byte("\n\n"))
	c.subject = compose.OneLine(decode(subject, encoding), maxSubject)
	return c, nil
}

// timeOf reads the end of "Name <address> 1774252800 +0100"; zero if there is no
// time that could be.
func timeOf(value []byte) time.Time {
	fields := strings.Fields(string(value[bytes.LastIndexByte(value, '>')+1:]))
	if len(fields) == 0 {
		return time.Time{}
	}
	seconds, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil || seconds < 0 || seconds > 1<<37 {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}

// decode returns b as UTF-8. Most is; what a commit says to be in an encoding of
// one byte a character is that; the rest is guessed.
func decode(b []byte, encoding string) string {
	if encoding != "" && !utf8.Valid(b) {
		want := plainName(encoding)
		for _, e := range charmap.All {
			if m, ok := e.(*charmap.Charmap); ok && plainName(m.String()) == want {
				s, _ := m.NewDecoder().Bytes(b)
				return string(s)
			}
		}
	}
	return compose.Text(b)
}

// plainName reduces the names of an encoding to one: "cp1251" and "Windows-1251",
// "latin1" and "ISO 8859-1".
func plainName(s string) string {
	s = strings.NewReplacer("-", "", "_", "", " ", "").Replace(strings.ToLower(s))
	if digits, ok := strings.CutPrefix(s, "cp125"); ok {
		return "windows125" + digits
	}
	if s == "latin1" {
		return "iso88591"
	}
	return s
}

// commitOf returns the commit that a reference means, by way of annotated tags.
func (repo *repository) commitOf(r reference) (objectID, error) {
	if r.isPeeled {
		return r.peeled, nil
	}
	id := r.id
	for range maxTagLinks {
		got, err := repo.objects.find(id)
		if err != nil {
			return id, err
		}
		if got.kind != kindTag {
			return id, nil
		}
		line, _, _ := bytes.Cut(got.data, []byte("\n"))
		next, ok := repo.parseID(strings.TrimPrefix(string(line), "object "))
		if !ok {
			return id, damaged("a tag of nothing")
		}
		id = next
	}
	return id, damaged("a tag of a tag of a tag")
}
