;; Writes 2^29 + 1 buffers: the size of their list is 8 when it is computed in 32 bits.
;; Runs into: the bounds check of host calls.
;; Ends as: an answer, or trap: never a fault of the host.
(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "\10\00\00\00\04\00\00\00")
  (data (i32.const 16) "log\n")
  (func (export "glovebox_query_v1") (result i32)
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 0x20000001) (i32.const 100)))
    (i32.const 0)))
