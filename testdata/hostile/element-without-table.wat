;; An element segment without a table.
;; Runs into: validation.
;; Ends as: refused: bad module.
;; Built with: wat2wasm --no-check
(module
  (elem (i32.const 0) func 0)
  (func (export "glovebox_query_v1") (result i32) (i32.const 0)))
