;; Exits with the code by which the engine says that a deadline passed.
;; Runs into: no limit: it ends itself.
;; Ends as: exit, which is no timeout.
(module
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (func (export "glovebox_query_v1") (result i32) (call $exit (i32.const 0xefffffff)) (i32.const 0)))
