"""fsck: each kind of damage is named, a healthy store of any shape gives no finding, repair leaves nothing to do."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from copy import copy
from pathlib import Path
from struct import pack_into
from zlib import crc32

import pytest

from radiator import limits
from radiator.errors import StorageError
from radiator.storage import cursor_journal, index, layout, names
from radiator.storage import format as codec
from radiator.storage.findings import KINDS, SEVERITIES, Finding
from radiator.storage.fsck import Fsck, NoSuchStore
from radiator.storage.index import IndexEntry
from radiator.storage.options import PartitionOptions, SyncPolicy
from radiator.storage.repair import Repair
from radiator.storage.salt import of_partition
from tests.formats.newer import newer
from tests.storage.driving import ALWAYS, NOW, commit, opened, put, read_all

QUEUE = "/queue/a"


class Made:
    """A store in real files: one queue over several segments, one shared log, a cursor; stopped as it should be."""

    def __init__(self, root: Path) -> None:
        self.root = str(root / "data")
        store, _ = opened(root=self.root)
        partition = store.partition(QUEUE, PartitionOptions(segment_bytes=100_000))
        shared = store.partition("shared", ALWAYS)
        self.counts = []
        for number in range(60):
            bodies = [b"%d.%d " % (number, each) * 500 for each in range(number % 3 + 1)]
            put(partition, *bodies, destination=QUEUE, at=NOW + number)
            put(shared, b"x", destination=f"/topic/{number % 4}")
            commit(store)
        cursor = store.cursors.open(f"queue:{QUEUE}", QUEUE, 0)
        cursor.ack([0, 1, 2, 7, 8])
        commit(store)
        self.directory = partition.directory
        self.shared = shared.directory
        self.bases = [segment.base_offset for segment in partition.segments]
        assert len(self.bases) > 1
        self.bodies = read_all(partition, memory=False)
        store.close()
        reopened, _ = opened(root=self.root)  # folds the journal into a snapshot
        reopened.cursors.open(f"queue:{QUEUE}", QUEUE, 0).ack([9])
        commit(reopened)
        reopened.close()

    def path(self, name: str) -> Path:
        return Path(self.directory) / name

    def segment(self, number: int) -> Path:
        return Path(layout.segment_path(self.directory, self.bases[number]))

    def index(self, number: int) -> Path:
        return Path(layout.index_path(self.directory, self.bases[number]))

    def batches(self, number: int) -> list[tuple[int, codec.BatchHeader]]:
        data, at, found = self.segment(number).read_bytes(), 0, []
        while at < len(data):
            found.append((at, codec.decode_header(data, at)))
            at += found[-1][1].total_len
        return found

    def flip(self, path: Path, at: int) -> None:
        data = bytearray(path.read_bytes())
        data[at] ^= 0x20
        path.write_bytes(data)

    def rewrite(self, number: int, place: int, change: Callable[[bytearray, codec.BatchHeader], None]) -> None:
        """Changes a batch, and gives it a crc that holds."""
        at, header = self.batches(number)[place]
        path = self.segment(number)
        data = bytearray(path.read_bytes())
        batch = data[at : at + header.total_len]
        change(batch, header)
        pack_into("<I", batch, 12, crc32(batch[16:]))
        data[at : at + header.total_len] = batch
        path.write_bytes(data)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("original"))


@pytest.fixture
def made(original: Made, tmp_path: Path) -> Made:
    """A copy of it, to be spoiled."""
    mine = copy(original)
    mine.root = str(tmp_path / "data")
    shutil.copytree(original.root, mine.root)
    mine.directory, mine.shared = (
        each.replace(original.root, mine.root) for each in (original.directory, original.shared)
    )
    return mine


def check(root: str, *only: str) -> list[Finding]:
    return list(Fsck(root).run(set(only) or None))


def kinds(root: str) -> list[str]:
    return [finding.kind for finding in check(root)]


def repair(root: str) -> tuple[list[str], list[Finding]]:
    with Repair(root, NOW) as mending:
        done = list(mending.run(*mending.check()))
        _, left, more = mending.left()
    return done + more, left


def mended(root: str) -> None:
    """A second repair has nothing to do, and no damage is left that is not known."""
    done, left = repair(root)
    assert done == []
    assert {finding.kind for finding in left} <= {"quarantined", "kept", "foreign", "contradiction", "times", "salt"}


# --- healthy ----------------------------------------------------------------------------------------------------------


def test_a_healthy_store_gives_no_finding(made: Made) -> None:
    run = Fsck(made.root)
    assert list(run.run()) == []
    assert (run.counts.partitions, run.counts.segments) == (2, len(made.bases) + 1)
    assert run.counts.records == len(made.bodies) + 60
    assert run.counts.batches == 120
    assert run.counts.bytes == run.total_bytes()


@pytest.mark.parametrize("sync", [SyncPolicy(0), SyncPolicy(10**9), SyncPolicy(None)])
@pytest.mark.parametrize("size", [10, 5_000])
@pytest.mark.parametrize("records", [1, 40])
def test_every_shape_of_store_is_healthy(tmp_path: Path, sync: SyncPolicy, size: int, records: int) -> None:
    root = str(tmp_path / "data")
    for life in range(2):
        store, notes = opened(root=root)
        assert notes == []
        partition = store.partition("a", PartitionOptions(sync=sync, segment_bytes=limits.SEGMENT_BYTES_MIN))
        for number in range(30):
            for each in range(records):
                event = NOW if each % 3 else None
                transmit = NOW if each % 5 and number % 2 else None
                partition.append(f"/topic/{each % 7}", b"n:1", b"x" * size, NOW + life, event, transmit)
            commit(store, NOW + life)
        assert check(root) == [], "beside the one that writes"
        store.close()
        assert check(root) == []


def test_the_sample_of_the_format_is_healthy(tmp_path: Path) -> None:
    shutil.copytree(Path(__file__).parents[1] / "formats" / "v1", tmp_path / "v1")
    assert set(kinds(str(tmp_path / "v1"))) <= {"mode", "foreign"}


def test_nothing_is_found_in_an_empty_store_and_what_is_no_store_is_told(tmp_path: Path) -> None:
    store, _ = opened(root=str(tmp_path / "data"))
    store.close()
    assert check(str(tmp_path / "data")) == []
    with pytest.raises(NoSuchStore, match="no radiator store"):
        check(str(tmp_path))
    with pytest.raises(NoSuchStore, match="no partition 'z'"):
        check(str(tmp_path / "data"), "z")


def test_a_log_that_rolled_while_idle_and_lost_what_was_before_is_healthy(made: Made) -> None:
    store, _ = opened(root=made.root)
    log = store.partitions[QUEUE].log  # type: ignore[attr-defined]
    log.roll(len(made.bodies))
    assert check(made.root) == []
    log.remove(made.bases)
    assert check(made.root) == []
    store.close()
    assert check(made.root) == []


def test_only_the_partitions_that_were_named_are_read(made: Made) -> None:
    run = Fsck(made.root)
    assert list(run.run({QUEUE})) == []
    assert (run.counts.partitions, run.counts.batches) == (1, 60)


# --- damage in segments -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 9, 12, 17, 61, 70, -1])
def test_a_flipped_bit_is_named_with_its_bytes_and_offsets(made: Made, at: int) -> None:
    (start, header), (end, after) = made.batches(0)[3:5]
    made.flip(made.segment(0), (start if at >= 0 else end) + at)
    (found,) = check(made.root)
    assert (found.kind, found.severity, found.path) == ("damaged", "damage", str(made.segment(0)))
    assert (found.start, found.end) == (start, end)
    assert (found.first_offset, found.last_offset) == (header.base_offset, after.base_offset - 1)


def test_damage_is_put_aside_stays_where_it_is_and_is_known_from_then_on(made: Made) -> None:
    (start, header), (end, after) = made.batches(0)[3:5]
    made.flip(made.segment(0), start + 80)
    damaged = made.segment(0).read_bytes()
    done, left = repair(made.root)
    kept = layout.quarantine_path(made.root, made.directory, 0, start)
    assert len(done) == 1 and kept in done[0]
    assert Path(kept).read_bytes() == damaged[start:end]
    assert made.segment(0).read_bytes() == damaged
    (found,) = left
    assert (found.kind, found.start, found.end) == ("quarantined", start, end) and kept in found.text
    mended(made.root)
    made.flip(made.segment(0), start + 90)
    assert kinds(made.root) == ["damaged"], "this is not what was put aside"
    store, _ = opened(root=made.root)
    lost = set(range(header.base_offset, after.base_offset))
    assert read_all(store.partitions[QUEUE], memory=False) == {
        offset: body for offset, body in made.bodies.items() if offset not in lost
    }
    store.close()


def test_damage_at_the_end_of_a_sealed_segment_reaches_to_the_next_one(made: Made) -> None:
    at, header = made.batches(0)[-1]
    made.flip(made.segment(0), at + 100)
    (found,) = check(made.root)
    assert (found.kind, found.start, found.end) == ("damaged", at, made.segment(0).stat().st_size)
    assert (found.first_offset, found.last_offset) == (header.base_offset, made.bases[1] - 1)
    repair(made.root)
    mended(made.root)


def test_a_sealed_segment_that_is_cut_off_is_a_gap(made: Made) -> None:
    at, header = made.batches(0)[-1]
    os.truncate(made.segment(0), at)
    found = [each for each in check(made.root) if each.kind != "index"]
    assert [(each.kind, each.start, each.end) for each in found] == [("gap", at, at)]
    assert (found[0].first_offset, found[0].last_offset) == (header.base_offset, made.bases[1] - 1)
    repair(made.root)
    mended(made.root)


def test_a_segment_that_is_gone_is_a_gap(made: Made) -> None:
    assert len(made.bases) > 2
    made.segment(1).unlink()
    (gap, left) = check(made.root)
    assert (gap.kind, gap.first_offset, gap.last_offset) == ("gap", made.bases[1], made.bases[2] - 1) or (
        left.kind, left.first_offset, left.last_offset) == ("gap", made.bases[1], made.bases[2] - 1)  # fmt: skip
    assert {gap.kind, left.kind} == {"gap", "leftover"}
    repair(made.root)
    assert not made.index(1).exists()
    mended(made.root)


def test_bytes_behind_the_last_batch_of_a_sealed_segment_are_told(made: Made) -> None:
    size = made.segment(0).stat().st_size
    with made.segment(0).open("ab") as file:
        file.write(b"what is this? " * 4)
    (found,) = check(made.root)
    assert (found.kind, found.start) == ("trailing", size)


def test_where_the_next_segment_begins_one_ends_whatever_its_file_says(made: Made) -> None:
    """After a failed sync the log goes on in a new segment, which begins where the last good sync ended."""
    batch, size, end = next_batch(made), made.segment(-1).stat().st_size, len(made.bodies)
    uncommitted(made, batch)
    new = Path(layout.segment_path(made.directory, end))
    new.touch(0o600)
    new.write_bytes(batch)
    before = made.path("head").read_bytes()  # the machine died before it moved
    for head in (before, layout.encode_head(end, len(batch), end + 1).ljust(64, b"\0")):
        made.path("head").write_bytes(head)
        found = {each.kind: each for each in check(made.root) if each.kind not in ("index", "uncommitted")}
        assert set(found) == {"trailing"}
        assert (found["trailing"].start, found["trailing"].end) == (size, size + len(batch))


def test_the_committed_end_of_the_log_is_gone(made: Made) -> None:
    at, header = made.batches(-1)[-1]
    os.truncate(made.segment(-1), at)
    (found,) = check(made.root)
    assert (found.kind, found.first_offset, found.last_offset) == ("gap", header.base_offset, len(made.bodies) - 1)
    repair(made.root)
    mended(made.root)
    store, _ = opened(root=made.root)
    assert put(store.partitions[QUEUE], b"goes on") == [len(made.bodies)]
    commit(store)
    store.close()
    assert kinds(made.root) == ["quarantined"]


def test_the_committed_end_of_the_log_is_torn(made: Made) -> None:
    at, header = made.batches(-1)[-1]
    os.truncate(made.segment(-1), at + 100)
    (found,) = check(made.root)
    assert (found.kind, found.first_offset, found.last_offset) == ("damaged", header.base_offset, len(made.bodies) - 1)


def test_all_segments_of_a_log_are_gone(made: Made) -> None:
    for number in range(len(made.bases)):
        made.segment(number).unlink()
        made.index(number).unlink(missing_ok=True)
    found = [each for each in check(made.root) if each.kind == "gap"]
    assert [(each.first_offset, each.last_offset) for each in found] == [(0, len(made.bodies) - 1)]
    repair(made.root)
    mended(made.root)
    store, _ = opened(root=made.root)
    assert put(store.partitions[QUEUE], b"goes on") == [len(made.bodies)]
    store.close()


def uncommitted(made: Made, *pieces: bytes) -> None:
    with made.segment(-1).open("ab") as file:
        file.write(b"".join(pieces))


def next_batch(made: Made, offset: int | None = None) -> bytes:
    key = (Path(made.root) / layout.SALT).read_bytes()[8:24]
    mark = of_partition(key, made.directory)
    base = len(made.bodies) if offset is None else offset
    return b"".join(codec.encode_batch(base, [NOW + 99], None, None, [0], [QUEUE], [b""], [b"!"], salt=mark))


def test_what_lies_behind_the_head_is_told_as_what_it_is(made: Made) -> None:
    batch, end = next_batch(made), made.segment(-1).stat().st_size
    uncommitted(made, batch)
    (found,) = check(made.root)
    assert (found.kind, found.severity) == ("uncommitted", "note") and f"offset {len(made.bodies)}" in found.text
    uncommitted(made, bytes(4096))
    assert sorted(kinds(made.root)) == ["uncommitted", "zeros"]
    uncommitted(made, b"torn")
    found = next(each for each in check(made.root) if each.kind == "torn")
    assert (found.severity, found.start) == ("warning", end + len(batch))
    done, left = repair(made.root)
    assert any("torn tail" in each for each in done) and left == []
    assert made.segment(-1).stat().st_size == end + len(batch)
    mended(made.root)


def test_a_torn_tail_is_copied_aside_where_no_head_says_that_it_was_never_committed(made: Made) -> None:
    at, _ = made.batches(-1)[-1]
    os.truncate(made.segment(-1), at + 100)
    torn = made.segment(-1).read_bytes()[at:]
    made.path("head").unlink()
    assert sorted(kinds(made.root)) == ["head", "torn"]
    repair(made.root)
    kept = layout.quarantine_path(made.root, made.directory, made.bases[-1], at)
    assert Path(kept).read_bytes() == torn
    mended(made.root)


def test_a_gap_between_batches_is_told(made: Made) -> None:
    uncommitted(made, next_batch(made, len(made.bodies) + 5))
    found = next(each for each in check(made.root) if each.kind == "gap")
    assert (found.first_offset, found.last_offset) == (len(made.bodies), len(made.bodies) + 4)


# --- batches whose crc holds ------------------------------------------------------------------------------------------


def test_holes_within_a_sparse_batch_are_intended(made: Made) -> None:
    mark = codec.decode_header(made.segment(-1).read_bytes()).salt
    base = len(made.bodies)

    def sparse(base: int, *deltas: int) -> bytes:
        times, texts = [NOW + 99] * len(deltas), [b"!"] * len(deltas)
        ids = [0] * len(deltas)
        pieces = codec.encode_batch(base, times, None, None, ids, [QUEUE], texts, texts, 0, deltas, mark)
        return b"".join(pieces)

    uncommitted(made, sparse(base, 3, 4, 9), sparse(base + 10, 0, 5))
    assert kinds(made.root) == ["uncommitted"]
    uncommitted(made, sparse(base + 16, 4, 2))
    assert "contradiction" in kinds(made.root)


def contradicted(made: Made, number: int, change: Callable[[bytearray, codec.BatchHeader], None]) -> Finding:
    made.rewrite(0, number, change)
    (found,) = check(made.root)
    return found


def test_columns_that_contradict_one_another_are_told(made: Made) -> None:
    one, three = 3, 5  # batches of one and of three records

    def heads(batch: bytearray, header: codec.BatchHeader) -> None:
        pack_into("<i", batch, 64 + 8 * header.records + 4, 1 << 20)

    def ids(batch: bytearray, header: codec.BatchHeader) -> None:
        pack_into("<I", batch, 64 + 24 + 32, 7)

    whole = made.segment(0).read_bytes()
    for place in (one, three):
        assert contradicted(made, place, heads).kind == "contradiction"
        made.segment(0).write_bytes(whole)
        assert check(made.root) == []
    assert "destination id" in contradicted(made, three, ids).text


def test_names_that_are_no_text_are_told(made: Made) -> None:
    def change(batch: bytearray, header: codec.BatchHeader) -> None:
        at = 64 + codec.columns_len(header.records, header.flags) + 4
        batch[at] = 0xFF

    found = contradicted(made, 3, change)
    assert found.kind == "contradiction" and "UTF-8" in found.text


def test_receive_times_that_fall_are_told(made: Made) -> None:
    def change(batch: bytearray, header: codec.BatchHeader) -> None:
        for at in (24, 32, 64):
            pack_into("<q", batch, at, NOW - 1_000)

    assert contradicted(made, 3, change).kind == "times"


def test_a_header_with_other_times_than_its_column_is_told(made: Made) -> None:
    assert contradicted(made, 3, lambda batch, header: pack_into("<q", batch, 64, NOW)).kind == "contradiction"


def test_a_foreign_salt_is_told(made: Made) -> None:
    assert contradicted(made, 3, lambda batch, header: pack_into("<I", batch, 60, 1)).kind == "salt"


def test_a_batch_of_a_newer_version_is_told(made: Made) -> None:
    at, header = made.batches(0)[3]
    data = bytearray(made.segment(0).read_bytes())
    end = at + header.total_len
    data[at + 4] = ord("2")
    made.segment(0).write_bytes(data)
    assert kinds(made.root) == ["damaged"], "one flipped bit makes another digit"
    data[at:end] = newer(bytes(data[at : at + 64]), tail=bytes(data[at + 64 : end]))
    made.segment(0).write_bytes(data)
    (found,) = check(made.root)
    assert (found.kind, found.start, found.end) == ("version", at, end)


# --- head, index, names, salt -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["flipped", "gone", "zeroed"])
def test_a_head_that_is_damaged_is_told_and_written_anew(made: Made, how: str) -> None:
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
    assert any("head written anew" in each for each in done) and left == []
    assert made.path("head").read_bytes() == before
    mended(made.root)


def test_a_head_that_does_not_fit_the_log_is_told(made: Made) -> None:
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


def test_a_damaged_snapshot_is_told_and_replaced(made: Made) -> None:
    made.flip(cursors(made, "snapshot"), 45)
    (found,) = check(made.root)
    assert (found.kind, found.severity) == ("snapshot", "damage")
    repair(made.root)
    assert kinds(made.root) == ["kept"]
    mended(made.root)


def test_a_snapshot_that_is_gone_is_told(made: Made) -> None:
    cursors(made, "snapshot").unlink()
    assert kinds(made.root) == ["snapshot"]
    repair(made.root)
    mended(made.root)


def test_a_damaged_journal_is_told_in_the_middle_and_at_its_end(made: Made) -> None:
    path = cursors(made, "journal-*")
    entry = path.read_bytes()
    path.write_bytes(entry + entry[:-20])
    assert kinds(made.root) == ["tail"]
    path.write_bytes(entry[:17] + b"?" + entry[18:] + entry)
    assert kinds(made.root) == ["journal"]
    repair(made.root)
    mended(made.root)


def write_cursor(made: Made, *records: bytes) -> None:
    for path in Path(made.root, layout.CURSORS).glob("journal-*"):
        path.unlink()
    for name in ("snapshot", "snapshot.copy"):
        cursors(made, name).write_bytes(cursor_journal.snapshot(1, records))


def test_cursors_that_cannot_be_are_told(made: Made) -> None:
    create, end = cursor_journal.create, len(made.bodies)
    write_cursor(made, create(1, 0, end, "q", QUEUE), create(2, 1, 0, "r", "not there yet"))
    assert kinds(made.root) == []
    for records in (
        [create(1, 0, end + 1, "q", QUEUE)],
        [create(1, 0, 0, "q", QUEUE), cursor_journal.acked(1, [(3, end + 2)])],
        [create(1, 0, 0, "q", QUEUE), cursor_journal.acked(1, [(5, 7), (3, 4)])],
        [create(1, 0, 4, "q", QUEUE), cursor_journal.acked(1, [(3, 6)])],
        [create(1, 0, 0, "q", QUEUE), create(2, 0, 0, "r", QUEUE)],
        [create(1, 0, 0, "q", QUEUE), create(2, 1, 0, "q", QUEUE)],
        [create(1, limits.CURSORS_MAX, 0, "q", QUEUE)],
    ):
        write_cursor(made, *records)
        assert set(kinds(made.root)) == {"cursor"}, records


def test_the_file_of_hints_has_its_size(made: Made) -> None:
    os.truncate(cursors(made, "delivered"), 800)
    assert kinds(made.root) == ["delivered"]
    repair(made.root)
    mended(made.root)


# --- what lies about --------------------------------------------------------------------------------------------------


def test_leftovers_and_strangers_are_told_and_only_leftovers_removed(made: Made) -> None:
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
        Repair(made.root, NOW).__enter__()
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
