;; Divides by zero.
;; Runs into: no limit: it ends itself.
;; Ends as: trap.
(module
  (memory (export "memory") 1)
  (func (export "glovebox_query_v1") (result i32)
    (drop (i32.div_s (i32.const 1) (i32.const 0)))
    (i32.const 0)))
