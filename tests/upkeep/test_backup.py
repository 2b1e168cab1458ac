"""Backups of a store, made and read back: what they hold while the store goes on, and whatever the disk does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from radiator import limits
from radiator.config import Settings, SyncPolicy
from radiator.errors import StorageError
from radiator.storage import archived, dedup_file, layout
from radiator.storage.files import FileSystem
from radiator.storage.reader import batches, list_cursors, list_partitions
from radiator.upkeep import manifest as manifests
from radiator.upkeep.backup import BackupMade, back_up
from radiator.upkeep.copying import Copier
from radiator.upkeep.manifest import MANIFEST, CopiedPartition, DamagedBackup
from radiator.upkeep.restore import restore, verify
from tests.clocks import both
from tests.storage.driving import ALWAYS, NOW, commit, opened, put, read_all

SMALL = Settings(segment_bytes=4096)


def made(fs: Any, root: str, target: str, **more: Any) -> BackupMade:
    return back_up(fs, root, target, now_ns=NOW, version="0", **more)


def restored(fs: Any, backup: str, root: str) -> dict[str, dict[int, bytes]]:
    """Restores, opens, and returns the bodies of each partition; there is nothing to complain of."""
    restore(fs, backup, root, Copier(fs))
    store, notes = opened(fs, root)
    assert notes == []
    found = {name: read_all(partition, memory=False) for name, partition in store.partitions.items()}
    store.close()
    return found


def test_a_backup_restored_has_the_same_records_at_the_same_offsets_and_the_same_cursors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, fs = str(tmp_path / "data"), FileSystem()
    store, _ = opened(root=root)
    for name in ("/queue/a", "/topic/b"):
        for number in range(30):
            put(store.partition(name, SMALL), b"%d" % number * 100, destination="/topic/other")
            commit(store)
    cursor = store.cursors.open("queue:/queue/a", "/queue/a", 0)
    cursor.ack([0, 1, 2, 7, 8])
    cursor.set_count(5, 3)
    cursor.delivered = 9
    commit(store)
    result = made(fs, root, str(tmp_path / "copy"))  # while the store is open
    assert result.manifest.partitions == [
        CopiedPartition(name, 0, 30, store.partitions[name].size_bytes) for name in ("/queue/a", "/topic/b")
    ]
    expected = {name: read_all(partition) for name, partition in store.partitions.items()}
    assert restored(fs, str(tmp_path / "copy"), str(tmp_path / "again")) == expected
    assert list_cursors(str(tmp_path / "again")) == list_cursors(root)
    monkeypatch.setattr(limits, "NAMES_SCAN_BYTES_MAX", 0)
    again, notes = opened(root=str(tmp_path / "again"))
    assert not notes and all(partition.whole for partition in again.partitions.values())
    assert again.cursors.open("queue:/queue/a", "/queue/a", 0).delivered == 9
    assert again.partitions["/queue/a"].destinations.keys() == {"/topic/other"}
    again.close()
    store.close()


def test_a_damaged_file_of_subscriptions_is_in_a_backup_so_that_a_copy_keeps_the_cursors_too(tmp_path: Path) -> None:
    root, fs = str(tmp_path / "data"), FileSystem()
    store, _ = opened(root=root)
    put(store.partition("/topic/a", SMALL), b"1", destination="/topic/a")
    commit(store)
    store.close()
    (tmp_path / "data" / layout.SUBSCRIPTIONS).write_bytes(b"not ours")
    opened(root=root)[0].close()  # puts it aside
    assert made(fs, root, str(tmp_path / "copy")).manifest.left_out == []
    restore(fs, str(tmp_path / "copy"), str(tmp_path / "again"), Copier(fs))
    assert (tmp_path / "again" / layout.SUBSCRIPTIONS_DAMAGED).read_bytes() == b"not ours"
    again, notes = opened(root=str(tmp_path / "again"))
    assert not again.definitions.whole and layout.SUBSCRIPTIONS_DAMAGED in str(notes)
    again.close()


def test_the_versions_of_schemas_are_in_a_backup_and_restored(tmp_path: Path) -> None:
    root, fs = str(tmp_path / "data"), FileSystem()
    store, _ = opened(root=root)
    fs.mkdir(layout.schemas_path(root))
    name = f"{layout.encode_name('/topic/a')}@1.json"
    (Path(layout.schemas_path(root)) / name).write_bytes(b'{"type": "object"}')
    store.close()
    assert made(fs, root, str(tmp_path / "copy")).manifest.left_out == []
    restored(fs, str(tmp_path / "copy"), str(tmp_path / "again"))
    assert (tmp_path / "again" / "schemas" / name).read_bytes() == b'{"type": "object"}'


def test_a_copied_segment_is_a_prefix_of_the_original_byte_for_byte_and_ends_where_head_says(tmp_path: Path) -> None:
    root = str(tmp_path / "data")
    store, _ = opened(root=root)
    log = store.partition("/queue/a", ALWAYS)
    for number in range(20):
        put(log, b"%d" % number)
        commit(store)
    made(FileSystem(), root, str(tmp_path / "copy"))
    put(log, b"later")
    commit(store)
    original = next((tmp_path / "data" / "partitions").rglob("*.rlog")).read_bytes()
    copied = next((tmp_path / "copy" / "partitions").rglob("*.rlog")).read_bytes()
    assert original.startswith(copied) and len(copied) < len(original)
    partition = list_partitions(str(tmp_path / "copy"))[0]  # a backup can be read as it is
    assert [offset for batch in batches(partition) for offset in batch.offsets] == list(range(20))
    store.close()


@pytest.mark.parametrize("how", ["in the journal", "passed by", "lost"])
def test_a_cursor_ahead_of_what_is_synced_does_not_run_ahead_of_the_copy(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how != "in the journal":
        monkeypatch.setattr(limits, "JOURNAL_PASSED_BYTES_MIN", 1)
    root = str(tmp_path / "data")
    store, _ = opened(root=root)
    log = store.partition("/queue/a", Settings(sync=SyncPolicy(60_000_000_000)))
    cursor = store.cursors.open("c", "/queue/a", 0)
    put(log, b"one", b"two")
    commit(store)
    store.tick(both(NOW + 61_000_000_000))
    commit(store, NOW + 61_000_000_000)  # the sync: head is at 2
    put(log, b"three")
    cursor.ack([0, 1, 2])
    cursor.delivered = 3
    commit(store, NOW + 61_000_000_000)
    bodies = [b"one", b"two", b"three"][: 2 if how == "lost" else 3]
    if how == "lost":  # in a power failure
        path = layout.segment_path(log.directory, 0)
        os.truncate(path, os.path.getsize(path) - 8)
    found = made(FileSystem(), root, str(tmp_path / "copy")).manifest
    assert [each.next_offset for each in found.partitions] == [found.cursors[0].floor] == [len(bodies)]
    assert restored(FileSystem(), str(tmp_path / "copy"), str(tmp_path / "again")) == {
        "/queue/a": dict(enumerate(bodies))
    }
    store.close()


class Meddling(FileSystem):
    """Calls ``act`` once, before the n-th time that a segment of the store is opened by the backup."""

    def __init__(self, root: str, nth: int, act: Any) -> None:
        self.root, self.recheck, self.act = root, nth, act

    def pread_once(self, fd: int, size: int, position: int) -> bytes:
        self.recheck -= 1
        if self.recheck == 0:
            self.act()
        return super().pread_once(fd, size, position)


def filled(root: str, records: int = 60) -> Any:
    store, _ = opened(root=root)
    log = store.partition("/queue/a", SMALL)
    for number in range(records):
        put(log, b"%d" % number * 100)
        commit(store)
    assert len(log.segments) > 4
    return store


@pytest.mark.parametrize(("nth", "first"), [(1, 3), (2, 3), (3, 0)])
def test_segments_that_retention_removes_meanwhile_leave_no_gap_in_the_copy(
    tmp_path: Path, nth: int, first: int
) -> None:
    """Those that are still to be opened are gone, and those that were copied before them have to go as well."""
    root = str(tmp_path / "data")
    store = filled(root)
    log = store.partitions["/queue/a"]
    kept = log.segments[first].base_offset

    def retention() -> None:
        log.log.remove([segment.base_offset for segment in log.segments[:3]])

    found = made(Meddling(root, nth, retention), root, str(tmp_path / "copy")).manifest
    assert [(each.first_offset, each.next_offset) for each in found.partitions] == [(kept, 60)]
    bodies = restored(FileSystem(), str(tmp_path / "copy"), str(tmp_path / "again"))["/queue/a"]
    assert list(bodies) == list(range(kept, 60))
    verify(FileSystem(), str(tmp_path / "copy"), Copier(FileSystem()))
    store.close()


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_log_that_is_removed_meanwhile_is_not_in_the_copy(tmp_path: Path, nth: int) -> None:
    root = str(tmp_path / "data")
    store = filled(root)
    store.cursors.open("queue:/queue/a", "/queue/a", 0)
    put(store.partition("/queue/b", SMALL), b"stays")
    commit(store)

    def removal() -> None:
        store.remove([store.partitions["/queue/a"]], lambda _: store.cursors.delete("queue:/queue/a"))
        while store.removals.names:
            commit(store)

    found = made(Meddling(root, nth, removal), root, str(tmp_path / "copy")).manifest
    assert [each.name for each in found.partitions] == ["/queue/b"]
    assert restored(FileSystem(), str(tmp_path / "copy"), str(tmp_path / "again")) == {"/queue/b": {0: b"stays"}}
    store.close()


def test_a_backup_after_a_removal_has_the_next_log_of_the_name_and_nothing_of_the_one_before(tmp_path: Path) -> None:
    root = str(tmp_path / "data")
    store = filled(root)
    store.remove([store.partitions["/queue/a"]], lambda _: None)
    while store.removals.names:
        commit(store)
    put(store.partition("/queue/a", SMALL), b"new")
    commit(store)
    made(FileSystem(), root, str(tmp_path / "copy"))
    assert restored(FileSystem(), str(tmp_path / "copy"), str(tmp_path / "again")) == {"/queue/a": {0: b"new"}}
    store.close()


def test_a_log_that_goes_on_and_has_its_last_segment_replaced_is_copied_up_to_a_new_end(tmp_path: Path) -> None:
    """The active segment is sealed, and a rewriter puts another file in its place: no byte position holds any more."""
    root = str(tmp_path / "data")
    store = filled(root)
    log = store.partitions["/queue/a"]
    last = layout.segment_path(log.directory, log.segments[-1].base_offset)

    def go_on() -> None:
        for number in range(60, 90):
            put(log, b"%d" % number * 100)
            commit(store)
        data = Path(last).read_bytes()
        Path(last + ".new").write_bytes(bytes(8) + data)  # where batches begin is now elsewhere
        os.rename(last + ".new", last)

    found = made(Meddling(root, 1, go_on), root, str(tmp_path / "copy")).manifest
    assert [each.next_offset for each in found.partitions] == [90]
    store.close()


def test_a_log_that_only_goes_on_is_copied_up_to_where_it_ended_when_the_backup_began(tmp_path: Path) -> None:
    root = str(tmp_path / "data")
    store = filled(root)
    log = store.partitions["/queue/a"]

    def go_on() -> None:
        for number in range(60, 120):
            put(log, b"%d" % number * 100)
            commit(store)

    found = made(Meddling(root, 1, go_on), root, str(tmp_path / "copy")).manifest
    assert [each.next_offset for each in found.partitions] == [60]
    assert list(restored(FileSystem(), str(tmp_path / "copy"), str(tmp_path / "again"))["/queue/a"]) == list(range(60))
    store.close()


def test_what_has_not_changed_since_an_earlier_backup_is_linked_to(tmp_path: Path) -> None:
    root, first, second = str(tmp_path / "data"), str(tmp_path / "first"), str(tmp_path / "second")
    store = filled(root)
    log = store.partitions["/queue/a"]
    made(FileSystem(), root, first)
    for number in range(60, 80):
        put(log, b"%d" % number * 100)
        commit(store)
    result = made(FileSystem(), root, second, since=first)
    sealed = [segment for segment in log.segments if segment.base_offset < 50]
    assert result.linked_bytes >= sum(segment.size_bytes for segment in sealed[:-1]) > result.copied_bytes / 2
    one, two = (Path(layout.segment_path(layout.partition_path(each, "/queue/a"), 0)) for each in (first, second))
    assert one.samefile(two)
    expected = read_all(log)
    store.close()
    for path in Path(first).rglob("*.rlog"):
        path.unlink()  # an earlier backup may be thrown away
    assert restored(FileSystem(), second, str(tmp_path / "again"))["/queue/a"] == expected


def test_a_segment_rewritten_since_an_earlier_backup_is_copied_again(tmp_path: Path) -> None:
    root, first, second = str(tmp_path / "data"), str(tmp_path / "first"), str(tmp_path / "second")
    store = filled(root)
    made(FileSystem(), root, first)
    path = Path(layout.segment_path(store.partitions["/queue/a"].directory, 0))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1  # of the same size
    path.write_bytes(data)
    made(FileSystem(), root, second, since=first)
    assert Path(layout.segment_path(layout.partition_path(second, "/queue/a"), 0)).read_bytes() == data
    store.close()


def test_an_earlier_backup_of_another_store_is_refused(tmp_path: Path) -> None:
    for name in ("one", "two"):
        filled(str(tmp_path / name)).close()
    made(FileSystem(), str(tmp_path / "one"), str(tmp_path / "copy"))
    with pytest.raises(StorageError, match="of another store"):
        made(FileSystem(), str(tmp_path / "two"), str(tmp_path / "copy-2"), since=str(tmp_path / "copy"))


@pytest.mark.parametrize("place", ["MANIFEST.json", "salt", "head", ".idx", ".rlog", "snapshot", "delivered"])
def test_a_flipped_bit_in_any_file_of_a_backup_is_found_and_nothing_is_restored(tmp_path: Path, place: str) -> None:
    root, copy, fs = str(tmp_path / "data"), tmp_path / "copy", FileSystem()
    store = filled(root)
    cursor = store.cursors.open("c", "/queue/a", 0)
    cursor.ack([0])
    cursor.delivered = 5
    commit(store)
    store.close()
    made(fs, root, str(copy))
    path = next(each for each in copy.rglob("*") if each.name.endswith(place))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)
    with pytest.raises(DamagedBackup, match=path.name):
        restore(fs, str(copy), str(tmp_path / "again"), Copier(fs))
    assert not (tmp_path / "again").exists()


def test_a_file_that_is_missing_or_longer_is_named(tmp_path: Path) -> None:
    copy, fs = tmp_path / "copy", FileSystem()
    filled(str(tmp_path / "data")).close()
    made(fs, str(tmp_path / "data"), str(copy))
    one, two, *_ = sorted(copy.rglob("*.rlog"))
    one.unlink()
    two.write_bytes(two.read_bytes() + b"\0")
    with pytest.raises(DamagedBackup, match=rf"{one.name}: missing[^$]*{two.name}: \d+ bytes, the manifest says"):
        verify(fs, str(copy), Copier(fs))


def test_what_cannot_be_backed_up_or_restored_is_refused_with_the_reason(tmp_path: Path) -> None:
    root, fs = str(tmp_path / "data"), FileSystem()
    store = filled(root)
    with pytest.raises(StorageError, match="is inside the data directory"):
        made(fs, root, f"{root}/copy")
    made(fs, root, str(tmp_path / "copy"))
    with pytest.raises(StorageError, match="exists already"):
        made(fs, root, str(tmp_path / "copy"))
    with pytest.raises(StorageError, match="not empty"):
        restore(fs, str(tmp_path / "copy"), root, Copier(fs))
    with pytest.raises(StorageError, match="no backup here"):
        restore(fs, root, str(tmp_path / "again"), Copier(fs))
    (tmp_path / "again").mkdir()
    lock = fs.lock(str(tmp_path / "again"))
    with pytest.raises(StorageError, match=f"in use by process {os.getpid()}"):
        restore(fs, str(tmp_path / "copy"), str(tmp_path / "again"), Copier(fs))
    fs.unlock(lock)
    (tmp_path / "other.partial").mkdir()
    (tmp_path / "other.partial" / "notes").write_text("mine")
    with pytest.raises(StorageError, match="not from an interrupted backup"):
        made(fs, root, str(tmp_path / "other"))
    assert (tmp_path / "other.partial" / "notes").exists()
    store.close()


def test_what_is_known_about_offsets_behind_the_copy_is_not_in_it(tmp_path: Path) -> None:
    root, fs = str(tmp_path / "data"), FileSystem()
    store = filled(root)
    directory = store.partitions["/queue/a"].directory
    ids = [
        number.to_bytes(16, "big") + number.to_bytes(8, "little") + NOW.to_bytes(8, "little") for number in (7, 58, 70)
    ]
    blocks = dedup_file.encode_block(0, 60, b"".join(ids[:2])) + dedup_file.encode_block(60, 80, ids[2])
    Path(layout.dedup_path(directory)).write_bytes(blocks)
    Path(directory, "notes").write_text("mine")
    for number, archived_to in enumerate((20, 70)):
        archived.write(fs, directory, archived_to)
        found = made(fs, root, str(tmp_path / f"copy-{number}")).manifest
        copy = layout.partition_path(str(tmp_path / f"copy-{number}"), "/queue/a")
        assert archived.read(fs, copy) == min(archived_to, 60)
        kept = dedup_file.decode(Path(layout.dedup_path(copy)).read_bytes())
        assert (kept.rows, kept.covered) == (b"".join(ids[:2]), 60)
        assert found.left_out == ["partitions/%2Fqueue%2Fa/notes"]
    store.close()


def test_a_backup_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    filled(str(tmp_path / "data")).close()
    made(FileSystem(), str(tmp_path / "data"), str(tmp_path / "copy"))
    path = tmp_path / "copy" / MANIFEST
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(StorageError, match="format 2.*use a newer one"):
        manifests.read(FileSystem(), str(tmp_path / "copy"))
