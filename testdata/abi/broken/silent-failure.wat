;; Fails and does not say why.
;;| name = "silent-failure"
;;| version = "1.0.0"
;;| abi = 1
(module
  (memory (export "memory") 1)
  (func (export "glovebox_query_v1") (result i32)
    (i32.const 3)))
