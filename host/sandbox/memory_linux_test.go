package sandbox_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/sandbox"
)

// readsPages is a hand whose image has 8 MiB and whose query reads two pages of it, far
// from each other.
const readsPages = `(module
  (memory 128)
  (func (export "_initialize") (local $at i32)
    loop
      local.get $at  i32.const 1  i32.store
      local.get $at  i32.const 4096  i32.add  local.tee $at
      i32.const 8388608  i32.lt_u  br_if 0
    end)
  (func (export "glovebox_query_v1") (result i32)
    i32.const 204800  i32.load
    i32.const 6553600  i32.load
    i32.ne))`

// A memory holds the pages of its image that were touched, not their neighbours.
func TestMemoryHoldsWhatWasTouched(t *testing.T) {
	descriptor, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|1, 0, 0)
	if errno != 0 {
		t.Skipf("this system maps pages around those that are touched, and lets nobody change that: userfaultfd: %v", errno)
	}
	if err := unix.Close(int(descriptor)); err != nil {
		t.Fatal(err)
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
