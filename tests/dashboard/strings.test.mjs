/** The string tables: complete, alike, and used. */

import assert from "node:assert/strict";
import { readdir, readFile } from "node:fs/promises";
import { it } from "node:test";
import { en } from "../../public/js/strings/en.js";
import { ja } from "../../public/js/strings/ja.js";

const SOURCE = new URL("../../public/js/", import.meta.url);
const holes = (entry) =>
  [...new Set((typeof entry === "string" ? entry : entry.other).match(/\{\w+\}/g) ?? [])].sort();

it("has a Japanese string for every English one, and no other", () => {
  assert.deepEqual(Object.keys(ja).sort(), Object.keys(en).sort());
});

it("keeps what is filled in alike in both languages", () => {
  for (const [key, entry] of Object.entries(en))
    assert.deepEqual(holes(ja[key]), holes(entry), key);
});

it("defines every string that the code names, and names every string it defines", async () => {
  const files = (await readdir(SOURCE, { recursive: true })).filter(
    (name) => name.endsWith(".js") && !name.startsWith("strings"),
  );
  const code = (
    await Promise.all(files.map((name) => readFile(new URL(name, SOURCE), "utf8")))
  ).join("\n");
  const named = [...code.matchAll(/"([a-z][\w-]*(?:\.[\w-]+)+)"/g)]
    .map((match) => match[1])
    .filter((name) => !/\.(js|session)$/.test(name));
  for (const name of named) assert.ok(name in en, `${name} is named and not defined`);
  const families = [...code.matchAll(/`([a-zA-Z]+\.[\w.]*)\$\{/g)].map((match) => match[1]);
  for (const key of Object.keys(en)) {
    assert.ok(
      code.includes(`"${key}"`) || families.some((family) => key.startsWith(family)),
      `${key} is never shown`,
    );
  }
});

it("never turns text into markup, nor keeps anything beyond the tab", async () => {
  const files = (await readdir(SOURCE, { recursive: true })).filter((name) => name.endsWith(".js"));
  for (const name of files) {
    const code = await readFile(new URL(name, SOURCE), "utf8");
    assert.doesNotMatch(
      code,
      /innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|localStorage|indexedDB|document\.cookie/,
      name,
    );
  }
});
