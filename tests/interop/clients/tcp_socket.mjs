// A TCP or TLS connection that looks like a WebSocket, for clients that expect one.

import net from "node:net";
import tls from "node:tls";

export class TcpSocket {
  binaryType = "arraybuffer";
  protocol = "";
  CONNECTING = 0;
  OPEN = 1;
  CLOSING = 2;
  CLOSED = 3;
  #socket;

  constructor({ transport, host, port }) {
    this.url = `${transport}://${host}:${port}`;
    this.readyState = this.CONNECTING;
    const opened = () => {
      this.readyState = this.OPEN;
      this.onopen?.({});
    };
    this.#socket =
      transport === "tls"
        ? tls.connect({ host, port, servername: host }, opened)
        : net.connect({ host, port, noDelay: true }, opened);
    this.#socket.on("data", (data) => {
      this.onmessage?.({ data: data.buffer.slice(data.byteOffset, data.byteOffset + data.length) });
    });
    this.#socket.on("error", (error) => this.onerror?.(error));
    this.#socket.on("close", () => {
      if (this.readyState === this.CLOSED) return;
      this.readyState = this.CLOSED;
      this.onclose?.({ code: 1006, reason: "", wasClean: false });
    });
  }

  send(data) {
    this.#socket.write(typeof data === "string" ? data : Buffer.from(data));
  }

  close() {
    if (this.readyState === this.OPEN) this.readyState = this.CLOSING;
    this.#socket.end();
  }

  terminate() {
    this.#socket.destroy();
  }
}
