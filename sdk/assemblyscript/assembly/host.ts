// The host's functions, as abi/ABI.md has them.

import { encode } from "./text";

// @ts-ignore: decorator
@external("glovebox", "query_size")
declare function query_size(): i32;
// @ts-ignore: decorator
@external("glovebox", "query_read")
declare function query_read(ptr: usize, cap: i32): i32;
// @ts-ignore: decorator
@external("glovebox", "reply")
declare function host_reply(ptr: usize, len: i32): i32;
// @ts-ignore: decorator
@external("glovebox", "fail")
declare function host_fail(ptr: usize, len: i32): void;
// @ts-ignore: decorator
@external("glovebox", "log")
declare function host_log(level: i32, ptr: usize, len: i32): void;
// @ts-ignore: decorator
@external("glovebox", "result_read")
declare function result_read(ptr: usize, cap: i32): i32;

export function query(): Uint8Array {
  const bytes = new Uint8Array(query_size());
  return bytes.subarray(0, query_read(bytes.dataStart, bytes.length));
}

export function reply(text: string): void {
  const bytes = encode(text);
  host_reply(changetype<usize>(bytes), bytes.byteLength);
}

export function fail(text: string): void {
  const bytes = encode(text);
  host_fail(changetype<usize>(bytes), bytes.byteLength);
}

export function log(level: i32, text: string): void {
  const bytes = encode(text);
  host_log(level, changetype<usize>(bytes), bytes.byteLength);
}

/** The result of the last capability call, whose size it returned. */
export function result(size: i32): Uint8Array {
  const bytes = new Uint8Array(size);
  return bytes.subarray(0, result_read(bytes.dataStart, size));
}

/** Copies the result of the last capability call into bytes, and returns how much of them it fills. */
export function resultInto(bytes: Uint8Array): i32 {
  return result_read(bytes.dataStart, bytes.length);
}

let scratch = new ArrayBuffer(0);

/**
 * What result returns, in memory that the next call uses again: a folder of many pages
 * shall not cost the sum of their JSON where nothing is freed.
 */
export function passingResult(size: i32): Uint8Array {
  if (scratch.byteLength < size) scratch = new ArrayBuffer(max(size, 2 * scratch.byteLength));
  const bytes = Uint8Array.wrap(scratch, 0, size);
  return bytes.subarray(0, result_read(bytes.dataStart, size));
}

/** A request in JSON, one LF and raw bytes. */
export function encodeWithBody(request: string, body: Uint8Array): ArrayBuffer {
  const head = encode(request + "\n");
  const all = new ArrayBuffer(head.byteLength + body.length);
  memory.copy(changetype<usize>(all), changetype<usize>(head), head.byteLength);
  memory.copy(changetype<usize>(all) + head.byteLength, body.dataStart, body.length);
  return all;
}
