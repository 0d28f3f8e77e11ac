;; Logs before the query, which no image does: nothing is wrong with it, and it begins
;; with each query.
;;| name = "logs-early"
;;| version = "1.0.0"
;;| abi = 1
(module
  (import "glovebox" "log" (func $log (param i32 i32 i32)))
  (import "glovebox" "reply" (func $reply (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "ok")
  (func (export "_initialize") (call $log (i32.const 1) (i32.const 0) (i32.const 2)))
  (func (export "glovebox_warm_v1") (i32.store16 (i32.const 0) (i32.const 0x4b4f))) ;; OK
  (func (export "glovebox_query_v1") (result i32)
    (drop (call $reply (i32.const 0) (i32.const 2)))
    (i32.const 0)))
