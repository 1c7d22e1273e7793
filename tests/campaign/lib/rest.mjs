// After the last kill: callers repeat until they are answered, cron drains, a person decides what
// only a person may, and the ledgers are read.

import { waitFor } from "../../e2e/lib/wait.mjs";

const MINUTE = 60_000;
const AT_ONCE = 24;
const PATIENCE = 25; // Minutes: whatever a policy decides by time alone is decided by then.
const ROUNDS_MAX = 120;
const HASTY = { prefer: "wait=0" };

// What a freed generation was to owe waits for good: its successor owes it.
const OWED =
  "SELECT COUNT(*) AS owed FROM deliveries d JOIN generations g ON g.id = d.generation_id " +
  "WHERE d.status NOT IN ('published', 'cancelled') " +
  "AND NOT (d.status = 'waiting' AND g.state = 'failed')";

/** Lets everything settle. */
export async function comeToRest({ worker, fakes, callers, client, say }) {
  await fakes.clearScript();
  await worker.rules();
  for (let round = 0; round < ROUNDS_MAX; round += 1) {
    if (round % 4 === 0) await inParallel(unanswered(callers), (one) => callers.send(one, HASTY));
    if (round >= PATIENCE) await decide({ worker, callers, client });
    const [{ owed }] = await worker.sql(OWED);
    const waiting = unanswered(callers).length;
    if (round % 5 === 0) say(`round ${round} of rest: ${waiting} unanswered, ${owed} owed`);
    if (owed === 0 && waiting === 0) return;
    await runnersDone(worker, round < PATIENCE ? "'running'" : "'running', 'queued'");
    // Deliveries wait for hours after some failures in a row: once they are all that is left, the
    // steps are longer.
    const minutes = round > PATIENCE && unanswered(callers).length === 0 ? 10 : 1;
    await worker.clock(worker.clockMs + minutes * MINUTE);
    await worker.cron();
  }
}

// Time must not pass so fast that a living runner's lease ends, or a message that is on its way is
// overtaken by hours: the local queue keeps real time. A claim that a kill left without a runner or a
// message stays as it is; the cron trigger looks after it, after a quarter of an hour at the latest.
async function runnersDone(worker, states) {
  const running = `SELECT COUNT(*) AS n FROM generations WHERE state IN (${states})`;
  const done = async () => (await worker.sql(running))[0].n === 0;
  await waitFor("the runners", done, { withinMs: 3_000 }).catch(() => undefined);
}

const unanswered = ({ operations }) => operations.filter(({ isDone }) => !isDone);

/** What only a person may do, done by one who says yes to everything. */
export async function decide({ worker, callers, client }) {
  const { byPerson } = callers;
  const reason = "the campaign's person says so";
  const stuck = await worker.sql(
    "SELECT id, key, state FROM generations " +
      "WHERE state = 'held' OR (state = 'unknown' AND operation = 1)",
  );
  for (const { id, key, state } of stuck) {
    const action = state === "held" ? "publish" : "regenerate";
    const path = `/api/v1/generations/${id}/resolve`;
    const answer = await client.call("POST", path, { action, reason });
    if (answer.json?.code === "invalid_state") continue; // Evidence came in meanwhile.
    if (answer.status >= 300) throw new Error(`resolve ${id}: ${answer.status} ${answer.text}`);
    if (action === "publish") byPerson.published += 1;
    else {
      byPerson.regenerated += 1;
      callers.operations.find(({ tag }) => tag === key).purchasesByPerson += 1;
    }
  }
  const dead = await worker.sql("SELECT id FROM deliveries WHERE status = 'dead'");
  for (const { id } of dead) {
    await client.call("POST", `/api/v1/outbox/${id}/requeue`);
    byPerson.requeued += 1;
  }
}

/** Every caller once more: all must get what they got, and nothing may be bought for it. */
export async function replayAll({ fakes, callers }) {
  const before = (await fakes.control("GET", "ledger")).total;
  await inParallel(callers.operations, async (operation) => {
    const answer = await callers.send(operation);
    if (answer?.status !== 200)
      callers.complaints.push(`${operation.tag}: not replayed: ${operation.last ?? "no answer"}`);
  });
  const after = (await fakes.control("GET", "ledger")).total;
  if (after !== before)
    callers.complaints.push(`repeats at rest called Gemini ${after - before} times`);
}

/** What the three sides say: Gemini's bill, the database, the destinations. */
export async function ledgers({ worker, fakes }) {
  const destinations = {
    objects: await objects(worker),
    hooks: (await fakes.control("GET", "webhook/plain")).items.filter(({ accepted }) => accepted),
    github: await fakes.control("GET", "github"),
    wordpress: (await fakes.control("GET", "wordpress")).posts ?? [],
    ghost: (await fakes.control("GET", "ghost")).posts ?? [],
  };
  const evidence = await evidenceLeft(worker);
  const bill = (await fakes.control("GET", "ledger")).entries;
  await worker.stop();
  const sql = (text) => worker.sqlWhileDead(text);
  return {
    bill,
    destinations,
    evidence,
    generations: await sql("SELECT * FROM generations"),
    outputs: await sql("SELECT output_id, body FROM outputs WHERE part = 0"),
    deliveries: await sql("SELECT * FROM deliveries"),
    credits: await sql("SELECT * FROM credit_days"),
  };
}

async function objects(worker) {
  const bucket = await worker.bucket();
  const found = [];
  let cursor;
  do {
    const page = await bucket.list({ prefix: "files/", cursor, include: ["customMetadata"] });
    for (const { key, customMetadata } of page.objects) {
      found.push({ key, customMetadata, text: await (await bucket.get(key)).text() });
    }
    cursor = page.truncated ? page.cursor : undefined;
  } while (cursor !== undefined);
  return found;
}

async function evidenceLeft(worker) {
  const prefix = "_oncepress/evidence/";
  const [bucket, kv] = [await worker.bucket(), await worker.kv()];
  const inR2 = (await bucket.list({ prefix })).objects.map(({ key }) => key);
  const inKv = (await kv.list({ prefix })).keys.map(({ name }) => name);
  return [...inR2, ...inKv];
}

async function inParallel(list, work) {
  const queue = [...list];
  const loop = async () => {
    for (let one = queue.shift(); one !== undefined; one = queue.shift()) await work(one);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, loop));
}
