;; Replies with 70,000 zero bytes, more than the host takes.
;;| name = "too-long"
;;| version = "1.0.0"
;;| abi = 1
(module
  (import "glovebox" "reply" (func $reply (param i32 i32) (result i32)))
  (memory (export "memory") 2)
  (func (export "glovebox_query_v1") (result i32)
    (drop (call $reply (i32.const 0) (i32.const 70000)))
    (i32.const 0)))
