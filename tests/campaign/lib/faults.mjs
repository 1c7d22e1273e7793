// What goes wrong besides the kills: at Gemini (by markers in the prompts, which the fake obeys), at
// the destinations, and in the stores around the product.

const LOST = "D1_ERROR: Network connection lost.";
const OVERLOADED = "D1_ERROR: D1 DB is overloaded. Requests queued for too long.";
const D1 = { binding: "DB", op: "batch|run|all|first|raw" };
const KV = { binding: "KV_DEDUP", error: "KV request failed: 500 Internal Server Error" };
const R2 = { binding: "BUCKET", op: "put", error: "put: We encountered an internal error. (10001)" };

/** What Gemini does with a request, the first time (`fault-once`) or every time (`fault`). */
export function geminiFault(random, surface) {
  const sized = surface === "api" ? 2 : 0;
  return random.weighted([
    [50, ""],
    [16, `[[fault:delay:${random.between(100, 1_500)}]]`],
    [6, `[[fault:drip:${random.between(20, 150)}]]`],
    [sized, "[[fault:size:300000]]"],
    [4, "[[fault-once:429]]"],
    [4, "[[fault-once:503]]"],
    [2, "[[fault-once:500]]"],
    [2, "[[fault-once:reset-before]]"],
    [2, "[[fault-once:504]]"],
    [3, "[[fault-once:reset-mid:1]]"],
    [2, "[[fault-once:commit-then-reset]]"],
    [2, "[[fault-once:max-tokens]]"],
  ]);
}

/** Faults of the destinations during one life: what is queued and not met stays for the next. */
export function destinationFaults(random) {
  const kinds = [
    ["webhook", ["500", "503", "commit-then-reset", "commit-then-502", "reset-before", "delay:700"]],
    ["github", ["503", "commit-then-reset", "head-moves", "delay:500"]],
    ["wordpress", ["503", "commit-then-reset", "commit-then-502"]],
    ["ghost", ["503", "commit-then-reset", "commit-then-502"]],
  ];
  return kinds
    .filter(() => random.chance(0.3))
    .map(([service, faults]) => ({
      for: service,
      fault: random.pick(faults),
      times: random.between(1, 3),
    }));
}

/**
 * Faults of the stores during one life: in a third of the lives a few operations; in one of fifteen
 * every commit, so that outputs go to the fallback store and are found there by a later life.
 */
export function storeFaults(random) {
  if (random.chance(1 / 15)) return [{ ...D1, where: "runner", match: "outputs", error: OVERLOADED }];
  if (!random.chance(0.35)) return [];
  const some = () => ({ skip: random.between(0, 20), times: random.between(1, 6) });
  const faults = [
    () => ({ ...KV, op: "get|getWithMetadata" }),
    () => ({ ...KV, op: "put|delete" }),
    () => ({ ...KV, op: "put|delete", when: "after" }),
    () => ({ ...D1, error: OVERLOADED }),
    () => ({ ...D1, error: LOST, when: "after" }),
    () => ({ ...D1, where: "runner", match: "outputs", error: OVERLOADED }),
    () => ({ ...D1, where: "runner", match: "outputs", error: LOST, when: "after" }),
    () => ({ ...D1, match: "UPDATE deliveries", error: LOST, when: "after" }),
    () => ({ ...D1, delayMs: random.between(50, 400) }),
    () => R2,
    () => ({ ...R2, match: "^files/", when: "after" }),
    () => ({ binding: "JOBS", op: "send", error: "Queue send failed: Network connection lost." }),
  ];
  return Array.from({ length: random.between(1, 3) }, () => ({
    ...random.pick(faults)(),
    ...some(),
  }));
}
