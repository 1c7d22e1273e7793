// The sizes docs/STYLE.md aims at. Over the hard limit fails; over the aim is reported.

import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";

const FILE_AIM = 400;
const FILE_LIMIT = 600;
const ADAPTER_AIM = 120;
const FUNCTION_LIMIT = 70;
const WIDTH_LIMIT = 100;
const START_OF_FUNCTION = /^(\s*)(?:pub(?:\([a-z]+\))? )?(?:const )?(?:async )?fn (\w+)/;

const listing = ["ls-files", "-co", "--exclude-standard", "src", "tests", "examples", "scripts"];
const files = execFileSync("git", listing, { encoding: "utf8" })
  .split("\n")
  .filter((path) => /\.(rs|mjs)$/.test(path));

let failures = 0;
const report = (hard, text) => {
  if (hard) failures += 1;
  console.log(`${hard ? "TOO LARGE" : "over the aim"}: ${text}`);
};

for (const path of files) {
  const lines = readFileSync(path, "utf8").split("\n");
  if (lines.at(-1) === "") lines.pop();
  const aim = path.startsWith("src/adapters/") ? ADAPTER_AIM : FILE_AIM;
  if (lines.length > aim) report(lines.length > FILE_LIMIT, `${path}: ${lines.length} lines`);
  for (const { name, line, length } of path.endsWith(".rs") ? functions(lines) : []) {
    if (length > FUNCTION_LIMIT) report(true, `${path}:${line}: fn ${name} has ${length} lines`);
  }
  lines.forEach((text, index) => {
    // A long literal can't be broken without changing it.
    if ([...text].length > WIDTH_LIMIT && !/["`]|https?:/.test(text)) {
      report(true, `${path}:${index + 1}: ${[...text].length} columns`);
    }
  });
}
console.log(`${files.length} files looked at, ${failures} over a limit`);
process.exit(failures === 0 ? 0 : 1);

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
