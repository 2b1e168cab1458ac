"""Emptying a destination without a broker: what goes, what stays, and that no offset is ever given again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from radiator.config import Settings
from radiator.errors import StorageError
from radiator.storage.files import FileSystem
from radiator.upkeep.fsck import Fsck
from radiator.upkeep.purge import NoSuchDestination, Purged, purge
from tests.clocks import both
from tests.storage.driving import ALWAYS, NOW, commit, opened, put, read_all
from tests.storage.faults import FaultyFileSystem

QUEUE, OTHER, TOPIC = "/queue/a", "/queue/b", "/topic/t"
CURSOR = f"queue:{QUEUE}"
SMALL = Settings(segment_bytes=300)


def filled(root: str, fs: FileSystem | None = None) -> None:
    """Twelve messages of a queue of its own, six of each of two queues in one log, nine of a topic."""
    store, _ = opened(fs, root)
    for number in range(12):
        put(store.partition(QUEUE, SMALL), b"%d" % number, destination=QUEUE)
        put(store.partition("shared", ALWAYS), b"%d" % number, destination=(QUEUE, OTHER)[number % 2])
        commit(store)
    for number in range(9):
        put(store.partition(TOPIC, SMALL), b"%d" % number, destination=TOPIC)
        commit(store)
    store.cursors.open(CURSOR, QUEUE, 0).ack([0, 1, 5])
    store.cursors.open(CURSOR, "shared", 0).ack([0, 1, 4])
    store.cursors.open(f"queue:{OTHER}", "shared", 0).ack([0, 1])
    commit(store)
    store.close()


@pytest.fixture
def root(tmp_path: Path) -> str:
    filled(str(tmp_path / "data"))
    return str(tmp_path / "data")


def test_a_queue_is_settled_and_that_of_others_in_the_same_log_is_not(root: str) -> None:
    assert purge(root, QUEUE, CURSOR, True, both(NOW)) == [Purged(QUEUE, 9, 12), Purged("shared", 4, 12)]
    assert list(Fsck(root).run()) == []
    store, notes = opened(root=root)
    assert notes == []
    for partition in (QUEUE, "shared"):
        cursor = store.cursors.get(CURSOR, partition)
        assert cursor is not None and (cursor.floor, cursor.intervals) == (12, [])
    other = store.cursors.get(f"queue:{OTHER}", "shared")
    assert other is not None and other.floor == 2
    assert len(read_all(store.partitions[QUEUE])) == 12, "nothing is removed"
    store.close()
    assert [each.records for each in purge(root, QUEUE, CURSOR, True, both(NOW))] == [0, 0]


def test_a_queue_without_consumers_is_settled_too(tmp_path: Path) -> None:
    root = str(tmp_path / "data")
    store, _ = opened(root=root)
    put(store.partition(QUEUE, ALWAYS), b"one", b"two", destination=QUEUE)
    commit(store)
    store.close()
    assert purge(root, QUEUE, CURSOR, True, both(NOW)) == [Purged(QUEUE, 2, 2)]
    store, _ = opened(root=root)
    assert store.cursors.open(CURSOR, QUEUE, 0).floor == 2
    store.close()


def test_a_topic_loses_its_history_and_goes_on_with_the_next_offset(root: str) -> None:
    assert purge(root, TOPIC, f"queue:{TOPIC}", False, both(NOW)) == [Purged(TOPIC, 9, 9)]
    assert list(Fsck(root).run()) == []
    store, notes = opened(root=root)
    partition = store.partition(TOPIC, SMALL)
    assert notes == [] and read_all(partition) == {}
    assert (partition.log_start_offset, partition.next_offset) == (9, 9)
    assert put(partition, b"goes on", destination=TOPIC, at=NOW) == [9]
    commit(store)
    store.close()
    names = os.listdir(partition.directory)
    assert [name for name in names if name.endswith(".rlog")] == ["00000000000000000009.rlog"]
    assert purge(root, TOPIC, f"queue:{TOPIC}", False, both(NOW)) == [Purged(TOPIC, 1, 10)]
    assert purge(root, TOPIC, f"queue:{TOPIC}", False, both(NOW)) == [Purged(TOPIC, 0, 10)]
    assert list(Fsck(root).run()) == []


def test_a_topic_in_a_shared_log_is_refused_with_the_reason(root: str) -> None:
    store, _ = opened(root=root)
    put(store.partition(TOPIC, SMALL), b"x", destination="/topic/u")
    commit(store)
    store.close()
    with pytest.raises(StorageError, match="shares this log with 1 others, such as /topic/u"):
        purge(root, TOPIC, f"queue:{TOPIC}", False, both(NOW))
    store, _ = opened(root=root)
    assert len(read_all(store.partitions[TOPIC])) == 10
    store.close()


def test_unknown_destinations_and_running_brokers_are_reported(root: str) -> None:
    with pytest.raises(NoSuchDestination, match="nothing is stored for /queue/z"):
        purge(root, "/queue/z", "queue:/queue/z", True, both(NOW))
    store, _ = opened(root=root)
    with pytest.raises(StorageError, match=f"process {os.getpid()}.*stop it first"):
        purge(root, QUEUE, CURSOR, True, both(NOW))
    store.close()


@pytest.mark.parametrize("verb", ["open", "sync_dir", "remove", "fdatasync"])
def test_a_purge_that_dies_half_way_leaves_a_log_that_goes_on(verb: str) -> None:
    for nth in range(1, 40):
        fs = FaultyFileSystem()
        filled("/data", fs)  # type: ignore[arg-type]
        fs.fail(verb, nth)
        try:
            purge("/data", TOPIC, f"queue:{TOPIC}", False, both(NOW), fs)  # type: ignore[arg-type]
        except (StorageError, OSError):
            fs.power_cut()
        else:
            fs.kill()
        store, _ = opened(fs)
        partition = store.partition(TOPIC, SMALL)
        bodies = read_all(partition)
        assert all(body == b"%d" % offset for offset, body in bodies.items()), "of removals any may be on disk"
        assert not bodies or partition.log_start_offset in bodies
        assert put(partition, b"goes on", destination=TOPIC) == [9]
        commit(store)
        store.close()
