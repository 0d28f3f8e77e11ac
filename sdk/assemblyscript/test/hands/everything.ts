// One command for each of what the sample hand does not show.
import { Kind, Query, Result, fail, files, http, kv, log, decodeText, encodeText, json, register, tokens } from "@gloveboxhq/hand";

register((q: Query): string => {
  const word = q.prompt;
  if (word == "abort") throw new Error("on purpose: é");
  if (word == "bounds") return [1, 2][q.maxOutputTokens].toString();
  if (word == "unwrap") return files.root("docs").readText("nowhere").value;
  if (word == "fail") return fail("for a reason") + "never shown";
  if (word == "console") {
    console.log("a");
    console.warn("b");
    console.error("c");
    console.debug("d");
    log.error("e\nf");
    trace("g", 2, 1, 2.5);
    return "";
  }
  if (word == "random") return (Math.random() == Math.random()).toString();
  if (word == "surrogates") {
    const half = "a\uD83Db";
    const key = kv.set(half, encodeText(half));
    return half + " " + tokens.estimate(half).toString() + " " + key!.kind + " " + json.quote(half).length.toString() + kv.list("\uDE00").failure!.kind;
  }
  if (word == "utf-8") {
    const good = encodeText("aé世😀\0");
    return decodeText(good)!.length.toString() + " " + good.length.toString();
  }
  if (word == "not utf-8") return files.root("docs").readText("bytes").failure!.toString();
  if (word == "json") return json.parse(files.root("docs").read("bytes").value).failure!.toString();
  if (word == "big") {
    const root = files.root("docs");
    const big = root.read("big");
    if (!big.ok) return big.failure!.toString();
    let sum: u32 = 0;
    for (let i = 0; i < big.value.length; i++) sum = sum * 31 + big.value[i];
    return big.value.length.toString() + " " + sum.toString();
  }
  if (word == "limit") return files.root("docs").read("big", 1_000_000).failure!.kind + " " + files.root("docs").read("small", 1).failure!.kind + " " + files.root("docs").read("small", 5).value.length.toString();
  if (word == "many") {
    const listing = files.root("docs").list("many");
    const entries = listing.value.entries;
    return entries.length.toString() + " " + entries[entries.length - 1].name + " " + listing.value.more.toString();
  }
  if (word == "tokens") return tokens.estimate("😀").toString() + tokens.cut("😀😀a", 4) + tokens.cut("a", 0) + tokens.cut("a", -1);
  if (word == "join") return new Array<string>(10_000).fill("a").join("b") + "b";
  if (word == "page") {
    const page = files.root("docs").page("many", "00001", 2).value;
    return page.entries.length.toString() + page.entries[0].name + page.more.toString();
  }
  if (word == "stat") {
    const entry = files.root("docs").stat("small").value;
    return entry.name + " " + entry.type + " " + entry.size.toString() + " " + entry.isFile.toString() + entry.isDirectory.toString() + " " + entry.modified.toString();
  }
  if (word == "keys") return kv.list("k").value.length.toString() + kv.page("k", "k00001", 1).value.keys[0] + kv.page("k", "", 5000).failure!.kind;
  if (word == "fetch") {
    const got = new http.Request("PUT", "https://a.example/é").header("A", '"q"\n').header("B", "2").body(encodeText("{\n}")).timeout(1500).fetch();
    const r = got.value;
    return r.status.toString() + " " + r.url + " " + r.headers.length.toString() + " " + (r.header("x-ANSWER")!) + " " + r.text().value + " " + (r.header("none") === null).toString() + r.truncated.toString();
  }
  if (word == "refused") return http.get("https://a.example/").failure!.toString() + " " + (http.get("https://b.example/").failure!.kind == Kind.TIMEOUT).toString();
  if (word == "config") return q.config.string("ratio");
  if (word == "defaults") return q.config.string("a", "A") + q.config.integer("b", 7).toString() + q.config.number("c", 0.5).toString() + q.config.boolean("d", true).toString() + q.config.list("e", ["E"])[0];
  if (word == "integer") return q.config.integer("n").toString() + " " + q.config.number("n").toString();
  if (word == "fraction") return q.config.integer("n").toString();
  return Result.of(word).value;
});
