;; Exports a function under the name of the memory.
;; Runs into: names and indices of exports.
;; Ends as: an answer.
(module
  (memory 1)
  (func (export "memory"))
  (func (export "glovebox_query_v1") (result i32) (i32.const 0)))
