;; Fills beyond its memory, in more than one piece: nothing is written.
;; Runs into: no limit: it ends itself.
;; Ends as: trap.
(module
  (memory (export "memory") 1)
  (func (export "glovebox_query_v1") (result i32)
    (memory.fill (i32.const 0) (i32.const 1) (i32.const 1000000))
    (i32.const 0)))
