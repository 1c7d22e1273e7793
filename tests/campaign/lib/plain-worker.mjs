// A stream and nothing else.

import { DurableObject } from "cloudflare:workers";

export class Runner extends DurableObject {}

export default {
  async fetch(request) {
    if (new URL(request.url).pathname === "/__e2e/ready") return Response.json({});
    await request.text();
    const pieces = Array.from({ length: 12 }, () => "x".repeat(1_024));
    return new Response(ReadableStream.from(pieces).pipeThrough(new TextEncoderStream()));
  },
};
