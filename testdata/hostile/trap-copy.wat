;; Copies beyond the memory, by a sum that is small in 32 bits.
;; Runs into: no limit: it ends itself.
;; Ends as: trap.
(module
  (memory 1)
  (func (export "glovebox_query_v1") (result i32) (memory.copy (i32.const 0) (i32.const -1) (i32.const 2)) (i32.const 0)))
