;; A data segment beyond the memory.
;; Runs into: no limit: it ends itself.
;; Ends as: trap.
(module
  (memory 1)
  (data (i32.const 65535) "ab")
  (func (export "glovebox_query_v1") (result i32) (i32.const 0)))
