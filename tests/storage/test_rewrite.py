"""One segment's second life: what stays is what it was, whatever it was cut into before; and the table of keys."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radiator import limits
from radiator.config import Settings
from radiator.storage import layout
from radiator.storage.batch import RecordBatch
from radiator.storage.compaction import Keys, hash_of
from radiator.storage.format import decode, encode_batch
from radiator.storage.header import SPARSE, TRANSACTION, decode_header
from radiator.storage.rewrite import Rewrite, keep_outside, runs, split
from tests.storage.driving import NOW, commit, opened
from tests.storage.faults import FaultyFileSystem

DIRECTORY = layout.partition_path("/data", "q")

Record = tuple[int, int, int | None, int | None, str, bytes, bytes]


def records_of(fs: FaultyFileSystem, base: int, end: int) -> list[Record]:
    found: list[Record] = []
    for batch in runs(fs, DIRECTORY, base, end):  # type: ignore[arg-type]
        none = [None] * len(batch)
        found += zip(
            batch.offsets,
            batch.receive_ns,
            batch.event_ns or none,
            batch.transmit_ns or none,
            [batch.names[number] for number in batch.destination_ids],
            batch.blocks,
            batch.bodies,
            strict=True,
        )
    return [(*row[:2], *(None if value == -(1 << 63) else value for value in row[2:4]), *row[4:]) for row in found]  # type: ignore[misc]


def written(seed: int, batches: int = 30) -> tuple[FaultyFileSystem, int]:
    """One sealed segment, its batches of many shapes; and where it ends."""
    random, fs = Random(seed), FaultyFileSystem()
    store, _ = opened(fs)
    partition = store.partition("q", Settings(segment_bytes=limits.SEGMENT_BYTES))
    for number in range(batches):
        for _ in range(random.choice([1, 1, 1, 2, 7, 700])):
            partition.append(
                random.choice(["/topic/a", "/topic/b", "/topic/é"][: random.choice([1, 3])]),
                b"k:v" * random.randrange(3),
                random.randbytes(random.choice([0, 3, 50])),
                NOW + number,
                random.choice([None, NOW - 5]) if number % 3 else None,
                random.choice([None, NOW - 7]) if number % 2 else None,
            )
        commit(store, NOW + number)
    store.close()
    return fs, partition.high_watermark


def rewritten(fs: FaultyFileSystem, end: int, settled: list[tuple[int, int]] | None, level: int) -> Rewrite:
    rewrite = Rewrite(fs, DIRECTORY, 0, end, None if settled is None else keep_outside(settled), level)  # type: ignore[arg-type]
    for _ in rewrite.steps():
        pass
    rewrite.swap()
    return rewrite


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1 << 20),
    cuts=st.none() | st.lists(st.integers(0, 5_000), unique=True, max_size=30).map(sorted),
    level=st.sampled_from([0, limits.ZSTD_LEVEL]),
    again=st.booleans(),
)
def test_what_stays_is_byte_for_byte_what_it_was(seed: int, cuts: list[int] | None, level: int, again: bool) -> None:
    fs, end = written(seed, 12)
    before = records_of(fs, 0, end)
    assert [row[0] for row in before] == list(range(end))
    settled = None if cuts is None else list(zip(cuts[::2], cuts[1::2], strict=False))
    rewrite = rewritten(fs, end, settled, level)
    gone = {offset for start, stop in settled or [] for offset in range(start, stop)} - {end - 1}
    expected = [row for row in before if row[0] not in gone]
    assert records_of(fs, 0, end) == expected
    assert (rewrite.kept, rewrite.removed) == (len(expected), end - len(expected))
    check_the_chain(fs, end, sparse=settled is not None)
    if again:
        rewritten(fs, end, None, limits.ZSTD_LEVEL)
        assert records_of(fs, 0, end) == expected
        check_the_chain(fs, end, sparse=settled is not None)


def check_the_chain(fs: FaultyFileSystem, end: int, sparse: bool) -> None:
    """What the document says of rewritten segments."""
    data = bytes(fs.nodes[layout.segment_path(DIRECTORY, 0)].cache)
    at = covered = 0
    salts = set()
    while at < len(data):
        header, columns = decode(data, at)
        assert header.base_offset == covered
        assert at or bool(header.flags & SPARSE) is sparse
        assert len(set(columns.names)) == len(columns.names) == len(set(columns.destination_ids))
        covered = columns.offsets[-1] + 1
        salts.add(header.salt)
        at += header.total_len
    assert covered == end and len(salts) == 1


def test_the_new_file_is_synced_before_it_is_renamed_and_in_pieces() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    partition = store.partition("q", Settings())
    for _ in range(12):
        partition.append("q", b"", Random(1).randbytes(1 << 20), NOW)
        commit(store)
    store.close()
    rewrite = Rewrite(fs, DIRECTORY, 0, 12, None, 0)  # type: ignore[arg-type]
    fs.calls.clear()
    for _ in rewrite.steps():
        node = fs.nodes.get(rewrite.new_path, None)
        unsynced = sum(len(piece) for _, piece in node.pending) if node is not None else 0
        assert unsynced <= limits.REWRITE_SYNC_BYTES + 2 * limits.REWRITE_BATCH_BYTES
    assert fs.calls["fdatasync"] >= 3
    assert not fs.nodes[rewrite.new_path].pending and fs.calls["rename"] == 0


@pytest.mark.parametrize("settled", [None, [(3, 5)]])
def test_transactions_are_merged_with_their_neighbours_and_are_no_batches_of_their_own(
    settled: list[tuple[int, int]] | None,
) -> None:
    fs, path = FaultyFileSystem(), layout.segment_path(DIRECTORY, 0)
    for directory in ("/data", "/data/partitions", DIRECTORY):
        fs.mkdir(directory)
    fd = fs.open(path, create=True)
    data = b"".join(
        b"".join(
            encode_batch(base, [NOW, NOW], None, None, [0, 0], ["/topic/a"], [b"", b"k:v"], [b"x", b"y"], flag, None, 5)
        )
        for base, flag in zip(range(0, 40, 2), [0, TRANSACTION] * 10, strict=True)
    )
    fs.pwritev(fd, [data], 0)
    fs.close(fd)
    before = records_of(fs, 0, 40)
    rewritten(fs, 40, settled, 0)
    after = bytes(fs.nodes[path].cache)
    header = decode_header(after)
    assert header.total_len == len(after) and not header.flags & TRANSACTION
    assert records_of(fs, 0, 40) == [row for row in before if settled is None or row[0] not in (3, 4)]


def test_what_is_swapped_is_swapped_for_ever() -> None:
    for seed in range(8):
        fs, end = written(seed, 12)
        rewritten(fs, end, [(0, end - 2)], 0)
        fs.power_cut()
        assert [row[0] for row in records_of(fs, 0, end)] == [end - 2, end - 1]


def test_a_step_is_about_few_records() -> None:
    batch = RecordBatch(
        range(5, 5_005), [NOW] * 5_000, None, None, [0] * 5_000, ["q"], [b""] * 5_000, [b"x"] * 5_000, 5_000
    )
    parts = list(split(batch))
    assert all(len(part) <= limits.REWRITE_STEP_RECORDS for part in parts)
    assert [offset for part in parts for offset in part.offsets] == list(range(5, 5_005))
    assert [part.base_offset for part in parts] == [part.offsets[0] for part in parts]


@pytest.mark.parametrize("keys_max", [512, 1 << 20])
def test_the_table_of_keys_says_what_a_dictionary_says(keys_max: int) -> None:
    random, keys = Random(keys_max), Keys(keys_max)
    model: dict[tuple[int, int], int] = {}
    for offset in range(8_000):
        high, low = hash_of(b"/topic/a", b"%d" % random.randrange(3_000))
        if not keys.includes(low):
            continue
        for _ in keys.grow():
            pass
        assert keys.put(high, low, offset) == model.get((high, low)) or not keys.includes(low)
        model[high, low] = offset
    judged = {each: offset for each, offset in model.items() if keys.includes(each[1])}
    assert len(judged) >= 100
    assert all(keys.get(*each) == offset for each, offset in judged.items())
    assert keys.get(*hash_of(b"/topic/b", b"1")) is None
    assert (keys.classes > 1) is (keys_max == 512) and len(keys._offsets) <= max(2 * keys_max, 1_024)
