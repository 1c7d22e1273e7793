// The demo's tour of a running Worker: one purchase, one replay, one publication.

import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const { ADMIN_TOKEN, FAKES_URL, STATE_DIR, WORKER_URL } = process.env;
const ARTICLE = "tests/e2e/fixtures/long-article.json";
const ACCOUNT = "default";

const say = (text) => console.log(`\n\u001b[1m==> ${text}\u001b[0m`);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

await alive();
const key = await accountKey();
const body = readFileSync(ARTICLE, "utf8");
if (FAKES_URL) await fakeAnswerOfAnArticlesLength();

say(
  `Submitting ${ARTICLE} (${body.length} characters, for an article of the pipeline demo/articles)`,
);
const first = await generate();
show(first);
if (![200, 201].includes(first.status)) process.exit(1);
const generation = JSON.parse(first.text);
console.log(`\n${generation.output.text.slice(0, 400)}…\n`);
console.log("usage:", JSON.stringify(generation.usage), "cost:", JSON.stringify(generation.cost));

say("The same request again: answered from the store, free");
const second = await generate();
show(second);
console.log(`same body, byte for byte: ${second.text === first.text}`);
if (second.text !== first.text) process.exit(1);

if (FAKES_URL) {
  say("What the fake Gemini billed");
  const ledger = await (await fetch(`${FAKES_URL}/__fakes/ledger`)).json();
  console.log(`generations: ${ledger.billed}, duplicates: ${ledger.duplicates}`);
  if (ledger.billed !== 1) process.exit(1);
}

say("The delivery: the outbox was drained right after the commit");
const delivery = await published();
console.log(`${delivery.id}: ${delivery.status} at ${delivery.reference}`);
console.log("attempts:", JSON.stringify(delivery.attempts));
console.log("what another drain finds:", (await admin("POST", "/admin/drain")).text);

say("The published object, from the local R2 bucket");
const path = `oncepress-development/articles/${delivery.target}`;
const pipe = ["r2", "object", "get", path, "--local", "--persist-to", STATE_DIR, "--pipe"];
const object = execFileSync("wrangler", pipe, { encoding: "utf8" });
console.log(`${path}: ${Buffer.byteLength(object)} bytes`);
console.log(`the same text: ${object.trim().endsWith(generation.output.text.trim())}`);

const keyFile = join(STATE_DIR, "api-key");
writeFileSync(keyFile, `${key}\n`, { mode: 0o600 });
const known = { URL: WORKER_URL, KEY: key, ...(FAKES_URL && { FAKES: FAKES_URL }) };
const lines = Object.entries(known).map(([name, value]) => `${name}=${value}\n`);
writeFileSync(join(STATE_DIR, "env"), lines.join(""), { mode: 0o600 });
say("Your turn");
console.log(`The dashboard is at ${WORKER_URL}/, the contract at ${WORKER_URL}/openapi.json. Try:

  curl -i ${WORKER_URL}/api/v1/generations \\
    -H "Authorization: Bearer $(cat ${keyFile})" -H "Content-Type: application/json" \\
    -d '{"site":"demo","pipeline":"articles","userPrompt":"Write a haiku about paying once."}'

and the same again; then change a word.${
  FAKES_URL ? ` To see a destination fail and be repaired, do the drill of the README.` : ""
}`);

async function alive() {
  for (let tries = 0; tries < 600; tries += 1) {
    const answer = await fetch(`${WORKER_URL}/healthz`).catch(() => undefined);
    if (answer?.ok) return;
    if (answer?.status === 503 && tries > 50) {
      throw new Error(`the Worker is not well: ${(await admin("GET", "/admin/health")).text}`);
    }
    await sleep(100);
  }
  throw new Error("the Worker did not start");
}

// 14,000 bytes are the 3,500 tokens that such an article has.
function fakeAnswerOfAnArticlesLength() {
  const script = { for: "gemini", match: "", times: 1, fault: { size: 14_000 } };
  return fetch(`${FAKES_URL}/__fakes/script`, { method: "POST", body: JSON.stringify(script) });
}

async function accountKey() {
  await admin("POST", "/admin/accounts", { account: ACCOUNT });
  const made = await admin("POST", `/admin/accounts/${ACCOUNT}/keys`, { label: "demo" });
  if (made.status !== 201) throw new Error(`no API key: ${made.status} ${made.text}`);
  return JSON.parse(made.text).key;
}

function admin(method, path, payload) {
  return call(method, path, ADMIN_TOKEN, payload && JSON.stringify(payload));
}

function generate() {
  return call("POST", "/api/v1/generations", key, body);
}

async function call(method, path, token, payload) {
  const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
  const answer = await fetch(WORKER_URL + path, { method, headers, body: payload });
  return { status: answer.status, headers: answer.headers, text: await answer.text() };
}

function show({ status, headers, text }) {
  console.log(`HTTP ${status}`);
  for (const name of [
    "x-request-id",
    "x-idempotency-replayed",
    "x-oncepress-credits",
    "retry-after",
  ]) {
    if (headers.has(name)) console.log(`${name}: ${headers.get(name)}`);
  }
  console.log(text.length > 300 ? `${text.slice(0, 300)}…` : text);
}

async function published() {
  for (let tries = 0; tries < 50; tries += 1) {
    const { deliveries } = JSON.parse(
      (await call("GET", `/api/v1/generations/${generation.id}`, key)).text,
    );
    if (deliveries[0]?.status === "published") return deliveries[0];
    await sleep(200);
  }
  throw new Error("the delivery was not published");
}
