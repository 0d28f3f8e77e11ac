;; Traps in the start section.
;; Runs into: no limit: it ends itself.
;; Ends as: trap.
(module
  (start $s)
  (func $s unreachable)
  (func (export "glovebox_query_v1") (result i32) (i32.const 0)))
