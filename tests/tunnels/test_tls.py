"""What a TLS end writes, without a socket; how it behaves on one is in ``tests/server/test_tls.py``."""

from __future__ import annotations

import ssl
from pathlib import Path

from radiator.limits import TUNNEL_STEPS
from radiator.tunnels.tls import Tls
from tests.certificates import Authority

RECORD_HEAD_BYTES = 5
SEAL_BYTES_MAX = 256  # what encryption adds to a record, at most


def records(data: bytes) -> list[int]:
    """The sizes of the records of TLS in ``data``."""
    sizes = []
    while data:
        size = int.from_bytes(data[3:RECORD_HEAD_BYTES], "big")
        sizes.append(size)
        data = data[RECORD_HEAD_BYTES + size :]
    return sizes


def connected(folder: Path) -> tuple[Tls, Tls]:
    """A server's end and a client's that have shaken hands."""
    authority = Authority(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("localhost"))
    server, client = Tls(context), Tls(authority.trusting(), "localhost")
    while not (server.ready and client.ready):
        server.receive(client.outgoing())
        client.receive(server.outgoing())
    return server, client


def test_no_record_is_larger_than_a_client_reads_at_once(tmp_path: Path) -> None:
    """Net::Stomp asks the socket before it reads 8192 bytes, and would not see the rest of a larger record."""
    server, client = connected(tmp_path)
    body = bytes(range(256)) * 400
    sealed = server.seal(body)
    assert max(records(sealed)) <= 8192 + SEAL_BYTES_MAX
    assert client.receive(sealed) == body


def test_tiny_records_are_looked_at_a_bounded_number_at_a_time(tmp_path: Path) -> None:
    server, client = connected(tmp_path)
    body = bytes(range(256)) * 2
    heard = [server.receive(b"".join(client.seal(body[place : place + 1]) for place in range(len(body))))]
    while server.has_backlog:
        heard.append(server.receive(b""))
    assert b"".join(heard) == body
    assert max(map(len, heard)) == TUNNEL_STEPS
