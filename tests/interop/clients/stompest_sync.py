"""stompest, the synchronous client: one frame after the other, and heart-beats by hand."""

from __future__ import annotations

import base64
import collections
import ssl
import time
from typing import Any

import orders
from stompest.config import StompConfig
from stompest.error import StompConnectionError
from stompest.protocol import StompSpec
from stompest.sync import Stomp

WAIT_SECONDS = 30.0


class Connection:
    def __init__(self, order: dict[str, Any]) -> None:
        self._order = order
        endpoint = order["endpoint"]
        context = ssl.create_default_context(cafile=endpoint["ca"]) if endpoint["transport"] == "tls" else None
        scheme = "ssl" if context else "tcp"
        config = StompConfig(
            f"{scheme}://{endpoint['host']}:{endpoint['port']}",
            login=order["login"], passcode=order["passcode"], version=order["version"], sslContext=context,
        )  # fmt: skip
        self._stomp = Stomp(config)
        self._waiting: collections.deque[Any] = collections.deque()
        self._tokens: dict[str, Any] = {}
        self._handles: dict[int, Any] = {}
        self._receipts = 0
        self._connect()
        self.version = self._stomp.session.version

    def _connect(self) -> None:
        beats = tuple(self._order["heart_beat"]) if self._order["version"] != "1.0" else None
        self._stomp.connect(
            versions=[self._order["version"]], host="here", heartBeats=beats, connectedTimeout=WAIT_SECONDS
        )

    def send(self, order: dict[str, Any], receipt: str | None = None) -> None:
        body = base64.b64decode(order["body"])
        headers = {**order["headers"], "content-length": str(len(body))}
        if order["transaction"]:
            headers[StompSpec.TRANSACTION_HEADER] = order["transaction"]
        self._stomp.send(order["destination"], body, headers, receipt)

    def _next(self, wanted: str, seconds: float) -> Any:
        deadline = time.monotonic() + seconds
        while self._stomp.canRead(max(0.0, deadline - time.monotonic())):
            frame = self._stomp.receiveFrame()
            if frame.command == wanted:
                return frame
            if frame.command == "ERROR":
                raise orders.Lost(str(frame.headers))
            self._waiting.append(frame)
        return None

    def _receipt(self, name: str) -> None:
        frame = self._next("RECEIPT", WAIT_SECONDS)
        assert frame is not None and self._stomp.receipt(frame) == name

    def stored(self, order: dict[str, Any]) -> None:
        self._receipts += 1
        self.send(order, f"r-{self._receipts}")
        self._receipt(f"r-{self._receipts}")

    def subscribe(self, order: dict[str, Any]) -> None:
        headers = {**order["headers"], StompSpec.ACK_HEADER: order["ack"]}
        if self.version != "1.0":
            headers[StompSpec.ID_HEADER] = order["id"]
        self._tokens[order["id"]] = self._stomp.subscribe(order["destination"], headers)

    def unsubscribe(self, order: dict[str, Any]) -> None:
        self._stomp.unsubscribe(self._tokens.pop(order["id"]))

    def receive(self, order: dict[str, Any]) -> dict[str, Any] | None:
        frame = self._waiting.popleft() if self._waiting else self._next("MESSAGE", order["seconds"])
        if frame is None:
            return None
        handle = len(self._handles)
        self._handles[handle] = frame
        return orders.message(handle, frame.headers, frame.body)

    def _marked(self, order: dict[str, Any]) -> Any:
        frame = self._handles[order["handle"]]
        if order["transaction"]:
            frame.unraw()
            frame.headers[StompSpec.TRANSACTION_HEADER] = order["transaction"]
        return frame

    def ack(self, order: dict[str, Any]) -> None:
        self._stomp.ack(self._marked(order))

    def nack(self, order: dict[str, Any]) -> None:
        self._stomp.nack(self._marked(order))

    def begin(self, order: dict[str, Any]) -> None:
        self._stomp.begin(order["transaction"])

    def commit(self, order: dict[str, Any]) -> None:
        self._stomp.commit(order["transaction"], receipt="commit")
        self._receipt("commit")

    def abort(self, order: dict[str, Any]) -> None:
        self._stomp.abort(order["transaction"])

    def failure(self, order: dict[str, Any]) -> str:
        frame = self._next("ERROR", order["seconds"])
        return str(frame.headers["message"])

    def rest(self, order: dict[str, Any]) -> None:
        end = time.monotonic() + order["seconds"]
        while time.monotonic() < end:
            self._stomp.canRead(0.5 * self._stomp.clientHeartBeat / 1000)
            self._stomp.beat()
        assert time.time() - self._stomp.lastReceived < 2 * self._stomp.serverHeartBeat / 1000, "no beats came"

    def back(self, order: dict[str, Any]) -> None:
        try:
            while self._stomp.canRead(order["seconds"]):
                self._stomp.receiveFrame()
        except StompConnectionError:
            self._stomp.close(flush=False)  # so that the subscriptions are replayed
        end = time.monotonic() + order["seconds"]
        while True:
            try:
                self._connect()
                return
            except StompConnectionError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def disconnect(self, _: dict[str, Any]) -> None:
        self._stomp.disconnect(receipt="bye")
        self._receipt("bye")
        self._stomp.close(flush=True)

    def forget(self) -> None:
        self._stomp.close(flush=True)


orders.serve("stompest 2.3.0", Connection)
