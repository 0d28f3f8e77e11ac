// Values that outlive the query: those of this hand for the user whom it is asked for, whom
// nobody else can read. A module that uses something of this asks for the capability "kv";
// the manifest must ask for it too.
//
// A key is 1 to 512 bytes of UTF-8. The operator limits one value and all together, by
// default to 1 MiB and 16 MiB: beyond that is `too_large` and `quota_exceeded`.

import { Kind } from "./abi";
import * as host from "./host";
import { quote, Reader } from "./json";
import { Failure, Result } from "./result";
import { decodeText, encode, encodeText, isWellFormed } from "./text";

// @ts-ignore: decorator
@external("glovebox_kv", "get")
declare function host_get(ptr: usize, len: i32): i32;
// @ts-ignore: decorator
@external("glovebox_kv", "set")
declare function host_set(ptr: usize, len: i32): i32;
// @ts-ignore: decorator
@external("glovebox_kv", "delete")
declare function host_delete(ptr: usize, len: i32): i32;
// @ts-ignore: decorator
@external("glovebox_kv", "list")
declare function host_list(ptr: usize, len: i32): i32;

/** The value of a key, or `not_found`. */
export function get(key: string): Result<Uint8Array> {
  if (!isWellFormed(key)) return Result.failed<Uint8Array>(new Failure(operation("get", key), Kind.BAD_REQUEST));
  const request = encode(ofKey(key));
  const size = host_get(changetype<usize>(request), request.byteLength);
  return size < 0 ? Result.failed<Uint8Array>(Failure.ofCode(operation("get", key), size)) : Result.of(host.result(size));
}

/** The value of a key as text; one that is not UTF-8 gives `not text`. */
export function getText(key: string): Result<string> {
  const value = get(key);
  if (!value.ok) return Result.failed<string>(value.failure!);
  const text = decodeText(value.value);
  return text === null ? Result.failed<string>(new Failure(operation("get", key), "not text")) : Result.of<string>(text);
}

/**
 * Keeps a value, which may be empty. It is on the operator's disk when set returns null, and
 * replaces an earlier one as a whole or not at all. Each set waits for that disk: one value
 * that holds many things is quicker than many.
 */
export function set(key: string, value: Uint8Array): Failure | null {
  if (!isWellFormed(key)) return new Failure(operation("set", key), Kind.BAD_REQUEST);
  const request = host.encodeWithBody(ofKey(key), value);
  const size = host_set(changetype<usize>(request), request.byteLength);
  return size < 0 ? Failure.ofCode(operation("set", key), size) : null;
}

/** Keeps a text in UTF-8. */
export function setText(key: string, text: string): Failure | null {
  return set(key, encodeText(text));
}

/** Removes a value. That there is none is no failure. */
export function remove(key: string): Failure | null {
  if (!isWellFormed(key)) return new Failure(operation("delete", key), Kind.BAD_REQUEST);
  const request = encode(ofKey(key));
  const size = host_delete(changetype<usize>(request), request.byteLength);
  return size < 0 ? Failure.ofCode(operation("delete", key), size) : null;
}

/** A part of the keys, in the order of their bytes. */
export class Page {
  keys: string[] = [];
  /** Says that keys follow the last one. */
  more: bool = false;
}

/** All keys that begin with prefix, in the order of their bytes. */
export function list(prefix: string = ""): Result<string[]> {
  const all = new Page();
  do {
    const seen = all.keys.length;
    const failure = addPage(all, prefix, seen > 0 ? all.keys[seen - 1] : "", 0);
    if (failure) return Result.failed<string[]>(failure);
    if (all.keys.length == seen) break;
  } while (all.more);
  return Result.of(all.keys);
}

/** The first keys, at most limit (1 to 1,000), that begin with prefix and come after the key after, which need not exist. */
export function page(prefix: string, after: string, limit: i32): Result<Page> {
  const one = new Page();
  const failure = addPage(one, prefix, after, limit);
  return failure ? Result.failed<Page>(failure) : Result.of(one);
}

function addPage(page: Page, prefix: string, after: string, limit: i32): Failure | null {
  if (!isWellFormed(prefix) || !isWellFormed(after)) return new Failure(operation("list", prefix), Kind.BAD_REQUEST);
  const request = encode('{"prefix":' + quote(prefix) + ',"after":' + quote(after) + ',"limit":' + limit.toString() + "}");
  const size = host_list(changetype<usize>(request), request.byteLength);
  if (size < 0) return Failure.ofCode(operation("list", prefix), size);
  const reader = new Reader(host.passingResult(size));
  page.more = false;
  reader.object();
  while (reader.nextKey()) {
    if (reader.keyIs("more")) page.more = reader.boolean();
    else if (reader.keyIs("keys")) {
      reader.array();
      while (reader.nextItem()) page.keys.push(reader.string());
    } else reader.skip();
  }
  return reader.finish(operation("list", prefix));
}

function ofKey(key: string): string {
  return '{"key":' + quote(key) + "}";
}

function operation(name: string, key: string): string {
  return "kv " + name + " " + quote(key);
}
