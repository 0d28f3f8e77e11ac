;; Computes the initial value of a global.
;; Runs into: the features that hands can use.
;; Ends as: refused: bad module.
;; Built with: wat2wasm --enable-extended-const
(module
  (global i32 (i32.add (i32.const 1) (i32.const 2)))
  (func (export "glovebox_query_v1") (result i32) (i32.const 0)))
