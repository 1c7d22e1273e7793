// A clock that tests can move: the product asks `Date`, and `Date` here runs ahead by an offset.
// Timers and Durable Object alarms keep real time, so an alarm's moment is moved back again.

import { env } from "cloudflare:workers";

const RealDate = Date;
let offsetMs = Number(env.E2E_CLOCK_OFFSET_MS ?? 0);

globalThis.Date = class Date extends RealDate {
  constructor(...parts) {
    if (parts.length === 0) super(RealDate.now() + offsetMs);
    else super(...parts);
  }

  static now() {
    return RealDate.now() + offsetMs;
  }
};

export const realNow = () => RealDate.now();
export const now = () => RealDate.now() + offsetMs;
export const toReal = (moment) => Number(moment) - offsetMs;
export const fromReal = (moment) => (moment === null ? null : moment + offsetMs);

export function moveClock(ms) {
  offsetMs = ms;
}
