;; Replies bytes that are not UTF-8.
;; Runs into: bytes and form of the reply.
;; Ends as: an answer with replacement characters.
(module
  (import "glovebox" "reply" (func $reply (param i32 i32) (result i32)))
  (import "glovebox" "log" (func $log (param i32 i32 i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "a\ff\fe\c0\80b")
  (func (export "glovebox_query_v1") (result i32)
    (drop (call $reply (i32.const 0) (i32.const 6)))
    (i32.const 0)))
