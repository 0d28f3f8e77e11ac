;; Says 10,000 times, in 60 MiB, why it failed.
;; Runs into: bytes of what a hand says of its failure.
;; Ends as: hand failed: what it says is cut.
(module
  (import "glovebox" "fail" (func $fail (param i32 i32)))
  (memory (export "memory") 1024)
  (func (export "glovebox_query_v1") (result i32) (local $i i32)
    (memory.fill (i32.const 0) (i32.const 97) (i32.const 62914560))
    (loop $l
      (call $fail (i32.const 0) (i32.const 62914560))
      (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 10000))))
    (i32.const 0)))
