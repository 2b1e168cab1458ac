"""Fuzz targets for the bytes that a peer sends. A target takes bytes, and raises if a property is violated. The first
byte selects the version and how the rest is cut into pieces.

    parser      raises nothing, and sets only ``failed``; every cut gives the same frames and the same failure
    connection  both ends: our own client reads each ERROR, and memory stays within the limits
    broker      the whole core: it answers in whole frames, and no state remains when all clients have gone

Mutation begins with ``CONVERSATIONS``: every command and header, every version, unusual but valid spellings.

Uses stomp and the broker from outside, and the world of ``tests/broker``. Must not import atheris and Hypothesis.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from random import Random
from typing import Any

from radiator.errors import ERROR_CODES, ProtocolError
from radiator.stomp.connection import ClientConnection, ServerConnection
from radiator.stomp.frames import Frame
from radiator.stomp.parser import Parser, ParserLimits, new_caches
from radiator.stomp.spec import VERSIONS
from tests.broker.harness import Client, World

LIMITS = ParserLimits(body_bytes_max=4_096, header_block_bytes_max=2_048, header_count_max=40)
SMALL = "limits: {message: 4KiB, headers: 2KiB, header_count: 40, destinations: 50, transaction: 16KiB}"
_CACHES = new_caches()
_BEFORE_ACK = re.compile(rb"\0(?=\n*N?ACK\n)")


def _connect(version: str, *more: bytes) -> bytes:
    return b"CONNECT\naccept-version:%b\nhost:x\n%b\n\0" % (version.encode(), b"".join(line + b"\n" for line in more))


def _queue(version: str, ack: bytes) -> bytes:
    name = {
        "1.0": b"message-id:%%2Fqueue%%2Fq@%d",
        "1.1": b"subscription:0\nmessage-id:%%2Fqueue%%2Fq@%d",
        "1.2": b"id:s2-0-%d",  # the session of ``answered``
    }
    send = b"SEND\ndestination:/queue/q\nreceipt:%d\ncontent-length:3\n\na\0b\0"
    return (
        _connect(version, b"heart-beat:0,0")
        + b"SUBSCRIBE\nid:0\ndestination:/queue/q\nack:%b\nprefetch-count:3\nreceipt:s\n\n\0" % ack
        + b"".join(send % number for number in range(3))
        + b"ACK\n%b\nreceipt:a\n\n\0\nNACK\n%b\n\n\0" % (name[version] % 0, name[version] % 1)
        + b"UNSUBSCRIBE\nid:0\n\n\0DISCONNECT\nreceipt:bye\n\n\0"
    )


_TRANSACTION = (
    b"BEGIN\ntransaction:t\nreceipt:b\n\n\0SEND\ndestination:/topic/t\ntransaction:t\n\nx\0"
    b"SEND\ndestination:/queue/t\ntransaction:t\nreceipt:i\nevent-time:1\n\ny\0COMMIT\ntransaction:t\nreceipt:c\n\n\0"
    b"BEGIN\ntransaction:u\n\n\0SEND\ndestination:/topic/t\ntransaction:u\n\nz\0ABORT\ntransaction:u\n\n\0"
)
_REPLAY = (
    b"SEND\ndestination:/topic/r\nn:1\n\none\0SEND\ndestination:/topic/r.b\ntag-k:v\n\ntwo\0"
    b"SUBSCRIBE\nid:r\ndestination:/topic/r.>,/topic/r\nstart-position:first\nstop-position:end\nack:client\n\n\0"
    b"SUBSCRIBE\nid:l\ndestination:/topic/#\nstart-position:last:2\nselector:n = 1 OR tag LIKE 'v%'\n\n\0"
    b"SUBSCRIBE\nid:o\ndestination:/topic/r\nstart-position:offset:0\nx-stream-offset:first\n\n\0"
    b"SUBSCRIBE\nid:b\ndestination:/queue/r\nbrowser:true\n\n\0"
)
_ODD = (
    b"SUBSCRIBE\r\nid:o\r\ndestination:/topic/o\r\n\r\n\0\r\n\r\n"
    b"SEND\ndestination:/topic/o\nodd:a\\cb\\nc\\\\d\nodd:again\nempty:\nreceipt:r\\c1\n\nbody\0\0\n\n"
    b"SEND\ndestination:/topic/o\nmandatory:true\npriority:9\nexpires:0\ncontent-type:text/plain\n\n\xff\xfe\0"
    b"SEND\ndestination:/temp-queue/x\nreply-to:/temp-queue/y\ncorrelation-id:7\ndedup-id:d\n\nq\0"
)
_LATE = b"SEND\ndestination:/queue/l\ndelay:100\nproducer-id:p\nsequence:1\n\nx\0NACK\nid:9-x@1\n\n\0SHOUT\n\n\0"

CONVERSATIONS: list[bytes] = [
    b"CONNECT\nlogin: me\npasscode: you\n\n\0" + _queue("1.0", b"client").partition(b"\0")[2],
    *(_queue(version, ack) for version in VERSIONS for ack in (b"auto", b"client", b"client-individual")),
    *(_connect(version) + part for version in VERSIONS for part in (_TRANSACTION, _REPLAY)),
    *(_connect(version) + _LATE for version in VERSIONS),
    *(_connect(version) + _ODD for version in ("1.1", "1.2")),
    b"\xef\xbb\xbf\nSTOMP\naccept-version: 1.0 ,1.1,9,1.2\nheart-beat:100, 200\nmax-in-flight:5\n\n\0" + _ODD,
    b"CONNECT\naccept-version:7\n\n\0",
    b"SEND\ndestination:/topic/early\n\nx\0",
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
]

TOKENS = (
    *(b"\0", b"\n", b"\r\n", b"\r", b":", b"\\", b"\\n", b"\\x", b",", b" ", b"\n\n", b"\xff", b"\xc3\xbc", b"@", b"-"),
    *(b"content-length:", b"receipt:", b"id:", b"destination:", b"transaction:t", b"ack:", b"\ncontent-length:0\n"),
    *(b"0", b"-1", b"4096", b"4097", b"99999999999999999999", b"1e9", b"/queue/q", b"/topic/>", b"*", b"#", b"true"),
    *(b"SEND\n", b"CONNECT\n", b"ACK\nid:", b"DISCONNECT\n\n\0", b"MESSAGE\n", b"first", b"end", b"x" * 100),
)


def mutated(random: Random, data: bytes) -> bytes:
    """Return ``data`` with some changes: bytes, tokens, ranges removed, doubled, or taken from another conversation."""
    changed = bytearray(data)
    for _ in range(random.randrange(1, 5)):
        at = random.randrange(len(changed) + 1)
        how = random.randrange(6)
        if how == 0 and at < len(changed):
            changed[at] = random.randrange(256)
        elif how == 1:
            changed[at:at] = random.choice(TOKENS)
        elif how == 2:
            changed[at : at + 3] = random.choice(TOKENS)
        elif how == 3:
            del changed[at : at + random.randrange(40)]
        elif how == 4:
            other = random.choice(CONVERSATIONS)
            start = random.randrange(len(other))
            changed[at:at] = other[start : start + random.randrange(200)]
        else:
            changed[at:at] = changed[at : at + random.randrange(100)]
    return bytes(changed[:6_000])


def cut(data: bytes, how: int) -> list[bytes]:
    """Return the same bytes in pieces: whole, byte by byte, or cut at places that ``how`` determines."""
    if how % 4 == 0:
        return [data]
    if how % 4 == 1:
        return [data[at : at + 1] for at in range(len(data))]
    random = Random(how)
    places = sorted(random.randrange(len(data) + 1) for _ in range(how % 7))
    return [data[start:stop] for start, stop in pairwise([0, *places, len(data)])]


# --- the targets ------------------------------------------------------------------------------------------------------

Plain = tuple[str, tuple[tuple[str, str], ...], bytes | None, bytes]


def _plain(frames: Sequence[Frame]) -> list[Plain]:
    return [(frame.command, tuple(frame.headers.items()), frame.receipt, frame.body) for frame in frames]


def _parsed(pieces: Sequence[bytes], version: str) -> tuple[list[Plain], str]:
    made = Parser(limits=LIMITS, caches=_CACHES)
    made.version = version
    frames: list[Frame] = []
    for piece in pieces:
        frames += made.feed(piece)
        while made.paused:
            frames += made.resume(version)
    if made.failed is None:
        return _plain(frames), ""
    assert type(made.failed) is ProtocolError and made.idle and made.feed(b"SEND\na:b\n\n\0") == []
    return _plain(frames), made.failed.code


def parser(data: bytes) -> None:
    how, data = data[0] if data else 0, data[1:]
    version = VERSIONS[how % 3]
    assert _parsed(cut(data, how), version) == _parsed([data], version)


def served(pieces: Sequence[bytes]) -> tuple[list[Plain], str]:
    """Return the frames that the server's end reads from a stream, and the code of the failure."""
    end = ServerConnection(LIMITS, _CACHES, (10_000, 10_000))
    frames: list[Frame] = []
    for piece in pieces:
        frames += end.receive(piece)
        assert end.pending_bytes <= LIMITS.body_bytes_max + 2 * LIMITS.header_block_bytes_max + len(piece)
        if end.failed is not None:
            break
    if end.connected:
        client = ClientConnection()
        (welcome,) = client.receive(end.connected_frame([("session", "s")]))
        assert client.version == end.version and client.idle and welcome.headers["session"] == "s"
    if end.failed is None:
        return _plain(frames), ""
    assert type(end.failed) is ProtocolError and end.failed.code in ERROR_CODES and end.receive(b"x") == []
    refusal = end.refusal()
    if end.failed.code != "not-stomp":
        frame = _understood(refusal, "ERROR", end.version)
        assert frame.headers["error-code"] == end.failed.code
        assert int(frame.headers["content-length"]) == len(frame.body) > 0
        assert len(refusal) < 8_192 + LIMITS.header_block_bytes_max
    return _plain(frames), end.failed.code


def _understood(data: bytes, command: str, version: str | None = None) -> Frame:
    """Return the one frame that our own client reads; behind it is one line end, and nothing else."""
    reader = Parser()
    reader.version = version or "1.0"
    (frame,) = reader.feed(data)
    assert reader.failed is None and reader.idle and data.endswith(b"\0\n")
    assert frame.command == command
    return frame


def connection(data: bytes) -> None:
    how, data = data[0] if data else 0, data[1:]
    whole = served([data])
    assert served(cut(data, how)) == whole
    client = ClientConnection()
    for piece in cut(data, how):
        client.receive(piece)
    assert client.failed is None or type(client.failed) is ProtocolError


def answered(pieces: Sequence[bytes], world: World | None = None) -> bytes:
    """Return all bytes that the broker answers to a stream: whole frames, each ended by NUL and LF. The world comes to
    rest before each ACK and NACK, wherever the stream is cut, so that there are deliveries to acknowledge."""
    world = world or World(SMALL)
    bystander = world.connect()
    bystander.subscribe("/queue/t", ack="client-individual")
    client: Any = Client(world)
    client.end = ClientConnection()
    data, places = b"".join(pieces), set(accumulate(map(len, pieces)))
    rests = {match.end() for match in _BEFORE_ACK.finditer(data)}
    for start, stop in pairwise(sorted({0, len(data), *places, *rests})):
        if start in rests:
            world.settle()
        client.say_bytes(data[start:stop])
    world.settle()
    failed = client.server.failed
    if failed is None or failed.code != "not-stomp":
        client.flush()
        assert client.end.failed is None and client.end.idle, client.raw[-200:]
        assert client.raw == b"" or client.raw.endswith(b"\0\n")
        errors = [frame for frame in client.inbox if frame.command == "ERROR"]
        assert len(errors) <= 1 and client.inbox[-1:] == (errors or client.inbox[-1:]), "an ERROR is the last frame"
        assert not errors or client.session.closing
    client.drop()
    bystander.drop()
    world.settle()
    world.holds_nothing()
    world.clients.clear()
    return bytes(client.raw)


def broker(data: bytes) -> None:
    how, data = data[0] if data else 0, data[1:]
    answered(cut(data, how))


TARGETS: dict[str, Callable[[bytes], None]] = {"parser": parser, "connection": connection, "broker": broker}


def seeds() -> dict[str, list[bytes]]:
    """Return the inputs with which mutation begins."""
    corpus = [bytes([number % 256]) + data for number, data in enumerate(CONVERSATIONS)]
    return dict.fromkeys(TARGETS, corpus)
