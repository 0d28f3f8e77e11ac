;; A memory that begins as large as it may become, and dirty from end to end: no growth,
;; and nothing that is beyond the image.
  (memory (export "memory") 8 8)
  (data (i32.const 524280) "the end.")
  (global $kept (mut i64) (i64.const 9))
  (func (export "_initialize")
    (call $fill (i32.const 8192) (i32.const 524288) (i64.const 0x0101010101010101)))
  (func $dirty (param $word i64) (global.set $kept (local.get $word)))
  (func $kept (param $word i64) (result i32) (i64.eq (global.get $kept) (local.get $word)))
  (func $state (result i64) (global.get $kept))
