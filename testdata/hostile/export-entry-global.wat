;; Exports a global under the name of _initialize, which is then nothing to call.
;; Runs into: names and indices of exports.
;; Ends as: an answer.
(module
  (global (export "_initialize") i32 (i32.const 0))
  (func (export "glovebox_query_v1") (result i32) (i32.const 0)))
