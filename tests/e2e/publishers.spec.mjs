// Every kind of publisher on real bindings, against destinations that can be told to fail.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";

import { expectFresh } from "./lib/expect.mjs";
import { BASE_CONFIG } from "./lib/paths.mjs";
import { setStage, uniqueTag } from "./lib/stage.mjs";
import { HOOK_SECRET } from "./lib/worker.mjs";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const ACCOUNTS = ["acme"];
const OLD_SECRET = secretOf("the old hook secret, 32 bytes...");
const NEW_SECRET = secretOf("the new hook secret, 32 bytes...");
const SECRETS = {
  OLD_SECRET,
  NEW_SECRET,
  GITHUB_TOKEN: "github_pat_e2e",
  WORDPRESS_PASSWORD: "abcd efgh ijkl mnop qrst uvwx",
  GHOST_KEY: `6748592f4b9b7a0001f7e0a1:${"ab".repeat(32)}`,
};

let stage;
before(async () => {
  stage = await setStage("publishers", { publishers, secrets: SECRETS, bindings: withQueue() });
  await stage.fakes.control("POST", "config", {
    github: { token: SECRETS.GITHUB_TOKEN },
    wordpress: { user: "editor", password: SECRETS.WORDPRESS_PASSWORD },
    ghost: { key: SECRETS.GHOST_KEY },
  });
});
after(() => stage?.close());

/** As a JSON string, which is how `--var` passes a table. */
function publishers({ url }) {
  const accounts = ACCOUNTS;
  const hook = (name, secrets) => ({
    kind: "webhook",
    url: `${url}/webhook/${name}`,
    secrets,
    accounts,
  });
  return JSON.stringify({
    files: { kind: "r2", prefix: "files/", accounts },
    hook: hook("plain", ["HOOK_SECRET"]),
    signed: hook("signed", ["HOOK_SECRET"]),
    rotating: hook("rotating", ["OLD_SECRET", "NEW_SECRET"]),
    once: { ...hook("once", ["HOOK_SECRET"]), ambiguous: "at_most_once" },
    repo: {
      kind: "github",
      api_base: `${url}/github`,
      repository: "acme/blog",
      token: "GITHUB_TOKEN",
      accounts,
    },
    wp: {
      kind: "wordpress",
      url: `${url}/wordpress`,
      user: "editor",
      password: "WORDPRESS_PASSWORD",
      accounts,
    },
    ghost: { kind: "ghost", url: `${url}/ghost`, key: "GHOST_KEY", accounts },
    out: { kind: "queue", binding: "OUT", accounts },
  });
}

function withQueue() {
  const { queues } = JSON.parse(readFileSync(BASE_CONFIG, "utf8"));
  return { queues: { ...queues, producers: [...queues.producers, { binding: "OUT", queue: "e2e-out" }] } };
}

function secretOf(text) {
  return `whsec_${Buffer.from(text).toString("base64")}`;
}

/** What each kind is told, and what it holds of a delivery afterwards: one entry an effect. */
const KINDS = {
  webhook: {
    publisher: "hook",
    write: "POST /webhook/plain",
    gone: { status: 410, error: /endpoint_gone/ },
    async held(tag) {
      const hooks = (await stage.fakes.hooks("plain", tag)).filter(({ accepted }) => accepted);
      return [...new Set(hooks.map(({ id }) => id))].map((id) => {
        const { data } = JSON.parse(hooks.find((hook) => hook.id === id).body);
        return JSON.stringify(data);
      });
    },
  },
  github: {
    publisher: "repo",
    write: "PUT /github/repos/acme/blog/contents",
    gone: { status: 404, error: /target_missing/ },
    async held(tag) {
      const { repos } = await stage.fakes.control("GET", "github");
      const { commits, files } = repos["acme/blog"]?.main ?? { commits: [], files: {} };
      const ours = commits.filter((commit) => JSON.stringify(commit).includes(tag));
      return ours.map(() => files[`${tag}.md`]?.text ?? "");
    },
  },
  wordpress: {
    publisher: "wp",
    write: "POST /wordpress/wp-json/wp/v2/posts",
    gone: { status: 404, error: /target_missing/ },
    held: (tag) => posts("wordpress", tag, ({ status }) => status === "publish"),
  },
  ghost: {
    publisher: "ghost",
    write: "POST /ghost/ghost/api/admin/posts",
    gone: { status: 404, error: /target_missing/ },
    held: (tag) => posts("ghost", tag, ({ status }) => status === "published"),
  },
};

async function posts(service, tag, isPublic) {
  const { posts = [] } = await stage.fakes.control("GET", service);
  const texts = posts.filter(isPublic).map((post) => JSON.stringify(post));
  return texts.filter((text) => text.includes(tag));
}

const pass = (ms) => stage.worker.clock(stage.worker.now - Date.now() + ms);

/** Generates a text that holds its tag, owed to these publishers. */
async function make(...publishers) {
  const tag = uniqueTag();
  const answer = await stage.client.generate({
    site: "blog",
    pipeline: "daily",
    userPrompt: `${tag} [[say:The text of ${tag}.]]`,
    topic: tag,
    publish: publishers.map((publisher) => ({ publisher, target: `${tag}.md` })),
  });
  expectFresh(answer);
  return { tag, id: answer.json.id };
}

const deliveriesOf = async (id) => (await stage.client.generation(id)).deliveries;

/** Drains until the one delivery is as wanted, half an hour a tick. */
async function until(id, wanted) {
  let delivery;
  for (let tick = 0; tick < 12; tick += 1) {
    [delivery] = await deliveriesOf(id);
    if (wanted(delivery)) return delivery;
    await stage.worker.cron();
    await stage.unleased(id);
    [delivery] = await deliveriesOf(id);
    if (wanted(delivery)) return delivery;
    await pass(30 * MINUTE);
  }
  throw new Error(`not as wanted: ${JSON.stringify(delivery)}`);
}

const isOver = ({ status }) => status !== "pending" && status !== "waiting";
const wasTried = ({ attempts }) => attempts.length > 0;

// First of all: receivers check the time, and theirs is not moved.
describe("webhook signatures", () => {
  test("fit the standard's check, and a receiver with another secret refuses them", async () => {
    const { tag, id } = await make("signed");
    assert.equal((await until(id, isOver)).status, "published");
    const [hook] = await stage.fakes.hooks("signed", tag);
    assert.equal(hook.verified, true);
    await stage.fakes.control("POST", "config", { webhook: { signed: { secrets: [NEW_SECRET] } } });
    const refused = await make("signed");
    const dead = await until(refused.id, isOver);
    assert.match(dead.error, /credentials_refused/);
    await stage.fakes.control("POST", "config", { webhook: { signed: { secrets: [HOOK_SECRET] } } });
  });

  test("fit the old and the new secret while keys are changed over", async () => {
    for (const secret of [OLD_SECRET, NEW_SECRET]) {
      await stage.fakes.control("POST", "config", { webhook: { rotating: { secrets: [secret] } } });
      const { tag, id } = await make("rotating");
      const delivery = await until(id, isOver);
      assert.equal(delivery.status, "published", delivery.error);
      assert.equal((await stage.fakes.hooks("rotating", tag))[0].verified, true);
    }
  });
});

for (const [kind, { publisher, write, gone, held }] of Object.entries(KINDS)) {
  const service = kind;
  const fault = (what, times = 1) => stage.fakes.script(service, write, what, times);

  describe(kind, () => {
    test("creates once, with a reference, and a duplicate adds nothing", async () => {
      const { tag, id } = await make(publisher);
      const delivery = await until(id, isOver);
      assert.equal(delivery.status, "published", delivery.error);
      const effects = await held(tag);
      assert.equal(effects.length, 1);
      assert.ok(effects[0].includes(`The text of ${tag}.`), effects[0]);
      if (kind !== "webhook") assert.ok(delivery.reference, "a reference");
      await stage.worker.cron();
      assert.equal((await held(tag)).length, 1);
    });

    test("a lost answer to what took effect is found out: one effect", async () => {
      await fault("commit-then-reset");
      const { tag, id } = await make(publisher);
      const delivery = await until(id, isOver);
      assert.equal(delivery.status, "published", delivery.error);
      assert.equal((await held(tag)).length, 1);
      const found = kind === "github" ? "already_there" : "published";
      assert.deepEqual(
        delivery.attempts.map(({ outcome }) => outcome),
        ["ambiguous", found],
      );
    });

    test("Retry-After is waited for", async () => {
      await fault({ status: 429, headers: { "retry-after": "3600" } });
      const { tag, id } = await make(publisher);
      const { nextAttemptAt, attempts } = await until(id, wasTried);
      const wait = Date.parse(nextAttemptAt) - Date.parse(attempts[0].at);
      assert.ok(wait >= HOUR && wait < 2 * HOUR, `${wait} ms`);
      await pass(59 * MINUTE);
      await stage.worker.cron();
      assert.equal((await deliveriesOf(id))[0].attempts.length, 1);
      assert.equal((await held(tag)).length, 0);
      assert.equal((await until(id, isOver)).status, "published");
      assert.equal((await held(tag)).length, 1);
    });

    test("expired credentials are a dead letter with the reason; after the repair it goes out under its key", async () => {
      await fault(401);
      const { tag, id } = await make(publisher);
      const dead = await until(id, isOver);
      assert.equal(dead.status, "dead");
      assert.match(dead.error, /credentials_refused/);
      assert.equal((await held(tag)).length, 0);
      const path = `/api/v1/outbox/${dead.id}/requeue`;
      const requeued = await stage.client.call("POST", path);
      assert.equal(requeued.status, 200, requeued.text);
      const published = await until(id, isOver);
      assert.equal(published.status, "published", published.error);
      assert.equal(published.id, dead.id);
      assert.equal((await held(tag)).length, 1);
    });

    test("a target that is gone is a dead letter", async () => {
      await fault(gone.status);
      const { tag, id } = await make(publisher);
      const dead = await until(id, isOver);
      assert.equal(dead.status, "dead");
      assert.match(dead.error, gone.error);
      assert.equal((await held(tag)).length, 0);
    });

    test("a redirect is not followed", async () => {
      await fault({ "redirect-to": `${stage.fakes.url}/webhook/elsewhere`, status: 307 });
      const { tag, id } = await make(publisher);
      const tried = await until(id, wasTried);
      assert.equal(tried.status, "pending");
      assert.match(tried.error, /redirect_refused/);
      assert.equal((await held(tag)).length, 0);
      assert.equal((await stage.fakes.hooks("elsewhere")).length, 0);
      assert.equal((await until(id, isOver)).status, "published", "it leads elsewhere no more");
    });
  });
}

test("once at most: a lost answer waits for a person, who may send it again", async () => {
  await stage.fakes.script("webhook", "POST /webhook/once", "commit-then-reset");
  const { tag, id } = await make("once");
  const open = await until(id, isOver);
  assert.equal(open.status, "outcome_unknown");
  await pass(24 * HOUR);
  await stage.worker.cron();
  assert.equal((await stage.fakes.hooks("once", tag)).length, 1);
  await stage.client.call("POST", `/api/v1/outbox/${open.id}/requeue`);
  assert.equal((await until(id, isOver)).status, "published");
  const ids = (await stage.fakes.hooks("once", tag)).map((hook) => hook.id);
  assert.deepEqual(ids, [open.id, open.id]);
});

describe("queue", () => {
  const sent = async (tag, since) => {
    const entries = await stage.worker.journal(since);
    return entries.filter(({ binding, op }) => binding === "OUT" && op === "send").length;
  };

  test("takes one message", async () => {
    const since = (await stage.worker.e2e("GET", "journal")).length;
    const { tag, id } = await make("out");
    assert.equal((await until(id, isOver)).status, "published");
    assert.equal(await sent(tag, since), 1);
  });

  test("takes it again where its answer was lost", async () => {
    await stage.worker.rules({
      binding: "OUT",
      op: "send",
      when: "after",
      times: 1,
      error: "Queue send failed: Network connection lost.",
    });
    const since = (await stage.worker.e2e("GET", "journal")).length;
    const { tag, id } = await make("out");
    const delivery = await until(id, isOver);
    await stage.worker.rules();
    assert.equal(delivery.status, "published");
    assert.equal(delivery.attempts[0].outcome, "ambiguous");
    assert.equal(await sent(tag, since), 2);
  });
});

describe("r2", () => {
  test("puts the raw text under the target, with the key in its metadata", async () => {
    const { tag, id } = await make("files");
    const delivery = await until(id, isOver);
    assert.equal(delivery.status, "published", delivery.error);
    const object = await stage.worker.r2(`files/${tag}.md`);
    assert.equal(object.text, `The text of ${tag}.`);
    assert.equal(object.customMetadata["oncepress-delivery"], delivery.id);
    assert.equal(delivery.reference, `files/${tag}.md`);
  });
});

test("one generation for several destinations: each has its own fate", async () => {
  const { fakes } = stage;
  await fakes.script("wordpress", KINDS.wordpress.write, 422, 1);
  await fakes.script("ghost", KINDS.ghost.write, 503, 1);
  const { tag, id } = await make("files", "hook", "repo", "wp", "ghost", "out");
  const fates = async () =>
    Object.fromEntries((await deliveriesOf(id)).map(({ publisher, status }) => [publisher, status]));
  for (let tick = 0; tick < 6 && (await fates()).ghost === "pending"; tick += 1) {
    await pass(10 * MINUTE);
    await stage.worker.cron();
  }
  assert.deepEqual(await fates(), {
    files: "published",
    hook: "published",
    repo: "published",
    wp: "dead",
    ghost: "published",
    out: "published",
  });
  const keys = (await deliveriesOf(id)).map((delivery) => delivery.id);
  assert.equal(new Set(keys).size, 6, "a key each");
  for (const kind of ["webhook", "github", "ghost"]) {
    assert.equal((await KINDS[kind].held(tag)).length, 1, kind);
  }
});
