;; The command that runs a script in QuickJS: it gives the function that the script
;; evaluates to what stands on standard input, and writes what that returns to standard
;; output. build.mjs puts the script in and merges this module with the engine, whose
;; exports it imports, and whose imports from "env" it provides.
(module
  (import "quickjs" "memory" (memory 1))
  (import "quickjs" "_initialize" (func $initialize))
  (import "quickjs" "wasm_malloc" (func $malloc (param i32) (result i32)))
  (import "quickjs" "qjs_init" (func $qjs_init (result i32)))
  (import "quickjs" "qjs_set_max_stack_size" (func $set_max_stack (param i32)))
  (import "quickjs" "qjs_eval" (func $eval (param $code i32) (param $size i32) (param $name i32) (param $flags i32) (result i32)))
  (import "quickjs" "qjs_new_string" (func $new_string (param $text i32) (param $size i32) (result i32)))
  (import "quickjs" "qjs_get_undefined" (func $undefined (result i32)))
  (import "quickjs" "qjs_call" (func $call (param $function i32) (param $this i32) (param $count i32) (param $arguments i32) (result i32)))
  (import "quickjs" "qjs_is_exception" (func $is_exception (param i32) (result i32)))
  (import "quickjs" "qjs_get_exception" (func $get_exception (result i32)))
  (import "quickjs" "qjs_get_string_len" (func $get_string (param $value i32) (param $size i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))

  (data $script "@SCRIPT@")
  (data $name "hand.js\00")

  ;; What the engine asks of its host, for things that this program never begins.
  (func (export "host_call") (param i32 i32 i32 i32 i32) (result i32) (i32.const 0))
  (func (export "host_interrupt") (result i32) (i32.const 0))
  (func (export "host_promise_rejection") (param i32 i32 i32))
  (func (export "host_module_normalize") (param i32 i32) (result i32) (i32.const 0))
  (func (export "host_module_load") (param i32 i32) (result i32) (i32.const 0))
  ;; Local time is UTC.
  (func (export "host_get_timezone_offset") (param i32 i32) (result i32) (i32.const 0))

  ;; allocate returns memory, or ends the program.
  (func $allocate (param $size i32) (result i32)
    (local $at i32)
    (local.set $at (call $malloc (local.get $size)))
    (if (i32.eqz (local.get $at)) (then (call $exit (i32.const 1)) (unreachable)))
    (local.get $at))

  ;; write writes all of a text to a descriptor.
  (func $write (param $fd i32) (param $text i32) (param $size i32)
    (local $vector i32)
    (local.set $vector (call $allocate (i32.const 12)))
    (loop $more
      (if (local.get $size)
        (then
          (i32.store (local.get $vector) (local.get $text))
          (i32.store offset=4 (local.get $vector) (local.get $size))
          (if (call $fd_write (local.get $fd) (local.get $vector) (i32.const 1) (i32.add (local.get $vector) (i32.const 8)))
            (then (call $exit (i32.const 1))))
          (local.set $text (i32.add (local.get $text) (i32.load offset=8 (local.get $vector))))
          (local.set $size (i32.sub (local.get $size) (i32.load offset=8 (local.get $vector))))
          (br $more)))))

  ;; write_value writes a value as a string.
  (func $write_value (param $fd i32) (param $value i32)
    (local $size i32) (local $text i32)
    (local.set $size (call $allocate (i32.const 4)))
    (local.set $text (call $get_string (local.get $value) (local.get $size)))
    (if (local.get $text)
      (then (call $write (local.get $fd) (local.get $text) (i32.load (local.get $size))))))

  ;; checked returns a value, unless it is an exception: that is what the query fails with.
  (func $checked (param $value i32) (result i32)
    (if (call $is_exception (local.get $value))
      (then
        (call $write_value (i32.const 2) (call $get_exception))
        (call $exit (i32.const 1))
        (unreachable)))
    (local.get $value))

  ;; query reads standard input to its end, at most 1 MiB of it, as a string.
  (func $query (result i32)
    (local $text i32) (local $size i32) (local $vector i32)
    (local.set $text (call $allocate (i32.const 0x100000)))
    (local.set $vector (call $allocate (i32.const 12)))
    (loop $more
      (i32.store (local.get $vector) (i32.add (local.get $text) (local.get $size)))
      (i32.store offset=4 (local.get $vector) (i32.sub (i32.const 0x100000) (local.get $size)))
      (if (call $fd_read (i32.const 0) (local.get $vector) (i32.const 1) (i32.add (local.get $vector) (i32.const 8)))
        (then (call $exit (i32.const 1))))
      (local.set $size (i32.add (local.get $size) (i32.load offset=8 (local.get $vector))))
      (br_if $more (i32.load offset=8 (local.get $vector))))
    (call $new_string (local.get $text) (local.get $size)))

  (func (export "_start")
    (local $script i32) (local $name i32) (local $arguments i32)
    (call $initialize)
    (if (call $qjs_init) (then (call $exit (i32.const 1))))
    ;; So that a function which calls itself for ever throws before the host's stack ends.
    (call $set_max_stack (i32.const 0x40000))
    ;; The engine wants a NUL behind the script.
    (local.set $script (call $allocate (i32.const @SIZE@)))
    (memory.init $script (local.get $script) (i32.const 0) (i32.const @SIZE@))
    (local.set $name (call $allocate (i32.const 8)))
    (memory.init $name (local.get $name) (i32.const 0) (i32.const 8))
    (local.set $arguments (call $allocate (i32.const 4)))
    (i32.store (local.get $arguments) (call $query))
    (call $write_value (i32.const 1)
      (call $checked
        (call $call
          (call $checked
            (call $eval (local.get $script) (i32.sub (i32.const @SIZE@) (i32.const 1)) (local.get $name) (i32.const 0)))
          (call $undefined) (i32.const 1) (local.get $arguments))))))
