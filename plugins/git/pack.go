package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// The formats are those of git's documentation: gitformat-pack(5) for packs, their
// indexes and the multi-pack-index, gitformat-chunk(5) for the latter's table.

var (
	errDamaged   = errors.New("damaged")
	errDeltaLoop = fmt.Errorf("%w: a delta that leads back to itself", errDamaged)
)

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errDamaged}, args...)...)
}

// index finds objects in one pack or, as a multi-pack-index, in many.
type index struct {
	file     *pagedFile
	hashSize int
	fanout   [256]uint32
	// The nth object id is at idsAt + n × idsStep.
	idsAt, idsStep int64
	// locate tells where the nth object is: in which of the packs of a
	// multi-pack-index, 0 in another, and at which offset.
	locate func(n uint32) (pack int, offset int64, err error)
}

func (x *index) count() uint32 { return x.fanout[255] }

// find tells where an object is.
func (x *index) find(id objectID) (pack int, offset int64, found bool, err error) {
	low, high := uint32(0), x.fanout[id[0]]
	if id[0] > 0 {
		low = x.fanout[id[0]-1]
	}
	var other [maxHashSize]byte
	for low < high {
		middle := low + (high-low)/2
		if _, err := x.file.ReadAt(other[:x.hashSize], x.idsAt+int64(middle)*x.idsStep); err != nil {
			return 0, 0, false, err
		}
		switch bytes.Compare(id[:x.hashSize], other[:x.hashSize]) {
		case 0:
			pack, offset, err = x.locate(middle)
			return pack, offset, err == nil, err
		case -1:
			high = middle
		default:
			low = middle + 1
		}
	}
	return 0, 0, false, nil
}

func (x *index) readFanout(at int64) error {
	var table [1024]byte
	if _, err := x.file.ReadAt(table[:], at); err != nil {
		return err
	}
	for i := range x.fanout {
		x.fanout[i] = binary.BigEndian.Uint32(table[4*i:])
		if i > 0 && x.fanout[i] < x.fanout[i-1] {
			return damaged("its table of first bytes is not in order")
		}
	}
	return nil
}

func (x *index) uint32At(at int64) (uint32, error) {
	var b [4]byte
	_, err := x.file.ReadAt(b[:], at)
	return binary.BigEndian.Uint32(b[:]), err
}

func (x *index) uint64At(at int64) (int64, error) {
	var b [8]byte
	if _, err := x.file.ReadAt(b[:], at); err != nil {
		return 0, err
	}
	n := binary.BigEndian.Uint64(b[:])
	if n > math.MaxInt64 {
		return 0, damaged("an offset beyond any file")
	}
	return int64(n), nil
}

// openIndex reads the head of the index of one pack, of version 1 or 2.
func openIndex(file *pagedFile, hashSize int) (*index, error) {
	var head [8]byte
	if _, err := file.ReadAt(head[:], 0); err != nil {
		return nil, err
	}
	x := &index{file: file, hashSize: hashSize}
	if string(head[:4]) != "\xfftOc" {
		if err := x.readFanout(0); err != nil {
			return nil, err
		}
		x.idsAt, x.idsStep = 1024+4, int64(hashSize)+4
		x.locate = func(n uint32) (int, int64, error) {
			offset, err := x.uint32At(1024 + int64(n)*x.idsStep)
			return 0, int64(offset), err
		}
		return x, x.checkSize(1024 + int64(x.count())*x.idsStep)
	}
	if version := binary.BigEndian.Uint32(head[4:]); version != 2 {
		return nil, fmt.Errorf("an index of version %d, which this hand does not know", version)
	}
	if err := x.readFanout(8); err != nil {
		return nil, err
	}
	n := int64(x.count())
	x.idsAt, x.idsStep = 8+1024, int64(hashSize)
	offsets := x.idsAt + n*x.idsStep + n*4 // after ids and checksums
	x.locate = func(i uint32) (int, int64, error) {
		offset, err := x.uint32At(offsets + int64(i)*4)
		if err != nil || offset < 1<<31 {
			return 0, int64(offset), err
		}
		far, err := x.uint64At(offsets + n*4 + int64(offset&(1<<31-1))*8)
		return 0, far, err
	}
	return x, x.checkSize(offsets + n*4)
}

func (x *index) checkSize(least int64) error {
	if x.file.size < least {
		return damaged("it should have %d bytes at least and has %d", least, x.file.size)
	}
	return nil
}

const (
	maxChunks    = 64
	maxNameBytes = 1 << 20 // of all packs in a multi-pack-index
)

// openMultiIndex reads the head of a multi-pack-index, and the names of the
// indexes that it stands for.
func openMultiIndex(file *pagedFile, hashSize int) (x *index, names []string, err error) {
	var head [12]byte
	if _, err := file.ReadAt(head[:], 0); err != nil {
		return nil, nil, err
	}
	wantHash := byte(1)
	if hashSize == 32 {
		wantHash = 2
	}
	if string(head[:4]) != "MIDX" || head[4] != 1 || head[5] != wantHash || head[7] != 0 {
		return nil, nil, errors.New("a multi-pack-index of a kind that this hand does not know")
	}
	chunks, packs := int(head[6]), binary.BigEndian.Uint32(head[8:])
	if chunks > maxChunks || packs > maxPacks {
		return nil, nil, errTooLarge
	}
	table := make([]byte, 12*(chunks+1))
	if _, err := file.ReadAt(table, 12); err != nil {
		return nil, nil, err
	}
	type span struct{ from, to int64 }
	found := map[string]span{}
	for i := range chunks {
		from, to := binary.BigEndian.Uint64(table[12*i+4:]), binary.BigEndian.Uint64(table[12*i+16:])
		if from > to || to > uint64(file.size) {
			return nil, nil, damaged("its table of chunks is wrong")
		}
		found[string(table[12*i:12*i+4])] = span{int64(from), int64(to)}
	}
	x = &index{file: file, hashSize: hashSize}
	if c := found["OIDF"]; c.to-c.from < 1024 {
		return nil, nil, damaged("it has no table of first bytes")
	} else if err := x.readFanout(c.from); err != nil {
		return nil, nil, err
	}
	n := int64(x.count())
	ids, offsets, far := found["OIDL"], found["OOFF"], found["LOFF"]
	if ids.to-ids.from < n*int64(hashSize) || offsets.to-offsets.from < n*8 {
		return nil, nil, damaged("it has fewer entries than it says")
	}
	x.idsAt, x.idsStep = ids.from, int64(hashSize)
	x.locate = func(i uint32) (int, int64, error) {
		at := offsets.from + int64(i)*8
		pack, err := x.uint32At(at)
		if err != nil {
			return 0, 0, err
		}
		offset, err := x.uint32At(at + 4)
		if err != nil || pack >= packs {
			return 0, 0, errors.Join(err, damaged("it names a pack that there is not"))
		}
		if offset < 1<<31 || far.to == 0 {
			return int(pack), int64(offset), nil
		}
		at = far.from + int64(offset&(1<<31-1))*8
		if at+8 > far.to {
			return 0, 0, damaged("an offset beyond its table")
		}
		large, err := x.uint64At(at)
		return int(pack), large, err
	}
	c := found["PNAM"]
	if c.to-c.from > maxNameBytes {
		return nil, nil, errTooLarge
	}
	list := make([]byte, c.to-c.from)
	if _, err := file.ReadAt(list, c.from); err != nil {
		return nil, nil, err
	}
	for range packs {
		name, rest, ok := bytes.Cut(list, []byte{0})
		if !ok {
			return nil, nil, damaged("it has fewer names of packs than it says")
		}
		names, list = append(names, string(name)), rest
	}
	return x, names, nil
}

// entryHead is what stands before the data of an object in a pack.
type entryHead struct {
	kind kind
	size int64 // of the inflated data
	// For a delta, what it is to be applied to.
	base   int64
	baseID objectID
}

// maxHeadBytes bounds the two numbers before the data.
const maxHeadBytes = 10

func readEntryHead(s *stream, offset int64, hashSize int) (h entryHead, err error) {
	c, err := s.ReadByte()
	if err != nil {
		return h, err
	}
	h.kind, h.size = kind(c>>4&7), int64(c&15)
	for shift := 4; c&0x80 != 0; shift += 7 {
		if shift > 53 {
			return h, damaged("a size that never ends")
		}
		if c, err = s.ReadByte(); err != nil {
			return h, err
		}
		h.size |= int64(c&0x7f) << shift
	}
	switch h.kind {
	case kindCommit, kindTree, kindBlob, kindTag:
	case kindOffsetDelta:
		back, err := readBackwards(s)
		if err != nil {
			return h, err
		}
		if h.base = offset - back; back <= 0 || h.base <= 0 {
			return h, damaged("a delta to what is before the pack")
		}
	case kindIDDelta:
		if _, err := io.ReadFull(s, h.baseID[:hashSize]); err != nil {
			return h, err
		}
	default:
		return h, damaged("an object of kind %d", h.kind)
	}
	return h, nil
}

// readBackwards reads how far before a delta its base is.
func readBackwards(s *stream) (int64, error) {
	c, err := s.ReadByte()
	if err != nil {
		return 0, err
	}
	n := int64(c & 0x7f)
	for range maxHeadBytes {
		if c&0x80 == 0 {
			return n, nil
		}
		if c, err = s.ReadByte(); err != nil {
			return 0, err
		}
		if n > math.MaxInt64>>8 {
			break
		}
		n = (n+1)<<7 | int64(c&0x7f)
	}
	return 0, damaged("an offset that never ends")
}

// applyDelta returns what delta makes of base.
func applyDelta(base, delta []byte) ([]byte, error) {
	from, delta, ok := deltaSize(delta)
	if !ok || from != int64(len(base)) {
		return nil, damaged("a delta to an object of another size")
	}
	size, delta, ok := deltaSize(delta)
	if !ok {
		return nil, damaged("a delta without a size")
	}
	if size > maxObjectBytes {
		return nil, errTooLarge
	}
	out := make([]byte, 0, size)
	for len(delta) > 0 {
		op := delta[0]
		delta = delta[1:]
		var piece []byte
		if op&0x80 == 0 {
			if op == 0 || int(op) > len(delta) {
				return nil, damaged("a delta with a wrong instruction")
			}
			piece, delta = delta[:op], delta[op:]
		} else {
			var args [7]uint32 // four bytes of the offset, three of the size
			for i := range args {
				if op>>i&1 == 1 {
					if len(delta) == 0 {
						return nil, damaged("a delta that ends within an instruction")
					}
					args[i], delta = uint32(delta[0]), delta[1:]
				}
			}
			at := int64(args[0] | args[1]<<8 | args[2]<<16 | args[3]<<24)
			length := int64(args[4] | args[5]<<8 | args[6]<<16)
			if length == 0 {
				length = 0x10000
			}
			if at+length > int64(len(base)) {
				return nil, damaged("a delta that copies what its base does not have")
			}
			piece = base[at : at+length]
		}
		if int64(len(out)+len(piece)) > size {
			return nil, damaged("a delta that makes more than it says")
		}
		out = append(out, piece...)
	}
	if int64(len(out)) != size {
		return nil, damaged("a delta that makes less than it says")
	}
	return out, nil
}

// deltaSize reads one of the two sizes that a delta begins with.
func deltaSize(delta []byte) (size int64, rest []byte, ok bool) {
	for i, c := range delta {
		if i >= maxHeadBytes-1 {
			break
		}
		size |= int64(c&0x7f) << (7 * i)
		if c&0x80 == 0 {
			return size, delta[i+1:], true
		}
	}
	return 0, nil, false
}
