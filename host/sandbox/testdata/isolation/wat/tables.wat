;; Tables that a hand changes: entries set, filled, copied, initialised again, grown to
;; the limit and beyond; a segment of elements dropped.
  (memory (export "memory") 1)
  (type $number (func (result i64)))
  (table $first 8 funcref)
  (table $second 4 funcref)
  (table $host 2 externref)
  (elem (table $first) (i32.const 1) func $three $five)
  (elem $passive func $seven $three $five)
  (func $three (result i64) (i64.const 3))
  (func $five (result i64) (i64.const 5))
  (func $seven (result i64) (i64.const 7))

  (func $dirty (param $word i64)
    (local $i i32)
    (local.set $i (i32.wrap_i64 (local.get $word)))
    (table.set $first (i32.and (local.get $i) (i32.const 7)) (ref.func $seven))
    (table.init $second $passive (i32.const 0) (i32.const 0) (i32.const 3))
    (elem.drop $passive)
    (table.copy $first $second (i32.const 5) (i32.const 0) (i32.const 3))
    (table.fill $second (i32.const 3) (ref.func $seven) (i32.const 1))
    (drop (table.grow $first (ref.func $seven) (i32.const 100)))
    (drop (table.grow $host (ref.null extern) (i32.const 5)))
    (drop (table.grow $second (ref.func $five) (i32.const 1000000))))

  (func $kept (param $word i64) (result i32)
    (i32.and (i32.and
      (i32.eq (table.size $first) (i32.const 108))
      (i64.eq (call_indirect $second (type $number) (i32.const 3)) (i64.const 7)))
      (i64.eq (call_indirect $first (type $number) (i32.const 107)) (i64.const 7))))

  ;; The digest of an entry: nothing, or what it says.
  (func $one (param $i i32) (result i64)
    (if (result i64) (ref.is_null (table.get $first (local.get $i)))
      (then (i64.const 1))
      (else (call_indirect $first (type $number) (local.get $i)))))
  (func $other (param $i i32) (result i64)
    (if (result i64) (ref.is_null (table.get $second (local.get $i)))
      (then (i64.const 1))
      (else (call_indirect $second (type $number) (local.get $i)))))

  (func $state (result i64)
    (local $hash i64) (local $i i32)
    (local.set $hash (i64.extend_i32_u (i32.add (table.size $host)
      (i32.add (i32.shl (table.size $first) (i32.const 8)) (i32.shl (table.size $second) (i32.const 16))))))
    (loop $next
      (local.set $hash (i64.add (i64.mul (local.get $hash) (i64.const 1099511628211)) (call $one (local.get $i))))
      (br_if $next (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (table.size $first))))
    (local.set $i (i32.const 0))
    (loop $next
      (local.set $hash (i64.add (i64.mul (local.get $hash) (i64.const 1099511628211)) (call $other (local.get $i))))
      (br_if $next (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (table.size $second))))
    ;; The segment is there again: nothing is written if it was dropped.
    (table.init $second $passive (i32.const 1) (i32.const 0) (i32.const 3))
    (i64.add (local.get $hash) (call $other (i32.const 3))))
