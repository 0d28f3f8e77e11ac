;; Traps.
;; Runs into: no limit: it ends itself.
;; Ends as: trap.
(module
  (memory (export "memory") 1)
  (func (export "glovebox_query_v1") (result i32)
    unreachable
    (i32.const 0)))
