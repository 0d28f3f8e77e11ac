package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gloveboxhq/glovebox/plugins/internal/budget"
	"github.com/gloveboxhq/glovebox/plugins/internal/compose"
)

// Bounds of one query. The host has its own; these leave room below them, so
// that the reply says what was left out and no read fails for want of quota.
const (
	maxCalls      = 5_000     // calls of the host
	maxReadBytes  = 192 << 20 // over all files
	maxMboxBytes  = 64 << 20  // from the end of one mbox file
	maxSentBytes  = 8 << 20   // from the end of an mbox file of sent mail
	maxOpened     = 2_000     // mails in files of their own
	maxSplit      = 20_000    // mails parsed out of mbox files
	maxMails      = 5_000     // remembered
	maxFolders    = 1_000
	maxFolderDeep = 12
	maxProbed     = 300 // files looked at for being an mbox
	dirPage       = 1_000
	firstRead     = 16 << 10 // of a mail in a file of its own; most headers fit
)

// sentBefore is how long before the window sent mail is looked for, to know the
// answers to it.
const sentBefore = 21 * 24 * time.Hour

// storedFile is a file that holds mail.
type storedFile struct {
	path string
	size int64
	// stored is the earliest, touched the latest time that the file's name and
	// modification time give; zero if unknown.
	stored, touched time.Time
	mark            mark
	sent            bool
}

// collector reads the mailboxes below a folder into memory that does not grow
// with their size. It is used once, by one goroutine.
type collector struct {
	ctx    context.Context
	fsys   fs.FS
	window window

	budget  *budget.Budget
	folders int
	probed  int
	split   int // messages taken from mbox files

	single  []storedFile // one mail each: Maildir and .eml
	surplus int          // dropped from single because there were too many
	mboxes  []storedFile

	found   bool // a mailbox is there, even if it is empty
	mails   []*mailMessage
	sentIDs map[messageID]bool
	trouble compose.Trouble
	// incomplete says that mail of the window may have been left out.
	incomplete bool
}

func newCollector(ctx context.Context, fsys fs.FS, w window) *collector {
	return &collector{ctx: ctx, budget: budget.New(ctx, maxCalls, maxReadBytes), fsys: fsys, window: w, sentIDs: make(map[messageID]bool)}
}

// collect finds the mailboxes and reads the mail of the window. It fails when
// the context ends or the folder itself cannot be listed; all else is a problem
// or a note.
func (c *collector) collect() error {
	err := c.walk(".", 0, false)
	if err == nil {
		err = c.read()
	}
	if errors.Is(err, budget.ErrSpent) {
		c.trouble.Note("Reading stopped at a limit; some mail was not looked at.")
		c.incomplete, err = true, nil
	}
	return err
}

// problem records that something could not be read, and passes on what must end
// the query.
func (c *collector) problem(name string, err error) error {
	if err == nil {
		return nil
	}
	if ends := c.budget.Ends(err); ends != nil {
		return ends
	}
	c.trouble.Broken(name, err)
	return nil
}

// eachEntry calls f for the entries of dir, a page at a time, in the order of
// the file system.
func (c *collector) eachEntry(dir string, f func(fs.DirEntry)) error {
	if err := c.budget.Spend(1, 0); err != nil {
		return err
	}
	opened, err := c.fsys.Open(dir)
	if err != nil {
		return err
	}
	defer opened.Close()
	lister, ok := opened.(fs.ReadDirFile)
	if !ok {
		return &fs.PathError{Op: "readdir", Path: dir, Err: errors.New("not a directory")}
	}
	for {
		if err := c.budget.Spend(1, 0); err != nil {
			return err
		}
		page, err := lister.ReadDir(dirPage)
		for _, entry := range page {
			f(entry)
		}
		if err == io.EOF || err == nil && len(page) == 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// walk looks for mailboxes in dir. Below a hidden folder only Maildir folders
// count, which mail servers keep there.
func (c *collector) walk(dir string, depth int, sent bool) error {
	if c.folders++; c.folders > maxFolders || depth > maxFolderDeep {
		return nil
	}
	var folders, regular []fs.DirEntry
	err := c.eachEntry(dir, func(e fs.DirEntry) {
		switch {
		case e.IsDir():
			folders = append(folders, e)
		case e.Type().IsRegular() && len(regular) < 4*dirPage:
			regular = append(regular, e)
		}
	})
	if err != nil {
		if depth == 0 {
			return err
		}
		return c.problem(dir, err)
	}
	byName := func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) }
	slices.SortFunc(folders, byName)
	slices.SortFunc(regular, byName)

	isMaildir := hasFolder(folders, "cur") && hasFolder(folders, "new")
	if isMaildir {
		c.found = true
		for _, sub := range []string{"new", "cur"} {
			if err := c.problem(path.Join(dir, sub), c.listMaildir(path.Join(dir, sub), sub == "new", sent)); err != nil {
				return err
			}
		}
	} else if !strings.HasPrefix(path.Base(dir), ".") || dir == "." {
		for _, e := range regular {
			if err := c.consider(path.Join(dir, e.Name()), e, sent); err != nil {
				return err
			}
		}
	}
	for _, e := range folders {
		name := e.Name()
		if isMaildir && (name == "cur" || name == "new" || name == "tmp") {
			continue
		}
		use := useOf(name)
		if use == useSkip {
			// It is a mailbox, if one without mail for the user.
			c.found = true
			continue
		}
		if err := c.walk(path.Join(dir, name), depth+1, sent || use == useSent); err != nil {
			return err
		}
	}
	return nil
}

func hasFolder(folders []fs.DirEntry, name string) bool {
	return slices.ContainsFunc(folders, func(e fs.DirEntry) bool { return e.Name() == name })
}

// use says what a folder is for, as far as its name tells.
type use int

const (
	useInbox use = iota
	useSent      // only read to know whom the user wrote to
	useSkip
)

func useOf(name string) use {
	for _, suffix := range []string{".mbox", ".sbd", ".eml"} {
		name = strings.TrimSuffix(name, suffix)
	}
	// Maildir++ writes the path of a folder as ".Parent.Name".
	name = strings.ToLower(name[strings.LastIndexByte(name, '.')+1:])
	switch strings.NewReplacer("-", " ", "_", " ").Replace(name) {
	case "sent", "sent items", "sent mail", "sent messages":
		return useSent
	case "trash", "bin", "deleted", "deleted items", "deleted messages", "spam", "junk", "junk e mail", "junk email", "bulk mail",
		"drafts", "draft", "templates", "outbox", "unsent messages":
		return useSkip
	}
	return useInbox
}

// listMaildir remembers the mails in the new or cur folder of a Maildir that
// may belong to the window.
func (c *collector) listMaildir(dir string, isNew, sent bool) error {
	return c.eachEntry(dir, func(e fs.DirEntry) {
		name := e.Name()
		if strings.HasPrefix(name, ".") || !e.Type().IsRegular() {
			return
		}
		marks := maildirMark(name)
		if isNew {
			marks.seen = marks.seen && strings.Contains(name, "2,")
		}
		if marks.discarded {
			return
		}
		info, err := e.Info()
		if err != nil {
			return // moved away since the folder was listed
		}
		c.addSingle(storedFile{path: path.Join(dir, name), size: info.Size(), mark: marks, sent: sent}, maildirTime(name), info.ModTime())
	})
}

// addSingle remembers f, a mail that its name says came at named and whose file
// was written at modified, if that may be in the window. When there are too
// many, the oldest go.
func (c *collector) addSingle(f storedFile, named, modified time.Time) {
	f.stored, f.touched = named, modified
	if modified.IsZero() || modified.Unix() <= 0 {
		f.touched = named
	}
	if f.stored.IsZero() || f.touched.Before(f.stored) {
		f.stored, f.touched = f.touched, f.stored
		if f.stored.IsZero() {
			f.stored = f.touched
		}
	}
	// A copy is younger than the mail: that a file was written after the window
	// says nothing, that its name was given then does.
	w := c.windowFor(f.sent)
	if !f.touched.IsZero() && f.touched.Before(w.from.Add(-slack)) || !named.IsZero() && !f.stored.Before(w.to.Add(slack)) {
		return
	}
	if c.single = append(c.single, f); len(c.single) >= 2*maxOpened {
		c.trimSingle()
	}
}

func (c *collector) trimSingle() {
	// Sent mail serves the rest, so it may take a quarter.
	slices.SortFunc(c.single, newestFirst)
	sent, kept := 0, c.single[:0]
	for _, f := range c.single {
		if f.sent {
			if sent++; sent > maxOpened/4 {
				continue
			}
		} else if len(kept)-min(sent, maxOpened/4) >= maxOpened {
			c.surplus++
			continue
		}
		kept = append(kept, f)
	}
	c.single = kept
}

func newestFirst(a, b storedFile) int {
	return cmp.Or(b.stored.Compare(a.stored), strings.Compare(a.path, b.path))
}

// windowFor is the window from which a mail is read.
func (c *collector) windowFor(sent bool) window {
	w := c.window
	if sent {
		w.from = w.from.Add(-sentBefore)
	}
	return w
}

// maildirMark reads the flags at the end of the name of a mail in a Maildir.
// Systems that forbid the colon use another separator.
func maildirMark(name string) mark {
	m := mark{known: true}
	for _, separator := range []string{":2,", ";2,", "!2,"} {
		if i := strings.LastIndex(name, separator); i >= 0 {
			flags := name[i+len(separator):]
			m.seen = strings.Contains(flags, "S")
			m.answered = strings.Contains(flags, "R")
			m.flagged = strings.Contains(flags, "F")
			m.discarded = strings.ContainsAny(flags, "TD")
			break
		}
	}
	return m
}

// maildirTime returns the delivery time that a name in a Maildir begins with,
// zero if it does not.
func maildirTime(name string) time.Time {
	digits, _, ok := strings.Cut(name, ".")
	if seconds, err := strconv.ParseInt(digits, 10, 64); ok && err == nil && seconds > 300_000_000 && seconds < 1<<36 {
		return time.Unix(seconds, 0).UTC()
	}
	return time.Time{}
}

// consider remembers the file name if it is a mail or an mbox that may hold
// mail of the window.
func (c *collector) consider(name string, e fs.DirEntry, sent bool) error {
	base := e.Name()
	extension := strings.ToLower(path.Ext(base))
	if strings.HasPrefix(base, ".") || notMail(extension) {
		return nil
	}
	use := useOf(base)
	info, err := e.Info()
	if err != nil {
		return c.problem(name, err)
	}
	f := storedFile{path: name, size: info.Size(), sent: sent || use == useSent}
	if extension == ".eml" {
		c.found = true
		c.addSingle(f, time.Time{}, info.ModTime())
		return nil
	}
	if c.probed++; c.probed > maxProbed {
		return nil
	}
	start := make([]byte, len(fromLine))
	if f.size > 0 {
		n, err := c.readFile(f, start)
		if err != nil {
			return c.problem(name, err)
		}
		if !bytes.Equal(start[:n], fromLine) {
			if extension == ".mbox" {
				return c.problem(name, errNoMbox)
			}
			return nil
		}
	} else if extension != ".mbox" {
		return nil
	}
	c.found = true
	f.stored, f.touched = info.ModTime(), info.ModTime()
	// An mbox last written before the window has nothing of it.
	unknown := f.touched.IsZero() || f.touched.Unix() <= 0
	if use != useSkip && f.size > 0 && (unknown || !f.touched.Before(c.windowFor(f.sent).from.Add(-slack))) {
		c.mboxes = append(c.mboxes, f)
	}
	return nil
}

var errNoMbox = errors.New(`not an mbox: it does not begin with "From "`)

// notMail tells whether files of this extension lie beside mail and hold none.
func notMail(extension string) bool {
	switch extension {
	case ".msf", ".dat", ".db", ".sqlite", ".json", ".html", ".htm", ".log", ".lock", ".css", ".js", ".xml", ".zip", ".gz", ".pdf", ".jpg", ".png", ".toml", ".index":
		return true
	}
	return false
}

// readFile reads the start of f into b, whose length is at most f's size, and
// returns how much it read.
func (c *collector) readFile(f storedFile, b []byte) (int, error) {
	if err := c.budget.Spend(1, 0); err != nil {
		return 0, err
	}
	opened, err := c.fsys.Open(f.path)
	if err != nil {
		return 0, err
	}
	defer opened.Close()
	n, err := io.ReadFull(metered{c, opened}, b)
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return n, err
}

// metered counts what is read against the budget.
type metered struct {
	c *collector
	r io.Reader
}

func (m metered) Read(b []byte) (int, error) {
	if err := m.c.budget.Spend(1, 0); err != nil {
		return 0, err
	}
	n, err := m.r.Read(b)
	m.c.budget.Read(n)
	return n, err
}

// read reads the files that walk found: sent mail first, which tells what the
// user takes part in, then single mails and mbox files, newest first.
func (c *collector) read() error {
	c.trimSingle()
	slices.SortFunc(c.mboxes, newestFirst)
	if c.surplus > 0 {
		c.trouble.Note("Only the newest %d mails were opened, %d others were not.", maxOpened, c.surplus)
		c.incomplete = true
	}
	buffer := make([]byte, maxHeaderBytes+maxBodyBytes)
	for _, sent := range []bool{true, false} {
		for _, f := range c.single {
			if f.sent == sent {
				if err := c.problem(f.path, c.readSingle(f, buffer)); err != nil {
					return err
				}
			}
		}
		for _, f := range c.mboxes {
			if f.sent == sent {
				if err := c.problem(f.path, c.readMbox(f)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// readSingle reads the mail in f, through buffer: as much as its header needs
// and the start of its body.
func (c *collector) readSingle(f storedFile, buffer []byte) error {
	if err := c.budget.Spend(1, 0); err != nil {
		return err
	}
	opened, err := c.fsys.Open(f.path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a mail program moved it since the folder was listed
		}
		return err
	}
	defer opened.Close()
	in := metered{c, opened}
	have := 0
	fill := func(want int) error {
		want = int(min(int64(want), f.size, int64(len(buffer))))
		if want <= have {
			return nil
		}
		n, err := io.ReadFull(in, buffer[have:want])
		have += n
		if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
			f.size = int64(have)
			return nil
		}
		return err
	}
	end := -1
	for want := firstRead; end < 0; want *= 4 {
		if err := fill(want); err != nil {
			return err
		}
		end = headerEnd(buffer[:have])
		if end < 0 && int64(have) == f.size {
			end = have
		}
		if end < 0 && have >= maxHeaderBytes {
			return errHeaderBig
		}
	}
	if f.sent {
		have = end // nothing of its body is shown
	} else if err := fill(end + maxBodyBytes); err != nil {
		return err
	}
	return c.add(rawMail{
		header: buffer[:end], body: buffer[end:have], whole: int64(have) == f.size,
		stored: f.stored, mark: f.mark, sent: f.sent,
	})
}

// headerEnd returns the index of the first byte after the header of mail, -1 if
// its end is not in it. Blank lines before the first field are no end.
func headerEnd(mail []byte) int {
	begun := false
	for start := 0; ; {
		i := bytes.IndexByte(mail[start:], '\n')
		if i < 0 {
			return -1
		}
		blank := len(bytes.TrimRight(mail[start:start+i], "\r")) == 0
		start += i + 1
		if blank && begun {
			return start
		}
		begun = begun || !blank
	}
}

// readMbox reads the messages at the end of the mbox file f.
func (c *collector) readMbox(f storedFile) error {
	if err := c.budget.Spend(1, 0); err != nil {
		return err
	}
	opened, err := c.fsys.Open(f.path)
	if err != nil {
		return err
	}
	defer opened.Close()
	at, ok := opened.(io.ReaderAt)
	if !ok {
		return errors.New("cannot be read from its end")
	}
	limit := int64(maxMboxBytes)
	if f.sent {
		limit = maxSentBytes
	}
	// New mail is at the end.
	start := max(0, f.size-limit)
	if start > 0 && !f.sent {
		c.trouble.Note("Of %s only the last %d MiB were read.", compose.OneLine(f.path, 100), limit>>20)
	}
	oldest := c.windowFor(f.sent).from.Add(-slack)
	var failed error
	wanted := func(envelope time.Time) bool {
		return !c.window.plausible(envelope) || !envelope.Before(oldest)
	}
	err = splitMbox(metered{c, io.NewSectionReader(at, start, f.size-start)}, start, wanted, func(m mboxMessage) bool {
		if c.split++; c.split > maxSplit {
			failed = budget.ErrSpent
			return false
		}
		err := errHeaderBig
		if m.headerWhole {
			err = c.add(rawMail{
				header: m.raw[:m.headerSize], body: m.raw[m.headerSize:], whole: m.whole,
				stored: m.envelope, mbox: true, sent: f.sent,
			})
		}
		failed = c.problem(fmt.Sprintf("%s at byte %d", f.path, m.offset), err)
		return failed == nil
	})
	return cmp.Or(failed, err)
}

// add remembers raw if it belongs to the window.
func (c *collector) add(raw rawMail) error {
	m, err := parseMail(raw, c.windowFor(raw.sent), func(m *mailMessage) bool {
		return !m.sent && (!m.bulk && !m.spam || m.flagged || c.answersUser(m))
	})
	if m == nil || err != nil {
		return err
	}
	if len(c.mails) >= maxMails {
		c.surplusMail()
		return nil
	}
	if m.sent {
		c.sentIDs[m.id] = true
	} else if !c.window.contains(m.arrived) {
		return nil
	}
	c.mails = append(c.mails, m)
	return nil
}

// surplusMail notes, once, that there is more mail than is remembered.
func (c *collector) surplusMail() {
	c.trouble.Note("Of the window's mails only %d were looked at.", maxMails)
	c.incomplete = true
}

func (c *collector) answersUser(m *mailMessage) bool {
	return slices.ContainsFunc(m.references, func(id messageID) bool { return c.sentIDs[id] })
}
