"""stompman, the asyncio client: its event loop runs in a thread, and each order is a coroutine of its own."""

from __future__ import annotations

import asyncio
import base64
import importlib.metadata
import queue
import ssl
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

import orders
import stompman
from stompman.connection import Connection as TcpConnection
from stompman.connection_ws import WebSocketConnection

T = TypeVar("T")
WAIT_SECONDS = 30.0
BYTES_MAX = 8 * 1024 * 1024  # a WebSocket message; the default of 1 MiB is less than the broker's limit
LOOP = asyncio.new_event_loop()
threading.Thread(target=LOOP.run_forever, daemon=True).start()


def wait(work: Coroutine[Any, Any, T], seconds: float = WAIT_SECONDS) -> T:
    return asyncio.run_coroutine_threadsafe(work, LOOP).result(seconds)


class Connection:
    version = stompman.Client.PROTOCOL_VERSION

    def __init__(self, order: dict[str, Any]) -> None:
        endpoint = order["endpoint"]
        self._messages: queue.Queue[Any] = queue.Queue()
        self._errors: queue.Queue[stompman.ErrorFrame] = queue.Queue()
        self._handles: dict[int, Any] = {}
        self._subscriptions: dict[str, Any] = {}
        self._transactions: dict[str, Any] = {}
        server = stompman.ConnectionParameters(
            endpoint["host"], endpoint["port"], order["login"], order["passcode"], ws_uri_path=endpoint["path"]
        )
        self._client = stompman.Client(
            [server],
            on_error_frame=self._errors.put,
            heartbeat=stompman.Heartbeat(*order["heart_beat"]),
            ssl=ssl.create_default_context(cafile=endpoint["ca"]) if endpoint["transport"] == "tls" else None,
            connection_class=WebSocketConnection if endpoint["transport"] == "ws" else TcpConnection,
            read_max_chunk_size=BYTES_MAX,
        )
        self._wanted = asyncio.Event()
        self._life = asyncio.run_coroutine_threadsafe(self._live(started := threading.Event()), LOOP)
        self._life.add_done_callback(lambda _: started.set())
        started.wait(WAIT_SECONDS)
        if self._life.done():
            self._life.result()

    async def _live(self, started: threading.Event) -> None:
        """Enter and leave the client in one task, as its task group asks."""
        async with self._client:
            started.set()
            await self._wanted.wait()
            for subscription in self._subscriptions.values():
                await subscription.unsubscribe()

    async def _got(self, frame: Any) -> None:
        self._messages.put(frame)

    def _send(self, order: dict[str, Any], **more: Any) -> None:
        to = self._transactions.get(order["transaction"], self._client)
        headers = dict(order["headers"])
        wait(
            to.send(
                base64.b64decode(order["body"]), order["destination"],
                content_type=headers.pop("content-type", None), headers=headers, **more,
            )
        )  # fmt: skip

    def send(self, order: dict[str, Any]) -> None:
        self._send(order)

    def stored(self, order: dict[str, Any]) -> None:
        if order["transaction"]:
            order["headers"]["receipt"] = "r"  # a transaction of stompman has no way to wait for it
            self._send(order)
        else:
            self._send(order, receipt_timeout=WAIT_SECONDS)

    def subscribe(self, order: dict[str, Any]) -> None:
        self._subscriptions[order["id"]] = wait(
            self._client.subscribe_with_manual_ack(
                order["destination"], self._got, ack=order["ack"], headers=order["headers"],
                receipt_timeout=WAIT_SECONDS,
            )
        )  # fmt: skip

    def unsubscribe(self, order: dict[str, Any]) -> None:
        wait(self._subscriptions.pop(order["id"]).unsubscribe())

    def receive(self, order: dict[str, Any]) -> dict[str, Any] | None:
        try:
            frame = self._messages.get(timeout=order["seconds"])
        except queue.Empty:
            return None
        handle = len(self._handles)
        self._handles[handle] = frame
        return orders.message(handle, frame.headers, frame.body)

    def ack(self, order: dict[str, Any]) -> None:
        wait(self._handles[order["handle"]].ack())

    def nack(self, order: dict[str, Any]) -> None:
        wait(self._handles[order["handle"]].nack())

    def begin(self, order: dict[str, Any]) -> None:
        transaction = self._transactions[order["transaction"]] = self._client.begin()
        self._transactions[order["transaction"]] = wait(transaction.__aenter__())
        self._transactions[order["transaction"], "ends"] = transaction

    def commit(self, order: dict[str, Any]) -> None:
        del self._transactions[order["transaction"]]
        wait(self._transactions.pop((order["transaction"], "ends")).__aexit__(None, None, None))

    def abort(self, order: dict[str, Any]) -> None:
        del self._transactions[order["transaction"]]
        reason = RuntimeError("abort")
        try:
            wait(self._transactions.pop((order["transaction"], "ends")).__aexit__(type(reason), reason, None))
        except RuntimeError as error:
            if error is not reason:
                raise

    def failure(self, order: dict[str, Any]) -> str:
        return self._errors.get(timeout=order["seconds"]).headers["message"]

    def rest(self, order: dict[str, Any]) -> None:
        threading.Event().wait(order["seconds"])
        assert self._client.is_alive(), "no beats came"

    def back(self, order: dict[str, Any]) -> None:
        """Stompman connects and subscribes again by itself."""

    def disconnect(self, _: dict[str, Any]) -> None:
        LOOP.call_soon_threadsafe(self._wanted.set)
        self._life.result(WAIT_SECONDS)

    def forget(self) -> None:
        self._life.cancel()


orders.serve(f"stompman {importlib.metadata.version('stompman')}", Connection)
