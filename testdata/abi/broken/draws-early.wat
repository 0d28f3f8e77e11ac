;; Draws a random letter before the query, and replies with it.
;;| name = "draws-early"
;;| version = "1.0.0"
;;| abi = 1
(module
  (import "glovebox" "reply" (func $reply (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_initialize")
    (drop (call $random (i32.const 0) (i32.const 4)))
    (i32.store8 (i32.const 0)
      (i32.add (i32.const 97) (i32.rem_u (i32.load (i32.const 0)) (i32.const 26)))))
  (func (export "glovebox_query_v1") (result i32)
    (drop (call $reply (i32.const 0) (i32.const 1)))
    (i32.const 0)))
