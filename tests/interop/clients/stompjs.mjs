// @stomp/stompjs, over WebSocket as it is meant, and over TCP by a socket that looks like one.

import { Client, Versions } from "@stomp/stompjs";
import WebSocket from "ws";
import { Inbox, Latch, bytesOf, message, serve, sleep, textOf, transactionOf, urlOf } from "./orders.mjs";
import { TcpSocket } from "./tcp_socket.mjs";

class Connection {
  #client;
  #messages = new Inbox();
  #receipts = 0;
  #failure = new Latch();
  #connected = new Inbox();
  #closed = new Inbox();
  #subscribed = new Map();
  #handles = [];

  constructor(order) {
    const { endpoint, version, heart_beat: beat } = order;
    const versions = new Versions([version]);
    this.#client = new Client({
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
      onConnect: () => {
        for (const again of this.#subscribed.values()) again();
        this.#connected.push(this.#client.connectedVersion ?? "1.0");
      },
      onStompError: (frame) => {
        this.#client.deactivate();
        this.#failure.set(frame.headers.message);
      },
      onWebSocketClose: () => this.#closed.push(true),
    });
    this.#client.activate();
  }

  async connected() {
    this.version = await Promise.race([this.#connected.next(), this.#failure.refuse()]);
    return this;
  }

  send(order, headers = {}) {
    const { destination, text } = order;
    const body = text ? { body: textOf(order) } : { binaryBody: new Uint8Array(bytesOf(order)) };
    this.#client.publish({ destination, headers: { ...order.headers, ...transactionOf(order), ...headers }, ...body });
  }

  stored(order) {
    const receipt = `r-${++this.#receipts}`;
    const answered = new Promise((resolve) => this.#client.watchForReceipt(receipt, () => resolve()));
    this.send(order, { receipt });
    return Promise.race([answered, this.#failure.refuse()]);
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
    return message(this.#handles.length - 1, got.headers, got.binaryBody);
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
    if ((await this.#closed.next(seconds)) === null) throw new Error("the broken line was not noticed");
    if ((await this.#connected.next(seconds)) === null) throw new Error("not connected again");
  }

  disconnect() {
    return this.#client.deactivate();
  }

  forget() {
    return this.#client.deactivate({ force: true });
  }
}

serve("@stomp/stompjs", (order) => new Connection(order).connected());
