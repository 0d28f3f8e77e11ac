;; Replies whether it was warmed up.
;;| name = "answers-by-warmth"
;;| version = "1.0.0"
;;| abi = 1
(module
  (import "glovebox" "reply" (func $reply (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "cold")
  (func (export "glovebox_warm_v1") (i32.store (i32.const 0) (i32.const 0x6d726177))) ;; warm
  (func (export "glovebox_query_v1") (result i32)
    (drop (call $reply (i32.const 0) (i32.const 4)))
    (i32.const 0)))
