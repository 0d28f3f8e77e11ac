// The sample hand in AssemblyScript: it does what its prompt says, to try everything that the
// SDK offers. abi/conformance/SAMPLE.md says what each command gives.

import { Config, Failure, Level, Query, Result, fail, files, http, kv, llm, log, register, tokens } from "@gloveboxhq/hand";

register(answer);

function answer(q: Query): string {
  const texts: string[] = [];
  const lines = q.prompt.split("\n");
  if (lines[lines.length - 1] == "") lines.pop();
  for (let i = 0; i < lines.length; i++) {
    const command = new Line(lines[i]);
    if (command.word == "fail") return fail(command.rest());
    const text = run(q, command);
    if (text !== null) texts.push(text);
  }
  return tokens.cut(texts.join("\n"), q.maxOutputTokens);
}

/** A command whose arguments are taken one after the other. */
class Line {
  readonly word: string;
  /** What is not yet taken, with the space before it. */
  private left: string;

  constructor(line: string) {
    const space = line.indexOf(" ");
    this.word = space < 0 ? line : line.substring(0, space);
    this.left = space < 0 ? "" : line.substring(space);
  }

  /** Reports whether there is another argument, which may be empty. */
  get more(): bool {
    return this.left.length > 0;
  }

  /** The next argument, up to a space; "" if there is none. */
  next(): string {
    const space = this.left.indexOf(" ", 1);
    const end = space < 0 ? this.left.length : space;
    const argument = this.left.substring(1, end);
    this.left = this.left.substring(end);
    return argument;
  }

  /** The last argument: the rest of the line; "" if there is none. */
  rest(): string {
    const argument = this.left.substring(1);
    this.left = "";
    return argument;
  }
}

/** The text that a command gives, or null for one that gives nothing. */
function run(q: Query, line: Line): string | null {
  const word = line.word;
  if (word == "say") return line.rest();
  if (word == "query") return describe(q);
  if (word == "config") return configured(q.config);
  if (word == "log") {
    const level = levelOf(line.next());
    if (level < 0) return badArguments(word);
    log.write(<Level>level, line.rest());
    return null;
  }
  if (word == "tokens") return tokens.estimate(line.rest()).toString();
  if (word == "cut") {
    const most = line.next();
    return isCount(most) ? tokens.cut(line.rest(), I32.parseInt(most, 10)) : badArguments(word);
  }
  if (word == "list") return list(line.rest());
  if (word == "read") return textOf(files.root("docs").readText(line.rest()));
  if (word == "size") return size(line.rest());
  if (word == "get") {
    const url = line.rest();
    return url == "" ? badArguments(word) : exchange(new http.Request("GET", url));
  }
  if (word == "post") {
    const url = line.next();
    if (url == "") return badArguments(word);
    return exchange(new http.Request("POST", url).header("Content-Type", "text/plain").text(line.rest()).timeout(2000));
  }
  if (word == "kv-set") {
    const key = line.next();
    if (key == "" || !line.more) return badArguments(word);
    return done(kv.setText(key, line.rest()));
  }
  if (word == "kv-get") {
    const key = line.rest();
    return key == "" ? badArguments(word) : textOf(kv.getText(key));
  }
  if (word == "kv-delete") {
    const key = line.rest();
    return key == "" ? badArguments(word) : done(kv.remove(key));
  }
  if (word == "kv-list") {
    const keys = kv.list(line.rest());
    return keys.ok ? joined(keys.value) : failed(keys.failure!);
  }
  if (word == "ask") return ask(line.rest());
  return "error: unknown command " + word;
}

function badArguments(word: string): string {
  return "error: bad arguments for " + word;
}

function failed(failure: Failure): string {
  return "error: " + failure.kind;
}

function done(failure: Failure | null): string {
  return failure ? failed(failure) : "ok";
}

function textOf(text: Result<string>): string {
  return text.ok ? text.value : failed(text.failure!);
}

function joined(lines: string[]): string | null {
  return lines.length == 0 ? null : lines.join("\n");
}

function describe(q: Query): string {
  return [
    `from=${q.from}`,
    `to=${q.to}`,
    `now=${q.now}`,
    `timezone=${q.timezone}`,
    `max_output_tokens=${q.maxOutputTokens}`,
    `subject=${q.subject}`,
  ].join("\n");
}

function configured(config: Config): string | null {
  const lines: string[] = [];
  if (config.has("greeting")) lines.push("greeting=" + config.string("greeting"));
  if (config.has("loud")) lines.push("loud=" + config.boolean("loud").toString());
  if (config.has("ratio")) lines.push("ratio=" + thousandths(config.number("ratio")));
  if (config.has("times")) lines.push("times=" + config.integer("times").toString());
  if (config.has("words")) lines.push("words=" + config.list("words").join(","));
  return joined(lines);
}

function thousandths(ratio: f64): string {
  // Math.round would round half up.
  const whole = <i64>Math.floor(Math.abs(ratio) * 1000 + 0.5);
  return (ratio < 0 ? -whole : whole).toString() + "/1000";
}

function levelOf(name: string): i32 {
  if (name == "debug") return Level.Debug;
  if (name == "info") return Level.Info;
  if (name == "warn") return Level.Warn;
  if (name == "error") return Level.Error;
  return -1;
}

/** Reports whether text is a decimal number of 1 to 9 digits. */
function isCount(text: string): bool {
  if (text.length < 1 || text.length > 9) return false;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    if (unit < 0x30 || unit > 0x39) return false;
  }
  return true;
}

function list(path: string): string | null {
  const listing = files.root("docs").list(path);
  if (!listing.ok) return failed(listing.failure!);
  const entries = listing.value.self.isDirectory ? listing.value.entries : [listing.value.self];
  const lines: string[] = [];
  for (let i = 0; i < entries.length; i++) {
    const entry = entries[i];
    lines.push(`${entry.type} ${entry.size} ${entry.modified} ${entry.name}`);
  }
  return joined(lines);
}

function size(path: string): string {
  const root = files.root("docs");
  const buffer = new Uint8Array(256 << 10);
  let total: i64 = 0;
  let read: i32;
  do {
    const piece = root.readInto(path, total, buffer);
    if (!piece.ok) return failed(piece.failure!);
    read = piece.value;
    total += read;
  } while (read > 0);
  return total.toString();
}

function exchange(request: http.Request): string {
  const got = request.fetch();
  if (!got.ok) return failed(got.failure!);
  const response = got.value;
  const body = response.text();
  if (!body.ok) return failed(body.failure!);
  const header = response.header("X-Answer");
  return `${response.status} ${header === null ? "-" : header} ${body.value}${response.truncated ? " (cut)" : ""}`;
}

function ask(prompt: string): string {
  const got = llm.complete(prompt, "Answer in one sentence.", 64);
  if (!got.ok) return failed(got.failure!);
  const answer = got.value;
  return `${answer.text} (${answer.inputTokens}+${answer.outputTokens} tokens)`;
}
