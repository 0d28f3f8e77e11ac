;; Moves a megabyte over itself by one byte, up and down, which metering does in pieces: a piece in
;; the wrong order would destroy what the next one reads.
;; Runs into: linear memory.
;; Ends as: an answer: the bytes are those of one move.
(module
  (memory 64)
  (func (export "glovebox_query_v1") (result i32) (local $i i32)
    (loop $l
      (i32.store8 (local.get $i) (i32.mul (local.get $i) (i32.const 167)))
      (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 1048576))))
    (memory.copy (i32.const 1) (i32.const 0) (i32.const 1048576))
    (local.set $i (i32.const 0))
    (loop $l
      (if (i32.ne (i32.load8_u offset=1 (local.get $i)) (i32.and (i32.mul (local.get $i) (i32.const 167)) (i32.const 255))) (then unreachable))
      (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 1048576))))
    (memory.copy (i32.const 0) (i32.const 1) (i32.const 1048576))
    (local.set $i (i32.const 0))
    (loop $l
      (if (i32.ne (i32.load8_u (local.get $i)) (i32.and (i32.mul (local.get $i) (i32.const 167)) (i32.const 255))) (then unreachable))
      (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 1048576))))
    (i32.const 0)))
