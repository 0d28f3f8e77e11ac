// The hand of TestIsolation in Go: it dirties what it can, or reads all that it can.
// What it is asked, and what it answers, is said there.
package main

import (
	"context"
	crypto "crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"
	"unsafe"

	"github.com/gloveboxhq/glovebox/sdk/go/hand"
	"github.com/gloveboxhq/glovebox/sdk/go/hand/files"
)

func init() { hand.Register(answer) }

func main() { hand.Main() }

// mark is the upper half of every word that is left behind.
const mark = 0x5ca1ab1e

var (
	data   = [128]uint64{1, 2, 3, 127: 4}
	bss    [4096]uint64
	names  = map[string]uint64{"as": 1, "it": 2, "was": 3}
	list   = []uint64{1, 2, 3}
	word   any
	call   = func() uint64 { return 5 }
	once   sync.Once
	locked sync.Mutex
	pool   sync.Pool
	heap   [][]uint64
	events = make(chan uint64, 16)
	began  = time.Now()
)

func memoryPages() int32
func memoryGrow(pages int32) int32

//go:noinline
func fill(to []uint64, w uint64) {
	for i := range to {
		to[i] = w
	}
}

func holds(at []uint64, w uint64) bool {
	for _, v := range at {
		if v != w {
			return false
		}
	}
	return true
}

//go:noinline
func dirtyStack(depth int, w uint64) uint64 {
	var frame [128]uint64
	fill(frame[:], w)
	if depth == 0 {
		return frame[5]
	}
	return dirtyStack(depth-1, w) ^ frame[depth%128]
}

//go:noinline
func forever(w uint64) uint64 {
	var frame [32]uint64
	fill(frame[:], w)
	return forever(w) ^ frame[w%32]
}

// at is memory from an address on, n words of it.
func at(address uintptr, n int) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(address)), n)
}

func grow(most int32, w uint64) {
	for range most {
		was := memoryGrow(1)
		if was < 0 {
			return
		}
		fill(at(uintptr(was)<<16, 65536/8), w)
	}
}

func kept(w uint64) bool {
	for _, words := range heap {
		if !holds(words, w) {
			return false
		}
	}
	return holds(data[:], w) && holds(bss[:], w) && holds(list, w) && len(names) == 103 && word == w && call() == w
}

func ask(ctx context.Context, path string) {
	_, _ = fs.ReadFile(files.Root(ctx, "isolation"), path)
}

func dirty(ctx context.Context, w uint64, mode byte) (string, error) {
	fill(data[:], w)
	fill(bss[:], w)
	list = append(list[:0], w, w, w, w)
	word, call = w, func() uint64 { return w }
	once.Do(func() { began = time.Time{} })
	locked.Lock()
	if mode == 'h' {
		// With a lock held, and a goroutine that waits for it.
		go func() { locked.Lock(); data[0] = 0 }()
		runtime.Gosched()
		var none *[4]uint64
		none[w&3] = w
	}
	for i := range 100 {
		names[strconv.FormatUint(w, 16)+strconv.Itoa(i)] = w
	}
	for i := range 32 {
		words := make([]uint64, 16<<(i%8))
		fill(words, w)
		heap = append(heap, words)
		again := make([]uint64, 300)
		fill(again, w)
		pool.Put(&again)
	}
	for range 4 {
		go func() { dirtyStack(20, w); events <- w; events <- <-events; select {} }()
	}
	time.AfterFunc(time.Hour, func() { fill(bss[:], w) })
	runtime.SetFinalizer(&heap[0][0], func(*uint64) { bss[0] = w })
	rand.Uint64()
	dirtyStack(50, w)
	runtime.Gosched()
	if mode == 'g' || mode == 'b' {
		grow(1<<16, w)
	} else {
		grow(2, w)
	}
	switch mode {
	case 't', 'b':
		panic(w)
	case 'l':
		for {
			bss[w&7] = w
		}
	case 'e':
		os.Exit(7)
	case 'r':
		forever(w)
	case 'f':
		return "", errors.New("asked to")
	case 's':
		time.Sleep(time.Hour)
	case 'c':
		ask(ctx, "cancel")
		for {
			bss[w&7] = w
		}
	case 'p':
		ask(ctx, "panic")
	case 'w':
		ask(ctx, "pause")
	}
	if !kept(w) {
		return "", errors.New("it does not hold what it wrote")
	}
	return fmt.Sprintf("kept %016x", w), nil
}

// found is what a scan has come across; it is no part of what is scanned.
type found struct{ marks, where, what uint64 }

//go:noinline
func (f *found) scan(from, to uintptr) (hash, nonzero uint64) {
	hash = 14695981039346656037
	for p := from; p < to; p += 8 {
		w := *(*uint64)(unsafe.Pointer(p))
		hash = (hash ^ w) * 1099511628211
		if w != 0 {
			nonzero++
		}
		if w>>32 == mark {
			if f.marks == 0 {
				f.where, f.what = uint64(p), w
			}
			f.marks++
		}
	}
	return hash, nonzero
}

func read() string {
	var f found
	var here byte
	first := memoryPages()
	hash, _ := f.scan(8, uintptr(first)<<16)
	for memoryGrow(1) >= 0 {
	}
	last := memoryPages()
	_, nonzero := f.scan(uintptr(first)<<16, uintptr(last)<<16)
	return fmt.Sprintf("%016x %016x %016x %016x %016x %016x %016x %016x", first, hash, last-first, nonzero, f.marks, f.where, f.what, uintptr(unsafe.Pointer(&here)))
}

func world() string {
	var random [16]byte
	_, _ = crypto.Read(random[:])
	now := time.Now()
	return fmt.Sprintf("%d %d %x %016x", now.UnixNano(), now.Sub(began).Nanoseconds(), random, rand.Uint64())
}

func answer(ctx context.Context, q hand.Query) (string, error) {
	switch q.Prompt[0] {
	case 'd':
		w, err := strconv.ParseUint(q.Prompt[6:22], 16, 64)
		if err != nil {
			return "", err
		}
		return dirty(ctx, w, q.Prompt[23])
	case 'r':
		return read(), nil
	}
	return world(), nil
}
