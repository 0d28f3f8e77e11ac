;; Fails with a message each time: nothing is wrong with it that a kit could know.
;;| name = "polite-failure"
;;| version = "1.0.0"
;;| abi = 1
(module
  (import "glovebox" "fail" (func $fail (param i32 i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "no such ward")
  (func (export "glovebox_query_v1") (result i32)
    (call $fail (i32.const 0) (i32.const 12))
    (i32.const 1)))
