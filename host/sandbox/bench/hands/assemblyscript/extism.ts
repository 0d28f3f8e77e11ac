// The trivial hand for Extism, whose guests move bytes through the host's
// kernel in words, as its own development kits do.
@external("extism:host/env", "input_length")
declare function input_length(): u64;
@external("extism:host/env", "input_load_u8")
declare function input_load_u8(offset: u64): u32;
@external("extism:host/env", "input_load_u64")
declare function input_load_u64(offset: u64): u64;
@external("extism:host/env", "alloc")
declare function alloc(length: u64): u64;
@external("extism:host/env", "store_u8")
declare function store_u8(offset: u64, value: u32): void;
@external("extism:host/env", "store_u64")
declare function store_u64(offset: u64, value: u64): void;
@external("extism:host/user", "wait")
declare function wait(): void;
@external("extism:host/env", "output_set")
declare function output_set(offset: u64, length: u64): void;

export function query(): i32 {
  const length = input_length();
  const bytes = new ArrayBuffer(i32(length));
  const to = changetype<usize>(bytes);
  let at: u64 = 0;
  for (; at + 8 <= length; at += 8) store<u64>(to + usize(at), input_load_u64(at));
  for (; at < length; at++) store<u8>(to + usize(at), input_load_u8(at));
  const query = String.UTF8.decode(bytes);
  if (query.startsWith('{"prompt":"!')) wait();

  const text = String.UTF8.encode((query.length > 0 ? "Nothing" : "What") + " happened.");
  const from = changetype<usize>(text);
  const size = u64(text.byteLength);
  const start = alloc(size);
  for (at = 0; at + 8 <= size; at += 8) store_u64(start + at, load<u64>(from + usize(at)));
  for (; at < size; at++) store_u8(start + at, load<u8>(from + usize(at)));
  output_set(start, size);
  return 0;
}
