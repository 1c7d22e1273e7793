// Patient callers in a closed loop: new operations, repeats of unanswered ones, repeats of answered
// ones, and now and then another request under a used key.

import { sleep } from "../../e2e/lib/wait.mjs";
import { Operation } from "./operations.mjs";

const WAITING_MAX = 80; // Above it callers rather repeat than ask for more.

export class Callers {
  operations = [];
  complaints = [];
  counts = { sent: 0, lost: 0, done: 0, conflicts: 0 };
  byPerson = { regenerated: 0, published: 0, requeued: 0 };
  inFlight = 0;
  #stopped = false;
  #open;
  #loops = [];

  constructor({ client, random, seed, count, operationsMax = Infinity }) {
    Object.assign(this, { client, random, seed, operationsMax });
    this.shut();
    this.#loops = Array.from({ length: count }, (_, n) => this.#loop(random.fork(n)));
  }

  /** Callers wait from now on, until the service is there again. */
  shut() {
    this.#open = new Promise((resolve) => (this.release = resolve));
  }

  async end() {
    this.#stopped = true;
    this.release();
    await Promise.all(this.#loops);
  }

  async #loop(random) {
    while (!this.#stopped) {
      await this.#open;
      if (this.#stopped) return;
      await this.#step(random);
      await sleep(random.between(0, 40));
    }
  }

  #step(random) {
    const dice = random.next();
    const answered = this.operations.filter(({ isDone }) => isDone);
    const unanswered = this.operations.filter(({ isDone }) => !isDone);
    const keyed = answered.filter(({ hasKey }) => hasKey);
    if (dice < 0.03 && keyed.length > 0) return this.#conflict(random.pick(keyed));
    if (dice < 0.18 && answered.length > 0) return this.send(random.pick(answered));
    if (dice < 0.5 && unanswered.length > 0) return this.send(random.pick(unanswered));
    if (unanswered.length > WAITING_MAX) return this.send(random.pick(unanswered));
    return this.send(this.#newOperation(random) ?? random.pick(this.operations));
  }

  #newOperation(random) {
    if (this.operations.length >= this.operationsMax) return undefined;
    return this.add({}, random);
  }

  /** One more operation, which is still to be sent. */
  add(options, random = this.random) {
    const { operations, seed } = this;
    const operation = new Operation(random, operations.length, seed, options);
    operations.push(operation);
    return operation;
  }

  /** Sends an operation's request once. A lost connection is no answer. */
  async send(operation, further = {}) {
    const { path, body, headers } = operation.request();
    const answer = await this.#exchange(path, body, { ...headers, ...further });
    if (answer === undefined) return undefined;
    const complaint = operation.take(answer);
    if (complaint !== undefined) this.complaints.push(complaint);
    if (operation.isDone) this.counts.done += 1;
    return answer;
  }

  // The key is another request's: whatever comes, it is not an output.
  async #conflict(operation) {
    const { path, body, headers } = operation.request(`conflict ${operation.tag} Write.`);
    const answer = await this.#exchange(path, body, headers);
    if (answer === undefined) return;
    this.counts.conflicts += 1;
    if (answer.status < 400) this.complaints.push(`${operation.tag}: a conflict got ${answer.text}`);
  }

  async #exchange(path, body, headers) {
    this.counts.sent += 1;
    this.inFlight += 1;
    try {
      return await this.client.call("POST", path, body, headers);
    } catch {
      this.counts.lost += 1;
      return undefined;
    } finally {
      this.inFlight -= 1;
    }
  }
}
