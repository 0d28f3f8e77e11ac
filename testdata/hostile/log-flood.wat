;; Logs 100,000 lines.
;; Runs into: bytes and lines of the log.
;; Ends as: an answer: the log is capped and the rest counted.
(module
  (import "glovebox" "reply" (func $reply (param i32 i32) (result i32)))
  (import "glovebox" "log" (func $log (param i32 i32 i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "line of a flood, which is a hundred bytes long and says nothing at all, again and again and again....")
  (func (export "glovebox_query_v1") (result i32) (local $i i32)
    (loop $l (call $log (i32.const 1) (i32.const 0) (i32.const 100)) (local.set $i (i32.add (local.get $i) (i32.const 1))) (br_if $l (i32.lt_u (local.get $i) (i32.const 100000))))
    (i32.const 0)))
