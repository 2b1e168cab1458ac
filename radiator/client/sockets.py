"""Open the byte stream of a connection: TCP, unix socket, TLS or WebSocket.

A plain socket is returned unchanged. TLS and WebSocket use a tunnel (``radiator/tunnels``), and a ``Carrier`` gives the
tunnel the six socket methods that the link calls.

Two threads use a carrier: the reader, and one writer at a time. ``_state`` protects the tunnel and is never held during
a wait. ``_writing`` protects the order of bytes on the wire. The reader acquires it without blocking, so neither thread
waits for the other.
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
    """The socket methods that a link calls, as in the ``socket`` module. All may raise OSError, also TimeoutError."""

    def send(self, data: Any, /) -> int:
        """Send a part of the data and return its length in bytes.

        Args:
            data: The bytes to send.
        """

    def sendall(self, data: Any, /) -> None:
        """Send all of the data.

        Args:
            data: The bytes to send.
        """

    def recv(self, size: int, /) -> bytes:
        """Return received bytes, or no bytes at the end of the stream.

        Args:
            size: The maximum number of bytes.
        """

    def settimeout(self, seconds: float | None, /) -> None:
        """Set the time limit of ``send`` and ``recv``.

        Args:
            seconds: The limit in seconds; None waits without limit.
        """

    def fileno(self) -> int:
        """Return the file descriptor; -1 of a closed socket."""

    def shutdown(self, how: int, /) -> None:
        """End the connection.

        Args:
            how: The direction, as for ``socket.shutdown``.
        """

    def close(self) -> None:
        """Close the socket."""


def open_socket(
    place: Address, seconds: float, ca: str | None = None, cert: str | None = None, key: str | None = None
) -> Socket:
    """Open and return a connection to the broker, TLS and WebSocket handshakes included.

    Args:
        place: The address of the broker.
        seconds: The time limit in seconds.
        ca: The file with the certificate authorities to trust; None uses RADIATOR_CA, or those of the system.
        cert: The file with the certificate of the client; None uses RADIATOR_CERT.
        key: The file with the key of that certificate; None uses RADIATOR_KEY.

    Raises:
        OSError: No process listens at the address, or the host name is unknown.
        ConnectFailed: The TLS or WebSocket handshake failed.
        BadTls: A TLS file cannot be read, or the certificate of the broker is not trusted.
    """
    deadline = time.monotonic() + seconds
    tunnel = make_tunnel(place, ca, cert, key)
    if place.scheme == "unix":
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.settimeout(seconds)
            sock.connect(place.path)
        except BaseException:
            sock.close()
            raise
        return sock
    sock = _connected(place, deadline)
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


def _connected(place: Address, deadline: float) -> socket.socket:
    """Return a socket that is connected to one of the IP addresses of the host.

    Each address gets an equal part of the time that is left, so one that does not answer leaves time for the others.
    """
    problem: OSError | None = None
    found = resolve(place.host, place.port, deadline - time.monotonic())
    for index, (family, kind, protocol, _, target) in enumerate(found):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(max(0.001, (deadline - time.monotonic()) / (len(found) - index)))
            sock.connect(target)
        except OSError as error:
            sock.close()
            problem = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    assert problem is not None
    raise problem


def resolve(host: str, port: int, seconds: float) -> list[Any]:
    """Return the results of ``socket.getaddrinfo`` for a TCP address, within a time limit.

    The resolver of the system has no time limit, so a thread of its own waits for it.

    Args:
        host: A host name or an IP address.
        port: The port.
        seconds: The time limit in seconds.

    Raises:
        TimeoutError: The resolver did not answer in time.
        OSError: The name is unknown.
    """
    answer: list[Any] = []
    done = threading.Event()

    def look_up() -> None:
        try:
            answer.append(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except OSError as error:
            answer.append(error)
        finally:
            done.set()

    if is_ip_address(host):
        look_up()
    else:
        threading.Thread(target=look_up, name="radiator-client-resolver", daemon=True).start()
    if not done.wait(seconds) or not answer:
        raise TimeoutError(f"the host name was not resolved within {seconds:.3g} s")
    if isinstance(answer[0], OSError):
        raise answer[0]
    found: list[Any] = answer[0]
    return found


def disown(sock: Socket) -> None:
    """Take a socket that a child process inherited away from it, without effect on the parent.

    The descriptor becomes one of ``os.devnull``. Closing it instead would remove the socket from the epoll set that
    gevent's hub still shares with the parent at this moment.

    Args:
        sock: The socket, which stays open as an object.
    """
    number = sock.fileno()
    if number >= 0:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, number, inheritable=False)
        os.close(null)


def is_ip_address(host: str) -> bool:
    """Return True if a host is an IP address, which needs no resolver.

    Args:
        host: A host name or an IP address, without brackets.
    """
    return ":" in host or host.replace(".", "").isdigit()


def make_tunnel(place: Address, ca: str | None, cert: str | None, key: str | None) -> Tunnel | None:
    """Return the tunnel for the scheme, or None for plain STOMP.

    Imports are local, so a plain client loads neither OpenSSL nor websockets.

    Args:
        place: The address of the broker.
        ca: The file with the certificate authorities to trust; None uses RADIATOR_CA, or those of the system.
        cert: The file with the certificate of the client; None uses RADIATOR_CERT.
        key: The file with the key of that certificate; None uses RADIATOR_KEY.

    Raises:
        BadTls: A TLS file cannot be read.
    """
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
        from radiator.tunnels.nested import NestedTunnel

        return NestedTunnel(tls, web)
    return tls or web


class Carrier:
    """A socket-like object whose bytes travel in a TLS or WebSocket tunnel.

    Args:
        sock: The connected socket.
        tunnel: The state of the tunnel.
    """

    def __init__(self, sock: socket.socket, tunnel: Tunnel) -> None:
        self._sock = sock
        self._tunnel = tunnel
        self._state = threading.Lock()
        self._writing = threading.Lock()
        self._wire: bytes | memoryview = b""  # sealed bytes that are not sent yet
        self._late = b""  # the piece whose send timed out
        self._inner = b""  # received STOMP bytes that recv has not returned yet

    def open(self, place: Address, deadline: float) -> None:
        """Perform the handshakes of the tunnel.

        Args:
            place: The address of the broker, for error messages.
            deadline: The time limit, on the monotonic clock in seconds.

        Raises:
            ConnectFailed: The handshake failed or timed out.
            BadTls: The TLS handshake was refused.
        """
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
                    raise ConnectFailed(f"{place} closed the connection during the {kind} handshake")
                self._inner += tunnel.receive(data)
        except TimeoutError:
            raise ConnectFailed(f"{place} did not open the connection in time; does it speak {place.scheme}?") from None

    # --- as a socket ------------------------------------------------------------------------------------------------

    def send(self, data: bytes | memoryview, /) -> int:
        """Send one piece of ``data`` whole and return its length in bytes.

        Args:
            data: The bytes to send; up to PIECE_BYTES of them are sent.

        Raises:
            TimeoutError: The piece could not be sent in time. A call with the same data continues with it.
            OSError: The connection broke.
        """
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
        """Send all bytes.

        Args:
            data: The bytes to send.

        Raises:
            OSError: The connection broke, or timed out (TimeoutError).
        """
        view = memoryview(data)
        while view:
            view = view[self.send(view) :]

    def recv(self, size: int, /) -> bytes:
        """Return received bytes, or no bytes at the end of the stream.

        Args:
            size: The maximum number of bytes.

        Raises:
            TimeoutError: No bytes came in time.
            OSError: The connection broke, or the peer broke the rules of the tunnel.
        """
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
        """Set the time limit of ``send`` and ``recv``.

        Args:
            seconds: The limit in seconds; None waits without limit.
        """
        self._sock.settimeout(seconds)

    def fileno(self) -> int:
        """Return the file descriptor; -1 of a closed socket."""
        return self._sock.fileno()

    def shutdown(self, how: int, /) -> None:
        """Send the closing bytes of the tunnel if the send buffer has room, and end the connection.

        Args:
            how: The direction, as for ``socket.shutdown``.

        Raises:
            OSError: The socket is not connected any more.
        """
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
        """Close the socket."""
        self._sock.close()

    # --- the wire ---------------------------------------------------------------------------------------------------

    def _answer(self) -> None:
        """Send the control bytes of the tunnel now, or leave them to the thread that is writing."""
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
        if control:
            self._wire = bytes(self._wire) + self._tunnel.seal(control)
        self._wire = bytes(self._wire) + self._tunnel.outgoing()

    def _push(self) -> None:
        while self._wire:
            sent = self._sock.send(self._wire)
            self._wire = memoryview(self._wire)[sent:]
        self._wire = b""
