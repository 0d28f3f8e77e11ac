;; Gives addresses beyond its memory to the host.
;; Runs into: the bounds check of host calls.
;; Ends as: hand failed, with the code of bad_pointer, -1.
(module
  (import "glovebox" "reply" (func $reply (param i32 i32) (result i32)))
  (import "glovebox" "log" (func $log (param i32 i32 i32)))
  (memory (export "memory") 1)
  (func (export "glovebox_query_v1") (result i32)
    (call $log (i32.const 1) (i32.const -1) (i32.const -1))
    (call $reply (i32.const -1) (i32.const -1))))
