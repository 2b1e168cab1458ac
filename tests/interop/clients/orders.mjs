// What the Node programs share: orders are read, answers are written, as tests/interop/driver.py says.

import readline from "node:readline";

/** What has come and nobody has asked for yet. */
export class Inbox {
  #items = [];
  #waiting = [];

  push(item) {
    const waiting = this.#waiting.shift();
    if (waiting) waiting(item);
    else this.#items.push(item);
  }

  /** The next item, or null if none comes within that time. */
  next(seconds = 30) {
    if (this.#items.length) return Promise.resolve(this.#items.shift());
    return new Promise((resolve) => {
      const take = (item) => {
        clearTimeout(timer);
        resolve(item);
      };
      const timer = setTimeout(() => {
        this.#waiting.splice(this.#waiting.indexOf(take), 1);
        resolve(null);
      }, seconds * 1000);
      this.#waiting.push(take);
    });
  }
}

/** Something that happens once, such as a failure: it is remembered for whoever asks, now or later. */
export class Latch {
  #set;
  #words = new Promise((resolve) => (this.#set = resolve));

  set(words) {
    this.#set(words);
  }

  /** What it was, or null if it does not happen within that time. */
  async wait(seconds) {
    const end = new AbortController();
    const late = sleep(seconds, end.signal).then(() => null);
    const words = await Promise.race([this.#words, late]);
    end.abort();
    return words;
  }

  /** A promise that is broken when it happens. */
  async refuse() {
    throw new Error(`refused: ${await this.#words}`);
  }
}

export const sleep = (seconds, signal) =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, seconds * 1000);
    signal?.addEventListener("abort", () => clearTimeout(timer));
  });

export function message(handle, headers, body) {
  return { handle, headers, body: Buffer.from(body).toString("base64") };
}

export const bytesOf = (order) => Buffer.from(order.body, "base64");
export const textOf = (order) => bytesOf(order).toString("utf-8");

export const urlOf = ({ transport, host, port, path }) => `${transport}://${host}:${port}${path}`;

export function transactionOf(order) {
  return order.transaction ? { transaction: order.transaction } : {};
}

/** `connect(order)` resolves to an object with `version` and a method for each further order. */
export async function serve(name, connect) {
  const connections = new Map();
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const order = JSON.parse(line);
    let answer = { ok: null };
    try {
      if (order.op === "hello") {
        answer.ok = name;
      } else if (order.op === "forget") {
        for (const each of connections.values()) await each.forget();
        connections.clear();
      } else if (order.op === "connect") {
        const one = await connect(order);
        connections.set(order.c, one);
        answer.ok = one.version;
      } else {
        answer.ok = (await connections.get(order.c)[order.op](order)) ?? null;
      }
    } catch (error) {
      console.error(error);
      answer = { error: `${error}` };
    }
    process.stdout.write(JSON.stringify(answer) + "\n");
  }
  process.exit(0);
}
