;; Grows the memory by nothing and the table by nothing, again and again.
;; Runs into: wall time or fuel.
;; Ends as: timeout, or out of fuel.
(module
  (memory 1)
  (table $t 1 funcref)
  (func (export "glovebox_query_v1") (result i32)
    (loop $l (drop (memory.grow (i32.const 0))) (drop (table.grow $t (ref.null func) (i32.const 0))) (br $l)) (i32.const 0)))
