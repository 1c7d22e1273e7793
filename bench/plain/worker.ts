// The common recipe, written plainly and fairly: SHA-256 key over a fixed 5-minute bucket, get then
// put in KV, generate, insert into a D1 outbox; a drain publishes what is pending. It keeps what
// the recipe promises and no more, so it is what a replay, a generation and a drain cost without
// the promises of Oncepress.

interface Env {
  KV: KVNamespace;
  DB: D1Database;
  BUCKET: R2Bucket;
  GEMINI_BASE_URL: string;
  GEMINI_API_KEY: string;
  API_KEY: string;
  /** Bound where the benchmark compares both behind a limiter; the recipe has none. */
  RATE_LIMIT?: RateLimit;
}

interface Ask {
  site: string;
  pipeline: string;
  systemPrompt?: string;
  userPrompt: string;
  model?: string;
}

const BUCKET_MS = 5 * 60 * 1000;
const TTL_SECONDS = 30 * 60;
const MODEL = "gemini-3.8-flash";

async function keyOf(ask: Ask, now: number): Promise<string> {
  const material = JSON.stringify([
    ask.site,
    ask.pipeline,
    ask.model ?? MODEL,
    (ask.systemPrompt ?? "").trim(),
    ask.userPrompt.trim(),
    Math.floor(now / BUCKET_MS),
  ]);
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(material));
  const hex = [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, "0"));
  return `idem:${ask.site}:${ask.pipeline}:${hex.join("").slice(0, 32)}`;
}

const json = (status: number, body: unknown) =>
  new Response(JSON.stringify(body), {
    status,
    headers: { "content-type": "application/json; charset=utf-8" },
  });

async function generate(request: Request, env: Env, context: ExecutionContext): Promise<Response> {
  if (request.headers.get("authorization") !== `Bearer ${env.API_KEY}`) {
    return json(401, { error: "unauthenticated" });
  }
  if (env.RATE_LIMIT && !(await env.RATE_LIMIT.limit({ key: "bench" })).success) {
    return json(429, { error: "rate_limited" });
  }
  const ask = (await request.json()) as Ask;
  if (!ask.site || !ask.pipeline || !ask.userPrompt) return json(400, { error: "invalid" });
  const key = await keyOf(ask, Date.now());
  const seen = await env.KV.get(key);
  if (seen !== null) return json(200, { duplicate: true, id: key, output: seen });
  await env.KV.put(key, "running", { expirationTtl: TTL_SECONDS });
  const model = ask.model ?? MODEL;
  const answer = await fetch(`${env.GEMINI_BASE_URL}/v1beta/models/${model}:generateContent`, {
    method: "POST",
    headers: { "content-type": "application/json", "x-goog-api-key": env.GEMINI_API_KEY },
    body: JSON.stringify({
      contents: [{ role: "user", parts: [{ text: ask.userPrompt }] }],
      ...(ask.systemPrompt && { systemInstruction: { parts: [{ text: ask.systemPrompt }] } }),
    }),
  });
  if (!answer.ok) return json(502, { error: "gemini", status: answer.status });
  const result = (await answer.json()) as any;
  const text = result.candidates[0].content.parts.map((part: any) => part.text ?? "").join("");
  const usage = result.usageMetadata;
  await env.DB.prepare(
    `INSERT INTO outbox (id, site, pipeline, payload, input_tokens, output_tokens, status, created_at)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'pending', ?7)`,
  )
    .bind(key, ask.site, ask.pipeline, text, usage.promptTokenCount, usage.candidatesTokenCount, Date.now())
    .run();
  context.waitUntil(env.KV.put(key, text, { expirationTtl: TTL_SECONDS }));
  return json(201, { id: key, output: text, usage });
}

async function drain(env: Env): Promise<number> {
  const { results } = await env.DB.prepare(
    "SELECT id, payload FROM outbox WHERE status = 'pending'",
  ).all<{ id: string; payload: string }>();
  let published = 0;
  for (const row of results) {
    try {
      await env.BUCKET.put(`articles/${row.id}.md`, row.payload);
      await env.DB.prepare("UPDATE outbox SET status = 'published', published_at = ?1 WHERE id = ?2")
        .bind(Date.now(), row.id)
        .run();
      published += 1;
    } catch {
      continue;
    }
  }
  return published;
}

export default {
  async fetch(request, env, context): Promise<Response> {
    const { pathname } = new URL(request.url);
    if (request.method === "POST" && pathname === "/generate") {
      return generate(request, env, context);
    }
    if (request.method === "POST" && pathname === "/drain") {
      return json(200, { published: await drain(env) });
    }
    return json(404, { error: "not_found" });
  },
  async scheduled(_event, env): Promise<void> {
    await drain(env);
  },
} satisfies ExportedHandler<Env>;
