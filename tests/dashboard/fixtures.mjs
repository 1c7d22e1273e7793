/** What the double of the service holds: a month of three sites, and the troubles of a day. */

import { createHash } from "node:crypto";

/** Text that would run, were it ever taken for markup. */
export const HOSTILE = `<img src=x onerror="window.__pwned=1"><script>window.__pwned=1</script>`;

export const hex = (seed, length) =>
  createHash("sha256").update(String(seed)).digest("hex").slice(0, length);
export const ago = (minutes) => new Date(Date.now() - minutes * 60_000).toISOString();

/** A repeatable pseudo-random number in [0, 1). */
function chance(seed) {
  let value = seed;
  return () => {
    value = (value * 1664525 + 1013904223) % 4294967296;
    return value / 4294967296;
  };
}

const SITES = [
  ["kominka-journal", "daily"],
  ["harbor-weekly", "features"],
  ["kominka-journal", "translations"],
  ["trailnotes", "daily"],
];
const TOPICS = [
  "Sashiko mending for winter coats",
  "囲炉裏のある暮らしを始める前に",
  "How the night ferry feeds four hundred people",
  "Reading a topographic map in fog",
  "Why old beams stay straight",
  "町屋の土間を生かす改修",
  "A week of breakfasts in Setouchi",
  "Choosing a stove for a small cabin",
];

/** A zone where it is working hours now, so that "today" has something in it. */
export function daytimeZone() {
  const hour = (/** @type {string} */ zone) =>
    Number(new Intl.DateTimeFormat("en-GB", { timeZone: zone, hour: "2-digit" }).format());
  return (
    ["Asia/Tokyo", "Europe/Berlin", "America/Los_Angeles"].find(
      (zone) => hour(zone) >= 9 && hour(zone) < 20,
    ) ?? "UTC"
  );
}

/** The state that a double of the service starts with. */
export function build({ scenario = "ordinary", zone = daytimeZone(), currency, hostile = true }) {
  const state = {
    scenario,
    currency,
    revoked: false,
    generations: [],
    deliveries: [],
    usage: [],
    audit: [],
    seen: [],
    account: {
      account: "default",
      dailyCredits: 20_000_000,
      creditsUsed: 6_412_300,
      creditsReserved: 180_000,
      creditsLeft: 13_407_700,
      timezone: zone,
      resetsAt: new Date(Math.ceil(Date.now() / 86_400_000) * 86_400_000).toISOString(),
      limits: {},
    },
    health: {
      status: "ok",
      environment: "development",
      faults: [],
      environmentFault: null,
      publishers: [],
      staleMinutes: 60,
      lastTickAt: ago(0.4),
      kvErrorRate: { week: 0.00042 },
      figures: { stale: 0 },
    },
    digest: null,
  };
  if (scenario === "empty") return state;
  const random = chance(7);
  fillUsage(state, random, zone);
  for (let index = 0; index < (scenario === "large" ? 10_000 : 64); index += 1)
    addGenerated(state, index, random);
  if (scenario !== "large") addTroubles(state, hostile);
  const newest = (left, right) => right.createdAt.localeCompare(left.createdAt);
  state.generations.sort(newest);
  state.deliveries.sort(newest);
  state.digest = {
    date: ago(0).slice(0, 10),
    madeAt: ago(0),
    figures: { kvErrorRate: 0.00042 },
    text: DIGEST,
  };
  return state;
}

function fillUsage(state, random, zone) {
  for (let back = 29; back >= 0; back -= 1) {
    const day = new Intl.DateTimeFormat("sv-SE", { timeZone: zone }).format(
      new Date(Date.now() - back * 86_400_000),
    );
    const weekend = [0, 6].includes(new Date(`${day}T00:00:00Z`).getUTCDay()) ? 0.45 : 1;
    SITES.forEach(([site, pipeline], index) => {
      const generations = Math.round(
        (14 - index * 3 + random() * 5) * weekend * (back === 0 ? 0.4 : 1),
      );
      const storm = back === 11 && index === 0 ? 16 : back === 4 && index === 1 ? 9 : 0;
      const replays = storm + (random() > 0.72 ? Math.ceil(random() * 3) : 0);
      state.usage.push({
        day,
        site,
        pipeline,
        model: index === 1 ? "gemini-3.8-pro" : "gemini-3.8-flash",
        generations,
        published: generations,
        replays,
        promptTokens: generations * 11_000,
        cachedTokens: generations * 2_600,
        outputTokens: generations * 3_500,
        thoughtTokens: generations * 900,
        costMicroUsd: generations * 231_000,
        savedMicroUsd: replays * 231_000,
      });
    });
  }
}

function addGenerated(state, index, random, more = {}) {
  const [site, pipeline] = SITES[index % SITES.length];
  const minutes = index * 11 + 3;
  const id = `gen_${hex(`g${index}`, 32)}`;
  const usage = {
    promptTokens: 10_400 + Math.round(random() * 1_200),
    cachedTokens: 2_600,
    outputTokens: 3_100 + Math.round(random() * 800),
    thoughtTokens: 900,
  };
  usage.totalTokens = usage.promptTokens + usage.outputTokens + usage.thoughtTokens;
  const generation = {
    id,
    key: `idem:default:${site}:${pipeline}:${hex(`k${index}`, 32)}`,
    fingerprint: hex(`f${index}`, 64),
    state: "generated",
    account: "default",
    site,
    pipeline,
    topic: TOPICS[index % TOPICS.length],
    model: "gemini-3.8-flash",
    modelVersion: "gemini-3.8-flash-001",
    requestId: `req_${hex(`r${index}`, 32)}`,
    createdAt: ago(minutes),
    completedAt: ago(minutes - 0.6),
    output: { text: ARTICLE, finishReason: "STOP" },
    usage,
    cost: { microUsd: 190_000 + Math.round(random() * 60_000) },
    ...more,
  };
  state.generations.push(generation);
  if (generation.state === "generated") addDelivery(state, generation, index);
  if (generation.state === "held") {
    addDelivery(state, generation, index, {
      status: "waiting",
      attempts: [],
      reference: null,
      publishedAt: null,
    });
  }
  return generation;
}

function addDelivery(state, generation, index, more = {}) {
  const publisher = more.publisher ?? ["site-r2", "kominka-wp", "hooks"][index % 3];
  const delivery = {
    id: `dlv_${hex(`${generation.id}${publisher}`, 32)}`,
    generationId: generation.id,
    publisher,
    target: `${generation.site}/2026-11-${String(1 + (index % 28)).padStart(2, "0")}-${index}.md`,
    status: "published",
    attempts: [
      {
        at: generation.completedAt,
        status: 201,
        latencyMs: 180 + (index % 7) * 31,
        excerpt: "created",
      },
    ],
    nextAttemptAt: null,
    reference: `https://example.com/posts/${index}`,
    error: null,
    createdAt: generation.completedAt,
    publishedAt: generation.completedAt,
    ...more,
  };
  state.deliveries.push(delivery);
  return delivery;
}

/** What makes the page worth opening: refusals, a late row, held and unknown answers. */
function addTroubles(state, withHostile) {
  const rows = state.deliveries;
  const refused = (delivery, tries, status, excerpt, error) =>
    Object.assign(delivery, {
      status: "dead",
      publishedAt: null,
      reference: null,
      error,
      attempts: Array.from({ length: tries }, (_, index) => ({
        at: ago(190 - index * 18),
        status,
        latencyMs: 240 + index * 9,
        excerpt,
      })),
    });
  for (const index of [1, 4, 7, 10, 13]) {
    refused(
      rows[index],
      1,
      401,
      `{"code":"rest_cannot_create","message":"Sorry, you are not allowed to create posts as this user."}`,
      "401 rest_cannot_create: not allowed to create posts as this user",
    );
  }
  refused(
    rows[5],
    10,
    503,
    "upstream connect error",
    "Attempts used up; the last answer was 503 Service Unavailable",
  );
  refused(rows[6], 1, "target_taken", "", {
    code: "target_taken",
    detail: "other content is at kominka-journal/2026-11-07-6.md",
  });
  Object.assign(rows[2], {
    status: "pending",
    publishedAt: null,
    reference: null,
    nextAttemptAt: ago(-14),
    attempts: [{ at: ago(34), status: 429, latencyMs: 95, excerpt: "slow down" }],
  });
  Object.assign(rows[9], {
    status: "pending",
    publishedAt: null,
    reference: null,
    nextAttemptAt: ago(-41),
    createdAt: ago(97),
    error: "503 Service Unavailable",
    attempts: [
      { at: ago(96), status: 503, latencyMs: 1_840, excerpt: "maintenance" },
      { at: ago(51), status: 503, latencyMs: 1_610, excerpt: "maintenance" },
    ],
  });
  Object.assign(rows[0], {
    status: "pending",
    publishedAt: null,
    reference: null,
    attempts: [],
    nextAttemptAt: ago(0),
  });
  Object.assign(rows[8], {
    status: "outcome_unknown",
    publishedAt: null,
    reference: null,
    error: "The connection closed after the request was sent",
    attempts: [{ at: ago(88), status: "cut", latencyMs: 15_000, excerpt: "" }],
  });
  const random = chance(3);
  addGenerated(state, 100, random, {
    state: "held",
    reason: "max_tokens",
    detail: "Cut off at the token limit (MAX_TOKENS)",
    topic: "Twelve shrines along the old salt road",
    createdAt: ago(42),
    completedAt: ago(41),
    output: { text: ARTICLE.slice(0, 420), finishReason: "MAX_TOKENS" },
    cost: { microUsd: 233_100 },
  });
  addGenerated(state, 101, random, {
    state: "held",
    reason: "invalid_json",
    detail: "The answer is not valid JSON",
    topic: "Tide tables, week 49",
    createdAt: ago(130),
    completedAt: ago(129),
    output: { text: `{"week": 49, "tides": [`, finishReason: "STOP" },
    cost: { microUsd: 88_400 },
  });
  addGenerated(state, 102, random, {
    state: "unknown",
    topic: "Winter roads over the pass",
    createdAt: ago(9),
    completedAt: null,
    output: null,
    usage: null,
    cost: null,
  });
  addGenerated(state, 103, random, {
    state: "failed",
    topic: "Photo essay: the last charcoal burner",
    createdAt: ago(75),
    completedAt: ago(75),
    output: null,
    usage: null,
    cost: null,
    reason: "gemini_quota_exhausted",
    detail: null,
  });
  addGenerated(state, 104, random, {
    state: "running",
    topic: "Ten knots a hiker needs",
    createdAt: ago(0.7),
    completedAt: null,
    output: null,
    usage: null,
    cost: null,
  });
  if (!withHostile) return;
  const hostile = addGenerated(state, 105, random, {
    topic: HOSTILE,
    createdAt: ago(58),
    completedAt: ago(57),
    output: { text: `${HOSTILE}\n${ARTICLE}`, finishReason: "STOP" },
  });
  Object.assign(
    rows.find((row) => row.generationId === hostile.id),
    {
      target: HOSTILE,
      reference: `javascript:window.__pwned=1`,
      attempts: [{ at: ago(57), status: 200, latencyMs: 81, excerpt: HOSTILE }],
    },
  );
}

export const ARTICLE = `Why old beams stay straight

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
