import assert from "node:assert/strict";
import { test } from "node:test";
import { hand } from "./build.js";

const time = await hand("time");
const show = (prompt, now = "2026-03-23T09:00:00Z") => time.ask({ prompt, now }).reply;

test("times are read and written as JavaScript does", () => {
  for (const text of [
    "1970-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "2000-02-29T12:00:00Z", "2024-02-29T23:59:59Z", "1900-03-01T00:00:00Z", "2026-03-23T09:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:58Z", "2100-02-28T00:00:00Z", "0000-01-01T00:00:00Z",
  ]) {
    const date = new Date(text);
    const [shown, seconds, nanoseconds, weekday, next] = show(text).split(" ");
    assert.deepEqual([shown, seconds, nanoseconds, weekday], [text, String(date / 1000), "0", String(date.getUTCDay())]);
    assert.equal(next, new Date(+date + 1000).toISOString().replace(".000", ""));
  }
});

test("offsets and fractions", () => {
  assert.match(show("2026-03-23T10:30:00.5+01:30"), /^2026-03-23T09:00:00Z \d+ 500000000 /);
  assert.match(show("2026-03-22t23:00:00.123456789123-10:00"), /^2026-03-23T09:00:00Z \d+ 123456789 /);
  assert.match(show("0000-01-01T00:00:00+01:00"), /^-0001-12-31T23:00:00Z -/);
});

test("what is no time is none", () => {
  for (const text of [
    "", "2026", "2026-03-23", "2026-03-23T09:00Z", "2026-03-23T09:00:00", "2026-03-23 09:00:00Z", "2026-3-23T09:00:00Z", "2026-13-01T00:00:00Z", "2026-00-01T00:00:00Z", "2026-02-29T00:00:00Z", "2026-04-31T00:00:00Z", "2026-01-00T00:00:00Z", "1900-02-29T00:00:00Z",
    "2026-03-23T24:00:00Z", "2026-03-23T09:60:00Z", "2026-03-23T09:00:60Z", "2026-03-23T09:00:00.Z", "2026-03-23T09:00:00.5", "2026-03-23T09:00:00Zx", "2026-03-23T09:00:00+1:00", "2026-03-23T09:00:00+0100", "2026-03-23T09:00:00+24:00", "2026-03-23T09:00:00+01:60", "+026-03-23T09:00:00Z", "2026/03/23T09:00:00Z",
  ]) {
    assert.equal(show(text), "none", text);
  }
});

test("times have an order", () => {
  const order = (text) => show(text, "2026-03-23T09:00:00.5Z").split(" ").at(-1);
  assert.equal(order("2026-03-23T09:00:00.4Z"), "<≤≠");
  assert.equal(order("2026-03-23T10:00:00.5+01:00"), "≤=≥");
  assert.equal(order("2026-03-23T09:00:01Z"), "≥>≠");
});
