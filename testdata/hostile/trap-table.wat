;; Calls through an index beyond the table.
;; Runs into: no limit: it ends itself.
;; Ends as: trap.
(module
  (type $t (func (result i32)))
  (table 1 funcref)
  (func (export "glovebox_query_v1") (result i32) (call_indirect (type $t) (i32.const 1))))
