"""Define the interface of a tunnel, which carries STOMP bytes over a socket: TLS, WebSocket, or both.

Receiving: ``receive`` takes the bytes of the socket and returns STOMP bytes. Afterwards the owner checks ``refusal``
(the peer does not speak the protocol: send ``answer`` and close) and ``ended`` (the peer sends no more), and sends the
tunnel's own bytes: ``outgoing`` at once, ``control`` in line with the messages.

A server processes a bounded number of frames and records per call, because empty ones cost as much as full ones. While
``has_backlog`` is True, ``receive(b"")`` continues, and no other bytes may be passed.

Sending has two steps, so that a large message is not encrypted as a whole while it waits. ``wrap`` converts whole
frames; its result must be sent completely before the next one. ``seal`` converts a piece of any size of that to bytes
for the socket. ``close`` returns the last bytes.

Invariants: bytes of a peer raise no exception. A tunnel stores only one unfinished record, head or control frame, and
the bytes of its backlog.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Refusal(NamedTuple):
    """Why a peer cannot be served.

    Attributes:
        protocol: The protocol of the peer: ``stomp``, ``http`` (answer with ``reply``), ``tls``, ``websocket``, or
            empty if no answer is possible.
        message: One line that says what is wrong.
        detail: What to change.
        reply: The complete answer, if ``protocol`` needs one.
    """

    protocol: str
    message: str
    detail: str
    reply: bytes = b""


class Tunnel(Protocol):
    """TLS, WebSocket, or both."""

    @property
    def ready(self) -> bool:
        """True when STOMP bytes can be sent and received."""

    @property
    def ended(self) -> bool:
        """True when the peer has announced that it sends no more. It may still receive."""

    @property
    def has_backlog(self) -> bool:
        """True while received bytes are not processed. Call ``receive(b"")`` then, and nothing else."""

    @property
    def buffered_bytes(self) -> int:
        """The number of received bytes that are not processed."""

    @property
    def refusal(self) -> Refusal | None:
        """Why the peer cannot be served, or None."""

    @property
    def certificate_name(self) -> str:
        """The name in the verified certificate of the peer; empty without one."""

    def receive(self, data: bytes) -> bytes:
        """Return the STOMP bytes in received bytes. Afterwards check ``refusal`` and ``ended``."""

    def outgoing(self) -> bytes:
        """Return bytes of the tunnel itself to send at once."""

    def control(self) -> bytes:
        """Return bytes of the tunnel itself to send in line with the messages."""

    def wrap(self, data: bytes) -> bytes:
        """Return whole STOMP frames in the form that the tunnel carries."""

    def seal(self, data: bytes | memoryview) -> bytes | memoryview:
        """Return a piece of wrapped bytes in the form for the socket."""

    def answer(self, data: bytes) -> bytes:
        """Return an answer to a refused peer in the protocol that it spoke."""

    def decline(self, status: int, text: str) -> bytes:
        """Return a refusal of a peer whose handshake is not complete; empty if none can be sent."""

    def close(self, code: int, reason: str) -> bytes:
        """Return the last bytes of the tunnel."""


def detect_protocol(first: bytes) -> str | None:
    """Return the protocol of a peer by its first bytes: tls, http, stomp, or ""; None if more are needed."""
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
