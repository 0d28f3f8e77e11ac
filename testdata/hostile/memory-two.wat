;; Two memories.
;; Runs into: the features that hands can use.
;; Ends as: refused: bad module.
;; Built with: wat2wasm --enable-multi-memory
(module
  (memory 1) (memory 1)
  (func (export "glovebox_query_v1") (result i32)
      (i32.const 0)))
