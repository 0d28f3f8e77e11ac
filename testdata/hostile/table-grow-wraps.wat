;; Grows a table by 2^32 - 1: the sum of elements is small when it is computed in 32 bits.
;; Runs into: table elements, or the number of tables.
;; Ends as: an answer: it is refused.
(module
  (table $t 2 funcref)
  (func (export "glovebox_query_v1") (result i32)
    (if (i32.ne (table.grow $t (ref.null func) (i32.const -1)) (i32.const -1)) (then unreachable))
    (i32.ne (table.size $t) (i32.const 2))))
