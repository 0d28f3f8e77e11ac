;; Globals of every number type, of which some are exported; data far apart, to the last
;; byte of the memory, and pages of zeros between. A start function and _initialize
;; write to all of these before the first query, and take more memory.
  (memory (export "memory") 4)
  (global $i32 (mut i32) (i32.const -7))
  (global $i64 (export "i64") (mut i64) (i64.const -7))
  (global $f32 (mut f32) (f32.const 1.5))
  (global $f64 (export "f64") (mut f64) (f64.const -0.0))
  (global $nan (mut f64) (f64.const nan:0x8000000000001))
  (global $begun (mut i32) (i32.const 0))
  (data (i32.const 8200) "at the beginning")
  (data (i32.const 65532) "over the edge of a page")
  (data (i32.const 262136) "the end.")

  (func $begin
    (global.set $begun (i32.add (global.get $begun) (i32.const 1)))
    (i32.store (i32.const 20000) (i32.const 0x01020304)))
  (start $begin)
  (func (export "_initialize")
    (global.set $begun (i32.add (global.get $begun) (i32.const 16)))
    (global.set $f32 (f32.const 0x1.234p+5))
    (drop (memory.grow (i32.const 1)))
    (i32.store (i32.const 327676) (i32.const 0x05060708))
    (i32.store (i32.const 70000) (i32.const 0)))

  (func $dirty (param $word i64)
    (global.set $i32 (i32.wrap_i64 (local.get $word)))
    (global.set $i64 (local.get $word))
    (global.set $f32 (f32.reinterpret_i32 (i32.wrap_i64 (local.get $word))))
    (global.set $f64 (f64.reinterpret_i64 (local.get $word)))
    (global.set $nan (f64.reinterpret_i64 (i64.or (local.get $word) (i64.const 0x7ff0000000000000))))
    (global.set $begun (i32.wrap_i64 (local.get $word))))

  (func $kept (param $word i64) (result i32)
    (i32.and (i32.and
      (i32.eq (global.get $i32) (i32.wrap_i64 (local.get $word)))
      (i64.eq (global.get $i64) (local.get $word)))
      (i64.eq (i64.reinterpret_f64 (global.get $f64)) (local.get $word))))

  (func $state (result i64)
    (i64.xor (i64.xor (i64.xor
      (i64.extend_i32_u (global.get $i32))
      (i64.rotl (global.get $i64) (i64.const 3)))
      (i64.xor
      (i64.rotl (i64.extend_i32_u (i32.reinterpret_f32 (global.get $f32))) (i64.const 7))
      (i64.rotl (i64.reinterpret_f64 (global.get $f64)) (i64.const 13))))
      (i64.xor
      (i64.rotl (i64.reinterpret_f64 (global.get $nan)) (i64.const 29))
      (i64.rotl (i64.extend_i32_u (global.get $begun)) (i64.const 41)))))
