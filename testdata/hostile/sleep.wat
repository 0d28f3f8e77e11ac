;; Sleeps for an hour.
;; Runs into: wall time, which a sleep waits on.
;; Ends as: timeout.
(module
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  ;; one subscription: clock 1 (monotonic), timeout 3.6e12 ns
  (data (i32.const 16) "\01\00\00\00\00\00\00\00\00\a0\b8\30\46\03\00\00")
  (func (export "glovebox_query_v1") (result i32)
    (drop (call $poll (i32.const 0) (i32.const 100) (i32.const 1) (i32.const 200)))
    (i32.const 0)))
