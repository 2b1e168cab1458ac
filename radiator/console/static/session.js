// Connections to the broker. A Link is one STOMP connection over the WebSocket of this listener, without a reconnect.
// The session keeps one Link open for requests to the admin channel, and opens it again when it is lost. Messages are
// read and sent over Links of their own, because an ERROR ends a connection.
import { Client } from "./vendor/stompjs/client.js";

const ANSWER_SECONDS_MAX = 30;
const CONNECT_SECONDS_MAX = 10;
const RETRY_MS = [500, 1000, 2000, 4000, 8000];
const SOCKET = new URL("stomp", document.baseURI);
SOCKET.protocol = SOCKET.protocol === "https:" ? "wss:" : "ws:";

class BrokerError extends Error {
  constructor(code, message, detail = "") {
    super(message);
    this.code = code;
    this.detail = detail && detail !== message ? detail : "";
  }
}

const links = new Set(); // those that are open or being opened

const closed = () => new BrokerError("closed", "the connection to the broker was lost");

class Link {
  constructor(credentials, onClose = () => {}) {
    this._asked = new Map(); // correlation-id -> {resolve, reject, timer}
    this._receipts = new Map(); // receipt -> {resolve, reject}
    this._next = 1;
    this._onClose = onClose;
    this.error = null;
    this.open = false;
    const login = credentials ? { login: credentials.login, passcode: credentials.passcode } : {};
    this._client = new Client({
      brokerURL: SOCKET.href,
      connectHeaders: { host: SOCKET.hostname, "while-draining": "true", ...login },
      reconnectDelay: 0,
      connectionTimeout: CONNECT_SECONDS_MAX * 1000,
      heartbeatIncoming: 10000,
      heartbeatOutgoing: 0, // a browser slows down the timers of a hidden page
    });
  }

  connect() {
    return new Promise((resolve, reject) => {
      const client = this._client;
      client.onConnect = (frame) => {
        this.open = true;
        this.id = frame.headers.session || "";
        client.subscribe("/temp-queue/console", (message) => this._answered(message), { id: "answers", ack: "auto" });
        resolve(this);
      };
      client.onStompError = (frame) => {
        this.error = new BrokerError(frame.headers["error-code"] || "error", frame.headers.message || "", frame.body);
      };
      client.onUnhandledMessage = () => {};
      client.onUnhandledReceipt = (frame) => {
        const waiting = this._receipts.get(frame.headers["receipt-id"]);
        this._receipts.delete(frame.headers["receipt-id"]);
        if (waiting) waiting.resolve(frame.headers);
      };
      client.onWebSocketClose = () => {
        const wasOpen = this.open;
        links.delete(this);
        this.open = false;
        client.deactivate();
        this._failAll(this.error || closed());
        reject(this.error || closed());
        if (wasOpen) this._onClose(this.error);
      };
      links.add(this);
      client.activate();
    });
  }

  _failAll(error) {
    for (const waiting of [...this._asked.values(), ...this._receipts.values()]) {
      clearTimeout(waiting.timer);
      waiting.reject(error);
    }
    this._asked.clear();
    this._receipts.clear();
  }

  _answered(message) {
    const id = message.headers["correlation-id"];
    const waiting = this._asked.get(id);
    if (!waiting) return;
    this._asked.delete(id);
    clearTimeout(waiting.timer);
    try {
      const answer = JSON.parse(message.body);
      if (answer.ok) waiting.resolve(answer);
      else waiting.reject(new BrokerError(answer.error.code, answer.error.message, answer.error.detail));
    } catch (error) {
      waiting.reject(new BrokerError("bad-answer", "the answer of the broker is not JSON", String(error)));
    }
  }

  // A request to the admin channel.
  ask(verb, args = {}) {
    return new Promise((resolve, reject) => {
      if (!this.open) return reject(closed());
      const id = String(this._next++);
      const timer = setTimeout(() => {
        this._asked.delete(id);
        reject(new BrokerError("timeout", `no answer to ${verb} within ${ANSWER_SECONDS_MAX} s`));
      }, ANSWER_SECONDS_MAX * 1000);
      this._asked.set(id, { resolve, reject, timer });
      const headers = { "reply-to": "/temp-queue/console", "correlation-id": id, "content-type": "application/json" };
      this._client.publish({ destination: "/radiator/admin", headers, body: JSON.stringify({ do: verb, ...args }) });
    });
  }

  _receipt() {
    const receipt = `r${this._next++}`;
    const done = new Promise((resolve, reject) => {
      if (!this.open) return reject(closed());
      this._receipts.set(receipt, { resolve, reject });
    });
    return [receipt, done];
  }

  // Sends a message, and returns the headers of its RECEIPT.
  send(destination, body, headers = {}) {
    const [receipt, done] = this._receipt();
    if (this.open) this._client.publish({ destination, binaryBody: body, headers: { ...headers, receipt } });
    return done;
  }

  // Subscribes; the headers are those of SUBSCRIBE. The callback gets the MESSAGE frames of stompjs.
  subscribe(destination, headers, onMessage) {
    const id = `s${this._next++}`;
    if (!this.open) throw closed();
    return this._client.subscribe(destination, onMessage, { id, ...headers });
  }

  ack(message, transaction) {
    if (this.open) this._client.ack(message.headers.ack, message.headers.subscription, transaction ? { transaction } : {});
  }

  // Runs `work` in a transaction: it gets a function that sends and one that acknowledges. The headers are those of COMMIT.
  async transaction(work, headers = {}) {
    if (!this.open) throw closed();
    const transaction = this._client.begin(`t${this._next++}`);
    work(
      (destination, body, headers) =>
        this._client.publish({ destination, binaryBody: body, headers: { ...headers, transaction: transaction.id } }),
      (message) => this.ack(message, transaction.id),
    );
    const [receipt, done] = this._receipt();
    // The public commit() of stompjs takes no headers.
    this._client._stompHandler._transmit({ command: "COMMIT", headers: { transaction: transaction.id, receipt, ...headers } });
    return done;
  }

  close() {
    this.open = false;
    this._failAll(closed());
    this.disconnect();
  }

  // Ends the connection as if it were lost.
  disconnect() {
    this._client.deactivate();
  }
}

// The state of the session: what the page shows of it, and who is notified of changes.
export const session = {
  phase: "connecting", // connecting, login, online, offline
  user: "",
  error: null, // why the last login failed
  admin: true, // false: this user may not use the admin channel
  acts: true, // false: this user may change nothing
  anonymous: false, // true: the broker has accepted a connection without a login
  generation: 0, // counts connections
};
const listeners = new Set();
let credentials = null;
let control = null;
let attempt = 0;
let timer = 0;

function change(fields) {
  Object.assign(session, fields);
  for (const listener of [...listeners]) listener();
}

export function onChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

async function open() {
  clearTimeout(timer);
  const link = new Link(credentials, (error) => lost(link, error));
  control = link;
  try {
    await link.connect();
  } catch (error) {
    if (link !== control) return;
    const refused = credentials !== null && session.phase === "connecting" && error.code !== "closed"; // such as too-many
    if (error.code === "denied" || refused) {
      change({ phase: "login", error: credentials === null ? null : error });
      credentials = null;
    } else again();
    return;
  }
  if (link !== control) return link.close();
  attempt = 0;
  if (!credentials) session.anonymous = true;
  if (session.admin) await learn(link);
  if (link === control && link.open) {
    change({ phase: "online", user: credentials ? credentials.login : "", error: null, generation: session.generation + 1 });
  }
}

// What the user may do.
async function learn(link) {
  try {
    session.acts = (await link.ask("overview")).may_act;
  } catch (error) {
    if (error.code === "denied") session.admin = session.acts = false;
  }
}

function lost(link, error) {
  if (link !== control) return;
  if (error && error.code === "denied" && session.admin) {
    session.admin = session.acts = false; // an ERROR answers requests of users who may ask nothing
    open();
    return;
  }
  again();
}

function again() {
  const pause = RETRY_MS[Math.min(attempt++, RETRY_MS.length - 1)];
  change({ phase: "offline" });
  timer = setTimeout(open, pause);
}

export function start() {
  open();
}

export function logIn(login, passcode) {
  credentials = { login, passcode };
  if (control) control.close();
  change({ phase: "connecting", admin: true, acts: true, error: null });
  open();
}

export function withoutLogin() {
  change({ phase: "connecting", error: null });
  open();
}

export function logOut() {
  credentials = null;
  if (control) control.close();
  control = null;
  clearTimeout(timer);
  change({ phase: "login", user: "", admin: true, acts: true, error: null });
}

export function ask(verb, args) {
  if (!session.admin) {
    return Promise.reject(new BrokerError("denied", "this user may not see the state of the broker", "It needs the right monitor, or admin."));
  }
  if (!control || !control.open) return Promise.reject(closed());
  return control.ask(verb, args);
}

// The id of the session of this page, as the broker lists it.
export const ownSession = () => (control ? control.id : "");

// A connection of its own, for messages.
export async function newLink(onClose) {
  return new Link(credentials, onClose).connect();
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && session.phase === "offline") {
    attempt = 0;
    open();
  }
});

// A browser may keep a page that the user has left, to show it again by the back button, and its connections with it.
window.addEventListener("pagehide", () => {
  for (const link of links) link.disconnect();
});
