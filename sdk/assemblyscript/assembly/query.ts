import { Reader, Type, Value } from "./json";
import { Failure, Result } from "./result";
import { Time } from "./time";

/** What the hand is asked. */
export class Query {
  /** The operator's question. */
  prompt: string = "";
  /** The window asked about: from ≤ t < to. */
  from: Time = new Time(0);
  to: Time = new Time(0);
  /** The host's time of asking. */
  now: Time = new Time(0);
  /** The IANA name of the zone to show times in. */
  timezone: string = "";
  /** The size to keep to; the host cuts what is longer. Namespace tokens counts as the host does. */
  maxOutputTokens: i32 = 0;
  /** Opaque, and stable for this hand and one user. */
  subject: string = "";
  /** The operator's values. */
  config: Config = new Config(Value.none());
}

/**
 * The operator's values, which the host has checked against the manifest. Asking for one as
 * another type than the manifest's is a mistake of the hand, and fails the query.
 */
export class Config {
  constructor(private values: Value) {}

  /** Reports whether key has a value: from the operator, or the manifest's default. */
  has(key: string): bool {
    return !this.values.get(key).isNull;
  }

  string(key: string, fallback: string = ""): string {
    const value = this.values.get(key);
    if (value.isNull) return fallback;
    this.check(key, value.type == Type.String, "a string");
    return value.string;
  }

  boolean(key: string, fallback: bool = false): bool {
    const value = this.values.get(key);
    if (value.isNull) return fallback;
    this.check(key, value.type == Type.Boolean, "a boolean");
    return value.boolean;
  }

  integer(key: string, fallback: i64 = 0): i64 {
    const value = this.values.get(key);
    if (value.isNull) return fallback;
    this.check(key, value.isInteger, "an integer");
    return value.integer;
  }

  number(key: string, fallback: f64 = 0): f64 {
    const value = this.values.get(key);
    if (value.isNull) return fallback;
    this.check(key, value.type == Type.Number, "a number");
    return value.number;
  }

  list(key: string, fallback: string[] = []): string[] {
    const value = this.values.get(key);
    if (value.isNull) return fallback;
    this.check(key, value.type == Type.Array, "a list");
    const items: string[] = [];
    for (let i = 0; i < value.length; i++) {
      this.check(key, value.at(i).type == Type.String, "a list of strings");
      items.push(value.at(i).string);
    }
    return items;
  }

  private check(key: string, fits: bool, type: string): void {
    if (!fits) throw new Error("config " + key + " is not " + type + ": ask for it as the type that the manifest gives it");
  }
}

/** Reads a query; fields that are not known are passed over. */
export function parseQuery(bytes: Uint8Array): Result<Query> {
  const q = new Query();
  const reader = new Reader(bytes);
  reader.object();
  while (reader.nextKey()) {
    if (reader.keyIs("prompt")) q.prompt = reader.string();
    else if (reader.keyIs("timezone")) q.timezone = reader.string();
    else if (reader.keyIs("subject")) q.subject = reader.string();
    else if (reader.keyIs("max_output_tokens")) q.maxOutputTokens = <i32>min(max(reader.integer(), 0), i32.MAX_VALUE);
    else if (reader.keyIs("config")) q.config = new Config(reader.value());
    else if (reader.keyIs("from") || reader.keyIs("to") || reader.keyIs("now")) {
      const field = reader.key;
      const text = reader.string();
      const time = Time.parse(text);
      if (!time) return Result.failed<Query>(new Failure("read query", field + " is no time: " + text));
      if (field == "from") q.from = time;
      else if (field == "to") q.to = time;
      else q.now = time;
    } else reader.skip();
  }
  const failure = reader.finish("read query");
  return failure ? Result.failed<Query>(failure) : Result.of(q);
}
