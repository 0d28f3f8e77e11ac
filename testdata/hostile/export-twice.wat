;; Two exports of one name.
;; Runs into: names and indices of exports.
;; Ends as: refused: bad module.
;; Built with: wat2wasm --no-check
(module
  (func (export "a"))
  (func (export "a"))
  (func (export "glovebox_query_v1") (result i32) (i32.const 0)))
