// The clients that the drop-in endpoints are for, each asking the same question its own way.

import { execFile } from "node:child_process";
import { createHash } from "node:crypto";

import { createGoogle } from "@ai-sdk/google";
import { GoogleGenAI } from "@google/genai";
import { generateText, streamText } from "ai";

import { setStage, uniqueTag } from "../lib/stage.mjs";

export const MODEL = "gemini-3.8-flash";

/** Fakes, a Worker in front of them, and an account with a key. */
export async function setSdkStage(name, options = {}) {
  return setStage(`sdk-${name}`, options);
}

/** A prompt of its own: `tag` finds it in Gemini's ledger. */
export function prompt(words = "Write about 日本語 and 🎉.") {
  const tag = uniqueTag();
  return { tag, text: `${tag} ${words}` };
}

export const sha256 = (text) => createHash("sha256").update(text).digest("hex");

/** Every client by name; `unary` and `stream` give `{ text, chunks }`. */
export function clients({ worker, client }, url = worker.url) {
  return {
    "@google/genai": genai(url, client.key),
    "Vercel AI SDK": vercel(url, client.key),
    curl: curl(url, client.key),
  };
}

export function genai(baseUrl, apiKey, headers = {}, retryOptions = {}) {
  const httpOptions = { baseUrl, headers, ...(retryOptions && { retryOptions }) };
  const sdk = new GoogleGenAI({ apiKey, httpOptions });
  const asked = (text, more) => ({ model: MODEL, contents: text, ...more });
  return {
    sdk,
    async unary(text, more) {
      const answer = await sdk.models.generateContent(asked(text, more));
      return { text: answer.text, answer };
    },
    async stream(text, more) {
      const chunks = [];
      for await (const chunk of await sdk.models.generateContentStream(asked(text, more))) {
        chunks.push(chunk);
      }
      return { text: chunks.map((chunk) => chunk.text ?? "").join(""), chunks };
    },
  };
}

export function vercel(baseUrl, apiKey, headers = {}) {
  const google = createGoogle({ baseURL: `${baseUrl}/v1beta`, apiKey, headers });
  return {
    google,
    async unary(text, more = {}) {
      const answer = await generateText({ model: google(MODEL), prompt: text, ...more });
      return { text: answer.text, answer };
    },
    async stream(text, more = {}) {
      const errors = [];
      const result = streamText({
        model: google(MODEL),
        prompt: text,
        onError: ({ error }) => errors.push(error),
        ...more,
      });
      const chunks = [];
      for await (const piece of result.textStream) chunks.push(piece);
      if (errors.length > 0) throw errors[0];
      return { text: chunks.join(""), chunks, finishReason: await result.finishReason };
    },
  };
}

export function curl(baseUrl, key) {
  const url = (call) => `${baseUrl}/v1beta/models/${MODEL}:${call}`;
  const body = (text, more) => JSON.stringify({ contents: [{ parts: [{ text }] }], ...more });
  return {
    async unary(text, more) {
      const { out } = await run(url(`generateContent?key=${key}`), body(text, more));
      const answer = JSON.parse(out);
      return { text: textOf([answer]), answer };
    },
    async stream(text, more) {
      const call = `streamGenerateContent?alt=sse&key=${key}`;
      const { out } = await run(url(call), body(text, more));
      const chunks = events(out);
      return { text: textOf(chunks), chunks };
    },
    async list(text, more) {
      const { out } = await run(url(`streamGenerateContent?key=${key}`), body(text, more));
      const chunks = JSON.parse(out);
      return { text: textOf(chunks), chunks };
    },
  };
}

/** curl as a person calls it: no content type of its own, so curl names a wrong one. */
function run(url, body) {
  return new Promise((resolve, reject) => {
    const args = ["--silent", "--show-error", "--no-buffer", "--max-time", "60", url];
    const child = execFile(
      "curl",
      [...args, "--data-binary", "@-"],
      { maxBuffer: 64 * 1024 * 1024 },
      (error, out) => (error ? reject(error) : resolve({ out })),
    );
    child.stdin.end(body);
  });
}

/** The documents of a stream; anything but `data: {…}` and blank lines is an error. */
export function events(text) {
  return text
    .split("\r\n\r\n")
    .map((event) => event.replace(/^\n+/, ""))
    .filter((event) => event !== "")
    .map((event) => {
      if (!event.startsWith("data: ")) throw new Error(`no event: ${event.slice(0, 80)}`);
      return JSON.parse(event.slice("data: ".length));
    });
}

export function textOf(chunks) {
  const parts = chunks.flatMap((chunk) => chunk.candidates?.[0]?.content?.parts ?? []);
  return parts.filter((part) => !part.thought).map((part) => part.text ?? "").join("");
}

/** A raw call of a drop-in endpoint; `read` may stop before the end. */
export function call(stage, path, body, headers = {}, init = {}) {
  return stage.worker.fetch(path, {
    method: body === undefined ? "GET" : "POST",
    headers: { "x-goog-api-key": stage.client.key, "content-type": "application/json", ...headers },
    body: body === undefined || typeof body === "string" ? body : JSON.stringify(body),
    ...init,
  });
}

export const contents = (text) => ({ contents: [{ role: "user", parts: [{ text }] }] });
export const UNARY = `/v1/models/${MODEL}:generateContent`;
export const STREAM = `/v1/models/${MODEL}:streamGenerateContent?alt=sse`;
