;; Sets a global that does not change.
;; Runs into: validation.
;; Ends as: refused: bad module.
;; Built with: wat2wasm --no-check
(module
  (global $g i32 (i32.const 0))
  (func (export "glovebox_query_v1") (result i32) (global.set $g (i32.const 1)) (i32.const 0)))
