"""What encodes small batches and parts of the journal, in Python and compiled: the same bytes and errors."""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radiator.storage import format as codec
from radiator.storage.format import FEW_RECORDS_MAX
from radiator.storage.header import EVENT_ABSENT, MISSING, TIME_MAX, TRANSACTION, TRANSMIT_ABSENT
from tests.speeds import needs_compiled, pair

TIMES = st.integers(MISSING, TIME_MAX)
NAMES = st.sampled_from(["", "/queue/a", "/topic/ä", "/queue/日本", "😀", "x" * 300, "a\0b"]) | st.text(max_size=20)
VALUES = st.binary(max_size=40) | st.sampled_from([b"", b"y" * 1000])


@st.composite
def batches(draw: st.DrawFn) -> list[Any]:
    """The arguments of ``encode_few``, in order."""
    count = draw(st.integers(1, FEW_RECORDS_MAX))

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=count, max_size=count))

    event, transmit = (column(TIMES) if draw(st.booleans()) else None for _ in range(2))
    flags = draw(st.sampled_from([0, TRANSACTION]))
    flags |= (EVENT_ABSENT if event is None else 0) | (TRANSMIT_ABSENT if transmit is None else 0)
    base, salt = draw(st.integers(0, 2**64 - 1)), draw(st.integers(0, 2**32 - 1))
    blocks, bodies = column(VALUES), column(VALUES)
    limit = sum(map(len, blocks)) + sum(map(len, bodies)) + draw(st.integers(0, 2))
    return [base, column(TIMES), event, transmit, draw(NAMES), blocks, bodies, flags, salt, limit]


def outcome(encode: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    try:
        return encode(*arguments)
    except Exception as error:
        return type(error)


@needs_compiled
@given(batches(), st.sampled_from([list, tuple]))
def test_both_encode_the_same(arguments: list[Any], kind: Callable[[Any], Any]) -> None:
    pure, compiled = pair("encode_few")
    for at in (1, 5, 6):
        arguments[at] = kind(arguments[at])
    expected = outcome(pure, arguments)
    assert outcome(compiled, arguments) == expected
    length = sum(map(len, [*arguments[5], *arguments[6]]))
    assert (expected is None) is (length >= arguments[9])


@needs_compiled
@given(batches())
def test_arrays_of_times_are_encoded_alike(arguments: list[Any]) -> None:
    pure, compiled = pair("encode_few")
    for at in (1, 2, 3):
        arguments[at] = arguments[at] and array("q", arguments[at])
    assert compiled(*arguments) == pure(*arguments)


GOOD = [7, [1, 2], [3, 4], [5, 6], "/queue/a", [b"h", b"hh"], [b"b", b""], 0, 9, 99]
WRONG = [
    *((0, value) for value in (-1, 1 << 64, 1 << 80)),
    *((column, [1, value]) for column in (1, 2, 3) for value in (MISSING - 1, TIME_MAX + 1, 1 << 80)),
    *((column, values) for column in (1, 2, 3) for values in ([1], [1, 2, 3])),
    *((7, value) for value in (-1, 1 << 16)),
    *((8, value) for value in (-1, 1 << 32)),
    *((4, value) for value in ("\ud800", "a\udfff")),
    (6, [b""]),
    (6, [b"", b"", b""]),
]


@needs_compiled
@pytest.mark.parametrize(("place", "value"), WRONG)
def test_both_refuse_the_same(place: int, value: Any) -> None:
    pure, compiled = pair("encode_few")
    arguments = [*GOOD[:place], value, *GOOD[place + 1 :]]
    assert (
        outcome(compiled, arguments) is outcome(pure, arguments) is (UnicodeEncodeError if place == 4 else struct.error)
    )


class Index:
    """An integer of another type, as numpy has."""

    def __index__(self) -> int:
        return 1


@needs_compiled
@pytest.mark.parametrize(
    ("place", "value"),
    [
        (0, Index()),
        (1, [Index(), Index()]),
        (2, [3, Index()]),
        (3, (Index(), 4)),
        (5, [memoryview(b"h"), b"hh"]),
        (6, [b"b", bytearray(b"")]),
        (8, Index()),
    ],
)
def test_values_of_other_types_are_encoded_whatever_is_in_use(
    monkeypatch: pytest.MonkeyPatch, place: int, value: Any
) -> None:
    arguments = [*GOOD[:place], value, *GOOD[place + 1 :]]
    base, receive, event, transmit, name, blocks, bodies, flags, salt, _ = arguments
    pure, compiled = pair("encode_few")
    assert compiled(*arguments) is None
    found = []
    for encode in (pure, compiled):
        monkeypatch.setattr(codec, "encode_few", encode)
        pieces = codec.encode_batch(base, receive, event, transmit, [0, 0], [name], blocks, bodies, flags, salt=salt)
        found.append(b"".join(pieces))
    assert found[0] == found[1]


@needs_compiled
def test_the_times_of_a_bool_are_those_of_an_int() -> None:
    pure, compiled = pair("encode_few")
    arguments = [True, [True, False], None, None, "q", [b"", b""], [b"", b""], True, True, 99]
    assert compiled(*arguments) == pure(*arguments)


@needs_compiled
def test_no_reference_is_lost_or_left() -> None:
    for encode in pair("encode_few"):
        watched = [GOOD[4], *GOOD[5], *GOOD[6][:1], GOOD[1], GOOD[2], GOOD[3], GOOD[5], GOOD[6]]
        before = [sys.getrefcount(each) for each in watched]
        for _ in range(100):
            encode(*GOOD)
            for place, value in WRONG:
                outcome(encode, [*GOOD[:place], value, *GOOD[place + 1 :]])
        assert [sys.getrefcount(each) for each in watched] == before


@needs_compiled
@given(st.text(max_size=30).map(str.encode), st.lists(st.binary(max_size=40), min_size=1, max_size=5))
def test_both_add_the_same_part(partition: bytes, pieces: list[bytes]) -> None:
    found = []
    for add in pair("add_batch_part"):
        sealed, parts = [b"before"], [b"before", b"it"]
        length = add(sealed, parts, partition, pieces)
        found.append((length, b"".join(sealed), b"".join(parts)))
        assert len(found[-1][2]) == len(b"beforeit") + length
    assert found[0] == found[1]


@needs_compiled
def test_neither_adds_a_part_with_a_name_that_is_too_long() -> None:
    for add in pair("add_batch_part"):
        sealed: list[bytes] = []
        parts: list[bytes] = []
        with pytest.raises(struct.error):
            add(sealed, parts, b"x" * (1 << 16), [b"prefix", b"rest"])
        assert (sealed, parts) == ([], [])
        add(sealed, parts, b"x" * ((1 << 16) - 1), [b"prefix", b"rest"])
