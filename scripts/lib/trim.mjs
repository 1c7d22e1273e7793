// Between worker-build and wasm-opt: takes out of the glue (build/index.js) what this Worker never
// calls, and lets the module (build/index_bg.wasm) export no more than the rest calls, so that
// wasm-opt can drop what stands behind it: the worker crate has classes for every binding it knows.
// Also shortens the names that the two know each other by: wasm-bindgen ends each import's in 16
// digits of a hash, which no compression takes away.

import { readFileSync, writeFileSync } from "node:fs";
import { build } from "esbuild";
import { SECTION, counted, moduleOf, number, reader, sections, sized, skipImported } from "./wasm.mjs";

const GLUE = "build/index.js";
const MODULE = "build/index_bg.wasm";
// What wrangler.toml names: the entry point, and the class of the durable object.
const ENTRY = 'export { default, Runner } from "./index.js";';

// What esbuild can't know: nobody disposes of an object by symbol, and these constructors change
// nothing when nobody uses what they made.
function withoutEffects(glue) {
  return glue
    .replace(/^if \(Symbol\.dispose\) .*;$/gm, "")
    .replace(/new (?:FinalizationRegistry|Proxy)\(/g, "/* @__PURE__ */ $&");
}

async function bundle(glue) {
  const load = () => ({ contents: glue, loader: "js" });
  const setup = (esbuild) => esbuild.onLoad({ filter: /\/index\.js$/ }, load);
  const { outputFiles } = await build({
    stdin: { contents: ENTRY, resolveDir: "build" },
    bundle: true,
    external: ["cloudflare:*", "*.wasm"],
    format: "esm",
    minify: true,
    plugins: [{ name: "glue", setup }],
    write: false,
  });
  return outputFiles[0].text;
}

// `__wbg_get_57b93e4469e51558` becomes `get`, or `get2` where that is taken.
function shortener(taken) {
  const short = new Map();
  return (name) => {
    const [, stem] = name.match(/^(?:__wbg_+)?(.+?)_+h?[0-9a-f]{16}$/) ?? [];
    if (stem === undefined || short.has(name)) return short.get(name) ?? name;
    let chosen = stem;
    for (let n = 2; taken.has(chosen); n += 1) chosen = `${stem}${n}`;
    taken.add(chosen);
    short.set(name, chosen);
    return chosen;
  };
}

function imports(body, rename) {
  const read = reader(body);
  const entry = () => {
    const names = [read.name(), rename(read.name())].map(sized);
    return Buffer.concat([...names, read.span(() => skipImported(read))]);
  };
  return counted(Array.from({ length: read.number() }, entry));
}

function exports(body, rename, isUsed) {
  const read = reader(body);
  const entry = () => {
    const name = read.name();
    const item = Buffer.concat([Buffer.from([read.byte()]), number(read.number())]);
    return isUsed(name) ? [Buffer.concat([sized(rename(name)), item])] : [];
  };
  return counted(Array.from({ length: read.number() }, entry).flat());
}

const module = readFileSync(MODULE);
const compiled = new WebAssembly.Module(module);
const known = [...WebAssembly.Module.imports(compiled), ...WebAssembly.Module.exports(compiled)];
const rename = shortener(new Set(known.map(({ name }) => name)));

const glue = await bundle(withoutEffects(readFileSync(GLUE, "utf8")));
const words = new Set(glue.match(/[\w$]+/g));
const names = new Set(known.map(({ name }) => name));
writeFileSync(GLUE, glue.replace(/[\w$]+/g, (word) => (names.has(word) ? rename(word) : word)));

const trimmed = sections(module).map(({ kind, body }) => {
  if (kind === SECTION.imports) return { kind, body: imports(body, rename) };
  if (kind === SECTION.exports) return { kind, body: exports(body, rename, (name) => words.has(name)) };
  return { kind, body };
});
writeFileSync(MODULE, moduleOf(trimmed));
