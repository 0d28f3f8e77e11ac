;; A start function that takes a value.
;; Runs into: validation.
;; Ends as: refused: bad module.
;; Built with: wat2wasm --no-check
(module
  (start 0)
  (func (param i32))
  (func (export "glovebox_query_v1") (result i32) (i32.const 0)))
