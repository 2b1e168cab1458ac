"""The redo log of earlier versions: a start reads it once, makes up for what it says, and removes it."""

from __future__ import annotations

import errno
from random import Random

import pytest

from radiator.storage import cursor_records, layout
from radiator.storage.files import write_all
from radiator.storage.format import encode_batch
from radiator.storage.transaction_log import decode_entries, load
from tests.storage.driving import ALWAYS, NOW, commit, opened, put, read_all
from tests.storage.faults import FaultyFileSystem
from tests.storage.former_redo_log import encode_acks_part, encode_batch_part, encode_entry

PATH = layout.transactions_path("/data")


def batch(base_offset: int, body: bytes) -> list[bytes]:
    return encode_batch(base_offset, [NOW], None, None, [0], ["/queue/a"], [b""], [body], salt=1)


FIRST = [encode_batch_part("/queue/a", batch(0, b"one")), encode_acks_part(b"acks")]
SECOND = [encode_batch_part("über", batch(4, b"another"))]
WHOLE = [("/queue/a", 0, b"acks"), ("über", 4, b"")]


def facts(data: bytes) -> list[tuple[str, int, bytes]]:
    return [(each.parts[0].partition, each.parts[0].header.base_offset, each.cursors) for each in decode_entries(data)]


def test_entries_come_back_as_they_were_written() -> None:
    data = encode_entry(7, FIRST) + encode_entry(8, SECOND)
    assert facts(data) == WHOLE
    assert bytes(decode_entries(data)[1].parts[0].data) == b"".join(batch(4, b"another"))


def test_a_cut_at_any_byte_leaves_the_entries_before_it() -> None:
    first, second = encode_entry(1, FIRST), encode_entry(2, SECOND)
    data = first + second
    ends = [24 + len(b"".join(FIRST)), len(first) + 24 + len(b"".join(SECOND))]  # the padding may be missing
    for size in range(len(data) + 1):
        assert facts(data[:size]) == WHOLE[: sum(size >= end for end in ends)]


def test_a_flipped_bit_anywhere_ends_the_file_there() -> None:
    data = encode_entry(1, FIRST) + encode_entry(2, SECOND)
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1
        found = facts(bytes(damaged))
        assert found == WHOLE[: len(found)]


def test_what_is_left_over_from_the_last_time_does_not_count() -> None:
    assert facts(encode_entry(3, FIRST) + encode_entry(2, SECOND)) == WHOLE[:1]


def test_nothing_there_is_nothing_to_do() -> None:
    fs = FaultyFileSystem()
    assert load(fs, "/data") == []  # type: ignore[arg-type]
    assert facts(bytes(64)) == []


def left_by_a_kill(deleted: bool = False) -> FaultyFileSystem:
    """Two logs of an earlier version, a transaction over both of which one has its part, and its ack; ``deleted``: the
    cursor was deleted since."""
    fs = FaultyFileSystem(Random(1))
    store, _ = opened(fs)
    logs = [store.partition(name, ALWAYS) for name in "ab"]
    for log in logs:
        put(log, b"first")
    put(logs[0], b"part")
    cursor = store.cursors.open("c", "a", 0)
    commit(store)
    number = store.cursors._facts[cursor][0]
    if deleted:
        store.cursors.delete("c")
    store.close()
    acks = cursor_records.create(number, 0, 0, "c", "a") + cursor_records.acked(number, [(0, 1)])
    parts = [encode_batch_part(name, batch(1, b"part")) for name in "ab"]
    fd = fs.open(PATH, create=True)
    write_all(fs, fd, [encode_entry(9, [*parts, encode_acks_part(acks)])], 0)  # type: ignore[arg-type]
    fs.fdatasync(fd)
    fs.close(fd)
    fs.sync_dir("/data")
    return fs


@pytest.mark.parametrize("end", ["kill", "power_cut", "close"])
def test_a_start_makes_up_for_it_once(end: str) -> None:
    fs = left_by_a_kill()
    store, _ = opened(fs)
    assert store.restored == 1 and PATH not in fs.nodes
    getattr(store if end == "close" else fs, end)()
    store, _ = opened(fs)
    for name in "ab":
        assert list(read_all(store.partitions[name], memory=False).values()) == [b"first", b"part"]
    cursor = store.cursors.get("c", "a")
    assert cursor is not None and cursor.floor == 1


@pytest.mark.parametrize("end", ["kill", "power_cut"])
def test_it_stays_until_a_snapshot_has_its_acks(end: str) -> None:
    fs = left_by_a_kill()
    fs.fail("pwritev", 1, errno.ENOSPC, under="/cursors/snapshot")
    store, notes = opened(fs)
    assert PATH in fs.nodes and any("until there is room" in str(note) for note in notes)
    assert store.restored == 1 and not store.partitions["b"].postponed, "all messages are in segments"
    getattr(fs, end)()
    store, _ = opened(fs)
    cursor = store.cursors.get("c", "a")
    assert PATH not in fs.nodes and cursor is not None and cursor.floor == 1


def test_it_stays_until_what_it_says_can_be_written() -> None:
    fs = left_by_a_kill()
    fs.fail("pwritev", 1, errno.ENOSPC)
    fs.capacity = sum(len(node.cache) for node in fs.nodes.values())
    store, notes = opened(fs)
    assert PATH in fs.nodes and any("wait until they can be written" in str(note) for note in notes)
    fs.power_cut()
    fs.capacity = None
    store, _ = opened(fs)
    assert PATH not in fs.nodes
    assert list(read_all(store.partitions["b"], memory=False).values()) == [b"first", b"part"]
