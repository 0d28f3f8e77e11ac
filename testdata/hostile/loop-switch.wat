;; An endless loop through a branch table.
;; Runs into: wall time or fuel.
;; Ends as: timeout.
(module
  (memory (export "memory") 1)
  (func (export "glovebox_query_v1") (result i32) (local $i i32)
    (loop $l (block $a (block $b (br_table $a $b $l (local.get $i)))) (local.set $i (i32.rem_u (i32.add (local.get $i) (i32.const 1)) (i32.const 3))) (br $l))
    (i32.const 0)))
