;; Polls 2^28 + 1 subscriptions: their size in bytes is 48 when it is computed in 32 bits.
;; Runs into: the bounds check of host calls.
;; Ends as: trap, or an answer: never a fault of the host.
(module
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 8) "\02")
  (func (export "glovebox_query_v1") (result i32)
    (drop (call $poll (i32.const 0) (i32.const 100) (i32.const 0x10000001) (i32.const 200)))
    (i32.const 0)))
