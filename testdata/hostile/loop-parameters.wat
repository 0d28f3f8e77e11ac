;; A loop that passes values to itself on the stack: its head has parameters, which metering has to
;; leave where they are.
;; Runs into: wall time or fuel.
;; Ends as: timeout, or out of fuel.
(module
  (func (export "glovebox_query_v1") (result i32)
    (i32.const 1) (i64.const 2) (f64.const 3)
    (loop $l (param i32 i64 f64) (result i32) (drop) (drop) (drop) (br $l (i32.const 1) (i64.const 2) (f64.const 3)))))
