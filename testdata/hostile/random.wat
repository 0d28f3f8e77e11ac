;; Asks for 64 MiB of random bytes again and again: a host call that does not touch fuel.
;; Runs into: wall time or fuel, both checked in host calls.
;; Ends as: timeout.
(module
  (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
  (memory (export "memory") 1000)
  (func (export "glovebox_query_v1") (result i32)
    (loop $l (drop (call $random (i32.const 0) (i32.const 65536000))) (br $l))
    (i32.const 0)))
