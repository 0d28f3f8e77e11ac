;; Writes 100,000 lines to standard error.
;; Runs into: bytes and lines of the log.
;; Ends as: an answer: the log is capped and the rest counted.
(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "\10\00\00\00\10\00\00\00")
  (data (i32.const 16) "a line of flood\n")
  (func (export "glovebox_query_v1") (result i32) (local $i i32)
    (loop $l
      (drop (call $write (i32.const 2) (i32.const 0) (i32.const 1) (i32.const 100)))
      (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 100000))))
    (i32.const 0)))
