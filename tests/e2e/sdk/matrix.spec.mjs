// However Gemini frames a stream, and wherever the network cuts it, every client reads what the Worker
// makes of it, live and replayed: a test for each cell of the second table of docs/SDKS.md.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { after, before, describe, test } from "node:test";

import { sleep } from "../lib/wait.mjs";
import { clients, genai, prompt, setSdkStage, vercel } from "./lib.mjs";
import { Python, missingPython } from "./python.mjs";

const skip = missingPython();

const said = (text, more = {}) => ({
  candidates: [{ content: { role: "model", parts: [{ text }] }, ...more }],
});
const STOP = { finishReason: "STOP" };
const USAGE = {
  usageMetadata: { promptTokenCount: 3, candidatesTokenCount: 2, totalTokenCount: 5 },
};
const data = (document) =>
  `data: ${typeof document === "string" ? document : JSON.stringify(document)}`;
const [A, B] = [said("a🎉"), said("b", STOP)];
const stream = (end) => `${data(A)}${end}${data(B)}${end}`;

/** Bodies that say "a🎉b". */
const ANSWERS = {
  "CR LF": stream("\r\n\r\n"),
  "LF alone": stream("\n\n"),
  "CR alone": stream("\r\r"),
  "mixed line ends": `${data(A)}\r\n\n\r${data(B)}\n\r\n`,
  "further blank lines": `\n\n${data(A)}\n\n\n\r\n\n${data(B)}\n\n\n\n`,
  "comments as events": `: hello\n\n${data(A)}\n\n: ping\n\n${data(B)}\n\n`,
  "comment, event and id before data": `: a\nevent: x\nid: 1\nretry: 5\n${data(A)}\n\nid: 2\n${data(B)}\n\n`,
  "no space after the colon": stream("\n\n").replaceAll("data: ", "data:"),
  "data over several lines": `${JSON.stringify(said("a🎉b", STOP), null, 1).replace(/^/gm, "data: ")}\n\n`,
  "[DONE] at the end": `${stream("\n\n")}data: [DONE]\n\n`,
  "no blank line at the end": stream("\r\n\r\n").trimEnd(),
  "a list in place of events": JSON.stringify([A, B], null, 2),
  "one document in place of events": JSON.stringify(said("a🎉b", STOP), null, 2),
  "a byte order mark": `\ufeff${stream("\r\n\r\n")}`,
  "empty events": `data: \n\ndata:\n\n${data(A)}\n\ndata: {}\n\n${data(B)}\n\n`,
  "escapes of a character's halves": stream("\r\n\r\n").replace("🎉", "\\ud83c\\udf89"),
  "two reasons to end": `${data(said("a🎉", STOP))}\n\n${data(B)}\n\n${data({ candidates: [STOP], ...USAGE })}\n\n`,
  "reasons that are null": `${data(said("a🎉", { finishReason: null }))}\n\n${data(B)}\n\n`,
  "negative counts": `${data({ ...A, usageMetadata: { promptTokenCount: -1, totalTokenCount: -5 } })}\n\n${data(B)}\n\n`,
};
const SEPARATED = "a\u2028b\u2029c\u0085d🎉";
const RAW_ERROR = JSON.stringify(
  { error: { code: 503, message: "Overloaded.", status: "UNAVAILABLE" } },
  null,
  2,
);
/** Bodies that are no answer. */
const FAILURES = {
  "an error event in mid-stream": `${data(A)}\r\n\r\n${data(JSON.stringify(JSON.parse(RAW_ERROR)))}\r\n\r\n`,
  "a raw error in mid-stream": `${data(A)}\r\n\r\n${RAW_ERROR}\n`,
  "no finishReason": `${data(A)}\r\n\r\n`,
  "an empty body": "",
};
/** A sign of life comes after 15 s. */
const SILENCE_MS = 17_000;
/** So many bytes are sent at a time. */
const SIZES = [1, 7, Infinity];

/** Stands for Gemini and sends the very bytes that it is told to. */
class Framing {
  #bodies = new Map();
  asked = new Map();

  static async start() {
    const framing = new Framing();
    framing.server = createServer((request, response) => framing.#answer(request, response));
    framing.server.listen(0, "127.0.0.1");
    await once(framing.server, "listening");
    framing.url = `http://127.0.0.1:${framing.server.address().port}`;
    return framing;
  }

  /** Answers what has `tag` in it, in pieces of so many bytes, with a pause after the first. */
  say(tag, body, size, pauseMs = 0) {
    this.#bodies.set(tag, { body: Buffer.from(body), size, pauseMs });
  }

  async #answer(request, response) {
    const pieces = [];
    for await (const piece of request) pieces.push(piece);
    const [tag] = /tag-[0-9a-f]{12}/.exec(Buffer.concat(pieces).toString());
    this.asked.set(tag, (this.asked.get(tag) ?? 0) + 1);
    const { body, size, pauseMs } = this.#bodies.get(tag);
    response.socket.setNoDelay(true);
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.flushHeaders();
    for (let at = 0; at < body.length; at += size) {
      response.write(body.subarray(at, at + size));
      await (at === 0 && pauseMs > 0 ? sleep(pauseMs) : new Promise(setImmediate));
    }
    response.end();
  }
}

let stage;
let gemini;
let python;
before(async () => {
  gemini = await Framing.start();
  stage = await setSdkStage("matrix", { vars: { GEMINI_BASE_URL: gemini.url } });
  if (!skip) python = new Python();
});
after(async () => {
  python?.close();
  await stage?.close();
  gemini?.server.close();
});

/** The clients, none of which tries again by itself or for long. */
const CLIENTS = {
  "@google/genai": () => genai(stage.worker.url, stage.client.key, {}, null),
  "Vercel AI SDK": () => {
    const { unary, stream: streamed } = vercel(stage.worker.url, stage.client.key);
    const once = { maxRetries: 0 };
    return { unary: (text) => unary(text, once), stream: (text) => streamed(text, once) };
  },
  "google-genai for Python": () => python.client(stage.worker.url, stage.client.key),
  curl: () => clients(stage).curl,
};

/** Has Gemini send this in pieces of each size, and asks in these forms, the first of which buys. */
async function inEachSize(body, ask) {
  for (const size of SIZES) {
    const { tag, text } = prompt("Say it.");
    gemini.say(tag, body, size);
    // Python's second way in is slow to start, and need not see every size.
    const forms = ["stream", "stream", ...(size === 7 ? ["asynchronous"] : []), "unary"];
    await ask(text, forms, `${size} bytes at a time`);
    assert.equal(gemini.asked.get(tag), 1, `asked once, ${size} bytes at a time`);
  }
}

describe("every framing, read by", { concurrency: 4 }, () => {
  for (const name of Object.keys(CLIENTS)) {
    const options = name.includes("Python") ? { skip, concurrency: 4 } : { concurrency: 4 };
    describe(name, options, () => {
      const bodies = [
        ...Object.entries(ANSWERS).map(([what, body]) => [what, body, "a🎉b"]),
        [
          "separators of Unicode in a text",
          `${data(said(SEPARATED))}\r\n\r\n${data(said("", STOP))}\r\n\r\n`,
          SEPARATED,
        ],
      ];
      for (const [what, body, words] of bodies) {
        test(`${what}: read live, replayed and merged`, async () => {
          const client = CLIENTS[name]();
          await inEachSize(body, async (text, forms, how) => {
            for (const form of forms.filter((name) => client[name])) {
              assert.equal((await client[form](text)).text, words, `${form}, ${how}`);
            }
          });
        });
      }

      test("a silence in mid-stream that is longer than the Worker's patience", async () => {
        const { tag, text } = prompt("Say it.");
        const first = `${data(A)}\r\n\r\n`;
        gemini.say(tag, `${first}${data(B)}\r\n\r\n`, Buffer.byteLength(first), SILENCE_MS);
        const client = CLIENTS[name]();
        assert.equal((await client.stream(text)).text, "a🎉b");
        assert.equal((await client.stream(text)).text, "a🎉b");
        assert.equal(gemini.asked.get(tag), 1);
      });

      for (const [what, body] of Object.entries(FAILURES)) {
        test(`${what}: an error, and not asked again`, async () => {
          const client = CLIENTS[name]();
          await inEachSize(body, async (text, forms, how) => {
            for (const form of forms.filter((name) => client[name])) {
              const wrong = await client[form](text).then(
                ({ chunks, answer }) => (chunks?.at(-1) ?? answer).error && "told",
                () => "told",
              );
              assert.equal(wrong, "told", `${form}, ${how}`);
            }
          });
        });
      }
    });
  }
});
