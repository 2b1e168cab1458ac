// webstomp-client: text only, no escapes; it comes back only by a new client.

import webstomp from "webstomp-client";
import WebSocket from "ws";
import { Inbox, Latch, message, serve, sleep, textOf, transactionOf, urlOf } from "./orders.mjs";
import { TcpSocket } from "./tcp_socket.mjs";

class Connection {
  #order;
  #client;
  #messages = new Inbox();
  #failure;
  #receipts = new Map();
  #subscribed = new Map();
  #handles = [];
  #count = 0;

  constructor(order) {
    this.#order = order;
  }

  connected() {
    const failure = (this.#failure = new Latch());
    const { endpoint, version, heart_beat: beat, login, passcode } = this.#order;
    const protocols = [`v${version.replace(".", "")}.stomp`];
    const socket = endpoint.transport.startsWith("ws")
      ? new WebSocket(urlOf(endpoint), protocols)
      : new TcpSocket(endpoint);
    const heartbeat = { outgoing: beat[0], incoming: beat[1] };
    this.#client = webstomp.over(socket, { debug: false, protocols, heartbeat });
    socket.onerror = (error) => failure.set(`${error}`);
    this.#client.onreceipt = (frame) => this.#receipts.get(frame.headers["receipt-id"])();
    return new Promise((resolve, reject) => {
      const opened = () => {
        this.version = this.#client.version ?? "1.0";
        for (const again of this.#subscribed.values()) again();
        resolve(this);
      };
      const failed = (frame) => {
        const words = frame.headers?.message ?? "closed";
        failure.set(words);
        reject(new Error(`refused: ${words}`));
      };
      this.#client.connect({ login, passcode }, opened, failed);
    });
  }

  send(order, headers = {}) {
    this.#client.send(order.destination, textOf(order), { ...order.headers, ...transactionOf(order), ...headers });
  }

  stored(order) {
    const receipt = `r-${++this.#count}`;
    return new Promise((resolve) => {
      this.#receipts.set(receipt, () => resolve());
      this.send(order, { receipt });
    });
  }

  subscribe({ destination, id, ack, headers }) {
    const again = () => this.#client.subscribe(destination, (got) => this.#messages.push(got), { id, ack, ...headers });
    this.#subscribed.set(id, again);
    again();
  }

  unsubscribe({ id }) {
    this.#subscribed.delete(id);
    this.#client.unsubscribe(id);
  }

  async receive({ seconds }) {
    const got = await this.#messages.next(seconds);
    if (got === null) return null;
    this.#handles.push(got);
    return message(this.#handles.length - 1, got.headers, got.body);
  }

  ack(order) {
    this.#handles[order.handle].ack(transactionOf(order));
  }

  nack(order) {
    this.#handles[order.handle].nack(transactionOf(order));
  }

  begin({ transaction }) {
    this.#client.begin(transaction);
  }

  commit({ transaction }) {
    this.#client.commit(transaction);
  }

  abort({ transaction }) {
    this.#client.abort(transaction);
  }

  failure({ seconds }) {
    return this.#failure.wait(seconds);
  }

  async rest({ seconds }) {
    await sleep(seconds);
    if (!this.#client.connected) throw new Error("disconnected");
  }

  async back({ seconds }) {
    if ((await this.#failure.wait(seconds)) === null) throw new Error("the broken line was not noticed");
    const end = Date.now() + seconds * 1000;
    for (;;) {
      try {
        return void (await this.connected());
      } catch (error) {
        if (Date.now() > end) throw error;
        await sleep(0.05);
      }
    }
  }

  disconnect() {
    this.#client.disconnect();
  }

  forget() {
    this.#client.ws.onclose = null;
    this.#client.ws.terminate();
  }
}

serve("webstomp-client", (order) => new Connection(order).connected());
