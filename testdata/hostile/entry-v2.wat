;; Only an entry of a later version.
;; Runs into: the entries of the contract.
;; Ends as: refused: ABI mismatch.
(module
  (func (export "glovebox_query_v2") (result i32) (i32.const 0)))
