;; An index that is out of range, and would be in range after metering.
;; Runs into: validation against the original index spaces.
;; Ends as: refused: bad module.
;; Built with: wat2wasm --no-check
(module
  (func)
  (func (export "glovebox_query_v1") (result i32) (drop (global.get 0)) (i32.const 0)))
