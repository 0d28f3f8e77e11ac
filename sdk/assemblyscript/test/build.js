// Compiles the hands of these tests with the flags that an author's have.
import { mkdir, symlink } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import asc from "assemblyscript/asc";
import { load } from "../testing/index.js";

const root = fileURLToPath(new URL("../", import.meta.url));

// The hands import the package by its name, as an author's do.
await mkdir(`${root}node_modules/@gloveboxhq`, { recursive: true });
await symlink("../..", `${root}node_modules/@gloveboxhq/hand`, "dir").catch((error) => {
  if (error.code !== "EEXIST") throw error;
});

/** Compiles test/hands/NAME.ts and returns the path of the module. */
export async function build(name, { flags = [], output = name } = {}) {
  const path = `test/build/${output}.wasm`;
  const { error, stderr } = await asc.main([`test/hands/${name}.ts`, "--config", "asconfig.json", "--baseDir", root, "--outFile", path, ...flags]);
  if (error) throw new Error(`asc ${name}: ${error.message}\n${stderr}`);
  return root + path;
}

export async function hand(name, options) {
  return load(await build(name, options));
}
