// A caller: one account's key, and what the API answered.

import { ADMIN_TOKEN } from "./worker.mjs";

export class Client {
  constructor(worker, account, key) {
    Object.assign(this, { worker, account, key });
  }

  /** Makes the account, if it is new, and a key of it. */
  static async create(worker, account, { dailyCredits, defaults } = {}) {
    await admin(worker, "POST", "/admin/accounts", { account, dailyCredits });
    const made = await admin(worker, "POST", `/admin/accounts/${account}/keys`, {
      label: "e2e",
      defaults,
    });
    if (made.status !== 201) throw new Error(`no key for ${account}: ${made.status} ${made.text}`);
    return new Client(worker, account, made.json.key);
  }

  /** `POST /api/v1/generations`; a string body goes as it is. */
  generate(body, headers = {}) {
    return this.call("POST", "/api/v1/generations", body, headers);
  }

  call(method, path, body, headers = {}) {
    return send(this.worker, method, path, body, {
      authorization: `Bearer ${this.key}`,
      ...headers,
    });
  }

  async generation(id) {
    return (await this.call("GET", `/api/v1/generations/${id}`)).json;
  }
}

export function admin(worker, method, path, body) {
  return send(worker, method, path, body, { authorization: `Bearer ${ADMIN_TOKEN}` });
}

/** Sends a request and reads the whole answer. */
export async function send(worker, method, path, body, headers = {}) {
  const init = { method, headers: { ...headers } };
  if (body !== undefined) {
    init.body =
      typeof body === "string" || body instanceof Uint8Array ? body : JSON.stringify(body);
    init.headers["content-type"] ??= "application/json";
  }
  const answer = await worker.fetch(path, init);
  const text = await answer.text();
  return { status: answer.status, headers: answer.headers, text, json: parse(text) };
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
