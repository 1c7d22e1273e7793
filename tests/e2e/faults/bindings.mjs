// Bindings under the rules: each is a proxy of the real one, so that the product can't tell.

import { fromReal, now, toReal } from "./clock.mjs";
import { perform } from "./rules.mjs";

/** The product's `env`, with every store and queue under the rules. `where` is who uses it. */
export function wrapEnv(env, where) {
  const wrapped = { ...env };
  for (const [name, binding] of Object.entries(env)) {
    const wrap = WRAPPERS[binding?.constructor?.name];
    if (wrap) wrapped[name] = wrap(name, binding, where);
  }
  return wrapped;
}

/** A Durable Object's state, whose alarms are set in the moved clock and ring in the real one. */
export function wrapState(state) {
  const storage = proxy(state.storage, {
    setAlarm: (moment, options) => state.storage.setAlarm(toReal(moment), options),
    getAlarm: async (options) => fromReal(await state.storage.getAlarm(options)),
  });
  return proxy(state, {}, { storage });
}

/** `fetch`, which is how the product reaches Gemini, Slack and the publishers. */
export function wrapFetch(realFetch) {
  return (input, init) => {
    const subject = typeof input === "string" ? input : input.url;
    return perform({ where: "any", binding: "fetch", op: "fetch", subject }, () =>
      realFetch(input, init),
    );
  };
}

const WRAPPERS = {
  KvNamespace: wrapKv,
  D1Database: wrapD1,
  R2Bucket: (name, bucket, where) =>
    watched(name, bucket, where, ["get", "head", "put", "delete", "list"]),
  WorkerQueue: (name, queue, where) => watched(name, queue, where, ["send", "sendBatch"]),
  DurableObjectNamespace: wrapNamespace,
};

function watched(binding, target, where, operations) {
  const methods = {};
  for (const op of operations) {
    methods[op] = (subject, ...rest) =>
      perform({ where, binding, op, subject: textOf(subject) }, () => target[op](subject, ...rest));
  }
  return proxy(target, methods);
}

function wrapNamespace(binding, namespace, where) {
  const wrapStub = (stub) => watched(binding, stub, where, ["fetch"]);
  return proxy(namespace, {
    get: (...args) => wrapStub(namespace.get(...args)),
    getByName: (...args) => wrapStub(namespace.getByName(...args)),
  });
}

// What was written here and when, in the moved clock: the source of stale reads and of expiry,
// both of which the local KV does not have (or has in real time only).
const kvHistory = new Map();

function wrapKv(binding, kv, where) {
  const read = (op) => (key, options) =>
    perform({ where, binding, op, subject: textOf(key) }, async (rule) => {
      const past = kvHistory.get(key)?.findLast(({ at }) => at <= now() - (rule?.staleMs ?? 0));
      if (rule?.staleMs === undefined && (past === undefined || past.expiresAt > now())) {
        return kv[op](key, options);
      }
      const value = past === undefined || past.expiresAt <= now() ? null : past.value;
      return op === "get"
        ? decode(value, options)
        : { value: decode(value, options), metadata: past?.metadata ?? null };
    });
  const put = (key, value, options) =>
    perform({ where, binding, op: "put", subject: textOf(key) }, async () => {
      await kv.put(key, value, options);
      remember(key, value, options);
    });
  const remove = (key) =>
    perform({ where, binding, op: "delete", subject: textOf(key) }, async () => {
      await kv.delete(key);
      remember(key, null);
    });
  return proxy(kv, {
    get: read("get"),
    getWithMetadata: read("getWithMetadata"),
    put,
    delete: remove,
  });
}

function remember(key, value, { expirationTtl, metadata } = {}) {
  const expiresAt = expirationTtl === undefined ? Infinity : now() + expirationTtl * 1000;
  kvHistory.set(key, [...(kvHistory.get(key) ?? []), { at: now(), value, metadata, expiresAt }]);
}

function decode(value, options) {
  if (value === null) return null;
  const type = typeof options === "string" ? options : (options?.type ?? "text");
  const text = typeof value === "string" ? value : new TextDecoder().decode(value);
  if (type === "json") return JSON.parse(text);
  if (type === "arrayBuffer") return new TextEncoder().encode(text).buffer;
  return text;
}

// A proxied statement, and the real one that a batch needs.
const statements = new WeakMap();

function wrapD1(binding, db, where) {
  const wrapStatement = (real, sql) => {
    const methods = { bind: (...values) => wrapStatement(real.bind(...values), sql) };
    for (const op of ["all", "run", "first", "raw"]) {
      methods[op] = (...args) =>
        perform({ where, binding, op, subject: sql, statements: 1 }, () => real[op](...args));
    }
    const wrapped = proxy(real, methods);
    statements.set(wrapped, { real, sql });
    return wrapped;
  };
  return proxy(db, {
    prepare: (sql) => wrapStatement(db.prepare(sql), sql),
    batch: (list) => {
      const known = list.map((one) => statements.get(one) ?? { real: one, sql: "" });
      const subject = known.map(({ sql }) => sql).join(";\n");
      return perform({ where, binding, op: "batch", subject, statements: known.length }, () =>
        db.batch(known.map(({ real }) => real)),
      );
    },
    exec: (sql) =>
      perform({ where, binding, op: "exec", subject: sql, statements: 1 }, () => db.exec(sql)),
    withSession: (...args) => wrapD1(binding, db.withSession(...args), where),
  });
}

const textOf = (subject) => (typeof subject === "string" ? subject : (subject?.url ?? ""));

// A proxy with some methods and values replaced; all others run on the real object, which checks
// that `this` is really it.
function proxy(target, methods, values = {}) {
  return new Proxy(target, {
    get(_, name) {
      if (Object.hasOwn(methods, name)) return methods[name];
      if (Object.hasOwn(values, name)) return values[name];
      const value = Reflect.get(target, name, target);
      return typeof value === "function" && name !== "constructor" ? value.bind(target) : value;
    },
  });
}
