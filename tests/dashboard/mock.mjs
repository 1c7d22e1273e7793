/**
 * A small stateful double of the service: the dashboard's part of the HTTP contract, and the files of
 * `public/` with the headers of `public/_headers`. A requeued delivery is published a moment later.
 */

import { createServer } from "node:http";
import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";

export const API_KEY = `opk_${"5a".repeat(24)}`;
export const ADMIN_TOKEN = "admin-token-of-the-mock";
/** Text that would run, were it ever taken for markup. */
export const HOSTILE = `<img src=x onerror="window.__pwned=1"><script>window.__pwned=1</script>`;

const PUBLIC = fileURLToPath(new URL("../../public/", import.meta.url));
const TYPES = { ".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml" };
const DRAIN_MS = 700;

/**
 * Starts the double.
 * @param {{scenario?: "ordinary" | "empty" | "large" | "failing" | "slow", zone?: string, currency?: object, hostile?: boolean}} [options]
 */
export async function startMock(options = {}) {
  const state = build(options);
  const rules = await headerRules();
  const server = createServer((request, response) => {
    serve(state, rules, request, response).catch((error) => {
      response.writeHead(500).end(String(error));
    });
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const url = `http://127.0.0.1:${server.address().port}`;
  return { url, state, close: () => new Promise((done) => { server.closeAllConnections(); server.close(done); }) };
}

async function serve(state, rules, request, response) {
  const url = new URL(request.url, "http://mock");
  state.seen.push({ method: request.method, url: request.url, authorization: request.headers.authorization ?? "" });
  if (url.pathname.startsWith("/api/") || url.pathname.startsWith("/admin/")) {
    let text = "";
    for await (const chunk of request) text += chunk;
    if (state.scenario === "slow") await new Promise((done) => setTimeout(done, 60_000));
    const answer = route(state, request, url, text);
    const id = `req_${hex(state.seen.length, 32)}`;
    response.writeHead(answer.status, {
      "Content-Type": answer.status < 400 ? "application/json" : "application/problem+json",
      "Cache-Control": "no-store",
      "X-Request-Id": id,
      ...answer.headers,
    });
    response.end(answer.body === undefined ? "" : JSON.stringify(answer.body));
    return;
  }
  const path = normalize(url.pathname === "/" ? "/index.html" : url.pathname);
  try {
    const content = await readFile(join(PUBLIC, path));
    response.writeHead(200, { "Content-Type": TYPES[extname(path)] ?? "application/octet-stream", ...rules });
    response.end(content);
  } catch {
    response.writeHead(404, rules).end();
  }
}

/** The headers that the platform's asset server would add: the file's one rule covers every path. */
async function headerRules() {
  const lines = (await readFile(join(PUBLIC, "_headers"), "utf8")).split("\n").slice(1).filter(Boolean);
  return Object.fromEntries(lines.map((line) => {
    const at = line.indexOf(":");
    return [line.slice(0, at).trim(), line.slice(at + 1).trim()];
  }));
}

function route(state, request, url, text) {
  const token = (request.headers.authorization ?? "").replace(/^Bearer /, "");
  const admin = token === ADMIN_TOKEN;
  if (!admin && (token !== API_KEY || state.revoked)) return problem(401, "unauthenticated", "The API key is not known.");
  if (url.pathname.startsWith("/admin/") && !admin) return problem(403, "forbidden", "The admin token is needed.");
  if (state.scenario === "failing" && !/account|health/.test(url.pathname)) {
    return problem(503, "store_unavailable", "D1 refused the read.", { "Retry-After": "5" });
  }
  const parts = url.pathname.split("/").slice(1);
  const query = url.searchParams;
  const key = `${request.method} ${url.pathname.replace(/(generations|outbox)\/[^/]+/, "$1/:id")}`;
  const handler = ROUTES[key];
  if (!handler) return problem(404, "not_found", "No such path.");
  return handler(state, { id: parts[3], query, body: text ? JSON.parse(text) : {}, admin });
}

const ROUTES = {
  "GET /api/v1/account": (state, { admin, query }) => admin && !query.get("account")
    ? problem(400, "invalid_request", "Name an account.") : ok(state.account),
  "GET /api/v1/digest": (state) => state.digest ? ok(state.digest) : problem(404, "not_found", "No digest has been made yet."),
  "GET /admin/health": (state) => ok(state.health),
  "GET /admin/accounts": () => ok({ items: [{ account: "default" }, { account: "acme" }], nextCursor: null }),
  "GET /api/v1/usage": usage,
  "GET /api/v1/generations": (state, { query }) => page(state.generations.filter((item) =>
    matches(item, query, { state: "state", site: "site", pipeline: "pipeline", key: "key", requestId: "requestId" })), query),
  "GET /api/v1/generations/:id": (state, { id }) => {
    const found = state.generations.find((item) => item.id === id);
    if (!found) return problem(404, "not_found", "No generation has this id.");
    return ok({ ...found, deliveries: state.deliveries.filter((item) => item.generationId === id) });
  },
  "POST /api/v1/generations/:id/resolve": resolve,
  "GET /api/v1/outbox": (state, { query }) => page(state.deliveries.filter((item) =>
    matches(item, query, { status: "status", publisher: "publisher" })), query),
  "POST /api/v1/outbox/:id/requeue": (state, { id }) => {
    const found = state.deliveries.find((item) => item.id === id);
    if (!found) return problem(404, "not_found", "No delivery has this id.");
    if (!["dead", "cancelled", "outcome_unknown"].includes(found.status)) {
      return problem(409, "invalid_state", `A ${found.status} delivery can't be requeued.`);
    }
    Object.assign(found, { status: "pending", error: null, nextAttemptAt: ago(0) });
    setTimeout(() => publish(found), DRAIN_MS);
    return ok(found);
  },
  "POST /api/v1/outbox/:id/cancel": (state, { id }) => {
    const found = state.deliveries.find((item) => item.id === id);
    if (!found) return problem(404, "not_found", "No delivery has this id.");
    if (["published", "cancelled"].includes(found.status)) {
      return problem(409, "invalid_state", `A ${found.status} delivery can't be cancelled.`);
    }
    Object.assign(found, { status: "cancelled", nextAttemptAt: null });
    return ok(found);
  },
};

function resolve(state, { id, body }) {
  const found = state.generations.find((item) => item.id === id);
  if (!found) return problem(404, "not_found", "No generation has this id.");
  if (!["held", "unknown"].includes(found.state)) return problem(409, "invalid_state", `It is ${found.state}.`);
  const known = { regenerate: "running", abandon: "failed", publish: "generated" };
  if (!known[body.action] || (body.action === "publish" && found.state !== "held")) {
    return problem(400, "invalid_request", "/action: not possible here");
  }
  state.audit.push({ id, ...body });
  found.state = known[body.action];
  Object.assign(found, { reason: undefined, detail: undefined });
  return ok(found);
}

function publish(delivery) {
  delivery.attempts.push({ at: ago(0), status: 201, latencyMs: 212, excerpt: "created" });
  Object.assign(delivery, { status: "published", publishedAt: ago(0), nextAttemptAt: null, error: null,
    reference: `https://example.com/${delivery.target}` });
}

function usage(state, { query }) {
  const from = query.get("from") ?? "0000";
  const to = query.get("to") ?? "9999";
  const groups = (query.get("group_by") || "").split(",").filter(Boolean);
  const sums = new Map();
  const totals = zero();
  for (const row of state.usage) {
    if (row.day < from || row.day > to) continue;
    const name = Object.fromEntries(groups.map((group) => [group, row[group]]));
    const key = JSON.stringify(name);
    if (!sums.has(key)) sums.set(key, { ...name, ...zero() });
    for (const field of FIELDS) {
      sums.get(key)[field] += row[field];
      totals[field] += row[field];
    }
  }
  const price = (item) => item.cost?.microUsd ?? 0;
  const owing = (status) => {
    const rows = state.deliveries.filter((item) => item.status === status);
    const paid = new Set(rows.map((item) => item.generationId));
    return { count: rows.length, microUsd: state.generations.filter((item) => paid.has(item.id))
      .reduce((sum, item) => sum + price(item), 0) };
  };
  const standing = (name) => {
    const rows = state.generations.filter((item) => item.state === name);
    return { count: rows.length, microUsd: rows.reduce((sum, item) => sum + (price(item) || 150_000), 0) };
  };
  const atRisk = { pending: owing("pending"), dead: owing("dead"), outcomeUnknown: owing("outcome_unknown"),
    held: standing("held"), unknown: standing("unknown") };
  const microUsd = Object.values(atRisk).reduce((sum, risk) => sum + risk.microUsd, 0);
  return ok({ from, to, groupBy: groups, items: [...sums.values()], totals, currency: state.currency,
    atRisk: { ...atRisk, microUsd } });
}

const FIELDS = ["generations", "published", "replays", "promptTokens", "cachedTokens", "outputTokens", "thoughtTokens", "costMicroUsd", "savedMicroUsd"];
const zero = () => Object.fromEntries(FIELDS.map((field) => [field, 0]));

function matches(item, query, fields) {
  return Object.entries(fields).every(([name, field]) => !query.get(name) || item[field] === query.get(name));
}

function page(items, query) {
  const limit = Math.min(Number(query.get("limit") ?? 50), 200);
  const start = query.get("cursor") ? Number(Buffer.from(query.get("cursor"), "base64url").toString()) : 0;
  const next = start + limit < items.length ? Buffer.from(String(start + limit)).toString("base64url") : null;
  return ok({ items: items.slice(start, start + limit), nextCursor: next });
}

const ok = (body) => ({ status: 200, body });
const problem = (status, code, detail, headers = {}) => ({ status, headers: { ...headers,
  "X-Oncepress-Error-Code": code, "X-Oncepress-Error-Source": "oncepress" },
  body: { type: "about:blank", title: code, status, code, detail } });

const hex = (seed, length) => createHash("sha256").update(String(seed)).digest("hex").slice(0, length);
const ago = (minutes) => new Date(Date.now() - minutes * 60_000).toISOString();

/** A repeatable pseudo-random number in [0, 1). */
function chance(seed) {
  let value = seed;
  return () => {
    value = (value * 1664525 + 1013904223) % 4294967296;
    return value / 4294967296;
  };
}

const SITES = [["kominka-journal", "daily"], ["harbor-weekly", "features"], ["kominka-journal", "translations"], ["trailnotes", "daily"]];
const TOPICS = ["Sashiko mending for winter coats", "囲炉裏のある暮らしを始める前に", "How the night ferry feeds four hundred people",
  "Reading a topographic map in fog", "Why old beams stay straight", "町屋の土間を生かす改修", "A week of breakfasts in Setouchi", "Choosing a stove for a small cabin"];

/** A zone where it is working hours now, so that "today" has something in it. */
function daytimeZone() {
  const hour = (/** @type {string} */ zone) => Number(new Intl.DateTimeFormat("en-GB", { timeZone: zone, hour: "2-digit" }).format());
  return ["Asia/Tokyo", "Europe/Berlin", "America/Los_Angeles"].find((zone) => hour(zone) >= 9 && hour(zone) < 20) ?? "UTC";
}

function build({ scenario = "ordinary", zone = daytimeZone(), currency, hostile = true }) {
  const state = { scenario, currency, revoked: false, generations: [], deliveries: [], usage: [], audit: [], seen: [],
    account: { account: "default", dailyCredits: 20_000_000, creditsUsed: 6_412_300, creditsReserved: 180_000,
      creditsLeft: 13_407_700, timezone: zone, resetsAt: new Date(Math.ceil(Date.now() / 86_400_000) * 86_400_000).toISOString(), limits: {} },
    health: { status: "ok", environment: "development", faults: [], environmentFault: null, publishers: [],
      staleMinutes: 60, lastTickAt: ago(0.4), kvErrorRate: { week: 0.00042 }, figures: { stale: 0 } },
    digest: null };
  if (scenario === "empty") return state;
  const random = chance(7);
  fillUsage(state, random, zone);
  for (let index = 0; index < (scenario === "large" ? 10_000 : 64); index += 1) addGenerated(state, index, random);
  if (scenario !== "large") addTroubles(state, hostile);
  const newest = (left, right) => right.createdAt.localeCompare(left.createdAt);
  state.generations.sort(newest);
  state.deliveries.sort(newest);
  state.digest = { date: ago(0).slice(0, 10), madeAt: ago(0), figures: { kvErrorRate: 0.00042 }, text: DIGEST };
  return state;
}

function fillUsage(state, random, zone) {
  for (let back = 29; back >= 0; back -= 1) {
    const day = new Intl.DateTimeFormat("sv-SE", { timeZone: zone }).format(new Date(Date.now() - back * 86_400_000));
    const weekend = [0, 6].includes(new Date(`${day}T00:00:00Z`).getUTCDay()) ? 0.45 : 1;
    SITES.forEach(([site, pipeline], index) => {
      const generations = Math.round((14 - index * 3 + random() * 5) * weekend * (back === 0 ? 0.4 : 1));
      const storm = back === 11 && index === 0 ? 16 : back === 4 && index === 1 ? 9 : 0;
      const replays = storm + (random() > 0.72 ? Math.ceil(random() * 3) : 0);
      state.usage.push({ day, site, pipeline, model: index === 1 ? "gemini-3.8-pro" : "gemini-3.8-flash", generations, published: generations, replays,
        promptTokens: generations * 11_000, cachedTokens: generations * 2_600, outputTokens: generations * 3_500,
        thoughtTokens: generations * 900, costMicroUsd: generations * 231_000, savedMicroUsd: replays * 231_000 });
    });
  }
}

function addGenerated(state, index, random, more = {}) {
  const [site, pipeline] = SITES[index % SITES.length];
  const minutes = index * 11 + 3;
  const id = `gen_${hex(`g${index}`, 32)}`;
  const usage = { promptTokens: 10_400 + Math.round(random() * 1_200), cachedTokens: 2_600, outputTokens: 3_100 + Math.round(random() * 800), thoughtTokens: 900 };
  usage.totalTokens = usage.promptTokens + usage.outputTokens + usage.thoughtTokens;
  const generation = { id, key: `idem:default:${site}:${pipeline}:${hex(`k${index}`, 32)}`, fingerprint: hex(`f${index}`, 64),
    state: "generated", account: "default", site, pipeline, topic: TOPICS[index % TOPICS.length], model: "gemini-3.8-flash",
    modelVersion: "gemini-3.8-flash-001", requestId: `req_${hex(`r${index}`, 32)}`, createdAt: ago(minutes),
    completedAt: ago(minutes - 0.6), output: { text: ARTICLE, finishReason: "STOP" }, usage,
    cost: { microUsd: 190_000 + Math.round(random() * 60_000) }, ...more };
  state.generations.push(generation);
  if (generation.state === "generated") addDelivery(state, generation, index);
  if (generation.state === "held") {
    addDelivery(state, generation, index, { status: "waiting", attempts: [], reference: null, publishedAt: null });
  }
  return generation;
}

function addDelivery(state, generation, index, more = {}) {
  const publisher = more.publisher ?? ["site-r2", "kominka-wp", "hooks"][index % 3];
  const delivery = { id: `dlv_${hex(`${generation.id}${publisher}`, 32)}`, generationId: generation.id, publisher,
    target: `${generation.site}/2026-11-${String(1 + (index % 28)).padStart(2, "0")}-${index}.md`, status: "published",
    attempts: [{ at: generation.completedAt, status: 201, latencyMs: 180 + (index % 7) * 31, excerpt: "created" }],
    nextAttemptAt: null, reference: `https://example.com/posts/${index}`, error: null, createdAt: generation.completedAt,
    publishedAt: generation.completedAt, ...more };
  state.deliveries.push(delivery);
  return delivery;
}

/** What makes the page worth opening: refusals, a late row, held and unknown answers, and hostile text. */
function addTroubles(state, withHostile) {
  const rows = state.deliveries;
  const refused = (delivery, tries, status, excerpt, error) => Object.assign(delivery, { status: "dead", publishedAt: null,
    reference: null, error, attempts: Array.from({ length: tries }, (_, index) => ({ at: ago(190 - index * 18),
      status, latencyMs: 240 + index * 9, excerpt })) });
  for (const index of [1, 4, 7, 10, 13]) {
    refused(rows[index], 1, 401, `{"code":"rest_cannot_create","message":"Sorry, you are not allowed to create posts as this user."}`,
      "401 rest_cannot_create: not allowed to create posts as this user");
  }
  refused(rows[5], 10, 503, "upstream connect error", "Attempts used up; the last answer was 503 Service Unavailable");
  refused(rows[6], 1, "target_taken", "", { code: "target_taken", detail: "other content is at kominka-journal/2026-11-07-6.md" });
  Object.assign(rows[2], { status: "pending", publishedAt: null, reference: null, nextAttemptAt: ago(-14),
    attempts: [{ at: ago(34), status: 429, latencyMs: 95, excerpt: "slow down" }] });
  Object.assign(rows[9], { status: "pending", publishedAt: null, reference: null, nextAttemptAt: ago(-41), createdAt: ago(97),
    error: "503 Service Unavailable", attempts: [{ at: ago(96), status: 503, latencyMs: 1_840, excerpt: "maintenance" },
      { at: ago(51), status: 503, latencyMs: 1_610, excerpt: "maintenance" }] });
  Object.assign(rows[0], { status: "pending", publishedAt: null, reference: null, attempts: [], nextAttemptAt: ago(0) });
  Object.assign(rows[8], { status: "outcome_unknown", publishedAt: null, reference: null,
    error: "The connection closed after the request was sent", attempts: [{ at: ago(88), status: "cut", latencyMs: 15_000, excerpt: "" }] });
  const random = chance(3);
  addGenerated(state, 100, random, { state: "held", reason: "max_tokens", detail: "Cut off at the token limit (MAX_TOKENS)", topic: "Twelve shrines along the old salt road",
    createdAt: ago(42), completedAt: ago(41), output: { text: ARTICLE.slice(0, 420), finishReason: "MAX_TOKENS" }, cost: { microUsd: 233_100 } });
  addGenerated(state, 101, random, { state: "held", reason: "invalid_json", detail: "The answer is not valid JSON", topic: "Tide tables, week 49",
    createdAt: ago(130), completedAt: ago(129), output: { text: `{"week": 49, "tides": [`, finishReason: "STOP" }, cost: { microUsd: 88_400 } });
  addGenerated(state, 102, random, { state: "unknown", topic: "Winter roads over the pass", createdAt: ago(9), completedAt: null, output: null, usage: null, cost: null });
  addGenerated(state, 103, random, { state: "failed", topic: "Photo essay: the last charcoal burner", createdAt: ago(75), completedAt: ago(75),
    output: null, usage: null, cost: null,
    reason: "gemini_quota_exhausted", detail: null });
  addGenerated(state, 104, random, { state: "running", topic: "Ten knots a hiker needs", createdAt: ago(0.7), completedAt: null, output: null, usage: null, cost: null });
  if (!withHostile) return;
  const hostile = addGenerated(state, 105, random, { topic: HOSTILE, createdAt: ago(58), completedAt: ago(57), output: { text: `${HOSTILE}\n${ARTICLE}`, finishReason: "STOP" } });
  Object.assign(rows.find((row) => row.generationId === hostile.id), { target: HOSTILE, reference: `javascript:window.__pwned=1`, attempts: [{ at: ago(57), status: 200, latencyMs: 81, excerpt: HOSTILE }] });
}

const ARTICLE = `Why old beams stay straight

The farmhouse at the end of the lane was raised in 1871, and its main beam has not moved by the width of a thumbnail since. Carpenters will tell you that the secret is the tree. It is also the patience.

A pine for a ridge beam was felled in the cold months, when the sap is low, and left where it lay until the following autumn. Its bark stayed on. The trunk lost its water slowly, from the ends, and by the time it was hauled down to the village the fibres had settled into the shape they meant to keep.

Then came the smoke. A hearth burned in the middle of the house every day of the year, and over decades the soot closed the grain. Insects avoid it; damp cannot enter. When you run a hand along such a beam, what you feel is not dirt but a finish that took eighty winters to apply.

What to look for
Stand under the beam and sight along its lower edge. A gentle upward curve is deliberate: builders chose trunks that had grown on a slope, and set the curve against the load. If the edge dips instead, look to the posts before you blame the beam.`;

const DIGEST = `Oncepress, development
Generated 41, published 38, replays 6 (saved $1.39)
Owed over 60 minutes: 1, oldest 97 minutes
Dead 7, held 2, unknown 1; money at risk $2.41
KV errors this week 0.042 %
Spend by site
  kominka-journal  $5.08
  harbor-weekly    $2.54
  trailnotes       $1.15`;

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const mock = await startMock({ scenario: process.argv[2] ?? "ordinary" });
  console.log(`${mock.url}  key ${API_KEY}  admin ${ADMIN_TOKEN}`);
}
