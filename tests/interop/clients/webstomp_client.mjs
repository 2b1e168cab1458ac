// webstomp-client: text only, no escapes; it comes back only by a new client.

import webstomp from "webstomp-client";
import { FamilyConnection, socketOf } from "./family.mjs";
import { Latch, serve, sleep, textOf, transactionOf } from "./orders.mjs";

class Connection extends FamilyConnection {
  #order;
  #waiting = new Map();

  constructor(order) {
    super();
    this.#order = order;
  }

  bodyOf(got) {
    return got.body;
  }

  connected() {
    const broken = (this.broken = new Latch());
    const { endpoint, version, heart_beat: beat, login, passcode } = this.#order;
    const protocols = [`v${version.replace(".", "")}.stomp`];
    const socket = socketOf(endpoint, protocols);
    const heartbeat = { outgoing: beat[0], incoming: beat[1] };
    this.client = webstomp.over(socket, { debug: false, protocols, heartbeat });
    socket.onerror = (error) => broken.set(`${error}`);
    this.client.onreceipt = (frame) => this.#waiting.get(frame.headers["receipt-id"])();
    return new Promise((resolve, reject) => {
      const opened = () => {
        this.version = this.client.version ?? "1.0";
        this.subscribeAgain();
        resolve(this);
      };
      const failed = (frame) => {
        const words = frame.headers?.message ?? "closed";
        broken.set(words);
        reject(new Error(`refused: ${words}`));
      };
      this.client.connect({ login, passcode }, opened, failed);
    });
  }

  send(order, headers = {}) {
    this.client.send(order.destination, textOf(order), { ...order.headers, ...transactionOf(order), ...headers });
  }

  stored(order) {
    const receipt = `r-${++this.receipts}`;
    return new Promise((resolve) => {
      this.#waiting.set(receipt, () => resolve());
      this.send(order, { receipt });
    });
  }

  async rest({ seconds }) {
    await sleep(seconds);
    if (!this.client.connected) throw new Error("disconnected");
  }

  async back({ seconds }) {
    if ((await this.broken.wait(seconds)) === null) throw new Error("the broken line was not noticed");
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
    this.client.disconnect();
  }

  forget() {
    this.client.ws.onclose = null;
    this.client.ws.terminate();
  }
}

serve("webstomp-client", (order) => new Connection(order).connected());
