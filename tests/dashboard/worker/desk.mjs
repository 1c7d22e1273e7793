/**
 * A morning at a small publisher's, on the real Worker: what the dashboard is for. The hours before
 * it are lived through on a moved clock; the month before that is written into the database.
 */

import { admin } from "../../e2e/lib/client.mjs";
import { setStage, uniqueTag } from "../../e2e/lib/stage.mjs";
import { waitFor } from "../../e2e/lib/wait.mjs";
import { ARTICLE, build, daytimeZone } from "../fixtures.mjs";

const MINUTE = 60_000;
/** Where it is day, so that a morning is not cut by midnight. */
const ZONE = daytimeZone();
const ACCOUNT = { dailyCredits: 20_000_000, timezone: ZONE };
const REFUSAL = `{"code":"rest_cannot_create","message":"Not allowed to create posts."}`;
/** What a long article uses, and with it what it costs. */
const TOKENS =
  "[[fault:prompt-tokens:11000]][[fault:output-tokens:3500]][[fault:thought-tokens:900]]";

/** Starts the Worker with four destinations, none of which has anything yet. */
export async function openDesk(name) {
  const stage = await setStage(name, {
    vars: { DIGEST_TIME: "00:00", ON_UNKNOWN: "hold" },
    publishers: ({ url }) => ({
      "site-r2": { kind: "r2", prefix: "files/", accounts: ["acme"] },
      "kominka-cms": hook(`${url}/webhook/kominka`),
      "newsletter": hook(`${url}/webhook/newsletter`),
      "partner": { ...hook(`${url}/webhook/partner`), ambiguous: "at_most_once" },
    }),
  });
  await admin(stage.worker, "PATCH", "/admin/accounts/acme", ACCOUNT);
  return new Desk(stage);
}

const hook = (url) => ({ kind: "webhook", url, secrets: ["HOOK_SECRET"], accounts: ["acme"] });

class Desk {
  constructor(stage) {
    Object.assign(this, { stage, worker: stage.worker, fakes: stage.fakes, client: stage.client });
    /** The rows of the story by name: `{ id, tag, target }`. */
    this.rows = {};
  }

  async close() {
    await this.fakes?.openGate("press");
    await this.stage.close();
  }

  /** Moves the Worker's clock to so many minutes before now. */
  at(minutesAgo) {
    return this.worker.clock(-minutesAgo * MINUTE);
  }

  /** One request of the story; `fault` is what Gemini does the first time. */
  async write(name, { topic, place, publisher, fault, text = ARTICLE, headers = {} }) {
    const tag = uniqueTag();
    const [site, pipeline] = place;
    const target = `${site}/${tag.slice(4)}.md`;
    const body = {
      site,
      pipeline,
      topic,
      userPrompt: `${tag} ${topic} ${TOKENS}[[say:${text}]]`,
      publish: publisher ? [{ publisher, target }] : [],
      windowMinutes: 600,
    };
    if (fault) await this.fakes.script("gemini", tag, fault);
    const answer = await this.client.generate(body, headers);
    const id = answer.json.id ?? answer.json.generationId;
    if (!id) throw new Error(`${name}: ${answer.status} ${answer.text}`);
    this.rows[name] = { id, tag, target, body, topic };
    await waitFor("the first attempt", async () => {
      const { state, deliveries } = await this.client.generation(id);
      return state !== "generated" || deliveries.every(({ attempts }) => attempts.length > 0);
    });
    return this.rows[name];
  }

  /** The month before, as the counters would have it. */
  async liveAMonth() {
    const { usage } = build({ scenario: "ordinary", zone: ZONE });
    await this.worker.sql(
      `INSERT INTO usage_days (account, day, site, pipeline, model, generations, prompt_tokens,
         cached_tokens, output_tokens, thought_tokens, cost_nano, published, replays, saved_nano)
       SELECT 'acme', value ->> 'day', value ->> 'site', value ->> 'pipeline', value ->> 'model',
         value ->> 'generations', value ->> 'promptTokens', value ->> 'cachedTokens',
         value ->> 'outputTokens', value ->> 'thoughtTokens', (value ->> 'costMicroUsd') * 1000,
         value ->> 'generations', value ->> 'replays', (value ->> 'savedMicroUsd') * 1000
       FROM json_each(?1)`,
      JSON.stringify(usage.filter(({ day }) => day !== today())),
    );
  }

  /** Four hours of a morning: most goes well, and all that can go wrong has. */
  async liveAMorning() {
    const { fakes } = this;
    await fakes.script("webhook", "/webhook/kominka", { status: 401, body: REFUSAL }, -1);
    await fakes.script("webhook", "/webhook/newsletter", { status: 503, body: "maintenance" }, -1);
    await fakes.script("webhook", "/webhook/partner", { "commit-then-reset": true });
    for (const [minutesAgo, name, row] of MORNING) {
      await this.at(minutesAgo);
      await this.write(name, row);
    }
    // Two layers retried these; nothing was bought.
    const again = [this.rows.beams, this.rows.beams, this.rows.ferry];
    for (const answer of await Promise.all(again.map(({ body }) => this.client.generate(body)))) {
      if (answer.status !== 200) throw new Error(`no replay: ${answer.status} ${answer.text}`);
    }
    await this.at(0);
    await this.worker.cron();
    await waitFor("the digest", async () => {
      await this.worker.cron();
      return (await this.client.call("GET", "/api/v1/digest")).status === 200;
    });
    await waitFor("replays and publications to be counted", async () => {
      const { items } = await this.usage("group_by=day");
      const found = items.find(({ day }) => day === today());
      return found?.replays === 3 && found.published === 5;
    });
  }

  async usage(query = "group_by=day,site") {
    const from = dayOf(Date.now() - 29 * 86_400_000);
    return (await this.client.call("GET", `/api/v1/usage?from=${from}&${query}`)).json;
  }

  /** The state of a row's only delivery. */
  async delivery(name) {
    return (await this.client.generation(this.rows[name].id)).deliveries[0];
  }

  /** Destinations work again from now on, but for those named. */
  async repair(...stillBroken) {
    await this.fakes.clearScript();
    for (const name of stillBroken) {
      await this.fakes.script("webhook", `/webhook/${name}`, { status: 503 }, -1);
    }
  }
}

const dayOf = (at) => new Intl.DateTimeFormat("sv-SE", { timeZone: ZONE }).format(at);
const today = () => dayOf(Date.now());
const DAILY = ["kominka-journal", "daily"];
const TRANSLATIONS = ["kominka-journal", "translations"];
const FEATURES = ["harbor-weekly", "features"];
const TRAILS = ["trailnotes", "daily"];
const plainly = (topic, place) => ({ topic, place, publisher: "site-r2" });
const refused = (topic) => ({ topic, place: DAILY, publisher: "kominka-cms" });

/** Minutes ago, name, request. */
const MORNING = [
  [171, "sashiko", refused("Sashiko mending for winter coats")],
  [160, "irori", refused("囲炉裏のある暮らしを始める前に")],
  [149, "machiya", refused("町屋の土間を生かす改修")],
  [140, "beams", plainly("Why old beams stay straight", DAILY)],
  [
    130,
    "tides",
    {
      ...plainly("Tide tables, week 49", FEATURES),
      fault: { "max-tokens": true },
      text: `{"week": 49, "tides": [{"day": "Mon", "high": "04:12"`,
    },
  ],
  [118, "ferry", plainly("How the night ferry feeds four hundred people", FEATURES)],
  [
    97,
    "late",
    { topic: "A week of breakfasts in Setouchi", place: TRANSLATIONS, publisher: "newsletter" },
  ],
  [88, "twice", { topic: "Ten knots a hiker needs", place: TRAILS, publisher: "partner" }],
  [75, "map", plainly("Reading a topographic map in fog", TRAILS)],
  [
    70,
    "refusedByGemini",
    {
      ...plainly("Photo essay: the last charcoal burner", FEATURES),
      fault: { "status": 429, "per-day": true },
    },
  ],
  [58, "maps", plainly("The salt road in eleven maps", TRAILS)],
  [
    42,
    "shrines",
    {
      ...plainly("Twelve shrines along the old salt road", TRAILS),
      fault: { "max-tokens": true },
    },
  ],
  [
    34,
    "waiting",
    { topic: "Slow mornings, issue 12", place: TRANSLATIONS, publisher: "newsletter" },
  ],
  [21, "stove", plainly("Choosing a stove for a small cabin", TRAILS)],
  [
    9,
    "roads",
    {
      ...plainly("Winter roads over the pass", TRAILS),
      fault: { "reset-mid": true },
      headers: { "idempotency-key": "winter-roads-49" },
    },
  ],
  [
    1,
    "running",
    {
      topic: "Lanterns of the harbour festival",
      place: FEATURES,
      fault: { gate: "press" },
      headers: { prefer: "wait=0" },
    },
  ],
];
