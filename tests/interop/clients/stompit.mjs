// stompit: bodies are streams; its ConnectFailover finds the way back, the subscriptions are said again.

import stompit from "stompit";
import { Inbox, Latch, bytesOf, message, serve, sleep, transactionOf } from "./orders.mjs";

class Connection {
  #failover;
  #client;
  #messages = new Inbox();
  #failure;
  #subscribed = new Map();
  #subscriptions = new Map();
  #handles = [];

  constructor({ endpoint, version, login, passcode, heart_beat: beat }) {
    const { host, port } = endpoint;
    const connectHeaders = { host, login, passcode, "accept-version": version, "heart-beat": beat.join(",") };
    const server = { host, port, ssl: endpoint.transport === "tls", connectHeaders };
    this.#failover = new stompit.ConnectFailover([server], { maxReconnects: 8, initialReconnectDelay: 20 });
  }

  connected() {
    const failure = (this.#failure = new Latch());
    return new Promise((resolve, reject) => {
      this.#failover.connect((error, client) => {
        if (error) return reject(new Error(`refused: ${error.message} ${error.longMessage ?? ""}`));
        this.#client = client;
        client.on("error", (problem) => failure.set(problem.message));
        this.version = client.headers.version ?? "1.0";
        resolve(this);
      });
    });
  }

  send(order, options = undefined) {
    const body = bytesOf(order);
    const headers = { destination: order.destination, "content-length": body.length, ...order.headers };
    const frame = this.#client.send({ ...headers, ...transactionOf(order) }, options);
    frame.write(body);
    frame.end();
  }

  stored(order) {
    return new Promise((resolve, reject) => {
      this.send(order, { onReceipt: () => resolve(), onError: reject });
    });
  }

  subscribe(order) {
    this.#subscribed.set(order.id, order);
    const { destination, id, ack, headers } = order;
    const subscription = this.#client.subscribe({ destination, id, ack, ...headers }, (error, frame) => {
      if (error) return;
      const parts = [];
      frame.on("data", (part) => parts.push(part));
      frame.on("end", () => this.#messages.push({ frame, body: Buffer.concat(parts) }));
    });
    this.#subscriptions.set(id, subscription);
  }

  unsubscribe({ id }) {
    this.#subscribed.delete(id);
    this.#subscriptions.get(id).unsubscribe();
  }

  async receive({ seconds }) {
    const got = await this.#messages.next(seconds);
    if (got === null) return null;
    this.#handles.push(got.frame);
    return message(this.#handles.length - 1, got.frame.headers, got.body);
  }

  ack(order) {
    this.#client.ack(this.#handles[order.handle], transactionOf(order));
  }

  nack(order) {
    this.#client.nack(this.#handles[order.handle], transactionOf(order));
  }

  begin({ transaction }) {
    this.#client.begin({ transaction });
  }

  commit({ transaction }) {
    return new Promise((resolve, reject) => {
      this.#client.sendFrame("COMMIT", { transaction }, { onReceipt: () => resolve(), onError: reject }).end();
    });
  }

  abort({ transaction }) {
    this.#client.sendFrame("ABORT", { transaction }).end();
  }

  failure({ seconds }) {
    return this.#failure.wait(seconds);
  }

  async rest({ seconds }) {
    const failed = await this.#failure.wait(seconds);
    if (failed) throw new Error(failed);
  }

  async back({ seconds }) {
    if ((await this.#failure.wait(seconds)) === null) throw new Error("the broken line was not noticed");
    await this.connected();
    for (const order of this.#subscribed.values()) this.subscribe(order);
  }

  disconnect() {
    return new Promise((resolve, reject) => {
      this.#client.disconnect((error) => (error ? reject(error) : resolve()));
    });
  }

  async forget() {
    this.#client?.destroy();
    await sleep(0);
  }
}

serve("stompit", (order) => new Connection(order).connected());
