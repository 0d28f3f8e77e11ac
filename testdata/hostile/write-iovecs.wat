;; Writes 60 MiB of newlines 8,000 times in one call: each of its buffers is nearly the whole
;; memory.
;; Runs into: wall time or fuel, both checked in host calls.
;; Ends as: timeout, or out of fuel.
(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1024)
  (func (export "glovebox_query_v1") (result i32) (local $at i32)
    (memory.fill (i32.const 65536) (i32.const 10) (i32.const 62914560))
    (loop $l
      (i32.store offset=0 (local.get $at) (i32.const 65536))
      (i32.store offset=4 (local.get $at) (i32.const 62914560))
      (br_if $l (i32.lt_u (local.tee $at (i32.add (local.get $at) (i32.const 8))) (i32.const 64000))))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 8000) (i32.const 65000)))
    (i32.const 0)))
