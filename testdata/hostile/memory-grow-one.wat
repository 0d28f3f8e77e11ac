;; The memory grows by one page until it cannot, and then answers.
;; Runs into: linear memory.
;; Ends as: an answer: the memory stops at the limit.
(module
  (memory 1)
  (func (export "glovebox_query_v1") (result i32) (loop $l (br_if $l (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))) (i32.const 0)))
