// Run once before the specs: the configuration they start from, and a set of empty, migrated
// stores that each Worker gets a copy of.

import { execFileSync } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { experimental_readRawConfig as readRawConfig } from "wrangler";

import { BASE_CONFIG, EMPTY_STORES, FAULTY_ENTRY, ROOT, STATE, WRANGLER } from "./paths.mjs";

rmSync(STATE, { recursive: true, force: true, maxRetries: 5 });
mkdirSync(STATE, { recursive: true });

const { rawConfig } = readRawConfig({ config: join(ROOT, "wrangler.toml") });
const { build: _build, env: _env, $schema: _schema, ...config } = rawConfig;
config.main = FAULTY_ENTRY;
config.d1_databases = config.d1_databases.map((database) => ({
  ...database,
  migrations_dir: resolve(ROOT, database.migrations_dir ?? "migrations"),
}));
if (config.assets?.directory) config.assets.directory = resolve(ROOT, config.assets.directory);
// Tests poll and storm; the one about the rate limit sets its own.
for (const limit of config.ratelimits ?? []) limit.simple = { limit: 1_000_000, period: 60 };
writeFileSync(BASE_CONFIG, JSON.stringify(config, null, 2));

execFileSync(
  WRANGLER,
  [
    "d1",
    "migrations",
    "apply",
    "DB",
    "--local",
    "--config",
    BASE_CONFIG,
    "--persist-to",
    EMPTY_STORES,
  ],
  { cwd: ROOT, env: { ...process.env, CI: "true" }, stdio: ["ignore", "ignore", "inherit"] },
);
