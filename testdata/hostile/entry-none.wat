;; No entry.
;; Ends as: refused: bad module.
(module
  (func (export "run") (result i32) (i32.const 0)))
