;; A loop of nothing but its own branch.
;; Runs into: wall time or fuel.
;; Ends as: timeout, or out of fuel.
(module
  (func (export "glovebox_query_v1") (result i32) (loop $l (br $l)) (i32.const 0)))
