;; A hand of another ABI.
;;| name = "abi-2"
;;| version = "1.0.0"
;;| abi = 1
(module
  (memory (export "memory") 1)
  (func (export "glovebox_query_v2") (result i32)
    (i32.const 0)))
