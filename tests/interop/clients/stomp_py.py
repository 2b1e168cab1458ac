"""stomp.py: its listener runs in a thread of its own, so what comes is put into queues here."""

from __future__ import annotations

import logging
import queue
import threading
import time
from typing import Any

import guarded
import orders
import stomp

KINDS = {"1.0": stomp.StompConnection10, "1.1": stomp.StompConnection11, "1.2": stomp.StompConnection12}
WAIT_SECONDS = 30.0


class Listener(stomp.ConnectionListener):
    def __init__(self) -> None:
        self.messages: queue.Queue[Any] = queue.Queue()
        self.receipts: queue.Queue[str] = queue.Queue()
        self.errors: queue.Queue[Any] = queue.Queue()
        self.disconnected = threading.Event()

    def on_message(self, frame: Any) -> None:
        self.messages.put(frame)

    def on_receipt(self, frame: Any) -> None:
        self.receipts.put(frame.headers["receipt-id"])

    def on_error(self, frame: Any) -> None:
        self.errors.put(frame)

    def on_disconnected(self) -> None:
        self.disconnected.set()


class Connection:
    def __init__(self, order: dict[str, Any]) -> None:
        self._order = order
        self._subscribed: dict[str, dict[str, Any]] = {}
        self._handles: dict[int, Any] = {}
        self._receipts = 0
        endpoint = order["endpoint"]
        where = [(endpoint["host"], endpoint["port"])]
        options: dict[str, Any] = {"auto_decode": False}  # bodies are bytes
        if order["version"] != "1.0":
            options["heartbeats"] = tuple(order["heart_beat"])
            options["heart_beat_receive_scale"] = 3.0  # as patient as the broker of these tests: a machine may be busy
        if endpoint["transport"] in ("ws", "wss"):
            from stomp.adapter.ws import WSStompConnection  # websocket-client may be missing

            self._stomp = WSStompConnection(where, ws_path=endpoint["path"], binary_mode=True, **options)
        else:
            self._stomp = KINDS[order["version"]](where, **options)
        if endpoint["transport"] == "wss":
            guarded.guard()  # its WebSocket is read and written by two threads
        if endpoint["transport"] in ("tls", "wss"):
            self._stomp.set_ssl(where, ca_certs=endpoint["ca"])
        self._listener = Listener()
        self._stomp.set_listener("", self._listener)
        self._connect()
        self.version = order["version"]

    def _connect(self) -> None:
        try:
            self._stomp.connect(self._order["login"], self._order["passcode"], wait=True)
        except stomp.exception.ConnectFailedException as error:
            told = [frame.headers.get("message") for frame in list(self._listener.errors.queue)]
            raise orders.Lost(f"{error!r} {told}") from error

    def send(self, order: dict[str, Any], **more: str) -> None:
        if order["transaction"]:
            more["transaction"] = order["transaction"]
        self._stomp.send(order["destination"], orders.text_or_bytes(order), headers=order["headers"], **more)

    def stored(self, order: dict[str, Any]) -> None:
        self._receipts += 1
        self.send(order, receipt=f"r-{self._receipts}")
        assert self._listener.receipts.get(timeout=WAIT_SECONDS) == f"r-{self._receipts}"

    def subscribe(self, order: dict[str, Any]) -> None:
        self._subscribed[order["id"]] = order
        identity = {"id": order["id"]} if self.version != "1.0" else {}
        self._stomp.subscribe(order["destination"], ack=order["ack"], headers=order["headers"], **identity)

    def unsubscribe(self, order: dict[str, Any]) -> None:
        self._stomp.unsubscribe(order["destination"] if self.version == "1.0" else order["id"])

    def receive(self, order: dict[str, Any]) -> dict[str, Any] | None:
        try:
            frame = self._listener.messages.get(timeout=order["seconds"])
        except queue.Empty:
            return None
        handle = len(self._handles)
        self._handles[handle] = frame
        return orders.message(handle, frame.headers, frame.body)

    def _answer(self, function: Any, order: dict[str, Any]) -> None:
        headers = self._handles[order["handle"]].headers
        more = {"transaction": order["transaction"]} if order["transaction"] else {}
        if self.version == "1.0":
            function(headers["message-id"], **more)
        elif self.version == "1.1":
            function(headers["message-id"], headers["subscription"], **more)
        else:
            function(headers["ack"], **more)

    def ack(self, order: dict[str, Any]) -> None:
        self._answer(self._stomp.ack, order)

    def nack(self, order: dict[str, Any]) -> None:
        self._answer(self._stomp.nack, order)

    def begin(self, order: dict[str, Any]) -> None:
        self._stomp.begin(order["transaction"])

    def commit(self, order: dict[str, Any]) -> None:
        self._stomp.commit(order["transaction"])

    def abort(self, order: dict[str, Any]) -> None:
        self._stomp.abort(order["transaction"])

    def failure(self, order: dict[str, Any]) -> str:
        frame = self._listener.errors.get(timeout=order["seconds"])
        return str(frame.headers["message"])

    def rest(self, order: dict[str, Any]) -> None:
        assert not self._listener.disconnected.wait(order["seconds"]), "disconnected"

    def back(self, order: dict[str, Any]) -> None:
        assert self._listener.disconnected.wait(order["seconds"]), "the broken line was not noticed"
        end = time.monotonic() + order["seconds"]
        while True:
            try:
                self._connect()
                break
            except orders.Lost:
                if time.monotonic() > end:
                    raise
        for subscribed in self._subscribed.values():
            self.subscribe(subscribed)

    def disconnect(self, _: dict[str, Any]) -> None:
        self._stomp.disconnect(receipt="bye")
        assert self._listener.receipts.get(timeout=WAIT_SECONDS) == "bye"

    def forget(self) -> None:
        if self._stomp.is_connected():
            self._stomp.transport.disconnect_socket()


logging.getLogger("stomp.py").setLevel(logging.ERROR)
orders.serve(f"stomp.py {'.'.join(map(str, stomp.__version__))}", Connection)
