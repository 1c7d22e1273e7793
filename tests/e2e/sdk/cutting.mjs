// A connection that breaks: stands between a client and the Worker, and ends the client's side of
// the next connection after so many bytes of the answer's body. What is behind it goes on.

import { createServer, connect } from "node:net";
import { once } from "node:events";

const HEAD_END = "\r\n\r\n";

export class Cutting {
  #cut;
  cuts = 0;

  static async start(port) {
    const cutting = new Cutting();
    cutting.server = createServer((client) => cutting.#serve(client, port));
    cutting.server.listen(0, "127.0.0.1");
    await once(cutting.server, "listening");
    cutting.url = `http://127.0.0.1:${cutting.server.address().port}`;
    return cutting;
  }

  /** The next answer is cut after so many bytes of its body. */
  next(bytes) {
    this.#cut = bytes;
  }

  close() {
    this.server.close();
  }

  #serve(client, port) {
    const worker = connect(port, "127.0.0.1");
    for (const side of [client, worker]) side.on("error", () => {});
    client.pipe(worker);
    client.once("close", () => worker.destroy());
    let head = "";
    let given = -1;
    // A connection may carry several calls, one after another.
    client.on("data", () => {
      head = "";
      given = -1;
    });
    worker.on("data", (piece) => {
      if (given < 0) {
        head += piece.toString("latin1");
        const at = head.indexOf(HEAD_END);
        if (at >= 0) given = head.length - at - HEAD_END.length;
      } else given += piece.length;
      const over = given - (this.#cut ?? Infinity);
      if (over < 0 || given < 0) return void client.write(piece);
      this.#cut = undefined;
      this.cuts += 1;
      client.end(piece.subarray(0, piece.length - over));
      worker.destroy();
    });
    worker.once("end", () => client.end());
  }
}
