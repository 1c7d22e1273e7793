// One life of the Worker after the other, each ended by `kill -9`, and what was committed by then.

import { sleep } from "../../e2e/lib/wait.mjs";
import { destinationFaults, storeFaults } from "./faults.mjs";
import { decide } from "./rest.mjs";

const MINUTE = 60_000;
const MOVED_MAX = 8 * 60 * MINUTE; // Operation keys hold for 24 hours, and rest takes time too.

export class Lives {
  list = [];
  #committed = new Map();

  constructor({ worker, fakes, callers, client, random, kills }) {
    Object.assign(this, { worker, fakes, callers, client, random, kills });
  }

  /** Boots, lets callers and faults loose, kills at a random moment. */
  async live() {
    const { worker, fakes, callers, random } = this;
    const bootedAt = Date.now();
    if (this.list.length > 0) {
      worker.clockAtBoot(worker.clockMs + this.#jump());
      await worker.boot();
    }
    // Now and then a person looks at what waits for one.
    if (this.list.length % 10 === 9) await decide(this);
    const rules = storeFaults(random);
    await worker.rules(...rules);
    for (const fault of destinationFaults(random)) await fakes.control("POST", "script", fault);
    callers.release();
    const ticks = this.#ticks();
    await sleep(random.between(150, 3_000));
    callers.shut();
    const [inFlight, killedAt] = [callers.inFlight, Date.now()];
    await worker.kill9();
    await ticks;
    this.list.push({ bootedAt, killedAt, inFlight, rules: rules.length, ...(await this.#left()) });
  }

  // The cron trigger fires once or twice in a life, whatever the minute says.
  async #ticks() {
    const tick = () => this.worker.cron().catch(() => undefined);
    if (this.random.chance(0.6)) await tick();
    await sleep(this.random.between(100, 1_000));
    if (this.random.chance(0.4)) await tick();
  }

  // Time passes while nothing runs, so that leases end in a later life.
  #jump() {
    const scale = Math.min(1, 300 / this.kills);
    const ms = this.random.chance(0.25)
      ? this.random.between(MINUTE, 4 * MINUTE)
      : this.random.between(0, MINUTE / 2);
    return this.worker.clockMs > MOVED_MAX ? 0 : Math.floor(ms * scale);
  }

  /** What the dead process left in the database. */
  async #left() {
    const { worker } = this;
    const found = await worker.sqlWhileDead(
      "SELECT output_id FROM generations WHERE output_id IS NOT NULL",
    );
    for (const { output_id: id } of found) {
      if (!this.#committed.has(id)) this.#committed.set(id, this.list.length);
    }
    const [left] = await worker.sqlWhileDead(
      "SELECT (SELECT COUNT(*) FROM generations WHERE state IN ('queued', 'running')) AS running, " +
        "(SELECT COUNT(*) FROM deliveries WHERE lease_token IS NOT NULL AND status = 'pending') " +
        "AS leased, (SELECT COUNT(*) FROM deliveries WHERE status = 'pending') AS owed",
    );
    return left;
  }

  /** In which life a moment lies; what a dead process had sent still belongs to it. */
  at(moment) {
    return this.list.findLastIndex(({ bootedAt }) => bootedAt <= moment);
  }

  /** Whether the output was in the database when that life ended. */
  wasCommitted(outputId, life) {
    const at = this.#committed.get(outputId);
    return at !== undefined && at <= life;
  }
}
