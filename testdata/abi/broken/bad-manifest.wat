;; A manifest with a key that there is not.
;;| name = "bad-manifest"
;;| version = "1.0.0"
;;| abi = 1
;;| colour = "red"
(module
  (import "glovebox" "reply" (func $reply (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "hi")
  (func (export "glovebox_query_v1") (result i32)
    (drop (call $reply (i32.const 0) (i32.const 2)))
    (i32.const 0)))
