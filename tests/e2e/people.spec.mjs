// What people hear: alerts at a Slack that has its days, the digest over the change of clocks, and
// usage that outlives what it counts.

import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";

import { admin, Client } from "./lib/client.mjs";
import { expectAnswer, expectFresh, expectReplay } from "./lib/expect.mjs";
import { setStage, uniqueTag } from "./lib/stage.mjs";
import { waitFor } from "./lib/wait.mjs";

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** A message that fails twice is dead-lettered: in production it is eleven times, over minutes. */
const QUEUES = {
  producers: [{ binding: "JOBS", queue: "people-jobs" }],
  consumers: [
    {
      queue: "people-jobs",
      max_batch_size: 5,
      max_batch_timeout: 0,
      max_retries: 1,
      retry_delay: 0,
      dead_letter_queue: "people-jobs-dead",
    },
    { queue: "people-jobs-dead", max_batch_size: 10, max_batch_timeout: 0, max_retries: 1 },
  ],
};

let stage;
before(async () => {
  stage = await setStage("people", {
    secrets: ({ url }) => ({ SLACK_WEBHOOK_URL: `${url}/slack/services/T/B/x` }),
    vars: {
      DIGEST_TIME: "02:30",
      DIGEST_TIMEZONE: "Europe/Berlin",
      CURRENCY: "JPY",
      CURRENCY_PER_USD: "150.5",
    },
    publishers: (fakes) => ({
      files: { kind: "r2", prefix: "files/", accounts: ["acme"] },
      hook: hook(fakes, "plain"),
      once: { ...hook(fakes, "once"), ambiguous: "at_most_once" },
    }),
    bindings: { queues: QUEUES },
  });
  await stage.atNoon();
});
after(() => stage?.close());
afterEach(async () => {
  await stage.fakes.clearScript();
  await stage.worker.rules();
});

function hook({ url }, name) {
  return {
    kind: "webhook",
    url: `${url}/webhook/${name}`,
    secrets: ["HOOK_SECRET"],
    accounts: ["acme"],
  };
}

/** Lets time pass on the Worker's clock. */
const pass = (ms) => stage.worker.clock(stage.worker.now - Date.now() + ms);

/** A minute, and its tick, so many times. */
async function minutes(count) {
  for (let minute = 0; minute < count; minute += 1) {
    await pass(MINUTE);
    await stage.worker.cron();
  }
}

/** What Slack has been told, all of it or what is about one pipeline. */
async function told(pipeline = "") {
  const { messages = [] } = await stage.fakes.control("GET", "slack");
  return messages
    .map(({ message }) => ({ title: message.text, text: JSON.stringify(message.blocks) }))
    .filter(({ title }) => title.includes(pipeline));
}

const titles = async (pipeline) => (await told(pipeline)).map(({ title }) => title).sort();

/** The alerts that are gathering or wait to be sent, as the database has them. */
const gathered = (where = "1") =>
  stage.worker.sql(`SELECT * FROM alerts WHERE state <> 'sent' AND ${where} ORDER BY id`);

/** A generation whose webhook is not there. */
async function dead(pipeline) {
  const { tag, body } = stage.owedRequest("hook", { pipeline });
  await stage.fakes.script("webhook", tag, { status: 404 });
  const made = await stage.client.generate(body);
  expectFresh(made);
  // A publisher that fails again and again is left alone for some minutes.
  await waitFor("the dead letter", async () => {
    const [alert] = await gathered(`pipeline = '${pipeline}'`);
    if (!alert) await minutes(1);
    return alert;
  });
}

test("28 duplicates in three pipelines within 5 minutes are 3 messages, as the 5 minutes close", async () => {
  const { client, worker } = stage;
  const storm = [
    ["streams", 11],
    ["layers", 9],
    ["jobs", 8],
  ].map(([pipeline, times]) => ({ pipeline, times, caught: 0 }));
  for (const one of storm) {
    const { body } = stage.request({ pipeline: one.pipeline, topic: `Of the ${one.pipeline}` });
    one.first = await client.generate(body);
    expectFresh(one.first);
    one.body = body;
  }
  await pass(18 * MINUTE);
  await worker.cron();
  const before = (await told("caught")).length;

  // The first of each opens its five minutes; the others come over the next four.
  const begun = worker.now;
  for (let minute = 0; minute < 5; minute += 1) {
    for (const one of storm) {
      const due = minute === 0 ? 1 : Math.ceil((one.times * minute) / 4) - one.caught;
      const answers = await Promise.all(
        Array.from({ length: Math.max(due, 0) }, () => client.generate(one.body)),
      );
      answers.forEach((answer) => expectReplay(answer, one.first));
      one.caught += answers.length;
    }
    await worker.cron();
    if (minute < 4) await pass(MINUTE);
  }
  assert.deepEqual(
    storm.map(({ caught }) => caught),
    [11, 9, 8],
  );
  const open = await gathered("kind = 'duplicate'");
  assert.deepEqual(
    open.map(({ pipeline, count }) => [pipeline, count]).sort(),
    storm.map(({ pipeline, times }) => [pipeline, times]).sort(),
  );
  assert.equal(
    (await told("caught")).length,
    before,
    "nothing is said before the five minutes close",
  );

  const closes = Math.max(...open.map(({ closes_at }) => closes_at));
  assert.ok(closes - begun <= 5 * MINUTE + 10 * SECOND, "they opened with the first duplicate");
  await worker.clock(closes + SECOND - Date.now());
  await worker.cron();
  const messages = (await told("caught")).slice(before);
  assert.deepEqual(messages.map(({ title }) => title).sort(), [
    "11 duplicates caught (acme/blog/streams)",
    "8 duplicates caught (acme/blog/jobs)",
    "9 duplicates caught (acme/blog/layers)",
  ]);
  for (const { text } of messages) {
    assert.match(text, /\*Newest topic\*\\nOf the (streams|layers|jobs)/);
    assert.match(text, /\*Age of the original\*\\n2[0-9] min/);
    assert.match(text, /\*What to do\*\\nNothing/);
  }
  await minutes(12);
  assert.equal((await told("caught")).length, before + 3, "and nothing is said twice");
});

test("Slack answering 500 for an hour loses nothing and holds nothing up", async () => {
  const { client, fakes } = stage;
  await minutes(6);
  const before = (await told()).length;
  await fakes.script("slack", "", { status: 500 }, -1);
  const pipelines = ["down-a", "down-b", "down-c", "down-d", "down-e", "down-f"];
  for (const pipeline of pipelines) {
    await dead(pipeline);
    await minutes(10);
    // Meanwhile the work goes on.
    const { body } = stage.owedRequest("files", { pipeline });
    const made = await client.generate(body);
    expectFresh(made);
    assert.equal((await stage.settled(made.json.id))[0].status, "published");
  }
  assert.equal((await told()).length, before);
  const tries = (await gathered()).reduce((sum, { attempts }) => sum + attempts, 0);
  assert.ok(tries >= 3 && tries <= 60, `${tries} tries within the hour`);

  await fakes.clearScript();
  await minutes(18);
  for (const pipeline of pipelines) {
    assert.deepEqual(await titles(pipeline), [
      `1 delivery is not tried again (acme/blog/${pipeline})`,
    ]);
  }
  assert.deepEqual(await gathered(), []);
});

test("a cut after sending may show that message twice, and no other", async () => {
  const { fakes } = stage;
  const pipelines = ["cut-a", "cut-b", "cut-c"];
  await fakes.script("slack", "cut-b", { "commit-then-reset": true });
  for (const pipeline of pipelines) await dead(pipeline);
  await minutes(12);
  const counts = await Promise.all(pipelines.map(async (name) => (await titles(name)).length));
  assert.deepEqual(counts, [1, 2, 1]);
  assert.deepEqual(await gathered(), []);
});

test("every kind of alert that deliveries and generations raise reaches Slack, with what to do", async () => {
  const { client, fakes } = stage;
  const of = (pipeline, publisher) => stage.owedRequest(publisher, { pipeline });

  const held = of("kind-held", "files");
  await fakes.script("gemini", held.tag, { "max-tokens": true });
  expectAnswer(await client.generate(held.body), 422, "output_held");

  const cut = of("kind-unknown", "files");
  await fakes.script("gemini", cut.tag, { "reset-mid": true });
  expectAnswer(
    await client.generate(cut.body, { "idempotency-key": cut.tag }),
    503,
    "request_reconciliation_pending",
  );

  await dead("kind-dead");

  const lost = of("kind-lost", "once");
  await fakes.script("webhook", lost.tag, { "commit-then-reset": true });
  expectFresh(await client.generate(lost.body));

  const late = of("kind-stale", "hook");
  await fakes.script("webhook", late.tag, { status: 503 }, -1);
  expectFresh(await client.generate(late.body));

  const wanted = [
    ["kind-held", /^1 output is held/, /paid for and stored.*publish, abandon or regenerate/],
    ["kind-unknown", /^1 generation of unknown outcome/, /billed the work/],
    ["kind-dead", /^1 delivery is not tried again/, /target_missing.*requeue/],
    ["kind-lost", /^1 delivery of unknown outcome/, /Look at the destination/],
    ["kind-stale", /^1 delivery is owed for over 60 minutes/, /Look at the last answer/],
  ];
  await minutes(6);
  assert.equal((await told("kind-stale")).length, 0, "an hour has not passed");
  await pass(61 * MINUTE);
  await minutes(8);
  for (const [pipeline, title, text] of wanted) {
    const messages = await told(pipeline);
    assert.equal(messages.length, 1, `${pipeline}: ${JSON.stringify(messages)}`);
    assert.match(messages[0].title, title);
    assert.match(messages[0].text, text);
  }
});

test("a dead-lettered queue message is told, and its key is free", async () => {
  const { client, fakes } = stage;
  const { tag, body } = stage.request({ pipeline: "kind-message" });
  const refusal = { status: 429, "retry-delay": "1s" };
  await fakes.script("gemini", tag, refusal, 2);
  const accepted = await client.generate(body, { prefer: "respond-async" });
  assert.equal(accepted.status, 202, accepted.text);
  await waitFor("the dead letter", async () => (await gathered("kind = 'dead_message'"))[0]);
  await minutes(7);
  const [message, ...more] = await told("kind-message");
  assert.match(message.title, /^1 queue message was given up/);
  assert.match(message.text, /key is free/);
  assert.equal(more.length, 0);
  expectFresh(await client.generate(body));
});

test("over 80 % of an account's credits are told once a day", async () => {
  const { worker } = stage;
  const frugal = await Client.create(worker, "frugal", { dailyCredits: 100_000_000 });
  const first = await frugal.generate(stage.request().body);
  expectFresh(first);
  await minutes(6);
  assert.equal((await told("Over 80 %")).length, 0);
  // The limit comes down to what the next call's estimate all but uses up.
  const [{ estimate }] = await worker.sql(
    "SELECT credits_estimate AS estimate FROM generations WHERE id = ?1",
    first.json.id,
  );
  const dailyCredits = Math.ceil(estimate / 0.85);
  await admin(worker, "PATCH", "/admin/accounts/frugal", { dailyCredits });
  for (let call = 0; call < 2; call += 1) {
    expectFresh(await frugal.generate(stage.request().body));
  }
  await minutes(7);
  const [message, ...more] = await told("Over 80 %");
  assert.match(message.title, /\(frugal\)/);
  assert.match(message.text, /\*Limit\*\\nJPY \d+/);
  assert.match(message.text, /Raise `dailyCredits`/);
  assert.equal(more.length, 0);
});

test("a week in which KV failed in over 0.1 % of its calls is told at the full hour, once", async () => {
  const { client, worker } = stage;
  const today = dayOf(worker.now);
  // A thousand calls that went well; what fails are real reads.
  await worker.sql(
    "INSERT INTO counters (day, name, count) VALUES (?1, 'kv_read', 1000) " +
      "ON CONFLICT DO UPDATE SET count = count + 1000",
    today,
  );
  await worker.rules({ binding: "KV_DEDUP", op: "get", error: "KV GET failed: 500" });
  for (let read = 0; read < 6; read += 1) {
    expectAnswer(await client.generate(stage.request().body), 503, "dedup_unavailable");
  }
  await worker.rules();
  await waitFor("the failures to be counted", async () => {
    const sql = "SELECT SUM(count) AS failed FROM counters WHERE name = 'kv_read_error'";
    return (await worker.sql(sql))[0].failed >= 6;
  });
  await worker.clock(Math.ceil(worker.now / HOUR) * HOUR + SECOND - Date.now());
  await worker.cron();
  await minutes(7);
  const [message, ...more] = await told("KV failed");
  assert.match(message.title, /KV failed in over 0.1 %/);
  assert.match(message.text, /\*Errors\*\\n\d+/);
  assert.equal(more.length, 0);
  await worker.clock(Math.ceil(worker.now / HOUR) * HOUR + SECOND - Date.now());
  await worker.cron();
  await minutes(7);
  assert.equal((await told("KV failed")).length, 1);
});

test("usage, savings and money at risk survive the purge, in the configured currency", async () => {
  const { client, worker } = stage;
  const { body } = stage.owedRequest("files", { pipeline: "purged" });
  const first = await client.generate(body);
  expectFresh(first);
  for (let repeat = 0; repeat < 3; repeat += 1) expectReplay(await client.generate(body), first);
  const heldTag = uniqueTag();
  await stage.fakes.script("gemini", heldTag, { "max-tokens": true });
  const held = { ...body, userPrompt: `${heldTag} Write.`, pipeline: "kept" };
  expectAnswer(await client.generate(held), 422, "output_held");
  await worker.cron();
  await stage.settled(first.json.id);

  const from = dayOf(worker.now - DAY);
  const to = dayOf(worker.now + DAY);
  const path = `/api/v1/usage?from=${from}&to=${to}&group_by=site,pipeline,model,day`;
  const row = async (pipeline) => {
    const { json } = await client.call("GET", path);
    return { ...json.items.find((item) => item.pipeline === pipeline), atRisk: json.atRisk.held };
  };
  const before = await waitFor("replays and publications to be counted", async () => {
    const counted = await row("purged");
    return counted.replays === 3 && counted.published === 1 && counted;
  });
  assert.equal(before.costMicroUsd, first.json.cost.microUsd);
  // Each amount is rounded up once: three times a price is less than three prices rounded up.
  const most = 3 * first.json.cost.microUsd;
  assert.ok(
    before.savedMicroUsd > most - 3 && before.savedMicroUsd <= most,
    JSON.stringify(before),
  );
  assert.ok(before.atRisk.microUsd > 0, JSON.stringify(before));

  await pass(31 * DAY);
  await waitFor("the purge", async () => {
    await worker.clock(Math.ceil(worker.now / (10 * MINUTE)) * 10 * MINUTE + SECOND - Date.now());
    await worker.cron();
    return (await client.call("GET", `/api/v1/generations/${first.json.id}`)).status === 410;
  });
  assert.deepEqual(await row("purged"), before, "and what is held is held still");
  const { json } = await client.call("GET", path);
  assert.deepEqual(json.currency, { code: "JPY", perUsd: "150.5" });
});

const dayOf = (at) => new Date(at).toISOString().slice(0, 10);

/** When Berlin's clocks change, in the months in which they do. */
function lastSunday(year, month) {
  const last = new Date(Date.UTC(year, month, 0));
  return dayOf(last.getTime() - last.getUTCDay() * DAY);
}

const digests = () => stage.worker.sql("SELECT day, made_at FROM digests ORDER BY day");

/** Ticks around half past two in Berlin: each twice, as the platform may fire them. */
async function night(...instants) {
  const { worker } = stage;
  for (const instant of instants) {
    await worker.clock(Date.parse(instant) - Date.now());
    const at = worker.now;
    await Promise.all([worker.cron(at), worker.cron(at)]);
  }
}

test("the digest comes at its local time, once, over both changes of the clocks", async () => {
  const { client, worker } = stage;
  // Of next year, so that the clock only ever goes forward.
  const year = new Date(worker.now).getUTCFullYear() + 1;
  const [spring, autumn] = [lastSunday(year, 3), lastSunday(year, 10)];
  const next = dayOf(Date.parse(autumn) + DAY);
  // Spring: 01:59 is followed by 03:00, so half past two never comes.
  await night(`${spring}T00:29:00Z`, `${spring}T00:59:00Z`);
  assert.ok(!(await digests()).some(({ day }) => day === spring), "01:59 is not 02:30");
  await night(`${spring}T01:00:10Z`, `${spring}T01:05:00Z`, `${spring}T08:00:00Z`);
  // Autumn: half past two comes twice, at 00:30 and at 01:30 UTC.
  await night(`${autumn}T00:29:00Z`);
  assert.ok(!(await digests()).some(({ day }) => day === autumn));
  await night(`${autumn}T00:30:10Z`, `${autumn}T00:31:00Z`, `${autumn}T01:30:10Z`);
  // A cron trigger that comes an hour late still makes it.
  await night(`${next}T02:40:00Z`, `${next}T02:41:00Z`);
  const made = (await digests()).filter(({ day }) => day >= spring);
  assert.deepEqual(
    made.map(({ day, made_at }) => [day, new Date(made_at).toISOString().slice(0, 16)]),
    [
      [spring, `${spring}T01:00`],
      [autumn, `${autumn}T00:30`],
      [next, `${next}T02:40`],
    ],
  );
  for (const { day } of made) {
    assert.equal((await told(`: ${day}`)).length, 1, `${day}: Slack hears of it once`);
  }

  const { json } = await client.call("GET", "/api/v1/digest");
  assert.equal(json.date, next);
  assert.equal(json.figures.day, autumn);
  assert.ok(json.text.startsWith(`${autumn}: generated 0, published 0, spent JPY 0\n`), json.text);
  for (const line of [
    "Duplicates caught: 0",
    "Owed: ",
    "Dead ",
    "Money at risk: JPY ",
    "KV errors",
  ])
    assert.ok(json.text.includes(line), json.text);
  const whole = await admin(worker, "GET", "/api/v1/digest");
  assert.equal(whole.json.date, next);
});
