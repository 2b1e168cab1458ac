"""fsck and segments: each kind of damage is named, and a healthy store of any shape gives no finding."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from struct import pack_into
from zlib import crc32

import pytest

from radiator import limits
from radiator.config import Settings, SyncPolicy
from radiator.errors import StorageError
from radiator.storage import cursor_snapshot, index, layout
from radiator.storage import format as codec
from radiator.upkeep.findings import Finding
from radiator.upkeep.fsck import Fsck, NoSuchStore
from radiator.upkeep.repair import Repair
from tests.clocks import both
from tests.formats.newer import newer
from tests.storage.driving import NOW, commit, opened, put, read_all
from tests.tiers import sampled
from tests.upkeep.spoiled import QUEUE, Made, check, kinds, mended, next_batch, repair, uncommitted

# --- healthy ----------------------------------------------------------------------------------------------------------


def test_a_healthy_store_gives_no_finding(made: Made) -> None:
    run = Fsck(made.root)
    assert list(run.run()) == []
    assert (run.counts.partitions, run.counts.segments) == (2, len(made.bases) + 1)
    assert run.counts.records == len(made.bodies) + 60
    assert run.counts.batches == 120
    assert run.counts.bytes == run.total_bytes()


@pytest.mark.parametrize("sync", sampled([SyncPolicy(0), SyncPolicy(10**9), SyncPolicy(None)], 1))
@pytest.mark.parametrize("size", [10, 5_000])
@pytest.mark.parametrize("records", [1, 40])
def test_every_shape_of_store_is_healthy(tmp_path: Path, sync: SyncPolicy, size: int, records: int) -> None:
    root = str(tmp_path / "data")
    for life in range(2):
        store, notes = opened(root=root)
        assert notes == []
        partition = store.partition("a", Settings(sync=sync, segment_bytes=limits.SEGMENT_BYTES_MIN))
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


def test_nothing_is_found_in_an_empty_store_and_what_is_no_store_is_reported(tmp_path: Path) -> None:
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
    store.cursors.open(f"queue:{QUEUE}", QUEUE, 0).ack(range(len(made.bodies)))
    commit(store)
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


def test_the_oldest_segment_gone_with_what_a_queue_had_not_settled_is_damage(made: Made) -> None:
    assert made.bases[1] > 10
    made.segment(0).unlink()
    found = {finding.kind: finding for finding in check(made.root)}
    assert set(found) == {"missing", "leftover"} and found["missing"].severity == "damage"
    assert (found["missing"].first_offset, found["missing"].last_offset) == (3, made.bases[1] - 1)
    assert f"had not settled {made.bases[1] - 6}" in found["missing"].text, "0 to 2 and 7 to 9 were settled"
    store, notes = opened(root=made.root)
    assert [(note.kind, note.first_offset, note.last_offset) for note in notes] == [("missing", 3, made.bases[1] - 1)]
    assert f"queue:{QUEUE}" in str(notes[0])
    store.close()
    repair(made.root)
    mended(made.root)
    store, notes = opened(root=made.root)
    assert notes == [] and store.cursors.open(f"queue:{QUEUE}", QUEUE, 0).floor == made.bases[1]
    store.close()


def test_a_repair_without_room_for_a_snapshot_reports_no_queue_as_set(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.segment(0).unlink()
    Path(layout.cursors_path(made.root), "snapshot.copy").unlink()  # so that the start writes a snapshot

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    done: list[str] = []
    with monkeypatch.context() as patch, pytest.raises(StorageError, match="write the snapshot: No space left"):
        patch.setattr(cursor_snapshot, "write", full)
        with Repair(made.root, both(NOW)) as mending:
            done.extend(mending.run(*mending.check()))
    assert not any("continues at offset" in each for each in done)
    assert any(f"continues at offset {made.bases[1]}" in each for each in repair(made.root)[0])
    mended(made.root)


def test_the_oldest_segment_gone_with_what_was_settled_is_no_damage(made: Made) -> None:
    store, _ = opened(root=made.root)
    store.cursors.open(f"queue:{QUEUE}", QUEUE, 0).ack(range(made.bases[1]))
    commit(store)
    store.close()
    made.segment(0).unlink()
    assert kinds(made.root) == ["leftover"]


def test_bytes_behind_the_last_batch_of_a_sealed_segment_are_reported(made: Made) -> None:
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


def test_batches_behind_the_head_are_reported_as_such(made: Made) -> None:
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


def test_a_gap_between_batches_is_reported(made: Made) -> None:
    uncommitted(made, next_batch(made, len(made.bodies) + 5))
    found = next(each for each in check(made.root) if each.kind == "gap")
    assert (found.first_offset, found.last_offset) == (len(made.bodies), len(made.bodies) + 4)


# --- batches whose crc holds ------------------------------------------------------------------------------------------


def test_missing_offsets_within_a_sparse_batch_are_no_finding(made: Made) -> None:
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


def rewritten(made: Made, level: int) -> list[int]:
    """The first segment as the rewriter leaves it: every third record gone, batches merged, compressed; where its
    batches begin."""
    data, at, places = made.segment(0).read_bytes(), 0, []
    offsets, times, bodies = [], [], []
    while at < len(data):
        header, columns = codec.decode(data, at)
        offsets += columns.offsets
        times += columns.receive_ns
        bodies += columns.bodies
        at += header.total_len
    last, pieces, base = offsets[-1], b"", 0
    keep = [n for n, offset in enumerate(offsets) if offset % 3 or offset == last]
    for start in range(0, len(keep), 8):
        part = keep[start : start + 8]
        deltas = [offsets[n] - base for n in part]
        places.append(len(pieces))
        pieces += b"".join(
            codec.encode_batch(
                base, [times[n] for n in part], None, None, [0] * len(part), [QUEUE], [b""] * len(part),
                [bodies[n] for n in part], offset_deltas=deltas, salt=header.salt, level=level,
            )
        )  # fmt: skip
        base = offsets[part[-1]] + 1
    made.segment(0).write_bytes(pieces)
    made.index(0).write_bytes(index.encode_head(0) + index.encode_entries([index.IndexEntry(0, 0, times[keep[0]])]))
    return places


@pytest.mark.parametrize("level", [0, 3])
def test_a_segment_that_was_rewritten_is_healthy(made: Made, level: int) -> None:
    places = rewritten(made, level)
    assert [finding for finding in check(made.root) if "entries of" not in finding.text] == []
    batch = codec.decode_header(made.segment(0).read_bytes(), places[1])
    made.flip(made.segment(0), places[1] + 80)
    found = next(each for each in check(made.root) if each.kind == "damaged")
    assert (found.first_offset, found.start, found.end) == (batch.base_offset, places[1], places[2])


def test_a_frame_that_cannot_be_unpacked_is_reported(made: Made) -> None:
    places = rewritten(made, 3)
    data = bytearray(made.segment(0).read_bytes())
    end = places[2] - 8
    data[end - 40 : end] = bytes(40)
    pack_into("<I", data, places[1] + 12, crc32(data[places[1] + 16 : places[2]]))
    made.segment(0).write_bytes(data)
    assert "contradiction" in kinds(made.root)


def contradicted(made: Made, number: int, change: Callable[[bytearray, codec.BatchHeader], None]) -> Finding:
    made.rewrite(0, number, change)
    (found,) = check(made.root)
    return found


def test_columns_that_contradict_one_another_are_reported(made: Made) -> None:
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


def test_names_that_are_no_text_are_reported(made: Made) -> None:
    def change(batch: bytearray, header: codec.BatchHeader) -> None:
        at = header.columns.names + 4
        batch[at] = 0xFF

    found = contradicted(made, 3, change)
    assert found.kind == "contradiction" and "UTF-8" in found.text


def test_receive_times_that_fall_are_reported(made: Made) -> None:
    def change(batch: bytearray, header: codec.BatchHeader) -> None:
        for at in (24, 32, 64):
            pack_into("<q", batch, at, NOW - 1_000)

    assert contradicted(made, 3, change).kind == "times"


def test_a_header_with_other_times_than_its_column_is_reported(made: Made) -> None:
    assert contradicted(made, 3, lambda batch, header: pack_into("<q", batch, 64, NOW)).kind == "contradiction"


def test_a_foreign_salt_is_reported(made: Made) -> None:
    assert contradicted(made, 3, lambda batch, header: pack_into("<I", batch, 60, 1)).kind == "salt"


def test_a_batch_of_a_newer_version_is_reported(made: Made) -> None:
    at, header = made.batches(0)[3]
    data = bytearray(made.segment(0).read_bytes())
    end = at + header.total_len
    data[at + 4] = ord("3")
    made.segment(0).write_bytes(data)
    assert kinds(made.root) == ["damaged"], "one flipped bit makes another digit"
    data[at:end] = newer(bytes(data[at : at + 64]), tail=bytes(data[at + 64 : end]))
    made.segment(0).write_bytes(data)
    (found,) = check(made.root)
    assert (found.kind, found.start, found.end) == ("version", at, end)
