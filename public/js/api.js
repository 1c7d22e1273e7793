/** The service's HTTP contract as this dashboard uses it. */

import { session } from "./session.js";

/** A refusal or a failure, with what the service said about it. */
export class ApiError extends Error {
  /**
   * @param {string} code  the service's stable code, or `offline`, `timeout`, `bad_answer`
   * @param {{status?: number, detail?: string, requestId?: string, retryAfterSeconds?: number}}
   *   more
   */
  constructor(code, more = {}) {
    super(more.detail || code);
    this.code = code;
    this.status = more.status ?? 0;
    this.detail = more.detail ?? "";
    this.requestId = more.requestId ?? "";
    this.retryAfterSeconds = more.retryAfterSeconds ?? 0;
  }
}

/**
 * Reads JSON. Parameters that are empty are left out; an admin's chosen account is added.
 * @param {string} path
 * @param {Record<string, string | number | undefined>} [parameters]
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export function read(path, parameters = {}, signal) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== undefined && value !== "") query.set(name, String(value));
  }
  const who = session();
  if (who?.kind !== "admin") query.delete("account");
  else if (who.account && path.startsWith("/api/")) query.set("account", who.account);
  const text = query.toString();
  return call("GET", text ? `${path}?${text}` : path, undefined, who?.token ?? "", signal);
}

/**
 * Asks for a change.
 * @param {string} path
 * @param {object} [body]
 * @returns {Promise<any>}
 */
export function change(path, body) {
  return call("POST", path, body, session()?.token ?? "");
}

/**
 * Tries a credential without keeping it.
 * @param {string} token
 * @param {"key" | "admin"} kind
 */
export function probe(token, kind) {
  return call("GET", kind === "key" ? "/api/v1/account" : "/admin/health", undefined, token);
}

/**
 * @param {string} method
 * @param {string} path
 * @param {object | undefined} body
 * @param {string} token
 * @param {AbortSignal} [signal]
 */
async function call(method, path, body, token, signal) {
  const deadline = AbortSignal.timeout(TIMEOUT_MS);
  const headers = new Headers({ Accept: "application/json" });
  try {
    headers.set("Authorization", `Bearer ${token}`);
  } catch {
    throw new ApiError("unauthenticated", { status: 401 });
  }
  if (body !== undefined) headers.set("Content-Type", "application/json");
  let response;
  let text;
  try {
    response = await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
      signal: signal ? AbortSignal.any([signal, deadline]) : deadline,
    });
    text = await response.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(deadline.aborted ? "timeout" : "offline");
  }
  return settle(response, text);
}

/**
 * @param {Response} response
 * @param {string} text
 */
function settle(response, text) {
  const requestId = response.headers.get("X-Request-Id") ?? "";
  let value = null;
  try {
    value = text ? JSON.parse(text) : null;
  } catch {
    throw new ApiError("bad_answer", { status: response.status, requestId });
  }
  // The health report of a Worker that is not well comes with 503, and is what was asked for.
  if (response.ok || typeof value?.status === "string") return value;
  if (response.status === 401) dispatchEvent(new Event("oncepress:refused"));
  throw new ApiError(typeof value?.code === "string" ? value.code : "internal", {
    status: response.status,
    detail: typeof value?.detail === "string" ? value.detail : "",
    requestId,
    retryAfterSeconds: Number(response.headers.get("Retry-After")) || 0,
  });
}

/** Longer than a wait of the service (25 s), so that its own answer comes first. */
const TIMEOUT_MS = 30_000;
