;; A passive segment of data that a query drops, and another that _initialize drops.
  (memory (export "memory") 1)
  (data $kept "the words of the segment")
  (data $gone "used up")
  (func (export "_initialize")
    (memory.init $gone (i32.const 30000) (i32.const 0) (i32.const 7))
    (data.drop $gone))

  (func $dirty (param $word i64) (data.drop $kept))
  (func $kept (param $word i64) (result i32)
    ;; Nothing of a dropped segment can be had, and nothing of nothing can.
    (memory.init $kept (i32.const 0) (i32.const 0) (i32.const 0))
    (i32.const 1))
  (func $state (result i64)
    (memory.init $kept (i32.const 30016) (i32.const 0) (i32.const 24))
    (memory.init $gone (i32.const 0) (i32.const 0) (i32.const 0))
    (i64.xor (i64.load (i32.const 30016)) (i64.xor (i64.load (i32.const 30024)) (i64.load (i32.const 30032)))))
