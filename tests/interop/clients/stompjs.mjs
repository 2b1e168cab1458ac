// @stomp/stompjs, over WebSocket as it is meant, and over TCP by a socket that looks like one.

import { Client } from "@stomp/stompjs";
import { FamilyConnection, configuration, published } from "./family.mjs";
import { Inbox, serve, sleep } from "./orders.mjs";

class Connection extends FamilyConnection {
  #connected = new Inbox();
  #closed = new Inbox();

  constructor(order) {
    super();
    this.client = new Client({
      ...configuration(order),
      onConnect: () => {
        this.subscribeAgain();
        this.#connected.push(this.client.connectedVersion ?? "1.0");
      },
      onStompError: (frame) => {
        this.client.deactivate();
        this.broken.set(frame.headers.message);
      },
      onWebSocketClose: () => this.#closed.push(true),
    });
    this.client.activate();
  }

  async connected() {
    this.version = await Promise.race([this.#connected.next(), this.broken.refuse()]);
    return this;
  }

  send(order, headers = {}) {
    this.client.publish(published(order, headers));
  }

  stored(order) {
    const receipt = `r-${++this.receipts}`;
    const answered = new Promise((resolve) => this.client.watchForReceipt(receipt, () => resolve()));
    this.send(order, { receipt });
    return Promise.race([answered, this.broken.refuse()]);
  }

  async rest({ seconds }) {
    await sleep(seconds);
    if (!this.client.connected) throw new Error("disconnected");
  }

  async back({ seconds }) {
    if ((await this.#closed.next(seconds)) === null) throw new Error("the broken line was not noticed");
    if ((await this.#connected.next(seconds)) === null) throw new Error("not connected again");
  }

  disconnect() {
    return this.client.deactivate();
  }

  forget() {
    return this.client.deactivate({ force: true });
  }
}

serve("@stomp/stompjs", (order) => new Connection(order).connected());
