;; Reads a data segment that was dropped.
;; Runs into: no limit: it ends itself.
;; Ends as: trap.
(module
  (memory 1)
  (data $d "a")
  (func (export "glovebox_query_v1") (result i32) (data.drop $d) (memory.init $d (i32.const 0) (i32.const 0) (i32.const 1)) (i32.const 0)))
