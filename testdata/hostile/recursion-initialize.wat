;; Endless recursion before the query, in _initialize.
;; Runs into: the call stack.
;; Ends as: stack overflow.
(module
  (func $f (export "_initialize") (call $f))
  (func (export "glovebox_query_v1") (result i32) (i32.const 0)))
