"""Runs of plain WebSocket messages: what is taken, what is left to the protocol, and both speeds alike."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode

from radiator.tunnels.messages import BINARY, TEXT, as_messages, message_head, split_frames, take_messages
from tests.speeds import needs_compiled, pair

pytestmark = pytest.mark.usefixtures("both_speeds")

PAYLOADS = st.one_of(st.binary(max_size=140), st.text(max_size=40).map(str.encode), st.just(b"x" * 70_000))
FRAMES = st.builds(
    Frame,
    st.sampled_from([*[Opcode.TEXT, Opcode.BINARY] * 4, Opcode.CONT]),
    PAYLOADS,
    st.sampled_from([True] * 9 + [False]),
)
CONTENT_LENGTHS = st.sampled_from([b"", b"7", b" 7 ", b"+7", b"-7", b"x", b"9" * 18, b"9" * 19, b"0007"])
STOMP = st.one_of(
    st.just(b"\n"),
    st.binary(max_size=40).map(lambda body: b"MESSAGE\na:b\ncontent-length:%d\nc:d\n\n%b\0\n" % (len(body), body)),
    CONTENT_LENGTHS.map(lambda length: b"MESSAGE\ncontent-length:%b\n\nseven b\0" % length),
    st.just(b"RECEIPT\nreceipt-id:1\n\n\0\n"),
    st.binary(max_size=20),
)


def on_wire(payload: bytes, opcode: Opcode = Opcode.BINARY, masked: bool = True) -> bytes:
    return Frame(opcode, payload).serialize(mask=masked)


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("size", [0, 1, 3, 4, 7, 8, 9, 125, 126, 65_535, 65_536])
def test_a_message_of_every_form_of_length_is_taken(size: int, masked: bool) -> None:
    payload = bytes(range(256)) * (size // 256 + 1)
    wire = on_wire(payload[:size], masked=masked)
    assert take_messages(b"before" + wire, 6, 9, masked) == (payload[:size], 6 + len(wire), 1, BINARY)


def test_a_run_ends_before_a_frame_that_is_not_whole() -> None:
    wire = on_wire(b"one") + on_wire(b"two", Opcode.TEXT)
    for cut in range(1, 9):
        assert take_messages(wire + on_wire(b"abc")[:cut], 0, 9, True) == (b"onetwo", len(wire), 2, TEXT)


@pytest.mark.parametrize(
    "other",
    [
        on_wire(b"p", Opcode.PING),
        Frame(Opcode.TEXT, b"f", False).serialize(mask=True),
        b"\xc1\x81\0\0\0\0z",
        on_wire(b"\xff", Opcode.TEXT),
        on_wire(b"unmasked", masked=False),
        b"\x82\xff" + b"\xff" * 8 + b"\0\0\0\0",
    ],
    ids=["ping", "fragment", "extension", "not UTF-8", "not masked", "length that cannot be"],
)
def test_a_run_ends_before_a_frame_for_the_protocol(other: bytes) -> None:
    wire = on_wire(b"one")
    assert take_messages(wire + other + wire, 0, 9, True) == (b"one", len(wire), 1, BINARY)


def test_no_more_messages_are_taken_than_asked_for() -> None:
    wire = on_wire(b"x")
    assert take_messages(wire * 5, 0, 3, True) == (b"xxx", 3 * len(wire), 3, BINARY)


@given(st.lists(STOMP, max_size=6).map(b"".join))
def test_each_frame_becomes_a_message(data: bytes) -> None:
    try:
        frames = list(split_frames(data))
    except ValueError:
        with pytest.raises(ValueError):
            as_messages(data, TEXT)
        return
    assert as_messages(data, TEXT) == b"".join(on_wire(frame, Opcode.TEXT, masked=False) for frame in frames)


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536])
def test_the_head_of_a_message_is_that_of_the_standard(size: int) -> None:
    assert message_head(BINARY, size) + b"x" * size == on_wire(b"x" * size, masked=False)


@needs_compiled
@given(st.lists(st.tuples(FRAMES, st.booleans()), max_size=5), st.integers(0, 20), st.integers(1, 4), st.booleans())
def test_both_speeds_take_the_same(frames: list[tuple[Frame, bool]], cut: int, most: int, masked: bool) -> None:
    wire = b"".join(frame.serialize(mask=mask) for frame, mask in frames)
    wire = wire[: len(wire) - cut]
    pure, compiled = pair("take_messages")
    assert pure(wire, 0, most, masked) == compiled(wire, 0, most, masked)


@needs_compiled
@given(st.lists(STOMP, max_size=6).map(b"".join))
def test_both_speeds_write_the_same(data: bytes) -> None:
    outcomes: list[Any] = []
    for write in pair("as_messages"):
        try:
            outcomes.append(write(data, BINARY))
        except ValueError:
            outcomes.append(ValueError)
    assert outcomes[0] == outcomes[1]
