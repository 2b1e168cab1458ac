"""Walking a segment file."""

from __future__ import annotations

import pytest

from radiator.storage import index, layout
from radiator.storage.format import encode_batch
from radiator.storage.header import HEADER_BYTES, MAGIC
from radiator.storage.index import IndexEntry
from radiator.storage.segment import (
    Window,
    entry_matches,
    find_batch,
    locate,
    locate_time,
    read_run,
    scan_plain_batches,
    start_from_index,
    whole_batches,
)
from tests.storage.faults import FaultyFileSystem


def segment(
    *batches: tuple[int, int], chunk: int = 300, deltas: list[int] | None = None, level: int = 0
) -> tuple[Window, list[int], int]:
    """A file of batches of (base offset, records); the positions of the batches; its size."""
    fs = FaultyFileSystem()
    fd = fs.open("/segment", create=True)
    positions, at = [], 0
    for base, count in batches:
        times = [1_000 + 10 * (base + each) for each in range(count)]
        bodies = [b"%d" % (base + each) for each in range(count)]
        pieces = encode_batch(
            base, times, None, None, [0] * count, ["/q"], [b"h"] * count, bodies, 0, deltas, level=level
        )
        positions.append(at)
        at += fs.pwritev(fd, pieces, at)
    return Window(fs, fd, chunk), positions, at  # type: ignore[arg-type]


BATCHES = [(10, 1), (11, 3), (14, 1), (15, 1), (16, 50), (66, 2)]


def test_whole_batches_begin_and_end_at_the_given_positions() -> None:
    window, positions, size = segment(*BATCHES)
    assert [position for position, _ in whole_batches(window, 0, size, 10)] == positions
    found = whole_batches(window, positions[1], positions[4], 11)
    assert [header.base_offset for _, header in found] == [11, 14, 15]


def test_a_batch_in_a_wrong_place_hides_none_behind_it() -> None:
    window, positions, size = segment(*[(each, 1) for each in range(20)])
    length = positions[1]
    late = window.fs.pread(window.fd, length, positions[15])
    window.fs.pwritev(window.fd, [late], positions[3])
    early = window.fs.pread(window.fd, length, positions[1])
    window.fs.pwritev(window.fd, [early], positions[10])
    window = Window(window.fs, window.fd, 300)
    found = [header.base_offset for _, header in whole_batches(window, 0, size, 0)]
    assert found == [*range(3), *range(4, 10), *range(11, 20)]
    assert locate(window, [], 4, size) == positions[4]
    assert locate(window, [], 3, size) == positions[4]
    assert locate_time(window, [], 1_030, 20) == 4


@pytest.mark.parametrize("chunk", [64, 300, 100_000])
def test_an_offset_is_found_with_and_without_an_index(chunk: int) -> None:
    window, positions, size = segment(*BATCHES, chunk=chunk)
    entries = [IndexEntry(base, position, 0) for (base, _), position in zip(BATCHES, positions, strict=True)]
    for known in ([], entries, entries[:3], [IndexEntry(12, positions[1] + 8, 0)]):
        assert locate(window, known, 10, size) == positions[0]
        assert locate(window, known, 13, size) == positions[1]
        assert locate(window, known, 65, size) == positions[4]
        assert locate(window, known, 67, size) == positions[5]
        assert locate(window, known, 3, size) == positions[0], "the first behind it"
        assert locate(window, known, 68, size) is None


def test_an_offset_is_found_behind_damage() -> None:
    window, positions, size = segment(*BATCHES)
    fs, fd = window.fs, window.fd
    fs.pwritev(fd, [b"\xff" * 20], positions[2])
    window = Window(fs, fd, 300)
    assert locate(window, [], 15, size) == positions[3]
    assert locate(window, [], 14, size) == positions[3]
    found = find_batch(window, positions[2], size, 16)
    assert found is not None and (found[0], found[1].base_offset) == (positions[4], 16)
    assert find_batch(window, positions[5] + 8, size, 0) is None


def test_sparse_batches_span_more_than_they_hold() -> None:
    window, positions, size = segment((10, 3), (101, 3), deltas=[2, 5, 90])
    assert locate(window, [], 10, size) == positions[0], "it covers what was removed before its first record"
    assert locate(window, [], 57, size) == positions[0]
    assert locate(window, [], 101, size) == positions[1]
    assert locate(window, [], 192, size) is None
    assert locate_time(window, [], 0, 1_000) == 12, "the first record, not the first offset"
    assert locate_time(window, [], 2_011, 1_000) == 106


def test_a_run_joins_sparse_and_compressed_batches() -> None:
    window, _, size = segment((10, 3), (101, 3), deltas=[2, 5, 90], level=3)
    batch, after = read_run(window, 0, 1_000, 100_000)
    assert batch is not None and after == size
    assert list(batch.offsets) == [12, 15, 100, 103, 106, 191] and (batch.base_offset, batch.next_offset) == (10, 192)


def test_a_run_ends_where_it_is_large_enough_unpacked() -> None:
    fs = FaultyFileSystem()
    fd, at = fs.open("/segment", create=True), 0
    for base in (0, 1, 2):
        pieces = encode_batch(base, [1], None, None, [0], ["/q"], [b""], [bytes(40_000)], level=3)
        at += fs.pwritev(fd, pieces, at)
    batch, after = read_run(Window(fs, fd, 4_096), 0, 9, 64_000)  # type: ignore[arg-type]
    assert at < 1_000 and batch is not None and len(batch) == 2 and batch.size_bytes == 80_000
    assert after < at


def test_an_index_that_is_older_than_the_file_is_not_believed() -> None:
    window, positions, size = segment(*BATCHES)
    stale = [IndexEntry(10, 0, 1_100), IndexEntry(16, positions[2], 1_160), IndexEntry(66, positions[4] + 8, 1_660)]
    assert [entry_matches(window, entry) for entry in stale] == [True, False, False]
    assert start_from_index(window, stale) == (0, 10)
    assert locate(window, stale, 66, size) == positions[5]


def test_a_time_is_found() -> None:
    window, positions, _ = segment(*BATCHES)
    entries = [IndexEntry(16, positions[4], 1_160)]
    for known in ([], entries):
        assert locate_time(window, known, 0, 68) == 10
        assert locate_time(window, known, 1_125, 68) == 13
        assert locate_time(window, known, 1_160, 68) == 16
        assert locate_time(window, known, 1_161, 68) == 17
        assert locate_time(window, known, 9_999, 68) is None
        assert locate_time(window, known, 1_665, 66) is None


def test_a_run_goes_on_to_the_end_of_the_chunk_or_to_a_gap() -> None:
    window, positions, _size = segment(*BATCHES, (70, 1))
    batch, after = read_run(window, 0, 1_000, 100_000)
    assert batch is not None and batch.offsets == range(10, 68) and after == positions[6]
    assert batch.bodies == [b"%d" % offset for offset in range(10, 68)]
    batch, after = read_run(window, positions[1], 15, 100_000)
    assert batch is not None and batch.offsets == range(11, 15) and after == positions[3]
    small = Window(window.fs, window.fd, 64)
    batch, after = read_run(small, positions[4], 1_000, 64)
    assert batch is not None and batch.offsets == range(16, 66), "one batch at least, however large"
    assert read_run(window, positions[6], 70, 1_000)[0] is None
    assert read_run(window, positions[3] + 8, 1_000, 1_000)[0] is None


def test_positions_of_segments_and_indexes_do_not_collide() -> None:
    assert layout.segment_path("/d", 1) != layout.index_path("/d", 1)
    assert len(index.encode_head(1)) == index.ENTRY_BYTES


def test_a_time_behind_damage_is_found() -> None:
    window, positions, _ = segment(*BATCHES)
    window.fs.pwritev(window.fd, [b"\xff" * 20], positions[2])
    window = Window(window.fs, window.fd, 300)
    assert locate_time(window, [], 1_150, 68) == 15
    assert locate_time(window, [], 1_140, 68) == 15, "the record of that time is lost"


def test_a_damaged_length_asks_for_no_more_memory_than_the_file_has() -> None:
    window, _, size = segment(*BATCHES)
    asked: list[int] = []

    class Counting:
        def __getattr__(self, name: str) -> object:
            return getattr(window.fs, name)

        def pread(self, fd: int, length: int, position: int) -> bytes:
            asked.append(length)
            return window.fs.pread(fd, length, position)

    Window(Counting(), window.fd, 64).at(0, 1 << 40)  # type: ignore[arg-type]
    assert max(asked) <= size


class NoNames(set[bytes]):
    """Names of which there must be none: a batch without a length would be met again and again."""

    def add(self, name: bytes, /) -> None:
        raise AssertionError(f"a batch with the names {name!r}")


@pytest.mark.parametrize("length", [0, 8, 16])
def test_a_torn_batch_of_which_the_prefix_is_there_is_not_whole(length: int) -> None:
    """Behind its magic are zeros, or its length and zeros: of no bytes the crc is 0."""
    torn = (MAGIC + length.to_bytes(4, "little")).ljust(2 * HEADER_BYTES, b"\0")
    assert scan_plain_batches(torn, 0, len(torn), 0, NoNames()) == (0, 0, 0)
