"""Each limit on the wire: what is just within it goes through, one more is answered ERROR with the key that sets it."""

from __future__ import annotations

import re
import select
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from radiator import limits
from tests.running import BrokerProcess
from tests.server.wire import Wire

CONFIG = """
limits:
  message: 2KiB
  headers: 1KiB
  header_count: 12
  subscriptions: 105
  transactions: 3
  transaction: 8KiB
  in_flight: 40
"""
PROTOCOL = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text("utf-8")


class Limit(NamedTuple):
    """``said(n)``: bytes that use ``n`` of it; ``opens``: instead of CONNECT, not after it."""

    most: int
    said: Callable[[int], bytes]
    code: str
    key: bytes
    opens: bool = False


def head_of(size: int, command: bytes = b"SEND\ndestination:/topic/limits") -> bytes:
    """A frame whose command and headers have that many bytes (without the two LFs of the blank line)."""
    head = command + b"\nh:"
    return head + b"x" * (size - len(head)) + b"\n\n\0"


def transaction_of(size: int) -> bytes:
    """Open transactions that weigh that much: two frames, 256 bytes on each."""
    head = b"SEND\ndestination:/topic/limits\ntransaction:%s\n\n"
    raw = len(b"destination:/topic/limits\ntransaction:a")
    first = size // 2 - raw - 256
    second = size - size // 2 - raw - 256
    frames = head % b"a" + b"x" * first + b"\0" + head % b"b" + b"x" * second + b"\0"
    return b"BEGIN\ntransaction:a\n\n\0BEGIN\ntransaction:b\n\n\0" + frames


LIMITS = {
    "body with a length": Limit(
        2_048,
        lambda n: b"SEND\ndestination:/topic/limits\ncontent-length:%d\n\n%b\0" % (n, b"\0" * n),
        "too-large",
        b"limits.message",
    ),
    "body without a length": Limit(
        2_048, lambda n: b"SEND\ndestination:/topic/limits\n\n" + b"x" * n + b"\0", "too-large", b"limits.message"
    ),
    "bytes of headers": Limit(1_024, head_of, "too-large", b"limits.headers"),
    "bytes of headers with CR": Limit(
        1_024,
        lambda n: head_of(n).replace(b"\n\n\0", b"\r\n\r\n\0") if n != 1_024 else head_of(n),
        "too-large",
        b"limits.headers",
    ),
    "headers": Limit(
        12,
        lambda n: b"SEND\ndestination:/topic/limits\n" + b"".join(b"%d:x\n" % each for each in range(n - 1)) + b"\n\0",
        "too-many",
        b"limits.header_count",
    ),
    "patterns": Limit(
        105,
        lambda n: (
            b"SUBSCRIBE\nid:0\ndestination:/topic/limits,/topic/limits.b\n\n\0"
            + b"".join(b"SUBSCRIBE\nid:%d\ndestination:/topic/limits\n\n\0" % each for each in range(1, n - 1))
        ),
        "too-many",
        b"limits.subscriptions",
    ),
    "transactions": Limit(
        3,
        lambda n: b"".join(b"BEGIN\ntransaction:%d\n\n\0" % each for each in range(n)),
        "too-many",
        b"limits.transactions",
    ),
    "bytes in transactions": Limit(4_096, transaction_of, "too-large", b"limits.transaction"),
    "window of a subscription": Limit(
        40,
        lambda n: b"SUBSCRIBE\nid:0\ndestination:/topic/limits\nprefetch-count:%d\n\n\0" % n,
        "bad-header",
        b"limits.in_flight",
    ),
    "window of a client": Limit(
        40,
        lambda n: b"CONNECT\naccept-version:1.2\nmax-in-flight:%d\n\n\0" % n,
        "bad-header",
        b"limits.in_flight",
        opens=True,
    ),
    "bytes of a name": Limit(
        limits.DESTINATION_BYTES_MAX,
        lambda n: b"SEND\ndestination:/topic/%b\n\n\0" % (b"x" * (n - len("%2Ftopic%2F"))),
        "bad-destination",
        b"240",
    ),
    "bytes of the name of a subscription": Limit(
        limits.SUBSCRIPTION_NAME_BYTES_MAX,
        lambda n: b"SUBSCRIBE\nid:0\ndestination:/topic/limits\nsubscription-name:%b\n\n\0" % (b"x" * n),
        "bad-header",
        b"subscription-name",
    ),
    "entries of a list": Limit(
        100,
        lambda n: b"SUBSCRIBE\nid:0\ndestination:%b\n\n\0" % b",".join(b"/t%d" % each for each in range(n)),
        "bad-pattern",
        b"list",
    ),
    "segments of a pattern": Limit(
        limits.PATTERN_SEGMENTS_MAX,
        lambda n: b"SUBSCRIBE\nid:0\ndestination:%b\n\n\0" % b".".join([b"*"] * n),
        "bad-pattern",
        b"segments",
    ),
    "bytes before CONNECT is whole": Limit(
        1_024, lambda n: head_of(n, b"CONNECT\naccept-version:1.2"), "too-large", b"limits.headers", opens=True
    ),
    "line ends before CONNECT": Limit(
        1_024,
        lambda n: b"\r\n" * (n // 2) + b"\n" * (n % 2) + b"CONNECT\naccept-version:1.2\n\n\0",
        "too-large",
        b"limits.headers",
        opens=True,
    ),
    "body of CONNECT": Limit(
        1_024,
        lambda n: b"CONNECT\naccept-version:1.2\n\n" + b"x" * n + b"\0",
        "too-large",
        b"limits.headers",
        opens=True,
    ),
}

# Limits of the table in docs/protocol.md that are not for one connection to reach with one write.
ELSEWHERE = {
    "limits.joined": "tests/broker/clients/test_joined.py",
    "limits.joined_total": "tests/broker/clients/test_joined.py",
    "limits.connections": "tests/server/test_bounds.py",
    "limits.destinations": "tests/server/test_errors.py",
    "limits.frame_timeout": "tests/server/test_memory.py",
    "limits.transaction_timeout": "tests/broker/transactions/test_transactions.py",
    "limits.connect_timeout": "tests/server/test_errors.py",
}


@pytest.fixture(scope="module")
def strict_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path_factory.mktemp("limits"), CONFIG.replace("transaction: 8KiB", "transaction: 4KiB"))
    broker.start()
    yield broker
    assert broker.stop() == 0, broker.text()


@pytest.mark.parametrize("name", LIMITS)
def test_what_is_within_a_limit_goes_through_and_one_more_is_reported(strict_broker: BrokerProcess, name: str) -> None:
    limit = LIMITS[name]
    with Wire(strict_broker) as wire:
        if not limit.opens:
            wire.open()
        wire.send(limit.said(limit.most))
        wire.barrier()
        assert {frame.command for frame in wire.inbox} <= {"CONNECTED", "MESSAGE"}
    with Wire(strict_broker) as wire:
        if not limit.opens:
            wire.open()
        wire.send(limit.said(limit.most + 1))
        frame = wire.rest()[-1]
    assert frame.command == "ERROR"
    assert frame.headers["error-code"] == limit.code
    told = frame.headers["message"].encode() + frame.body
    assert limit.key in told, told
    assert b"%d" % limit.most in told, told


def test_connected_has_the_limits_of_a_frame(strict_broker: BrokerProcess) -> None:
    with Wire(strict_broker) as wire:
        wire.say("CONNECT", accept_version="1.2", host="x")
        headers = wire.hear("CONNECTED").headers
    assert [headers[f"max-{each}"] for each in ("message-size", "header-size", "header-count")] == [
        "2048",
        "1024",
        "12",
    ]


def test_line_ends_before_connect_win_no_time(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker("limits: {connect_timeout: 500ms}")
    with Wire(broker) as wire:
        try:
            while not select.select([wire.socket], [], [], 0.02)[0]:
                wire.send(b"\n")
        except (BrokenPipeError, ConnectionResetError):
            pass
        assert [frame.headers["error-code"] for frame in wire.rest()] == ["timeout"]


def test_every_limit_that_a_client_can_meet_is_met() -> None:
    table = PROTOCOL.split("\n## Limits\n", 1)[1].split("\n## ", 1)[0]
    keys = set(re.findall(r"`(limits\.\w+)`", table))
    met = {limit.key.decode() for limit in LIMITS.values()} | set(ELSEWHERE)
    assert keys <= met, keys - met
    for key, path in ELSEWHERE.items():
        assert key in (Path(__file__).parents[2] / path).read_text("utf-8")
