;; Asks for files whose path is 60 MiB long, again and again: the engine copies and cleans a path
;; before it looks whether there is a directory.
;; Runs into: wall time or fuel, both checked in host calls.
;; Ends as: timeout, or out of fuel; the process does not grow by more than the memory.
(module
  (import "wasi_snapshot_preview1" "path_filestat_get" (func $stat (param i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1024)
  (func (export "glovebox_query_v1") (result i32)
    (memory.fill (i32.const 65536) (i32.const 47) (i32.const 62914560))
    (memory.fill (i32.const 65536) (i32.const 97) (i32.const 31457280))
    (loop $l (drop (call $stat (i32.const 3) (i32.const 0) (i32.const 65536) (i32.const 62914560) (i32.const 0))) (br $l))
    (i32.const 0)))
