;; A memory with 64-bit addresses.
;; Runs into: the features that hands can use.
;; Ends as: refused: bad module.
;; Built with: wat2wasm --enable-memory64
(module
  (memory i64 1)
  (func (export "glovebox_query_v1") (result i32)
      (i32.const 0)))
