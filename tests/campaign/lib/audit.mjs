// The three ledgers side by side: Gemini's bill, the database, the destinations. Every complaint is
// a broken promise; the counts say how much was there to be broken.

import { percentile } from "./options.mjs";

export function audit({ books, callers, lives }) {
  const check = new Audit(books, callers.operations, lives);
  check.bill();
  check.database();
  for (const operation of callers.operations) check.published(operation);
  check.strays();
  const hidden = check.hiddenFor.sort((a, b) => a - b);
  const hiddenMs = { p50: percentile(hidden, 0.5), max: hidden.at(-1) };
  return {
    counts: { ...check.counts, hiddenMs },
    complaints: [...callers.complaints, ...check.complaints],
  };
}

class Audit {
  complaints = [];
  counts = {
    purchases: 0,
    stored: 0,
    cutByFault: 0,
    cutByKill: 0,
    hiddenByKill: 0,
    recovered: 0,
    repeated: 0,
    repeatedByPerson: 0,
    deliveries: 0,
    webhookRepeats: 0,
  };

  /** Milliseconds from Gemini's last byte to the kill that hid it, in lives whose stores were well. */
  hiddenFor = [];

  constructor(books, operations, lives) {
    Object.assign(this, { books, operations, lives });
    this.operationOf = new Map(operations.map((operation) => [operation.tag, operation]));
    this.rowOf = this.#rowsByPurchase();
    this.lastStored = this.#lastStored();
    this.published_ = new Map(
      books.deliveries
        .filter(({ status }) => status === "published")
        .map((delivery) => [delivery.id, delivery]),
    );
  }

  complain(text) {
    this.complaints.push(text);
  }

  // Which generation holds what was bought: an output names its purchase, in the fake's words or id.
  #rowsByPurchase() {
    const bodies = new Map(this.books.outputs.map(({ output_id: id, body }) => [id, body]));
    const rows = new Map();
    for (const row of this.books.generations) {
      if (row.output_id === null) continue;
      let body = bodies.get(row.output_id) ?? "";
      // Large ones are in R2: the caller's answer is the same document.
      if (row.output_where === "r2") body = this.operationOf.get(row.topic)?.text ?? "";
      const name =
        row.surface === "api"
          ? `${row.topic}#${body.match(/\(purchase (\d+)\)/)?.[1]}`
          : body.match(/"responseId": ?"(\w+)"/)?.[1];
      if (rows.has(name)) this.complain(`${row.id}: ${name} is stored twice`);
      rows.set(name, row);
    }
    return rows;
  }

  #rowFor(entry) {
    const operation = this.operationOf.get(tagOf(entry));
    const isApi = operation?.surface === "api";
    return this.rowOf.get(isApi ? `${operation.tag}#${entry.purchase}` : entry.responseId);
  }

  // Of each life: when the last of the answers came that were in the database as it ended.
  #lastStored() {
    const last = new Map();
    for (const entry of this.books.bill.filter(({ billed }) => billed)) {
      const life = this.lives.at(Date.parse(entry.at));
      const row = this.#rowFor(entry);
      if (row !== undefined && this.lives.wasCommitted(row.output_id, life))
        last.set(life, Math.max(last.get(life) ?? 0, answeredAt(entry)));
    }
    return last;
  }

  /** Every purchase is stored, or hidden by a kill; a further one has a reason. */
  bill() {
    const byTag = new Map();
    for (const entry of this.books.bill) {
      const tag = tagOf(entry);
      if (!this.operationOf.has(tag)) this.complain(`Gemini was asked for ${entry.promptStart}`);
      else if (entry.billed) byTag.set(tag, [...(byTag.get(tag) ?? []), entry]);
    }
    for (const [tag, entries] of byTag) {
      const operation = this.operationOf.get(tag);
      entries.sort((a, b) => a.purchase - b.purchase);
      entries.forEach((entry, at) => this.#purchase(operation, entry, at === entries.length - 1));
      const further = entries.length - 1;
      this.counts.repeated += further;
      this.counts.repeatedByPerson += Math.min(further, operation.purchasesByPerson);
      if (operation.hasKey && further > operation.purchasesByPerson)
        this.complain(`${tag}: an operation key was bought ${entries.length} times`);
    }
    for (const { tag } of this.operations)
      if (!byTag.has(tag)) this.complain(`${tag}: answered, and never bought`);
  }

  #purchase(operation, entry, isLast) {
    const name = `${operation.tag}, purchase ${entry.purchase}`;
    const row = this.#rowFor(entry);
    const life = this.lives.at(Date.parse(entry.at));
    const wasKilled = life < this.lives.list.length - 1;
    this.counts.purchases += 1;
    if (row !== undefined) {
      this.counts.stored += 1;
      if (wasKilled && !this.lives.wasCommitted(row.output_id, life)) this.counts.recovered += 1;
      if (!isLast) this.complain(`${name}: stored (${row.state}), and yet bought again`);
    } else if (entry.outcome === "cut") {
      if (cutsItself(entry.fault)) this.counts.cutByFault += 1;
      else if (wasKilled) this.counts.cutByKill += 1;
      else this.complain(`${name}: left by its runner, without fault or kill`);
    } else if (wasKilled) {
      this.counts.hiddenByKill += 1;
      this.#hidden(name, entry, life);
    } else this.complain(`${name}: paid for, answered whole, and lost`);
  }

  // How long storing takes is the machine's affair. What came a second later, and was stored, tells
  // that there was time.
  #hidden(name, entry, life) {
    const { killedAt, rules } = this.lives.list[life];
    if (rules > 0) return;
    const ms = killedAt - answeredAt(entry);
    this.hiddenFor.push(ms);
    const wasOvertaken = this.lastStored.get(life) > answeredAt(entry) + 1_000;
    if (ms > 2_500 && wasOvertaken)
      this.complain(`${name}: answered ${ms} ms before the kill, and not stored`);
  }

  /** At rest nothing is under way, no credits are reserved, and the day's sums are right. */
  database() {
    const { generations, credits, evidence } = this.books;
    for (const { id, state, reason, credits_reserved: reserved } of generations) {
      if (!["generated", "failed", "superseded"].includes(state))
        this.complain(`${id} is ${state} at rest`);
      // What may have been billed and was never seen keeps its reservation, for good.
      if (reserved !== 0 && reason !== "unknown_freed")
        this.complain(`${id} (${state}, ${reason}) reserves ${reserved} at rest`);
    }
    for (const name of evidence) this.complain(`evidence left: ${name}`);
    const sum = (rows, name) => rows.reduce((total, row) => total + row[name], 0);
    for (const name of ["spent", "reserved"]) {
      const [own, said] = [sum(generations, `credits_${name}`), sum(credits, name)];
      if (own !== said) this.complain(`${name} ${own} credits, but the days say ${said}`);
    }
  }

  /** What a caller wanted published is there, once, under one id, and it is what he was answered. */
  published(operation) {
    if (!operation.isDone) {
      this.complain(`${operation.tag}: not answered: ${operation.last ?? "never"}`);
      return;
    }
    for (const { publisher, target } of operation.wanted) {
      const rows = this.#rowsFor(publisher, target);
      const done = rows.filter(({ status }) => status === "published");
      if (done.length !== 1) {
        const said = rows.map(({ status, error }) => `${status} ${error ?? ""}`).join("; ");
        this.complain(`${target} at ${publisher}: ${done.length} published (${said})`);
        continue;
      }
      this.counts.deliveries += 1;
      const effects = this.#effects(publisher, target);
      const ids = new Set(effects.map(({ id }) => id));
      if (publisher === "hook") this.counts.webhookRepeats += effects.length - 1;
      else if (effects.length !== 1)
        this.complain(`${target} at ${publisher}: ${effects.length} effects`);
      if (ids.size !== 1 || (effects[0].id !== undefined && !ids.has(done[0].id)))
        this.complain(`${target} at ${publisher}: ids ${[...ids]}, not ${done[0].id}`);
      const text = outputText(operation);
      if (effects.some((effect) => !effect.holds(text)))
        this.complain(`${target} at ${publisher}: not the text that was answered`);
    }
  }

  #rowsFor(publisher, target) {
    this.byTarget ??= Map.groupBy(this.books.deliveries, (row) => `${row.publisher} ${row.target}`);
    return this.byTarget.get(`${publisher} ${target}`) ?? [];
  }

  /** What a destination holds of a target: ids (where it keeps them) and contents. */
  #effects(publisher, target) {
    this.effects ??= effectsByTarget(this.books.destinations);
    return this.effects.get(`${publisher} ${target}`) ?? [];
  }

  /** Nothing lies at a destination that the database does not know as published. */
  strays() {
    this.effects ??= effectsByTarget(this.books.destinations);
    for (const [name, effects] of this.effects) {
      for (const { id } of effects) {
        if (id !== undefined && !this.published_.has(id)) this.complain(`${name}: stray ${id}`);
      }
    }
  }
}

const tagOf = ({ promptStart }) => promptStart.split(" ")[0];

/** When the fake had said all, if nobody stopped it. */
const answeredAt = ({ at, fault }) => Date.parse(at) + (fault?.delay ?? 0) + 8 * (fault?.drip ?? 0);

// The fake's ledger says which fault a request met: these end the answer by themselves.
const cutsItself = (fault) =>
  Object.keys(fault ?? {}).some((name) => /^(commit-then|reset|close|hang)/.test(name));

function outputText({ surface, text }) {
  if (surface === "api") return JSON.parse(text).output.text;
  const documents =
    surface === "generate"
      ? [JSON.parse(text)]
      : text
          .split(/\r?\n/)
          .filter((line) => line.startsWith("data:"))
          .map((line) => JSON.parse(line.slice("data:".length)));
  return documents
    .flatMap(({ candidates }) => candidates?.[0]?.content?.parts ?? [])
    .map((part) => part.text ?? "")
    .join("");
}

// Commits and posts name the topic, which is the operation's tag.
function targetIn(effect) {
  const [tag] = JSON.stringify(effect).match(/op-\d+-\d+/) ?? [];
  return tag === undefined ? undefined : `${tag}.md`;
}

function effectsByTarget({ objects, hooks, github, wordpress, ghost }) {
  const effects = new Map();
  const add = (name, effect) => effects.set(name, [...(effects.get(name) ?? []), effect]);
  for (const { key, customMetadata, text } of objects) {
    const id = customMetadata?.["oncepress-delivery"];
    add(`files ${key.slice("files/".length)}`, { id, holds: (wanted) => text === wanted });
  }
  for (const { id, body } of hooks) {
    const { data } = JSON.parse(body);
    add(`hook ${data.target}`, { id, holds: (wanted) => body.includes(JSON.stringify(wanted)) });
  }
  const { commits = [], files = {} } = github.repos?.["acme/blog"]?.main ?? {};
  for (const commit of commits) {
    const target = targetIn(commit);
    if (target === undefined) continue;
    const held = files[target]?.text ?? "";
    add(`repo ${target}`, { holds: (wanted) => held.includes(wanted) });
  }
  for (const [name, posts, live] of [
    ["wp", wordpress, "publish"],
    ["ghost", ghost, "published"],
  ]) {
    for (const post of posts.filter(({ status }) => status !== "trash")) {
      add(`${name} ${targetIn(post)}`, { holds: () => post.status === live });
    }
  }
  return effects;
}
