// What `wrangler deploy` would upload: within its budget, for both environments, and importing
// nothing but its own glue (an import of "env" would mean that non-portable code slipped in).

import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";

// Cloudflare's free plan allows 3 MiB; a small bundle also starts faster.
const GZIP_CEILING_KIB = 350;

for (const environment of ["", "production"]) {
  const args = ["deploy", "--dry-run", "--outdir", "dist", "--env", environment];
  const printed = execFileSync("wrangler", args, { encoding: "utf8" });
  const [, gzip] = printed.match(/Total Upload: .* gzip: ([\d.]+) KiB/) ?? [];
  if (gzip === undefined) throw new Error(`wrangler did not tell the size:\n${printed}`);
  const name = environment || "development";
  console.log(`bundle, ${name}: ${gzip} KiB gzip, ceiling ${GZIP_CEILING_KIB} KiB`);
  if (Number(gzip) > GZIP_CEILING_KIB) throw new Error("the bundle is over its ceiling");
}

const imports = WebAssembly.Module.imports(
  new WebAssembly.Module(readFileSync("build/index_bg.wasm")),
);
const foreign = [...new Set(imports.map(({ module }) => module))].filter(
  (name) => name !== "./index_bg.js",
);
if (foreign.length > 0)
  throw new Error(`the WebAssembly module imports from ${foreign.join(", ")}`);
console.log(`imports: ${imports.length}, all from its own glue`);
