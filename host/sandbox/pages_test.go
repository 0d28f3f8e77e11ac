package sandbox_test

import (
	"fmt"
	"testing"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/sandbox"
)

// fillsImage is the beginning of a hand whose image has 8 MiB, with something in each page.
const fillsImage = `(module
  (memory 128)
  (func (export "_initialize") (local $at i32)
    loop
      local.get $at  i32.const 1  i32.store
      local.get $at  i32.const 4096  i32.add  local.tee $at
      i32.const 8388608  i32.lt_u  br_if 0
    end)`

// writesPages is a hand whose query writes to so many pages of 4 KiB of its image, side by
// side or with one between each two.
const writesPages = fillsImage + `
  (func (export "glovebox_query_v1") (result i32) (local $at i32) (local $left i32)
    i32.const %d  local.set $left
    block
      loop
        local.get $left  i32.eqz  br_if 1
        local.get $at  local.get $left  i32.store
        local.get $at  i32.const %d  i32.add  local.set $at
        local.get $left  i32.const 1  i32.sub  local.set $left
        br 0
      end
    end
    i32.const 0))`

// BenchmarkPages is a query that does nothing but write to so many pages of its image.
func BenchmarkPages(b *testing.B) {
	for _, apart := range []int{4 << 10, 8 << 10} {
		for _, pages := range []int{0, 16, 60, 100, 250, 300, 600} {
			b.Run(fmt.Sprintf("apart=%d/pages=%d", apart>>10, pages), func(b *testing.B) {
				binary, err := assemble(b.Context(), fmt.Sprintf(writesPages, pages, apart))
				if err != nil {
					b.Skip(err)
				}
				module, err := newEngine(b, sandbox.Config{}).Load(b.Context(), binary, sandbox.Options{Name: "guest"})
				if err != nil {
					b.Fatal(err)
				}
				for b.Loop() {
					if _, err := module.Query(b.Context(), abi.Query{}, sandbox.Ports{}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
