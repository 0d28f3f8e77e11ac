;; No entry.
;; Runs into: the entries of the contract.
;; Ends as: refused: bad module.
(module
  (func (export "run") (result i32) (i32.const 0)))
