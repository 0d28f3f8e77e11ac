import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { Hand, Refused } from "../testing/index.js";
import { modules } from "../testing/abi.js";
import { build, hand } from "./build.js";

const everything = await hand("everything");
const ask = (prompt, world, query) => everything.ask({ prompt, ...query }, world);

const noise = (length) => Uint8Array.from({ length }, (_, i) => (i * 7919) >> 3);
const checksum = (bytes) => bytes.reduce((sum, byte) => (Math.imul(sum, 31) + byte) >>> 0, 0);

test("only what is used is imported", async () => {
  const module = await readFile(await build("smallest"));
  const imports = WebAssembly.Module.imports(new WebAssembly.Module(module));
  assert.deepEqual([...new Set(imports.map((i) => i.module))], [modules.core]);
  assert.deepEqual(everything.capabilities, ["http", "files", "kv"]);
  for (const encoding of ["utf8", "utf16le"]) assert.ok(!module.includes(Buffer.from(import.meta.dirname, encoding)));
});

test("with a collector it answers the same", async () => {
  const collected = await hand("everything", { flags: ["--runtime", "incremental"], output: "collected" });
  const world = () => ({ files: { docs: { big: noise(3_000_000), small: "12345" } } });
  for (const prompt of ["big", "limit", "stat", "utf-8", "x"]) {
    assert.deepEqual([prompt, collected.ask({ prompt }, world()).reply], [prompt, ask(prompt, world()).reply]);
  }
});

test("without an answer registered it says so", async () => {
  const answer = (await hand("silent")).ask();
  assert.deepEqual([answer.kind, answer.failure], ["hand_failed", "no handler: call register(answer) at the top level of assembly/index.ts"]);
});

test("what ends the module says where", () => {
  const aborted = ask("abort");
  assert.equal(aborted.kind, "trap");
  assert.match(aborted.failure, /^test\/hands\/everything\.ts:6:\d+: on purpose: é$/);
  assert.match(ask("bounds").failure, /^~lib\/.*\.ts:\d+:\d+: Index out of range$/);
  assert.match(ask("unwrap").failure, /: files read docs\/nowhere: not_granted$/);
});

test("fail fails", () => {
  const answer = ask("fail");
  assert.deepEqual([answer.kind, answer.failure, answer.reply], ["hand_failed", "for a reason", ""]);
});

test("console, trace and log write to the log", () => {
  assert.deepEqual(ask("console").log.map(({ level, text }) => `${level} ${text}`), ["info a", "warn b", "error c", "debug d", "error e", "error f", "debug g 1.0 2.5"]);
});

test("random numbers are the host's", () => {
  assert.equal(ask("random").reply, "false");
});

test("half a surrogate pair is no text", () => {
  const world = { kv: new Map() };
  assert.equal(ask("surrogates", world).reply, "a\ufffdb 1 bad_request 5bad_request");
  assert.equal(world.kv.size, 0);
});

test("bytes are text only where they are UTF-8", () => {
  assert.equal(ask("utf-8").reply, "6 11");
  for (const bytes of [[0x80], [0xc1, 0x81], [0xc3], [0xc3, 0x28], [0xe0, 0x9f, 0xbf], [0xed, 0xa0, 0x80], [0xef, 0xbf], [0xf0, 0x8f, 0xbf, 0xbf], [0xf4, 0x90, 0x80, 0x80], [0xf5, 0x80, 0x80, 0x80], [0x61, 0xe4, 0xb8, 0x61]]) {
    const answer = ask("not utf-8", { files: { docs: { bytes: Uint8Array.from(bytes) } } });
    assert.deepEqual([bytes, answer.reply], [bytes, "files read docs/bytes: not text"]);
  }
});

test("JSON is UTF-8", () => {
  const answer = ask("json", { files: { docs: { bytes: Uint8Array.of(0x22, 0xff, 0x22) } } });
  assert.equal(answer.reply, "parse: byte 2: UTF-8 was expected: not json");
});

test("a surrogate pair is counted as one", () => {
  assert.equal(ask("tokens").reply, "2😀😀");
});

test("a file is read whole", () => {
  for (const length of [0, 1, 524_287, 524_288, 524_289, 3_000_000]) {
    const big = noise(length);
    assert.equal(ask("big", { files: { docs: { big } } }).reply, `${length} ${checksum(big)}`);
  }
  assert.equal(ask("limit", { files: { docs: { big: noise(2_000_000), small: "12345" } } }).reply, "too_large too_large 5");
});

test("a folder is listed whole, in little memory", () => {
  const docs = {};
  for (let i = 0; i < 20_000; i++) docs[`many/${String(i).padStart(5, "0")}`] = "";
  const answer = ask("many", { files: { docs } });
  assert.deepEqual([answer.reply, answer.calls], ["20000 19999 false", 20]);
  assert.ok(answer.memoryBytes <= 8 << 20, `${answer.memoryBytes} bytes of memory`);
  assert.equal(ask("page", { files: { docs } }).reply, "200002true");
});

// At shrink levels above 0 the standard library's join adds one string after the other.
test("texts are joined in little memory", () => {
  const answer = ask("join");
  assert.equal(answer.reply.length, 20_000);
  assert.ok(answer.memoryBytes <= 2 << 20, `${answer.memoryBytes} bytes of memory`);
});

test("a path is described", () => {
  const docs = { small: { data: "12345", mtime: new Date("2026-01-02T03:04:05.678Z") } };
  assert.equal(ask("stat", { files: { docs } }).reply, "small file 5 truefalse 2026-01-02T03:04:05Z");
});

test("keys are listed whole", () => {
  const kv = new Map();
  for (let i = 0; i < 2500; i++) kv.set(`k${String(i).padStart(5, "0")}`, "");
  assert.equal(ask("keys", { kv }).reply, "2500k00002bad_request");
});

test("a request is the host's as it was meant", () => {
  const requests = [];
  const answer = ask("fetch", {
    http: (request) => {
      requests.push(request);
      return { status: 418, url: "https://c.example/", header: [["X-Other", "1"], ["X-Answer", "é\"\n"], ["x-answer", "2"]], body: "{\n\n}", truncated: true };
    },
  });
  assert.deepEqual(requests, [{ method: "PUT", url: "https://a.example/é", header: [["A", '"q"\n'], ["B", "2"]], timeout_ms: 1500, body: Buffer.from("{\n}") }].map((r) => ({ ...r, body: new Uint8Array(r.body) })));
  assert.equal(answer.reply, '418 https://c.example/ 3 é"\n {\n\n} truetrue');
});

test("a refusal has its kind", () => {
  const http = ({ url }) => {
    throw new Refused(url.startsWith("https://b.") ? "timeout" : "denied");
  };
  assert.equal(ask("refused", { http }).reply, "http fetch https://a.example/: denied true");
});

test("config has the manifest's types", () => {
  assert.match(ask("config", {}, { config: { ratio: 0.5 } }).failure, /config ratio is not a string: ask for it as the type that the manifest gives it$/);
  assert.equal(ask("defaults").reply, "A70.5trueE");
  assert.equal(ask("integer", {}, { config: { n: 3 } }).reply, "3 3.0");
  assert.match(ask("fraction", {}, { config: { n: 3.5 } }).failure, /config n is not an integer/);
});

test("fields of a query that are not known are passed over", () => {
  const unknown = { deep: [[{ a: [null, true, -1.5e3, "\\"] }]], "prompt ": "no" };
  assert.equal(ask("x", {}, { unknown }).reply, "x");
});

test("a query that is none is refused", () => {
  assert.match(ask("x", {}, { now: "yesterday" }).failure, /^read query: now is no time: yesterday$/);
  assert.match(ask("x", {}, { timezone: 1 }).failure, /^read query: byte \d+: a string was expected: not json$/);
});

test("no hand is made of a module with other imports", () => {
  // (module (import "env" "seed" (func)))
  const bytes = Uint8Array.of(0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, 1, 4, 1, 0x60, 0, 0, 2, 12, 1, 3, 0x65, 0x6e, 0x76, 4, 0x73, 0x65, 0x65, 0x64, 0, 0);
  assert.throws(() => new Hand(bytes), /it imports env\.seed/);
});

test("a hand warms up, and answers without", async () => {
  const warm = await hand("warm");
  assert.equal(warm.ask({ prompt: "123" }).reply, "9 true");
  assert.equal(warm.ask({ prompt: "123" }, {}, { warm: false }).reply, "9 false");
});

for (const [name, message] of [
  ["warm-calls", "glovebox_warm_v1: it calls glovebox.log, and there is no query"],
  ["warm-throws", "glovebox_warm_v1: test/hands/warm-throws.ts:4:3: no table"],
]) {
  test(`a test sees how ${name} ends, a query without does not`, async () => {
    const warm = await hand(name);
    assert.throws(() => warm.ask({ prompt: "x" }), { message });
    assert.equal(warm.ask({ prompt: "x" }, {}, { warm: false }).reply, "x");
  });
}
