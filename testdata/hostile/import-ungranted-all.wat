;; Imports all other capabilities.
;; Runs into: what is granted.
;; Ends as: refused: not granted.
(module
  (import "glovebox_files" "read" (func (param i32 i32) (result i32)))
  (import "glovebox_http" "fetch" (func (param i32 i32) (result i32)))
  (import "glovebox_llm" "complete" (func (param i32 i32) (result i32)))
  (func (export "glovebox_query_v1") (result i32) (i32.const 0)))
