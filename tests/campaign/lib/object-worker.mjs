// A stream made by a Durable Object of its own, which stores a record and sets an alarm.

import { DurableObject } from "cloudflare:workers";

export class Runner extends DurableObject {
  async fetch(request) {
    const body = await request.text();
    await this.ctx.storage.put("record", body);
    await this.ctx.storage.setAlarm(Date.now());
    const pieces = Array.from({ length: 12 }, () => "x".repeat(1_024));
    return new Response(ReadableStream.from(pieces).pipeThrough(new TextEncoderStream()));
  }

  alarm() {}
}

export default {
  async fetch(request, { RUNNER }) {
    if (new URL(request.url).pathname === "/__e2e/ready") return Response.json({});
    const body = await request.text();
    return RUNNER.get(RUNNER.newUniqueId()).fetch("https://runner/", { method: "POST", body });
  },
};
