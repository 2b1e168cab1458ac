"""From an address to something that sends and receives STOMP's bytes like a socket: TCP, unix, TLS, WebSocket.

A plain socket is handed out as it is. Where the bytes travel in a tunnel (``radiator/tunnels``) a ``Carrier`` stands in
front of it with the six methods of a socket that the link uses.

Two threads use a carrier, one that reads and one at a time that writes. The tunnel's state is touched under ``_state``,
never while waiting; the order of bytes on the wire is kept by ``_writing``, which the reader only tries for, so that
neither can wait for the other.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

from radiator.client.address import Address
from radiator.client.errors import BadTls, ConnectFailed
from radiator.errors import ConfigError

if TYPE_CHECKING:
    from radiator.tunnels.tunnel import Tunnel

PIECE_BYTES = 64 * 1024
RECV_BYTES = 64 * 1024
CA_VARIABLE, CERT_VARIABLE, KEY_VARIABLE = "RADIATOR_CA", "RADIATOR_CERT", "RADIATOR_KEY"


class Socket(Protocol):
    """What a link needs."""

    def send(self, data: Any, /) -> int: ...

    def sendall(self, data: Any, /) -> None: ...

    def recv(self, size: int, /) -> bytes: ...

    def settimeout(self, seconds: float | None, /) -> None: ...

    def shutdown(self, how: int, /) -> None: ...

    def close(self) -> None: ...


def open_socket(
    place: Address, seconds: float, ca: str | None = None, cert: str | None = None, key: str | None = None
) -> Socket:
    """Connect. ``ca`` is a file of authorities to trust, ``cert`` and ``key`` are our own certificate; left out, the
    environment has them. OSError if nobody is there, ConnectFailed if the tunnel cannot be opened."""
    deadline = time.monotonic() + seconds
    tunnel = _tunnel(place, ca, cert, key)
    if place.scheme == "unix":
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.settimeout(seconds)
            sock.connect(place.path)
        except BaseException:
            sock.close()
            raise
        return sock
    sock = socket.create_connection((place.host, place.port), timeout=seconds)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if tunnel is None:
        return sock
    carrier = Carrier(sock, tunnel)
    try:
        carrier.open(place, deadline)
    except BaseException:
        sock.close()
        raise
    return carrier


def _tunnel(place: Address, ca: str | None, cert: str | None, key: str | None) -> Tunnel | None:
    """Imported where it is needed: a plain client loads neither OpenSSL nor wsproto."""
    if not place.encrypted and not place.web:
        return None
    tls = web = None
    if place.encrypted:
        from radiator.tunnels.certificates import client_context
        from radiator.tunnels.tls import Tls

        environ = os.environ
        try:
            context = client_context(
                ca or environ.get(CA_VARIABLE),
                cert or environ.get(CERT_VARIABLE),
                key or environ.get(KEY_VARIABLE),
            )
        except ConfigError as error:
            raise BadTls(f"cannot connect to {place}: {error}") from None
        tls = Tls(context, place.host)
    if place.web:
        from radiator.tunnels.websocket import ClientSocket

        web = ClientSocket(place.place, place.path)
    if tls is not None and web is not None:
        from radiator.tunnels.both import Both

        return Both(tls, web)
    return tls or web


class Carrier:
    """A connected socket with a tunnel in it."""

    def __init__(self, sock: socket.socket, tunnel: Tunnel) -> None:
        self._sock = sock
        self._tunnel = tunnel
        self._state = threading.Lock()
        self._writing = threading.Lock()
        self._wire: bytes | memoryview = b""  # under way
        self._late = b""  # sealed, and not out when its time was over
        self._inner = b""  # received, and not asked for yet

    def open(self, place: Address, deadline: float) -> None:
        """Shake hands; ConnectFailed says what stood against it."""
        tunnel = self._tunnel
        try:
            while True:
                with self._state:
                    self._gather()
                self._sock.settimeout(max(0.001, deadline - time.monotonic()))
                self._push()
                if tunnel.refusal is not None:
                    kind_of_error = BadTls if "TLS" in tunnel.refusal.message else ConnectFailed
                    raise kind_of_error(f"cannot connect to {place}: {tunnel.refusal.message}: {tunnel.refusal.detail}")
                if tunnel.ready:
                    return
                data = self._sock.recv(RECV_BYTES)
                if not data:
                    kind = "TLS" if place.encrypted else "WebSocket"
                    raise ConnectFailed(f"{place} closed the connection while {kind} was being opened")
                self._inner += tunnel.receive(data)
        except TimeoutError:
            raise ConnectFailed(f"{place} did not open the connection in time; does it speak {place.scheme}?") from None

    # --- as a socket ------------------------------------------------------------------------------------------------

    def send(self, data: bytes | memoryview, /) -> int:
        """Send a piece, whole. TimeoutError if that was not possible yet: then the same again goes on with it."""
        with self._writing:
            self._push()
            piece = bytes(data[:PIECE_BYTES])
            late, self._late = self._late, b""
            if late and late == piece:
                return len(piece)
            with self._state:
                self._gather()
                self._wire = bytes(self._wire) + self._tunnel.seal(self._tunnel.wrap(piece))
            try:
                self._push()
            except TimeoutError:
                self._late = piece
                raise
        return len(piece)

    def sendall(self, data: bytes, /) -> None:
        view = memoryview(data)
        while view:
            view = view[self.send(view) :]

    def recv(self, size: int, /) -> bytes:
        """What came; empty at the end. TimeoutError if nothing did."""
        while not self._inner:
            data = self._sock.recv(size)
            if not data:
                return b""
            tunnel = self._tunnel
            with self._state:
                self._inner = tunnel.receive(data)
            self._answer()
            if not self._inner and tunnel.refusal is not None:
                raise OSError(f"{tunnel.refusal.message}: {tunnel.refusal.detail}")
            if not self._inner and tunnel.ended:
                return b""
        inner, self._inner = self._inner[:size], self._inner[size:]
        return inner

    def settimeout(self, seconds: float | None, /) -> None:
        self._sock.settimeout(seconds)

    def shutdown(self, how: int, /) -> None:
        """Say the tunnel's last words if there is room for them, and end both directions."""
        if self._writing.acquire(blocking=False):
            try:
                with self._state:
                    last = b"" if self._wire else self._tunnel.close(1000, "")
                if last:
                    self._sock.send(last, socket.MSG_DONTWAIT)
            except OSError:
                pass
            finally:
                self._writing.release()
        self._sock.shutdown(how)

    def close(self) -> None:
        self._sock.close()

    # --- the wire ---------------------------------------------------------------------------------------------------

    def _answer(self) -> None:
        """What the tunnel itself has to say goes out now, or with whoever is writing."""
        if self._writing.acquire(blocking=False):
            try:
                with self._state:
                    self._gather()
                self._push()
            except TimeoutError:
                pass
            finally:
                self._writing.release()

    def _gather(self) -> None:
        control = self._tunnel.control()
        said = (self._tunnel.seal(control) if control else b"") + self._tunnel.outgoing()
        if said:
            self._wire = bytes(self._wire) + said

    def _push(self) -> None:
        while self._wire:
            sent = self._sock.send(self._wire)
            self._wire = memoryview(self._wire)[sent:]
        self._wire = b""
