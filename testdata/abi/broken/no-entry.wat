;; A module without an entry.
;;| name = "no-entry"
;;| version = "1.0.0"
;;| abi = 1
(module
  (memory (export "memory") 1)
  (func (export "glovebox_query") (result i32)
    (i32.const 0)))
