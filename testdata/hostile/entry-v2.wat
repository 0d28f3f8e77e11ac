;; Only an entry of a later version.
;; Ends as: refused: ABI mismatch.
(module
  (func (export "glovebox_query_v2") (result i32) (i32.const 0)))
