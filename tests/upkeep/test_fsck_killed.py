"""fsck and its repair after a kill at a bad time: what a start brings in order without loss is not called damage."""

from __future__ import annotations

import errno

import pytest

from radiator import limits
from radiator.config import Settings, SyncPolicy
from radiator.storage import layout, reader
from radiator.storage.file_partition import FilePartition
from radiator.storage.files import opened as opened_file
from radiator.storage.store import Store
from radiator.upkeep.backup import back_up
from radiator.upkeep.fsck import Fsck
from radiator.upkeep.repair import Repair
from tests.clocks import both
from tests.storage.driving import ALWAYS, NOW, checkpoint, commit, opened, put, read_all
from tests.storage.faults import FaultyFileSystem


def kinds(fs: FaultyFileSystem, root: str = "/data") -> list[str]:
    return [found.kind for found in Fsck(root, fs, live=False).run()]


def postponed(fs: FaultyFileSystem, logs: str = "ab") -> Store:
    """A message each that only the journal has, in a log with another message and in one without; both are settled."""
    store, _ = opened(fs)
    put(store.partition("a", ALWAYS), b"first")
    commit(store)
    fs.fail("pwritev", error=errno.ENOSPC, times=100, under="/partitions/")
    for name in logs:
        put(store.partition(name, ALWAYS), b"postponed")
    commit(store)
    for name in logs:
        cursor = store.cursors.open("queue:q", name, 0)
        cursor.ack(range(store.partitions[name].high_watermark))
    store.cursors.sync_soon()
    commit(store)
    return store


@pytest.mark.parametrize("checkpoints", [0, 1])
def test_what_is_settled_of_messages_that_only_the_journal_has_is_not_ahead_of_its_log(checkpoints: int) -> None:
    fs = FaultyFileSystem()
    store = postponed(fs)
    for _ in range(checkpoints):
        checkpoint(store)
    fs.kill()
    assert set(kinds(fs)) == {"decided"}
    back_up(fs, "/data", "/copy", now_ns=NOW, version="1")
    assert set(kinds(fs, "/copy")) == {"decided"}
    store, notes = opened(fs)
    assert not notes and [store.cursors.get("queue:q", name).floor for name in "ab"] == [2, 1]  # type: ignore[union-attr]


def test_a_head_that_says_only_that_a_sync_has_failed_is_not_damaged() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    put(store.partition("a", Settings(sync=SyncPolicy(60_000_000_000))), b"first")
    commit(store)
    fs.fail("fdatasync", under="/partitions/")
    checkpoint(store)
    fs.kill()
    head = fs.nodes[layout.head_path(layout.partition_path("/data", "a"))].cache
    assert layout.sync_failed(bytes(head)) and layout.decode_head(bytes(head)) is None
    assert not {"head"} & set(kinds(fs))
    (listed,) = reader.list_partitions("/data", fs)
    assert listed.next_offset == 0, "it is not committed yet"
    back_up(fs, "/data", "/copy", now_ns=NOW, version="1")
    for root in ("/data", "/copy"):
        store, notes = opened(fs, root)
        assert not notes and read_all(store.partitions["a"]) == {0: b"first"}


@pytest.mark.parametrize("released", [False, True])
def test_a_file_of_the_journal_that_could_not_be_used_again_is_not_damaged(released: bool) -> None:
    """The spare file has its new name and the old header: a start skips it, and later files follow."""
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    bodies = [b"%d" % number for number in range(5)]
    for body in bodies[:2]:
        put(store.partition("a", ALWAYS), body)
        commit(store)
        checkpoint(store)
    put(store.partition("a", ALWAYS), bodies[2])
    commit(store)
    fs.fail("pwritev", under="/journal/0000000004")
    checkpoint(store)
    for number in (3, 4):
        fs.kill()
        assert set(kinds(fs)) <= {"decided"}
        store, notes = opened(fs)
        assert not notes and read_all(store.partitions["a"]) == dict(enumerate(bodies[:number]))
        if released and number == 3:  # those before, and this one is to be used next
            checkpoint(store)
        put(store.partition("a", ALWAYS), bodies[number])
        commit(store)
        assert "0000000004.rjl" in fs.listdir("/data/journal")
    fs.kill()
    assert set(kinds(fs)) == {"decided"}


def test_a_repair_on_a_full_disk_leaves_what_only_the_journal_has_to_the_next_start() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    for body in (b"0", b"1"):
        put(store.partition("a", ALWAYS), body)
        commit(store)
    fs.kill()
    del fs.nodes[layout.segment_path(layout.partition_path("/data", "a"), 0)]
    fs.fail("pwritev", error=errno.ENOSPC, times=100, under=".rlog")
    with Repair("/data", both(NOW), fs) as repair:
        list(repair.run(*repair.check()))
    fs.heal()
    store, notes = opened(fs)
    assert not notes and read_all(store.partitions["a"]) == {0: b"0", 1: b"1"}


def test_the_manifest_of_a_backup_belongs_there() -> None:
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    put(store.partition("a", ALWAYS), b"0")
    commit(store)
    store.close()
    back_up(fs, "/data", "/copy", now_ns=NOW, version="1")
    assert kinds(fs, "/copy") == []
    fs.lock("/copy")  # as a broker does that was started there
    assert kinds(fs, "/copy") == ["foreign"]


@pytest.mark.parametrize("older", [False, True])
def test_a_sealed_segment_may_be_rewritten_before_the_next_message(older: bool) -> None:
    """``older``: the head still names it, as after a kill when the next segment had just been created."""
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    partition = store.partition("a", Settings(compress="zstd"))
    assert isinstance(partition, FilePartition)
    bodies = {number: b"%d" % number * 100 for number in range(20)}
    for body in bodies.values():
        put(partition, body)
        commit(store)
    head = fs.nodes[layout.head_path(partition.directory)]
    before = bytes(head.cache)
    partition.roll_wanted = True
    partition.queue()
    commit(store)
    store.maintenance.plan_now(partition, both(NOW))
    while (job := store.maintenance.take()) is not None:
        job.run(lambda: True)
        store.maintenance.done(job, both(NOW))
    assert store.maintenance.rewritten_in(partition) == 1
    if older:
        fs.kill()
        head.cache[:] = before
        assert set(kinds(fs)) == {"decided"}
    else:
        assert list(Fsck("/data", fs).run()) == []
    assert back_up(fs, "/data", "/copy", now_ns=NOW, version="1").manifest.whole_transactions
    store, notes = opened(fs, "/copy")
    assert not notes and read_all(store.partitions["a"]) == bodies


def test_a_repair_hides_nothing_that_only_the_journal_has_behind_an_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start reads a segment from the last entry of its index on. A power failure has taken a page, the index and
    the last heads."""
    monkeypatch.setattr(limits, "INDEX_INTERVAL_BYTES", 1)
    fs = FaultyFileSystem()
    store, _ = opened(fs)
    log = store.partition("a", ALWAYS)
    assert isinstance(log, FilePartition)
    ends = [0]
    for number in range(4):
        put(log, b"%d" % number)
        commit(store)
        ends.append(log.log.position)
    fs.kill()
    with opened_file(fs, fs.open(layout.index_path(log.directory, 0), create=True)) as index:
        fs.pwritev(index, [bytes(100)], 0)
    fs.nodes[layout.head_path(log.directory)].cache[:] = layout.encode_head(0, ends[1], 1).ljust(
        layout.HEAD_FILE_BYTES, b"\0"
    )
    fs.nodes[layout.segment_path(log.directory, 0)].cache[ends[1] : ends[2]] = bytes(ends[2] - ends[1])
    with Repair("/data", both(NOW), fs) as repair:
        list(repair.run(*repair.check()))
    assert kinds(fs) == []
    store, notes = opened(fs)
    assert not notes and read_all(store.partitions["a"]) == {number: b"%d" % number for number in range(4)}
