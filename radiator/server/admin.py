"""Serve the admin listener: HTTP endpoints for load balancers, supervisors, Prometheus and people.

    GET /health    200 while the event loop runs
    GET /ready     200 {"ready": true}, or 503 with the reasons as text
    GET /stats     counters and current values as JSON
    GET /metrics   the same for Prometheus, with sums by rule
    GET /metrics/detailed?family=queue&match=/queue/orders.>    the values of single queues, topics ...
    GET /console/  the console (``radiator/console``), a page that is a STOMP client
    GET /console/stomp  its WebSocket: the connection goes to the acceptor, like those of other listeners

It implements a small part of HTTP: GET and HEAD, one request per connection, of at most REQUEST_BYTES_MAX bytes within
REQUEST_SECONDS_MAX, without keep-alive. At most CONNECTIONS_MAX connections are open. A further one closes the oldest,
which either sends no request or does not read its answer.

A browser lets any page send requests to any address, and the owner of a page can make its host name resolve to this
machine (DNS rebinding). So ``Host`` must be an IP address, localhost or a configured name, and ``Origin`` the same
host; any other request gets 403. A request without both headers does not come from a browser. The console may be behind
a proxy with TLS, so the origin may be https.

Runs on the event loop. Must not import STOMP or storage.
"""

from __future__ import annotations

import json
import logging
import socket as std_socket
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import gevent
from gevent import socket
from gevent.pool import Pool

from radiator import console
from radiator.config import AdminAddress
from radiator.server.listener import RetryingServer, bind_tcp, released
from radiator.tunnels.http import Head, parse_head
from radiator.tunnels.origins import host_of

log = logging.getLogger("radiator.server")

REQUEST_BYTES_MAX = 8 * 1024
REQUEST_SECONDS_MAX = 5.0
CONNECTIONS_MAX = 8  # a file descriptor each (``descriptors``)
REASONS = {
    200: "OK",
    301: "Moved Permanently",
    304: "Not Modified",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}
Answer = tuple[int, dict[str, Any]]
Upgrade = Callable[[std_socket.socket, str, bytes], None]
JSON = "application/json"
METRICS = "/metrics"
DETAILED = "/metrics/detailed"


class BadRequest(Exception):
    """The query of a request is not valid. The text says why."""


class Metrics(Protocol):
    """The answers for Prometheus. ``server.prometheus.Exposition`` is the implementation."""

    def render(self, accept: str) -> tuple[str, bytes]:
        """Return the content type and the text of ``/metrics`` for a request with this header ``Accept``."""

    def render_detailed(self, query: str, accept: str) -> tuple[str, bytes]:
        """Return the same of ``/metrics/detailed``, for the query of the URL. Raises BadRequest."""


class Admin:
    """The admin listener.

    Args:
        address: The address to listen on.
        names: The host names that are accepted in ``Host``, beside that of ``address``, localhost and all IP addresses.
        endpoints: The functions by path. Each returns an HTTP status and the JSON content.
        metrics: Answers ``/metrics`` and ``/metrics/detailed``.
        upgrade: Takes the connection of a WebSocket of the console: the socket, non-blocking, the address of the peer,
            and the received bytes.

    Attributes:
        url: The URL of the listener, with the real port.
    """

    def __init__(
        self,
        address: AdminAddress,
        names: Iterable[str],
        endpoints: Mapping[str, Callable[[], Answer]],
        metrics: Metrics,
        upgrade: Upgrade,
    ) -> None:
        self.allow(address, names)
        self._endpoints = endpoints
        self._metrics = metrics
        self._upgrade = upgrade
        self._socket = bind_tcp(address.host, address.port, "admin", str(address))
        self._server = RetryingServer(self._socket, self._serve, spawn=Pool())
        self._server.max_accept = 1  # one at a time, so that ``_serve`` can close the oldest first
        self._open: dict[Any, None] = {}  # the oldest first
        host, port = self._socket.getsockname()[:2]
        self.url = str(AdminAddress(host=host, port=port))

    def allow(self, address: AdminAddress, names: Iterable[str]) -> None:
        """Accept these host names in ``Host`` from now on, beside that of ``address``, localhost and IP addresses."""
        self._names = {address.host.lower(), *(name.lower() for name in names)}

    def start(self) -> None:
        """Accept connections from now on."""
        self._server.start()

    def stop(self) -> None:
        """Close the listener and all open connections at once."""
        self._server.stop(timeout=0)
        self._socket.close()

    def _serve(self, client: Any, address: Any) -> None:
        this = gevent.getcurrent()
        while len(self._open) >= CONNECTIONS_MAX:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.kill(block=False)
        self._open[this] = None
        try:
            with gevent.Timeout(REQUEST_SECONDS_MAX, False):  # type: ignore[arg-type]
                request = _receive(client)
                if self._opens_websocket(request):
                    self._upgrade(released(client), f"{address[0]}:{address[1]}", request)
                elif request:
                    client.sendall(self.answer(request))
                    client.shutdown(socket.SHUT_WR)
                    client.recv(REQUEST_BYTES_MAX)  # closing with unread bytes would reset the connection
        except OSError as error:
            log.debug("admin: %s: %s", address, error)
        finally:
            self._open.pop(this, None)

    def answer(self, request: bytes) -> bytes:
        """Return the complete HTTP response to a request, given as the bytes up to the blank line."""
        if b"\r\n\r\n" not in request:
            text = f"expected a request of at most {REQUEST_BYTES_MAX} bytes"
            return _response(431, {"error": text}, False)
        try:
            head = parse_head(request.partition(b"\r\n\r\n")[0])
        except ValueError as error:
            return _response(400, {"error": str(error)}, False)
        method, (path, _, query) = head.first[0], head.first[1].partition("?")
        if not head.first[2].startswith("HTTP/1.") or " " in head.first[2]:
            return _response(400, {"error": "expected a request of HTTP/1.1, such as GET /ready HTTP/1.1"}, False)
        fault = self._forbidden_origin(head)
        if fault:
            return _response(403, {"error": fault}, method == "HEAD")
        if method not in ("GET", "HEAD"):
            return _response(405, {"error": f"expected GET or HEAD, got {method[:20]}"}, False)
        if path.startswith(console.ROOT) or path == console.ROOT[:-1]:
            return _file(path, head.headers.get("if-none-match", ""), method == "HEAD")
        if path in (METRICS, DETAILED):
            return self._answer_metrics(path, query, head.headers.get("accept", ""), method == "HEAD")
        endpoint = self._endpoints.get(path)
        if endpoint is None:
            there = ", ".join([*self._endpoints, METRICS, DETAILED, console.ROOT])
            return _response(404, {"error": f"unknown path {path[:200]}, expected one of {there}"}, method == "HEAD")
        return _response(*endpoint(), method == "HEAD")

    def _answer_metrics(self, path: str, query: str, accept: str, head_only: bool) -> bytes:
        try:
            metrics = self._metrics
            rendered = metrics.render(accept) if path == METRICS else metrics.render_detailed(query, accept)
        except BadRequest as error:
            return _response(400, {"error": str(error)}, head_only)
        return _answer(200, *rendered, head_only)

    def _opens_websocket(self, request: bytes) -> bool:
        """Return True if a request is for the WebSocket of the console, and from no page of another host."""
        if not request.startswith(f"GET {console.STOMP_PATH} ".encode()) or b"\r\n\r\n" not in request:
            return False
        try:
            head = parse_head(request.partition(b"\r\n\r\n")[0])
        except ValueError:
            return False
        return not self._forbidden_origin(head)

    def _forbidden_origin(self, head: Head) -> str:
        """Return why the request may come from a page of another host, or an empty text if it does not."""
        named, origin = head.headers.get("host"), head.headers.get("origin")
        if named is not None:
            host = host_of(named)
            if host is None or not (host.loopback or host.address is not None or host.host in self._names):
                return (
                    f"expected an IP address or localhost in Host, or a name of admin_hosts: in the YAML file, got "
                    f"{named[:200]!r}"
                )
        own = () if named is None else (f"http://{named.lower()}", f"https://{named.lower()}")
        if origin is not None and origin.lower() not in own:
            return f"pages of {origin[:200]!r} are not allowed: expected no Origin, or the origin of this listener"
        return ""


def _receive(client: Any) -> bytes:
    """Return the request up to the blank line, or the first bytes of one that is too long."""
    data = b""
    while b"\r\n\r\n" not in data and len(data) <= REQUEST_BYTES_MAX:
        more = client.recv(REQUEST_BYTES_MAX)
        if not more:
            return b""
        data += more
    return data


def _response(status: int, content: dict[str, Any], head_only: bool) -> bytes:
    return _answer(status, JSON, json.dumps(content).encode() + b"\n", head_only)


def _file(path: str, known: str, head_only: bool) -> bytes:
    """Return the response for a file of the console, which the browser may keep and has to ask for again.

    Args:
        path: The path of the request.
        known: The header If-None-Match.
        head_only: The request is a HEAD.
    """
    if path == console.ROOT[:-1]:
        return _answer(301, "text/plain", b"", head_only, f"Location: {console.ROOT}")
    file = console.files().get(path)
    if file is None:
        text = f"the console has no file {path[:200]}; it begins at {console.ROOT}"
        return _response(404, {"error": text}, head_only)
    lines = (*console.HEADERS, f"ETag: {file.etag}")
    if file.etag in known:
        return _answer(304, file.content_type, b"", head_only, *lines, caching="no-cache")
    return _answer(200, file.content_type, file.body, head_only, *lines, caching="no-cache")


def _answer(
    status: int, content_type: str, body: bytes, head_only: bool, *lines: str, caching: str = "no-store"
) -> bytes:
    head = (
        f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        + "".join(f"{line}\r\n" for line in lines)
        + "X-Content-Type-Options: nosniff\r\nCross-Origin-Resource-Policy: same-origin\r\n"
        f"Allow: GET, HEAD\r\nCache-Control: {caching}\r\nConnection: close\r\n\r\n"
    ).encode()
    return head if head_only else head + body
