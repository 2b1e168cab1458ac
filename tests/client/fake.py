"""A broker for tests of the client: real sockets, the real server side of the protocol, and any misbehaviour wanted.

By default it receipts every frame, numbers SENDs per destination, and delivers a SEND to the subscriptions of exactly
that name. ``on["SEND"] = function(peer, frame)`` replaces what it does with a command. Everything received is kept in
``frames`` and can be waited for. A broker's real semantics are tested against the real broker, not here.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Any

from radiator.stomp.connection import ServerConnection
from radiator.stomp.encoder import encode
from radiator.stomp.frames import Frame

WAIT_SECONDS = 20.0


class Peer:
    """One client as the fake sees it."""

    def __init__(self, broker: FakeBroker, sock: socket.socket) -> None:
        self.broker = broker
        self.sock = sock
        self.protocol = ServerConnection(heart_beat=broker.heart_beat)
        self.subscriptions: dict[str, str] = {}
        self.beats = 0

    def send(self, command: str, headers: dict[str, Any], body: bytes = b"") -> None:
        pairs = [(name, str(value)) for name, value in headers.items()]
        self.sock.sendall(encode(command, pairs, body, self.protocol.version or "1.2"))

    def message(self, subscription: str, body: bytes, **headers: Any) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.broker.serial += 1
        number = self.broker.serial
        base = {"subscription": subscription, "message-id": f"m{number}", "ack": f"m{number}"}
        self.send("MESSAGE", {**base, "destination": self.subscriptions.get(subscription, "?"), **named}, body)

    def receipt(self, frame: Frame, **headers: Any) -> None:
        if frame.receipt is not None:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            self.send("RECEIPT", {"receipt-id": frame.receipt.decode(), **named})

    def close(self) -> None:
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def run(self) -> None:
        try:
            while data := self.sock.recv(65536):
                if not data.strip(b"\n"):
                    self.beats += 1
                for frame in self.protocol.receive(data):
                    self.broker.handle(self, frame)
                if self.protocol.failed is not None:
                    break
        except OSError:
            pass
        finally:
            self.subscriptions.clear()
            self.sock.close()


class FakeBroker:
    """Listens on a free port of the loopback until ``close``."""

    def __init__(self, heart_beat: tuple[int, int] = (0, 0)) -> None:
        self.heart_beat = heart_beat
        self.frames: list[Frame] = []
        self.peers: list[Peer] = []
        self.on: dict[str, Callable[[Peer, Frame], None]] = {}
        self.serial = 0
        self.logs: dict[str, int] = {}
        self._changed = threading.Condition()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer = Peer(self, sock)
            self.peers.append(peer)
            threading.Thread(target=peer.run, daemon=True).start()

    def handle(self, peer: Peer, frame: Frame) -> None:
        with self._changed:
            self.frames.append(frame)
            self._changed.notify_all()
        self.on.get(frame.command, self.default)(peer, frame)

    def default(self, peer: Peer, frame: Frame) -> None:
        headers = frame.headers
        if frame.command in ("CONNECT", "STOMP"):
            peer.sock.sendall(peer.protocol.connected_frame([("session", "s-1"), ("server", "fake/1")]))
        elif frame.command == "SEND":
            destination = headers["destination"]
            offset = self.logs[destination] = self.logs.get(destination, -1) + 1
            found = [(p, name) for p in self.peers for name, to in [*p.subscriptions.items()] if to == destination]
            carried = {k: v for k, v in headers.items() if k not in ("content-length", "transaction", "destination")}
            for other, name in found:
                self.serial += 1
                number = {"message-id": f"m{self.serial}", "ack": f"m{self.serial}", "offset": offset}
                base = {"subscription": name, "destination": destination, **number}
                with contextlib.suppress(OSError):  # that client has just gone
                    other.send("MESSAGE", {**base, **carried}, frame.body)
            peer.receipt(frame, offset=offset, partition=destination, delivered_to=len(found))
        else:
            if frame.command == "SUBSCRIBE":
                peer.subscriptions[headers["id"]] = headers["destination"]
            elif frame.command == "UNSUBSCRIBE":
                peer.subscriptions.pop(headers["id"], None)
            peer.receipt(frame)

    def wait_for(self, command: str, count: int = 1) -> list[Frame]:
        """The frames of a command once there are ``count`` of them."""

        def found() -> list[Frame]:
            return [frame for frame in self.frames if frame.command == command]

        with self._changed:
            assert self._changed.wait_for(lambda: len(found()) >= count, WAIT_SECONDS), f"no {count} {command} came"
            return found()

    def close(self) -> None:
        self._listener.close()
        for peer in self.peers:
            peer.close()
