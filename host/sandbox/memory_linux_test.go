package sandbox_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/sandbox"
)

// mappingsOfImages counts the mappings of images in this process, by the file that each image
// is: those that memories begin from, which are writable, and those that are only read.
func mappingsOfImages(t *testing.T) (memories, views map[string]int) {
	t.Helper()
	all, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	memories, views = map[string]int{}, map[string]int{}
	for line := range strings.Lines(string(all)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) < 6 || !strings.HasPrefix(fields[5], "/memfd:glovebox-image"):
		case fields[1] == "rw-p":
			memories[fields[4]]++
		case fields[1] == "r--p":
			views[fields[4]]++
		default:
			t.Errorf("an image is mapped as %s", fields[1])
		}
	}
	return memories, views
}

// Memories that no query is in are kept for the next, 64 of them and one near each
// processor: of more hands, those asked longest ago have theirs released. Hands that are
// closed leave none, nor their images.
func TestIdleMemoriesAreBounded(t *testing.T) {
	const most = 64 + 1
	processors := runtime.GOMAXPROCS(1) // so that which is near is known
	engine := newEngine(t, sandbox.Config{CacheDir: t.TempDir()})
	runtime.GOMAXPROCS(processors)
	before, viewsBefore := mappingsOfImages(t)
	openBefore, known := len(imagesInMemory(t)), viewsBefore
	hands := make([]*sandbox.Module, most+6)
	// files are the images of the hands, in their order.
	files := make([]string, len(hands))
	for n := range hands {
		hands[n] = loadSaying(t, engine, fmt.Sprintf("%c%c", 'a'+n/26, 'a'+n%26))
		_, views := mappingsOfImages(t)
		for file := range views {
			if known[file] == 0 {
				files[n] = file
			}
		}
		if known = views; files[n] == "" {
			t.Fatalf("%s begins from %+v, which is not mapped", hands[n].Name(), hands[n].Image())
		}
	}
	asks := func(hands ...*sandbox.Module) {
		t.Helper()
		for _, hand := range hands {
			if _, err := hand.Query(t.Context(), abi.Query{}, sandbox.Ports{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	kept := func(hands ...int) {
		t.Helper()
		want := maps.Clone(before)
		for _, n := range hands {
			want[files[n]] = 1
		}
		memories, _ := mappingsOfImages(t)
		for n, file := range files {
			if memories[file] != want[file] {
				t.Errorf("hand %d has %d memories, want %d", n, memories[file], want[file])
			}
		}
		if len(memories) != len(want) {
			t.Errorf("%d hands have memories, want %d", len(memories), len(want))
		}
	}
	upTo := func(from, to int) (all []int) {
		for n := from; n < to; n++ {
			all = append(all, n)
		}
		return all
	}
	asks(hands[:most]...)
	asks(hands[:most]...) // from what they have
	have := upTo(0, most)
	kept(have...)
	// Two of them are the longest unused no more.
	asks(hands[3], hands[0])
	have = append(append([]int{1, 2}, upTo(4, most)...), 3, 0)
	for n := most; n < len(hands); n++ {
		asks(hands[n])
		have = append(have[1:], n)
		kept(have...)
	}

	for _, closed := range []int{0, have[most-1]} { // the one that is near is the last
		if err := hands[closed].Close(); err != nil {
			t.Fatal(err)
		}
		have = slices.DeleteFunc(have, func(n int) bool { return n == closed })
		kept(have...)
	}
	if err := engine.Close(); err != nil {
		t.Fatal(err)
	}
	kept()
	if _, views := mappingsOfImages(t); !maps.Equal(views, viewsBefore) {
		t.Errorf("%d images are mapped, after %d", len(views), len(viewsBefore))
	}
	if open := len(imagesInMemory(t)); open != openBefore {
		t.Errorf("%d files of images are open, after %d", open, openBefore)
	}
}

// Hands that are closed leave no memory, whatever is put near a processor or taken away
// from there meanwhile, and all processors together keep no more than the bound.
func TestIdleMemoriesNearProcessors(t *testing.T) {
	const processors, others, rounds = 4, 80, 30
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
	engine := newEngine(t, sandbox.Config{CacheDir: t.TempDir()})
	before, _ := mappingsOfImages(t)
	ask := func(hand *sandbox.Module) {
		if _, err := hand.Query(t.Context(), abi.Query{}, sandbox.Ports{}); err != nil {
			t.Error(err)
		}
	}
	hands := make([]*sandbox.Module, others)
	for n := range hands {
		hands[n] = loadSaying(t, engine, fmt.Sprintf("%c%c", 'a'+n/26, 'a'+n%26))
	}
	_, known := mappingsOfImages(t)

	var busy sync.WaitGroup
	over := make(chan struct{})
	stop := sync.OnceFunc(func() { close(over); busy.Wait() })
	defer stop()
	for g := range processors {
		busy.Go(func() {
			for n := g; ; n++ {
				select {
				case <-over:
					return
				default:
					ask(hands[n%len(hands)])
				}
			}
		})
	}
	var files []string
	for round := range rounds {
		hand := loadSaying(t, engine, fmt.Sprintf("z%c", 'a'+round%26))
		_, views := mappingsOfImages(t)
		for file := range views {
			if known[file] == 0 {
				files = append(files, file)
			}
		}
		if len(files) != round+1 {
			t.Fatalf("hand %d has no image of its own", round)
		}
		var asking sync.WaitGroup
		for range 2 * processors {
			asking.Go(func() { ask(hand) })
		}
		asking.Wait()
		if err := hand.Close(); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	kept := 0
	memories, _ := mappingsOfImages(t)
	for file, n := range memories {
		kept += n - before[file]
	}
	if kept < 32 || kept > 64+processors {
		t.Errorf("%d memories are kept", kept)
	}
	for n, file := range files {
		if memories[file] > 0 {
			t.Errorf("hand %d is closed and has %d memories", n, memories[file])
		}
	}
}

// An engine that is closed leaves no address space, however its instances began.
func TestClosedEnginesLeaveNoMemory(t *testing.T) {
	size := func() (pages int64) {
		t.Helper()
		statm, err := os.ReadFile("/proc/self/statm")
		if err == nil {
			_, err = fmt.Sscan(string(statm), &pages)
		}
		if err != nil {
			t.Fatal(err)
		}
		return pages
	}
	const memory, engines = 1 << 30, 16
	for _, way := range ways {
		before := size()
		for range engines {
			engine := newEngine(t, sandbox.Config{Images: way.images})
			module, err := engine.Load(t.Context(), saying("hi"), sandbox.Options{Name: "says-hi", Limits: abi.Limits{MemoryBytes: memory}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := module.Query(t.Context(), abi.Query{}, sandbox.Ports{}); err != nil {
				t.Fatal(err)
			}
			if err := engine.Close(); err != nil {
				t.Fatal(err)
			}
		}
		// What one of two engines leaves is too much; Go's own runtime takes some.
		if more := (size() - before) * int64(os.Getpagesize()); more > engines*memory/2 {
			t.Errorf("%s: %d MiB are mapped more, after %d engines", way.name, more>>20, engines)
		}
	}
}

// readsPages is a hand whose query reads two pages of its image, far from each other.
const readsPages = fillsImage + `
  (func (export "glovebox_query_v1") (result i32)
    i32.const 204800  i32.load
    i32.const 6553600  i32.load
    i32.ne))`

// protectsFiles fails where userfaultfd cannot be had for memory of files:
// UFFD_FEATURE_WP_HUGETLBFS_SHMEM in UFFDIO_API(2const).
func protectsFiles() error {
	const userModeOnly, handshake, feature = 1, 0xc018aa3f, 1 << 12
	descriptor, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|userModeOnly, 0, 0)
	if errno != 0 {
		return fmt.Errorf("userfaultfd: %w", errno)
	}
	defer func() { _ = unix.Close(int(descriptor)) }()
	api := struct{ api, features, ioctls uint64 }{api: 0xaa}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, descriptor, handshake, uintptr(unsafe.Pointer(&api))); errno != 0 {
		return fmt.Errorf("userfaultfd: its handshake: %w", errno)
	}
	if api.features&feature == 0 {
		return errors.New("userfaultfd is not for memory of files")
	}
	return nil
}

// A memory holds the pages of its image that were touched, not their neighbours.
func TestMemoryHoldsWhatWasTouched(t *testing.T) {
	if err := protectsFiles(); err != nil {
		t.Skipf("this system maps pages around those that are touched, and lets nobody change that: %v", err)
	}
	binary, err := assemble(t.Context(), readsPages)
	if err != nil {
		t.Skip(err)
	}
	module, err := newEngine(t, sandbox.Config{}).Load(t.Context(), binary, sandbox.Options{Name: "guest"})
	if err != nil {
		t.Fatal(err)
	}
	if stage := module.Image().Stage; stage != sandbox.StageInitialised {
		t.Fatalf("queries begin %s", stage)
	}
	if _, err := module.Query(t.Context(), abi.Query{}, sandbox.Ports{}); err != nil {
		t.Fatal(err)
	}
	pages, ok := residentOfImages(t)
	if !ok {
		t.Skip("/proc/self/smaps does not say what is resident")
	}
	if pages != 2 {
		t.Errorf("%d pages of the image are in the memory, of which 2 were touched", pages)
	}
}

// residentOfImages counts the pages that memories have of their images.
func residentOfImages(t *testing.T) (pages int, ok bool) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return 0, false
	}
	memory := false
	for line := range strings.Lines(string(text)) {
		if head := strings.Fields(line); !strings.HasSuffix(head[0], ":") {
			memory = head[1] == "rw-p" && strings.Contains(line, "/memfd:glovebox-image")
		}
		var kib int
		if _, err := fmt.Sscanf(line, "Rss: %d kB", &kib); err == nil && memory {
			pages, ok = pages+kib/4, true
		}
	}
	return pages, ok
}

// The file of an image stays as it is, whoever gets hold of it: it cannot be written, made
// shorter under those who read it or larger, nor have this undone; and no program that this
// process starts is given it.
func TestImagesInMemoryAreSealed(t *testing.T) {
	loadSaying(t, newEngine(t, sandbox.Config{}), "hi")
	images := imagesInMemory(t)
	if len(images) == 0 {
		t.Fatal("no image is mapped")
	}
	for path := range images {
		file, err := strconv.Atoi(filepath.Base(path))
		if err != nil {
			t.Fatal(err)
		}
		const all = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
		if seals, err := unix.FcntlInt(uintptr(file), unix.F_GET_SEALS, 0); err != nil || seals&all != all {
			t.Errorf("an image has the seals %#x, %v; want %#x", seals, err, all)
		}
		if flags, err := unix.FcntlInt(uintptr(file), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("an image is open for programs that are started: %#x, %v", flags, err)
		}
	}
}
