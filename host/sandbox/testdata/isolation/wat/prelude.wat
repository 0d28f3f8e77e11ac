;; What every hand of TestIsolation in this folder begins with. A hand adds what is its
;; own: its memory of at least one page, the globals, tables and segments that are under test, and
;;   $dirty  (param $word i64)               writes the word to them,
;;   $kept   (param $word i64) (result i32)  says whether they hold it,
;;   $state  (result i64)                    is a digest of them.
;; The memory below 8192 is used here: the query at 4096, what is said at 2048.
  (import "glovebox" "query_read" (func $query_read (param i32 i32) (result i32)))
  (import "glovebox" "reply" (func $reply (param i32 i32) (result i32)))
  (import "glovebox_files" "read" (func $files_read (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll_oneoff (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "random_get" (func $random_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "clock_time_get" (func $clock_time_get (param i32 i64 i32) (result i32)))

  (data (i32.const 1024) "{\"root\":\"isolation\",\"offset\":0,\"length\":1,\"path\":\"cancel\"}")
  (data (i32.const 1152) "{\"root\":\"isolation\",\"offset\":0,\"length\":1,\"path\":\"panic\"} ")
  (data (i32.const 1280) "{\"root\":\"isolation\",\"offset\":0,\"length\":1,\"path\":\"pause\"} ")
  (global $marks (mut i64) (i64.const 0))
  (global $where (mut i64) (i64.const 0))
  (global $what (mut i64) (i64.const 0))
  (global $nonzero (mut i64) (i64.const 0))

  (func $fill (param $from i32) (param $to i32) (param $word i64)
    (loop $next
      (if (i32.lt_u (local.get $from) (local.get $to)) (then
        (i64.store (local.get $from) (local.get $word))
        (local.set $from (i32.add (local.get $from) (i32.const 8)))
        (br $next)))))

  (func $holds (param $from i32) (param $to i32) (param $word i64) (result i32)
    (loop $next
      (if (i32.lt_u (local.get $from) (local.get $to)) (then
        (if (i64.ne (i64.load (local.get $from)) (local.get $word)) (then (return (i32.const 0))))
        (local.set $from (i32.add (local.get $from) (i32.const 8)))
        (br $next))))
    (i32.const 1))

  (func $bytes (result i32) (i32.shl (memory.size) (i32.const 16)))

  ;; The hash of memory; what is found on the way goes to the globals.
  (func $scan (param $from i32) (param $to i32) (result i64)
    (local $hash i64) (local $word i64)
    (local.set $hash (i64.const -3750763034362895579))
    (global.set $nonzero (i64.const 0))
    (loop $next
      (if (i32.lt_u (local.get $from) (local.get $to)) (then
        (local.set $word (i64.load (local.get $from)))
        (local.set $hash (i64.mul (i64.xor (local.get $hash) (local.get $word)) (i64.const 1099511628211)))
        (if (i64.ne (local.get $word) (i64.const 0)) (then
          (global.set $nonzero (i64.add (global.get $nonzero) (i64.const 1)))
          (if (i64.eq (i64.shr_u (local.get $word) (i64.const 32)) (i64.const 0x5ca1ab1e)) (then
            (if (i64.eqz (global.get $marks)) (then
              (global.set $where (i64.extend_i32_u (local.get $from)))
              (global.set $what (local.get $word))))
            (global.set $marks (i64.add (global.get $marks) (i64.const 1)))))))
        (local.set $from (i32.add (local.get $from) (i32.const 8)))
        (br $next))))
    (local.get $hash))

  (func $grow (param $most i32) (param $word i64)
    (local $was i32)
    (loop $next
      (if (local.get $most) (then
        (local.set $was (memory.grow (i32.const 1)))
        (if (i32.ne (local.get $was) (i32.const -1)) (then
          (local.set $was (i32.shl (local.get $was) (i32.const 16)))
          (call $fill (local.get $was) (i32.add (local.get $was) (i32.const 65536)) (local.get $word))
          (local.set $most (i32.sub (local.get $most) (i32.const 1)))
          (br $next)))))))

  (func $recurse (param $word i64) (result i64)
    (i64.xor (call $recurse (i64.add (local.get $word) (i64.const 1))) (local.get $word)))

  (func $spin (param $word i64) (loop $l (i64.store (i32.const 8192) (local.get $word)) (br $l)))

  (func $sleep
    (memory.fill (i32.const 2048) (i32.const 0) (i32.const 512))
    (i32.store (i32.const 2064) (i32.const 1))
    (i64.store (i32.const 2072) (i64.const 3600000000000))
    (drop (call $poll_oneoff (i32.const 2048) (i32.const 2304) (i32.const 1) (i32.const 2496))))

  ;; 16 hexadecimal digits.
  (func $digits (param $at i32) (param $word i64)
    (local $i i32) (local $digit i32)
    (loop $next
      (local.set $digit (i32.wrap_i64 (i64.shr_u (local.get $word) (i64.const 60))))
      (i32.store8 (i32.add (local.get $at) (local.get $i))
        (i32.add (local.get $digit) (select (i32.const 0x57) (i32.const 0x30) (i32.gt_u (local.get $digit) (i32.const 9)))))
      (local.set $word (i64.shl (local.get $word) (i64.const 4)))
      (br_if $next (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 16))))
    (i32.store8 (i32.add (local.get $at) (i32.const 16)) (i32.const 0x20)))

  (func $number (param $at i32) (result i64)
    (local $i i32) (local $digit i64) (local $word i64)
    (loop $next
      (local.set $digit (i64.load8_u (i32.add (local.get $at) (local.get $i))))
      (local.set $word (i64.or (i64.shl (local.get $word) (i64.const 4))
        (i64.sub (local.get $digit) (select (i64.const 0x57) (i64.const 0x30) (i64.gt_u (local.get $digit) (i64.const 0x39))))))
      (br_if $next (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 16))))
    (local.get $word))

  (func $read (result i32)
    (local $first i32) (local $hash i64)
    (local.set $first (call $bytes))
    (local.set $hash (call $scan (i32.const 0) (local.get $first)))
    (loop $next (br_if $next (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
    (drop (call $scan (local.get $first) (call $bytes)))
    (call $digits (i32.const 2048) (i64.extend_i32_u (i32.shr_u (local.get $first) (i32.const 16))))
    (call $digits (i32.const 2065) (local.get $hash))
    (call $digits (i32.const 2082) (i64.extend_i32_u (i32.sub (memory.size) (i32.shr_u (local.get $first) (i32.const 16)))))
    (call $digits (i32.const 2099) (global.get $nonzero))
    (call $digits (i32.const 2116) (global.get $marks))
    (call $digits (i32.const 2133) (global.get $where))
    (call $digits (i32.const 2150) (global.get $what))
    (call $digits (i32.const 2167) (call $state))
    (call $reply (i32.const 2048) (i32.const 135)))

  ;; Nanoseconds in hexadecimal, unlike other hands: 0x, and a number.
  (func $world (result i32)
    (drop (call $clock_time_get (i32.const 0) (i64.const 1) (i32.const 2560)))
    (drop (call $clock_time_get (i32.const 1) (i64.const 1) (i32.const 2568)))
    (drop (call $random_get (i32.const 2576) (i32.const 8)))
    (i32.store16 (i32.const 2048) (i32.const 0x7830))
    (call $digits (i32.const 2050) (i64.load (i32.const 2560)))
    (i32.store16 (i32.const 2067) (i32.const 0x7830))
    (call $digits (i32.const 2069) (i64.load (i32.const 2568)))
    (call $digits (i32.const 2086) (i64.load (i32.const 2576)))
    (call $reply (i32.const 2048) (i32.const 54)))

  (func $dirtied (param $word i64) (param $mode i32) (result i32)
    (call $fill (i32.const 8192) (call $bytes) (local.get $word))
    (if (i32.eq (local.get $mode) (i32.const 0x68)) (then ;; half
      (memory.fill (i32.sub (call $bytes) (i32.const 16)) (i32.const 1) (i32.const 32))))
    (call $dirty (local.get $word))
    (call $grow (select (i32.const 65536) (i32.const 2)
      (i32.or (i32.eq (local.get $mode) (i32.const 0x67)) (i32.eq (local.get $mode) (i32.const 0x62)))) (local.get $word))
    (if (i32.or (i32.eq (local.get $mode) (i32.const 0x74)) (i32.eq (local.get $mode) (i32.const 0x62))) (then unreachable)) ;; trap, burst
    (if (i32.eq (local.get $mode) (i32.const 0x6c)) (then (call $spin (local.get $word)))) ;; loop
    (if (i32.eq (local.get $mode) (i32.const 0x65)) (then (call $proc_exit (i32.const 7)))) ;; exit
    (if (i32.eq (local.get $mode) (i32.const 0x72)) (then (drop (call $recurse (local.get $word))))) ;; recurse
    (if (i32.eq (local.get $mode) (i32.const 0x66)) (then (return (i32.const 1)))) ;; fail
    (if (i32.eq (local.get $mode) (i32.const 0x73)) (then (loop $l (call $sleep) (br $l)))) ;; sleep
    (if (i32.eq (local.get $mode) (i32.const 0x63)) (then ;; cancel
      (drop (call $files_read (i32.const 1024) (i32.const 58)))
      (call $spin (local.get $word))))
    (if (i32.eq (local.get $mode) (i32.const 0x70)) (then (drop (call $files_read (i32.const 1152) (i32.const 58))))) ;; panic
    (if (i32.eq (local.get $mode) (i32.const 0x77)) (then (drop (call $files_read (i32.const 1280) (i32.const 58))))) ;; wait
    (if (i32.eqz (i32.and (call $kept (local.get $word)) (call $holds (i32.const 8192) (call $bytes) (local.get $word))))
      (then (return (i32.const 2))))
    (i64.store (i32.const 2048) (i64.const 0x2074_70656b)) ;; "kept "
    (call $digits (i32.const 2053) (local.get $word))
    (call $reply (i32.const 2048) (i32.const 21)))

  (func (export "glovebox_query_v1") (result i32)
    (local $prompt i32)
    (local.set $prompt (i32.const 4107)) ;; it is the first field of the query
    (drop (call $query_read (i32.const 4096) (i32.const 2048)))
    (if (i32.eq (i32.load8_u (local.get $prompt)) (i32.const 0x72)) (then (return (call $read))))
    (if (i32.eq (i32.load8_u (local.get $prompt)) (i32.const 0x77)) (then (return (call $world))))
    (call $dirtied (call $number (i32.const 4113)) (i32.load8_u (i32.const 4130))))

