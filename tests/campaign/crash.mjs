// The crash campaign: a real workerd with its stores on disk, killed again and again at random
// moments under load, while Gemini, destinations and stores fail at random too. Then everything
// comes to rest, and Gemini's bill, the database and the destinations are compared.
//   bash scripts/campaign.sh [--kills 300] [--seed 1] [--callers 10]
// A seed repeats the moments of the kills and the faults of stores and destinations; what a caller
// sends next depends on what it was answered.

import { pathToFileURL } from "node:url";

import { Client } from "../e2e/lib/client.mjs";
import { Fakes } from "../e2e/lib/fakes.mjs";
import { audit } from "./lib/audit.mjs";
import { Callers } from "./lib/callers.mjs";
import { Lives } from "./lib/kills.mjs";
import { option, percentile } from "./lib/options.mjs";
import { Random } from "./lib/random.mjs";
import { comeToRest, ledgers, replayAll } from "./lib/rest.mjs";
import { Workerd } from "./lib/workerd.mjs";

const SECRETS = {
  GITHUB_TOKEN: "github_pat_campaign",
  WORDPRESS_PASSWORD: "abcd efgh ijkl mnop qrst uvwx",
  GHOST_KEY: `6748592f4b9b7a0001f7e0a1:${"ab".repeat(32)}`,
};

/** Runs it all; gives `{ counts, complaints }`. */
export async function runCampaign({ kills, seed, callers: count, say = () => {} }) {
  const fakes = await Fakes.start(`campaign-${seed}`);
  let worker;
  let callers;
  try {
    worker = await Workerd.start("campaign", { vars: variables(fakes), secrets: SECRETS });
    const client = await Client.create(worker, "acme");
    const random = new Random(seed);
    callers = new Callers({ client, random, seed, count });
    const lives = new Lives({ worker, fakes, callers, client, random: random.fork(1_000), kills });
    for (let kill = 1; kill <= kills; kill += 1) {
      await lives.live();
      if (kill % 10 === 0) say(`${kill} kills, ${callers.operations.length} operations`);
    }
    const books = await settle({ worker, fakes, callers, client, lives, say });
    const result = audit({ books, callers, lives });
    const counts = { ...figures({ callers, lives, books }), ...result.counts };
    return { ...result, counts, books, callers, lives };
  } finally {
    await callers?.end();
    await Promise.all([worker?.stop(), fakes.stop()]);
  }
}

async function settle({ worker, fakes, callers, client, lives, say }) {
  lives.list.push({ bootedAt: Date.now() });
  await worker.boot();
  await callers.end();
  // No kill comes after this one, so nothing excuses its loss: tests of the audit count on it.
  callers.add({ fault: () => "", destinations: () => ["files", "hook"] });
  await comeToRest({ worker, fakes, callers, client, say });
  await replayAll({ fakes, callers });
  return ledgers({ worker, fakes });
}

function figures({ callers, lives, books }) {
  const killed = lives.list.slice(0, -1);
  const sum = (name) => killed.reduce((total, life) => total + life[name], 0);
  const billed = books.bill.filter((entry) => entry.billed);
  return {
    kills: killed.length,
    callersCut: sum("inFlight"),
    claimsRunningAtKills: sum("running"),
    deliveriesLeasedAtKills: sum("leased"),
    livesWithStoreFaults: killed.filter(({ rules }) => rules > 0).length,
    operations: callers.operations.length,
    operationKeys: callers.operations.filter(({ hasKey }) => hasKey).length,
    requests: callers.counts,
    byPerson: callers.byPerson,
    askedOfGemini: books.bill.length,
    billed: billed.length,
    cut: billed.filter(({ outcome }) => outcome === "cut").length,
  };
}

function variables({ url }) {
  const accounts = ["acme"];
  const hook = { kind: "webhook", url: `${url}/webhook/plain`, secrets: ["HOOK_SECRET"] };
  const cms = { user: "editor", password: "WORDPRESS_PASSWORD" };
  const repository = { repository: "acme/blog", token: "GITHUB_TOKEN" };
  return {
    GEMINI_BASE_URL: url,
    SUBREQUEST_BUDGET: 1_000, // With the free plan's 50 a tick, rest would take days of moved time.
    PIPELINES: {},
    PUBLISHERS: {
      files: { kind: "r2", prefix: "files/", accounts },
      hook: { ...hook, accounts },
      repo: { kind: "github", api_base: `${url}/github`, ...repository, accounts },
      wp: { kind: "wordpress", url: `${url}/wordpress`, ...cms, accounts },
      ghost: { kind: "ghost", url: `${url}/ghost`, key: "GHOST_KEY", accounts },
    },
  };
}

async function main() {
  const settings = {
    kills: option("kills", 300),
    seed: option("seed", 1),
    callers: option("callers", 10),
  };
  const begun = performance.now();
  const seconds = () => Math.round((performance.now() - begun) / 1000);
  const say = (text) => console.log(`${String(seconds()).padStart(5)} s  ${text}`);
  const { counts, complaints } = await runCampaign({ ...settings, say });
  console.log(JSON.stringify({ ...settings, seconds: seconds(), ...counts }, null, 2));
  for (const complaint of complaints.slice(0, 40)) console.log(`BROKEN: ${complaint}`);
  console.log(complaints.length === 0 ? "No promise broken." : `${complaints.length} broken.`);
  process.exit(complaints.length === 0 ? 0 : 1);
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) await main();
