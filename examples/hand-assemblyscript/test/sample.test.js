import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "@gloveboxhq/hand/testing";

const hand = await load(new URL("../build/hand.wasm", import.meta.url));

test("it does what its prompt says", () => {
  const world = {
    files: { docs: { "a.txt": "Héllo", "sub/b.txt": "b", "bytes.bin": Uint8Array.of(0xff) } },
    http: (request) => ({ status: 201, header: { "x-answer": request.method }, body: request.body.length > 0 ? request.body : "hi" }),
    kv: new Map([["b", "1"]]),
    llm: (prompt) => ({ text: `${prompt.prompt}, ${prompt.max_output_tokens}`, input_tokens: 3, output_tokens: 4 }),
  };
  for (const [prompt, reply] of [
    ["", ""],
    ["say hello\nsay  there\nsay", "hello\n there\n"],
    ["tokens 数据库\ncut 2 数据库\ncut 4 ab😀😀c", "5\n数\nab😀"],
    ["list\nlist a.txt\nlist sub", "file 6 2026-03-22T09:00:00Z a.txt\nfile 1 2026-03-22T09:00:00Z bytes.bin\ndir 0 2026-03-22T09:00:00Z sub\nfile 6 2026-03-22T09:00:00Z a.txt\nfile 1 2026-03-22T09:00:00Z b.txt"],
    ["read a.txt\nread bytes.bin\nsize bytes.bin\nread ../a\nread sub\nread c", "Héllo\nerror: not text\n1\nerror: denied\nerror: denied\nerror: not_found"],
    ["get http://sample.example\npost http://sample.example a b", "201 GET hi\n201 POST a b"],
    ["kv-set a \nkv-get a\nkv-list\nkv-list c\nkv-delete b\nkv-get b\nkv-set a", "ok\n\na\nb\nok\nerror: not_found\nerror: bad arguments for kv-set"],
    ["ask what?\nask", "what?, 64 (3+4 tokens)\nerror: bad_request"],
    ["hum", "error: unknown command hum"],
    ["log loud x\ncut x y\ncut 1234567890 y\nget\npost\nkv-get\nkv-delete", ["log", "cut", "cut", "get", "post", "kv-get", "kv-delete"].map((w) => "error: bad arguments for " + w).join("\n")],
  ]) {
    assert.deepEqual([prompt, hand.ask({ prompt }, world).reply], [prompt, reply]);
  }
});

test("it shows its configuration", () => {
  const config = { greeting: "hi", loud: true, ratio: -0.0625, times: -3, words: ["a", "b"] };
  assert.equal(hand.ask({ prompt: "config", config }).reply, "greeting=hi\nloud=true\nratio=-63/1000\ntimes=-3\nwords=a,b");
  assert.equal(hand.ask({ prompt: "config" }).reply, "");
});

test("it logs and fails", () => {
  const answer = hand.ask({ prompt: "log warn careful\nfail with care\nlog info never" });
  assert.deepEqual([answer.kind, answer.failure, answer.log], ["hand_failed", "with care", [{ level: "warn", text: "careful" }]]);
});

test("it keeps to max_output_tokens", () => {
  assert.equal(hand.ask({ prompt: "say abcdefghij", max_output_tokens: 2 }).reply, "abcdefgh");
});
