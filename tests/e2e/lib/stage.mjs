// What most specs need: fakes, a Worker that uses them, a client with a key, and requests that no
// other test makes.

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readFile } from "node:fs/promises";

import { Client } from "./client.mjs";
import { Fakes } from "./fakes.mjs";
import { HOOK_SECRET, Worker } from "./worker.mjs";
import { waitFor } from "./wait.mjs";

export const ACCOUNTS = ["acme", "globex"];

/**
 * Starts everything. `vars`, `secrets` and `bindings` go to the Worker, over those of wrangler.toml;
 * `publishers` makes other destinations from the fakes' address, and so may `secrets`.
 */
export async function setStage(name, options = {}) {
  const stage = new Stage();
  try {
    await stage.open(name, options);
    return stage;
  } catch (error) {
    await stage.close();
    throw error;
  }
}

/** Variables that point at the fakes, with a destination of each idempotency class. */
export function varsFor(fakes) {
  const hook = (name) => ({
    kind: "webhook",
    url: `${fakes.url}/webhook/${name}`,
    secrets: ["HOOK_SECRET"],
    accounts: ACCOUNTS,
  });
  return {
    GEMINI_BASE_URL: fakes.url,
    PUBLISHERS: {
      files: { kind: "r2", prefix: "files/", accounts: ACCOUNTS },
      hook: hook("plain"),
      signed: hook("signed"),
      broken: hook("broken"),
    },
    PIPELINES: {},
  };
}

class Stage {
  async open(name, { vars = {}, publishers, secrets = {}, withoutClient, ...options }) {
    this.fakes = await Fakes.start(name);
    await this.fakes.control("POST", "config", { webhook: { signed: { secrets: [HOOK_SECRET] } } });
    const all = { ...varsFor(this.fakes), ...vars };
    if (publishers) all.PUBLISHERS = publishers(this.fakes);
    const known = typeof secrets === "function" ? secrets(this.fakes) : secrets;
    this.worker = await Worker.start(name, { vars: all, secrets: known, ...options });
    this.client = withoutClient
      ? new Client(this.worker, "acme", "none")
      : await Client.create(this.worker, "acme");
  }

  /**
   * Moves the clock to a minute after the next noon in UTC, far from where a day, its credits and
   * its digest begin: for what must not depend on the time at which the tests happen to run.
   */
  atNoon() {
    const { worker } = this;
    const [day, minute] = [86_400_000, 60_000];
    return worker.clock(Math.ceil(worker.now / day) * day + 721 * minute - Date.now());
  }

  /** Ends everything, and sees that no statement was one that the database does not understand. */
  async close() {
    await Promise.all([this.worker?.stop(), this.fakes?.stop()]);
    const log = this.worker ? await readFile(this.worker.log, "utf8") : "";
    assert.deepEqual([...new Set(log.match(/.*SQLITE_ERROR.*/g))], [], this.worker?.log);
  }

  /** A request with a prompt of its own; `tag` finds it in Gemini's ledger. */
  request(overrides = {}) {
    const tag = uniqueTag();
    return {
      tag,
      body: {
        site: "blog",
        pipeline: "daily",
        userPrompt: `${tag} Write.`,
        publish: [],
        ...overrides,
      },
    };
  }

  /** The same, owed to one destination, where it ends up under the tag. */
  owedRequest(publisher = "files", overrides = {}) {
    const { tag, body } = this.request(overrides);
    return { tag, body: { ...body, publish: [{ publisher, target: `${tag}.md` }] } };
  }

  /** Waits until the generation has no delivery that is still on its way. */
  async settled(id, client = this.client) {
    return waitFor(`the deliveries of ${id}`, async () => {
      const { deliveries } = await client.generation(id);
      const onItsWay = ({ status }) => status === "waiting" || status === "pending";
      return deliveries.length > 0 && !deliveries.some(onItsWay) ? deliveries : undefined;
    });
  }

  /**
   * Waits until no attempt at a delivery of the generation is under way: time that passes meanwhile
   * would end its lease, and somebody would try it once more.
   */
  async unleased(id) {
    const leased =
      "SELECT COUNT(*) AS n FROM deliveries WHERE generation_id = ? AND lease_token IS NOT NULL";
    const idle = async () => (await this.worker.sql(leased, id))[0].n === 0;
    await waitFor(`the attempts at the deliveries of ${id}`, idle);
  }

  /** What was published to the R2 destination under the tag. */
  async published(tag) {
    return (await this.worker.r2Keys()).filter(
      (key) => key.startsWith("files/") && key.includes(tag),
    );
  }
}

export const uniqueTag = () => `tag-${randomBytes(6).toString("hex")}`;
