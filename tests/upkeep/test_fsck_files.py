"""fsck and everything beside the segments, repair of it, and a broker at work."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from radiator import limits
from radiator.errors import StorageError
from radiator.storage import archived, cursor_files, cursor_records, definitions, index, last_rules, layout, names
from radiator.storage.dedup_file import encode_block
from radiator.storage.files import FileSystem
from radiator.storage.index import IndexEntry
from radiator.storage.journal import format as journal_format
from radiator.upkeep.findings import KINDS, SEVERITIES
from radiator.upkeep.fsck import Fsck
from radiator.upkeep.repair import Repair
from radiator.upkeep.show import read_last_rules, read_subscriptions
from tests.clocks import both
from tests.storage import old_redo_log
from tests.storage.driving import ALWAYS, NOW, checkpoint, commit, opened, put, read_all
from tests.upkeep.spoiled import QUEUE, Made, check, kinds, mended, next_batch, repair, uncommitted

# --- head, index, names, salt -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["flipped", "gone", "zeroed"])
def test_a_head_that_is_damaged_is_reported_and_written_again(made: Made, how: str) -> None:
    before = made.path("head").read_bytes()
    if how == "flipped":
        made.flip(made.path("head"), 20)
    elif how == "gone":
        made.path("head").unlink()
    else:
        made.path("head").write_bytes(bytes(64))
    (found,) = check(made.root)
    assert (found.kind, found.severity) == ("head", "damage")
    done, left = repair(made.root)
    assert any("head written again" in each for each in done) and left == []
    assert made.path("head").read_bytes() == before
    mended(made.root)


def test_a_head_that_does_not_fit_the_log_is_reported(made: Made) -> None:
    head = layout.decode_head(made.path("head").read_bytes())
    assert head is not None
    at, _ = made.batches(-1)[-1]
    for position, offset in ((at + 8, head.next_offset), (at, head.next_offset - 10), (at, head.next_offset)):
        made.path("head").write_bytes(layout.encode_head(head.segment_base, position, offset).ljust(64, b"\0"))
        assert {"head", "gap"} & set(kinds(made.root))
    made.path("head").write_bytes(layout.encode_head(5_000, 8, 5_001).ljust(64, b"\0"))
    assert "head" in kinds(made.root)


def test_an_index_is_compared_with_the_batches(made: Made) -> None:
    path, whole = made.index(0), made.index(0).read_bytes()
    entries = index.decode(whole, 0)
    assert len(entries) > 1
    second = made.batches(0)[1]

    def put_entries(*found: IndexEntry) -> None:
        path.write_bytes(index.encode_head(0) + index.encode_entries(found))

    put_entries(entries[0], IndexEntry(second[1].base_offset + 1, second[0], NOW))
    assert kinds(made.root) == ["index"]
    put_entries(*entries[:-1])
    assert "entries of" in str(check(made.root)[0])
    made.flip(path, 40)
    assert set(kinds(made.root)) == {"index"}
    path.unlink()
    assert "missing" in str(check(made.root)[0])
    repair(made.root)
    assert path.read_bytes() == whole
    mended(made.root)


def test_a_list_of_names_is_compared_with_the_batches(made: Made) -> None:
    path = Path(made.shared) / layout.NAMES
    whole = path.read_bytes()
    everything = set(names.decode(whole)[0])
    for how in ("missing", "short", "torn"):
        if how == "missing":
            path.unlink()
        elif how == "short":
            path.write_bytes(names.encode_entry("/topic/1"))
        else:
            path.write_bytes(whole[:-3])
        assert kinds(made.root) == ["names"]
        repair(made.root)
        assert set(names.decode(path.read_bytes())[0]) == everything
        mended(made.root)


def test_a_large_list_that_nothing_vouches_for_is_reported_and_made_whole(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "NAMES_SCAN_BYTES_MAX", 0)
    path = Path(made.shared) / layout.HEAD
    head = path.read_bytes()
    assert layout.decode_listed(head) is not None and kinds(made.root) == []
    path.write_bytes(head[: layout.LISTED_AT].ljust(layout.HEAD_FILE_BYTES, b"\0"))
    assert kinds(made.root) == ["names"]
    repair(made.root)
    assert layout.decode_listed(path.read_bytes()) is not None
    mended(made.root)


def test_the_key_of_the_salts_is_looked_at(made: Made) -> None:
    path = Path(made.root) / layout.SALT
    made.flip(path, 12)
    assert kinds(made.root) == ["key"]
    repair(made.root)
    mended(made.root)
    path.unlink()
    assert kinds(made.root) == ["key"]


# --- cursors ----------------------------------------------------------------------------------------------------------


def cursors(made: Made, name: str) -> Path:
    (found,) = Path(made.root, layout.CURSORS).glob(name)
    return found


def test_a_damaged_snapshot_is_reported_and_replaced(made: Made) -> None:
    made.flip(cursors(made, "snapshot"), 45)
    (found,) = check(made.root)
    assert (found.kind, found.severity) == ("copy", "warning")
    made.flip(cursors(made, "snapshot.copy"), 45)
    (found,) = check(made.root)
    assert (found.kind, found.severity) == ("snapshot", "damage")
    repair(made.root)
    assert kinds(made.root) == ["kept"]
    mended(made.root)


def test_a_snapshot_that_is_gone_is_reported(made: Made) -> None:
    store, _ = opened(root=made.root)
    store.cursors.open(f"queue:{QUEUE}", QUEUE, 0).delivered = 10
    store.close()
    snapshot, copy = cursors(made, "snapshot"), cursors(made, "snapshot.copy")
    whole = snapshot.read_bytes()
    snapshot.unlink()
    assert kinds(made.root) == ["copy"]
    copy.unlink()
    assert kinds(made.root) == ["snapshot"]
    snapshot.touch(0o600)
    snapshot.write_bytes(whole)
    assert kinds(made.root) == [], "as from a backup"
    copy.touch(0o600)
    copy.write_bytes(whole[:-8])
    assert kinds(made.root) == ["copy"]
    repair(made.root)
    mended(made.root)


def test_a_damaged_journal_is_reported_in_the_middle_and_at_its_end(made: Made) -> None:
    """One of an earlier version."""
    snapshot = cursor_records.load_snapshot(cursors(made, "snapshot").read_bytes(), {})
    assert snapshot is not None
    path = Path(made.root, layout.CURSORS, f"journal-{snapshot.generation:010d}")
    entry = cursor_records.block([cursor_records.acked(1, [(0, 1)])])
    path.touch(0o600)
    path.write_bytes(entry + entry[:-20])
    assert kinds(made.root) == ["tail"]
    path.write_bytes(entry[:17] + b"?" + entry[18:] + entry)
    assert kinds(made.root) == ["journal"]
    repair(made.root)
    mended(made.root)


def write_cursor(made: Made, *records: bytes) -> None:
    for name in ("snapshot", "snapshot.copy"):
        cursors(made, name).write_bytes(cursor_records.snapshot(1, records))


def test_cursors_that_cannot_be_are_reported(made: Made) -> None:
    create, end = cursor_records.create, len(made.bodies)
    write_cursor(made, create(1, 0, end, "q", QUEUE), create(2, 1, 0, "r", "not there yet"))
    assert kinds(made.root) == []
    for records in (
        [create(1, 0, end + 1, "q", QUEUE)],
        [create(1, 0, 0, "q", QUEUE), cursor_records.acked(1, [(3, end + 2)])],
        [create(1, 0, 0, "q", QUEUE), cursor_records.acked(1, [(5, 7), (3, 4)])],
        [create(1, 0, 4, "q", QUEUE), cursor_records.acked(1, [(3, 6)])],
        [create(1, 0, 0, "q", QUEUE), create(2, 0, 0, "r", QUEUE)],
        [create(1, 0, 0, "q", QUEUE), create(2, 1, 0, "q", QUEUE)],
        [create(1, limits.CURSORS_MAX, 0, "q", QUEUE)],
    ):
        write_cursor(made, *records)
        assert set(kinds(made.root)) == {"cursor"}, records


def test_the_delivery_hints_file_has_its_size(made: Made) -> None:
    os.truncate(cursors(made, "delivered"), 801)
    assert kinds(made.root) == ["delivered"]
    repair(made.root)
    mended(made.root)


def test_a_delivery_hints_file_that_a_start_extends_is_whole(made: Made) -> None:
    os.truncate(cursors(made, "delivered"), 144)  # as a backup has it
    assert kinds(made.root) == []


# --- ids, the archive -------------------------------------------------------------------------------------------------


def dedup(made: Made) -> Path:
    path = made.path(layout.DEDUP)
    rows = b"".join(
        bytes([number] * 16) + (number).to_bytes(8, "little") + NOW.to_bytes(8, "little") for number in (3, 7)
    )
    path.touch(0o600)
    path.write_bytes(encode_block(0, 0, b"") + encode_block(0, 9, rows) + encode_block(9, len(made.bodies), b""))
    return path


def test_the_file_of_ids_is_looked_at(made: Made) -> None:
    path = dedup(made)
    whole = path.read_bytes()
    assert kinds(made.root) == []
    for data, kind in (
        (whole[:-5], "tail"),
        (b"?" + whole[1:], "ids"),
        (whole[:40] + b"?" + whole[41:], "ids"),
        (whole + encode_block(len(made.bodies), len(made.bodies) + 1, b""), "ids"),
    ):
        path.write_bytes(data)
        assert kinds(made.root) == [kind]
        with Repair(made.root, both(NOW), identify=lambda name, block: None) as mending:
            assert list(mending.run(*mending.check()))
        assert kinds(made.root) == []
    mended(made.root)


def test_how_far_an_archive_is_is_looked_at(made: Made) -> None:
    path = made.path(layout.ARCHIVED)
    archived.write(FileSystem(), made.directory, 5)
    assert kinds(made.root) == []
    made.flip(path, 9)
    assert kinds(made.root) == ["archived"]
    archived.write(FileSystem(), made.directory, len(made.bodies) + 1)
    assert kinds(made.root) == ["archived"]


def test_what_a_kill_left_of_the_redo_log_of_an_earlier_version_is_reported(made: Made) -> None:
    path = Path(layout.transactions_path(made.root))
    path.touch(0o600)
    part = old_redo_log.encode_batch_part(QUEUE, [next_batch(made)])
    entry = old_redo_log.encode_entry(1, [part])
    path.write_bytes(entry[:-9])
    assert kinds(made.root) == ["tail"]
    path.write_bytes(entry + bytes(64))
    assert kinds(made.root) == ["decided"]
    done, left = repair(made.root)
    assert any("decided" in each for each in done) and left == []
    assert not path.exists()
    mended(made.root)
    store, _ = opened(root=made.root)
    assert store.partitions[QUEUE].next_offset == len(made.bodies) + 1
    store.close()


# --- the journal ------------------------------------------------------------------------------------------------------


def killed(made: Made, files: int = 5) -> tuple[list[Path], int]:
    """A broker was killed: the files of its journal, with several entries each, and how many messages a log has."""
    store, _ = opened(root=made.root, journal_file_bytes=3_000)
    number = 0
    while store.journal.file_number < files or store.journal.position < 1_000:
        put(store.partitions["shared"], b"%d " % number * 100, destination="/topic/0")
        commit(store)
        number += 1
    store.journal.close()
    store.release()
    return sorted(Path(layout.journal_path(made.root)).iterdir()), store.partitions["shared"].next_offset


def messages(made: Made) -> int:
    store, _ = opened(root=made.root)
    store.close()
    assert check(made.root) == []
    return store.partitions["shared"].next_offset


def test_a_clean_stop_leaves_nothing_and_a_kill_only_notes(made: Made) -> None:
    assert list(Path(layout.journal_path(made.root)).iterdir()) == [] and kinds(made.root) == []
    paths, _ = killed(made)
    found = check(made.root)
    assert len(paths) == 5 and [finding.kind for finding in found] == ["decided"]
    assert all(finding.severity == "note" for finding in found)


def entry_at(path: Path, number: int) -> tuple[int, int]:
    """Where an entry stands, counted from 0, in a file of the journal."""
    data = path.read_bytes()
    header = journal_format.decode_file_header(data)
    assert header is not None
    at = journal_format.FILE_HEADER_BYTES
    for _ in range(number + 1):
        entry = journal_format.decode_entry(memoryview(data), at, header.salt)
        assert entry is not None
        at = entry.end
    return entry.start, entry.end


@pytest.mark.parametrize("place", ["entry", "first", "header", "deleted", "truncated"])
def test_damage_in_the_middle_of_the_journal_is_reported_with_its_place_and_loses_nothing_that_segments_have(
    made: Made, place: str
) -> None:
    paths, stored = killed(made)
    path, start, end = paths[2], *entry_at(paths[2], 0 if place == "first" else 1)
    if place in ("entry", "first"):
        made.flip(path, start + 60)
        wanted = [(str(path), start, end)]
    elif place == "header":
        made.flip(path, 12)
        wanted = [(str(path), 0, 64), (str(paths[1]), entry_at(paths[1], 0)[1], paths[1].stat().st_size)]
    elif place == "deleted":
        path.unlink()
        wanted = [(str(paths[1]), entry_at(paths[1], 0)[1], paths[1].stat().st_size)]
    else:
        os.truncate(path, end - 13)
        wanted = [(str(path), start, end - 13)]
    found = check(made.root)
    assert {finding.kind for finding in found} == {"journal", "decided"}
    told = [(each.path, each.start, each.end) for each in found if each.kind == "journal"]
    assert told == wanted
    done, left = repair(made.root)
    assert left == [] and done
    mended(made.root)
    assert messages(made) == stored


@pytest.mark.parametrize("size", [None, 0, 5_000, 5_003])
def test_the_end_of_a_log_that_the_journal_has_is_not_reported_as_lost(made: Made, size: int | None) -> None:
    store, _ = opened(root=made.root)
    for number in range(100):
        put(store.partition("new", ALWAYS), b"%d" % number, destination="new")
        commit(store)
    path = store.partitions["new"].log.directory + "/" + "0" * 20 + ".rlog"
    store.journal.close()
    store.release()
    if size is None:
        os.unlink(path)
    else:
        os.truncate(path, size)
    found = check(made.root)
    assert {finding.kind for finding in found} == {"decided"} and {each.severity for each in found} == {"note"}
    assert sum("only the journal has them" in finding.text for finding in found) == 1
    store, _ = opened(root=made.root)
    assert list(read_all(store.partitions["new"], memory=False)) == list(range(100))
    store.close()
    assert check(made.root) == []


def test_what_a_sealed_segment_lacks_is_lost_although_the_journal_has_it(made: Made) -> None:
    """A start makes up only what the last segment lacks."""
    store, _ = opened(root=made.root)
    for number in range(100):
        put(store.partition("new", ALWAYS), b"%d" % number, destination="new")
        commit(store)
    log = store.partitions["new"].log
    log.roll(100)
    store.journal.close()
    store.release()
    os.truncate(log.directory + "/" + "0" * 20 + ".rlog", 5_000)
    found = [finding for finding in check(made.root) if finding.last_offset == 99]
    assert [finding.kind for finding in found] == ["damaged"]


def test_what_is_torn_at_the_end_of_the_journal_is_no_damage(made: Made) -> None:
    paths, stored = killed(made)
    before = paths[-1].read_bytes()
    for size in (len(before) // 2, 64, 63):
        os.truncate(paths[-1], size)
        assert "decided" in kinds(made.root)
        assert ("journal" in kinds(made.root)) == (size < 64)
    paths[-1].write_bytes(bytes(4_096))
    assert kinds(made.root) == ["decided"], "it was begun, and never synced"
    repair(made.root)
    mended(made.root)
    assert messages(made) == stored


def test_what_only_the_journal_has_is_brought_back_by_a_repair(made: Made) -> None:
    before = messages(made)
    store, _ = opened(root=made.root)
    put(store.partitions["shared"], b"journal", destination="/topic/0")
    jobs = store.take(both(NOW))
    jobs[0].write()
    store.journal.close()
    store.release()
    done, left = repair(made.root)
    assert any(each.endswith("decided entries written to their segments") for each in done) and left == []
    assert messages(made) == before + 1


def test_the_journal_has_the_modes_of_all_files(made: Made) -> None:
    paths, _ = killed(made)
    directory = Path(layout.journal_path(made.root))
    assert directory.stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in paths)
    for path, mode in ((paths[0], 0o640), (directory, 0o750)):
        before = path.stat().st_mode
        path.chmod(mode)
        assert [finding.path for finding in check(made.root) if finding.kind == "mode"] == [str(path)]
        path.chmod(before)
    (directory / "notes").touch(0o600)
    assert "foreign" in kinds(made.root)


# --- what lies about --------------------------------------------------------------------------------------------------


def test_leftovers_and_strangers_are_reported_and_only_leftovers_removed(made: Made) -> None:
    leftovers = [Path(made.root, "salt.tmp"), Path(made.root, "cursors", "snapshot.tmp")]
    leftovers += [made.path("00000000000000000000.rlog.new"), made.path("00000000000000000007.idx")]
    leftovers += [Path(made.root, "cursors", "journal-0000000000")]
    strangers = [Path(made.root, "notes"), made.path("notes.txt"), Path(made.root, "partitions", "~")]
    for path in leftovers + strangers:
        path.touch(0o600)
    assert sorted(kinds(made.root)) == ["foreign"] * 3 + ["leftover"] * 5
    repair(made.root)
    assert not any(path.exists() for path in leftovers) and all(path.exists() for path in strangers)
    mended(made.root)


def test_modes_are_looked_at(made: Made) -> None:
    for path, mode in ((made.segment(0), 0o640), (Path(made.directory), 0o750), (Path(made.root, "salt"), 0o604)):
        path.chmod(mode)
        (found,) = check(made.root)
        assert (found.kind, found.path) == ("mode", str(path))
        repair(made.root)
        mended(made.root)


@pytest.mark.parametrize("verb", ["open_read", "pread"])
@pytest.mark.parametrize("file", ["segment", "head"])
def test_what_the_disk_does_not_give_is_reported_and_the_rest_is_checked(
    made: Made, monkeypatch: pytest.MonkeyPatch, file: str, verb: str
) -> None:
    run = Fsck(made.root)
    real, bad = getattr(run.fs, verb), str(made.segment(1) if file == "segment" else made.path("head"))

    def refuse(what: Any, *args: Any) -> Any:
        if what == bad or (isinstance(what, int) and os.readlink(f"/proc/self/fd/{what}") == bad):
            raise OSError(errno.EIO, "Input/output error")
        return real(what, *args)

    monkeypatch.setattr(run.fs, verb, refuse)
    (found,) = run.run()
    assert (found.kind, found.severity, found.path) == ("unreadable" if file == "segment" else "head", "damage", bad)
    assert "cannot be read: Input/output error" in found.text
    segments = len(made.bases) + 1  # with that of the other partition
    assert run.counts.batches > 60 and run.counts.segments == segments - (file == "segment")


# --- beside a broker --------------------------------------------------------------------------------------------------


def test_beside_a_running_broker_only_what_is_committed_is_looked_at(made: Made) -> None:
    store, _ = opened(root=made.root)
    uncommitted(made, next_batch(made), b"half a batch")
    Path(made.root, "cursors", "snapshot.tmp").touch(0o600)
    run = Fsck(made.root)
    assert run.live and list(run.run()) == []
    at, _ = made.batches(0)[2]
    made.flip(made.segment(0), at + 80)
    assert kinds(made.root) == ["damaged"]
    with pytest.raises(StorageError, match=f"process {os.getpid()}.*stop it first"):
        Repair(made.root, both(NOW)).__enter__()
    store.close()


def test_a_segment_that_retention_takes_meanwhile_is_no_damage(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    store, _ = opened(root=made.root)
    run = Fsck(made.root)
    listed = run.fs.listdir

    def listed_before(path: str) -> list[str]:
        found = listed(path)
        if path == made.directory and made.segment(0).exists():
            made.segment(0).unlink()
            made.index(0).unlink()
        return found

    monkeypatch.setattr(run.fs, "listdir", listed_before)
    assert list(run.run()) == []
    assert len(run.checked[0].segments) == len(made.bases) - 1
    store.close()


def test_kinds_have_a_severity_each_and_meanings() -> None:
    assert {severity for severity, _ in KINDS.values()} == set(SEVERITIES)


def test_cursors_that_a_checkpoint_saves_meanwhile_are_read_again(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    store, _ = opened(root=made.root)
    cursor = store.cursors.open(f"queue:{QUEUE}", QUEUE, 0)
    cursor.ack([20])
    commit(store)
    reads, real = [], cursor_files.JournalFiles

    def late(fs: FileSystem, root: str) -> Any:
        reads.append(root)
        if len(reads) == 1:
            cursor.ack([22])
            checkpoint(store)
            cursor.ack([24])
            commit(store)
        return real(fs, root)

    monkeypatch.setattr(cursor_files, "JournalFiles", late)
    found = cursor_files.read_live(FileSystem(), made.root)
    assert len(reads) == 2
    (state,) = [state for state in found.states.values() if state.partition == QUEUE]
    settled = state.cursor(100)
    assert all(settled.is_acked(offset) for offset in (20, 22, 24))
    store.close()


def test_what_named_subscriptions_are_about_is_checked_and_shown(made: Made) -> None:
    path = Path(layout.subscriptions_path(str(made.root)))
    path.write_bytes(definitions.encode({"sub:me": {"user": "", "destination": "/topic/a"}}))
    path.chmod(0o600)
    assert kinds(made.root) == []
    (line,) = read_subscriptions(path.read_bytes())
    assert line.values == {"cursor": "sub:me", "user": "", "destination": "/topic/a"}
    made.flip(path, 50)
    assert kinds(made.root) == ["subscriptions"]
    (line,) = read_subscriptions(path.read_bytes())
    assert line.damage


def test_what_the_last_rules_said_is_checked_and_shown(made: Made) -> None:
    path = Path(layout.last_rules_path(str(made.root)))
    rule = {"match": "/topic/a", "match_regex": None, "kind": None, "fan_out": ["/queue/a"]}
    path.write_bytes(definitions.encode({"0": rule}, last_rules.HEAD))
    path.chmod(0o600)
    assert kinds(made.root) == []
    (line,) = read_last_rules(path.read_bytes())
    assert line.values == {"rule": "0", **rule}
    made.flip(path, 50)
    assert kinds(made.root) == ["last_rules"]
    (line,) = read_last_rules(path.read_bytes())
    assert line.damage
