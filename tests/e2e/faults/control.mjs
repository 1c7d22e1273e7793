// The tests' side door, under /__e2e/: only this wrapper answers it, the product never sees it.

import { moveClock, now, stopClock } from "./clock.mjs";
import { exhaust, instances } from "./instance.mjs";
import * as journal from "./journal.mjs";
import { holds, release, ruleHits, setRules } from "./rules.mjs";

export const PREFIX = "/__e2e/";

export async function control(request, env) {
  const { pathname, searchParams } = new URL(request.url);
  const command = COMMANDS[`${request.method} ${pathname.slice(PREFIX.length)}`];
  if (!command) return Response.json({ error: "no such command" }, { status: 404 });
  try {
    const body = request.method === "POST" ? JSON.parse((await request.text()) || "{}") : {};
    return Response.json((await command({ body, searchParams, env })) ?? {});
  } catch (error) {
    return Response.json({ error: String(error?.message ?? error) }, { status: 500 });
  }
}

const COMMANDS = {
  "GET ready": () => ({ now: now() }),
  "POST clock": ({ body }) => moveClock(body.offsetMs),
  "POST stop-clock": ({ body }) => stopClock(body.at),
  "POST rules": ({ body }) => setRules(body.rules),
  "GET instances": () => instances(),
  "POST exhaust": () => exhaust(),
  "GET rules": () => ({ hits: ruleHits() }),
  "GET holds": () => ({ holds: holds() }),
  "POST release": ({ body }) => release(body.name),
  "GET journal": ({ searchParams }) => ({
    length: journal.length(),
    entries: journal.since(Number(searchParams.get("since") ?? 0)),
  }),
  "POST sql": async ({ body, env }) => {
    const { results, meta } = await env.DB.prepare(body.sql)
      .bind(...(body.params ?? []))
      .all();
    return { rows: results, rowsRead: meta.rows_read };
  },
  "POST kv": async ({ body, env }) =>
    body.value === undefined
      ? { value: await env.KV_DEDUP.get(body.key) }
      : { done: await env.KV_DEDUP.put(body.key, body.value) },
  "GET kv": async ({ env }) => ({ keys: (await env.KV_DEDUP.list()).keys.map(({ name }) => name) }),
  "GET r2": async ({ env }) => ({ keys: (await env.BUCKET.list()).objects.map(({ key }) => key) }),
  "POST r2": async ({ body, env }) => {
    const object = await env.BUCKET.get(body.key);
    if (object === null) return { found: false };
    const { customMetadata, httpMetadata } = object;
    return { found: true, text: await object.text(), customMetadata, httpMetadata };
  },
};
