;; Imports a function that WASI does not have.
;; Runs into: the imports of the contract.
;; Ends as: refused: bad module.
(module
  (import "wasi_snapshot_preview1" "proc_exec" (func (param i32 i32) (result i32)))
  (func (export "glovebox_query_v1") (result i32) (i32.const 0)))
