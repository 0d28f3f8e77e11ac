;; Logs 60 MiB of newlines and of half code points, again and again.
;; Runs into: wall time or fuel, both checked in host calls.
;; Ends as: timeout, or out of fuel.
(module
  (import "glovebox" "log" (func $log (param i32 i32 i32)))
  (memory (export "memory") 1024)
  (func (export "glovebox_query_v1") (result i32)
    (memory.fill (i32.const 0) (i32.const 10) (i32.const 62914560))
    (memory.fill (i32.const 4096) (i32.const 0xc3) (i32.const 4096))
    (loop $l (call $log (i32.const -1) (i32.const 0) (i32.const 62914560)) (br $l))
    (i32.const 0)))
