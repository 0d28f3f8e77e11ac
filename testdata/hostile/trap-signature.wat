;; Calls through a table a function of another type.
;; Runs into: no limit: it ends itself.
;; Ends as: trap.
(module
  (type $t (func (result i32)))
  (func $f (param i64))
  (table funcref (elem $f))
  (func (export "glovebox_query_v1") (result i32) (call_indirect (type $t) (i32.const 0))))
