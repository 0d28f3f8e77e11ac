package main

import (
	"fmt"
	"io"
	"io/fs"
	"path"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/plugins/internal/compose"
)

// vastFile is a file whose bytes are made when they are read.
type vastFile struct {
	size int64
	fill func(b []byte, offset int64)
}

// vastFS is a flat folder of vast files that counts what is read. Names with a
// slash are not supported but for one level.
type vastFS struct {
	files       map[string]vastFile
	opens       int
	read        int64
	readFailure error // for every read, if not nil
}

func (v *vastFS) Open(name string) (fs.File, error) {
	if f, ok := v.files[name]; ok {
		v.opens++
		return &openVast{vast: v, name: name, file: f}, nil
	}
	// Directories come from an index of the same names.
	index := make(fstest.MapFS)
	for name := range v.files {
		index[name] = &fstest.MapFile{}
	}
	opened, err := index.Open(name)
	if err != nil {
		return nil, err
	}
	return vastDir{opened.(fs.ReadDirFile), v, name}, nil
}

type vastDir struct {
	fs.ReadDirFile
	vast *vastFS
	name string
}

func (d vastDir) ReadDir(n int) ([]fs.DirEntry, error) {
	page, err := d.ReadDirFile.ReadDir(n)
	for i, e := range page {
		if f, ok := d.vast.files[path.Join(d.name, e.Name())]; ok {
			page[i] = fs.FileInfoToDirEntry(vastInfo{e.Name(), f.size})
		}
	}
	return page, err
}

type vastInfo struct {
	name string
	size int64
}

func (i vastInfo) Name() string       { return path.Base(i.name) }
func (i vastInfo) Size() int64        { return i.size }
func (i vastInfo) Mode() fs.FileMode  { return 0o444 }
func (i vastInfo) ModTime() time.Time { return time.Time{} }
func (i vastInfo) IsDir() bool        { return false }
func (i vastInfo) Sys() any           { return nil }

type openVast struct {
	vast   *vastFS
	name   string
	file   vastFile
	offset int64
}

func (f *openVast) Stat() (fs.FileInfo, error) { return vastInfo{f.name, f.file.size}, nil }
func (f *openVast) Close() error               { return nil }

func (f *openVast) Read(b []byte) (int, error) {
	n, err := f.ReadAt(b, f.offset)
	f.offset += int64(n)
	return n, err
}

func (f *openVast) ReadAt(b []byte, offset int64) (int, error) {
	if f.vast.readFailure != nil {
		return 0, &fs.PathError{Op: "read", Path: f.name, Err: f.vast.readFailure}
	}
	n := min(int64(len(b)), f.file.size-offset)
	if n <= 0 {
		return 0, io.EOF
	}
	f.file.fill(b[:n], offset)
	f.vast.read += n
	if n < int64(len(b)) {
		return int(n), io.EOF
	}
	return int(n), nil
}

// around is a file of size bytes that begins with head, ends with tail, and has
// filler between.
func around(head string, size int64, filler byte, tail string) vastFile {
	return vastFile{size: size, fill: func(b []byte, offset int64) {
		for n := copy(b, []byte{filler}); n < len(b); n *= 2 {
			copy(b[n:], b[:n])
		}
		if offset < int64(len(head)) {
			copy(b, head[offset:])
		}
		if start := size - int64(len(tail)) - offset; start < int64(len(b)) {
			copy(b[max(start, 0):], tail[max(-start, 0):])
		}
	}}
}

const plainMail = "From: Ann <ann@example.com>\nSubject: Small\nDate: Mon, 02 Mar 2026 10:00:00 +0000\nMessage-ID: <small@example.com>\n\nA small mail.\n"

// allocated runs f and returns the bytes it allocated.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestHugeMessages(t *testing.T) {
	const huge = 50 << 20
	head := "From: Bob <bob@example.com>\nSubject: Film\nDate: Mon, 02 Mar 2026 11:00:00 +0000\nMessage-ID: <film@example.com>\n" +
		"Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: text/plain\n\nHere is the film.\n" +
		"--b\nContent-Type: video/mp4\nContent-Disposition: attachment; filename=film.mp4\n\n"
	for name, test := range map[string]struct {
		files     map[string]vastFile
		want      []string
		mostRead  int64
		mostAlloc uint64
	}{
		"Maildir": {
			files: map[string]vastFile{
				"new/1.host": around(head, huge, 'x', ""),
				"new/2.host": around(plainMail, int64(len(plainMail)), 0, ""),
				"cur/.keep":  {},
			},
			want:      []string{": Film\n  attached: film.mp4 and perhaps more\n  \"Here is the film.\"", "\"A small mail.\""},
			mostRead:  256 << 10,
			mostAlloc: 2 << 20,
		},
		"header without end": {
			files: map[string]vastFile{
				"new/1.host": around("From: Bob <bob@example.com>\nSubject: ", huge, 'x', ""),
				"new/2.host": around(plainMail, int64(len(plainMail)), 0, ""),
				"cur/.keep":  {},
			},
			want:      []string{"\"A small mail.\"", "Could not read: new/1.host (header over 256 KiB)"},
			mostRead:  512 << 10,
			mostAlloc: 2 << 20,
		},
		"mbox": {
			// One line of 50 MB between two mails.
			files: map[string]vastFile{
				"inbox": around("From bob@example.com Mon Mar  2 11:00:00 2026\n"+head, huge, 'x', "\n\nFrom ann@example.com Mon Mar  2 10:00:00 2026\n"+plainMail),
			},
			want:      []string{": Film\n", "\"A small mail.\""},
			mostRead:  huge + 1<<20,
			mostAlloc: 4 << 20,
		},
		"mbox over the limit": {
			files: map[string]vastFile{
				"inbox": around("From bob@example.com Mon Mar  2 11:00:00 2026\n"+head, 400<<20, '\n', "\n\nFrom ann@example.com Mon Mar  2 10:00:00 2026\n"+plainMail),
			},
			want:      []string{"\"A small mail.\"", "Of inbox only the last 64 MiB were read."},
			mostRead:  65 << 20,
			mostAlloc: 4 << 20,
		},
	} {
		t.Run(name, func(t *testing.T) {
			fsys := &vastFS{files: test.files}
			var reply string
			spent := allocated(func() { reply = ask(t, fsys, march2()) })
			for _, want := range test.want {
				if !strings.Contains(reply, want) {
					t.Errorf("reply lacks %q:\n%s", want, reply)
				}
			}
			if fsys.read > test.mostRead {
				t.Errorf("read %d bytes, limit %d", fsys.read, test.mostRead)
			}
			if spent > test.mostAlloc {
				t.Errorf("allocated %d bytes, limit %d", spent, test.mostAlloc)
			}
		})
	}
}

// TestQuota holds the hand to its own bounds, which are below the host's.
func TestQuota(t *testing.T) {
	many := make(map[string]vastFile)
	for i := range 6_000 {
		mail := fmt.Sprintf("From: <a%d@example.com>\nSubject: Number %d\nDate: Mon, 02 Mar 2026 10:00:00 +0000\nMessage-ID: <%d@example.com>\n\nx\n", i, i, i)
		many[fmt.Sprintf("new/%d.%d.host", 1772440000+i, i)] = around(mail, int64(len(mail)), 0, "")
	}
	many["cur/.keep"] = vastFile{}
	fsys := &vastFS{files: many}
	reply := ask(t, fsys, march2())
	if fsys.opens > maxCalls/2 {
		t.Errorf("%d mails opened", fsys.opens)
	}
	for _, want := range []string{"2000 new mails", "Number 5999\n", "\n… and 1", "Only the newest 2000 mails were opened, 4000 others were not."} {
		if !strings.Contains(reply, want) {
			t.Errorf("reply lacks %q:\n%s", want, reply)
		}
	}
	if strings.Contains(reply, "Number 3999") {
		t.Error("the oldest mails were opened")
	}

	mboxes := make(map[string]vastFile)
	for i := range 4 {
		mail := fmt.Sprintf("\n\nFrom ann@example.com Mon Mar  2 10:00:00 2026\nFrom: <a%d@example.com>\nSubject: Number %d\nDate: Mon, 02 Mar 2026 10:00:00 +0000\n\nx\n", i, i)
		mboxes[fmt.Sprint("box", i)] = around("From x Mon Mar  2 10:00:00 2026\nFrom: <a@example.com>\nDate: Sun, 01 Mar 2026 10:00:00 +0000\n\n", 60<<20, '\n', mail)
	}
	fsys = &vastFS{files: mboxes}
	reply = ask(t, fsys, march2())
	if fsys.read > maxReadBytes+2*mboxPiece {
		t.Errorf("read %d bytes of mbox files", fsys.read)
	}
	if !strings.Contains(reply, "Number 0\n") || !strings.Contains(reply, "Reading stopped at a limit") {
		t.Errorf("reply:\n%s", reply)
	}

	// The operator's own limit may be lower still.
	fsys = &vastFS{files: mboxes, readFailure: abi.KindQuotaExceeded}
	if reply = ask(t, fsys, march2()); !strings.Contains(reply, "Reading stopped at a limit") {
		t.Errorf("reply:\n%s", reply)
	}
}

// openCounter counts which files are opened.
type openCounter struct {
	fs.FS
	opened []string
}

func (c *openCounter) Open(name string) (fs.File, error) {
	f, err := c.FS.Open(name)
	if err == nil {
		if info, err := f.Stat(); err == nil && !info.IsDir() {
			c.opened = append(c.opened, name)
		}
	}
	return f, err
}

// TestUnopened: files that can hold nothing of the window are not opened.
func TestUnopened(t *testing.T) {
	day := march2().From
	file := func(modified time.Time) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte(plainMail), ModTime: modified}
	}
	old := day.AddDate(0, -1, 0)
	name := func(stamp time.Time, rest string) string { return fmt.Sprintf("%d.%s", stamp.Unix(), rest) }
	fsys := &openCounter{FS: fstest.MapFS{
		"cur/" + name(day, "inside:2,"):              file(day),
		"cur/" + name(old, "moved_here_today:2,"):    file(day),
		"cur/" + name(day.AddDate(0, 0, -2), "near"): file(day.AddDate(0, 0, -2)),
		"cur/" + name(old, "old:2,"):                 file(old),
		"cur/" + name(day.AddDate(0, 1, 0), "later"): file(day.AddDate(0, 1, 0)),
		"cur/" + name(day, "trashed:2,T"):            file(day),
		"cur/no-time":                                file(time.Time{}),
		"new":                                        {Mode: fs.ModeDir},
		"archive/2024":                               {Data: []byte("From a Mon Mar  2 10:00:00 2026\n" + plainMail), ModTime: old},
		"Drafts/x.eml":                               file(day),
		"cur/" + name(day, "link"):                   {Mode: fs.ModeSymlink},
	}}
	ask(t, fsys, march2())
	slices.Sort(fsys.opened)
	want := []string{"archive/2024", "cur/" + name(old, "moved_here_today:2,"), "cur/" + name(day.AddDate(0, 0, -2), "near"), "cur/" + name(day, "inside:2,"), "cur/no-time"}
	slices.Sort(want)
	if !slices.Equal(fsys.opened, want) {
		t.Errorf("opened %q, want %q", fsys.opened, want)
	}
}

// TestBroken: what cannot be read is named, and the rest is used.
func TestBroken(t *testing.T) {
	fsys := fstest.MapFS{"good.eml": {Data: []byte(plainMail)}}
	for i := range 7 {
		fsys[fmt.Sprintf("bad%d.eml", i)] = &fstest.MapFile{Data: []byte{0, 1, 2, byte(i)}}
	}
	reply := ask(t, fsys, march2())
	if !strings.Contains(reply, "A small mail.") || !strings.Contains(reply, "Could not read: bad0.eml (not a mail: no header field that mail has); bad1.eml") || !strings.HasSuffix(reply, "; and 2 more") {
		t.Errorf("reply:\n%s", reply)
	}
	delete(fsys, "good.eml")
	if reply := ask(t, fsys, march2()); !strings.Contains(reply, "no new mail") || !strings.Contains(reply, "; and 2 more") {
		t.Errorf("only broken mails:\n%s", reply)
	}
	// Nothing in the window and nothing wrong: nothing to say.
	q := march2()
	q.From, q.To = q.From.AddDate(0, 0, 7), q.To.AddDate(0, 0, 7)
	q.Now = q.To
	if reply := ask(t, fstest.MapFS{"good.eml": {Data: []byte(plainMail)}}, q); reply != "" {
		t.Errorf("empty window: %q", reply)
	}
}

// TestSize: a reply keeps to the tokens asked for, however few, and shows the
// most important mail first.
func TestSize(t *testing.T) {
	fsys := make(fstest.MapFS)
	for i := range 60 {
		words := strings.Repeat("many words 日本語 ", 30)
		header := ""
		if i == 17 {
			header = "Importance: high\n"
		}
		fsys[fmt.Sprintf("m%02d.eml", i)] = &fstest.MapFile{Data: fmt.Appendf(nil,
			"From: Ann <ann@example.com>\nSubject: No. %02d\nDate: Mon, 02 Mar 2026 10:%02d:00 +0000\nMessage-ID: <%d@example.com>\n%s\n%s\n", i, i%60, i, header, words)}
	}
	shown := -1
	for _, limit := range []int{1, 10, 20, 40, 64, 100, 256, 1_000, 4_000, 20_000} {
		q := march2()
		q.MaxOutputTokens = limit
		reply := ask(t, fsys, q)
		if n := tokens.Estimate(reply); n > limit {
			t.Errorf("%d tokens, limit %d:\n%s", n, limit, reply)
		}
		lines := strings.Count(reply, "\n- ")
		if lines < shown {
			t.Errorf("limit %d shows %d mails, a lower one %d", limit, lines, shown)
		}
		shown = lines
		if limit >= 40 && lines == 0 {
			t.Errorf("limit %d shows no mail", limit)
		}
		rest := strings.Contains(reply, fmt.Sprintf("… and %d more", 60-lines))
		if lines > 0 && rest != (lines < 60) {
			t.Errorf("limit %d: %d mails shown:\n%s", limit, lines, reply)
		}
		if first := strings.Index(reply, "\n- "); first >= 0 && !strings.Contains(reply[first:min(first+80, len(reply))], "No. 17") {
			t.Errorf("limit %d: the important mail is not first:\n%s", limit, reply)
		}
		if limit >= 256 && !strings.Contains(reply, "many words") {
			t.Errorf("limit %d quotes nothing", limit)
		}
	}
	if shown != 60 {
		t.Errorf("%d of 60 mails fit 20,000 tokens", shown)
	}
	q := march2()
	q.MaxOutputTokens = 0
	if n := tokens.Estimate(ask(t, fsys, q)); n > compose.DefaultTokens || n < compose.DefaultTokens/2 {
		t.Errorf("%d tokens by default", n)
	}
}

// TestOrder: the reply is the same whatever order the file system lists in.
func TestOrder(t *testing.T) {
	fsys := make(fstest.MapFS)
	for i := range 40 {
		fsys[fmt.Sprintf("new/%d.host", i)] = &fstest.MapFile{Data: fmt.Appendf(nil,
			"From: a%d@example.com\nSubject: same\nDate: Mon, 02 Mar 2026 10:00:00 +0000\nMessage-ID: <%d@example.com>\n\n%d\n", i%7, i%20, i)}
	}
	fsys["cur/.keep"] = &fstest.MapFile{}
	want := ask(t, fsys, march2())
	if got := ask(t, reversed{fsys}, march2()); got != want {
		t.Errorf("reversed listing:\n%s\nwant:\n%s", got, want)
	}
}

// reversed lists folders backwards.
type reversed struct{ fs.FS }

func (r reversed) Open(name string) (fs.File, error) {
	f, err := r.FS.Open(name)
	if dir, ok := f.(fs.ReadDirFile); ok && err == nil {
		return &reversedDir{ReadDirFile: dir}, nil
	}
	return f, err
}

type reversedDir struct {
	fs.ReadDirFile
	done bool
}

func (d *reversedDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if d.done {
		return nil, io.EOF
	}
	d.done = true
	entries, err := d.ReadDirFile.ReadDir(-1)
	slices.Reverse(entries)
	return entries, err
}

// A mail that was copied, unpacked or exported after the window is still of it.
func TestFilesThatAreYoungerThanTheirMail(t *testing.T) {
	q := march2()
	letter := "From: Ada <ada@example.org>\r\nTo: me@example.org\r\nSubject: The pump\r\nDate: " + q.To.Add(-time.Hour).Format(time.RFC1123Z) + "\r\n\r\nIt runs.\r\n"
	file := &fstest.MapFile{Data: []byte(letter), ModTime: q.To.AddDate(0, 6, 0)}
	for _, name := range []string{"exported.eml", "Maildir/new/without-a-time"} {
		fsys := fstest.MapFS{name: file, "Maildir/cur": {Mode: fs.ModeDir | 0o755}, "Maildir/tmp": {Mode: fs.ModeDir | 0o755}, "Maildir/new": {Mode: fs.ModeDir | 0o755}}
		if reply := ask(t, fsys, q); !strings.Contains(reply, "The pump") {
			t.Errorf("%s: %q", name, reply)
		}
	}
}

func TestAnMboxThatIsNoneIsTold(t *testing.T) {
	reply := ask(t, fstest.MapFS{"bad.mbox": {Data: []byte("\xff\xfe garbage")}, "notes.txt": {Data: []byte("nothing")}}, march2())
	if !strings.Contains(reply, "bad.mbox (not an mbox") || strings.Contains(reply, "notes.txt") {
		t.Errorf("%q", reply)
	}
}
