// The transcripts of tests/contract, replayed against real workerd: what a caller sends, and what
// it must get. {tag} is a word that no other transcript uses, {first.id} a member of an earlier
// answer.

import assert from "node:assert/strict";
import { readdir, readFile } from "node:fs/promises";
import { after, test } from "node:test";

import { Client, send } from "./lib/client.mjs";
import { setStage, uniqueTag, varsFor } from "./lib/stage.mjs";
import { minuteWith } from "./lib/wait.mjs";
import { ADMIN_TOKEN } from "./lib/worker.mjs";

const FOLDER = new URL("../contract/transcripts/", import.meta.url);

const files = (await readdir(FOLDER)).filter((name) => name.endsWith(".json")).sort();
const transcripts = await Promise.all(
  files.map(async (name) => {
    const transcript = JSON.parse(await readFile(new URL(name, FOLDER), "utf8"));
    return { number: name.slice(0, 2), ...transcript };
  }),
);

// One Worker for each set of circumstances that the transcripts ask for.
const stages = new Map();
after(() => Promise.all([...stages.values()].map(async (stage) => (await stage).close())));

for (const transcript of transcripts) {
  // Some hold to the millisecond, which only a simulated clock can.
  const exact = transcript.given.some(({ advance }) => advance?.includes("."));
  const options = {
    skip: exact && "exact to the millisecond: checked against the simulated clock",
  };
  test(`${transcript.number} ${transcript.name}`, options, () => replay(transcript));
}

async function replay({ given, request, expect, billed }) {
  const stage = await stageFor(given);
  const scene = {
    stage,
    words: { tag: uniqueTag() },
    caller: "acme",
    clients: { acme: stage.client },
  };
  try {
    if (given.some(({ rateLimit }) => rateLimit !== undefined)) await minuteWith(10_000);
    for (const step of given) await STEPS[stepName(step)]?.(scene, step);
    check(scene, expect, await act(scene, request));
    if (billed !== undefined)
      assert.equal(await stage.fakes.billed(scene.words.tag), billed, "billed");
  } finally {
    await stage.fakes.clearScript();
    await stage.worker.rules();
  }
}

const stepName = (step) => Object.keys(step).find((name) => name in STEPS || name in CIRCUMSTANCES);

// What a Worker is started with; everything else happens while it runs.
const CIRCUMSTANCES = {
  vars: (value) => ({ vars: value }),
  rateLimit: (limit) => ({
    bindings: {
      ratelimits: [{ name: "RATE_LIMIT", namespace_id: "1001", simple: { limit, period: 60 } }],
    },
  }),
  // Time that was moved ahead can't be moved back under rows that were made later.
  advance: (value) => ({ moved: value }),
};

const STEPS = {
  async send(scene, { send: request, as }) {
    const answer = await act(scene, request);
    scene.words[as] = answer;
    assert.ok(answer.status < 500 || answer.json?.code, `${answer.status} ${answer.text}`);
  },
  fault: ({ stage, words }, { fault: { for: service, fault, times } }) =>
    stage.fakes.script(service, service === "gemini" ? words.tag : "", fault, times),
  store: ({ stage }, { store }) =>
    stage.worker.rules(...Object.keys(store).map((kind) => BROKEN[kind])),
  async advance({ stage: { worker } }, { advance }) {
    await worker.clock(worker.now - Date.now() + milliseconds(advance));
    // Some work has its turn in one tick of several.
    for (let tick = 9; tick >= 0; tick -= 1) await worker.cron(worker.now - tick * 60_000);
  },
  async account(scene, { account: { account, ...limits } }) {
    scene.caller = fill(scene, account);
    scene.clients[scene.caller] = await Client.create(scene.stage.worker, scene.caller, limits);
  },
};

const BROKEN = {
  kv: { binding: "KV_DEDUP", error: "KV GET failed: 500 Internal Server Error" },
  d1: { binding: "DB", error: "D1_ERROR: D1 DB is overloaded. Requests queued for too long." },
};

async function stageFor(given) {
  const wanted = {};
  for (const step of given) {
    for (const [name, toOptions] of Object.entries(CIRCUMSTANCES)) {
      if (name in step) Object.assign(wanted, toOptions(step[name]));
    }
  }
  const name = JSON.stringify(wanted);
  if (!stages.has(name)) stages.set(name, openStage(`contract-${stages.size}`, wanted));
  return stages.get(name);
}

async function openStage(name, { moved: _moved, ...options }) {
  // A misconfigured Worker has no accounts, and answers nobody.
  const misconfigured = options.vars?.STALE_MINUTES !== undefined;
  const stage = await setStage(name, {
    ...options,
    withoutClient: misconfigured,
    publishers: PUBLISHERS,
  });
  // Some sum up by the day.
  await stage.atNoon();
  return stage;
}

const PUBLISHERS = (fakes) => ({
  ...varsFor(fakes).PUBLISHERS,
  private: { kind: "r2", prefix: "private/", accounts: ["globex"] },
});

async function act(scene, { method, path, headers = {}, body, bodyText, as = scene.caller }) {
  const payload = bodyText === undefined ? body && JSON.stringify(body) : bodyText;
  const filled = Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [name, fill(scene, value)]),
  );
  const { worker } = scene.stage;
  const request = [
    method,
    fill(scene, path),
    payload === undefined ? undefined : fill(scene, payload),
  ];
  return send(worker, ...request, { ...(await authority(scene, as)), ...filled });
}

async function authority(scene, as) {
  if (as === "nobody") return {};
  if (as === "admin") return { authorization: `Bearer ${ADMIN_TOKEN}` };
  scene.clients[as] ??= await Client.create(scene.stage.worker, as);
  return { authorization: `Bearer ${scene.clients[as].key}` };
}

function check(scene, { status, headers = {}, body, sameBodyAs }, answer) {
  assert.equal(answer.status, status, `${answer.status} ${answer.text.slice(0, 500)}`);
  for (const [name, wanted] of Object.entries(headers)) {
    compare(scene, wanted, answer.headers.get(name), `header ${name}`);
  }
  if (sameBodyAs) assert.equal(answer.text, scene.words[sameBodyAs].text, "the same bytes");
  if (body !== undefined) compare(scene, body, answer.json, "");
}

// Members that are not named may be anything; lists are complete; "/…/" is a regular expression.
function compare(scene, wanted, found, where) {
  if (wanted === null) return assert.equal(found ?? null, null, where);
  if (Array.isArray(wanted)) {
    assert.ok(Array.isArray(found), `${where} is ${JSON.stringify(found)}`);
    assert.equal(found.length, wanted.length, `${where} is ${JSON.stringify(found)}`);
    return wanted.forEach((one, index) => compare(scene, one, found[index], `${where}/${index}`));
  }
  if (typeof wanted === "object") {
    assert.equal(typeof found, "object", `${where} is ${found}`);
    return Object.entries(wanted).forEach(([name, value]) =>
      compare(scene, value, found[name], `${where}/${name}`),
    );
  }
  const [, pattern] = /^\/(.*)\/$/s.exec(wanted) ?? [];
  if (pattern !== undefined) return assert.match(String(found), new RegExp(pattern), where);
  assert.equal(found, typeof wanted === "string" ? fill(scene, wanted) : wanted, where);
}

function fill({ words }, text) {
  return text.replaceAll(/\{(\w+)(?:\.(\w+))?(?::(\d+))?\}/g, (whole, name, member, count) => {
    if (name === "fill") return "x".repeat(Number(count));
    if (!(name in words)) return whole;
    if (member === undefined) return words[name];
    if (member === "requestId") return words[name].headers.get("x-request-id");
    return words[name].json[member];
  });
}

// ISO 8601: P31D, PT48H, PT23H59M, PT29M59.999S.
function milliseconds(duration) {
  const [, days = 0, hours = 0, minutes = 0, seconds = 0] = duration.match(
    /^P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?)?$/,
  );
  return (
    ((Number(days) * 24 + Number(hours)) * 60 + Number(minutes)) * 60_000 + Number(seconds) * 1_000
  );
}
