;; Calls a capability until it is refused.
;; Runs into: capability calls.
;; Ends as: hand failed, with the code of too_many_calls, -5.
(module
  (import "glovebox_kv" "get" (func $get (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "{\22key\22:\22a\22}")
  (func (export "glovebox_query_v1") (result i32) (local $code i32)
    (loop $l
      (local.set $code (call $get (i32.const 0) (i32.const 11)))
      (br_if $l (i32.ne (local.get $code) (i32.const -5))))
    (local.get $code)))
