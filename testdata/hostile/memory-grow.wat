;; The memory grows to the sky, a page at a time, each touched.
;; Runs into: linear memory.
;; Ends as: out of memory.
(module
  (memory 1)
  (func (export "glovebox_query_v1") (result i32) (local $at i32)
    (loop $l
      (local.set $at (memory.grow (i32.const 1)))
      (if (i32.eq (local.get $at) (i32.const -1)) (then unreachable))
      (i32.store (i32.shl (local.get $at) (i32.const 16)) (i32.const 1))
      (br $l))
    (i32.const 0)))
