;; Takes the size of the query for an answer: a field that it does not know changes it.
;;| name = "reads-size"
;;| version = "1.0.0"
;;| abi = 1
(module
  (import "glovebox" "reply" (func $reply (param i32 i32) (result i32)))
  (import "glovebox" "query_size" (func $size (result i32)))
  (memory (export "memory") 1)
  (func (export "glovebox_query_v1") (result i32)
    (i32.store8 (i32.const 0)
      (i32.add (i32.const 97) (i32.rem_u (call $size) (i32.const 26))))
    (drop (call $reply (i32.const 0) (i32.const 1)))
    (i32.const 0)))
