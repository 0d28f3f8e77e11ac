;; Imports what no hand can have.
;; Runs into: the imports of the contract.
;; Ends as: refused: bad module.
(module
  (import "glovebox_meter" "tick" (func (param i64) (result i64)))
  (func (export "glovebox_query_v1") (result i32) (i32.const 0)))
