// Requests to the hosts that the operator granted to a hand. A module that uses something of
// this asks for the capability "http"; the manifest must ask for it too, with the hosts.

import * as host from "./host";
import { quote, Reader, Type } from "./json";
import { Failure, Result } from "./result";
import { decodeText, encodeText } from "./text";

// @ts-ignore: decorator
@external("glovebox_http", "fetch")
declare function host_fetch(ptr: usize, len: i32): i32;

/** A GET of a URL. */
export function get(url: string): Result<Response> {
  return new Request("GET", url).fetch();
}

/** One field of a header. */
export class Field {
  constructor(
    readonly name: string,
    readonly value: string,
  ) {}
}

/**
 * One exchange, as in
 *
 *     new http.Request("POST", url).header("Content-Type", "text/plain").text("hello").timeout(2000).fetch()
 */
export class Request {
  private fields: string[] = [];
  private content: Uint8Array | null = null;
  private millis: i32 = 0;

  constructor(
    /** In upper case. */
    readonly method: string,
    /** Begins with https:// or http://, without user name and fragment. */
    readonly url: string,
  ) {}

  /** Adds a field. The host sets those about the connection, the encoding and the secrets; a hand may not. */
  header(name: string, value: string): Request {
    this.fields.push("[" + quote(name) + "," + quote(value) + "]");
    return this;
  }

  body(bytes: Uint8Array): Request {
    this.content = bytes;
    return this;
  }

  /** Makes a text in UTF-8 the body. */
  text(text: string): Request {
    return this.body(encodeText(text));
  }

  /** Bounds the exchange, redirects included; 0 means the host's limit, which also is its cap. */
  timeout(millis: i32): Request {
    this.millis = millis;
    return this;
  }

  /**
   * Makes the exchange; the host follows redirects. A status that tells of a failure is a
   * response. Failures are `denied` and `not_granted` where the request is not allowed,
   * `bad_request` for one that is not well-formed, `timeout`, `quota_exceeded`, `too_large`,
   * and `unavailable` when the server is not there.
   */
  fetch(): Result<Response> {
    const head = '{"method":' + quote(this.method) + ',"url":' + quote(this.url) +
      ',"header":[' + this.fields.join(",") + '],"timeout_ms":' + this.millis.toString() + "}";
    const content = this.content;
    const request = host.encodeWithBody(head, content ? content : new Uint8Array(0));
    const operation = "http fetch " + this.url;
    const size = host_fetch(changetype<usize>(request), request.byteLength);
    if (size < 0) return Result.failed<Response>(Failure.ofCode(operation, size));
    return parseResponse(operation, host.result(size));
  }
}

/** The answer, after redirects. */
export class Response {
  status: i32 = 0;
  /** The last one that was asked. */
  url: string = "";
  /** In their order; a name may come more than once. */
  headers: Field[] = [];
  /** Decoded. Secrets of the operator are redacted in it. */
  body: Uint8Array = new Uint8Array(0);
  /** Says that the body is only the beginning: it was longer than the host's limit (4 MiB unless the operator changed it). */
  truncated: bool = false;

  /** The value of the first field of a name, in letters of any case, or null. */
  header(name: string): string | null {
    const wanted = name.toLowerCase();
    for (let i = 0; i < this.headers.length; i++) {
      if (this.headers[i].name.toLowerCase() == wanted) return this.headers[i].value;
    }
    return null;
  }

  /** The body as text; one that is not UTF-8 gives `not text`. */
  text(): Result<string> {
    const text = decodeText(this.body);
    return text === null ? Result.failed<string>(new Failure("http fetch " + this.url, "not text")) : Result.of<string>(text);
  }
}

const LF: u8 = 0x0a;

/** Reads JSON, one LF and the body. */
function parseResponse(operation: string, result: Uint8Array): Result<Response> {
  const line = result.indexOf(LF);
  const reader = new Reader(result.subarray(0, line < 0 ? result.length : line));
  const response = new Response();
  reader.object();
  while (reader.nextKey()) {
    if (reader.keyIs("status")) response.status = <i32>reader.integer();
    else if (reader.keyIs("url")) response.url = reader.string();
    else if (reader.keyIs("truncated")) response.truncated = reader.boolean();
    else if (reader.keyIs("header") && reader.next == Type.Array) {
      reader.array();
      while (reader.nextItem()) {
        const pair = reader.value();
        response.headers.push(new Field(pair.at(0).string, pair.at(1).string));
      }
    } else reader.skip();
  }
  const failure = reader.finish(operation);
  if (failure) return Result.failed<Response>(failure);
  if (line >= 0) response.body = result.subarray(line + 1);
  return Result.of(response);
}
