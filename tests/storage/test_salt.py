"""A message may hold whole batches. None of them is ever taken for one, whatever becomes of the batch that it is in."""

from __future__ import annotations

from random import Random

import pytest

from radiator.storage import layout, reader, salt
from radiator.storage.format import encode_batch
from radiator.storage.header import HEADER_BYTES, decode_header
from radiator.storage.segment import Window, find_batch
from radiator.storage.store import Store
from tests.clocks import both
from tests.storage.damaging import without_journal
from tests.storage.driving import ALWAYS, NOW, LastOf, answer, commit, opened, put, read_all
from tests.storage.faults import FaultyFileSystem
from tests.tiers import sampled

DIRECTORY = layout.partition_path("/data", "q")
SEGMENT = layout.segment_path(DIRECTORY, 0)
HEAD = layout.head_path(DIRECTORY)
PAGE = 4_096


def forged(base_offset: int, flags: int = 0, salt: int = 0) -> bytes:
    times = [NOW] * 2
    names, bodies = ["/queue/of-others"], [b"forged", b"forged"]
    return b"".join(encode_batch(base_offset, times, None, None, [0, 0], names, [b"", b""], bodies, flags, salt=salt))


def hostile(*base_offsets: int, flags: int = 0) -> bytes:
    """A body with batches at every alignment, so that some of them stand where one could begin."""
    parts = [b"".ljust(shift) + forged(base, flags).ljust(PAGE, b".") for base in base_offsets for shift in range(8)]
    return b"".join(parts).ljust(20 * PAGE, b"z")


def torn(fs: FaultyFileSystem, position: int, random: Random) -> None:
    """What a power cut may leave of everything from ``position`` on: any of its pages, and zeros where others were."""
    cache = fs.nodes[SEGMENT].cache
    for start in range(position - position % PAGE, len(cache), PAGE):
        if random.random() < 0.5:
            start = max(start, position)
            end = min(start - start % PAGE + PAGE, len(cache))
            cache[start:end] = bytes(end - start)
    if random.random() < 0.5:
        del cache[random.randrange(position, len(cache)) :]


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("flags", sampled([0, 1 << 12], 1))
def test_what_a_torn_message_holds_is_not_recovered(first: bool, flags: int) -> None:
    for seed in range(40):
        fs = FaultyFileSystem()
        store, _ = opened(fs)
        partition = store.partition("q", ALWAYS)
        kept = {}
        if not first:
            put(partition, b"kept", destination="q")
            commit(store)
            kept = {0: b"kept"}
        position = partition.log.position  # type: ignore[attr-defined]
        put(partition, hostile(len(kept), len(kept) + 1, 1 << 50, flags=flags), destination="q")
        for job in store.take(both(NOW)):
            job.write()
        torn(fs, position, Random(seed))
        fs.kill()
        without_journal(fs)
        fs.nodes.pop(
            layout.head_path(layout.partition_path("/data", "q")), None
        )  # it was not on the disk, or was older
        store, notes = opened(fs)
        partition = store.partitions["q"]
        if partition.next_offset > len(kept):  # every page of it was there
            assert read_all(partition)[len(kept)].startswith(b"\x89RDB1")
            continue
        assert {note.kind for note in notes} <= {"torn"}
        assert read_all(partition) == kept and partition.destinations.keys() <= {"q"}
        assert put(partition, b"goes on") == [len(kept)]


def damaged_store() -> tuple[FaultyFileSystem, Store, list[int]]:
    """Three records; the second, in the middle, is hostile, and damaged behind its forged batches."""
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    partition = store.partition("q", ALWAYS)
    ends = []
    for body in (b"one", hostile(1, 2, 3), b"three"):
        put(partition, body, destination="q")
        commit(store)
        ends.append(partition.log.position)  # type: ignore[attr-defined]
    fs.nodes[SEGMENT].cache[ends[1] - 100] ^= 0x40
    without_journal(fs)
    return fs, store, ends


def test_no_reader_takes_the_body_of_a_damaged_message_for_batches() -> None:
    fs, store, ends = damaged_store()
    partition = store.partitions["q"]
    wanted = {0: b"one", 2: b"three"}
    assert read_all(partition, memory=False) == wanted
    partition.tail.drop_below(3)
    partition.destinations["/queue/of-others"] = None
    job = LastOf(partition, 2, lambda name: True)
    assert answer(job) == 0 and job.starts == {"q": 0}
    gaps: list[tuple[int, int, bool]] = []
    (listed,) = reader.list_partitions("/data", fs)  # type: ignore[arg-type]
    found = [
        body
        for batch in reader.batches(listed, 0, lambda *gap: gaps.append(gap), fs)  # type: ignore[arg-type]
        for body in batch.bodies
    ]
    assert found == [b"one", b"three"] and gaps == [(1, 1, False)]
    places = [place for place, _ in reader.segment_batches(SEGMENT, fs)]  # type: ignore[arg-type]
    assert places == [0, ends[0], ends[1]]
    fs.kill()
    without_journal(fs)
    store, notes = opened(fs)
    assert [(note.kind, note.first_offset, note.last_offset) for note in notes] == [("damage", 1, 1)]
    assert read_all(store.partitions["q"]) == wanted


def bodies_from_outside(fs: FaultyFileSystem) -> list[bytes]:
    (listed,) = reader.list_partitions("/data", fs)  # type: ignore[arg-type]
    return [body for batch in reader.batches(listed, fs=fs) for body in batch.bodies]  # type: ignore[arg-type]


def test_in_a_copy_without_the_salt_file_the_first_batch_has_the_salt() -> None:
    fs, _, _ = damaged_store()
    del fs.nodes[layout.salt_path("/data")]
    assert bodies_from_outside(fs) == [b"one", b"three"]


def test_in_a_copy_without_the_key_and_with_a_damaged_first_batch_nothing_real_is_lost() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    for body in (b"one", b"two", b"three"):
        put(store.partition("q", ALWAYS), body)
        commit(store)
    fs.nodes[SEGMENT].cache[61] ^= 1  # in the salt itself
    assert bodies_from_outside(fs) == [b"two", b"three"]
    del fs.nodes[layout.salt_path("/data")]
    assert bodies_from_outside(fs) == [b"two", b"three"]


@pytest.mark.parametrize("gone", ["nothing", "the key", "the first header"])
def test_real_batches_behind_damage_are_found_by_the_key_or_by_the_first_header(gone: str) -> None:
    fs, store, _ = damaged_store()
    fs.kill()
    without_journal(fs)
    wanted = {0: b"one", 2: b"three", 3: b"four"}
    if gone == "the key":
        del fs.nodes[layout.salt_path("/data")]
        fs.entropy = lambda size: b"new key".ljust(size)  # type: ignore[method-assign]
    elif gone == "the first header":
        fs.nodes[SEGMENT].cache[:HEADER_BYTES] = bytes(HEADER_BYTES)
        del wanted[0]
    for _ in range(2):
        store, notes = opened(fs)
        assert {note.kind for note in notes} == {"damage"}
        if store.partitions["q"].next_offset == 3:
            put(store.partitions["q"], b"four", destination="q")
            commit(store)
        assert read_all(store.partitions["q"], memory=False) == wanted
        fs.kill()


def test_every_batch_carries_the_salt_of_its_partition_and_no_two_are_alike() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    for name in "pq":
        put(store.partition(name, ALWAYS), b"one")
    commit(store)
    key = salt.make_key(fs, "/data")  # type: ignore[arg-type]
    salts = []
    for name in "pq":
        path = layout.segment_path(layout.partition_path("/data", name), 0)
        salts.append(decode_header(bytes(fs.nodes[path].cache)).salt)
        assert salt.of_segment(fs, path) == {salts[-1]}  # type: ignore[arg-type]
        assert salts[-1] == salt.of_partition(key, layout.partition_path("/elsewhere", name)) != 0
    assert salts[0] != salts[1]


def test_the_key_is_safe_before_the_first_batch_and_made_again_if_it_is_damaged() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    store.close()
    fs.power_cut()
    before = bytes(fs.nodes[layout.salt_path("/data")].cache)
    store, _ = opened(fs)
    store.close()
    assert bytes(fs.nodes[layout.salt_path("/data")].cache) == before
    fs.nodes[layout.salt_path("/data")].cache[9] ^= 1
    store, _ = opened(fs)
    assert bytes(fs.nodes[layout.salt_path("/data")].cache) == before, "the same entropy"


def test_a_file_without_a_store_around_it_is_searched_all_the_same() -> None:
    fs = FaultyFileSystem()
    fd = fs.open("/segment", create=True)
    data = bytes(64) + forged(0, flags=1 << 12) + forged(7)
    fs.pwritev(fd, [data], 0)
    found = find_batch(Window(fs, fd, path="/segment"), 8, len(data), 0)  # type: ignore[arg-type]
    assert found is not None and found[1].base_offset == 7, "flags of a newer version, if it is a batch at all"


def test_looking_for_a_way_on_costs_no_more_than_reading_once() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    partition = store.partition("q", ALWAYS)
    put(partition, b"kept", destination="q")
    commit(store)
    header = b"".join(encode_batch(1, [NOW], None, None, [0], ["q"], [b""], [bytes(8 << 20)]))[:HEADER_BYTES]
    headers = header * (1 << 14)  # a megabyte of headers that claim eight
    put(partition, headers, destination="q")
    store.take(both(NOW))[0].write()
    del fs.nodes[SEGMENT].cache[-100:]
    fs.kill()
    before = fs.calls["pread"]
    store, notes = opened(fs)
    assert [note.kind for note in notes] == ["torn"] and read_all(store.partitions["q"]) == {0: b"kept"}
    assert fs.calls["pread"] - before < 50, "pieces of a megabyte, and not one for each of 16,384 headers"
