;; Imports one function twice, which is allowed.
;; Runs into: the imports of the contract.
;; Ends as: an answer.
(module
  (import "glovebox" "query_size" (func $a (result i32)))
  (import "glovebox" "query_size" (func $b (result i32)))
  (func (export "glovebox_query_v1") (result i32) (i32.sub (call $a) (call $b))))
