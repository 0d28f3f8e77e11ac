;; A table of 4 G elements.
;; Runs into: table elements, or the number of tables.
;; Ends as: refused: out of memory.
(module
  (table 4294967295 funcref)
  (func (export "glovebox_query_v1") (result i32) (i32.const 0)))
