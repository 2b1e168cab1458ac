// @stomp/rx-stomp: observables, on top of @stomp/stompjs.

import { RxStomp } from "@stomp/rx-stomp";
import { Versions } from "@stomp/stompjs";
import WebSocket from "ws";
import { Inbox, Latch, bytesOf, message, serve, sleep, textOf, transactionOf, urlOf } from "./orders.mjs";
import { TcpSocket } from "./tcp_socket.mjs";

class Connection {
  #rx = new RxStomp();
  #messages = new Inbox();
  #failure = new Latch();
  #connected = new Inbox();
  #subscribed = new Map();
  #handles = [];
  #receipts = 0;

  constructor(order) {
    const { endpoint, version, heart_beat: beat } = order;
    const versions = new Versions([version]);
    this.#rx.configure({
      stompVersions: versions,
      connectHeaders: { login: order.login, passcode: order.passcode },
      heartbeatOutgoing: beat[0],
      heartbeatIncoming: beat[1],
      reconnectDelay: 50,
      forceBinaryWSFrames: true,
      webSocketFactory: () =>
        endpoint.transport.startsWith("ws")
          ? new WebSocket(urlOf(endpoint), versions.protocolVersions())
          : new TcpSocket(endpoint),
    });
    this.#rx.stompErrors$.subscribe((frame) => {
      this.#rx.deactivate();
      this.#failure.set(frame.headers.message);
    });
    this.#rx.connected$.subscribe(() => this.#connected.push(true));
    this.#rx.activate();
  }

  async connected() {
    await Promise.race([this.#connected.next(), this.#failure.refuse()]);
    this.version = this.#rx.stompClient.connectedVersion ?? "1.0";
    return this;
  }

  send(order, headers = {}) {
    const { destination, text } = order;
    const body = text ? { body: textOf(order) } : { binaryBody: new Uint8Array(bytesOf(order)) };
    this.#rx.publish({ destination, headers: { ...order.headers, ...transactionOf(order), ...headers }, ...body });
  }

  async stored(order) {
    const receipt = `r-${++this.#receipts}`;
    const answered = this.#rx.asyncReceipt(receipt);
    this.send(order, { receipt });
    await Promise.race([answered, this.#failure.refuse()]);
  }

  subscribe({ destination, id, ack, headers }) {
    const watched = this.#rx.watch({ destination, subHeaders: { id, ack, ...headers } });
    this.#subscribed.set(id, watched.subscribe((got) => this.#messages.push(got)));
  }

  unsubscribe({ id }) {
    this.#subscribed.get(id).unsubscribe();
  }

  async receive({ seconds }) {
    const got = await this.#messages.next(seconds);
    if (got === null) return null;
    this.#handles.push(got);
    return message(this.#handles.length - 1, got.headers, got.binaryBody);
  }

  ack(order) {
    this.#handles[order.handle].ack(transactionOf(order));
  }

  nack(order) {
    this.#handles[order.handle].nack(transactionOf(order));
  }

  begin({ transaction }) {
    this.#rx.stompClient.begin(transaction);
  }

  commit({ transaction }) {
    this.#rx.stompClient.commit(transaction);
  }

  abort({ transaction }) {
    this.#rx.stompClient.abort(transaction);
  }

  failure({ seconds }) {
    return this.#failure.wait(seconds);
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
