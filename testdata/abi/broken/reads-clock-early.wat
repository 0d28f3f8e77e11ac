;; Reads the second of the clock in the box before the query, and replies with it.
;;| name = "reads-clock-early"
;;| version = "1.0.0"
;;| abi = 1
(module
  (import "glovebox" "reply" (func $reply (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "clock_time_get" (func $clock (param i32 i64 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_initialize")
    (drop (call $clock (i32.const 0) (i64.const 1) (i32.const 8)))
    (i32.store8 (i32.const 0)
      (i32.add (i32.const 65) (i32.wrap_i64 (i64.rem_u (i64.div_u (i64.load (i32.const 8)) (i64.const 1000000000)) (i64.const 60))))))
  (func (export "glovebox_query_v1") (result i32)
    (drop (call $reply (i32.const 0) (i32.const 1)))
    (i32.const 0)))
