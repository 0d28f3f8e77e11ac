;; Catches exceptions, and so what would end it.
;; Runs into: the features that hands can use.
;; Ends as: refused: bad module.
;; Built with: wat2wasm --enable-exceptions
(module
  (tag $t)
  (func (export "glovebox_query_v1") (result i32) (try (do (throw $t)) (catch_all)) (i32.const 0)))
