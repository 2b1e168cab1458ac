"""WebSocket in TLS: two tunnels, one inside the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from radiator.tunnels.tls import Tls
    from radiator.tunnels.tunnel import Refusal
    from radiator.tunnels.websocket import WebSocket


class NestedTunnel:
    """What the socket carries goes through ``outer``, what that brings through ``inner``."""

    def __init__(self, outer: Tls, inner: WebSocket) -> None:
        self._outer = outer
        self._inner = inner

    @property
    def ready(self) -> bool:
        return self._outer.ready and self._inner.ready

    @property
    def ended(self) -> bool:
        return self._outer.ended or self._inner.ended

    @property
    def has_backlog(self) -> bool:
        return self._inner.has_backlog or self._outer.has_backlog

    @property
    def buffered_bytes(self) -> int:
        return self._outer.buffered_bytes + self._inner.buffered_bytes

    @property
    def refusal(self) -> Refusal | None:
        return self._outer.refusal or self._inner.refusal

    @property
    def certificate_name(self) -> str:
        return self._outer.certificate_name

    def receive(self, data: bytes) -> bytes:
        if self._inner.has_backlog:
            return self._inner.receive(data)
        plain = self._outer.receive(data)
        return self._inner.receive(plain) if plain else b""

    def outgoing(self) -> bytes:
        return self._outer.outgoing()

    def control(self) -> bytes:
        return self._inner.control() if self._outer.ready else b""

    def wrap(self, data: bytes) -> bytes:
        return self._inner.wrap(data)

    def seal(self, data: bytes | memoryview) -> bytes:
        return self._outer.seal(data)

    def answer(self, data: bytes) -> bytes:
        if self._outer.refusal is not None:
            return data
        return self._outer.seal(data) + self._outer.close(0, "")

    def decline(self, status: int, text: str) -> bytes:
        if not self._outer.ready:
            return self._outer.decline(status, text)
        return self._outer.seal(self._inner.decline(status, text)) + self._outer.close(0, "")

    def close(self, code: int, reason: str) -> bytes:
        if not self._outer.ready:
            return self._outer.close(code, reason)
        last = self._inner.close(code, reason)
        return (self._outer.seal(last) if last else b"") + self._outer.close(code, reason)
