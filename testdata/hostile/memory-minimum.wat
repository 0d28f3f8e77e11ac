;; A memory of 4 GiB.
;; Runs into: linear memory.
;; Ends as: refused: out of memory.
(module
  (memory 65536)
  (func (export "glovebox_query_v1") (result i32)
      (i32.const 0)))
