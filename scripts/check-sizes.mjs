// Sizes of files and functions against what this project aims at. It reports and never fails: what
// belongs together stays together.

import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";

const FILE_AIM = 400;
const ADAPTER_AIM = 120;
const FUNCTION_AIM = 70;
const WIDTH_AIM = 100;
const START_OF_FUNCTION = /^(\s*)(?:pub(?:\([a-z]+\))? )?(?:const )?(?:async )?fn (\w+)/;

const listing = ["ls-files", "-co", "--exclude-standard", "src", "tests", "examples", "scripts"];
const files = execFileSync("git", listing, { encoding: "utf8" })
  .split("\n")
  .filter((path) => /\.(rs|mjs)$/.test(path));

let found = 0;
const report = (text) => {
  found += 1;
  console.log(text);
};

for (const path of files) {
  const lines = readFileSync(path, "utf8").split("\n");
  if (lines.at(-1) === "") lines.pop();
  const aim = path.startsWith("src/adapters/") ? ADAPTER_AIM : FILE_AIM;
  if (lines.length > aim) report(`${path}: ${lines.length} lines, the aim is ${aim}`);
  if (!path.endsWith(".rs") || isTest(path)) continue;
  for (const { name, line, length } of functions(lines)) {
    if (length > FUNCTION_AIM) report(`${path}:${line}: fn ${name} has ${length} lines`);
  }
  lines.forEach((text, index) => {
    // A long literal can't be broken without changing it.
    if ([...text].length > WIDTH_AIM && !/["`]|https?:/.test(text)) {
      report(`${path}:${index + 1}: ${[...text].length} columns`);
    }
  });
}
console.log(`${files.length} files looked at; ${found} places are larger than aimed at`);

function isTest(path) {
  return path.startsWith("tests/") || /(^|[/_])tests(\.rs|\/)/.test(path);
}

// rustfmt puts a function's closing brace at the indentation of its first line.
function functions(lines) {
  const found = [];
  lines.forEach((text, index) => {
    const [, indent, name] = text.match(START_OF_FUNCTION) ?? [];
    if (name === undefined) return;
    const body = lines.findIndex((later, at) => at >= index && /[{;}]\s*$/.test(later));
    if (!lines[body]?.endsWith("{")) return;
    const end = lines.findIndex((later, at) => at > body && later === `${indent}}`);
    if (end !== -1) found.push({ name, line: index + 1, length: end - index + 1 });
  });
  return found;
}
