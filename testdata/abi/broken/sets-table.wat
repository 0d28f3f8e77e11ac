;; Changes a table, which no image holds: nothing is wrong with it, and each query begins
;; from nothing.
;;| name = "sets-table"
;;| version = "1.0.0"
;;| abi = 1
(module
  (import "glovebox" "reply" (func $reply (param i32 i32) (result i32)))
  (type $answers (func (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "ok")
  (table 1 funcref)
  (elem declare func $answer)
  (func $answer (result i32) (call $reply (i32.const 0) (i32.const 2)))
  (func (export "glovebox_warm_v1") (i32.store16 (i32.const 0) (i32.const 0x4b4f))) ;; OK
  (func (export "glovebox_query_v1") (result i32)
    (table.set 0 (i32.const 0) (ref.func $answer))
    (drop (call_indirect (type $answers) (i32.const 0)))
    (i32.const 0)))
