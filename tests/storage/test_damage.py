"""Bytes that have changed, anywhere: no start is refused, no body is wrong, nothing that is whole is withheld."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import pytest

from radiator.storage import layout
from radiator.storage.header import BatchHeader
from radiator.storage.reader import segment_batches
from radiator.storage.store import Store
from tests.storage.damaging import DIRECTORY, HEAD, NAME, SEGMENT, Built, whole_of
from tests.storage.driving import ALWAYS, NOW, answer, commit, opened, put
from tests.storage.faults import FaultyFileSystem
from tests.tiers import sampled


class Placed(NamedTuple):
    """Where a batch stands."""

    path: str
    begin: int
    end: int
    offsets: range


def placed(built: Built) -> list[Placed]:
    fs, found = built.fs(), []
    for path in sorted(built.files):
        if path.endswith(".rlog"):
            for position, header in segment_batches(path, fs):  # type: ignore[arg-type]
                assert isinstance(header, BatchHeader)
                offsets = range(header.base_offset, header.base_offset + header.records)
                found.append(Placed(path, position, position + header.total_len, offsets))
    return found


@pytest.fixture(scope="module")
def small() -> Built:
    """Some 11 KiB in four segments."""
    return Built(7_000, [0, 20, 200], [1, 1, 3], segment_bytes=3_000)


def survivors(built: Built, batches: list[Placed], path: str, begin: int, end: int) -> dict[int, bytes]:
    """What must be served although these bytes have changed."""
    hit = [each for each in batches if each.path == path and each.begin < end and each.end > begin]
    lost = {offset for each in hit for offset in each.offsets}
    return {offset: body for offset, body in built.bodies.items() if offset not in lost}


def served(fs: FaultyFileSystem) -> tuple[Store, dict[int, bytes]]:
    store, _ = opened(fs)
    return store, whole_of(store)


def put_back(built: Built, fs: FaultyFileSystem, *paths: str) -> None:
    for path in paths:
        fs.nodes[path].cache[:] = built.files[path]


@pytest.mark.parametrize("step", [*sampled([37, 3], 1), pytest.param(1, marks=pytest.mark.slow)])
def test_a_bit_flipped_anywhere_costs_its_batch_and_nothing_else(small: Built, step: int) -> None:
    """Every bit of the log in the slow test; in the others one bit of every third, or of every 37th byte."""
    batches = placed(small)
    assert len({each.path for each in batches}) >= 4
    fs = small.fs(quick=True)
    mine = [path for path in small.files if path.startswith(DIRECTORY)]
    for path in sorted({each.path for each in batches}):
        for at in range(0, len(small.files[path]), step):
            for bit in range(8) if step == 1 else [at // step % 8]:
                fs.nodes[path].cache[at] ^= 1 << bit
                store, found = served(fs)
                assert found == survivors(small, batches, path, at, at + 1), (path, at, bit)
                partition = store.partitions[NAME]
                times = [segment.first_receive_ns for segment in partition.segments]
                ends = [segment.last_receive_ns for segment in partition.segments]
                assert times == sorted(times) and ends == sorted(ends) and ends[0] > NOW
                assert ends[-1] < NOW + 3_600_000_000_000, "no bit makes it another day"
                assert partition.next_offset == len(small.bodies)
                fs.kill()
                put_back(small, fs, *mine)


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_a_bit_flipped_in_the_active_segment_is_reported_with_its_offsets(small: Built, step: int) -> None:
    batches = placed(small)
    path = batches[-1].path
    fs = small.fs(quick=True)
    fs.nodes.pop(path.replace(".rlog", ".idx"))  # walked whole
    for batch in [each for each in batches if each.path == path]:
        for at in range(batch.begin, batch.end, step):
            fs.nodes[path].cache[at] ^= 1 << at % 8
            _, _, notes = small.recover(fs)
            assert [(note.kind, note.first_offset, note.last_offset) for note in notes] == [
                ("damage", batch.offsets[0], batch.offsets[-1])
            ]
            put_back(small, fs, path, HEAD)


@pytest.mark.parametrize(
    "seed", [*sampled(range(60), 10), *[pytest.param(n, marks=pytest.mark.slow) for n in range(60, 1_500)]]
)
def test_no_damage_of_any_kind_makes_a_wrong_body_or_refuses_a_start(seed: int) -> None:
    """Bytes overwritten, zeroed pages, and one page that is doubled or has changed places with another. What lies
    between two such pages close by may be less than what they hold: then nobody can say which is in its place, and as
    much as a page holds may be withheld."""
    random = Random(seed)
    built = Built(60_000, [10, 100, 2_000], [1, 1, 4], seed % 5, segment_bytes=30_000 if seed % 2 else 128 << 20)
    batches = placed(built)
    for _ in range(4):
        fs = built.fs()
        spans: list[tuple[str, int, int]] = []
        doubtful = 0
        for fault in range(random.randrange(1, 4)):
            path = random.choice([each.path for each in batches])
            data = fs.nodes[path].cache
            page = random.choice([512, 4_096])
            pages = len(data) // page
            first, second = random.randrange(pages + 1) * page, random.randrange(pages + 1) * page
            how = random.choice(["bytes", "zeros"] if fault else ["bytes", "zeros", "swapped", "doubled"])
            if how == "bytes":
                begin = random.randrange(len(data))
                data[begin : begin + 30] = random.randbytes(len(data[begin : begin + 30]))
                spans.append((path, begin, begin + 30))
            elif how == "zeros":
                data[first : first + page] = bytes(len(data[first : first + page]))
                spans.append((path, first, first + page))
            elif max(first, second) + page <= len(data):
                one, other = bytes(data[first : first + page]), bytes(data[second : second + page])
                data[first : first + page] = other
                doubtful = page
                spans.append((path, first, first + page))
                if how == "swapped":
                    data[second : second + page] = one
                    spans.append((path, second, second + page))
        expected = dict(built.bodies)
        for span in spans:
            expected = {offset: body for offset, body in expected.items() if offset in survivors(built, batches, *span)}
        store, found = served(fs)
        assert found.items() <= built.bodies.items()
        withheld = sum(each.end - each.begin for each in batches if each.offsets[0] in expected.keys() - found.keys())
        assert withheld <= doubtful, spans
        assert list(found) == sorted(found)
        partition = store.partition(NAME, ALWAYS)
        assert put(partition, b"goes on", at=NOW) == [len(built.bodies)]
        commit(store)
        fs.kill()
        store, again = served(fs)
        assert again == {**found, len(built.bodies): b"goes on"}


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("value", [0, 1 << 62])
def test_a_damaged_time_in_a_first_header_misleads_neither_a_search_nor_retention(
    small: Built, which: int, value: int
) -> None:
    """The header's lengths hold, so only what stands around it, and then its crc, shows that the time is wrong."""
    batches = placed(small)
    paths = sorted({each.path for each in batches})
    fs = small.fs()
    fs.nodes[paths[which]].cache[24:32] = value.to_bytes(8, "little")
    store, _ = opened(fs)
    partition, found = store.partitions[NAME], whole_of(store)
    times = [segment.last_receive_ns for segment in partition.segments]
    assert times == sorted(times) and times[0] > NOW and times[-1] < NOW + 3_600_000_000_000
    first = min(each.offsets[0] for each in batches if each.path == paths[-1])
    assert answer(partition.offset_for_time(partition.segments[-1].first_receive_ns)) == first
    for batch in batches:
        if batch.path == paths[which] and batch.begin:
            start = answer(partition.offset_for_time(NOW + 1_000_000 * (batch.offsets[0] + 1)))
            assert min(offset for offset in found if offset >= start) == batch.offsets[0]


def test_damage_in_front_of_a_batch_hides_nothing_from_a_reader_that_begins_there() -> None:
    """A reader in the middle of a batch, where the header of the one before claims offsets that are not its own."""
    built = Built(3_000, [30], [5])
    batches = placed(built)
    fs = built.fs()
    del fs.nodes[layout.index_path(DIRECTORY, 0)]
    at = batches[3].begin
    fs.nodes[SEGMENT].cache[at + 21] ^= 1
    store, _ = opened(fs)
    for offset in batches[4].offsets:
        job = store.partitions[NAME].fetch(offset)
        job.run()
        assert job.result is not None and job.result.base_offset <= offset < job.result.next_offset
