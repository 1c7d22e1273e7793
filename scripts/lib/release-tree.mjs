// Writes wrangler.toml and package.json of a release: production at the top level, no [build].
// The text of wrangler.toml is kept, comments included; what it means is checked afterwards.

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { experimental_readRawConfig as readRawConfig } from "wrangler";

const HEAD = `# Oncepress on Cloudflare, built: \`npm run deploy\` needs no Rust. Ids are left out: wrangler creates
# the resources at the first deploy and writes their ids here.
`;

// What an environment does not inherit from the top level (wrangler's own rule).
const PER_ENVIRONMENT = new Set([
  "analytics_engine_datasets",
  "d1_databases",
  "durable_objects",
  "kv_namespaces",
  "queues",
  "r2_buckets",
  "ratelimits",
  "vars",
]);

const [out] = process.argv.slice(2);
const read = (config) => JSON.parse(JSON.stringify(readRawConfig({ config }).rawConfig));

const source = read("wrangler.toml");
const target = join(out, "wrangler.toml");
writeFileSync(target, flat(readFileSync("wrangler.toml", "utf8"), source.env.production.name));

const { env, build, ...top } = source;
const inherited = Object.entries(top).filter(([name]) => !PER_ENVIRONMENT.has(name));
assert.ok(build, "the source has a [build] that a release leaves out");
assert.deepEqual(read(target), { ...Object.fromEntries(inherited), ...env.production });

const { version, license, description, devDependencies } = JSON.parse(
  readFileSync("package.json", "utf8"),
);
const manifest = {
  name: "oncepress",
  version,
  private: true,
  description,
  license,
  scripts: {
    migrate: "wrangler d1 migrations apply DB --remote",
    deploy: "wrangler d1 migrations apply DB --remote && wrangler deploy",
  },
  devDependencies: { wrangler: devDependencies.wrangler },
  // Shown by the Deploy to Cloudflare button.
  cloudflare: {
    bindings: {
      GEMINI_API_KEY: { description: "Key with which Gemini is called." },
      ADMIN_TOKEN: { description: "Bearer token of /admin: 16 random characters or more." },
      SLACK_WEBHOOK_URL: { description: "Slack incoming webhook for alerts; may stay empty." },
    },
  },
};
writeFileSync(join(out, "package.json"), `${JSON.stringify(manifest, null, 2)}\n`);

/** The text without [build] and development, production's tables at the top level. */
function flat(text, name) {
  const [head, rest] = text.split(/^# -+ development$/m);
  const [, production] = rest?.split(/^# -+ production$/m) ?? [];
  if (!production) throw new Error("wrangler.toml no longer has its two marked parts");
  const common = head
    .replace(/^(?:#.*\n)+/, HEAD)
    .replace(/^name = .*$/m, `name = "${name}"`)
    .replace(/^\[build\]\n(?:.+\n)*\n/m, "");
  const flattened = production
    .replace(/^\[env\.production\]\n(?:.+\n)*\n/m, "")
    .replace(/^(\[+)env\.production\./gm, "$1");
  return `${common.trimEnd()}\n\n${flattened.trim()}\n`;
}
