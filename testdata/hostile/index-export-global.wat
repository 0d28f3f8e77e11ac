;; An exported global. It is out of range, and would be in range after metering.
;; Runs into: validation against the original index spaces.
;; Ends as: refused: bad module.
;; Built with: wat2wasm --no-check
(module
  (export "g" (global 0))
  (func (export "glovebox_query_v1") (result i32) (i32.const 0)))
