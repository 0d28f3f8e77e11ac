;; An endless loop in the start section, which runs before any export is called.
;; Runs into: wall time or fuel.
;; Ends as: timeout.
(module
  (start $s)
  (func $s (loop $l (br $l)))
  (func (export "glovebox_query_v1") (result i32) (i32.const 0)))
