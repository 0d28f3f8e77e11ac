;; The type of a call through a table. It is out of range, and would be in range after metering.
;; Runs into: validation against the original index spaces.
;; Ends as: refused: bad module.
;; Built with: wat2wasm --no-check
(module
  (table 1 funcref)
  (func (export "glovebox_query_v1") (result i32) (call_indirect (type 1) (i64.const 0) (i32.const 0)) drop (i32.const 0)))
