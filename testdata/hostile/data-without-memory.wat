;; A data segment without a memory.
;; Runs into: validation.
;; Ends as: refused: bad module.
;; Built with: wat2wasm --no-check
(module
  (data (i32.const 0) "a")
  (func (export "glovebox_query_v1") (result i32) (i32.const 0)))
