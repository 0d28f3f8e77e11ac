;; Sends requests of 1 MiB of nested brackets to a capability, again and again.
;; Runs into: wall time, checked in each host call.
;; Ends as: timeout.
(module
  (import "glovebox_kv" "get" (func $get (param i32 i32) (result i32)))
  (memory (export "memory") 32)
  (func (export "glovebox_query_v1") (result i32)
    (memory.fill (i32.const 0) (i32.const 0x5b) (i32.const 9000))
    (memory.fill (i32.const 9000) (i32.const 0x20) (i32.const 1039576))
    (loop $l (drop (call $get (i32.const 0) (i32.const 1048576))) (br $l))
    (i32.const 0)))
