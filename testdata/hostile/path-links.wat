;; Makes links between paths of 30 MiB each, again and again, in the directory that is standard
;; output.
;; Runs into: wall time or fuel, both checked in host calls.
;; Ends as: timeout, or out of fuel; the process does not grow by more than the memory.
(module
  (import "wasi_snapshot_preview1" "path_link" (func $link (param i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1024)
  (func (export "glovebox_query_v1") (result i32)
    (memory.fill (i32.const 0) (i32.const 97) (i32.const 62914560))
    (loop $l
      (drop (call $link (i32.const 1) (i32.const 0) (i32.const 0) (i32.const 31457280) (i32.const 1) (i32.const 31457280) (i32.const 31457280)))
      (br $l))
    (i32.const 0)))
