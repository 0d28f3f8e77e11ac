// Compiles a hand of these tests as the compiler does for an author.
import { execFile } from "node:child_process";
import { mkdir, symlink } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { load } from "../testing/index.js";

const root = new URL("../", import.meta.url);
const at = (path) => fileURLToPath(new URL(path, root));

/** Returns the path of the module of test/hands/NAME.ts. */
export async function build(name, ...flags) {
  // The hands import the package by its name, as an author does.
  await mkdir(at("node_modules/@gloveboxhq"), { recursive: true });
  await symlink("../..", at("node_modules/@gloveboxhq/hand"), "dir").catch((error) => {
    if (error.code !== "EEXIST") throw error;
  });
  const output = `test/build/${[name, ...flags].join("")}.wasm`;
  const args = [at("node_modules/assemblyscript/bin/asc.js"), `test/hands/${name}.ts`, "--config", "asconfig.json", "--outFile", output, ...flags];
  await promisify(execFile)(process.execPath, args, { cwd: at("."), encoding: "utf8" });
  return at(output);
}

export async function hand(name, ...flags) {
  return load(await build(name, ...flags));
}
