package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// parseXML reads RSS 0.9 to 2.0, RSS 1.0 and Atom 0.3 and 1.0. It goes by the
// names of elements, whatever the root claims to be, as feeds mix them.
func (f *feed) parseXML(text []byte, base *url.URL) error {
	r := newReader(text, f.work)
	defer func() { f.work = r.work }()
	root, err := r.child(0)
	for root == "" && err == nil {
		root, err = r.child(0)
	}
	switch _, name, _ := strings.Cut(root, ":"); {
	case err == io.EOF:
		return errNoFeed
	case err != nil:
		return err
	case root == "html":
		return errPage
	case root != "rss" && root != "feed" && root != "rdf" && name != "rdf":
		return errNoFeed
	}
	base = r.base(base)
	for {
		name, err := r.child(1)
		if err != nil || r.depth == 0 {
			return err
		}
		switch name {
		case "":
		case "channel":
			base = r.base(base)
			err = f.parseChannel(r, base)
		default:
			err = f.parseTop(r, name, base)
		}
		if err != nil {
			return err
		}
	}
}

// parseChannel reads a channel, which in RSS 2.0 holds all.
func (f *feed) parseChannel(r *reader, base *url.URL) error {
	for inside := r.depth; ; {
		name, err := r.child(inside)
		if err == nil && r.depth >= inside {
			err = f.parseTop(r, name, base)
		}
		if err != nil || r.depth < inside {
			return err
		}
	}
}

// parseTop reads what stands beside the items.
func (f *feed) parseTop(r *reader, name string, base *url.URL) error {
	switch name {
	case "":
		return nil
	case "item", "entry":
		return f.parseItem(r, base)
	case "title":
		title, err := r.text()
		f.setTitle(plainText(title, true))
		return err
	}
	return r.skip()
}

// parseItem reads the item or entry whose start was read last to its end.
func (f *feed) parseItem(r *reader, base *url.URL) error {
	var (
		i                       item
		title, summary, content []string // as HTML, the best first
		published, updated      date
		guid                    string
	)
	base = r.base(base)
	for inside := r.depth; ; {
		name, err := r.child(inside)
		if err != nil {
			return err
		}
		if r.depth < inside {
			break
		}
		base, permanent, href, relation := r.base(base), r.attribute("ispermalink"), r.attribute("href"), r.attribute("rel")
		var text string
		switch name {
		case "":
			continue
		case "title", "dc:title", "description", "summary", "content:encoded", "content", "dc:description", "itunes:summary", "link", "guid", "id",
			"pubdate", "dc:date", "published", "issued", "created", "dc:created", "dc:issued", "updated", "modified", "dc:modified":
			text, err = r.text()
		default:
			err = r.skip()
		}
		if err != nil {
			return err
		}
		switch name {
		case "title":
			title = slices.Insert(title, 0, text)
		case "dc:title":
			title = append(title, text)
		case "description", "summary":
			summary = slices.Insert(summary, 0, text)
		case "dc:description", "itunes:summary":
			summary = append(summary, text)
		case "content:encoded", "content":
			content = append(content, text)
		case "link":
			// The text of RSS, or the attributes of Atom.
			if href == "" || relation == "" || relation == "alternate" {
				i.link = cmp.Or(i.link, link(base, cmp.Or(href, html.UnescapeString(text))))
			}
		case "guid", "id":
			// Atom's id is often an address; a permanent link is what a guid is
			// unless it says otherwise.
			if permanent != "false" && strings.Contains(text, "://") {
				guid = link(base, html.UnescapeString(text))
			}
		case "pubdate", "dc:date", "published", "issued", "created", "dc:created", "dc:issued":
			if d, ok := parseDate(text, f.window.location); ok && published.at.IsZero() {
				published = d
			}
		case "updated", "modified", "dc:modified":
			if d, ok := parseDate(text, f.window.location); ok && updated.at.IsZero() {
				updated = d
			}
		}
	}
	i.link = cmp.Or(i.link, guid)
	return f.add(i, published, updated, func() (string, string) {
		return firstWords(title, true), firstWords(append(summary, content...), false)
	})
}

// firstWords returns the words of the first source that has any.
func firstWords(sources []string, title bool) string {
	for _, source := range sources[:min(len(sources), 4)] {
		if words := strings.TrimSpace(plainText(source, title)); words != "" {
			return words
		}
	}
	return ""
}

// Bounds of a document.
const (
	// maxElement bounds one tag or one text in bytes: an attribute of five takes
	// more than 30 of memory.
	maxElement = 1 << 20
	maxDepth   = 100
	// tokenWork is what a token costs beside its bytes, in bytes.
	tokenWork = 32
	// maxAttributes is how many of one element are looked at.
	maxAttributes = 50
)

var (
	errTooDeep = fmt.Errorf("its elements are nested more than %d deep", maxDepth)
	errTooLong = fmt.Errorf("a tag or a text of more than %d bytes", maxElement)
	errTooMuch = errors.New("too much to read in one query")
)

// reader hands out the elements of a document in XML, or in what passes for it.
//
// It stands on the tokenizer of HTML, which stops at no error: in feeds are
// stray "&", entities of HTML, control characters and tags that nobody closes.
// It needs a tenth of what encoding/xml does, and what defines an entity means
// nothing to it. What XML has beyond that is here: the case of names makes no
// difference, but namespaces and CDATA do.
type reader struct {
	z    *html.Tokenizer
	work int // what is left of it
	// open are the elements that are open, and depth is how many.
	open  []element
	depth int
	// last is the name of the last start or end as it is written, and of a start
	// the attributes and whether it has no end of its own.
	last       string
	attributes [][2]string
	empty      bool
}

type element struct {
	name string // as it is written
	// vocabularies are what prefixes stand for in it, "" without one. A map is
	// shared with the elements within that declare nothing.
	vocabularies map[string]string
}

func newReader(text []byte, work int) *reader {
	r := &reader{z: html.NewTokenizer(bytes.NewReader(text)), work: work}
	r.z.SetMaxBuf(maxElement)
	r.z.AllowCDATA(true)
	return r
}

// next goes to the next token and keeps count of what is open. An end without a
// start is no token. At the end of the document it returns io.EOF, or errCut if
// an element is open.
func (r *reader) next() (html.TokenType, error) {
	r.pop()
	for {
		if r.work <= 0 {
			return 0, errTooMuch
		}
		kind := r.z.Next()
		r.work -= tokenWork + len(r.z.Raw())
		switch kind {
		case html.ErrorToken:
			switch err := r.z.Err(); {
			case errors.Is(err, html.ErrBufferExceeded):
				return 0, errTooLong
			case r.depth > 0:
				return 0, errCut
			default:
				return 0, err
			}
		case html.StartTagToken, html.SelfClosingTagToken:
			r.z.NextIsNotRawText()
			name, more := r.z.TagName()
			if r.depth == maxDepth {
				return 0, errTooDeep
			}
			r.last, r.empty = string(name), kind == html.SelfClosingTagToken
			e := element{name: r.last}
			if r.depth > 0 {
				e.vocabularies = r.open[r.depth-1].vocabularies
			}
			r.open, r.depth = append(r.open, e), r.depth+1
			r.readAttributes(more)
			return html.StartTagToken, nil
		case html.EndTagToken:
			// One that closes an outer element closes those within.
			name, _ := r.z.TagName()
			for at := r.depth - 1; at >= 0; at-- {
				if r.open[at].name == string(name) {
					r.last, r.open, r.depth = r.open[at].name, r.open[:at], at
					return kind, nil
				}
			}
		case html.TextToken:
			return kind, nil
		}
	}
}

// pop closes an element that was empty.
func (r *reader) pop() {
	if r.empty {
		r.depth--
		r.open, r.empty = r.open[:r.depth], false
	}
}

// readAttributes keeps the attributes of the tag that was read.
func (r *reader) readAttributes(more bool) {
	r.attributes = r.attributes[:0]
	for range maxAttributes {
		if !more {
			break
		}
		var key, value []byte
		key, value, more = r.z.TagAttr()
		if len(value) > maxLink || len(key) > maxLink {
			continue
		}
		r.attributes = append(r.attributes, [2]string{string(key), string(value)})
	}
}

// attribute returns a value of the element whose start was read last.
func (r *reader) attribute(name string) string {
	for _, a := range r.attributes {
		if a[0] == name {
			return strings.TrimSpace(a[1])
		}
	}
	return ""
}

// base applies the xml:base of the element whose start was read last.
func (r *reader) base(outer *url.URL) *url.URL {
	if reference := r.attribute("xml:base"); reference != "" {
		if u, err := outer.Parse(reference); err == nil && len(u.String()) <= 2*maxLink {
			return u
		}
	}
	return outer
}

// child goes to the next start of an element in the one at depth inside, and
// returns its name: that in lower case, after the usual prefix of a vocabulary
// that is looked at, "other:" for any other. The name is "" for what is no
// element, and when the outer one has ended, so that depth is below inside.
func (r *reader) child(inside int) (string, error) {
	if r.pop(); r.depth < inside {
		return "", nil
	}
	kind, err := r.next()
	if err != nil || kind != html.StartTagToken {
		return "", err
	}
	r.declare()
	prefix, local, found := strings.Cut(r.last, ":")
	if !found {
		prefix, local = "", prefix
	}
	space, declared := r.open[r.depth-1].vocabularies[prefix]
	if !declared {
		// A prefix that nobody declared stands for itself.
		space = vocabulary(prefix)
	}
	return space + local, nil
}

// declare takes in the namespaces that the element just opened declares.
func (r *reader) declare() {
	copied := false
	e := &r.open[r.depth-1]
	for _, a := range r.attributes {
		prefix, ok := strings.CutPrefix(a[0], "xmlns")
		if !ok || prefix != "" && prefix[0] != ':' {
			continue
		}
		if !copied {
			r.work -= tokenWork * len(e.vocabularies)
			if e.vocabularies, copied = maps.Clone(e.vocabularies), true; e.vocabularies == nil {
				e.vocabularies = map[string]string{}
			}
		}
		if len(e.vocabularies) < maxAttributes {
			e.vocabularies[strings.TrimPrefix(prefix, ":")] = vocabulary(a[1])
		}
	}
}

// vocabulary returns the prefix that a namespace has here, "" for those of
// feeds themselves.
func vocabulary(space string) string {
	space = strings.ToLower(strings.TrimSpace(space))
	for _, known := range []struct{ usual, part, prefix string }{
		{"", "", ""}, {"atom", "www.w3.org/2005/atom", ""}, {"atom03", "purl.org/atom/ns", ""}, {"rss", "backend.userland.com/rss", ""},
		{"content", "rss/1.0/modules/content", "content:"}, {"dc", "purl.org/dc/", "dc:"}, {"dcterms", "purl.org/dc/terms", "dc:"},
		{"itunes", "itunes.com/dtds/podcast", "itunes:"}, {"rdf", "1999/02/22-rdf-syntax-ns", "rdf:"},
		{"rss09", "netscape.com/rdf", ""}, {"rss11", "purl.org/net/rss1.1", ""}, {"html", "www.w3.org/1999/xhtml", ""},
	} {
		if space == known.usual || known.part != "" && strings.Contains(space, known.part) {
			return known.prefix
		}
	}
	if strings.HasSuffix(strings.TrimSuffix(space, "/"), "purl.org/rss/1.0") {
		return ""
	}
	return "other:"
}

// skip reads to the end of the element whose start was read last.
func (r *reader) skip() error {
	for inside := r.depth; ; {
		if r.pop(); r.depth < inside {
			return nil
		}
		if _, err := r.next(); err != nil {
			return err
		}
	}
}

// text reads the element whose start was read last to its end and returns the
// beginning of its text as HTML: what its type says is plain is escaped, and of
// elements within it, as XHTML has them, there are only spaces.
func (r *reader) text() (string, error) {
	kind, local := strings.ToLower(r.attribute("type")), r.last[strings.IndexByte(r.last, ':')+1:]
	// In Atom a text without a type is plain. Of titles that holds; other texts
	// are full of HTML all the same.
	plain := kind == "text" || kind == "text/plain" || kind == "" && local == "title" && strings.HasSuffix(r.open[0].name, "feed")
	// A content of another type is a picture or a program's data.
	wanted := kind == "" || plain || strings.Contains(kind, "html") || local == "link"
	var b strings.Builder
	hidden := 0 // the depth of an element that nobody sees
	for inside := r.depth; ; {
		if r.pop(); r.depth < inside {
			return b.String(), nil
		}
		token, err := r.next()
		if err != nil {
			return "", err
		}
		if r.depth < hidden {
			hidden = 0
		}
		if token == html.TextToken {
			if left := maxText - b.Len(); wanted && hidden == 0 && left > 0 {
				text := r.characters()
				text = text[:min(len(text), left)]
				if plain || r.depth > inside || kind == "xhtml" {
					text = escaper.Replace(text)
				}
				b.WriteString(text)
			}
			continue
		}
		tag := atom.Lookup([]byte(r.last[strings.IndexByte(r.last, ':')+1:]))
		if token == html.StartTagToken && hidden == 0 && isInvisible(tag) {
			hidden = r.depth
		}
		if b.Len() < maxText && !isInline(tag) {
			b.WriteByte(' ')
		}
	}
}

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;")

// characters returns the text of the token that was read: of CDATA as it is,
// which the tokenizer would unescape.
func (r *reader) characters() string {
	raw, isCDATA := bytes.CutPrefix(r.z.Raw(), []byte("<![CDATA["))
	if isCDATA {
		return string(bytes.TrimSuffix(raw, []byte("]]>")))
	}
	return string(r.z.Text())
}
