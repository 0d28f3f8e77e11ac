;; A table grows by a million elements until it cannot.
;; Runs into: table elements, or the number of tables.
;; Ends as: an answer: the table stops at the limit.
(module
  (table 1 funcref)
  (func (export "glovebox_query_v1") (result i32)
    (loop $l (br_if $l (i32.ne (table.grow 0 (ref.null func) (i32.const 1000000)) (i32.const -1))))
    (loop $l (br_if $l (i32.ne (table.grow 0 (ref.null func) (i32.const 1000)) (i32.const -1))))
    (if (i32.gt_u (table.size 0) (i32.const 65536)) (then unreachable))
    (i32.const 0)))
