// Licences, sources and double versions of everything that is compiled in or ships in the bundle.
// The advisory databases are on GitHub; where they can be reached, `cargo deny check` (deny.toml)
// looks them up as well.

import { execFileSync } from "node:child_process";

const ALLOWED = new Set([
  "Apache-2.0",
  "Apache-2.0 WITH LLVM-exception",
  "BSD-3-Clause",
  "BSL-1.0",
  "MIT",
  "Unicode-3.0",
  "Zlib",
]);
// Two versions of a crate make the bundle larger; build-time crates (proc-macros) don't count.
const BUILD_TIME_DUPLICATES = new Set(["syn"]);
const REGISTRY = "registry+https://github.com/rust-lang/crates.io-index";

const metadata = JSON.parse(
  execFileSync("cargo", ["metadata", "--format-version", "1", "--locked"], {
    encoding: "utf8",
    maxBuffer: 1 << 28,
  }),
);
const packages = metadata.packages.filter(({ source }) => source !== null);
const problems = [];

for (const { name, version, license, source } of packages) {
  if (!isAllowed(license ?? "")) problems.push(`${name} ${version}: licence ${license}`);
  if (source !== REGISTRY) problems.push(`${name} ${version}: from ${source}`);
}
for (const [name, versions] of Map.groupBy(packages, ({ name }) => name)) {
  if (versions.length > 1 && !BUILD_TIME_DUPLICATES.has(name)) {
    problems.push(`${name}: ${versions.map(({ version }) => version).join(" and ")}`);
  }
}

problems.forEach((problem) => console.error(problem));
console.log(`${packages.length} crates looked at, ${problems.length} problems`);
process.exit(problems.length === 0 ? 0 : 1);

// SPDX without nested OR in AND beyond one pair of brackets, which is all that crates use.
function isAllowed(expression) {
  const text = expression.replaceAll(/[()]/g, " ").replaceAll("/", " OR ");
  return text
    .split(" AND ")
    .every((part) => part.split(" OR ").some((name) => ALLOWED.has(name.trim())));
}
