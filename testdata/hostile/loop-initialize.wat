;; An endless loop in _initialize.
;; Runs into: wall time or fuel.
;; Ends as: timeout.
(module
  (func (export "_initialize") (loop $l (br $l)))
  (func (export "glovebox_query_v1") (result i32) (i32.const 0)))
