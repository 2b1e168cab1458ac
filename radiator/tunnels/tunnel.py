"""What a tunnel is to the socket on one side and to STOMP on the other.

What comes in: ``receive`` takes what the socket brought and returns STOMP's bytes. Afterwards the owner looks at
``refusal`` (the peer does not speak this: answer with ``answer``, and close), ``ended`` (it will send no more), and at
what the tunnel itself has to say: ``outgoing`` for the socket at once, ``control`` in line with the messages.

A server's end looks at a bounded number of frames and records at a time, since empty ones cost as much as full ones:
while it is ``behind``, ``receive(b"")`` goes on, and nothing else may be given to it.

What goes out has two steps, so that a large message does not become as large a piece of encrypted bytes that waits:
``wrap`` makes whole frames into what is carried (and must then be sent as a whole before the next), ``seal`` makes a
piece of that, as large as its owner likes, into bytes for the socket. ``close`` gives the last bytes.

Invariants: nothing is raised for what a peer sends; nothing is held but one unfinished record, head or control frame,
and what it was given while it is ``behind``.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Refusal(NamedTuple):
    """Why a peer cannot be served here: the language that it spoke, one line about it, and what to do."""

    protocol: str  # "stomp", "http" (answer with ``reply``), "tls", or "": nothing that could be answered
    message: str
    detail: str
    reply: bytes = b""


class Tunnel(Protocol):
    """TLS, WebSocket, or both."""

    @property
    def ready(self) -> bool:
        """STOMP's bytes may travel."""

    @property
    def ended(self) -> bool:
        """The peer has said that it will send no more; it may still be sent something."""

    @property
    def has_backlog(self) -> bool:
        """It has not looked at all that came."""

    @property
    def buffered_bytes(self) -> int:
        """How much of what came is held: an unfinished record or head, or what it has not looked at."""

    @property
    def refusal(self) -> Refusal | None: ...

    @property
    def certificate_name(self) -> str:
        """Who the peer's certificate says that it is; empty without one."""

    def receive(self, data: bytes) -> bytes: ...

    def outgoing(self) -> bytes: ...

    def control(self) -> bytes: ...

    def wrap(self, data: bytes) -> bytes: ...

    def seal(self, data: bytes | memoryview) -> bytes: ...

    def answer(self, data: bytes) -> bytes:
        """For a refused peer: these bytes in the language in which it spoke."""

    def decline(self, status: int, text: str) -> bytes:
        """For a peer that has not got through yet: why it will not; empty where that cannot be said."""

    def close(self, code: int, reason: str) -> bytes: ...


def detect_protocol(first: bytes) -> str | None:
    """Which language the first bytes of a peer are in: tls, http, stomp, or "" for none of these; None: too early."""
    if first[:1] == b"\x16":
        return "tls"
    first = first.lstrip(b"\r\n")
    if b"\n" not in first and len(first) < SNIFF_BYTES:
        return None
    if first.startswith(HTTP_VERBS):
        return "http"
    return "stomp" if first.startswith(STOMP_WORDS) else ""


SNIFF_BYTES = 9
HTTP_VERBS = (b"GET ", b"HEAD ", b"POST ", b"PUT ", b"PATCH ", b"DELETE ", b"OPTIONS ", b"CONNECT ", b"PRI ")
STOMP_WORDS = (b"CONNECT\n", b"CONNECT\r", b"STOMP\n", b"STOMP\r", b"SEND\n", b"SUBSCRIBE")
TLS_ALERT = b"\x15\x03\x01\x00\x02\x02\x28"  # fatal, handshake failure
