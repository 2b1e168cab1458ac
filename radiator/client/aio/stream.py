"""Open the byte stream of an asyncio connection: TCP, unix socket, TLS or WebSocket.

TLS and WebSocket are the tunnels of ``radiator/tunnels``, as in the blocking client. ``write`` puts whole frames into
the send buffer of the transport without a wait, so a cancelled caller never leaves half a frame.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from typing import Any

from radiator.client.address import Address
from radiator.client.errors import BadTls, ConnectFailed
from radiator.client.sockets import is_ip_address, make_tunnel
from radiator.tunnels.tunnel import Tunnel

RECV_BYTES = 256 * 1024


class Stream:
    """The byte stream of one connection.

    Args:
        reader: The receiving side of the socket.
        writer: The sending side of the socket.
        tunnel: The state of TLS and WebSocket, or None.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tunnel: Tunnel | None) -> None:
        self._reader = reader
        self._writer = writer
        self._tunnel = tunnel
        self._inner = b""  # STOMP bytes that came with the handshake

    async def shake_hands(self, place: Address) -> None:
        """Perform the handshakes of the tunnel.

        Args:
            place: The address of the broker, for error messages.

        Raises:
            ConnectFailed: The handshake failed.
            BadTls: The TLS handshake was refused.
            OSError: The connection broke.
        """
        tunnel = self._tunnel
        while tunnel is not None:
            self._send_own(tunnel)
            if tunnel.refusal is not None:
                kind_of_error = BadTls if "TLS" in tunnel.refusal.message else ConnectFailed
                raise kind_of_error(f"cannot connect to {place}: {tunnel.refusal.message}: {tunnel.refusal.detail}")
            if tunnel.ready:
                return
            data = await self._reader.read(RECV_BYTES)
            if not data:
                kind = "TLS" if place.encrypted else "WebSocket"
                raise ConnectFailed(f"{place} closed the connection during the {kind} handshake")
            self._inner += tunnel.receive(data)

    async def read(self) -> bytes:
        """Return received STOMP bytes, or no bytes at the end of the stream.

        Raises:
            OSError: The connection broke, or the peer broke the rules of the tunnel.
        """
        while True:
            inner, self._inner = self._inner, b""
            if inner:
                return inner
            data = await self._reader.read(RECV_BYTES)
            tunnel = self._tunnel
            if not data or tunnel is None:
                return data
            self._inner = tunnel.receive(data)
            self._send_own(tunnel)
            if not self._inner and tunnel.refusal is not None:
                raise OSError(f"{tunnel.refusal.message}: {tunnel.refusal.detail}")
            if not self._inner and tunnel.ended:
                return b""

    def write(self, data: bytes) -> None:
        """Put whole frames into the send buffer, without a wait.

        Args:
            data: The encoded frames.
        """
        tunnel = self._tunnel
        if tunnel is None:
            self._writer.write(data)
        else:
            self._send_own(tunnel)
            self._writer.write(tunnel.seal(tunnel.wrap(data)))

    def _send_own(self, tunnel: Tunnel) -> None:
        control = tunnel.control()
        own = bytes(tunnel.seal(control)) if control else b""
        own += tunnel.outgoing()
        if own:
            self._writer.write(own)

    @property
    def unsent_bytes(self) -> int:
        """The size of the send buffer."""
        return self._writer.transport.get_write_buffer_size()

    async def drain(self) -> None:
        """Return when the send buffer has room again.

        Raises:
            OSError: The connection broke.
        """
        await self._writer.drain()

    def close(self) -> None:
        """Send what is in the send buffer, with the closing bytes of the tunnel, and close the socket. No wait."""
        if self._tunnel is not None and not self._writer.is_closing():
            self._writer.write(self._tunnel.close(1000, ""))
        self._writer.close()

    def abort(self) -> None:
        """Close the socket at once."""
        self._writer.transport.abort()


async def open_stream(
    place: Address, seconds: float, ca: str | None = None, cert: str | None = None, key: str | None = None
) -> Stream:
    """Open and return a connection to the broker, TLS and WebSocket handshakes included.

    Args:
        place: The address of the broker.
        seconds: The time limit of the caller, in seconds, which is shared among the IP addresses of the host.
        ca: The file with the certificate authorities to trust; None uses RADIATOR_CA, or those of the system.
        cert: The file with the certificate of the client; None uses RADIATOR_CERT.
        key: The file with the key of that certificate; None uses RADIATOR_KEY.

    Raises:
        OSError: No process listens at the address, or the host name is unknown.
        ConnectFailed: The TLS or WebSocket handshake failed.
        BadTls: A TLS file cannot be read, or the certificate of the broker is not trusted.
    """
    tunnel = make_tunnel(place, ca, cert, key)
    if place.scheme == "unix":
        reader, writer = await asyncio.open_unix_connection(place.path, limit=RECV_BYTES)
    else:
        sock = await _connected(place, seconds)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            reader, writer = await asyncio.open_connection(sock=sock, limit=RECV_BYTES)
        except BaseException:
            sock.close()
            raise
    stream = Stream(reader, writer, tunnel)
    try:
        await stream.shake_hands(place)
    except BaseException:
        stream.abort()
        raise
    return stream


async def _connected(place: Address, seconds: float) -> socket.socket:
    """Return a socket that is connected to one of the IP addresses of the host.

    Each address gets an equal part of the time that is left, so one that does not answer leaves time for the others.
    """
    problem: OSError | None = None
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    found = await _resolve(place.host, place.port)
    for index, (family, kind, protocol, _, target) in enumerate(found):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            async with asyncio.timeout((deadline - loop.time()) / (len(found) - index)):
                await loop.sock_connect(sock, target)
        except OSError as error:
            sock.close()
            # asyncio's own text is "Connect call failed ('127.0.0.1', 1)"; its timeout has no number
            problem = OSError(error.errno, os.strerror(error.errno)) if error.errno else error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    assert problem is not None
    raise problem


async def _resolve(host: str, port: int) -> list[Any]:
    """Return the results of ``socket.getaddrinfo``.

    The end of an event loop waits for the threads of its executor, and the resolver of the system has no time limit.
    So a daemon thread calls it.
    """
    if is_ip_address(host):
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[list[Any]] = loop.create_future()

    def answered(found: list[Any], problem: OSError | None) -> None:
        if answer.done():
            return
        if problem is None:
            answer.set_result(found)
        else:
            answer.set_exception(problem)

    def look_up() -> None:
        found: list[Any] = []
        problem = None
        try:
            found = [*socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
        except OSError as error:
            problem = error
        try:
            loop.call_soon_threadsafe(answered, found, problem)
        except RuntimeError:
            pass  # the event loop has ended meanwhile

    threading.Thread(target=look_up, name="radiator-client-resolver", daemon=True).start()
    return await answer
