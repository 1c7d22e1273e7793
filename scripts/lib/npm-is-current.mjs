// Exits 0 if node_modules holds exactly what package-lock.json asks for.
import { existsSync, readFileSync } from "node:fs";

const read = (path) => JSON.parse(readFileSync(path, "utf8")).packages;
const wanted = read("package-lock.json");
const installed = read("node_modules/.package-lock.json");

const missing = Object.entries(wanted).filter(
  ([path, { version, optional }]) =>
    path !== "" && (installed[path] ? installed[path].version !== version : !optional),
);
// npm leaves `optional` packages of other platforms out; the `node` package fetches its own binary.
process.exit(missing.length === 0 && existsSync("node_modules/.bin/node") ? 0 : 1);
