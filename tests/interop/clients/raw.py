"""A bare socket: frames by hand, nothing of radiator's, no library. What somebody's own client would do."""

from __future__ import annotations

import base64
import collections
import re
import select
import socket
import ssl
import time
from typing import Any

import orders
from raw_websocket import WebSocket

ESCAPES = {"1.0": "", "1.1": "\\\n:", "1.2": "\\\r\n:"}
NAMES = {"\\": "\\\\", "\r": "\\r", "\n": "\\n", ":": "\\c"}
Frame = tuple[str, dict[str, str], bytes]


class Connection:
    def __init__(self, order: dict[str, Any]) -> None:
        self._order = order
        self._subscribed: dict[str, dict[str, Any]] = {}
        self._open()

    def _open(self) -> None:
        order, endpoint = self._order, self._order["endpoint"]
        sock = socket.create_connection((endpoint["host"], endpoint["port"]), timeout=30)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if endpoint["transport"] in ("tls", "wss"):
            context = ssl.create_default_context(cafile=endpoint["ca"])
            sock = context.wrap_socket(sock, server_hostname=endpoint["host"])
        self._sock: Any = sock
        if endpoint["transport"] in ("ws", "wss"):
            self._sock = WebSocket(sock, endpoint["host"], endpoint["path"], order["version"])
        self._bytes = b""
        self._frames: collections.deque[Frame] = collections.deque()
        self._messages: collections.deque[Frame] = collections.deque()
        self._handles: dict[int, dict[str, str]] = {}
        self._receipts = 0
        self._beat_seconds = order["heart_beat"][0] / 1000
        headers = {"login": order["login"], "passcode": order["passcode"]}
        if order["version"] != "1.0":
            headers |= {"accept-version": order["version"], "host": "here"}
            headers["heart-beat"] = ",".join(map(str, order["heart_beat"]))
        self.version = "1.0"
        self._say("CONNECT", headers)
        command, headers, body = self._next(30)
        if command != "CONNECTED":
            raise orders.Lost(f"{command} {headers} {body!r}")
        self.version = headers.get("version", "1.0")

    def _escaped(self, text: str) -> str:
        return "".join(NAMES[char] if char in ESCAPES[self.version] else char for char in text)

    def _unescaped(self, text: str) -> str:
        if self.version == "1.0":
            return text
        back = {escape[1]: char for char, escape in NAMES.items() if char in ESCAPES[self.version]}
        return re.sub(r"\\(.?)", lambda found: back[found[1]], text)

    def _say(self, command: str, headers: dict[str, str], body: bytes = b"") -> None:
        lines = [f"{self._escaped(name)}:{self._escaped(value)}" for name, value in headers.items()]
        self._sock.sendall("\n".join([command, *lines, "", ""]).encode() + body + b"\0")

    def _next(self, seconds: float) -> Frame:
        """The next frame; TimeoutError if none comes."""
        deadline = time.monotonic() + seconds
        while not self._frames:
            left = max(0.0, deadline - time.monotonic())
            waiting = getattr(self._sock, "pending", int)()
            if not waiting and not select.select([self._sock], [], [], left)[0]:
                raise TimeoutError(f"nothing within {seconds} s")
            data = self._sock.recv(65536)
            if not data:
                raise orders.Lost("closed")
            self._bytes += data
            self._cut()
        return self._frames.popleft()

    def _cut(self) -> None:
        while True:
            self._bytes = self._bytes.lstrip(b"\n")
            head, found, rest = self._bytes.partition(b"\n\n")
            if not found:
                return
            command, *lines = head.decode().split("\n")
            headers: dict[str, str] = {}
            for line in lines:
                name, _, value = line.partition(":")
                headers.setdefault(self._unescaped(name), self._unescaped(value))
            size = int(headers["content-length"]) if "content-length" in headers else rest.find(b"\0")
            if size < 0 or len(rest) <= size:
                return
            assert rest[size] == 0, "no NUL after the body"
            self._frames.append((command, headers, rest[:size]))
            self._bytes = rest[size + 1 :]

    def _wait(self, wanted: str, seconds: float = 30) -> Frame:
        while True:
            frame = self._next(seconds)
            if frame[0] == wanted:
                return frame
            if frame[0] == "ERROR":
                raise orders.Lost(f"ERROR {frame[1]} {frame[2]!r}")
            self._messages.append(frame)

    def send(self, order: dict[str, Any], **more: str) -> None:
        body = base64.b64decode(order["body"])
        headers = {"destination": order["destination"], "content-length": str(len(body)), **order["headers"], **more}
        if order["transaction"]:
            headers["transaction"] = order["transaction"]
        self._say("SEND", headers, body)

    def stored(self, order: dict[str, Any]) -> None:
        self._receipts += 1
        self.send(order, receipt=f"r-{self._receipts}")
        assert self._wait("RECEIPT")[1]["receipt-id"] == f"r-{self._receipts}"

    def subscribe(self, order: dict[str, Any]) -> None:
        self._subscribed[order["id"]] = order
        headers = {"destination": order["destination"], "id": order["id"], "ack": order["ack"], **order["headers"]}
        self._say("SUBSCRIBE", headers)

    def unsubscribe(self, order: dict[str, Any]) -> None:
        del self._subscribed[order["id"]]
        self._say("UNSUBSCRIBE", {"id": order["id"]})

    def receive(self, order: dict[str, Any]) -> dict[str, Any] | None:
        try:
            _, headers, body = self._messages.popleft() if self._messages else self._wait("MESSAGE", order["seconds"])
        except TimeoutError:
            return None
        handle = len(self._handles)
        self._handles[handle] = headers
        return orders.message(handle, headers, body)

    def _answer(self, command: str, order: dict[str, Any]) -> None:
        message = self._handles[order["handle"]]
        if self.version == "1.2":
            headers = {"id": message["ack"]}
        else:
            headers = {"message-id": message["message-id"], "subscription": message["subscription"]}
        if order["transaction"]:
            headers["transaction"] = order["transaction"]
        self._say(command, headers)

    def ack(self, order: dict[str, Any]) -> None:
        self._answer("ACK", order)

    def nack(self, order: dict[str, Any]) -> None:
        self._answer("NACK", order)

    def begin(self, order: dict[str, Any]) -> None:
        self._say("BEGIN", {"transaction": order["transaction"]})

    def commit(self, order: dict[str, Any]) -> None:
        self._say("COMMIT", {"transaction": order["transaction"], "receipt": "commit"})
        self._wait("RECEIPT")

    def abort(self, order: dict[str, Any]) -> None:
        self._say("ABORT", {"transaction": order["transaction"]})

    def failure(self, order: dict[str, Any]) -> str:
        _, headers, _ = self._wait_error(order["seconds"])
        return headers["message"]

    def _wait_error(self, seconds: float) -> Frame:
        while True:
            frame = self._next(seconds)
            if frame[0] == "ERROR":
                return frame

    def rest(self, order: dict[str, Any]) -> None:
        end = time.monotonic() + order["seconds"]
        while time.monotonic() < end:
            self._sock.sendall(b"\n")
            try:
                self._messages.append(self._next(self._beat_seconds / 2))
            except TimeoutError:
                pass

    def back(self, order: dict[str, Any]) -> None:
        try:
            while True:
                self._next(order["seconds"])
        except (orders.Lost, OSError):
            self._sock.close()
        end = time.monotonic() + order["seconds"]
        while True:
            try:
                self._open()
                break
            except (orders.Lost, OSError):
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)
        for subscribed in self._subscribed.values():
            self.subscribe(subscribed)

    def disconnect(self, _: dict[str, Any]) -> None:
        self._say("DISCONNECT", {"receipt": "bye"})
        self._wait("RECEIPT")
        self._sock.close()

    def forget(self) -> None:
        self._sock.close()


orders.serve("a raw socket", Connection)
