;; A start function that does not exist.
;; Runs into: validation against the original index spaces.
;; Ends as: refused: bad module.
;; Built with: wat2wasm --no-check
(module
  (start 7)
  (func (export "glovebox_query_v1") (result i32) (i32.const 0)))
