// Makes a hand of a script: node build.mjs hand.js hand.wasm
//
// The engine is QuickJS as npm's quickjs-wasi has it, a module that wants some functions
// of the program around it. entry.wat is that program, as a command of WASI; wasm-merge of
// npm's binaryen makes one module of the two.
import { execFileSync } from "node:child_process";
import { createRequire } from "node:module";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import binaryen from "binaryen";

const [input, output] = process.argv.slice(2);
if (!input || !output) {
  console.error("usage: node build.mjs HAND.js HAND.wasm");
  process.exit(2);
}

const here = dirname(fileURLToPath(import.meta.url));
const require = createRequire(import.meta.url);
const engine = require.resolve("quickjs-wasi/quickjs.wasm");
const merge = join(dirname(require.resolve("binaryen/package.json")), "bin", "wasm-merge");

// Features that every host has: those of WebAssembly 2.0, but for what none of this needs.
const { BulkMemory, MutableGlobals, NontrappingFPToInt, ReferenceTypes, SignExt, Multivalue } = binaryen.Features;
const features = BulkMemory | MutableGlobals | NontrappingFPToInt | ReferenceTypes | SignExt | Multivalue;
const enabled = ["bulk-memory", "mutable-globals", "nontrapping-float-to-int", "reference-types", "sign-ext", "multivalue"].map((name) => "--enable-" + name);

// The value of the script is the function that entry.wat calls. Its own line begins
// behind the author's, so that the lines in messages are theirs.
const script = Buffer.from(readFileSync(input, "utf8") + `
;(text) => {
  try {
    return String(answer(JSON.parse(text)) ?? "");
  } catch (error) {
    throw error instanceof Error ? \`\${error}\\n\${error.stack}\` : error;
  }
};\0`);

const entry = readFileSync(join(here, "entry.wat"), "utf8")
  .replaceAll("@SIZE@", String(script.length))
  .replace("@SCRIPT@", () => [...script].map((byte) => "\\" + byte.toString(16).padStart(2, "0")).join(""));

const temp = mkdtempSync(join(tmpdir(), "hand-"));
try {
  const program = binaryen.parseText(entry);
  program.setFeatures(features);
  writeFileSync(join(temp, "entry.wasm"), program.emitBinary());
  execFileSync(process.execPath, [merge, engine, "quickjs", join(temp, "entry.wasm"), "env", "-o", join(temp, "merged.wasm"), ...enabled], { stdio: "inherit" });

  const hand = binaryen.readBinary(readFileSync(join(temp, "merged.wasm")));
  hand.setFeatures(features);
  const exported = [];
  for (let i = 0; i < hand.getNumExports(); i++) {
    exported.push(binaryen.getExportInfo(hand.getExportByIndex(i)).name);
  }
  for (const name of exported) {
    if (name !== "_start" && name !== "memory") {
      hand.removeExport(name);
    }
  }
  hand.runPasses(["remove-unused-module-elements"]);
  writeFileSync(output, hand.emitBinary());
} finally {
  rmSync(temp, { recursive: true });
}
