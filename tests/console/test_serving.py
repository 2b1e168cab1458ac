"""The files of the console and its WebSocket, of a real broker, without a browser."""

from __future__ import annotations

import hashlib
import json
import re
import socket
from collections.abc import Iterator
from dataclasses import fields
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest
import websocket

from radiator import console
from radiator.broker.admin.gauges import NOW
from radiator.broker.monitoring.history import RATES
from radiator.broker.stats import Stats
from radiator.stomp.spec import RESERVED
from tests.console.served import Served

MANIFEST = json.loads((Path(console.__file__).parent / "vendor.json").read_text())
URL = "http://127.0.0.1"
CONNECT = "CONNECT\naccept-version:1.2\nhost:x\n{more}\n\0"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    broker = Served(tmp_path_factory.mktemp("console"), "limits: {connections: 3}\n", users=True)
    broker.start()
    yield broker
    assert broker.stop() == 0, broker.text()


def get(served: Served, path: str, method: str = "GET", **headers: str) -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection("127.0.0.1", served.admin_port, timeout=10)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()


def open_socket(served: Served, **options: object) -> websocket.WebSocket:
    options.setdefault("suppress_origin", True)
    return websocket.create_connection(f"ws://127.0.0.1:{served.admin_port}/console/stomp", timeout=10, **options)


def test_the_page_and_all_that_it_imports_are_served_under_a_strict_policy(served: Served) -> None:
    seen, todo = set(), ["/console/"]
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        answer, body = get(served, path)
        assert answer.status == 200, path
        policy = answer.headers["Content-Security-Policy"]
        assert policy == (
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
            "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
        )
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        text = body.decode()
        found = re.findall(r"""(?:from\s*|src=|href=)["']([\w./-]+\.(?:js|css|svg))["']""", text)
        todo += [urlsplit(urljoin(URL + path, name)).path for name in found]
    assert seen == {path for path, file in console.files().items() if not file.content_type.startswith("text/plain")}


def test_nothing_inline_and_nothing_of_other_hosts() -> None:
    for path in console.STATIC.rglob("*"):
        if "vendor" in path.parts or not path.is_file():
            continue
        text = path.read_text()
        assert "dangerouslySetInnerHTML" not in text and "innerHTML" not in text, path
        assert not re.search(r"\bon(click|load|error)=\"", text), path
        assert not re.search(r"https?://(?!www\.w3\.org/)", text), path
        if path.suffix == ".html":
            assert not re.search(r"<style|<script(?![^>]*\bsrc=)|style=", text), path


def test_the_vendored_files_have_the_hashes_of_the_manifest() -> None:
    vendor = console.STATIC / "vendor"
    wanted = {entry["to"]: entry["sha256"] for package in MANIFEST["packages"] for entry in package["files"]}
    there = {
        path.relative_to(vendor).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in vendor.rglob("*")
        if path.is_file()
    }
    assert there == wanted
    for package in MANIFEST["packages"]:
        assert re.fullmatch(r"\d+\.\d+\.\d+", package["version"])
        assert package["integrity"].startswith("sha512-")
        assert any(entry["from"] == "LICENSE" for entry in package["files"])


@pytest.mark.parametrize(
    ("numbers", "table"),
    [
        ("counters", {field.name for field in fields(Stats)}),
        ("now", {metric.name for metric, _ in NOW}),
        ("rates", {*RATES, "end_ns"}),
    ],
)
def test_the_overview_shows_numbers_of_the_tables(numbers: str, table: set[str]) -> None:
    page = (Path(console.__file__).parent / "static/pages/overview.js").read_text()
    shown = set(re.findall(rf"\b{numbers}\.(\w+)", page))
    assert shown and shown <= table


def test_the_page_gets_the_reserved_headers_of_the_protocol(served: Served) -> None:
    answer, body = get(served, "/console/headers.js")
    assert answer.headers["Content-Type"].startswith("text/javascript")
    assert set(re.findall(r'"([\w-]+)"', body.decode())) == RESERVED


def test_a_file_that_the_browser_has_is_not_sent_again(served: Served) -> None:
    answer, body = get(served, "/console/app.js")
    tag = answer.headers["ETag"]
    assert body and answer.headers["Cache-Control"] == "no-cache"
    again, nothing = get(served, "/console/app.js", **{"If-None-Match": tag})
    assert (again.status, nothing) == (304, b"")
    assert get(served, "/console/app.js", "HEAD")[1] == b""


@pytest.mark.parametrize("path", ["/console/none.js", "/console/../admin.py", "/console/%2e%2e/admin.py", "/console//"])
def test_only_files_of_the_console_are_served(served: Served, path: str) -> None:
    answer, _ = get(served, path)
    assert answer.status == 404


def test_the_path_without_a_slash_leads_to_the_page(served: Served) -> None:
    answer, _ = get(served, "/console")
    assert (answer.status, answer.headers["Location"]) == (301, "/console/")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_websocket_of_the_console_speaks_stomp_with_the_users_of_the_broker(served: Served, scheme: str) -> None:
    """With the origin of the listener, also as a proxy with TLS has it."""
    origin = f"{scheme}://127.0.0.1:{served.admin_port}"
    page = open_socket(served, origin=origin, suppress_origin=False, subprotocols=["v12.stomp"])
    page.send(CONNECT.format(more="login:root\npasscode:secret\n"))
    assert page.recv().startswith("CONNECTED\n")
    page.close()
    page = open_socket(served)
    page.send(CONNECT.format(more="login:root\npasscode:wrong\n"))
    answer = page.recv()
    assert answer.startswith("ERROR\n") and "error-code:denied" in answer
    page.close()


@pytest.mark.parametrize(
    "headers",
    [
        "Host: 127.0.0.1\r\nOrigin: http://stranger.example",
        "Host: stranger.example\r\nOrigin: http://stranger.example",
        "Host: stranger.example",
        "Host: 127.0.0.1:1\r\nOrigin: http://127.0.0.1:2",
        "Host: 127.0.0.1:1\r\nOrigin: null",
    ],
)
def test_pages_of_other_hosts_get_no_websocket(served: Served, headers: str) -> None:
    request = (
        f"GET /console/stomp HTTP/1.1\r\n{headers}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OTAxMjM0NQ==\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", served.admin_port), timeout=10) as sock:
        sock.sendall(request.encode())
        assert sock.recv(1000).startswith(b"HTTP/1.1 403 ")


def test_frames_that_arrive_with_the_request_are_processed(served: Served) -> None:
    """Also when the request comes in pieces."""
    connect = CONNECT.format(more="login:root\npasscode:secret\n").encode()
    frame = bytes([0x81, 0x80 | len(connect), 0, 0, 0, 0]) + connect
    request = (
        b"GET /console/stomp HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OTAxMjM0NQ==\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", served.admin_port), timeout=10) as sock:
        sock.sendall(request[:60])
        sock.sendall(request[60:] + frame)
        heard = b""
        while b"CONNECTED" not in heard:
            more = sock.recv(1000)
            assert more, heard
            heard += more
    assert heard.startswith(b"HTTP/1.1 101 ")


def test_the_limit_of_connections_holds_for_the_console_too(served: Served) -> None:
    pages = [open_socket(served) for _ in range(3)]
    try:
        with pytest.raises(websocket.WebSocketBadStatusException, match="503"):
            open_socket(served)
        assert get(served, "/health")[0].status == 200
    finally:
        for page in pages:
            page.close()
