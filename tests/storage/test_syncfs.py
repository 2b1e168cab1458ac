"""A checkpoint over many logs syncs the file system at once, and believes it only where it tells of errors."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from radiator import limits
from radiator.storage import layout, syncfs
from radiator.storage.files import FileSystem
from radiator.storage.journal.checkpoint import Checkpoint
from radiator.storage.store import Store
from tests.clocks import both
from tests.storage.driving import ALWAYS, NOW, SNAPSHOT_SYNCS, checkpoint, commit, error_of, opened, put, read_all
from tests.storage.faults import FaultyFileSystem

LOGS = 5
MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:21 / /mnt/over rw - overlay overlay rw,lowerdir=/a,upperdir=/b
24 22 0:33 / /mnt/far rw,relatime shared:2 master:1 - nfs4 far:/data rw
25 22 8:1 / /with\\040space rw - xfs /dev/sda1 rw
"""


@pytest.mark.parametrize(
    ("device", "release", "expected"),
    [
        ((254, 0), "6.1.0-13-amd64", True),
        ((8, 1), "5.8", True),
        ((254, 0), "5.7.19", False),
        ((254, 0), "4.19.0", False),
        ((254, 0), "unheard of", False),
        ((0, 21), "6.1.0", False),
        ((0, 33), "6.1.0", False),
        ((9, 9), "6.1.0", False),
    ],
)
def test_syncfs_is_trusted_on_local_disks_and_kernels_that_report_errors(
    device: tuple[int, int], release: str, expected: bool
) -> None:
    assert syncfs.believed(os.makedev(*device), release, MOUNTS) is expected


def test_a_real_one_is_made_where_it_is_believed(tmp_path: Path) -> None:
    fs = FileSystem()
    assert not fs.sync_all(str(tmp_path)), "nobody has locked it"
    fs.lock(str(tmp_path))
    assert fs.sync_all(str(tmp_path)) is syncfs.believed(os.stat(tmp_path).st_dev)
    with pytest.raises(OSError, match="Bad file descriptor"):
        syncfs.sync(-1)


def written(fs: FaultyFileSystem, body: bytes = b"x", store: Store | None = None) -> Store:
    store = store or opened(fs)[0]
    for number in range(LOGS):
        put(store.partition(f"log{number}", ALWAYS), body, destination=f"log{number}")
    assert error_of(commit(store)) is None
    return store


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many logs that a checkpoint syncs them at once."""
    monkeypatch.setattr(limits, "SYNC_ALL_LOGS_MIN", LOGS)


def test_many_logs_cost_one_call_and_few_a_sync_each(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = FaultyFileSystem()
    store = written(fs)
    for least, calls, syncs in ((LOGS + 1, 0, LOGS), (LOGS, 1, 0)):
        monkeypatch.setattr(limits, "SYNC_ALL_LOGS_MIN", least)
        written(fs, store=store)
        before = fs.calls.copy()
        checkpoint(store)
        assert fs.calls["sync_all"] - before["sync_all"] == calls
        journal = 1  # the entry that begins the next group
        assert syncs <= fs.calls["fdatasync"] - before["fdatasync"] - SNAPSHOT_SYNCS <= syncs + journal


@pytest.mark.parametrize("seed", range(10))
def test_what_such_a_checkpoint_has_released_survives_a_power_cut(many: None, seed: int) -> None:
    fs = FaultyFileSystem(Random(seed))
    store = written(fs)
    checkpoint(store)
    checkpoint(store)  # the journal's files are gone
    fs.power_cut()
    store, notes = opened(fs)
    assert not notes and store.restored == 0
    assert all(read_all(store.partitions[f"log{number}"]) == {0: b"x"} for number in range(LOGS))


def with_a_checkpoint_begun(fs: FaultyFileSystem) -> tuple[Store, Checkpoint]:
    """A store with two messages in each log, the second of which a checkpoint is to sync that has begun."""
    store = written(fs)
    checkpoint(store)
    written(fs, b"y", store)
    store.journal.wants_checkpoint = True
    commit(store)
    begun = store.checkpoints.take()
    assert begun is not None
    return store, begun


@pytest.mark.parametrize("seed", range(10))
def test_after_one_that_failed_each_segment_is_asked_now_and_the_next_time(many: None, seed: int) -> None:
    """What was written while it failed is in the next checkpoint, and the kernel tells an error once."""
    fs = FaultyFileSystem(Random(seed))
    store, begun = with_a_checkpoint_begun(fs)
    written(fs, b"z", store)
    fs.fail("sync_all")
    begun.run(threads=1)
    store.checkpoints.done(begun)
    commit(store)
    calls = fs.calls["sync_all"]
    for seconds in range(3, 15, 3):
        now = both(NOW + seconds * 1_000_000_000)
        store.tick(now)
        commit(store, now)
        checkpoint(store, now)
        if seconds == 3:
            assert fs.calls["sync_all"] == calls
    fs.power_cut()
    store, _ = opened(fs)
    for number in range(LOGS):
        assert list(read_all(store.partitions[f"log{number}"]).values()) == [b"x", b"y", b"z"]


@pytest.mark.parametrize("seed", range(10))
def test_a_start_does_not_believe_what_was_written_while_it_failed(many: None, seed: int) -> None:
    """The kernel has taken pages of logs that are in no checkpoint yet for written, and told its error to one that is
    gone: to a sync by the next run it says that all is well."""
    fs = FaultyFileSystem(Random(seed))
    store, begun = with_a_checkpoint_begun(fs)
    late = [store.partition(f"late{number}", ALWAYS) for number in range(LOGS)]
    for log in late:
        put(log, b"z")
    commit(store)
    fs.fail("sync_all")
    begun.run(threads=1)
    number = store.journal.file_number
    fs.kill()
    store, _ = opened(fs)
    for _ in range(2):
        written(fs, b"next", store)
        assert error_of(checkpoint(store)) is None
    assert fs.listdir(store.journal.directory)[0] > layout.journal_file_path("", number)[1:], "those are used again"
    fs.power_cut()
    store, _ = opened(fs)
    assert [list(read_all(store.partitions[log.name]).values()) for log in late] == [[b"z"]] * LOGS


def test_what_an_earlier_run_wrote_is_synced_by_itself(many: None) -> None:
    """The kernel may have failed to write it before this run could have heard of it."""
    fs = FaultyFileSystem()
    written(fs)
    fs.kill()
    store = written(fs)
    before = fs.calls["fdatasync"]
    checkpoint(store)
    assert fs.calls["sync_all"] == 1 and fs.calls["fdatasync"] - before >= LOGS


def test_a_log_whose_directory_is_a_link_to_another_disk_is_synced_by_itself(
    many: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = FaultyFileSystem()
    store = written(fs)
    monkeypatch.setattr(fs, "device", lambda path: 2 if path.endswith("log3") else 1)
    synced = []
    fdatasync = fs.fdatasync

    def recorded(fd: int) -> None:
        synced.append(fs.descriptors[fd][0])
        fdatasync(fd)

    monkeypatch.setattr(fs, "fdatasync", recorded)
    checkpoint(store)
    assert fs.calls["sync_all"] == 1
    assert [path for path in synced if path.endswith(".rlog")] == [
        store.partitions["log3"].directory + "/" + "0" * 20 + ".rlog"
    ]
