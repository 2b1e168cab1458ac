"""The compiled functions and those in Python: the same frames, states and errors, to the last byte.

The tests of the parser and of the encoder run on both (``both_speeds``). Here both are given the same, whatever it is.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radiator import __version__, speed
from radiator.broker.clients.receipts import ReceiptLine
from radiator.stomp import parser as parser_module
from radiator.stomp.frames import Frame, Head
from radiator.stomp.parser import HeadCache, Parser, ParserLimits, new_caches
from radiator.stomp.spec import VERSIONS
from tests.properties.test_parser_properties import cut, cuts, garbage, streams
from tests.speeds import COMPILED, needs_compiled, pair
from tests.tiers import sampled

ROOT = Path(__file__).parent.parent.parent
LIMITS = [ParserLimits(), ParserLimits(body_bytes_max=60, header_block_bytes_max=80, header_count_max=6)]

PARTS = [
    *(b"SEND\n", b"ACK\n", b"CONNECT\n", b"MESSAGE\n", b"receipt:", b"receipt:r1\n", b"receipt:\n", b"receipt:a b\n"),
    *(b"receipt:\xc3\xbc\n", b"receipt:a\\cb\n", b"a:b\n", b"a:1\n", b"message-id:1\n", b"destination:/q\n", b"x\n"),
    *(b"content-length:3\n", b"content-length:03 \n", b"content-length:-1\n", b"content-length:99\n", b"\n", b"\r\n"),
    *(b"\nabc\0", b"\n\0", b"\nab\0c\0", b"\n\nab\0", b"\0", b"\r", b"\\c", b":", b"x" * 70, b"\n" * 3),
]
CALM = [
    b"SEND\ndestination:/q\nreceipt:1\n\nabc\0",
    b"SEND\nreceipt:22\ndestination:/q\n\n\0",
    b"SEND\ndestination:/q\n\nabc\0\n",
    b"SEND\ndestination:/q\ncontent-length:3\nreceipt:3\n\na\0c\0",
    b"SEND\ndestination:/q\nmessage-id:1\n\nabc\0",
    b"SEND\n\nabc\0",
    b"ACK\nid:1\nreceipt:4\n\n\0",
    b"\n\0\r\n",
]
ODD = [  # each is at one border of what is ordinary
    b"SEND\nreceipt:5\nreceipt:6\n\nabc\0",
    b"SEND\nreceipt:5\na:b\n\nabc\0",
    b"SEND\nreceipt:5\na:c\n\nabc\0",
    b"SEND\na:b\nreceipt: 5 \n\nabc\0",
    b"SEND\na:b\nreceipt:5\\c\n\nabc\0",
    b"SEND\na:b\nreceipt:5\\x\n\nabc\0",
    b"SEND\na:b\nreceipt:\x7f\n\nabc\0",
    b"SEND\na:b\nreceipt:5\r\n\nabc\0",
    b"SEND\na:b\r\nc:d\n\nabc\0",
    b"SEND\ncontent-length:60\n\n" + b"x" * 60 + b"\0",
    b"SEND\ncontent-length:61\n\n" + b"x" * 61 + b"\0",
    b"SEND\n\n" + b"x" * 60 + b"\0",
    b"SEND\n\n" + b"x" * 61 + b"\0",
    b"SEND\na:" + b"x" * 73 + b"\n\n\0",
    b"SEND\na:" + b"x" * 74 + b"\n\n\0",
    b"SEND\na:b\na:c\n\nabc\0",
    b"receipt:7\na:b\n\nabc\0",
]
wild = st.lists(st.one_of(st.sampled_from(PARTS), st.sampled_from(CALM)), max_size=20).map(b"".join)
calm = st.lists(st.sampled_from(CALM + ODD), max_size=12).map(b"".join)
bytes_fed = st.one_of(calm, wild, garbage, streams().map(lambda stream: stream[0]))


def looks(head: Head | None) -> tuple[Any, ...] | None:
    if head is None:
        return None
    return head.command, list(head.headers.items()), head.raw, head.version, head.content_length, head.memo


def seen(parser: Parser, frames: list[Frame], caches: dict[str, HeadCache]) -> dict[str, Any]:
    """All of a parser that anybody can see, and what it keeps to itself."""
    first: dict[int, int] = {}
    shared = [first.setdefault(id(frame.head), len(first)) for frame in frames]
    failed = parser.failed
    return {
        "frames": [(type(frame), looks(frame.head), frame.receipt, frame.body) for frame in frames],
        "shared": shared,
        "failed": failed and (type(failed), failed.code, failed.message, failed.detail),
        "failed receipt": parser.failed_receipt,
        "failed head": looks(parser.failed_head),
        "pending": (looks(parser.pending_head), parser._pending_receipt, parser.pending_bytes),
        "between": (parser.idle, parser.paused),
        "half": (parser._pieces, parser._partial_bytes, parser._boundary, parser._wait, parser._body_bytes_max),
        "caches": {
            version: [[(block, looks(head)) for block, head in each.items()] for each in (cache.young, cache.old)]
            for version, cache in caches.items()
        },
    }  # fmt: skip


def history(
    take: Callable[..., int], pieces: list[bytes], version: str, limits: ParserLimits, entries: int
) -> list[Any]:
    """What a parser is after each piece."""
    caches = {each: HeadCache(entries) for each in VERSIONS}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parser_module, "take_ordinary", take)
        parser = Parser(limits=limits, caches=caches)
        parser.version = version
        frames: list[Frame] = []
        states = []
        for piece in pieces:
            frames += parser.feed(piece)
            states.append(seen(parser, frames, caches))
            while parser.paused:
                frames += parser.resume(version)
                states.append(seen(parser, frames, caches))
    return states


@needs_compiled
@given(bytes_fed, cuts, st.sampled_from(VERSIONS), st.sampled_from(LIMITS), st.sampled_from([2, 4, 4096]))
def test_both_parsers_go_through_the_same_states(
    data: bytes, places: list[int], version: str, limits: ParserLimits, entries: int
) -> None:
    pure, compiled = pair("take_ordinary")
    pieces = cut(data, places)
    assert history(compiled, pieces, version, limits, entries) == history(pure, pieces, version, limits, entries)


@needs_compiled
@pytest.mark.parametrize("limits", sampled(LIMITS, 1), ids=["default", "small"])
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("frame", CALM + ODD)
def test_both_agree_on_every_beginning_of_a_frame(frame: bytes, version: str, limits: ParserLimits) -> None:
    pure, compiled = pair("take_ordinary")
    for before in (b"", CALM[0], ODD[1], frame):
        for stop in range(len(frame) + 1):
            pieces = [before + frame[:stop], frame[stop:] + CALM[1]]
            assert history(compiled, pieces, version, limits, 8) == history(pure, pieces, version, limits, 8)


@needs_compiled
@given(calm, st.lists(st.tuples(st.integers(0, 10_000), st.binary(max_size=2)), max_size=2), st.sampled_from(VERSIONS))
def test_both_stop_at_the_same_place(data: bytes, damages: list[tuple[int, bytes]], version: str) -> None:
    for place, replacement in damages:
        at = place % (len(data) + 1)
        data = data[:at] + replacement + data[at + 1 :]
    found = []
    for take in pair("take_ordinary"):
        parser = Parser(caches=new_caches())
        parser.version = version
        for block_bytes_max in (20, 30, 1024):
            frames: list[Frame] = []
            stop = take(data, 0, parser._reader, block_bytes_max, 3, frames)
            found.append((stop, [(looks(frame.head), frame.receipt, frame.body) for frame in frames]))
    assert found[:3] == found[3:]


HEADS = [Head("SEND", {}, b"", "1.2", -1) for _ in range(2)]
some_frames = st.lists(
    st.builds(Frame, st.sampled_from(HEADS), st.sampled_from([None, b"1", b""]), st.binary(max_size=3)), min_size=1
)


@needs_compiled
@given(some_frames, st.integers(0, 5), st.integers(0, 9))
def test_both_take_the_same_run_apart(frames: list[Frame], start: int, most: int) -> None:
    pure, compiled = pair("same_head_run")
    start %= len(frames)
    assert compiled(frames, start, most) == pure(frames, start, most)


@needs_compiled
@given(
    st.lists(st.tuples(st.binary(max_size=5), st.integers(0, 2**64 - 1), st.binary(max_size=5)), max_size=5),
    st.integers(-1, 1),
)
def test_both_write_the_same_receipts(receipts: list[tuple[bytes, int, bytes]], more: int) -> None:
    ids, offsets, suffixes = ([each[column] for each in receipts] for column in range(3))
    if more > 0:
        offsets.append(1)
    if more < 0:
        suffixes.append(b"")
    outcomes: list[Any] = []
    for write in pair("receipts_with_offsets"):
        try:
            outcomes.append(write(ids, offsets, suffixes))
        except ValueError:
            outcomes.append(ValueError)
    assert outcomes[0] == outcomes[1]
    assert (outcomes[0] is ValueError) == (more != 0)


@needs_compiled
@pytest.mark.parametrize("name", sorted(speed.PAIRS))
def test_wrong_arguments_raise_and_do_not_crash(name: str) -> None:
    _, compiled = pair(name)
    nothing: list[Any] = [None] * 10
    for arguments in (
        [],
        nothing[:1],
        nothing[:3],
        nothing[:6],
        nothing,
        [[], 0, 5],
        [[None], 0, 5],
        [[1], [2], [3]],
        [[b""], [-1], [b""]],
        [[], [], b"", []],
        [[], [], b"", [None]],
        [[], [], None, [b""]],
        [None, [], b"", [b""]],
        [0, None, None, None, "q", [b""], [b""], 0, 0, 99],
        [0, [1], None, None, "q", None, [b""], 0, 0, 99],
        [0, [1], None, None, b"q", [b""], [b""], 0, 0, 99],
        [0, [1], None, None, "q", [b""], [b""], 0, 0, None],
    ):
        with pytest.raises((TypeError, ValueError, AttributeError, IndexError, OverflowError)):
            compiled(*arguments)  # fmt: skip


@needs_compiled
def test_append_plain_refuses_what_it_was_not_made_for() -> None:
    compiled = pair("append_plain")[1]
    line = ReceiptLine(print, print)
    head = Head("SEND", {}, b"", "1.2", -1)
    head.memo = object()  # not a plan
    frame = Frame(head, None, b"")
    assert compiled([frame], 0, 1, 1, None, "1.2", line, 5) == (0, 0, 0)
    assert compiled([], 0, 0, 1, None, "1.2", line, 5) == (0, 0, 0)
    for frames, start, stop, receipts in (
        ([frame], 0, 2, line),
        ([frame], -1, 1, line),
        ([None], 0, 1, line),
        ([frame], 0, 1, None),
        (None, 0, 1, line),
    ):
        with pytest.raises((TypeError, IndexError)):
            compiled(frames, start, stop, 1, None, "1.2", receipts, 5)


def test_every_compiled_function_has_a_twin_in_python() -> None:
    if COMPILED is not None:
        functions = {
            name for name, each in vars(COMPILED).items() if type(each).__name__ == "cython_function_or_method"
        }
        assert functions <= set(speed.PAIRS)
        assert COMPILED.INTERFACE == speed.INTERFACE, "build it anew: make venv"
    assert set(speed.PAIRS) == {
        "take_ordinary",
        "same_head_run",
        "receipts_with_offsets",
        "encode_few",
        "add_batch_part",
        "append_plain",
        "take_messages",
        "as_messages",
    }


def in_use(**environment: str) -> str:
    code = "from radiator import speed; print(speed.IN_USE)"
    command = [sys.executable, "-c", code]
    return subprocess.check_output(command, cwd=ROOT, env={"PATH": "", **environment}, text=True).strip()


def test_a_variable_forces_python() -> None:
    assert in_use(RADIATOR_PURE="1") == "pure Python, RADIATOR_PURE is set"
    assert in_use(RADIATOR_PURE="0") == in_use() == ("pure Python" if COMPILED is None else "accelerated")


def test_the_version_says_what_is_in_use() -> None:
    for environment, word in (({}, in_use()), ({"RADIATOR_PURE": "1"}, "pure Python, RADIATOR_PURE is set")):
        command = [sys.executable, "-m", "radiator", "--version"]
        said = subprocess.check_output(command, cwd=ROOT, env={"PATH": "", **environment}, text=True)
        assert said == f"radiator {__version__} ({word})\n"


def test_an_extension_of_other_sources_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    other = ModuleType("radiator._speed")
    other.INTERFACE = speed.INTERFACE + 1  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "radiator._speed", other)
    monkeypatch.setattr("radiator._speed", other, raising=False)
    assert speed._load("") == (None, "pure Python, the extension was built from other sources")


def test_without_an_extension_it_is_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "radiator._speed", None)
    monkeypatch.delattr("radiator._speed", raising=False)
    assert speed._load("") == (None, "pure Python")
