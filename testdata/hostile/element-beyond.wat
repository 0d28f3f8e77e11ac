;; An element segment beyond its table, which the engine leaves out without a word, against the
;; specification. It is no way out: the table keeps its bounds.
;; Runs into: the bounds of a table.
;; Ends as: an answer.
(module
  (table 1 funcref)
  (elem (i32.const 1) $f)
  (func $f)
  (func (export "glovebox_query_v1") (result i32) (i32.const 0)))
