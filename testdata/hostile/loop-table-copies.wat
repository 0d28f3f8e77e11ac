;; 60,000 elements of a table are moved again and again.
;; Runs into: wall time or fuel, charged by size.
;; Ends as: timeout, or out of fuel.
(module
  (table $t 60001 funcref)
  (func (export "glovebox_query_v1") (result i32)
    (loop $l (table.copy $t $t (i32.const 1) (i32.const 0) (i32.const 60000)) (br $l)) (i32.const 0)))
