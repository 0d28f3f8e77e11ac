;; Reads beyond its memory.
;; Runs into: no limit: it ends itself.
;; Ends as: trap.
(module
  (memory (export "memory") 1)
  (func (export "glovebox_query_v1") (result i32)
    (drop (i32.load (i32.const 65536)))
    (i32.const 0)))
