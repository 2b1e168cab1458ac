"""Combine two tunnels: WebSocket in TLS."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from radiator.tunnels.tls import Tls
    from radiator.tunnels.tunnel import Refusal
    from radiator.tunnels.websocket import WebSocket


class NestedTunnel:
    """Two tunnels, one inside the other.

    Args:
        outer: The tunnel next to the socket.
        inner: The tunnel next to STOMP.
    """

    def __init__(self, outer: Tls, inner: WebSocket) -> None:
        self._outer = outer
        self._inner = inner

    @property
    def ready(self) -> bool:
        """True when STOMP bytes can be sent and received."""
        return self._outer.ready and self._inner.ready

    @property
    def ended(self) -> bool:
        """True when the peer has announced that it sends no more. It may still receive."""
        return self._outer.ended or self._inner.ended

    @property
    def has_backlog(self) -> bool:
        """True while received bytes are not processed. Call ``receive(b"")`` then, and nothing else."""
        return self._inner.has_backlog or self._outer.has_backlog

    @property
    def buffered_bytes(self) -> int:
        """The number of received bytes that are not processed."""
        return self._outer.buffered_bytes + self._inner.buffered_bytes

    @property
    def refusal(self) -> Refusal | None:
        """Why the peer cannot be served, or None."""
        return self._outer.refusal or self._inner.refusal

    @property
    def certificate_name(self) -> str:
        """The name in the verified certificate of the peer; empty without one."""
        return self._outer.certificate_name

    def receive(self, data: bytes) -> bytes:
        """Return the STOMP bytes in received bytes. Afterwards check ``refusal`` and ``ended``."""
        if self._inner.has_backlog:
            return self._inner.receive(data)
        plain = self._outer.receive(data)
        return self._inner.receive(plain) if plain else b""

    def outgoing(self) -> bytes:
        """Return bytes of the tunnel itself to send at once."""
        return self._outer.outgoing()

    def control(self) -> bytes:
        """Return bytes of the tunnel itself to send in line with the messages."""
        return self._inner.control() if self._outer.ready else b""

    def wrap(self, data: bytes) -> bytes:
        """Return whole STOMP frames in the form that the tunnel carries."""
        return self._inner.wrap(data)

    def seal(self, data: bytes | memoryview) -> bytes:
        """Return a piece of wrapped bytes in the form for the socket."""
        return self._outer.seal(data)

    def answer(self, data: bytes) -> bytes:
        """Return an answer to a refused peer in the protocol that it spoke."""
        if self._outer.refusal is not None:
            return data
        return self._outer.seal(data) + self._outer.close(0, "")

    def decline(self, status: int, text: str) -> bytes:
        """Return a refusal of a peer whose handshake is not complete; empty if none can be sent."""
        if not self._outer.ready:
            return self._outer.decline(status, text)
        return self._outer.seal(self._inner.decline(status, text)) + self._outer.close(0, "")

    def close(self, code: int, reason: str) -> bytes:
        """Return the last bytes of the tunnel."""
        if not self._outer.ready:
            return self._outer.close(code, reason)
        last = self._inner.close(code, reason)
        return (self._outer.seal(last) if last else b"") + self._outer.close(code, reason)
