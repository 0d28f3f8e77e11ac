;; A function in an element segment. It is out of range, and would be in range after metering.
;; Runs into: validation against the original index spaces.
;; Ends as: refused: bad module.
;; Built with: wat2wasm --no-check
(module
  (table 1 funcref)
  (elem (i32.const 0) func 1)
  (func (export "glovebox_query_v1") (result i32) (i32.const 0)))
