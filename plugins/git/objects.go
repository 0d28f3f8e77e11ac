package main

import (
	"bytes"
	"cmp"
	"compress/flate"
	"compress/zlib"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/gloveboxhq/glovebox/plugins/internal/budget"
	"github.com/gloveboxhq/glovebox/plugins/internal/compose"
)

const (
	maxHashSize    = 32 // of SHA-256
	maxObjectBytes = 4 << 20
	maxCommitBytes = 1 << 20
	smallObject    = 64 << 10  // for which memory is made at once
	maxChain       = 4_096     // git makes no deltas deeper than 4,095
	maxChainBytes  = 8 << 20   // of the deltas that lead to one object
	maxInflated    = 128 << 20 // of all objects
	maxCacheBytes  = 12 << 20
	maxPacks       = 500
	maxMissing     = 10_000 // remembered as missing
)

// objectID is the hash of an object; of SHA-1 the first 20 bytes.
type objectID [maxHashSize]byte

// kind is that of an object, by its number in packs.
type kind byte

const (
	kindCommit      kind = 1
	kindTree        kind = 2
	kindBlob        kind = 3
	kindTag         kind = 4
	kindOffsetDelta kind = 6
	kindIDDelta     kind = 7
)

func (k kind) String() string {
	switch k {
	case kindCommit:
		return "commit"
	case kindTree:
		return "tree"
	case kindBlob:
		return "blob"
	case kindTag:
		return "tag"
	}
	return fmt.Sprintf("kind %d", byte(k))
}

type object struct {
	kind kind
	data []byte // not to be changed
}

// errMissing says that an object is in none of the places that are read.
var errMissing = errors.New("missing")

// objects finds the objects of a repository: loose, and in packs. It is used by
// one goroutine.
type objects struct {
	reader   *reader
	dir      string
	hashSize int
	trouble  *compose.Trouble

	opened  bool
	indexes []*packIndex // the newest first; the one that had the last object comes first
	packs   map[string]*pagedFile
	missing map[objectID]bool

	cache      map[place]object
	cacheOrder []place
	cacheBytes int
	inflated   int64
	inflater   io.ReadCloser
}

// packIndex is an index that is opened when it is first asked.
type packIndex struct {
	name  string   // of the file
	packs []string // names of the files of the packs that it is of
	index *index
	bad   bool
}

// place is where an object is: at an offset of a pack, or loose.
type place struct {
	pack   string
	offset int64
	id     objectID
}

func (o *objects) short(id objectID) string { return hex.EncodeToString(id[:])[:7] }

// get returns an object of the kind wanted. Errors are errMissing, errTooLarge,
// errDamaged, those of reading, and what ends the query.
func (o *objects) get(id objectID, want kind) (object, error) {
	got, err := o.find(id)
	if err != nil {
		return object{}, err
	}
	if got.kind != want {
		return object{}, damaged("a %v where a %v should be", got.kind, want)
	}
	return got, nil
}

func (o *objects) find(id objectID) (object, error) {
	if o.missing[id] {
		return object{}, errMissing
	}
	if err := o.openPacks(); err != nil {
		return object{}, err
	}
	var failed error
	for i, p := range o.indexes {
		pack, offset, found, err := o.lookUp(p, id)
		if err := o.reader.budget.Ends(err); err != nil {
			return object{}, err
		}
		if !found {
			continue
		}
		// The next object is likely to be beside this one.
		copy(o.indexes[1:], o.indexes[:i])
		o.indexes[0] = p
		got, err := o.packed(pack, offset)
		if err == nil || o.reader.budget.Ends(err) != nil {
			return got, err
		}
		failed = err // another pack may have it whole
		break
	}
	got, err := o.loose(id)
	if errors.Is(err, errMissing) && failed != nil {
		return object{}, failed
	}
	if errors.Is(err, errMissing) && len(o.missing) < maxMissing {
		if o.missing == nil {
			o.missing = make(map[objectID]bool)
		}
		o.missing[id] = true
	}
	return got, err
}

// openPacks lists the packs.
func (o *objects) openPacks() error {
	if o.opened {
		return nil
	}
	o.opened = true
	dir := path.Join(o.dir, "pack")
	entries, err := o.reader.list(dir)
	if err != nil {
		if ends := o.reader.budget.Ends(err); ends != nil {
			return ends
		}
		o.trouble.Broken(dir, err)
	}
	present := map[string]fs.FileInfo{}
	multi := false
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			present[e.Name()] = info
		}
		multi = multi || e.Name() == "multi-pack-index"
	}
	covered := map[string]bool{}
	if multi {
		p := &packIndex{name: path.Join(dir, "multi-pack-index")}
		file, err := o.reader.open(p.name)
		var names []string
		if err == nil {
			p.index, names, err = openMultiIndex(file, o.hashSize)
		}
		if ends := o.reader.budget.Ends(err); ends != nil {
			return ends
		}
		if err != nil {
			// Each pack has an index of its own as well.
			o.trouble.Broken(p.name, err)
		} else {
			for _, name := range names {
				if path.Base(name) != name {
					name = ""
				}
				covered[name] = true
				p.packs = append(p.packs, path.Join(dir, strings.TrimSuffix(name, ".idx")+".pack"))
			}
			o.indexes = append(o.indexes, p)
		}
	}
	var single []string
	for name := range present {
		pack := strings.TrimSuffix(name, ".idx") + ".pack"
		if strings.HasSuffix(name, ".idx") && present[pack] != nil && !covered[name] {
			single = append(single, name)
		}
	}
	slices.SortFunc(single, func(a, b string) int {
		return cmp.Or(present[b].ModTime().Compare(present[a].ModTime()), strings.Compare(a, b))
	})
	if len(single) > maxPacks {
		o.trouble.Note("Only the newest %d of %d packs were looked into.", maxPacks, len(single))
		single = single[:maxPacks]
	}
	for _, name := range single {
		o.indexes = append(o.indexes, &packIndex{name: path.Join(dir, name), packs: []string{path.Join(dir, strings.TrimSuffix(name, ".idx")+".pack")}})
	}
	return nil
}

func (o *objects) lookUp(p *packIndex, id objectID) (pack string, offset int64, found bool, err error) {
	if p.bad {
		return "", 0, false, nil
	}
	n := 0
	if p.index == nil {
		var file *pagedFile
		if file, err = o.reader.open(p.name); err == nil {
			p.index, err = openIndex(file, o.hashSize)
		}
	}
	if err == nil {
		n, offset, found, err = p.index.find(id)
	}
	if err != nil {
		p.bad = true
		if o.reader.budget.Ends(err) == nil {
			o.trouble.Broken(p.name, err)
		}
		return "", 0, false, err
	}
	if !found {
		return "", 0, false, nil
	}
	return p.packs[n], offset, true, nil
}

// packed reads an object from a pack: it inflates deltas until one is of a whole
// object, then applies them.
func (o *objects) packed(pack string, offset int64) (object, error) {
	type step struct {
		place place
		delta []byte
	}
	var chain []step
	chainBytes := 0
	var base object
	at := place{pack: pack, offset: offset}
	for {
		if cached, ok := o.cache[at]; ok {
			base = cached
			break
		}
		if len(chain) > maxChain || chainBytes > maxChainBytes {
			return object{}, errTooLarge
		}
		file, err := o.pack(at.pack)
		if err != nil {
			return object{}, err
		}
		s := file.from(at.offset)
		head, err := readEntryHead(s, at.offset, o.hashSize)
		if err != nil {
			return object{}, whole(err)
		}
		if head.kind == kindBlob {
			return object{kind: kindBlob}, nil // nobody wants to see it
		}
		if head.size > maxObjectBytes {
			return object{}, errTooLarge
		}
		data, err := o.inflate(s, head.size)
		if err != nil {
			return object{}, err
		}
		if head.kind != kindOffsetDelta && head.kind != kindIDDelta {
			base = object{head.kind, data}
			o.remember(at, base)
			break
		}
		chain = append(chain, step{at, data})
		chainBytes += len(data)
		if head.kind == kindOffsetDelta {
			at = place{pack: at.pack, offset: head.base}
			continue
		}
		if at, err = o.placeOf(head.baseID, at.pack); err != nil {
			return object{}, err
		}
		// An offset leads only backwards, so that every loop comes by here.
		if slices.ContainsFunc(chain, func(s step) bool { return s.place == at }) {
			return object{}, errDeltaLoop
		}
	}
	for _, s := range slices.Backward(chain) {
		data, err := applyDelta(base.data, s.delta)
		if err != nil {
			return object{}, err
		}
		if o.inflated += int64(len(data)); o.inflated > maxInflated {
			return object{}, budget.ErrSpent
		}
		base.data = data
		o.remember(s.place, base)
	}
	return base, nil
}

// placeOf tells where the base of a delta is, which stands in the same pack.
func (o *objects) placeOf(id objectID, pack string) (place, error) {
	for _, p := range o.indexes {
		if !slices.Contains(p.packs, pack) {
			continue
		}
		found, offset, ok, err := o.lookUp(p, id)
		if err != nil {
			return place{}, err
		}
		if ok {
			return place{pack: found, offset: offset}, nil
		}
	}
	return place{}, damaged("a delta to an object that its pack does not have")
}

func (o *objects) pack(name string) (*pagedFile, error) {
	if file, ok := o.packs[name]; ok {
		return file, nil
	}
	file, err := o.reader.open(name)
	if err != nil {
		return nil, err
	}
	var head [8]byte
	if _, err := file.ReadAt(head[:], 0); err != nil {
		return nil, whole(err)
	}
	if string(head[:4]) != "PACK" || head[7] != 2 && head[7] != 3 {
		return nil, damaged("not a pack of a version that this hand knows")
	}
	if o.packs == nil {
		o.packs = make(map[string]*pagedFile)
	}
	o.packs[name] = file
	return file, nil
}

// loose reads an object from a file of its own.
func (o *objects) loose(id objectID) (object, error) {
	at := place{id: id}
	if cached, ok := o.cache[at]; ok {
		return cached, nil
	}
	name := hex.EncodeToString(id[:o.hashSize])
	file, err := o.reader.open(path.Join(o.dir, name[:2], name[2:]))
	if errors.Is(err, fs.ErrNotExist) {
		return object{}, errMissing
	}
	if err != nil {
		return object{}, err
	}
	defer file.close()
	s := file.from(0)
	if err := o.beginInflating(s); err != nil {
		return object{}, err
	}
	head := make([]byte, 0, 32)
	for len(head) == 0 || head[len(head)-1] != 0 {
		if len(head) == cap(head) {
			return object{}, damaged("no head")
		}
		if _, err := io.ReadFull(o.inflater, head[len(head):len(head)+1]); err != nil {
			return object{}, whole(err)
		}
		head = head[:len(head)+1]
	}
	word, digits, _ := strings.Cut(string(head[:len(head)-1]), " ")
	got := object{}
	for _, k := range []kind{kindCommit, kindTree, kindBlob, kindTag} {
		if word == k.String() {
			got.kind = k
		}
	}
	size, err := strconv.ParseInt(digits, 10, 64)
	if got.kind == 0 || err != nil || size < 0 {
		return object{}, damaged("a head that is none")
	}
	if got.kind == kindBlob {
		return got, nil
	}
	if size > maxObjectBytes {
		return object{}, errTooLarge
	}
	if got.data, err = o.restOf(size); err != nil {
		return object{}, err
	}
	o.remember(at, got)
	return got, nil
}

func (o *objects) beginInflating(s *stream) error {
	if o.inflater == nil {
		r, err := zlib.NewReader(s)
		if err != nil {
			return whole(err)
		}
		o.inflater = r
		return nil
	}
	return whole(o.inflater.(zlib.Resetter).Reset(s, nil))
}

// inflate returns the size bytes that s begins with, compressed.
func (o *objects) inflate(s *stream, size int64) ([]byte, error) {
	if err := o.beginInflating(s); err != nil {
		return nil, err
	}
	return o.restOf(size)
}

// restOf returns what is left of the data that is being inflated, which must be
// size bytes. Memory grows with what comes, not with what is promised.
func (o *objects) restOf(size int64) ([]byte, error) {
	if o.inflated += size; o.inflated > maxInflated {
		return nil, budget.ErrSpent
	}
	if size >= 0 && size <= smallObject {
		// One byte more, for only the end tells whether the checksum is right.
		data, n := make([]byte, size+1), 0
		for n < len(data) {
			m, err := o.inflater.Read(data[n:])
			if n += m; err == io.EOF {
				break
			} else if err != nil {
				return nil, whole(err)
			}
		}
		if int64(n) != size {
			return nil, damaged("%d bytes where %d should be", n, size)
		}
		return data[:size], nil
	}
	var data bytes.Buffer
	data.Grow(smallObject)
	n, err := data.ReadFrom(io.LimitReader(o.inflater, size+1))
	switch {
	case err != nil:
		return nil, whole(err)
	case n != size:
		return nil, damaged("%d bytes where %d should be", n, size)
	}
	return data.Bytes(), nil
}

// whole says what it means that data is no zlib data or ends too soon.
func whole(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return damaged("the end is missing")
	case errors.Is(err, zlib.ErrHeader), errors.Is(err, zlib.ErrChecksum), errors.Is(err, zlib.ErrDictionary):
		return damaged("%s", strings.TrimPrefix(err.Error(), "zlib: "))
	}
	if corrupt := flate.CorruptInputError(0); errors.As(err, &corrupt) {
		return damaged("%s", strings.TrimPrefix(err.Error(), "flate: "))
	}
	return err
}

func (o *objects) remember(at place, got object) {
	size := len(got.data) + 128
	if size > maxCacheBytes/4 {
		return
	}
	if o.cache == nil {
		o.cache = make(map[place]object)
	}
	for o.cacheBytes+size > maxCacheBytes {
		oldest := o.cacheOrder[0]
		o.cacheOrder = o.cacheOrder[1:]
		o.cacheBytes -= len(o.cache[oldest].data) + 128
		delete(o.cache, oldest)
	}
	if _, ok := o.cache[at]; ok {
		return
	}
	o.cache[at] = got
	o.cacheOrder = append(o.cacheOrder, at)
	o.cacheBytes += size
}
