;; Exports names that only look like an entry.
;; Runs into: the entries of the contract.
;; Ends as: refused: bad module.
(module
  (func (export "glovebox_query_v01") (result i32) (i32.const 0))
  (func (export "glovebox_query_v1 ") (result i32) (i32.const 0))
  (func (export "glovebox_query_v1\00") (result i32) (i32.const 0))
  (func (export "GLOVEBOX_QUERY_V1") (result i32) (i32.const 0))
  (func (export "_start\e2\80\8b")))
