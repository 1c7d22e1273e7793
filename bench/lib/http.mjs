// Requests over kept connections, and a closed loop of them.

import { Agent, request as httpRequest } from "node:http";

const agent = new Agent({ keepAlive: true, maxSockets: 64 });

/** One request to a base URL; gives status and body. */
export function call(base, path, { method = "POST", headers = {}, body } = {}) {
  return new Promise((resolve, reject) => {
    const options = { method, agent, headers: { ...headers } };
    if (body !== undefined) {
      options.headers["content-type"] = "application/json";
      options.headers["content-length"] = Buffer.byteLength(body);
    }
    const request = httpRequest(new URL(path, base), options, (answer) => {
      const pieces = [];
      answer.on("data", (piece) => pieces.push(piece));
      answer.on("end", () =>
        resolve({ status: answer.statusCode, text: Buffer.concat(pieces).toString() }),
      );
    });
    request.on("error", reject);
    request.end(body);
  });
}

/** The answer, if its status is one of these. */
export function expect(answer, ...statuses) {
  if (!statuses.includes(answer.status)) throw new Error(`${answer.status} ${answer.text}`);
  return answer;
}

/** `one` again and again over some connections, for a while: how many, how long each took in ms. */
export async function closedLoop(one, { seconds, connections }) {
  const begun = performance.now();
  const until = begun + seconds * 1000;
  const times = [];
  const worker = async () => {
    while (performance.now() < until) {
      const started = performance.now();
      await one();
      times.push(performance.now() - started);
    }
  };
  await Promise.all(Array.from({ length: connections }, worker));
  return { ...percentiles(times), rate: (times.length * 1000) / (performance.now() - begun) };
}

export function percentiles(times) {
  const sorted = [...times].sort((a, b) => a - b);
  const at = (share) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];
  return { count: sorted.length, p50: at(0.5), p99: at(0.99) };
}
