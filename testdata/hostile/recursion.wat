;; Endless recursion.
;; Runs into: the call stack.
;; Ends as: stack overflow.
(module
  (func $f (result i32) (i32.add (call $f) (i32.const 1)))
  (func (export "glovebox_query_v1") (result i32) (call $f)))
