import * as host from "./host";
import * as log from "./log";
import { parseQuery, Query } from "./query";

let handler: ((q: Query) => string) | null = null;
let failed = false;
let prepare: (() => void) | null = null;

/**
 * Makes f the hand's answer. Call it once, at the top level of assembly/index.ts. f returns
 * the reply; an empty text means that there is nothing to say.
 */
export function register(f: (q: Query) => string): void {
  if (handler) throw new Error("register was called twice");
  handler = f;
}

/**
 * Names a function that a host may call before the first query: it keeps the memory as it is
 * then, and each query begins with a copy of it. What the top level of the module does is in
 * that copy too, but is done in every query by a host that keeps none: what is worth it only if
 * it is done once belongs here. Call it once, at the top level of assembly/index.ts.
 *
 * f may also never be called, so let it only do early what the answer does where it was not.
 * There is no query then, no capability and no log: a call of the host ends it, as does an
 * Error, and queries begin as if it had not run. Chance is not real: after a Math.random() there
 * or at the top level, those of the answer are the same in every query.
 */
export function warm(f: () => void): void {
  if (prepare) throw new Error("warm was called twice");
  prepare = f;
}

/**
 * Lets the query fail with a text, which is shown to the operator. It returns an empty text,
 * so that an answer can end with `return fail("…")`; what the answer returns after it is not
 * shown to anyone.
 */
export function fail(text: string): string {
  failed = true;
  host.fail(text);
  return "";
}

/** What the host may call before the first query. */
export function glovebox_warm_v1(): void {
  const f = prepare;
  if (f) f();
}

/** What the host calls. */
export function glovebox_query_v1(): i32 {
  const answer = handler;
  if (!answer) {
    host.fail("no handler: call register(answer) at the top level of assembly/index.ts");
    return 1;
  }
  const q = parseQuery(host.query());
  if (q.failure) {
    host.fail(q.failure!.toString());
    return 1;
  }
  const text = answer(q.value);
  if (failed) return 1;
  host.reply(text);
  return 0;
}

// The compiler lets what would be imports from "env" come from here (asconfig.json, "use"):
// the host admits no module with such imports.

// @ts-ignore: decorator
@global
export function gloveboxAbort(message: string | null, file: string | null, line: u32, column: u32): void {
  host.fail((file ? file : "?") + ":" + line.toString() + ":" + column.toString() + ": " + (message ? message : "aborted"));
  // The compiler puts a trap behind each call of this.
}

// @ts-ignore: decorator
@external("wasi_snapshot_preview1", "random_get")
declare function random_get(ptr: usize, len: i32): i32;

// @ts-ignore: decorator
@global
export function gloveboxSeed(): f64 {
  const bits = new StaticArray<u64>(1);
  random_get(changetype<usize>(bits), 8);
  return reinterpret<f64>(bits[0]);
}

// @ts-ignore: decorator
@global
export function gloveboxTrace(message: string, count: i32 = 0, a0: f64 = 0, a1: f64 = 0, a2: f64 = 0, a3: f64 = 0, a4: f64 = 0): void {
  const values = [a0, a1, a2, a3, a4];
  const parts = [message];
  for (let i = 0; i < min(count, values.length); i++) parts.push(values[i].toString());
  log.debug(parts.join(" "));
}

// @ts-ignore: decorator
@global
export namespace gloveboxConsole {
  export function assert<T>(assertion: T, message: string = ""): void {
    if (!assertion) log.error("Assertion failed: " + message);
  }
  export function log(message: string = ""): void {
    host.log(1, message);
  }
  export function debug(message: string = ""): void {
    host.log(0, message);
  }
  export function info(message: string = ""): void {
    host.log(1, message);
  }
  export function warn(message: string = ""): void {
    host.log(2, message);
  }
  export function error(message: string = ""): void {
    host.log(3, message);
  }
}
