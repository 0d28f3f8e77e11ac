;; Leaves an i64 where an i32 is wanted.
;; Runs into: validation.
;; Ends as: refused: bad module.
;; Built with: wat2wasm --no-check
(module
  (func (export "glovebox_query_v1") (result i32) (i64.const 0)))
