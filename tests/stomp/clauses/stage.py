"""Where a clause is shown: a real broker, real sockets, and names that no other clause uses.

A *case* is a function of a ``Stage`` that fails when the clause does not hold. What a client has to do is shown by our
own (``stage.client()``), which makes bytes and needs no socket; what a broker has to do, by a ``Peer``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

from radiator.stomp.connection import ClientConnection
from radiator.stomp.frames import Frame
from tests.running import BrokerProcess
from tests.server.wire import Wire

CONNECT = b"CONNECT\naccept-version:%b\nhost:x\n\n\0"
_numbers = itertools.count()


class Peer(Wire):
    """A connection that keeps every byte it was sent in ``raw``."""

    raw = b""

    def more(self, size: int = 65_536) -> bytes:
        data = super().more(size)
        self.raw += data
        return data

    def open(self, **headers: str) -> Peer:
        """As a client of this version does it: one of 1.0 says no version."""
        if self.version != "1.0":
            headers = {"accept_version": self.version, "host": "test", **headers}
        self.say("CONNECT", **headers)
        assert self.hear("CONNECTED")
        return self

    def subscribe(self, destination: str, id: str | None = "s", ack: str = "auto", **headers: Any) -> None:
        if id is not None:
            headers["id"] = id
        self.say("SUBSCRIBE", destination=destination, ack=ack, receipt="subscribed", **headers)
        self.hear("RECEIPT", receipt_id="subscribed")

    def publish(self, destination: str, *bodies: bytes, **headers: Any) -> None:
        for body in bodies:
            self.say("SEND", body, destination=destination, receipt="sent", **headers)
            self.hear("RECEIPT", receipt_id="sent")

    def settle(self, message: Frame, command: str = "ACK", **headers: Any) -> None:
        """As this version names a delivery."""
        if self.version == "1.2":
            headers["id"] = message.headers["ack"]
        else:
            headers["message-id"] = message.headers["message-id"]
        if self.version == "1.1":
            headers["subscription"] = message.headers["subscription"]
        self.say(command, receipt="settled", **headers)
        self.hear("RECEIPT", receipt_id="settled")

    def bodies(self, count: int) -> list[bytes]:
        return [frame.body for frame in self.hear_many("MESSAGE", count)]

    def quiet(self) -> None:
        """Nothing was heard that was not asked for, and nothing comes."""
        for _ in range(2):
            self.barrier()
        assert self.inbox == []

    def refused(self, code: str) -> Frame:
        """The stream ends with this ERROR and holds no other frame."""
        (frame,) = self.rest()
        assert frame.command == "ERROR"
        assert frame.headers["error-code"] == code, frame.headers
        return frame


class Stage:
    """One showing of one clause in one version."""

    def __init__(self, broker: BrokerProcess, version: str) -> None:
        self.broker = broker
        self.version = version
        self.name = f"clause.{next(_numbers)}"
        self.queue = f"/queue/{self.name}"
        self.topic = f"/topic/{self.name}"
        self._peers: list[Peer] = []

    def close(self) -> None:
        for peer in self._peers:
            peer.close()

    def raw(self) -> Peer:
        """A connection that has said nothing yet."""
        peer = Peer(self.broker, self.version)
        self._peers.append(peer)
        return peer

    def peer(self, **headers: str) -> Peer:
        return self.raw().open(**headers)

    def client(self) -> ClientConnection:
        """Our own client, agreed upon this version."""
        client = ClientConnection(versions=(self.version,))
        client.receive(b"CONNECTED\nversion:%b\n\n\0\n" % self.version.encode())
        assert client.version == self.version
        return client


Case = Callable[[Stage], None]


class Clause(NamedTuple):
    """One row. ``level`` as the text has it, ``says`` where it has no such word. ``deviates``: the row of "Deviations"
    in docs/protocol.md; then the case shows what we do instead."""

    section: str
    level: str
    words: str
    case: Case
    deviates: str = ""


LEVELS = ("MUST", "MUST NOT", "SHOULD", "MAY", "says")
