"""What a stream costs grows with its length and no faster, however it is written and cut. Nothing looks at a clock:
counted are the lines of Python that run, and the bytes that the parser is given to look through or join."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from radiator.stomp import connection as connection_module
from radiator.stomp.connection import ServerConnection
from radiator.stomp.frames import Frame
from radiator.stomp.headers import stored_block
from radiator.stomp.parser import Parser, ParserLimits
from tests.tiers import sampled

pytestmark = pytest.mark.usefixtures("both_speeds")

LIMITS = ParserLimits(body_bytes_max=1 << 24, header_block_bytes_max=1 << 24, header_count_max=1 << 20)
STOMP = str(connection_module.__file__).rpartition("/")[0]
SMALL = 3_000  # bytes; the other one is four times as long
SMALL_BY_ONE = 1_000  # the same where each byte is fed by itself, which costs the most
TIMES = 4
SLACK = 1.15  # of the ratio: what a stream costs at its start is spent only once

# A stream of about that many bytes.
SHAPES: dict[str, Callable[[int], bytes]] = {
    "many frames": lambda size: b"SEND\ndestination:/q\nreceipt:1\n\nbody\0" * (size // 36),
    "many frames with lengths": lambda size: b"SEND\ndestination:/q\ncontent-length:4\n\nb\0dy\0" * (size // 43),
    "many frames with CR": lambda size: b"SEND\r\ndestination:/q\r\n\r\nbody\0\r\n" * (size // 32),
    "many kinds of frames": lambda size: b"".join(b"SEND\nn:%06d\n\n\0" % number for number in range(size // 16)),
    "many acks": lambda size: b"ACK\nid:19ac5f3b2c1-1-0-7\n\n\0" * (size // 26),
    "beats": lambda size: b"\n" * size,
    "NULs": lambda size: b"BEGIN\ntransaction:t\n\n\0" + b"\0" * size,
    "CR LF": lambda size: b"\r\n" * (size // 2),
    "a long value": lambda size: b"SEND\na:" + b"x" * size + b"\n\n\0",
    "a long name": lambda size: b"SEND\n" + b"x" * size + b":a\n\n\0",
    "a long line that is no header": lambda size: b"SEND\n" + b"x" * size,
    "many headers": lambda size: b"SEND\n" + b"".join(b"h%05d:x\n" % number for number in range(size // 9)) + b"\n\0",
    "one header many times": lambda size: b"SEND\n" + b"a:b\n" * (size // 4) + b"\n\0",
    "many receipts": lambda size: b"SEND\n" + b"receipt:b\n" * (size // 10) + b"\n\0",
    "escapes": lambda size: b"SEND\na:" + b"\\c\\n\\\\" * (size // 6) + b"\n\n\0",
    "an escape at the end": lambda size: b"SEND\na:" + b"\\c" * (size // 2) + b"\\x\n\n\0",
    "colons": lambda size: b"SEND\na" + b":" * size + b"\n\n\0",
    "carriage returns": lambda size: b"SEND\na:" + b"\r" * size + b"\n\n\0",
    "almost blank lines": lambda size: b"SEND\n" + b"\r\r\n:a\n" * (size // 6) + b"\n\0",
    "blanks of 1.0": lambda size: b"SEND\na:" + b" " * size + b"x\n\n\0",
    "a body with a length": lambda size: b"SEND\ncontent-length:%d\n\n%b\0" % (size, b"\n" * size),
    "a body without a length": lambda size: b"SEND\n\n" + b"\n\n\r\n" * (size // 4) + b"\0",
    "a body without an end": lambda size: b"SEND\n\n" + b"x" * size,
    "a head without an end": lambda size: b"SEND\na:" + b"\n:b" * (size // 3),
    "UTF-8": lambda size: b"SEND\na:" + "ü".encode() * (size // 2) + b"\n\n\0",
}
OPENINGS: dict[str, Callable[[int], bytes]] = {
    "versions": lambda size: b"CONNECT\naccept-version:" + b"1.0," * (size // 4) + b"1.2\n\n\0",
    "line ends": lambda size: b"\n\r\n" * (size // 3) + b"CONNECT\n\n\0",
    "heart-beat": lambda size: b"CONNECT\naccept-version:1.2\nheart-beat:" + b"1," * (size // 2) + b"\n\n\0",
    "headers": lambda size: b"CONNECT\n" + b"login:x\n" * (size // 8) + b"\n\0",
    "a body": lambda size: b"CONNECT\n\n" + b"x" * size + b"\0",
    "a byte order mark": lambda size: b"\xef\xbb\xbf" + b"\n" * size,
}
PIECES = {"whole": 1 << 30, "by one": 1, "by a hundred": 100}  # of many frames, of none, and of some with a rest


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """Lines of radiator/stomp that run, and bytes that the parser looks through."""
    counts = {"lines": 0, "bytes": 0}
    look = Parser._run

    def looking(self: Parser, data: bytes, frames: list[Frame]) -> None:
        counts["bytes"] += len(data)
        look(self, data, frames)

    def line(frame: FrameType, event: str, argument: Any) -> Any:
        counts["lines"] += event == "line"
        return line

    def call(frame: FrameType, event: str, argument: Any) -> Any:
        return line if frame.f_code.co_filename.startswith(STOMP) else None

    with monkeypatch.context() as patch:
        patch.setattr(Parser, "_run", looking)
        before = sys.gettrace()
        sys.settrace(call)
        try:
            yield counts
        finally:
            sys.settrace(before)


def cost(monkeypatch: pytest.MonkeyPatch, version: str, data: bytes, size: int) -> dict[str, int]:
    parser = Parser(limits=LIMITS)
    parser.version = version
    with counted(monkeypatch) as counts:
        for piece in pieces(data, size):
            for frame in parser.feed(piece):
                stored_block(frame.head)
    return counts


def opening_cost(monkeypatch: pytest.MonkeyPatch, data: bytes, size: int) -> dict[str, int]:
    server = ServerConnection(LIMITS)
    with counted(monkeypatch) as counts:
        for piece in pieces(data, size):
            server.receive(piece)
    return counts


def grown(shape: Callable[[int], bytes], piece: int) -> tuple[bytes, bytes, float]:
    """Return a small stream of the shape, one TIMES as long, and how many times as long exactly."""
    bytes_ = SMALL_BY_ONE if piece == 1 else SMALL
    small, large = shape(bytes_), shape(bytes_ * TIMES)
    return small, large, len(large) / len(small)


def linear(small: dict[str, int], large: dict[str, int], growth: float) -> None:
    for what in small:
        assert large[what] <= small[what] * growth * SLACK + 200, (what, small, large)


@pytest.mark.parametrize("size", sampled(PIECES.values(), 1), ids=PIECES)
@pytest.mark.parametrize("version", sampled(["1.2", "1.0"], 1))
@pytest.mark.parametrize("shape", SHAPES)
def test_a_stream_of_four_times_the_length_costs_four_times_as_much(
    monkeypatch: pytest.MonkeyPatch, shape: str, version: str, size: int
) -> None:
    small, large, growth = grown(SHAPES[shape], size)
    linear(cost(monkeypatch, version, small, size), cost(monkeypatch, version, large, size), growth)


@pytest.mark.parametrize("size", PIECES.values(), ids=PIECES)
@pytest.mark.parametrize("shape", OPENINGS)
def test_so_does_an_opening(monkeypatch: pytest.MonkeyPatch, shape: str, size: int) -> None:
    small, large, growth = grown(OPENINGS[shape], size)
    linear(opening_cost(monkeypatch, small, size), opening_cost(monkeypatch, large, size), growth)


def test_a_cost_that_is_not_linear_would_be_noticed() -> None:
    with pytest.raises(AssertionError):
        linear({"bytes": 3_000 * 3_000 // 2}, {"bytes": 12_000 * 12_000 // 2}, TIMES)
