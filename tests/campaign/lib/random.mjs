// Chance that a seed repeats.

export class Random {
  #state;

  constructor(seed) {
    this.#state = seed >>> 0;
  }

  /** From 0 to just below 1 (mulberry32). */
  next() {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = this.#state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  /** A whole number, both ends included. */
  between(low, high) {
    return low + Math.floor(this.next() * (high - low + 1));
  }

  chance(share) {
    return this.next() < share;
  }

  pick(list) {
    return list[Math.floor(this.next() * list.length)];
  }

  /** One of `[weight, value]`, as often as its weight says. */
  weighted(choices) {
    let left = this.next() * choices.reduce((sum, [weight]) => sum + weight, 0);
    for (const [weight, value] of choices) {
      left -= weight;
      if (left < 0) return value;
    }
    return choices.at(-1)[1];
  }

  /** A generator of its own, so that what one part draws does not move the others. */
  fork(salt) {
    return new Random(this.#state ^ Math.imul(salt + 1, 0x9e3779b1));
  }
}
