"""Every code of the one table of errors, as a client meets it on the wire: headers, words, receipt, and the end.

Each *way* to an ERROR is a configuration, what is said after CONNECT (or instead of it), the receipt of the frame at
fault and the words that its body must have: the key of the YAML file or the header that changes it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from radiator.errors import ERROR_CODES
from radiator.stomp.frames import Frame
from tests.running import BrokerProcess
from tests.server.wire import Wire

BrokerWith = Callable[[str], BrokerProcess]


class Way(NamedTuple):
    """``opening`` takes the place of a CONNECT that is accepted."""

    said: bytes
    body: bytes
    receipt: str | None = "r:1"
    config: str = ""
    opening: bytes = b""


R = b"receipt:r\\c1\n"
HEADERS = b"".join(b"h%d:x\n" % number for number in range(20))
SUBSCRIBE = b"SUBSCRIBE\nid:%d\ndestination:/topic/a\n%b\n\0"
SEND = b"SEND\ndestination:%b\n%b%b\n%b\0"
SMALL = "limits: {message: 1KiB, header_count: 10, headers: 4KiB, subscriptions: 2, transactions: 2, transaction: 1KiB}"

WAYS: dict[str, list[Way]] = {
    "bad-frame": [
        Way(b"SEND\ndestination:/topic/a\ncontent-length:3\n" + R + b"\nabcd\0", b"content-length"),
        Way(b"\x01\x02\n\n\0", b"letters", None),
        Way(b"SEND\ndestination:/topic/a\0", b"blank line", None),
    ],
    "bad-header": [
        Way(b"SEND\n" + R + b"destination\n\n\0", b"name:value"),
        Way(b"SEND\n" + R + b"odd:\\x\n\n\0", b"\\\\x"),
        Way(b"SEND\n" + R + b"content-length:many\n\n\0", b"many"),
        Way(b"SUBSCRIBE\n" + R + b"destination:/topic/a\n\n\0", b"id"),
        Way(b"BEGIN\n" + R + b"\n\0", b"transaction"),
        Way(SUBSCRIBE % (0, R + b"prefetch-count:-1\n"), b"limits.in_flight"),
        Way(b"", b"heart-beat", "r", opening=b"CONNECT\naccept-version:1.2\nreceipt:r\nheart-beat:often\n\n\0"),
    ],
    "bad-command": [
        Way(b"SHOUT\n" + R + b"\n\0", b"capital letters"),
        Way(b"CONNECT\naccept-version:1.2\n\n\0", b"once", None),
        Way(b"", b"CONNECT", "r", opening=b"SEND\ndestination:/topic/a\nreceipt:r\n\n\0"),
    ],
    "bad-version": [Way(b"", b"1.0, 1.1, 1.2", "r", opening=b"CONNECT\naccept-version:7\nreceipt:r\n\n\0")],
    "bad-destination": [
        Way(b"SEND\n" + R + b"\n\0", b"destination:"),
        Way(SEND % (b"/topic/*", R, b"", b"x"), b"SUBSCRIBE"),
        Way(SEND % (b"/radiator/x", R, b"", b"x"), b"under this prefix"),
    ],
    "bad-pattern": [Way(b"SUBSCRIBE\nid:0\ndestination:/topic/>.x\n" + R + b"\n\0", b">")],
    "bad-position": [Way(SUBSCRIBE % (0, R + b"start-position:yesterday\n"), b"first")],
    "bad-time": [Way(SEND % (b"/topic/a", R, b"event-time:noon\n", b"x"), b"RFC 3339")],
    "bad-selector": [Way(SUBSCRIBE % (0, R + b"selector:a > \n"), b"selector")],
    "bad-subscription": [
        Way(SUBSCRIBE % (0, b"") + SUBSCRIBE % (0, R), b"id"),
        Way(b"UNSUBSCRIBE\nid:0\n" + R + b"\n\0", b"0"),
    ],
    "bad-transaction": [
        Way(b"COMMIT\ntransaction:t\n" + R + b"\n\0", b"BEGIN"),
        Way(b"BEGIN\ntransaction:t\n\n\0BEGIN\ntransaction:t\n" + R + b"\n\0", b"transaction"),
        Way(SEND % (b"/topic/a", R, b"transaction:t\n", b"x"), b"BEGIN"),
    ],
    "bad-ack": [Way(b"ACK\nid:s-0-1\n" + R + b"\n\0", b"ack header")],
    "too-large": [
        Way(SEND % (b"/topic/a", R, b"content-length:1025\n", b""), b"limits.message", config=SMALL),
        Way(SEND % (b"/topic/a", R, b"", b"x" * 1_025), b"limits.message", config=SMALL),
        Way(SEND % (b"/topic/a", b"h:" + b"x" * 4_097 + b"\n", b"", b""), b"limits.headers", None, config=SMALL),
        Way(
            b"BEGIN\ntransaction:t\n\n\0" + SEND % (b"/topic/a", R, b"transaction:t\n", b"x" * 1_000),
            b"limits.transaction",
            config=SMALL,
        ),
    ],
    "too-many": [
        Way(SEND % (b"/topic/a", R, HEADERS, b"x"), b"limits.header_count", config=SMALL),
        Way(b"".join(SUBSCRIBE % (n, b"" if n < 2 else R) for n in range(3)), b"limits.subscriptions", config=SMALL),
        Way(
            b"".join(b"BEGIN\ntransaction:%d\n%b\n\0" % (n, b"" if n < 2 else R) for n in range(3)),
            b"limits.transactions",
            config=SMALL,
        ),
        Way(
            SEND % (b"/topic/a", b"", b"", b"x") + SEND % (b"/topic/b", R, b"", b"x"),
            b"limits.destinations",
            config="limits: {destinations: 1}",
        ),
        Way(b"", b"limits.connections", None, "limits: {connections: 1}", opening=b"\n"),
    ],
    "timeout": [
        Way(b"", b"limits.connect_timeout", None, "limits: {connect_timeout: 200ms}", opening=b"CONN"),
        Way(b"", b"heart_beat.grace", None, "heart_beat: {expect: 100ms}", opening=b"beats"),
    ],
    "denied": [Way(SUBSCRIBE.replace(b"/topic/a", b"/temp-queue/a@other") % (0, R), b"Other connections")],
    "not-found": [Way(SEND % (b"/topic/a", R, b"", b"x"), b"create: deny", config="defaults: {create: deny}")],
    "conflict": [Way(SEND % (b"/topic/a", R, b"expected-offset:7\n", b"x"), b"next message gets offset 0")],
    "no-route": [Way(SEND % (b"/topic/a", R, b"mandatory:true\n", b"x"), b"mandatory:true")],
    "full": [
        Way(
            SEND % (b"/queue/a", b"", b"", b"x") + SEND % (b"/queue/a", R, b"", b"x"),
            b"max_messages",
            config='destinations: [{match: "/queue/a", max_messages: 1}]',
        )
    ],
    "rate-limited": [
        Way(
            SEND % (b"/queue/a", b"", b"", b"x") + SEND % (b"/queue/a", R, b"", b"x"),
            b"rate_limit",
            config='destinations: [{match: "/queue/a", rate_limit: {messages: 1/h, burst: 1, action: reject}}]',
        )
    ],
    "rejected": [
        Way(
            SEND % (b"/queue/a", R, b"", b"[1]"),
            b"string",
            config='destinations: [{match: "/queue/a", schema: SCHEMA}]',
        )
    ],
    "unsupported": [Way(SEND % (b"/topic/a", R, b"delay:1000\n", b"x"), b"deliver-at")],
}

# Codes that no frame alone brings about, and where they are shown instead.
ELSEWHERE = {
    "storage": "tests/server/test_failing_disk.py",
    "shutting-down": "tests/server/test_lifecycle.py",
    "draining": "tests/server/test_drain.py",
    "not-stomp": "tests/stomp/test_connection.py",  # in the language of the peer: tests/server/test_lifecycle.py
    "taken-over": "tests/broker/durable/test_subscriptions.py",  # by what another connection does
    "bad-request": "tests/broker/admin/test_channel.py",  # in the JSON of the answer
    "disconnected": "tests/broker/admin/test_connection_verbs.py",  # by what an administrator does
    "internal": "tests/server/test_internal_errors.py",  # by a bug that is put in
}


def ways() -> list[object]:
    found = []
    for code, several in WAYS.items():
        for number, way in enumerate(several):
            found.append(pytest.param(code, way, id=f"{code}-{number}"))
    return found


def the_only_place(broker: BrokerProcess) -> Wire:
    """A connection; whoever asked whether the broker had started may be in its place for a moment."""
    while True:
        wire = Wire(broker)
        wire.say("CONNECT", accept_version="1.2", host="x")
        wire.more()
        if wire.inbox and wire.inbox[0].command == "CONNECTED":
            return wire
        wire.close()


def heard(broker: BrokerProcess, way: Way) -> tuple[list[Frame], bytes]:
    """Everything that comes until the end, without CONNECTED; and the bytes of it."""
    beats = {"heart_beat": "100,0"} if way.opening == b"beats" else {}
    with Wire(broker) as wire:
        if way.opening and not beats:
            wire.send(way.opening)
        else:
            wire.open(**beats)
        wire.send(way.said)
        raw = b""
        while data := wire.more():
            raw += data
        return [frame for frame in wire.inbox if frame.command != "RECEIPT"], raw


@pytest.mark.parametrize(("code", "way"), ways())
def test_an_error_says_everything_that_it_should(
    broker_with: BrokerWith, shared_broker: BrokerProcess, tmp_path: Path, code: str, way: Way
) -> None:
    schema = tmp_path / "text.json"
    schema.write_text(json.dumps({"type": "string"}))
    broker = broker_with(way.config.replace("SCHEMA", str(schema))) if way.config else shared_broker
    taken = the_only_place(broker) if b"limits.connections" in way.body else None
    (frame,), raw = heard(broker, way)
    if taken is not None:
        taken.close()
    assert frame.command == "ERROR"
    headers = frame.headers
    assert headers["error-code"] == code
    assert headers["message"].strip()
    assert headers["content-type"] == "text/plain;charset=utf-8"
    assert int(headers["content-length"]) == len(frame.body) > 0
    assert headers.get("receipt-id") == way.receipt
    assert way.body in frame.body + headers["message"].encode(), (headers["message"], frame.body)
    head = raw[raw.index(b"ERROR\n") :].partition(b"\n\n")[0]
    escaped = way.receipt is not None and ":" in way.receipt
    assert (b"receipt-id:r\\c1" in head) == escaped  # by the escapes of the version, once there is one


def test_every_code_is_met_on_the_wire() -> None:
    """Whoever adds a code to the table adds a way to it here."""
    assert set(WAYS) | set(ELSEWHERE) == set(ERROR_CODES)
    assert not set(WAYS) & set(ELSEWHERE)
    root = Path(__file__).parents[2]
    for code, path in ELSEWHERE.items():
        assert code in (root / path).read_text("utf-8"), code


@pytest.mark.parametrize(
    ("version", "name", "shown"),
    [
        ("1.0", b"/topic/*/a:b", "/topic/*/a:b"),
        ("1.1", b"/topic/*/a\\cb", "/topic/*/a:b"),
        ("1.2", b"/topic/*/a\\rb", "a\\rb"),
    ],
)
def test_an_error_is_written_in_the_version_of_its_connection(
    shared_broker: BrokerProcess, version: str, name: bytes, shown: str
) -> None:
    with Wire(shared_broker, version) as wire:
        wire.open()
        wire.send(b"SEND\ndestination:%b\n\n\0" % name)
        (frame,) = wire.rest()
    assert frame.headers["error-code"] == "bad-destination"
    assert shown in frame.headers["message"]
