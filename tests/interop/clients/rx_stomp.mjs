// @stomp/rx-stomp: observables, on top of @stomp/stompjs.

import { RxStomp } from "@stomp/rx-stomp";
import { FamilyConnection, configuration, published } from "./family.mjs";
import { Inbox, serve, sleep } from "./orders.mjs";

class Connection extends FamilyConnection {
  #rx = new RxStomp();
  #connected = new Inbox();

  constructor(order) {
    super();
    this.#rx.configure(configuration(order));
    this.#rx.stompErrors$.subscribe((frame) => {
      this.#rx.deactivate();
      this.broken.set(frame.headers.message);
    });
    this.#rx.connected$.subscribe(() => this.#connected.push(true));
    this.#rx.activate();
  }

  get client() {
    return this.#rx.stompClient;
  }

  async connected() {
    await Promise.race([this.#connected.next(), this.broken.refuse()]);
    this.version = this.client.connectedVersion ?? "1.0";
    return this;
  }

  send(order, headers = {}) {
    this.#rx.publish(published(order, headers));
  }

  async stored(order) {
    const receipt = `r-${++this.receipts}`;
    const answered = this.#rx.asyncReceipt(receipt);
    this.send(order, { receipt });
    await Promise.race([answered, this.broken.refuse()]);
  }

  subscribe({ destination, id, ack, headers }) {
    const watched = this.#rx.watch({ destination, subHeaders: { id, ack, ...headers } });
    this.subscribed.set(id, watched.subscribe((got) => this.messages.push(got)));
  }

  unsubscribe({ id }) {
    this.subscribed.get(id).unsubscribe();
  }

  async rest({ seconds }) {
    await sleep(seconds);
    if (!this.#rx.connected()) throw new Error("disconnected");
  }

  async back({ seconds }) {
    if ((await this.#connected.next(seconds)) === null) throw new Error("not connected again");
  }

  disconnect() {
    return this.#rx.deactivate();
  }

  forget() {
    return this.#rx.deactivate({ force: true });
  }
}

serve("@stomp/rx-stomp", (order) => new Connection(order).connected());
