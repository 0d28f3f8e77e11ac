;; A storm of calls through a table to a function of the host.
;; Runs into: wall time or fuel, both checked in host calls.
;; Ends as: timeout, or out of fuel.
(module
  (import "glovebox" "query_size" (func $size (result i32)))
  (type $t (func (result i32)))
  (table funcref (elem $size))
  (func (export "glovebox_query_v1") (result i32)
    (loop $l (drop (call_indirect (type $t) (i32.const 0))) (br $l)) (i32.const 0)))
