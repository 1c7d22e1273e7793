/**
 * A small stateful double of the service: the dashboard's part of the HTTP contract, and the files
 * of `public/` with the headers of `public/_headers`. A requeued delivery is published a moment later.
 */

import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";
import { ago, build, hex } from "./fixtures.mjs";

export const API_KEY = `opk_${"5a".repeat(24)}`;
export const ADMIN_TOKEN = "admin-token-of-the-mock";

const PUBLIC = fileURLToPath(new URL("../../public/", import.meta.url));
const TYPES = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript",
  ".css": "text/css",
  ".svg": "image/svg+xml",
};
const DRAIN_MS = 700;

/**
 * Starts the double.
 * @param {object} [options]
 * @param {"ordinary" | "empty" | "large" | "failing" | "slow"} [options.scenario]
 * @param {string} [options.zone]
 * @param {object} [options.currency]
 * @param {boolean} [options.hostile]  with text that would run, were it taken for markup
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
  return {
    url,
    state,
    close: () =>
      new Promise((done) => {
        server.closeAllConnections();
        server.close(done);
      }),
  };
}

async function serve(state, rules, request, response) {
  const url = new URL(request.url, "http://mock");
  state.seen.push({
    method: request.method,
    url: request.url,
    authorization: request.headers.authorization ?? "",
  });
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
    response.writeHead(200, {
      "Content-Type": TYPES[extname(path)] ?? "application/octet-stream",
      ...rules,
    });
    response.end(content);
  } catch {
    response.writeHead(404, rules).end();
  }
}

/** The headers that the platform's asset server adds: the file's one rule covers every path. */
async function headerRules() {
  const lines = (await readFile(join(PUBLIC, "_headers"), "utf8"))
    .split("\n")
    .slice(1)
    .filter(Boolean);
  return Object.fromEntries(
    lines.map((line) => {
      const at = line.indexOf(":");
      return [line.slice(0, at).trim(), line.slice(at + 1).trim()];
    }),
  );
}

function route(state, request, url, text) {
  const token = (request.headers.authorization ?? "").replace(/^Bearer /, "");
  const admin = token === ADMIN_TOKEN;
  if (!admin && (token !== API_KEY || state.revoked))
    return problem(401, "unauthenticated", "The API key is not known.");
  if (url.pathname.startsWith("/admin/") && !admin)
    return problem(403, "forbidden", "The admin token is needed.");
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
  "GET /api/v1/account": (state, { admin, query }) =>
    admin && !query.get("account")
      ? problem(400, "invalid_request", "Name an account.")
      : ok(state.account),
  "GET /api/v1/digest": (state) =>
    state.digest ? ok(state.digest) : problem(404, "not_found", "No digest has been made yet."),
  "GET /admin/health": (state) => ok(state.health),
  "GET /admin/accounts": () =>
    ok({ items: [{ account: "default" }, { account: "acme" }], nextCursor: null }),
  "GET /api/v1/usage": usage,
  "GET /api/v1/generations": (state, { query }) =>
    page(
      state.generations.filter((item) =>
        matches(item, query, {
          state: "state",
          site: "site",
          pipeline: "pipeline",
          key: "key",
          requestId: "requestId",
        }),
      ),
      query,
    ),
  "GET /api/v1/generations/:id": (state, { id }) => {
    const found = state.generations.find((item) => item.id === id);
    if (!found) return problem(404, "not_found", "No generation has this id.");
    return ok({
      ...found,
      deliveries: state.deliveries.filter((item) => item.generationId === id),
    });
  },
  "POST /api/v1/generations/:id/resolve": resolve,
  "GET /api/v1/outbox": (state, { query }) =>
    page(
      state.deliveries.filter((item) =>
        matches(item, query, { status: "status", publisher: "publisher" }),
      ),
      query,
    ),
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
  if (!["held", "unknown"].includes(found.state))
    return problem(409, "invalid_state", `It is ${found.state}.`);
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
  Object.assign(delivery, {
    status: "published",
    publishedAt: ago(0),
    nextAttemptAt: null,
    error: null,
    reference: `https://example.com/${delivery.target}`,
  });
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
    return {
      count: rows.length,
      microUsd: state.generations
        .filter((item) => paid.has(item.id))
        .reduce((sum, item) => sum + price(item), 0),
    };
  };
  const standing = (name) => {
    const rows = state.generations.filter((item) => item.state === name);
    return {
      count: rows.length,
      microUsd: rows.reduce((sum, item) => sum + (price(item) || 150_000), 0),
    };
  };
  const atRisk = {
    pending: owing("pending"),
    dead: owing("dead"),
    outcomeUnknown: owing("outcome_unknown"),
    held: standing("held"),
    unknown: standing("unknown"),
  };
  const microUsd = Object.values(atRisk).reduce((sum, risk) => sum + risk.microUsd, 0);
  return ok({
    from,
    to,
    groupBy: groups,
    items: [...sums.values()],
    totals,
    currency: state.currency,
    atRisk: { ...atRisk, microUsd },
  });
}

const FIELDS = [
  "generations",
  "published",
  "replays",
  "promptTokens",
  "cachedTokens",
  "outputTokens",
  "thoughtTokens",
  "costMicroUsd",
  "savedMicroUsd",
];
const zero = () => Object.fromEntries(FIELDS.map((field) => [field, 0]));

function matches(item, query, fields) {
  return Object.entries(fields).every(
    ([name, field]) => !query.get(name) || item[field] === query.get(name),
  );
}

function page(items, query) {
  const limit = Math.min(Number(query.get("limit") ?? 50), 200);
  const start = query.get("cursor")
    ? Number(Buffer.from(query.get("cursor"), "base64url").toString())
    : 0;
  const next =
    start + limit < items.length ? Buffer.from(String(start + limit)).toString("base64url") : null;
  return ok({ items: items.slice(start, start + limit), nextCursor: next });
}

const ok = (body) => ({ status: 200, body });
const problem = (status, code, detail, headers = {}) => ({
  status,
  headers: { ...headers, "X-Oncepress-Error-Code": code, "X-Oncepress-Error-Source": "oncepress" },
  body: { type: "about:blank", title: code, status, code, detail },
});

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const mock = await startMock({ scenario: process.argv[2] ?? "ordinary" });
  console.log(`${mock.url}  key ${API_KEY}  admin ${ADMIN_TOKEN}`);
}
