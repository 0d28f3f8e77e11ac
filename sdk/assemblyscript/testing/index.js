// A small host for the tests of a hand, which run in node: it asks a module one query in a
// world of plain values, and answers calls as abi/ABI.md says. It is no sandbox.

import { readFile } from "node:fs/promises";
import { bounds, codes, defaults, exportQuery, exportWarm, levels, modules } from "./abi.js";

const encoder = new TextEncoder();
const bytesOf = (data) => (typeof data === "string" ? encoder.encode(data) : data);
const byBytes = (a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b));
/** A time as the host writes it. */
const timeOf = (time) => (time instanceof Date ? time.toISOString().replace(".000Z", "Z") : time);

/** What a part of a world throws for a call to fail with a kind, such as "timeout". */
export class Refused extends Error {
  constructor(kind) {
    if (!(kind in codes)) throw new TypeError(`no kind ${kind}: it is one of ${Object.keys(codes).join(", ")}`);
    super(kind);
    this.kind = kind;
  }
}

/** Reads a module from a file. */
export async function load(path) {
  return new Hand(await readFile(path));
}

export class Hand {
  #module;

  /** @param {Uint8Array} bytes the module */
  constructor(bytes) {
    this.#module = new WebAssembly.Module(bytes);
    const known = [...Object.values(modules), "wasi_snapshot_preview1"];
    for (const { module, name } of WebAssembly.Module.imports(this.#module)) {
      if (!known.includes(module)) throw new Error(`it imports ${module}.${name}, with which no host admits it`);
    }
  }

  /** The capabilities that the module asks for by importing their modules. */
  get capabilities() {
    const imported = new Set(WebAssembly.Module.imports(this.#module).map((i) => i.module));
    return Object.keys(modules).filter((name) => name !== "core" && imported.has(modules[name]));
  }

  /** Asks one query in an instance of its own; index.d.ts tells what both are made of. */
  ask(query = {}, world = {}, { warm = true } = {}) {
    return new Call(this.#module, query, world).run(warm);
  }
}

const standardQuery = {
  prompt: "",
  from: "2026-03-22T09:00:00Z",
  to: "2026-03-23T09:00:00Z",
  now: "2026-03-23T09:00:00Z",
  timezone: "UTC",
  max_output_tokens: 2000,
  subject: "test",
};

/** One query: what the host keeps while it runs. */
class Call {
  #module;
  #world;
  #query;
  #memory;
  #maxOutputTokens;
  #result = new Uint8Array(0);
  #reply = [];
  #replyBytes = 0;
  #failure = null;
  #log = [];
  #calls = 0;
  #requests = 0;
  #completions = 0;
  #warming = false;

  constructor(module, query, world) {
    const whole = { ...standardQuery, ...query };
    for (const field of ["from", "to", "now"]) whole[field] = timeOf(whole[field]);
    this.#module = module;
    this.#query = encoder.encode(JSON.stringify(whole));
    this.#maxOutputTokens = whole.max_output_tokens;
    this.#world = world;
  }

  run(warm) {
    const instance = new WebAssembly.Instance(this.#module, this.#imports());
    this.#memory = instance.exports.memory;
    if (typeof instance.exports[exportQuery] !== "function") throw new Error(`it does not export ${exportQuery}`);
    let kind = null;
    try {
      instance.exports._initialize?.();
      if (warm) this.#warm(instance.exports[exportWarm]);
      if (instance.exports[exportQuery]() !== 0 || this.#failure !== null) kind = "hand_failed";
    } catch (error) {
      if (!(error instanceof WebAssembly.RuntimeError || error instanceof RangeError)) throw error;
      kind = "trap";
      this.#failure ??= error.message;
    }
    return {
      reply: kind === null ? new TextDecoder("utf-8", { ignoreBOM: true }).decode(Buffer.concat(this.#reply)) : "",
      kind,
      failure: this.#failure,
      log: this.#log,
      calls: this.#calls,
      memoryBytes: this.#memory.buffer.byteLength,
    };
  }

  /** A host would go on without what failed here; a test is to see it. */
  #warm(warm) {
    this.#warming = true;
    try {
      warm?.();
    } catch (error) {
      throw new Error(`${exportWarm}: ${error.message}`, { cause: error });
    }
    this.#warming = false;
  }

  #imports() {
    const imports = {
      [modules.core]: {
        query_size: () => this.#query.length,
        query_read: (ptr, cap) => this.#copyOut(this.#query, ptr, cap),
        reply: (ptr, length) => this.#addReply(ptr, length),
        fail: (ptr, length) => {
          const text = this.#view(ptr, length);
          this.#failure = text ? new TextDecoder().decode(text.subarray(0, bounds.max_failure_bytes)) : "";
        },
        log: (level, ptr, length) => {
          const text = this.#view(ptr, length);
          if (!text) return;
          for (const line of new TextDecoder().decode(text).split("\n")) this.#log.push({ level: levels[level] ?? "info", text: line });
        },
        result_read: (ptr, cap) => this.#copyOut(this.#result, ptr, cap),
      },
      [modules.files]: {
        list: this.#capability((request) => json(listFiles(this.#world.files, request))),
        read: this.#capability((request) => readFileOf(this.#world.files, request)),
      },
      [modules.http]: { fetch: this.#capability((request, body) => this.#fetch(request, body), defaults.default_http_bytes) },
      [modules.kv]: {
        get: this.#capability((request) => bytesOf(storeOf(this.#world, request).get(request.key) ?? refuse("not_found"))),
        set: this.#capability((request, value) => keep(storeOf(this.#world, request), request.key, value), defaults.default_kv_value_bytes),
        delete: this.#capability((request) => void storeOf(this.#world, request).delete(request.key)),
        list: this.#capability((request) => json(listKeys(this.#world.kv ?? refuse("not_granted"), request))),
      },
      [modules.llm]: { complete: this.#capability((request) => this.#complete(request)) },
      wasi_snapshot_preview1: {
        random_get: (ptr, length) => {
          const range = this.#view(ptr, length);
          if (range) crypto.getRandomValues(range);
          return range ? 0 : 21;
        },
      },
    };
    for (const module of Object.values(modules)) {
      for (const [name, call] of Object.entries(imports[module])) {
        imports[module][name] = (...args) => {
          if (this.#warming) throw new Error(name === "fail" ? new TextDecoder().decode(this.#view(...args)) : `it calls ${module}.${name}, and there is no query`);
          return call(...args);
        };
      }
    }
    return imports;
  }

  #view(ptr, length) {
    // WebAssembly gives signed numbers.
    [ptr, length] = [ptr >>> 0, length >>> 0];
    return ptr + length <= this.#memory.buffer.byteLength ? new Uint8Array(this.#memory.buffer, ptr, length) : null;
  }

  #copyOut(from, ptr, cap) {
    const to = this.#view(ptr, cap);
    if (!to) return codes.bad_pointer;
    to.set(from.subarray(0, to.length));
    return Math.min(to.length, from.length);
  }

  #addReply(ptr, length) {
    const text = this.#view(ptr, length);
    if (!text) return codes.bad_pointer;
    const kept = text.slice(0, defaults.default_output_bytes - this.#replyBytes);
    this.#reply.push(kept);
    this.#replyBytes += kept.length;
    return kept.length < text.length ? codes.too_large : 0;
  }

  /** A host function that takes a request in JSON and, if bodyBytes allows some, raw bytes behind it. */
  #capability(answer, bodyBytes = null) {
    return (ptr, length) => {
      this.#result = new Uint8Array(0);
      if (this.#calls >= defaults.default_calls) return codes.too_many_calls;
      this.#calls++;
      const raw = this.#view(ptr, length);
      if (!raw) return codes.bad_pointer;
      const line = bodyBytes === null ? -1 : raw.indexOf(0x0a);
      const head = line < 0 ? raw : raw.subarray(0, line);
      const body = line < 0 ? new Uint8Array(0) : raw.slice(line + 1);
      if (head.length > bounds.max_request_bytes || body.length > bodyBytes) return codes.too_large;
      let request;
      try {
        request = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(head));
      } catch {
        return codes.bad_request;
      }
      try {
        this.#result = answer(request, body) ?? new Uint8Array(0);
      } catch (error) {
        if (error instanceof Refused) return codes[error.kind];
        throw error;
      }
      return this.#result.length;
    };
  }

  #fetch(request, body) {
    const answer = this.#world.http ?? refuse("not_granted");
    if (!(request.timeout_ms >= 0)) refuse("bad_request");
    if (this.#requests++ >= defaults.default_http_requests) refuse("quota_exceeded");
    const response = answer({ ...request, body });
    const whole = bytesOf(response.body ?? "");
    const kept = whole.subarray(0, defaults.default_http_bytes);
    const head = {
      status: response.status ?? 200,
      url: response.url ?? request.url,
      header: Array.isArray(response.header) ? response.header : Object.entries(response.header ?? {}),
      truncated: response.truncated ?? kept.length < whole.length,
    };
    return Buffer.concat([json(head), encoder.encode("\n"), kept]);
  }

  #complete(request) {
    const answer = this.#world.llm ?? refuse("not_granted");
    if (request.max_output_tokens < 0 || request.prompt.trim() === "") refuse("bad_request");
    if (this.#completions++ >= defaults.default_llm_calls) refuse("quota_exceeded");
    const most = request.max_output_tokens || this.#maxOutputTokens;
    const said = answer({ ...request, max_output_tokens: Math.min(most, this.#maxOutputTokens) });
    return json(typeof said === "string" ? { text: said, input_tokens: 0, output_tokens: 0 } : said);
  }
}

function refuse(kind) {
  throw new Refused(kind);
}

function json(value) {
  return encoder.encode(JSON.stringify(value));
}

// Files. A root is an object from paths to files; directories are where files are below them.

function rootOf(files, { root, path }) {
  if (!files || !Object.hasOwn(files, root)) refuse("not_granted");
  const parts = path === "" || path === "." ? [] : path.split("/");
  if (parts.some((part) => part === "" || part === "." || part === "..") || /[\0\\]/.test(path)) refuse("denied");
  return { tree: files[root], path: parts.join("/") };
}

function fileOf(file) {
  const plain = typeof file === "string" || file instanceof Uint8Array;
  return { data: bytesOf(plain ? file : file.data), mtime: timeOf(plain ? standardQuery.from : file.mtime ?? standardQuery.from) };
}

function entryOf(name, file) {
  if (!file) return { name, type: "dir", size: 0, mtime: standardQuery.from };
  const { data, mtime } = fileOf(file);
  return { name, type: "file", size: data.length, mtime };
}

function listFiles(files, request) {
  const { tree, path } = rootOf(files, request);
  const limit = pageLimit(request.limit);
  const self = path.slice(path.lastIndexOf("/") + 1) || ".";
  if (path !== "" && Object.hasOwn(tree, path)) return { self: entryOf(self, tree[path]), entries: [], more: false };
  const prefix = path === "" ? "" : path + "/";
  const names = new Map();
  for (const [key, file] of Object.entries(tree)) {
    if (!key.startsWith(prefix)) continue;
    const [name, ...below] = key.slice(prefix.length).split("/");
    names.set(name, below.length > 0 ? null : file);
  }
  if (names.size === 0 && path !== "") refuse("not_found");
  const after = request.after ?? "";
  const rest = [...names.keys()].sort(byBytes).filter((name) => byBytes(name, after) > 0);
  return {
    self: entryOf(self, null),
    entries: rest.slice(0, limit).map((name) => entryOf(name, names.get(name))),
    more: rest.length > limit,
  };
}

function readFileOf(files, request) {
  const { tree, path } = rootOf(files, request);
  if (!(request.offset >= 0 && request.length >= 0)) refuse("bad_request");
  if (request.length > defaults.default_file_read_bytes) refuse("too_large");
  if (path !== "" && Object.hasOwn(tree, path)) return fileOf(tree[path]).data.slice(request.offset, request.offset + request.length);
  const isDirectory = path === "" || Object.keys(tree).some((key) => key.startsWith(path + "/"));
  return refuse(isDirectory ? "denied" : "not_found");
}

function pageLimit(asked = 0) {
  if (asked < 0 || asked > bounds.max_page_entries) refuse("bad_request");
  return asked || bounds.max_page_entries;
}

// Values.

function storeOf(world, { key }) {
  const store = world.kv ?? refuse("not_granted");
  if (key === "" || encoder.encode(key).length > bounds.max_key_bytes) refuse("bad_request");
  return store;
}

function keep(store, key, value) {
  let total = value.length + encoder.encode(key).length;
  for (const [k, v] of store) if (k !== key) total += encoder.encode(k).length + bytesOf(v).length;
  if (total > defaults.default_kv_total_bytes) refuse("quota_exceeded");
  store.set(key, value);
}

function listKeys(store, request) {
  const limit = pageLimit(request.limit);
  const { prefix = "", after = "" } = request;
  const keys = [...store.keys()].filter((key) => key.startsWith(prefix) && byBytes(key, after) > 0).sort(byBytes);
  return { keys: keys.slice(0, limit), more: keys.length > limit };
}
