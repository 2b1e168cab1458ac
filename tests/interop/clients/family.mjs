// What the programs around stompjs, rx-stomp and webstomp-client share, as these three share their words for it.

import { Versions } from "@stomp/stompjs";
import { Inbox, Latch, bytesOf, message, textOf, transactionOf, urlOf } from "./orders.mjs";
import { TcpSocket } from "./tcp_socket.mjs";

const { default: WebSocket } = await import("ws").catch(() => ({})); // TCP needs none

/** A connection of one of them: `client` is what has `subscribe`, `begin` and so on, and is set by who extends this. */
export class FamilyConnection {
  messages = new Inbox();
  broken = new Latch();
  subscribed = new Map();
  receipts = 0;
  #handles = [];

  bodyOf(got) {
    return got.binaryBody;
  }

  subscribe({ destination, id, ack, headers }) {
    const again = () => this.client.subscribe(destination, (got) => this.messages.push(got), { id, ack, ...headers });
    this.subscribed.set(id, again);
    again();
  }

  subscribeAgain() {
    for (const again of this.subscribed.values()) again();
  }

  unsubscribe({ id }) {
    this.subscribed.delete(id);
    this.client.unsubscribe(id);
  }

  async receive({ seconds }) {
    const got = await this.messages.next(seconds);
    if (got === null) return null;
    this.#handles.push(got);
    return message(this.#handles.length - 1, got.headers, this.bodyOf(got));
  }

  ack(order) {
    this.#handles[order.handle].ack(transactionOf(order));
  }

  nack(order) {
    this.#handles[order.handle].nack(transactionOf(order));
  }

  begin({ transaction }) {
    this.client.begin(transaction);
  }

  commit({ transaction }) {
    this.client.commit(transaction);
  }

  abort({ transaction }) {
    this.client.abort(transaction);
  }

  failure({ seconds }) {
    return this.broken.wait(seconds);
  }
}

/** What stompjs and rx-stomp are configured with alike. */
export function configuration({ endpoint, version, login, passcode, heart_beat: beat }) {
  const versions = new Versions([version]);
  return {
    stompVersions: versions,
    connectHeaders: { login, passcode },
    heartbeatOutgoing: beat[0],
    heartbeatIncoming: beat[1],
    reconnectDelay: 50,
    forceBinaryWSFrames: true,
    webSocketFactory: () => socketOf(endpoint, versions.protocolVersions()),
  };
}

/** What stompjs and rx-stomp publish alike. */
export function published(order, headers) {
  const { destination, text } = order;
  const body = text ? { body: textOf(order) } : { binaryBody: new Uint8Array(bytesOf(order)) };
  return { destination, headers: { ...order.headers, ...transactionOf(order), ...headers }, ...body };
}

/** A WebSocket, or a socket of TCP that looks like one. */
export function socketOf(endpoint, protocols) {
  return endpoint.transport.startsWith("ws") ? new WebSocket(urlOf(endpoint), protocols) : new TcpSocket(endpoint);
}
