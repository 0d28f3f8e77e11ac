import assert from "node:assert/strict";
import { test } from "node:test";
import { hand } from "./build.js";

const json = await hand("json");
const read = (prompt) => json.ask({ prompt, max_output_tokens: 100_000 }).reply;

test("what JSON.parse takes comes back", () => {
  for (const value of [
    null, true, false, "", "a", [], {}, [[], {}], [1, "2", [null]], { a: 1, b: { "": "", é: "世" } },
    "\"\\/\b\f\n\r\t\u0000\u001f\u007f\u2028", "😀 é 世", { "q\"": [true], "q\\": [] },
  ]) {
    assert.equal(read(JSON.stringify(value)), JSON.stringify(value));
    assert.deepEqual(JSON.parse(read(JSON.stringify(value, null, "\t\r\n "))), value);
  }
  assert.equal(read('"\\u0041\\u00e9\\uD83d\\ude00\\/\\""'), '"Aé😀/\\""');
  assert.equal(read('{"a":1,"\\u0061":2}'), '{"a":2}');
});

test("half a surrogate pair is replaced", () => {
  assert.equal(read('"\\ud83d"'), '"\ufffd"');
  assert.equal(read('"\\ude00x"'), '"\ufffdx"');
  assert.equal(read('"\\ud83d\\u0041"'), '"\ufffdA"');
  assert.equal(read('"\\ud83d\\ud83d\\ude00"'), '"\ufffd😀"');
  assert.equal(read('"\\ud83d\\n"'), '"\ufffd\\n"');
});

test("what JSON.parse refuses is refused", () => {
  for (const text of [
    "", " ", "nul", "truee", "tru", "01", "-", "+1", "1.", ".5", "1e", "1e+", "0x1", "NaN", "1 2", "[", "]", "[1", "[1,", "[1,]", "[,1]", "[1 2]", "{", "{}}", "{a:1}", '{"a"}',
    '{"a":}', '{"a":1,}', '{"a":1 "b":2}', '{,}', "[}", '{"a":1]', '"', '"a', '"\\"', '"\\x"', '"\\u12"', '"\\u12g4"', '"\n"', '"\u0000"', "'a'", "[1]x", "\ufeff1", "// a\n1",
  ]) {
    assert.throws(() => JSON.parse(text));
    assert.match(read(text), /^parse: byte \d+: .* was expected: not json$/, text);
  }
});

test("it says where", () => {
  assert.equal(read('{"a": [1, é]}'), "parse: byte 10: a value was expected: not json");
  assert.equal(read("[1] 2"), "parse: byte 4: the end was expected: not json");
});

test("depth is bounded", () => {
  assert.equal(read("[".repeat(128) + "]".repeat(128)), "[".repeat(128) + "]".repeat(128));
  assert.match(read("[".repeat(129) + "]".repeat(129)), /byte 128: a depth of at most 128 was expected/);
  assert.match(read('{"a":'.repeat(3000)), /a depth of at most 128/);
});

test("numbers are exact", () => {
  const bits = (number) => new BigUint64Array(new Float64Array([number]).buffer)[0].toString(16);
  for (const [text, integer, isInteger] of [
    ["0", "0", true], ["-0", "0", true], ["7", "7", true], ["-42", "-42", true], ["9007199254740993", "9007199254740993", true], ["3.0", "3", true], ["1e3", "1000", true],
    ["0.1", "0", false], ["-2.5", "-2", false], ["1.0005", "1", false], ["123456.789", "123456", false], ["4.35", "4", false], ["1e22", "9223372036854775807", false],
    ["1E-7", "0", false], ["0.000001", "0", false], ["-1e300", "-9223372036854775808", false], ["5e-324", "0", false], ["1e400", "9223372036854775807", false],
    ["179769313486231570000e289", "9223372036854775807", false], ["0.0000000000000000000000001", "0", false], ["100000000000000000000", "9223372036854775807", false],
    ["9223372036854775807", "9223372036854775807", true], ["-9223372036854775808", "-9223372036854775808", true], ["9223372036854775808", "9223372036854775807", false],
    ["-9223372036854775809", "-9223372036854775808", true], ["9223372036854774784", "9223372036854774784", true], ["0e99999", "0", true], ["1e-99999", "0", null],
  ]) {
    const [shown, i, whole, b] = read(text).split(" ");
    assert.deepEqual([shown, b], [text, bits(Number(text))], text);
    if (integer !== null) assert.equal(i, integer, text);
    if (isInteger !== null) assert.equal(whole, String(isInteger), text);
  }
});
