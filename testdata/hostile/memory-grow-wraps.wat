;; Grows by 65,535 pages, and by 2^32 - 1: the sum of pages is small when it is computed in 32
;; bits.
;; Runs into: linear memory.
;; Ends as: an answer: both are refused.
(module
  (memory 2)
  (func (export "glovebox_query_v1") (result i32)
    (if (i32.ne (memory.grow (i32.const 65535)) (i32.const -1)) (then unreachable))
    (if (i32.ne (memory.grow (i32.const -1)) (i32.const -1)) (then unreachable))
    (i32.ne (memory.size) (i32.const 2))))
