/**
 * Who is signed in. The credential lives in this module's memory; only when the person asks for it
 * does a copy go to sessionStorage, which ends with the tab. It is never part of an address.
 */

/**
 * @typedef {object} Session
 * @property {string} token  API key or admin token
 * @property {"key" | "admin"} kind
 * @property {string} account  the account an admin looks at; empty: all of them
 */

const STORED_AS = "oncepress.session";

/** @type {Session | null} */
let current = restore();

/** The session of this tab, or null. */
export function session() {
  return current;
}

/**
 * Signs in with a credential that the service has accepted.
 * @param {Session} next
 * @param {boolean} remember  keep it over a reload of this tab
 */
export function signIn(next, remember) {
  current = next;
  if (remember) save();
}

/** Forgets the credential everywhere. */
export function signOut() {
  current = null;
  attempt(() => sessionStorage.removeItem(STORED_AS));
}

/**
 * Chooses the account an admin looks at.
 * @param {string} account
 */
export function chooseAccount(account) {
  if (!current) return;
  current = { ...current, account };
  if (attempt(() => sessionStorage.getItem(STORED_AS))) save();
}

/**
 * Tells what kind of credential a text is: API keys are spelled `opk_…`.
 * @param {string} token
 * @returns {"key" | "admin"}
 */
export function kindOf(token) {
  return token.startsWith("opk_") ? "key" : "admin";
}

function save() {
  attempt(() => sessionStorage.setItem(STORED_AS, JSON.stringify(current)));
}

/** @returns {Session | null} */
function restore() {
  const text = attempt(() => sessionStorage.getItem(STORED_AS));
  const found = text ? attempt(() => JSON.parse(text)) : null;
  return found && typeof found.token === "string" ? found : null;
}

/**
 * A browser may forbid storage altogether; the dashboard then works from memory.
 * @template T
 * @param {() => T} action
 * @returns {T | null}
 */
function attempt(action) {
  try {
    return action();
  } catch {
    return null;
  }
}
