// A clock that tests can move: the product asks `Date`, and `Date` here runs ahead by an offset, or
// stands still, so that what is asked at a moment is asked at that moment on a slow machine too.
// Timers and Durable Object alarms keep real time, so an alarm's moment is moved back again.

import { env } from "cloudflare:workers";

const RealDate = Date;
let offsetMs = Number(env.E2E_CLOCK_OFFSET_MS ?? 0);
let stoppedAt;

globalThis.Date = class Date extends RealDate {
  constructor(...parts) {
    if (parts.length === 0) super(now());
    else super(...parts);
  }

  static now() {
    return now();
  }
};

export const realNow = () => RealDate.now();
export const now = () => stoppedAt ?? RealDate.now() + offsetMs;
const ahead = () => (stoppedAt === undefined ? offsetMs : stoppedAt - RealDate.now());
export const toReal = (moment) => Number(moment) - ahead();
export const fromReal = (moment) => (moment === null ? null : moment + ahead());

export function moveClock(ms) {
  offsetMs = ms;
  stoppedAt = undefined;
}

export function stopClock(at) {
  stoppedAt = at;
}
