;; Endless recursion through a table.
;; Runs into: the call stack.
;; Ends as: stack overflow.
(module
  (type $t (func (result i32)))
  (table 1 funcref)
  (elem (i32.const 0) func $f)
  (func $f (result i32) (i32.add (call_indirect (type $t) (i32.const 0)) (i32.const 1)))
  (func (export "glovebox_query_v1") (result i32) (call $f)))
