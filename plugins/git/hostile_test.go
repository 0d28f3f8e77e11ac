package main

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"
	"unicode/utf8"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/abi/tokens"
)

// forged is a bare repository of any content, in which objects have any name.
type forged struct{ fstest.MapFS }

// Open looks a file up without looking at all others.
func (f forged) Open(name string) (fs.File, error) {
	if file, ok := f.MapFS[name]; ok && !file.Mode.IsDir() {
		return fstest.MapFS{"x": file}.Open("x")
	}
	return f.MapFS.Open(name)
}

func forge(head string) forged {
	return forged{fstest.MapFS{
		"HEAD":            {Data: []byte("ref: refs/heads/main\n")},
		"refs/heads/main": {Data: []byte(name(head) + "\n")},
		"objects":         {Mode: fs.ModeDir | 0o755},
	}}
}

// name is a made up hash that begins with the letters of s in hexadecimal.
func name(s string) string {
	return (hex.EncodeToString([]byte(s)) + strings.Repeat("0", 40))[:40]
}

func deflate(data []byte) []byte {
	var b bytes.Buffer
	w := zlib.NewWriter(&b)
	w.Write(data)
	w.Close()
	return b.Bytes()
}

func (f forged) loose(id, kind, content string) {
	f.raw(id, deflate(fmt.Appendf(nil, "%s %d\x00%s", kind, len(content), content)))
}

func (f forged) raw(id string, file []byte) {
	n := name(id)
	f.MapFS["objects/"+n[:2]+"/"+n[2:]] = &fstest.MapFile{Data: file}
}

// commitText is a commit so many minutes after nine of the day.
func commitText(minute int, tree, message string, parents ...string) string {
	at := march23().From.Add(9*time.Hour + time.Duration(minute)*time.Minute).Unix()
	text := "tree " + name(tree) + "\n"
	for _, p := range parents {
		text += "parent " + name(p) + "\n"
	}
	return text + fmt.Sprintf("author Eve <eve@example.org> %d +0000\ncommitter Eve <eve@example.org> %d +0000\n\n%s\n", at, at, message)
}

func treeText(entries ...string) string {
	var b strings.Builder
	for _, e := range entries {
		mode, rest, _ := strings.Cut(e, " ")
		file, id, _ := strings.Cut(rest, " ")
		raw, _ := hex.DecodeString(name(id))
		b.WriteString(mode + " " + file + "\x00" + string(raw))
	}
	return b.String()
}

// entry is an object of a forged pack.
type entry struct {
	id   string
	kind kind
	base string // of a delta by id
	size int    // said to be, if not 0
	data []byte // not deflated
}

// pack adds a pack and its index.
func (f forged) pack(entries ...entry) {
	pack := append([]byte("PACK\x00\x00\x00\x02"), 0, 0, 0, byte(len(entries)))
	offsets := map[string]int{}
	for _, e := range entries {
		offsets[name(e.id)] = len(pack)
		size := e.size
		if size == 0 {
			size = len(e.data)
		}
		c := byte(e.kind)<<4 | byte(size&15)
		for size >>= 4; size > 0; size >>= 7 {
			pack = append(pack, c|0x80)
			c = byte(size & 0x7f)
		}
		pack = append(pack, c)
		if e.kind == kindIDDelta {
			raw, _ := hex.DecodeString(name(e.base))
			pack = append(pack, raw...)
		}
		pack = append(pack, deflate(e.data)...)
	}
	ids := slices.Sorted(func(yield func(string) bool) {
		for id := range offsets {
			if !yield(id) {
				return
			}
		}
	})
	index := []byte("\xfftOc\x00\x00\x00\x02")
	for b := range 256 {
		n := 0
		for _, id := range ids {
			if raw, _ := hex.DecodeString(id); int(raw[0]) <= b {
				n++
			}
		}
		index = binary.BigEndian.AppendUint32(index, uint32(n))
	}
	for _, id := range ids {
		raw, _ := hex.DecodeString(id)
		index = append(index, raw...)
	}
	index = append(index, make([]byte, 4*len(ids))...)
	for _, id := range ids {
		index = binary.BigEndian.AppendUint32(index, uint32(offsets[id]))
	}
	n := len(f.MapFS)
	f.MapFS[fmt.Sprintf("objects/pack/pack-%d.pack", n)] = &fstest.MapFile{Data: pack}
	f.MapFS[fmt.Sprintf("objects/pack/pack-%d.idx", n)] = &fstest.MapFile{Data: index}
}

// insertion is a delta that makes text out of a base of so many bytes.
func insertion(base int, text string) []byte {
	number := func(n int) (b []byte) {
		for ; n >= 0x80; n >>= 7 {
			b = append(b, byte(n)|0x80)
		}
		return append(b, byte(n))
	}
	delta := append(number(base), number(len(text))...)
	for len(text) > 0 {
		n := min(len(text), 127)
		delta = append(append(delta, byte(n)), text[:n]...)
		text = text[n:]
	}
	return delta
}

// TestDamaged: what is damaged or hostile is named and costs only itself.
func TestDamaged(t *testing.T) {
	good := func(f forged) {
		f.loose("tree", "tree", treeText("100644 file x"))
		f.loose("last", "commit", commitText(5, "tree", "The last", "bad"))
		f.loose("good", "commit", commitText(1, "tree", "The first"))
	}
	bomb := deflate(append([]byte("commit 100\x00"), make([]byte, 64<<20)...))
	for what, test := range map[string]struct {
		make func(f forged)
		want string
	}{
		"missing":           {func(f forged) {}, "6261640 (missing)"},
		"no zlib":           {func(f forged) { f.raw("bad", []byte("hello")) }, "6261640 (damaged: invalid header)"},
		"empty":             {func(f forged) { f.raw("bad", nil) }, "6261640 (damaged: the end is missing)"},
		"cut":               {func(f forged) { f.raw("bad", deflate([]byte(commitText(3, "tree", "x")))[:60]) }, "6261640 (damaged: "},
		"wrong checksum":    {func(f forged) { f.raw("bad", spoil(deflate([]byte("commit 3\x00abc")), -1)) }, "6261640 (damaged: invalid checksum)"},
		"corrupt":           {func(f forged) { f.raw("bad", spoil(deflate([]byte("commit 3\x00abc")), 3)) }, "6261640 (damaged"},
		"no head":           {func(f forged) { f.raw("bad", deflate([]byte(strings.Repeat("x", 1_000)))) }, "6261640 (damaged: no head)"},
		"wrong head":        {func(f forged) { f.raw("bad", deflate([]byte("comet 3\x00abc"))) }, "6261640 (damaged: a head that is none)"},
		"negative size":     {func(f forged) { f.raw("bad", deflate([]byte("commit -3\x00abc"))) }, "6261640 (damaged: a head that is none)"},
		"shorter than said": {func(f forged) { f.raw("bad", deflate([]byte("commit 300\x00abc"))) }, "6261640 (damaged: 3 bytes where 300 should be)"},
		"bomb":              {func(f forged) { f.raw("bad", bomb) }, "6261640 (damaged: 101 bytes where 100 should be)"},
		"said to be huge":   {func(f forged) { f.raw("bad", deflate([]byte("commit 99999999999\x00abc"))) }, "6261640 (larger than this hand reads)"},
		"a tree":            {func(f forged) { f.loose("bad", "tree", "") }, "6261640 (damaged: a tree where a commit should be)"},
		"a blob":            {func(f forged) { f.loose("bad", "blob", commitText(1, "x", "y")) }, "6261640 (damaged: a blob where a commit should be)"},
		"no tree":           {func(f forged) { f.loose("bad", "commit", "author x\n\nhello\n") }, "6261640 (damaged: a commit without a tree)"},
		"no parent":         {func(f forged) { f.loose("bad", "commit", "tree "+name("x")+"\nparent 12\n\nhello\n") }, "6261640 (damaged: a parent that is no"},
		"a folder":          {func(f forged) { f.MapFS["objects/62/"+name("bad")[2:]+"/x"] = &fstest.MapFile{} }, "6261640 (not a regular file)"},
		"delta of itself":   {func(f forged) { f.pack(entry{"bad", kindIDDelta, "bad", 0, insertion(3, "x")}) }, "6261640 (damaged: a delta that leads back to itself)"},
		"deltas in a circle": {func(f forged) {
			f.pack(entry{"bad", kindIDDelta, "b", 0, insertion(3, "x")}, entry{"b", kindIDDelta, "bad", 0, insertion(3, "x")})
		}, "6261640 (damaged: a delta that leads back"},
		"delta of nothing": {func(f forged) { f.pack(entry{"bad", kindIDDelta, "b", 0, insertion(3, "x")}) }, "6261640 (damaged: a delta to an object that its pack"},
		"delta of other": {func(f forged) {
			f.pack(entry{"bad", kindIDDelta, "b", 0, insertion(3, "x")}, entry{"b", kindCommit, "", 0, []byte("four")})
		}, "6261640 (damaged: a delta to an object of another size)"},
		"delta before pack": {func(f forged) { f.pack(entry{"bad", kindOffsetDelta, "", 0, []byte("abcdefg")}) }, "6261640 (damaged"},
		"unknown kind":      {func(f forged) { f.pack(entry{"bad", 5, "", 0, []byte("abc")}) }, "6261640 (damaged: an object of kind 5)"},
		"packed bomb":       {func(f forged) { f.pack(entry{"bad", kindCommit, "", 100, make([]byte, 64<<20)}) }, "6261640 (damaged: 101 bytes where 100 should be)"},
		"packed and huge":   {func(f forged) { f.pack(entry{"bad", kindCommit, "", 1 << 40, []byte("abc")}) }, "6261640 (larger than this hand reads)"},
		"delta to huge": {func(f forged) {
			f.pack(entry{"bad", kindIDDelta, "b", 0, []byte("\x04\xff\xff\xff\xff\x7f")}, entry{"b", kindCommit, "", 0, []byte("four")})
		}, "6261640 (larger than this hand reads)"},
		"index out of order": {func(f forged) {
			f.pack(entry{"bad", kindCommit, "", 0, []byte("abc")})
			spoil(f.MapFS["objects/pack/pack-6.idx"].Data, 8)
		}, "objects/pack/pack-6.idx (damaged: its table of first bytes is not in order)"},
		"index cut": {func(f forged) {
			f.pack(entry{"bad", kindCommit, "", 0, []byte("abc")})
			file := f.MapFS["objects/pack/pack-6.idx"]
			file.Data = file.Data[:1040]
		}, "objects/pack/pack-6.idx (damaged: it should have 1060 bytes at least and has 1040)"},
		"index of the future": {func(f forged) {
			f.pack(entry{"bad", kindCommit, "", 0, []byte("abc")})
			f.MapFS["objects/pack/pack-6.idx"].Data[7] = 3
		}, "objects/pack/pack-6.idx (an index of version 3, which this hand does not know)"},
		"offset far out": {func(f forged) {
			f.pack(entry{"bad", kindCommit, "", 0, []byte("abc")})
			data := f.MapFS["objects/pack/pack-6.idx"].Data
			data[len(data)-3] = 0xff
		}, "6261640 (damaged: the end is missing)"},
		"not a pack": {func(f forged) {
			f.pack(entry{"bad", kindCommit, "", 0, []byte("abc")})
			f.MapFS["objects/pack/pack-6.pack"].Data = []byte("garbage!")
		}, "6261640 (damaged: not a pack of a version"},
		"multi-pack-index": {func(f forged) {
			f.MapFS["objects/pack/multi-pack-index"] = &fstest.MapFile{Data: []byte("MIDX\x01\x01\xff\x00\x00\x00\xff\xff")}
		},
			"objects/pack/multi-pack-index (larger than this hand reads)"},
		"references in a circle": {func(f forged) { f.MapFS["refs/heads/loop"] = &fstest.MapFile{Data: []byte("ref: refs/heads/loop")} }, "refs/heads/loop (damaged: it names refs/heads/loop)"},
		"reference that leads out": {func(f forged) {
			f.MapFS["refs/heads/out"] = &fstest.MapFile{Data: []byte("ref: refs/../../../etc/passwd")}
		}, "refs/heads/out (damaged: it names refs/../"},
		"reference of garbage": {func(f forged) { f.MapFS["refs/heads/junk"] = &fstest.MapFile{Data: []byte("\x00\xff")} }, "refs/heads/junk (damaged: it holds no object's name)"},
		"huge reference":       {func(f forged) { f.MapFS["refs/heads/huge"] = &fstest.MapFile{Data: make([]byte, maxSmallFile+1)} }, "refs/heads/huge (larger than this hand reads)"},
		"tags in a circle": {func(f forged) {
			f.MapFS["refs/tags/loop"] = &fstest.MapFile{Data: []byte(name("tag"))}
			f.loose("tag", "tag", "object "+name("tag")+"\ntype tag\n")
		}, "tag loop (damaged: a tag of a tag of a tag)"},
		"broken tree": {func(f forged) { f.loose("tree", "tree", "100644 no end") }, "the files of 676f6f6 (damaged: a tree whose entries cannot be told apart)"},
	} {
		t.Run(what, func(t *testing.T) {
			f := forge("last")
			good(f)
			test.make(f)
			f.MapFS["refs/heads/good"] = &fstest.MapFile{Data: []byte(name("good"))}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			reply := ask(t, f, march23())
			runtime.ReadMemStats(&after)
			if !strings.Contains(reply, test.want) {
				t.Errorf("reply lacks %q:\n%s", test.want, reply)
			}
			if !strings.Contains(reply, ": The last [main]") || !strings.Contains(reply, ": The first [good]") || what != "broken tree" && !strings.Contains(reply, "1 file: file (added)") {
				t.Errorf("the rest is not told:\n%s", reply)
			}
			if spent := after.TotalAlloc - before.TotalAlloc; spent > 8<<20 {
				t.Errorf("allocated %d bytes", spent)
			}
		})
	}
}

// spoil changes one byte; a negative index is from the end.
func spoil(data []byte, at int) []byte {
	if at < 0 {
		at += len(data)
	}
	data[at] ^= 0xff
	return data
}

// TestCircles: histories and folders that lead back to themselves end.
func TestCircles(t *testing.T) {
	f := forge("a")
	f.loose("a", "commit", commitText(2, "t", "A", "b", "a"))
	f.loose("b", "commit", commitText(1, "t", "B", "a"))
	f.loose("t", "tree", treeText("40000 self t", "40000 twin t"))
	reply := ask(t, f, march23())
	if !strings.Contains(reply, ": A (merge) [main]") || !strings.Contains(reply, ": B\n  no file changed") || strings.Count(reply, "\n- ") != 2 {
		t.Errorf("reply:\n%s", reply)
	}
	f.loose("b", "commit", commitText(1, "t", "B"))
	if reply := ask(t, f, march23()); !strings.Contains(reply, ": B\n  at least 0 files") {
		t.Errorf("a folder in itself:\n%s", reply)
	}
}

// TestMuch: more than is read is said, in bounded work.
func TestMuch(t *testing.T) {
	f := forge("c0")
	f.loose("t", "tree", treeText("100644 x y"))
	for i := range 5_000 {
		f.loose(fmt.Sprint("c", i), "commit", commitText(-i/100, "t", "Again", fmt.Sprint("c", i+1)))
	}
	reply := ask(t, f, march23())
	if !strings.Contains(reply, "Reading stopped at a limit; some commits were not looked at.") || !strings.Contains(reply, ": Again [main]") {
		t.Errorf("5,000 loose commits:\n%.500s", reply)
	}

	f = forge("c0")
	var packed []entry
	for i := range maxWalked + 10 {
		packed = append(packed, entry{id: fmt.Sprint("c", i), kind: kindCommit, data: []byte(commitText(-i, "t", "Again", fmt.Sprint("c", i+1)))})
	}
	f.pack(packed...)
	q := march23()
	q.From, q.To = q.From.AddDate(-1, 0, 0), q.From
	if reply := ask(t, f, q); !strings.Contains(reply, "Only 12000 commits were looked at.") {
		t.Errorf("more commits than are looked at:\n%.500s", reply)
	}

	f = forge("a")
	f.loose("a", "commit", commitText(1, "big", "Much"))
	var entries []string
	for i := range 50_000 {
		entries = append(entries, fmt.Sprintf("100644 %06d.txt %d", i, i))
	}
	f.loose("big", "tree", treeText(entries...))
	if reply := ask(t, f, march23()); !strings.Contains(reply, "50000 files: 000000.txt (added), ") || !strings.Contains(reply, ", 49994 more") {
		t.Errorf("a big folder:\n%.500s", reply)
	}
	for i := range 2_000 {
		f.MapFS[fmt.Sprintf("refs/heads/b%d", i)] = &fstest.MapFile{Data: []byte(name("a"))}
	}
	reply = ask(t, f, march23())
	for _, want := range []string{"Only 1000 references in files of their own were read", "Only 500 of 1001 branches were looked at", "[main, b0, b1, b10 and 496 more]"} {
		if !strings.Contains(reply, want) {
			t.Errorf("reply lacks %q:\n%.1000s", want, reply)
		}
	}
	q = march23()
	for _, failure := range []error{abi.KindQuotaExceeded, abi.KindTooManyCalls} {
		if reply := ask(t, failing{f.MapFS, failure}, q); !strings.Contains(reply, "Reading stopped at a limit") {
			t.Errorf("%v: %s", failure, reply)
		}
	}
}

// failing refuses to read objects.
type failing struct {
	fstest.MapFS
	err error
}

func (f failing) Open(name string) (fs.File, error) {
	if strings.HasPrefix(name, "objects/61") {
		return nil, &fs.PathError{Op: "open", Path: name, Err: f.err}
	}
	return f.MapFS.Open(name)
}

// TestDelta applies deltas by hand.
func TestDelta(t *testing.T) {
	base := []byte(strings.Repeat("0123456789", 7_000))
	for delta, want := range map[string]string{
		"\xf0\xa2\x04\x05\x03abc\x91\x09\x02":              "abc90",
		"\xf0\xa2\x04\x80\x80\x04\x80":                     string(base[:0x10000]),
		"\xf0\xa2\x04\x03\xb3\x6d\x11\x03\x00\x91\x00\x00": "",
	} {
		got, err := applyDelta(base, []byte(delta))
		if want == "" && !errors.Is(err, errDamaged) || want != "" && (err != nil || string(got) != want) {
			t.Errorf("%x: %.20q, %v", delta, got, err)
		}
	}
}

func FuzzDelta(f *testing.F) {
	f.Add([]byte("0123456789"), []byte("\x0a\x05\x03abc\x91\x09\x01"))
	f.Add([]byte("0123456789"), []byte("\x0a\xff\xff\xff\x7f\x80\x80\x80"))
	f.Fuzz(func(t *testing.T, base, delta []byte) {
		out, err := applyDelta(base, delta)
		if err == nil && len(out) > maxObjectBytes {
			t.Fatalf("%d bytes", len(out))
		}
	})
}

// FuzzPack asks about a repository whose index and pack are any bytes.
func FuzzPack(f *testing.F) {
	seed := forge("bad")
	seed.pack(entry{"bad", kindIDDelta, "b", 0, insertion(4, commitText(1, "t", "x"))}, entry{"b", kindCommit, "", 0, []byte("four")}, entry{"t", kindTree, "", 0, []byte(treeText("100644 a b"))})
	f.Add(seed.MapFS["objects/pack/pack-3.idx"].Data, seed.MapFS["objects/pack/pack-3.pack"].Data, []byte("MIDX\x01\x01\x00\x00\x00\x00\x00\x00"))
	v1 := append(bytes.Repeat([]byte{0, 0, 0, 1}, 256), make([]byte, 24)...)
	f.Add(v1, []byte("PACK\x00\x00\x00\x02\x00\x00\x00\x01\x60\x0c"), []byte{})
	midx := []byte("MIDX\x01\x01\x04\x00\x00\x00\x00\x01")
	for i, chunk := range []string{"PNAM", "OIDF", "OIDL", "OOFF", "\x00\x00\x00\x00"} {
		midx = binary.BigEndian.AppendUint64(append(midx, chunk...), uint64([]int{72, 84, 1108, 1128, 1136}[i]))
	}
	midx = append(append(midx, "pack-3.idx\x00\x00"...), bytes.Repeat([]byte{0, 0, 0, 1}, 256)...)
	midx = append(midx, make([]byte, 28)...)
	f.Add(seed.MapFS["objects/pack/pack-3.idx"].Data, seed.MapFS["objects/pack/pack-3.pack"].Data, midx)
	f.Fuzz(func(t *testing.T, index, pack, multi []byte) {
		r := forge("bad")
		r.MapFS["refs/tags/zero"] = &fstest.MapFile{Data: []byte(strings.Repeat("0", 40))}
		r.MapFS["objects/pack/pack-3.idx"] = &fstest.MapFile{Data: index}
		r.MapFS["objects/pack/pack-3.pack"] = &fstest.MapFile{Data: pack}
		if len(multi) > 0 {
			r.MapFS["objects/pack/multi-pack-index"] = &fstest.MapFile{Data: multi}
		}
		checkReply(t, r)
	})
}

// FuzzObjects asks about a repository whose objects and references have any
// content.
func FuzzObjects(f *testing.F) {
	f.Add(commitText(1, "t", "x\r\n\x1b- y", "c", "d"), treeText("40000 a t", "100644 b c"), "tag 1", "^"+name("c"))
	f.Add(commitText(1, "t", "x"), treeText("160000 sub s"), "object "+name("c")+"\ntype commit\n", name("g")+" refs/tags/v1\n^"+name("c")+"\n")
	f.Fuzz(func(t *testing.T, commit, tree, tag, packed string) {
		r := forge("c")
		r.loose("c", "commit", commit)
		r.loose("d", "commit", commitText(0, "u", "d"))
		r.loose("t", "tree", tree)
		r.loose("u", "tree", treeText("100644 b c"))
		r.loose("g", "tag", tag)
		r.MapFS["packed-refs"] = &fstest.MapFile{Data: []byte(packed)}
		r.MapFS["refs/tags/t"] = &fstest.MapFile{Data: []byte(name("g"))}
		r.MapFS["refs/heads/d"] = &fstest.MapFile{Data: []byte(name("d"))}
		checkReply(t, r)
	})
}

// checkReply holds that the reply is UTF-8 within the budget, of lines of the
// hand's own making, and the same again.
func checkReply(t *testing.T, fsys fs.FS) {
	t.Helper()
	q := march23()
	q.MaxOutputTokens = 500
	reply := ask(t, fsys, q)
	if !utf8.ValidString(reply) || tokens.Estimate(reply) > q.MaxOutputTokens {
		t.Fatalf("%d tokens: %q", tokens.Estimate(reply), reply)
	}
	for line := range strings.Lines(reply) {
		line = strings.TrimSuffix(line, "\n")
		known := line == ""
		for _, begin := range []string{"Commits from ", "- Mon 23 Mar ", "  no file changed", "  at least ", "… and ", "Could not read: ", "Only ", "It borrows", "It is a partial", "Reading stopped"} {
			known = known || strings.HasPrefix(line, begin)
		}
		if !known && !strings.Contains(line, " file: ") && !strings.Contains(line, " files: ") && !strings.HasSuffix(line, " files") && !strings.HasSuffix(line, " file") {
			t.Fatalf("line %q in %q", line, reply)
		}
	}
	if again := ask(t, fsys, q); again != reply {
		t.Fatalf("%q, then %q", reply, again)
	}
}

// TestSlop: commits of the window are found behind up to 128 older ones in a row,
// time and again.
func TestSlop(t *testing.T) {
	f := forge("c0")
	for i := range 3*slop + 4 {
		minute := -100_000
		if i%(slop+1) == 0 {
			minute = 3 * 60
		}
		f.loose(fmt.Sprint("c", i), "commit", commitText(minute-i, "t", fmt.Sprintf("No. %d.", i), fmt.Sprint("c", i+1)))
	}
	f.loose("t", "tree", "")
	for i, reply := 0, ask(t, f, march23()); i <= 3*slop+3; i += slop + 1 {
		if !strings.Contains(reply, fmt.Sprintf("No. %d.", i)) {
			t.Errorf("no. %d is missing:\n%s", i, reply)
		}
	}
}
