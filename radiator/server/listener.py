"""Listen for clients on a TCP address or a unix socket, with a gevent StreamServer each."""

from __future__ import annotations

import errno
import logging
import socket as std_socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from gevent import socket
from gevent.server import StreamServer

from radiator import clock
from radiator.config import Config, Listen
from radiator.errors import ConfigError
from radiator.server import unix
from radiator.server.addresses import is_public
from radiator.server.certificates import Certificate
from radiator.tunnels.nested import NestedTunnel
from radiator.tunnels.origins import ANY
from radiator.tunnels.tunnel import Tunnel

if TYPE_CHECKING:
    from radiator.tunnels.tls import Tls
    from radiator.tunnels.websocket import ServerSocket

log = logging.getLogger("radiator.server")

BACKLOG = 1024  # connections that the kernel queues between two rounds
OUT_OF_RESOURCES = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
PAUSE_SECONDS = 0.1  # without accepting, when the system has no descriptors left
LOG_INTERVAL_NS = 60 * clock.NS_PER_SECOND
# TCP keep-alive: the kernel probes a peer that was silent for a minute, and gives up after four more probes.
KEEPALIVE_IDLE_SECONDS = 60
KEEPALIVE_INTERVAL_SECONDS = 15
KEEPALIVE_PROBES = 4


class RetryingServer(StreamServer):
    """A StreamServer that survives a lack of file descriptors.

    Connections then wait in the kernel. The server tries again every PAUSE_SECONDS and logs once in LOG_INTERVAL_NS.
    """

    _logged_ns: int | None = None

    def do_read(self) -> Any:
        """Accept a connection, or pause accepting if the system has no resources for one."""
        try:
            return super().do_read()
        except OSError as error:
            if error.errno not in OUT_OF_RESOURCES:
                raise
            now_ns = clock.monotonic_ns()
            if self._logged_ns is None or now_ns - self._logged_ns >= LOG_INTERVAL_NS:
                self._logged_ns = now_ns
                log.error("connections wait until some end: %s (ulimit -n)", error.strerror)
        self.stop_accepting()
        self._timer = self.loop.timer(PAUSE_SECONDS)
        self._timer.start(self._start_accepting_if_started)  # type: ignore
        return None


class Listener:
    """Listen on one address.

    Args:
        listen: The address.
        accept: Called with the listener, each new non-blocking socket, and the address of the peer.
        certificate: The certificate, or None without TLS.
        frame_bytes_max: The limit for a STOMP frame in bytes.

    Attributes:
        url: The URL of the listener, with the real port.

    Raises:
        ConfigError: The address cannot be listened on.
    """

    def __init__(
        self,
        listen: Listen,
        accept: Callable[[Listener, std_socket.socket, str], None],
        certificate: Certificate | None,
        frame_bytes_max: int,
    ) -> None:
        self._accept = accept
        self.configure(listen, certificate, frame_bytes_max)
        self._path = listen.path if listen.scheme == "unix" else None
        self._socket = (
            unix.bind(listen.path, BACKLOG)
            if listen.scheme == "unix"
            else bind_tcp(listen.host, listen.port, "listen", str(listen))
        )
        self._file = unix.identity(listen.path) if listen.scheme == "unix" else (0, 0)
        self._server = RetryingServer(self._socket, self._handle, spawn=None)
        if listen.scheme == "unix":
            self.url = str(listen)
        else:
            host, port = self._socket.getsockname()[:2]
            self.url = str(msgspec.structs.replace(listen, host=host, port=port))

    def configure(self, listen: Listen, certificate: Certificate | None, frame_bytes_max: int) -> None:
        """Accept connections in this way from now on. The arguments are those of the class, with the same address."""
        self._listen = listen
        self._new_tls = None if certificate is None else _tls_of(certificate)
        self._new_web = _web_of(listen, frame_bytes_max) if listen.web else None

    @property
    def address(self) -> tuple[str, str | int]:
        """The address that was configured: host and port, or the path of a unix socket."""
        return address_of(self._listen)

    @property
    def web(self) -> bool:
        """True if clients connect with WebSocket."""
        return self._listen.web

    def tls(self) -> Tls | None:
        """Return a new TLS state for a connection, or None without TLS."""
        return None if self._new_tls is None else self._new_tls()

    def tunnel(self) -> Tunnel | None:
        """Return a new tunnel for a connection (TLS, WebSocket or both), or None for plain TCP."""
        tls = self.tls()
        if self._new_web is None:
            return tls
        web = self._new_web(secure=tls is not None)
        return web if tls is None else NestedTunnel(tls, web)

    def start(self) -> None:
        """Accept connections from now on."""
        self._server.start()

    def stop(self) -> None:
        """Stop accepting, and remove the file of a unix socket."""
        self._server.stop(timeout=0)
        self._socket.close()
        if self._path is not None:
            unix.remove(self._path, self._file)

    def _handle(self, client: Any, address: Any) -> None:
        sock = released(client, tcp=self._path is None)
        self._accept(self, sock, f"{address[0]}:{address[1]}" if isinstance(address, tuple) else str(self._path))


class ConsoleListener:
    """The WebSocket of the console, as a listener for ``Acceptor``. The admin listener checks Host and Origin before.

    Args:
        path: The path of the WebSocket.
    """

    web = True

    def __init__(self, path: str) -> None:
        self._path = path
        self._new_web: Callable[..., ServerSocket] | None = None

    def tls(self) -> Tls | None:
        """Return None: the admin listener has no TLS."""
        return None

    def tunnel(self) -> Tunnel:
        """Return a new tunnel for a connection."""
        if self._new_web is None:
            from radiator.tunnels.websocket import MessageEncoder, ServerSocket

            self._new_web = partial(ServerSocket, self._path, ANY, MessageEncoder(), secure=False)
        return self._new_web()


def released(client: Any, tcp: bool = True) -> std_socket.socket:
    """Return the socket of a gevent socket, which loses it: non-blocking, and probed by the kernel if it is TCP."""
    sock = std_socket.socket(fileno=client.detach())
    sock.setblocking(False)
    if tcp:
        sock.setsockopt(std_socket.IPPROTO_TCP, std_socket.TCP_NODELAY, 1)
        sock.setsockopt(std_socket.SOL_SOCKET, std_socket.SO_KEEPALIVE, 1)
        sock.setsockopt(std_socket.IPPROTO_TCP, std_socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_SECONDS)
        sock.setsockopt(std_socket.IPPROTO_TCP, std_socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL_SECONDS)
        sock.setsockopt(std_socket.IPPROTO_TCP, std_socket.TCP_KEEPCNT, KEEPALIVE_PROBES)
    return sock


def address_of(listen: Listen) -> tuple[str, str | int]:
    """Return what a listener binds: host and port, or the path of a unix socket."""
    return ("unix", listen.path) if listen.scheme == "unix" else (listen.host, listen.port)


def _tls_of(certificate: Certificate) -> Callable[[], Tls]:
    """Return a function that creates TLS states. A broker without TLS does not load OpenSSL."""
    from radiator.tunnels.tls import Tls

    return lambda: Tls(certificate.context)


def _web_of(listen: Listen, frame_bytes_max: int) -> Callable[..., ServerSocket]:
    """Return a function that creates WebSocket states. A broker without WebSocket does not load its library."""
    from radiator.tunnels.websocket import MessageEncoder, ServerSocket

    inflated_bytes_max = frame_bytes_max if listen.deflate else None
    return partial(ServerSocket, listen.path, listen.origins, MessageEncoder(), inflated_bytes_max=inflated_bytes_max)


def bind_tcp(host: str, port: int, key: str, url: str) -> Any:
    """Return a listening TCP socket.

    Args:
        host: The IP address or host name.
        port: The port; 0 chooses a free one.
        key: The key of the configuration, for error messages.
        url: The configured address, for error messages.

    Raises:
        ConfigError: The address cannot be listened on.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"{key}: {url}: the port is in use by another program; "
                f"stop that one, or choose another port with {key}:{' or --listen' if key == 'listen' else ''}"
            ) from None
        raise ConfigError(f"{key}: {url}: cannot listen there: {error}") from None
    return sock


def check(listen: Listen, key: str) -> None:
    """Check that an address can be listened on, as far as this is possible without listening.

    Raises:
        ConfigError: The host is unknown, or the path of the unix socket is too long.
    """
    if listen.scheme == "unix":
        unix.check(listen.path)
        return
    try:
        std_socket.getaddrinfo(
            listen.host, listen.port, std_socket.AF_INET6 if ":" in listen.host else std_socket.AF_INET
        )
    except OSError as error:
        raise ConfigError(f"{key}: {listen}: the host is unknown: {error.strerror or error}") from None


def public_listeners(config: Config) -> list[str]:
    """Return warnings about listeners that other machines can reach, if the rights of their clients are doubtful.

    Args:
        config: The configuration.
    """
    auth = config.auth
    public = [str(each) for each in config.listen if each.host and is_public(each.host)]
    if config.admin is not None and is_public(config.admin.host):
        public.append(str(config.admin))
    if public and auth.anonymous == "always":
        what = "what the users file grants to anonymous" if auth.has_users else "everything"
        return [f"auth.anonymous is always: without a login, clients that reach {', '.join(public)} may do {what}"]
    if public and not auth.has_users:
        text = (
            f"{', '.join(public)} can be reached from other machines, but there are no users: clients from other "
            "machines are refused (set auth.users_file; auth.anonymous: always gives every client all rights)"
        )
        return [text]
    return []
