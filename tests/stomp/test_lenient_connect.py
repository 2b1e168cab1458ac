"""Openings that no specification describes, as clients really send them, and what becomes of them."""

from __future__ import annotations

import pytest

from radiator.stomp.connection import ServerConnection

TAKEN = {
    "line ends first": (b"\r\n\n\nCONNECT\naccept-version:1.2\n\n\0", "1.2"),
    "a byte order mark": (b"\xef\xbb\xbfCONNECT\naccept-version:1.2\n\n\0", "1.2"),
    "line ends and a byte order mark": (b"\n\xef\xbb\xbf\nCONNECT\n\n\0", "1.0"),
    "no header": (b"CONNECT\n\n\0", "1.0"),
    "CR LF without a version": (b"CONNECT\r\nlogin:a\r\n\r\n\0\r\n", "1.0"),
    "passcode before login": (b"CONNECT\npasscode:p\naccept-version:1.1\nlogin:l\n\n\0", "1.1"),
    "blanks in the list of versions": (b"CONNECT\naccept-version: 1.0 , 1.1\t,1.2 \n\n\0", "1.2"),
    "a version twice": (b"CONNECT\naccept-version:1.1,1.1,1.0,1.1\n\n\0", "1.1"),
    "versions that there are not": (b"CONNECT\naccept-version:9,1.0,x,,1.1.1\n\n\0", "1.0"),
    "versions downwards": (b"CONNECT\naccept-version:1.2,1.1,1.0\n\n\0", "1.2"),
    "accept-version twice": (b"CONNECT\naccept-version:1.1\naccept-version:1.2\n\n\0", "1.1"),
    "blanks in heart-beat": (b"CONNECT\naccept-version:1.2\nheart-beat: 100 , 200 \n\n\0", "1.2"),
    "a malformed heart-beat under 1.0": (b"CONNECT\nheart-beat:often\n\n\0", "1.0"),
    "a receipt": (b"CONNECT\naccept-version:1.2\nreceipt:c\n\n\0", "1.2"),
    "a body": (b"CONNECT\naccept-version:1.2\n\nhello\0", "1.2"),
    "blanks around content-length": (b"CONNECT\naccept-version:1.2\ncontent-length: 2 \n\nab\0", "1.2"),
    "STOMP": (b"STOMP\naccept-version:1.2\nhost:h\n\n\0", "1.2"),
    "headers of other brokers": (b"CONNECT\naccept-version:1.2\nclient-id:x\nwill:no\npasscode:a:b\n\n\0", "1.2"),
    "an empty host": (b"CONNECT\naccept-version:1.2\nhost:\n\n\0", "1.2"),
}

REFUSED = {
    "small letters": (b"connect\naccept-version:1.2\n\n\0", "bad-command"),
    "no version that we speak": (b"CONNECT\naccept-version:2.0\n\n\0", "bad-version"),
    "no version in the list": (b"CONNECT\naccept-version:\n\n\0", "bad-version"),
    "a malformed heart-beat": (b"CONNECT\naccept-version:1.2\nheart-beat:1000\n\n\0", "bad-header"),
    "a negative heart-beat": (b"CONNECT\naccept-version:1.2\nheart-beat:-1,0\n\n\0", "bad-header"),
    "no colon": (b"CONNECT\naccept-version\n\n\0", "bad-header"),
    "a length that is none": (b"CONNECT\ncontent-length:two\n\nab\0", "bad-header"),
    "a negative length": (b"CONNECT\ncontent-length:-1\n\n\0", "bad-header"),
    "a length too short": (b"CONNECT\ncontent-length:1\n\nab\0", "bad-frame"),
    "no UTF-8": (b"CONNECT\nlogin:\xff\n\n\0", "bad-header"),
    "UTF-16": ("CONNECT\n\n\0".encode("utf-16"), "bad-frame"),
    "no letters": (b"12345678\n\n\0", "bad-frame"),
    "a very long line": (b"CONNECT\nhost:" + b"x" * 70_000 + b"\n\n\0", "too-large"),
    "a command before CONNECT whose length is wrong": (b"SEND\ncontent-length:0\n\nxy\0", "bad-command"),
    "a command before CONNECT whose body is long": (b"SEND\n\n" + b"x" * 70_000, "bad-command"),
    "a very long command": (b"C" * 100 + b"\n\n\0", "bad-frame"),
}


def pieces(data: bytes) -> list[list[bytes]]:
    """The whole, and every byte by itself."""
    return [[data], [bytes([byte]) for byte in data]]


@pytest.mark.parametrize(("data", "version"), TAKEN.values(), ids=TAKEN)
def test_it_opens(data: bytes, version: str) -> None:
    for cut in pieces(data):
        connection = ServerConnection(heart_beat=(10_000, 10_000))
        frames = [frame for piece in cut for frame in connection.receive(piece)]
        assert connection.failed is None, connection.failed
        assert [frame.command in ("CONNECT", "STOMP") for frame in frames] == [True]
        assert connection.version == version


@pytest.mark.parametrize(("data", "code"), REFUSED.values(), ids=REFUSED)
def test_it_does_not_open(data: bytes, code: str) -> None:
    for cut in pieces(data):
        connection = ServerConnection()
        assert [frame for piece in cut for frame in connection.receive(piece)] == []
        assert connection.failed is not None
        assert connection.failed.code == code
        assert b"error-code:" + code.encode() in connection.refusal()
