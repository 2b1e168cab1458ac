"""The index of a segment is believed as far as its crcs hold."""

from __future__ import annotations

import pytest

from radiator.storage import index
from radiator.storage.index import IndexEntry

ENTRIES = [IndexEntry(10, 0, 100), IndexEntry(20, 64, 200), IndexEntry(30, 128, 200), IndexEntry(40, 4096, 300)]
DATA = index.encode_head(10) + index.encode_entries(ENTRIES)


def test_what_is_written_is_read() -> None:
    assert index.decode(DATA, 10) == ENTRIES


@pytest.mark.parametrize("cut", range(0, len(DATA), 7))
def test_a_cut_index_gives_its_whole_entries(cut: int) -> None:
    assert index.decode(DATA[:cut], 10) == ENTRIES[: max(0, cut // 32 - 1)]


def test_it_ends_at_the_first_entry_that_does_not_hold() -> None:
    for place in range(32, len(DATA)):
        damaged = bytearray(DATA)
        damaged[place] ^= 1
        assert index.decode(bytes(damaged), 10) == ENTRIES[: place // 32 - 1]


@pytest.mark.parametrize("data", [None, b"", bytes(200), index.encode_head(11) + DATA[32:]])
def test_without_a_head_of_its_segment_it_is_empty(data: bytes | None) -> None:
    assert index.decode(data, 10) == []


def test_entries_that_fall_are_not_believed() -> None:
    for second in (IndexEntry(5, 64, 1), IndexEntry(20, 0, 1), IndexEntry(20, 65, 1)):
        data = index.encode_head(10) + index.encode_entries([ENTRIES[0], second])
        assert index.decode(data, 10) == ENTRIES[:1]


def test_looking_up() -> None:
    assert index.up_to_offset(ENTRIES, 9) == []
    assert index.up_to_offset(ENTRIES, 29) == ENTRIES[:2]
    assert index.up_to_offset(ENTRIES, 30) == ENTRIES[:3]
    assert index.up_to_time(ENTRIES, 100) == []
    assert index.up_to_time(ENTRIES, 200) == ENTRIES[:1]
    assert index.up_to_time(ENTRIES, 201) == ENTRIES[:3]
