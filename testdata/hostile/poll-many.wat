;; Polls 800,000 subscriptions at once, none of which waits, again and again: the engine goes
;; through them all in one host call.
;; Runs into: wall time or fuel, both checked in host calls.
;; Ends as: timeout, or out of fuel.
(module
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1024)
  (func (export "glovebox_query_v1") (result i32) (local $at i32)
    ;; subscriptions of 48 bytes, their type 2 (fd_write) at byte 8; the last one is of clock 0, now
    (loop $l
      (i32.store8 offset=8 (local.get $at) (i32.const 2))
      (br_if $l (i32.lt_u (local.tee $at (i32.add (local.get $at) (i32.const 48))) (i32.const 38399952))))
    (loop $l (drop (call $poll (i32.const 0) (i32.const 38400000) (i32.const 800000) (i32.const 64000000))) (br $l))
    (i32.const 0)))
