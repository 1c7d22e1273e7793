// Migrations apply to an empty database and to one in use: each migration after the first is
// applied to a database that the ones before it made and tests/fixtures/rows.sql filled, and no
// row gets lost. Runs on D1 itself, whose way of splitting statements is not SQLite's.

import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { DatabaseSync } from "node:sqlite";

const files = readdirSync("migrations")
  .filter((name) => name.endsWith(".sql"))
  .sort();
const scratch = mkdtempSync(join(tmpdir(), "oncepress-migrations-"));
const folder = join(scratch, "migrations");
const config = join(scratch, "wrangler.json");
mkdirSync(folder);
writeFileSync(
  config,
  JSON.stringify({
    name: "migrations",
    compatibility_date: "2026-09-01",
    d1_databases: [
      { binding: "DB", database_name: "db", database_id: "db", migrations_dir: folder },
    ],
  }),
);

const d1 = (database, ...args) =>
  execFileSync(
    "wrangler",
    ["d1", ...args, "--local", "--config", config, "--persist-to", join(scratch, database)],
    {
      encoding: "utf8",
      env: { ...process.env, CI: "true" },
      stdio: ["ignore", "pipe", "inherit"],
    },
  );
const migrate = (database) => d1(database, "migrations", "apply", "DB");

/** Rows of each table, from the database's own file. */
function counts(database) {
  const d1Folder = join(scratch, database, "v3", "d1", "miniflare-D1DatabaseObject");
  const [file] = readdirSync(d1Folder).filter((name) => /^[0-9a-f]{64}\.sqlite$/.test(name));
  const sqlite = new DatabaseSync(join(d1Folder, file), { readOnly: true });
  const tables = sqlite.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'").all();
  const ours = tables.map(({ name }) => name).filter((name) => !/^(_cf|d1_|sqlite_)/.test(name));
  const count = (name) => sqlite.prepare(`SELECT COUNT(*) AS n FROM ${name}`).get().n;
  const found = Object.fromEntries(ours.sort().map((name) => [name, count(name)]));
  sqlite.close();
  return found;
}

try {
  for (const [index, file] of files.entries()) {
    copyFileSync(join("migrations", file), join(folder, file));
    if (index === 0) {
      migrate("used");
      d1("used", "execute", "DB", "--file", resolve("tests/fixtures/rows.sql"));
      continue;
    }
    const before = counts("used");
    migrate("used");
    const after = counts("used");
    for (const [table, n] of Object.entries(before)) {
      if (after[table] !== n)
        throw new Error(`${file}: ${table} had ${n} rows and has ${after[table]}`);
    }
  }
  migrate("used");
  migrate("empty");
  const [used, empty] = [counts("used"), counts("empty")];
  if (Object.keys(used).join() !== Object.keys(empty).join())
    throw new Error("the two differ in tables");
  const unfilled = Object.entries(used)
    .filter(([, n]) => n === 0)
    .map(([name]) => name);
  if (unfilled.length > 0)
    throw new Error(`tests/fixtures/rows.sql has no row for ${unfilled.join(", ")}`);
  console.log(
    `${files.length} migrations, ${Object.keys(used).length} tables: fine when empty and in use`,
  );
} finally {
  rmSync(scratch, { recursive: true, force: true });
}
