;; A label in a branch table. It is out of range, and would be in range after metering.
;; Runs into: validation against the original index spaces.
;; Ends as: refused: bad module.
;; Built with: wat2wasm --no-check
(module
  (func (export "glovebox_query_v1") (result i32) (i32.const 0) (br_table 0 1 (i32.const 0))))
