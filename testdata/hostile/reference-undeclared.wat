;; Takes the address of a function that is not declared.
;; Runs into: validation.
;; Ends as: refused: bad module.
;; Built with: wat2wasm --no-check
(module
  (func $f)
  (func (export "glovebox_query_v1") (result i32) (drop (ref.func $f)) (i32.const 0)))
