// Reads messages over a connection of its own, in windows: the broker sends no more than is acknowledged, so a fast
// destination costs neither the page nor the broker more than what is shown. Acknowledging a message of a topic or of a
// browser settles nothing.
import { newLink } from "./session.js";

export const BODY_BYTES_MAX = 64 * 1024; // of a body in the page; the rest is fetched again for a download
export const PAGE = 50;

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
let keys = 0;

export function decoded(body) {
  try {
    return decoder.decode(body);
  } catch {
    return null;
  }
}

// What the page keeps of a message: its headers, and the beginning of its body.
function kept(message, most = BODY_BYTES_MAX) {
  const body = message.binaryBody;
  const { headers } = message;
  return {
    key: ++keys,
    headers,
    id: headers["message-id"],
    destination: headers.destination,
    offset: Number(headers.offset),
    partition: headers.partition,
    timeNs: headers["receive-time"],
    size: body.length,
    body: body.length > most ? body.slice(0, most) : body,
  };
}

// The headers of SUBSCRIBE for a position: {from, n, offset, time, ago, selector, waiting}.
export function positionHeaders({ from, value, selector }, live = false) {
  const headers = { ack: "client", browser: "true" };
  if (selector) headers.selector = selector;
  if (live) return { ...headers, "start-position": "next" };
  if (from === "waiting") return headers;
  const start = {
    first: () => "first",
    last: () => `last:${value || PAGE}`,
    offset: () => `offset:${value || 0}`,
    time: () => `time:${value}`,
    ago: () => `ago:${value || "1h"}`,
  }[from]();
  return { ...headers, "start-position": start, "stop-position": "end" };
}

export class Reader {
  // onMessages gets lists of what `take` made of messages; onEnd gets an error, or null at the end of the messages.
  constructor({ destination, headers, window, take = kept, onMessages, onEnd }) {
    this._onMessages = onMessages;
    this._onEnd = onEnd;
    this._take = take;
    this._pending = [];
    this._timer = 0;
    this._last = null;
    this.unacked = 0;
    this.closed = false;
    this._open(destination, headers, window);
  }

  async _open(destination, headers, window) {
    try {
      const link = await newLink((error) => this._end(error));
      if (this.closed) return link.close();
      this._link = link;
      this._subscription = link.subscribe(destination, { "prefetch-count": String(window), ...headers }, (message) => this._take1(message));
    } catch (error) {
      this._end(error);
    }
  }

  _take1(message) {
    if (this.closed) return;
    if (message.headers["replay-end"] === "true") {
      this._ended = true;
    } else {
      this._last = message;
      this.unacked += 1;
      this._pending.push(this._take(message));
    }
    if (!this._timer) this._timer = setTimeout(() => this._flush(), 40);
  }

  _flush() {
    clearTimeout(this._timer);
    this._timer = 0;
    if (this._pending.length) this._onMessages(this._pending);
    this._pending = [];
    if (this._ended && !this.closed) this._end(null);
  }

  // Lets the broker send as many messages again.
  more() {
    if (this.closed || !this._last) return;
    this._link.ack(this._last);
    this._last = null;
    this.unacked = 0;
  }

  _end(error) {
    if (this.closed) return;
    if (this._timer) this._flush();
    this.close();
    this._onEnd(error);
  }

  close() {
    this.closed = true;
    clearTimeout(this._timer);
    if (this._link) this._link.close();
  }
}

// Reads the one message with this id, with its whole body.
export function fetchWhole(destination, id) {
  return new Promise((resolve, reject) => {
    const reader = new Reader({
      destination,
      headers: { ack: "client", browser: "true", "start-at": id },
      window: 1,
      take: (message) => ({ id: message.headers["message-id"], body: message.binaryBody }),
      onMessages: ([first]) => {
        reader.close();
        if (first.id === id) resolve(first.body);
        else reject(new Error("The message is no longer stored."));
      },
      onEnd: (error) => reject(error || new Error("The message is no longer stored.")),
    });
  });
}

function base64(body) {
  let text = "";
  for (let at = 0; at < body.length; at += 32768) text += String.fromCharCode(...body.subarray(at, at + 32768));
  return btoa(text);
}

// A line of JSON with the fields that `radiator export` and `radiator tail --json` write.
function jsonLine(message) {
  const { headers, binaryBody: body } = message;
  const text = decoded(body);
  const record = {
    destination: headers.destination,
    partition: headers.partition,
    offset: Number(headers.offset),
    message_id: headers["message-id"],
    receive_time: "@",
    headers,
    size: body.length,
    ...(text === null ? { body_base64: base64(body) } : { body: text }),
  };
  // The nanoseconds are more than a number of JavaScript has digits for.
  return JSON.stringify(record).replace('"receive_time":"@"', `"receive_time":${/^\d+$/.test(headers["receive-time"]) ? headers["receive-time"] : null}`);
}

export const RANGE_COUNT_MAX = 10000;
const RANGE_BYTES_MAX = 64 * 1024 * 1024;

// Reads a range as lines of JSON, until its end or a limit.
export function readRange(destination, headers, most, onProgress) {
  return new Promise((resolve, reject) => {
    const lines = [];
    let size = 0;
    const window = 200;
    const finish = (complete) => resolve({ lines, complete });
    const reader = new Reader({
      destination,
      headers,
      window,
      take: (message) => jsonLine(message) + "\n",
      onMessages: (found) => {
        for (const line of found) {
          lines.push(line);
          size += line.length;
          if (lines.length >= most || size >= RANGE_BYTES_MAX) {
            reader.close();
            return finish(false);
          }
        }
        onProgress(lines.length);
        reader.more();
      },
      onEnd: (error) => (error ? reject(error) : finish(true)),
    });
  });
}
