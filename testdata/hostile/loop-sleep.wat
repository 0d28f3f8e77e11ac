;; Sleeps for a millisecond again and again.
;; Runs into: wall time, which a sleep waits on.
;; Ends as: timeout.
(module
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  ;; one subscription: clock 1 (monotonic), timeout 1e6 ns
  (data (i32.const 16) "\01\00\00\00\00\00\00\00\40\42\0f")
  (func (export "glovebox_query_v1") (result i32)
    (loop $l (drop (call $poll (i32.const 0) (i32.const 100) (i32.const 1) (i32.const 200))) (br $l)) (i32.const 0)))
