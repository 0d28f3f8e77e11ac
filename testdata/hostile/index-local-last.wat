;; The local after the last parameter. It is out of range, and would be in range after metering.
;; Runs into: validation against the original index spaces.
;; Ends as: refused: bad module.
;; Built with: wat2wasm --no-check
(module
  (func (param i32) (drop (local.get 1)))
  (func (export "glovebox_query_v1") (result i32) (i32.const 0)))
