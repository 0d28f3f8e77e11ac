;; Reads standard input into eight million empty buffers, again and again.
;; Runs into: wall time or fuel, both checked in host calls.
;; Ends as: timeout, or out of fuel.
(module
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1024)
  (func (export "glovebox_query_v1") (result i32)
    (loop $l (drop (call $read (i32.const 0) (i32.const 8) (i32.const 8388000) (i32.const 0))) (br $l)) (i32.const 0)))
