;; Says the same 400 letters whatever max_output_tokens is.
;;| name = "ignores-budget"
;;| version = "1.0.0"
;;| abi = 1
(module
  (import "glovebox" "reply" (func $reply (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "glovebox_query_v1") (result i32)
    (memory.fill (i32.const 0) (i32.const 97) (i32.const 400))
    (drop (call $reply (i32.const 0) (i32.const 400)))
    (i32.const 0)))
