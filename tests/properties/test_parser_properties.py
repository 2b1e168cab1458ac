"""Compare the parser with a reference that reads byte by byte, over streams cut anywhere and over garbage.

Three promises are checked: every cut of a stream gives the same frames; garbage sets ``failed`` and raises nothing; the
cache of header blocks never changes the result.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from radiator.errors import ProtocolError
from radiator.stomp import encoder
from radiator.stomp.connection import ServerConnection
from radiator.stomp.frames import Frame
from radiator.stomp.headers import block_for, escape, join, pairs, split_block, stored_block, unescape
from radiator.stomp.heads import HeadCache, HeadReader
from radiator.stomp.parser import Parser, ParserLimits, new_caches
from radiator.stomp.spec import DEAD_LETTER, HOP_BY_HOP, INSTRUCTIONS, RESERVED, VERSIONS

pytestmark = pytest.mark.usefixtures("both_speeds")

LIMITS = ParserLimits(body_bytes_max=60, header_block_bytes_max=80, header_count_max=6)

Plain = tuple[str, tuple[tuple[str, str], ...], bytes | None, bytes]

versions = st.sampled_from(VERSIONS)
text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
values = st.one_of(text, st.text("\\:\n\r ca", max_size=6))
names = values.filter(bool)


def plain(frame: Frame) -> Plain:
    return frame.command, tuple(frame.headers.items()), frame.receipt, frame.body


def parse(pieces: list[bytes], version: str, caches: dict[str, HeadCache] | None = None) -> tuple[list[Plain], str]:
    """The frames and the code of the failure; opening frames keep the version, so that a stream may have several."""
    parser = Parser(limits=LIMITS, caches=caches)
    parser.version = version
    frames: list[Frame] = []
    for piece in pieces:
        frames += parser.feed(piece)
        while parser.paused:
            frames += parser.resume(version)
    if parser.failed is not None:
        assert type(parser.failed) is ProtocolError
        assert parser.idle
    return [plain(frame) for frame in frames], parser.failed.code if parser.failed else ""


def cut(data: bytes, places: list[int]) -> list[bytes]:
    bounds = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:stop] for start, stop in pairwise(bounds)]


def reference(data: bytes, version: str) -> list[Plain]:
    """Whole frames of a *valid* stream, read naively."""
    frames: list[Plain] = []
    at = 0
    while True:
        while data[at : at + 1] in (b"\n", b"\r"):
            at += 1
        lines: list[str] = []
        while True:
            stop = data.find(b"\n", at)
            if stop < 0:
                return frames
            line = data[at:stop].removesuffix(b"\r")
            at = stop + 1
            if not line:
                break
            lines.append(line.decode())
        headers: dict[str, str] = {}
        for header in lines[1:]:
            name, _, value = header.partition(":")
            if version == "1.0":
                value = value.strip(" \t")
            headers.setdefault(unescape(name, version), value if name == "receipt" else unescape(value, version))
        receipt = headers.pop("receipt", None)
        stop = at + int(headers["content-length"]) if "content-length" in headers else data.find(b"\0", at)
        if stop < 0 or stop >= len(data):
            return frames
        raw_receipt = None if receipt is None else receipt.encode()
        frames.append((lines[0], tuple(headers.items()), raw_receipt, data[at:stop]))
        at = stop + 1


@st.composite
def wire_frames(draw: st.DrawFn, version: str) -> bytes:
    """One valid frame, as odd as clients are: line ends, repeated headers, receipt and content-length anywhere."""
    eol = draw(st.sampled_from(["\n", "\n", "\r\n"]))
    body = draw(st.binary(max_size=12))
    lines = [join([(draw(names), draw(values).rstrip("\r"))], version)[1:] for _ in range(draw(st.integers(0, 2)))]
    lines = [line.replace("content-length", "content") for line in lines]
    if b"\0" in body or draw(st.booleans()):
        lines.insert(draw(st.integers(0, len(lines))), f"content-length:{len(body)}")
    for _ in range(draw(st.integers(0, 2))):
        receipt = escape(draw(st.sampled_from(["1", "r-7", "a:b", "", "ü"])), version)
        lines.insert(draw(st.integers(0, len(lines))), f"receipt:{receipt}")
    command = draw(st.sampled_from(["SEND", "SEND", "SEND", "ACK", "FOO"]))
    lead = draw(st.sampled_from(["", "", "\n", "\r\n\n"]))
    return (lead + "".join(line + eol for line in [command, *lines]) + eol).encode() + body + b"\0"


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, str]:
    version = draw(versions)
    some = draw(st.lists(wire_frames(version), min_size=1, max_size=4))
    return b"".join(draw(st.lists(st.sampled_from(some), max_size=8))), version


FRAGMENTS = [
    *(b"SEND\n", b"ACK\nid:1", b"CONNECT\n", b"\n", b"\n\n", b"\r\n", b"\r", b"\0", b":", b"a:b\n", b"x" * 30, b" "),
    *(b"receipt:", b"\nreceipt:1", b"content-length:", b"\ncontent-length:3\n\n", b"1"),
    *(b"\\", b"\\c", b"\xff", b"\xc3\xbc"),
]
garbage = st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.binary(max_size=3)), max_size=25).map(b"".join)
cuts = st.lists(st.integers(0, 10_000), max_size=6)


@given(streams(), cuts)
def test_every_cut_of_a_stream_gives_the_frames_that_the_reference_reads(
    stream: tuple[bytes, str], places: list[int]
) -> None:
    data, version = stream
    parser = Parser()
    parser.version = version
    frames = [plain(frame) for piece in cut(data, places) for frame in parser.feed(piece)]
    assert parser.failed is None, parser.failed.detail
    assert frames == reference(data, version)
    assert parser.idle


@pytest.mark.thorough
@given(streams())
def test_a_stream_byte_by_byte_gives_the_frames_of_the_whole(stream: tuple[bytes, str]) -> None:
    data, version = stream
    assert parse([bytes([byte]) for byte in data], version) == parse([data], version)


@given(garbage, cuts, versions)
@example(b"SEND\na:b\n\r\nreceipt:1\n\n\0", [], "1.2")
@example(b"SEND\nreceipt:1\r\n\n\0SEND\nreceipt:1\n\r\n\0", [3], "1.2")
def test_garbage_raises_nothing_and_is_judged_alike_for_every_cut(data: bytes, places: list[int], version: str) -> None:
    whole = parse([data], version)
    assert parse(cut(data, places), version) == whole
    assert parse([bytes([byte]) for byte in data], version) == whole


@given(streams(), st.lists(st.tuples(st.integers(0, 10_000), st.binary(max_size=2)), min_size=1, max_size=3), cuts)
def test_a_damaged_stream_is_judged_alike_for_every_cut(
    stream: tuple[bytes, str], damages: list[tuple[int, bytes]], places: list[int]
) -> None:
    data, version = stream
    for place, replacement in damages:
        at = place % (len(data) + 1)
        data = data[:at] + replacement + data[at + 1 :]
    assert parse(cut(data, places), version) == parse([data], version)


@pytest.mark.thorough
@given(st.lists(st.one_of(garbage, streams().map(lambda stream: stream[0])), max_size=6), versions)
def test_a_warm_cache_changes_nothing(chunks: list[bytes], version: str) -> None:
    caches = new_caches()
    for data in chunks:
        assert parse([data], version, caches) == parse([data], version)
    for data in chunks:
        assert parse([data], version, caches) == parse([data], version)


@given(garbage, cuts)
def test_a_connection_survives_garbage(data: bytes, places: list[int]) -> None:
    for opening in (b"", b"CONNECT\naccept-version:1.2\n\n\0"):
        connection = ServerConnection(LIMITS)
        for piece in cut(opening + data, places):
            connection.receive(piece)
        if connection.failed is not None:
            assert connection.receive(b"SEND\na:b\n\n\0") == []
            assert connection.refusal()


@given(garbage, versions)
def test_the_quick_way_to_a_head_never_differs_from_the_careful_one(data: bytes, version: str) -> None:
    block = b"SEND\n" + data.replace(b"\0", b"").replace(b"\n\n", b"\n").strip(b"\r\n")
    outcomes: list[object] = []
    for quick in (True, False):
        reader = HeadReader(version, HeadCache(), 6)
        try:
            head = reader.quick(block) if quick else reader.read(block)
        except ProtocolError as problem:
            outcomes.append(problem.code)
        else:
            outcomes.append((head.command, head.headers, head.raw, head.content_length) if head is not None else None)
    assert outcomes[0] in (None, outcomes[1])


@given(values, st.sampled_from(["1.1", "1.2"]))
def test_escaping_and_unescaping_give_any_text_back(value: str, version: str) -> None:
    wire = escape(value, version)
    assert set(wire).isdisjoint("\n\r:")
    assert unescape(wire, version) == (value if version == "1.2" else value.replace("\r", " "))


@given(values)
def test_1_0_gives_back_what_it_can_say(value: str) -> None:
    wire = escape(value, "1.0")
    assert set(wire).isdisjoint("\n\r")
    assert unescape(wire, "1.0") == value.replace("\n", " ").replace("\r", " ")


@given(st.lists(st.tuples(names, values), max_size=5), versions)
def test_joined_headers_are_read_back(headers: list[tuple[str, str]], version: str) -> None:
    said = headers
    if version == "1.0":
        table, blanks = str.maketrans("\n\r:", "___"), str.maketrans("\n\r", "  ")
        said = [(name.translate(table), value.translate(blanks).strip(" \t")) for name, value in headers]
    elif version == "1.1":
        said = [(name.replace("\r", "_"), value.replace("\r", " ")) for name, value in headers]
    assert pairs(join(headers, version)[1:].encode(), version) == said


@given(st.lists(st.tuples(names, values), max_size=5), st.binary(max_size=20), st.sampled_from(["1.1", "1.2"]))
def test_what_is_encoded_is_parsed(headers: list[tuple[str, str]], body: bytes, version: str) -> None:
    if version == "1.1":
        headers = [(name.replace("\r", "_"), value.replace("\r", " ")) for name, value in headers]
    headers = [(name, value) for name, value in headers if name not in ("content-length", "receipt")]
    parser = Parser()
    parser.version = version
    (frame,) = parser.feed(encoder.encode("SEND", headers, body, version))
    first: dict[str, str] = {}
    for name, value in headers:
        first.setdefault(name, value)
    if body:
        first["content-length"] = str(len(body))
    assert (frame.headers, frame.body) == (first, body)


@given(streams())
def test_the_stored_block_holds_the_headers_of_the_message_and_reaches_every_version(stream: tuple[bytes, str]) -> None:
    data, version = stream
    parser = Parser()
    parser.version = version
    for frame in parser.feed(data):
        block = stored_block(frame.head)
        dropped = HOP_BY_HOP | RESERVED | DEAD_LETTER | INSTRUCTIONS
        kept = [pair for pair in frame.headers.items() if pair[0] not in dropped]
        assert split_block(block) == kept
        assert pairs(block, "1.2") == kept
        assert b"\r" not in block
        assert pairs(block_for(block, "1.2"), "1.2") == kept
        without_cr = [(name.replace("\r", "_"), value.replace("\r", " ")) for name, value in kept]
        assert pairs(block_for(block, "1.1"), "1.1") == without_cr
        assert b"\r" not in block_for(block, "1.1") + block_for(block, "1.0")
        assert len(pairs(block_for(block, "1.0"), "1.0")) == sum(value != "" for _, value in kept)
