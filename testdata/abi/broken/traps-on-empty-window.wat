;; Divides by the difference of the two days of the window, which are read behind the
;; first "from":" and "to":".
;;| name = "traps-on-empty-window"
;;| version = "1.0.0"
;;| abi = 1
(module
  (import "glovebox" "reply" (func $reply (param i32 i32) (result i32)))
  (import "glovebox" "query_size" (func $size (result i32)))
  (import "glovebox" "query_read" (func $read (param i32 i32) (result i32)))
  (memory (export "memory") 20)
  (data (i32.const 0) "\"from\":\"")
  (data (i32.const 16) "\"to\":\"")
  (data (i32.const 32) "hi")
  ;; Where in the query, which begins at 64, the text at $what of $length bytes ends;
  ;; 0 if it is not in it.
  (func $after (param $what i32) (param $length i32) (result i32)
    (local $at i32) (local $i i32) (local $end i32)
    (local.set $at (i32.const 64))
    (local.set $end (i32.add (i32.const 64) (call $size)))
    (loop $next
      (if (i32.gt_u (i32.add (local.get $at) (local.get $length)) (local.get $end)) (then (return (i32.const 0))))
      (local.set $i (i32.const 0))
      (block $differs
        (loop $more
          (br_if $differs (i32.ne
            (i32.load8_u (i32.add (local.get $at) (local.get $i)))
            (i32.load8_u (i32.add (local.get $what) (local.get $i)))))
          (local.set $i (i32.add (local.get $i) (i32.const 1)))
          (br_if $more (i32.lt_u (local.get $i) (local.get $length))))
        (return (i32.add (local.get $at) (local.get $length))))
      (local.set $at (i32.add (local.get $at) (i32.const 1)))
      (br $next))
    (unreachable))
  (func (export "glovebox_query_v1") (result i32)
    (local $from i32) (local $to i32)
    (drop (call $read (i32.const 64) (i32.const 1000000)))
    (local.set $from (call $after (i32.const 0) (i32.const 8)))
    (local.set $to (call $after (i32.const 16) (i32.const 6)))
    ;; "2026-03-23": the day in its last two bytes, the year in its first four.
    (drop (i32.div_u (i32.const 1) (i32.or
      (i32.xor (i32.load (local.get $from)) (i32.load (local.get $to)))
      (i32.xor (i32.load16_u offset=8 (local.get $from)) (i32.load16_u offset=8 (local.get $to))))))
    (drop (call $reply (i32.const 32) (i32.const 2)))
    (i32.const 0)))
