;; Imports http, which nobody granted.
;; Runs into: what is granted.
;; Ends as: refused: not granted.
(module
  (import "glovebox_http" "fetch" (func (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "glovebox_query_v1") (result i32) (i32.const 0)))
