;; Takes the address of a function again and again: the engine allocates for it.
;; Runs into: wall time or fuel.
;; Ends as: timeout, or out of fuel.
(module
  (table $t 1 funcref)
  (elem declare func $f)
  (func $f)
  (func (export "glovebox_query_v1") (result i32)
    (loop $l (table.set $t (i32.const 0) (ref.func $f)) (br $l)) (i32.const 0)))
