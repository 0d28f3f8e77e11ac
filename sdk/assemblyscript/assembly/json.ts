// JSON after RFC 8259. The SDK reads what the host says with Reader, which keeps nothing
// but what it is asked for; parse makes a tree of anything, for answers of HTTP APIs.

import { decodeText, encodeText, isUTF8 } from "./text";
import { Failure, Result } from "./result";

/** How deep arrays and objects may be nested. What is deeper is not read. */
export const MAX_DEPTH: i32 = 128;

export enum Type {
  Null,
  Boolean,
  Number,
  String,
  Array,
  Object,
}

/** Reads a whole text in UTF-8. */
export function parse(bytes: Uint8Array): Result<Value> {
  const reader = new Reader(bytes);
  const value = reader.value();
  const failure = reader.finish("parse");
  return failure ? Result.failed<Value>(failure) : Result.of(value);
}

export function parseText(text: string): Result<Value> {
  return parse(encodeText(text));
}

/** One value. What it does not have reads as nothing: null, "", 0, false, or no items. */
export class Value {
  private text: string = "";
  private items: Value[] | null = null;
  private members: Map<string, Value> | null = null;

  private constructor(readonly type: Type) {}

  static none(): Value {
    return new Value(Type.Null);
  }

  static boolean(value: bool): Value {
    const v = new Value(Type.Boolean);
    v.text = value ? "true" : "false";
    return v;
  }

  /** A number as it is written; value must be finite. */
  static number(value: f64): Value {
    if (!isFinite(value)) throw new Error("JSON has no number " + value.toString());
    const whole = Math.trunc(value) == value && abs(value) < 9007199254740992.0;
    return Value.literal(whole ? (<i64>value).toString() : value.toString());
  }

  static integer(value: i64): Value {
    return Value.literal(value.toString());
  }

  static string(value: string): Value {
    const v = new Value(Type.String);
    v.text = value;
    return v;
  }

  static array(items: Value[]): Value {
    const v = new Value(Type.Array);
    v.items = items;
    return v;
  }

  static object(members: Map<string, Value> = new Map<string, Value>()): Value {
    const v = new Value(Type.Object);
    v.members = members;
    return v;
  }

  /** A number that is already in the form of JSON. */
  static literal(text: string): Value {
    const v = new Value(Type.Number);
    v.text = text;
    return v;
  }

  get isNull(): bool {
    return this.type == Type.Null;
  }

  get boolean(): bool {
    return this.type == Type.Boolean && this.text == "true";
  }

  get string(): string {
    return this.type == Type.String ? this.text : "";
  }

  get number(): f64 {
    return this.type == Type.Number ? parseNumber(this.text) : 0;
  }

  /** Reports whether it is a number without a fraction that an i64 can hold. */
  get isInteger(): bool {
    if (this.type != Type.Number) return false;
    if (isPlainInteger(this.text)) return true;
    const value = this.number;
    return Math.trunc(value) == value && value >= -9223372036854775808.0 && value < 9223372036854775808.0;
  }

  /** The number without its fraction; numbers outside of an i64 give the nearest. */
  get integer(): i64 {
    if (this.type != Type.Number) return 0;
    if (isPlainInteger(this.text)) return I64.parseInt(this.text, 10);
    const value = this.number;
    if (value >= 9223372036854775808.0) return i64.MAX_VALUE;
    if (value <= -9223372036854775808.0) return i64.MIN_VALUE;
    return <i64>value;
  }

  /** How many items an array or members an object has. */
  get length(): i32 {
    const items = this.items;
    if (items) return items.length;
    const members = this.members;
    return members ? members.size : 0;
  }

  /** The item at a place of an array. */
  at(index: i32): Value {
    const items = this.items;
    return items && index >= 0 && index < items.length ? items[index] : Value.none();
  }

  /** The member of an object. */
  get(key: string): Value {
    const members = this.members;
    return members && members.has(key) ? members.get(key) : Value.none();
  }

  has(key: string): bool {
    const members = this.members;
    return members ? members.has(key) : false;
  }

  /** The keys of an object, in the order of the text. */
  keys(): string[] {
    const members = this.members;
    return members ? members.keys() : [];
  }

  /** Gives an object a member, and returns the object. */
  set(key: string, value: Value): Value {
    const members = this.members;
    if (!members) throw new Error("set needs a JSON object");
    members.set(key, value);
    return this;
  }

  /** The value as JSON on one line. */
  toString(): string {
    const parts: string[] = [];
    this.write(parts, 0);
    return parts.join("");
  }

  private write(parts: string[], depth: i32): void {
    if (depth > MAX_DEPTH) throw new Error("JSON is nested deeper than " + MAX_DEPTH.toString());
    const items = this.items;
    const members = this.members;
    if (items) {
      parts.push("[");
      for (let i = 0; i < items.length; i++) {
        if (i > 0) parts.push(",");
        items[i].write(parts, depth + 1);
      }
      parts.push("]");
    } else if (members) {
      parts.push("{");
      const keys = members.keys();
      for (let i = 0; i < keys.length; i++) {
        if (i > 0) parts.push(",");
        parts.push(quote(keys[i]));
        parts.push(":");
        members.get(keys[i]).write(parts, depth + 1);
      }
      parts.push("}");
    } else if (this.type == Type.String) {
      parts.push(quote(this.text));
    } else {
      parts.push(this.type == Type.Null ? "null" : this.text);
    }
  }
}

const HEX = "0123456789abcdef";

/** A text as a JSON string, with its quotation marks. */
export function quote(text: string): string {
  const parts = ['"'];
  let from = 0;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    if (unit >= 0x20 && unit != QUOTE && unit != BACKSLASH) continue;
    parts.push(text.substring(from, i));
    from = i + 1;
    switch (unit) {
      case QUOTE: parts.push('\\"'); break;
      case BACKSLASH: parts.push("\\\\"); break;
      case 0x08: parts.push("\\b"); break;
      case 0x0c: parts.push("\\f"); break;
      case 0x0a: parts.push("\\n"); break;
      case 0x0d: parts.push("\\r"); break;
      case 0x09: parts.push("\\t"); break;
      default: parts.push("\\u00" + HEX.charAt(unit >> 4) + HEX.charAt(unit & 15));
    }
  }
  parts.push(text.substring(from));
  parts.push('"');
  return parts.join("");
}

const QUOTE: i32 = 0x22;
const BACKSLASH: i32 = 0x5c;
const COMMA: i32 = 0x2c;
const COLON: i32 = 0x3a;
const MINUS: i32 = 0x2d;
const OPEN_ARRAY: i32 = 0x5b;
const CLOSE_ARRAY: i32 = 0x5d;
const OPEN_OBJECT: i32 = 0x7b;
const CLOSE_OBJECT: i32 = 0x7d;
const END: i32 = -1;

/**
 * Reads one value after the other:
 *
 *     reader.object();
 *     while (reader.nextKey()) {
 *       if (reader.keyIs("name")) name = reader.string();
 *       else reader.skip();
 *     }
 *     const failure = reader.finish("read names");
 *
 * What is not of the form asked for ends the reading: from then on everything is empty, all
 * loops end, and finish tells of the first place. Of keys that come twice, both are read.
 */
export class Reader {
  private at: i32 = 0;
  private depth: i32 = 0;
  /** Whether the next item or key is the first of its array or object. */
  private first: bool = false;
  private expected: string | null = null;
  /** The key with its quotation marks, and whether something in it is escaped. */
  private keyFrom: i32 = 0;
  private keyTo: i32 = 0;
  private keyEscaped: bool = false;
  /** Whether something is escaped in the string that skipString last passed over. */
  private escaped: bool = false;
  private start: usize;
  private length: i32;

  /** bytes must not change meanwhile; they are kept, so that no collector takes what start points to. */
  constructor(private bytes: Uint8Array) {
    this.start = bytes.dataStart;
    this.length = bytes.length;
  }

  /** What stands next; Null where nothing can be read. */
  get next(): Type {
    switch (this.peek()) {
      case QUOTE: return Type.String;
      case OPEN_ARRAY: return Type.Array;
      case OPEN_OBJECT: return Type.Object;
      case 0x74: case 0x66: return Type.Boolean;
      case 0x6e: case END: return Type.Null;
    }
    return Type.Number;
  }

  object(): void {
    this.open(OPEN_OBJECT, "an object");
  }

  array(): void {
    this.open(OPEN_ARRAY, "an array");
  }

  /** Steps to the next member, before its value; false at the end of the object. */
  nextKey(): bool {
    if (!this.nextMember(CLOSE_OBJECT)) return false;
    if (this.peek() != QUOTE) return this.fail("a key");
    this.keyFrom = this.at;
    this.skipString();
    this.keyTo = this.at;
    this.keyEscaped = this.escaped;
    if (this.peek() != COLON) return this.fail("a colon");
    this.at++;
    return true;
  }

  /** Steps to the next item; false at the end of the array. */
  nextItem(): bool {
    return this.nextMember(CLOSE_ARRAY);
  }

  /** Compares the key with one of ASCII, without making a string of it. */
  keyIs(name: string): bool {
    if (this.keyEscaped) return this.key == name;
    if (this.keyTo - this.keyFrom - 2 != name.length) return false;
    for (let i = 0; i < name.length; i++) {
      if (this.byteAt(this.keyFrom + 1 + i) != name.charCodeAt(i)) return false;
    }
    return true;
  }

  get key(): string {
    return this.unquote(this.keyFrom, this.keyTo, this.keyEscaped);
  }

  string(): string {
    if (this.peek() != QUOTE) {
      this.fail("a string");
      return "";
    }
    const from = this.at;
    this.skipString();
    return this.expected ? "" : this.unquote(from, this.at, this.escaped);
  }

  /** A number as it is written. */
  numberText(): string {
    this.peek();
    const from = this.at;
    this.skipNumber();
    return this.expected ? "" : String.UTF8.decodeUnsafe(this.start + from, this.at - from);
  }

  integer(): i64 {
    return Value.literal(this.numberText()).integer;
  }

  boolean(): bool {
    if (this.peek() == 0x74) {
      this.skipWord("true");
      return this.expected === null;
    }
    this.skipWord("false");
    return false;
  }

  /** Passes over one value. */
  skip(): void {
    switch (this.next) {
      case Type.Null: this.skipWord("null"); break;
      case Type.Boolean: this.boolean(); break;
      case Type.Number: this.skipNumber(); break;
      case Type.String: this.skipString(); break;
      case Type.Array: {
        this.array();
        while (this.nextItem()) this.skip();
        break;
      }
      case Type.Object: {
        this.object();
        while (this.nextKey()) this.skip();
        break;
      }
    }
  }

  value(): Value {
    switch (this.next) {
      case Type.Boolean: return Value.boolean(this.boolean());
      case Type.Number: return Value.literal(this.numberText());
      case Type.String: return Value.string(this.string());
      case Type.Array: {
        const items: Value[] = [];
        this.array();
        while (this.nextItem()) items.push(this.value());
        return Value.array(items);
      }
      case Type.Object: {
        const members = new Map<string, Value>();
        this.object();
        while (this.nextKey()) members.set(this.key, this.value());
        return Value.object(members);
      }
    }
    this.skipWord("null");
    return Value.none();
  }

  /** Returns null if one value was read as a whole and nothing follows it, else what was expected and where. */
  finish(operation: string): Failure | null {
    if (!this.expected && this.depth == 0 && this.peek() == END) return null;
    const expected = this.expected;
    return new Failure(operation + ": byte " + this.at.toString() + ": " + (expected ? expected : "the end") + " was expected", "not json");
  }

  /** Skips white space and returns the byte behind it. */
  private peek(): i32 {
    if (this.expected) return END;
    for (; this.at < this.length; this.at++) {
      const byte = this.byteAt(this.at);
      if (byte != 0x20 && byte != 0x0a && byte != 0x0d && byte != 0x09) return byte;
    }
    return END;
  }

  private fail(expected: string): bool {
    if (!this.expected) this.expected = expected;
    return false;
  }

  private open(bracket: i32, name: string): void {
    if (this.peek() != bracket) {
      this.fail(name);
      return;
    }
    if (this.depth == MAX_DEPTH) {
      this.fail("a depth of at most " + MAX_DEPTH.toString());
      return;
    }
    this.depth++;
    this.at++;
    this.first = true;
  }

  private nextMember(close: i32): bool {
    if (this.peek() == close) {
      this.at++;
      this.depth--;
      this.first = false;
      return false;
    }
    if (!this.first) {
      if (this.peek() != COMMA) return this.fail(close == CLOSE_ARRAY ? "a comma or ]" : "a comma or }");
      this.at++;
    }
    this.first = false;
    return this.peek() == END ? this.fail(close == CLOSE_ARRAY ? "a value" : "a key") : true;
  }

  private skipWord(word: string): void {
    this.peek();
    for (let i = 0; i < word.length; i++) {
      if (this.byteAt(this.at + i) != word.charCodeAt(i)) {
        this.fail("a value");
        return;
      }
    }
    this.at += word.length;
  }

  private skipNumber(): void {
    if (this.peek() == MINUS) this.at++;
    if (this.byteAt(this.at) == 0x30) this.at++;
    else this.skipDigits();
    if (this.byteAt(this.at) == 0x2e) {
      this.at++;
      this.skipDigits();
    }
    if ((this.byteAt(this.at) | 0x20) == 0x65) {
      this.at++;
      const sign = this.byteAt(this.at);
      if (sign == 0x2b || sign == MINUS) this.at++;
      this.skipDigits();
    }
  }

  private skipDigits(): void {
    const from = this.at;
    while (isDigit(this.byteAt(this.at))) this.at++;
    if (this.at == from) this.fail("a value");
  }

  /** Passes over a string, whose quotation mark is next, and makes sure of its form. */
  private skipString(): void {
    const from = ++this.at;
    let all = 0;
    let escaped = false;
    for (;;) {
      const byte = this.byteAt(this.at);
      if (byte < 0x20) {
        this.fail("the end of a string");
        return;
      }
      if (byte == QUOTE) break;
      this.at++;
      all |= byte;
      if (byte != BACKSLASH) continue;
      escaped = true;
      const letter = this.byteAt(this.at);
      if (letter == 0x75) {
        for (let i = 1; i <= 4; i++) {
          if (hexValue(this.byteAt(this.at + i)) < 0) {
            this.fail("four hexadecimal digits");
            return;
          }
        }
      } else if (unescaped(letter) < 0) {
        this.fail("an escaped character");
        return;
      }
      this.at++;
    }
    if (all >= 0x80 && !isUTF8(this.start + from, this.at - from)) {
      this.fail("UTF-8");
      return;
    }
    this.escaped = escaped;
    this.at++;
  }

  /** The text between the quotation marks at from and before to, which skipString has seen. */
  private unquote(from: i32, to: i32, escaped: bool): string {
    const end = to - 1;
    let run = from + 1;
    if (!escaped) return this.decode(run, end);
    let at = this.nextBackslash(run, end);
    const parts: string[] = [];
    while (at < end) {
      parts.push(this.decode(run, at));
      const letter = this.byteAt(at + 1);
      if (letter != 0x75) {
        parts.push(String.fromCharCode(unescaped(letter)));
        run = at + 2;
      } else {
        const unit = this.unit(at + 2);
        run = at + 6;
        if ((unit & 0xf800) != 0xd800) {
          parts.push(String.fromCharCode(unit));
        } else if (unit < 0xdc00 && run + 6 <= end && this.byteAt(run) == BACKSLASH && this.byteAt(run + 1) == 0x75 && (this.unit(run + 2) & 0xfc00) == 0xdc00) {
          parts.push(String.fromCharCode(unit, this.unit(run + 2)));
          run += 6;
        } else {
          // Half a pair cannot be written in UTF-8, so it must not get into a text.
          parts.push("\ufffd");
        }
      }
      at = this.nextBackslash(run, end);
    }
    parts.push(this.decode(run, end));
    return parts.join("");
  }

  /** The place of the first backslash from a place on, or end. */
  private nextBackslash(from: i32, end: i32): i32 {
    let at = from;
    while (at < end && this.byteAt(at) != BACKSLASH) at++;
    return at;
  }

  private decode(from: i32, to: i32): string {
    return String.UTF8.decodeUnsafe(this.start + from, to - from);
  }

  /** The code unit in four hexadecimal digits. */
  private unit(at: i32): i32 {
    let unit = 0;
    for (let i = at; i < at + 4; i++) unit = (unit << 4) | hexValue(this.byteAt(i));
    return unit;
  }

  private byteAt(at: i32): i32 {
    return at < this.length ? <i32>load<u8>(this.start + at) : END;
  }
}

function isDigit(byte: i32): bool {
  return byte >= 0x30 && byte <= 0x39;
}

function hexValue(byte: i32): i32 {
  if (isDigit(byte)) return byte - 0x30;
  const lower = byte | 0x20;
  return lower >= 0x61 && lower <= 0x66 ? lower - 0x61 + 10 : -1;
}

/** What stands for an escaped character other than \u, or -1. */
function unescaped(byte: i32): i32 {
  switch (byte) {
    case QUOTE: case BACKSLASH: case 0x2f: return byte;
    case 0x62: return 0x08;
    case 0x66: return 0x0c;
    case 0x6e: return 0x0a;
    case 0x72: return 0x0d;
    case 0x74: return 0x09;
  }
  return -1;
}

/** Reports whether text is an integer, without fraction and exponent, that an i64 can hold. */
function isPlainInteger(text: string): bool {
  const negative = text.charCodeAt(0) == MINUS;
  const from = negative ? 1 : 0;
  if (text.length == from || text.length - from > 19) return false;
  let sum: u64 = 0;
  for (let i = from; i < text.length; i++) {
    if (!isDigit(text.charCodeAt(i))) return false;
    sum = sum * 10 + text.charCodeAt(i) - 0x30;
  }
  return sum <= <u64>i64.MAX_VALUE + (negative ? 1 : 0);
}

const POWERS_OF_TEN: StaticArray<f64> = [
  1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/**
 * The number nearest to a JSON number. The standard library is not always exact in the last
 * bit; up to 15 digits and a power of ten that a double holds exactly, one division or
 * multiplication is (William D. Clinger, "How to Read Floating Point Numbers Accurately").
 */
function parseNumber(text: string): f64 {
  let digits: i64 = 0;
  let count = 0;
  let exponent = 0;
  let point = false;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    if (isDigit(unit)) {
      digits = digits * 10 + unit - 0x30;
      if (digits > 0) count++;
      if (point) exponent--;
      if (count > 15) return F64.parseFloat(text);
    } else if (unit == 0x2e) {
      point = true;
    } else if ((unit | 0x20) == 0x65) {
      if (text.length - i > 5) return F64.parseFloat(text);
      exponent += <i32>I32.parseInt(text.substring(i + 1), 10);
      break;
    }
  }
  if (exponent < -22 || exponent > 22) return F64.parseFloat(text);
  const value = exponent < 0 ? <f64>digits / POWERS_OF_TEN[-exponent] : <f64>digits * POWERS_OF_TEN[exponent];
  return text.charCodeAt(0) == MINUS ? -value : value;
}
