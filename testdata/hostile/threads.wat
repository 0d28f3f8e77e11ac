;; Uses an instruction of threads.
;; Runs into: the features that hands can use.
;; Ends as: refused: bad module.
;; Built with: wat2wasm --enable-threads
(module
  (func (export "glovebox_query_v1") (result i32) (atomic.fence) (i32.const 0)))
