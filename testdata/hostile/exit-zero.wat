;; Exits with code 0 before it answered.
;; Runs into: no limit: it ends itself.
;; Ends as: exit.
(module
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (func (export "glovebox_query_v1") (result i32) (call $exit (i32.const 0)) (i32.const 0)))
