;; The quotient of a division does not fit.
;; Runs into: no limit: it ends itself.
;; Ends as: trap.
(module
  (func (export "glovebox_query_v1") (result i32) (i32.div_s (i32.const 0x80000000) (i32.const -1))))
