// The constants of the contract. Written by `go generate ./sdk/internal/constants`
// from the Go package abi: change them there.

/** The major version of the contract. */
export const VERSION: i32 = 1;

/** Why a call failed: the names are the same in every language, log and API. */
export namespace Kind {
  export const BAD_POINTER: string = "bad_pointer";
  export const NOT_GRANTED: string = "not_granted";
  export const BAD_REQUEST: string = "bad_request";
  export const TOO_LARGE: string = "too_large";
  export const TOO_MANY_CALLS: string = "too_many_calls";
  export const QUOTA_EXCEEDED: string = "quota_exceeded";
  export const DENIED: string = "denied";
  export const NOT_FOUND: string = "not_found";
  export const TIMEOUT: string = "timeout";
  export const DISABLED: string = "disabled";
  export const UNAVAILABLE: string = "unavailable";
}

/** The kind of a negative result. One that the contract does not have is unavailable. */
export function kindOf(code: i32): string {
  switch (code) {
    case -1: return Kind.BAD_POINTER;
    case -2: return Kind.NOT_GRANTED;
    case -3: return Kind.BAD_REQUEST;
    case -4: return Kind.TOO_LARGE;
    case -5: return Kind.TOO_MANY_CALLS;
    case -6: return Kind.QUOTA_EXCEEDED;
    case -7: return Kind.DENIED;
    case -8: return Kind.NOT_FOUND;
    case -9: return Kind.TIMEOUT;
    case -10: return Kind.DISABLED;
    case -11: return Kind.UNAVAILABLE;
  }
  return Kind.UNAVAILABLE;
}

/** The severity of a log line. */
export enum Level {
  Debug = 0,
  Info = 1,
  Warn = 2,
  Error = 3,
}

// What the contract bounds.
export const MAX_PROMPT_BYTES: i32 = 16384;
export const MAX_REQUEST_BYTES: i32 = 1048576;
export const MAX_FAILURE_BYTES: i32 = 16384;
export const MAX_PAGE_ENTRIES: i32 = 1000;
export const MAX_KEY_BYTES: i32 = 512;

// What the host allows unless the operator changed it.
export const DEFAULT_OUTPUT_BYTES: i32 = 65536;
export const DEFAULT_LOG_BYTES: i32 = 65536;
export const DEFAULT_LOG_LINES: i32 = 1000;
export const DEFAULT_CALLS: i32 = 10000;
export const DEFAULT_FILE_READ_BYTES: i32 = 1048576;
export const DEFAULT_FILE_TOTAL_BYTES: i32 = 268435456;
export const DEFAULT_HTTP_REQUESTS: i32 = 20;
export const DEFAULT_HTTP_BYTES: i32 = 4194304;
export const DEFAULT_HTTP_TIMEOUT_MILLIS: i32 = 10000;
export const DEFAULT_KV_VALUE_BYTES: i32 = 1048576;
export const DEFAULT_KV_TOTAL_BYTES: i32 = 16777216;
export const DEFAULT_LLM_CALLS: i32 = 8;
export const DEFAULT_LLM_INPUT_TOKENS: i32 = 16000;

export const QUARTERS_PER_TOKEN: i32 = 4;

/** What a code point costs, in quarters of a token. */
export function quarters(point: i32): i32 {
  if (point < 0x3000) return 1;
  if (point <= 0x30ff) return 6;
  if (point < 0x3400) return 1;
  if (point <= 0x4dbf) return 6;
  if (point < 0x4e00) return 1;
  if (point <= 0x9fff) return 6;
  if (point < 0xac00) return 1;
  if (point <= 0xd7af) return 6;
  if (point < 0xff00) return 1;
  if (point <= 0xffef) return 6;
  if (point < 0x10000) return 1;
  if (point <= 0x1ffff) return 8;
  if (point < 0x20000) return 1;
  if (point <= 0x2a6df) return 6;
  if (point < 0x2a6e0) return 1;
  if (point <= 0x2a6ff) return 8;
  if (point < 0x2a700) return 1;
  if (point <= 0x2ebef) return 6;
  if (point < 0x2ebf0) return 1;
  if (point <= 0x10ffff) return 8;
  return 1;
}
