"""Accept connections: create a session and a transport for each new socket, or reject it.

A plain socket gets a ``Transport``, a socket of a listener with TLS or WebSocket a ``TunnelledTransport``.

Invariant: there are never more transports than the limit of connections, over all listeners together.
"""

from __future__ import annotations

import itertools
import logging
import secrets
import socket as std_socket
import time

from radiator import limits
from radiator.broker.broker import Broker
from radiator.config import Config
from radiator.errors import ProtocolError
from radiator.server.addresses import neighbourhood
from radiator.server.driver import Driver
from radiator.server.listener import ConsoleListener, Listener
from radiator.server.rejections import Rejections
from radiator.server.transport import Transport
from radiator.server.tunnelled import HTTP_UNAVAILABLE, TunnelledTransport
from radiator.stomp import encoder
from radiator.stomp.connection import ServerConnection
from radiator.stomp.parser import ParserLimits, new_caches
from radiator.tunnels.http import response

log = logging.getLogger("radiator.server")


class Acceptor:
    """Accept the sockets of all listeners.

    Args:
        config: The configuration.
        broker: The broker.
        driver: The driver.
        connections_max: The limit of connections.
    """

    def __init__(self, config: Config, broker: Broker, driver: Driver, connections_max: int) -> None:
        self._broker = broker
        self._driver = driver
        self._connections_max = connections_max
        self._rejections = Rejections(driver.handshakes)
        self._caches = new_caches()
        self.use(config)
        self._numbers = itertools.count(1)
        self._run_id = f"{time.time_ns() // 1_000_000:x}"  # session ids stay unique over restarts

    def limit(self, connections_max: int) -> None:
        """Set the limit of connections. Those above it stay open."""
        self._connections_max = connections_max

    def use(self, config: Config) -> None:
        """Give new connections the limits and heart-beats of this configuration."""
        self._config = config
        self._parser_limits = ParserLimits(
            body_bytes_max=config.limits.message,
            header_block_bytes_max=config.limits.headers,
            header_count_max=config.limits.header_count,
        )
        self._heart_beat = (config.heart_beat.send_ms, config.heart_beat.expect_ms)

    def accept(
        self, listener: Listener | ConsoleListener, sock: std_socket.socket, address: str, received: bytes = b""
    ) -> None:
        """Create the session and the transport of a new socket, or reject it. The callback of the listeners.

        Args:
            listener: The listener that accepted the socket.
            sock: The socket, non-blocking.
            address: The address of the peer.
            received: The bytes that the listener has received.
        """
        if len(self._driver.transports) >= self._connections_max:
            self._reject(listener, sock, address)
            return
        session = self._broker.connect(
            f"{self._run_id}-{next(self._numbers)}",
            secrets.token_hex(limits.SESSION_SECRET_BYTES),
            address,
            neighbourhood(address),
        )
        connection = ServerConnection(self._parser_limits, self._caches, self._heart_beat)
        seconds = self._config.limits.connect_timeout_seconds
        tunnel = listener.tunnel()
        if tunnel is None:
            Transport(sock, session, connection, self._driver, seconds)
        else:
            transport = TunnelledTransport(sock, session, connection, self._driver, seconds, tunnel)
            if received:
                transport.begin_with(received)

    def _reject(self, listener: Listener | ConsoleListener, sock: std_socket.socket, address: str) -> None:
        self._broker.stats.count(turned_away=1)
        configured, most = self._config.limits.connections, self._connections_max
        why = (
            f", but only {most} fit into the open files that the system allows (ulimit -Hn)"
            if most < configured
            else ""
        )
        detail = f"limits.connections in the YAML file is {configured}{why}."
        error = ProtocolError("too-many", "too many connections", detail)
        self._broker.peer_log.line(
            logging.WARNING,
            "connections rejected",
            neighbourhood(address),
            "connection from %s rejected: too many connections. %s",
            address,
            detail,
            logger=log,
        )
        answer = response(HTTP_UNAVAILABLE, f"{error}. {detail}") if listener.web else encoder.error(error)
        self._rejections.send(sock, answer, listener.tls())

    def stop(self) -> None:
        """Close the connections that were rejected and still wait for their answer."""
        self._rejections.stop()
