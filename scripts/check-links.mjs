// Relative links in Markdown lead to files that exist, and anchors to headings that exist.
// Addresses elsewhere are not asked: a check must not depend on other people's servers.

import { execFileSync } from "node:child_process";
import { existsSync, readFileSync, statSync } from "node:fs";
import { dirname, join, normalize } from "node:path";

const listing = ["ls-files", "-co", "--exclude-standard", "*.md"];
const files = execFileSync("git", listing, { encoding: "utf8" }).split("\n").filter(Boolean);

const anchors = new Map();
const problems = [];
let links = 0;

for (const file of files) {
  for (const { target, line } of linksOf(readFileSync(file, "utf8"))) {
    if (/^[a-z][a-z0-9+.-]*:/i.test(target)) continue;
    links += 1;
    const [path, anchor] = target.split("#");
    const aim = path === "" ? file : normalize(join(dirname(file), decodeURIComponent(path)));
    const say = (problem) => problems.push(`${file}:${line}: ${target}: ${problem}`);
    if (aim.startsWith("..")) say("leads out of the repository");
    else if (!existsSync(aim)) say("there is no such file");
    else if (anchor !== undefined && !hasAnchor(aim, anchor)) say("there is no such heading");
  }
}

problems.forEach((problem) => console.error(problem));
console.log(`${files.length} pages, ${links} links looked at, ${problems.length} problems`);
process.exit(problems.length === 0 ? 0 : 1);

/** Links and pictures in prose: what stands in code is an example. */
function linksOf(text) {
  const found = [];
  proseOf(text).forEach((prose, index) => {
    for (const [, target] of prose.matchAll(/\]\(<?([^()\s<>]+)>?(?:\s+"[^"]*")?\)/g)) {
      found.push({ target, line: index + 1 });
    }
    for (const [, target] of prose.matchAll(/^\s*\[[^\]]+\]:\s+<?(\S+?)>?\s*$/g)) {
      found.push({ target, line: index + 1 });
    }
  });
  return found;
}

/** The lines with all code blanked out. */
function proseOf(text) {
  let fence;
  return text.split("\n").map((line) => {
    const [, mark] = line.match(/^\s*(`{3,}|~{3,})/) ?? [];
    if (fence === undefined && mark) fence = mark;
    else if (fence !== undefined && mark?.startsWith(fence)) fence = undefined;
    else if (fence === undefined)
      return line.replaceAll(/(`+)[^`]*?\1/g, (code) => code.replaceAll(/[[\]()]/g, " "));
    return "";
  });
}

function hasAnchor(file, anchor) {
  if (!file.endsWith(".md") || statSync(file).isDirectory()) return /^L\d+/.test(anchor);
  if (!anchors.has(file)) anchors.set(file, anchorsOf(readFileSync(file, "utf8")));
  return anchors.get(file).has(decodeURIComponent(anchor));
}

/** The anchors that GitHub makes of headings; a repeated heading gets -1, -2. */
function anchorsOf(text) {
  const seen = new Map();
  const found = new Set();
  const prose = proseOf(text);
  text.split("\n").forEach((line, index) => {
    if (!/^#{1,6} /.test(line) || !/^#/.test(prose[index])) return;
    const slug = line
      .replace(/^#+ +/, "")
      .trim()
      .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, "$1")
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}\p{M}\s_-]/gu, "")
      .replaceAll(/\s/g, "-");
    const times = seen.get(slug) ?? 0;
    seen.set(slug, times + 1);
    found.add(times === 0 ? slug : `${slug}-${times}`);
  });
  return found;
}
