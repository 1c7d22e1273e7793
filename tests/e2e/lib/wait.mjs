// Waiting on a condition, never for a fixed time.

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Waits for the clock's next minute, unless so much of this one is left: limiters count by it. */
export async function minuteWith(leftMs) {
  const left = 60_000 - (Date.now() % 60_000);
  if (left < leftMs) await sleep(left);
}

/** Asks `probe` until it answers something truthy, which is returned; fails after `withinMs`. */
export async function waitFor(what, probe, { withinMs = 20_000, everyMs = 50 } = {}) {
  const deadline = Date.now() + withinMs;
  let last;
  for (;;) {
    try {
      const answer = await probe();
      if (answer) return answer;
      last = answer;
    } catch (error) {
      last = error;
    }
    if (Date.now() > deadline)
      throw new Error(`waited ${withinMs} ms in vain for ${what}: ${last}`);
    await sleep(everyMs);
  }
}
