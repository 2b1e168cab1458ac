"""Logs that are not the ones of which an archive has the beginning, and logs that are, whatever became of them."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from radiator.archive.actions import decode, encode
from radiator.archive.lineage import LineageCheck, Lookup, OtherLog, look_up
from radiator.archive.manifest import CHECKPOINT_COMMITS, Anchor, Changes, State, commit, load
from radiator.archive.opening import open_files
from radiator.archive.paths import checkpoint_path, commit_path
from radiator.archive.run import Outcome, preview, run
from radiator.columns.files import open_store
from radiator.columns.log import partitions
from radiator.errors import StorageError
from radiator.storage import archived
from radiator.storage.files import FileSystem
from radiator.storage.layout import partition_path
from radiator.storage.reader import StoredPartition
from tests.archive.killing import EAGER, check_all, run_until
from tests.archive.stores import archive_rows, log_rows, more, sealed_ends
from tests.archive.test_manifest import data_file
from tests.spark.stores import Writer
from tests.storage.rewriting import everything, rewritten
from tests.tiers import sampled

LATER = 100_000  # of a record, and so of its time


def go(root: Path) -> Outcome:
    return run(str(root / "data"), open_files(root / "archive"), EAGER)


def state_of(root: Path) -> State:
    return load(open_files(root / "archive"))


def log_of(root: Path, name: str = "flights") -> StoredPartition:
    return next(each for each in partitions(open_store(str(root / "data"))) if each.name == name)


def segments(root: Path) -> list[Path]:
    return sorted(Path(partition_path(str(root / "data"), "flights")).glob("*.rlog"))


def write(root: Path, count: int, first: int = LATER, **how: int) -> None:
    writer = Writer(root / "data", 64 * 1024)
    more(writer, count=count, first=first, **how)
    writer.close()


def restored(root: Path, then: int, **how: int) -> None:
    """A backup of 500 records, an archive of most of 1500, the backup again, and others instead of what had come."""
    write(root, 500, 0)
    shutil.copytree(root / "data", root / "backup")
    write(root, 1000, 500)
    go(root)
    shutil.rmtree(root / "data")
    shutil.copytree(root / "backup", root / "data")
    write(root, then, **how)


def recreated(root: Path, count: int, **how: int) -> None:
    write(root, 1500, 0)
    go(root)
    shutil.rmtree(partition_path(str(root / "data"), "flights"))
    write(root, count, **how)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("history", "text"),
    [
        (partial(restored, then=2000), "was received at 2023-11-17T.*Z, the log's one at 2024-"),
        (partial(restored, then=1000, first=500, destinations=2), "the log's one too, but its digest is"),
        (partial(recreated, count=2500), "was received at 2023-.*Z, the log's one at 2024-"),
        (partial(recreated, count=1500, first=0, destinations=1), "the log's one too, but its digest is"),
    ],
)
def test_another_log_that_has_grown_beyond_the_archive_is_refused_and_nothing_of_it_is_marked(
    tmp_path: Path, history: Callable[[Path], None], text: str
) -> None:
    history(tmp_path)
    with_others = Writer(tmp_path / "data", 64 * 1024)
    more(with_others, "sound", 600, first=LATER)
    with_others.close()
    before = archive_rows(tmp_path / "archive")
    end = state_of(tmp_path).ends["flights"]
    assert sealed_ends(tmp_path / "data")["flights"] > end or "digest" in text
    archived.write(FileSystem(), partition_path(str(tmp_path / "data"), "flights"), end)  # as after a power cut
    files = open_files(tmp_path / "archive")
    assert re.search(text, preview(str(tmp_path / "data"), files, EAGER).problems["flights"])
    for _ in range(2):
        out = go(tmp_path)
        assert "restored from an older copy" in out.problems["flights"]
        assert "archive it to a new place" in out.problems["flights"]
    now = archive_rows(tmp_path / "archive")
    assert {key: row for key, row in now.items() if key[0] == "flights"} == before
    assert state_of(tmp_path).ends["flights"] == end
    assert archived.read(FileSystem(), partition_path(str(tmp_path / "data"), "flights")) == 0
    assert state_of(tmp_path).ends["sound"] == sealed_ends(tmp_path / "data")["sound"]
    new = run(str(tmp_path / "data"), open_files(tmp_path / "new"), EAGER)
    assert not new.problems
    check_all(tmp_path / "data", tmp_path / "new")


def test_a_log_that_went_on_is_known_after_everything_that_removes_and_rewrites(tmp_path: Path) -> None:
    write(tmp_path, 2000, 0)
    go(tmp_path)
    anchor = state_of(tmp_path).anchors["flights"]
    end = state_of(tmp_path).ends["flights"]
    row = archive_rows(tmp_path / "archive")["flights", end - 1]
    assert (anchor.offset, anchor.receive_ns) == (end - 1, row["receive_ns"])
    last = segments(tmp_path)[-2]
    data = last.read_bytes()
    for keep in (everything, lambda offset: offset % 3 == 0, lambda offset: False):
        last.write_bytes(rewritten(data, int(last.stem), keep, 3, 40))
        assert look_up(FileSystem(), log_of(tmp_path), anchor.offset) == Lookup(anchor)
        assert not go(tmp_path).problems
    write(tmp_path, 500, 2000)
    for path in segments(tmp_path)[:-1]:
        if int(path.stem) < end:
            path.unlink()  # retention, beyond the anchor
    assert log_of(tmp_path).log_start_offset == end
    out = go(tmp_path)
    assert not out.problems
    assert out.records
    assert state_of(tmp_path).anchors["flights"].offset == sealed_ends(tmp_path / "data")["flights"] - 1


@pytest.mark.parametrize("kept", [1, 20, 21, 300])
def test_where_the_record_was_removed_its_neighbours_decide(tmp_path: Path, kept: int) -> None:
    """By when they were received: what came before it lies before it."""
    write(tmp_path, 2000, 0)
    log = log_of(tmp_path)
    rows = log_rows(tmp_path / "data")
    sealed = log.segments[-2]
    offset = sealed.base_offset + kept
    path = Path(sealed.path)
    path.write_bytes(rewritten(path.read_bytes(), sealed.base_offset, lambda each: each != offset, 3, 20))
    before, missing, after = (rows["flights", offset + delta]["receive_ns"] for delta in (-1, 0, 1))
    assert look_up(FileSystem(), log, offset) == Lookup(None, before, after)

    def checked(receive_ns: int) -> None:
        anchors = {"flights": Anchor(offset, receive_ns, "0" * 32)}
        LineageCheck(FileSystem(), State(ends={"flights": sealed.end_offset}, anchors=anchors)).check(log)

    for ns in (before, missing, after):
        checked(ns)
    with pytest.raises(OtherLog, match="the log has one after it of"):
        checked(after + 1)
    with pytest.raises(OtherLog, match="the log has one before it of"):
        checked(before - 1)


def test_a_record_at_the_beginning_of_a_segment_has_its_neighbour_in_the_one_before(tmp_path: Path) -> None:
    write(tmp_path, 2000, 0)
    log, rows = log_of(tmp_path), log_rows(tmp_path / "data")
    sealed = log.segments[-2]
    offset, path = sealed.base_offset, Path(sealed.path)
    path.write_bytes(rewritten(path.read_bytes(), offset, lambda each: each != offset, 3, 20))
    assert look_up(FileSystem(), log, offset) == Lookup(
        None, rows["flights", offset - 1]["receive_ns"], rows["flights", offset + 1]["receive_ns"]
    )


def test_damage_where_the_archive_ends_is_no_other_log(tmp_path: Path) -> None:
    write(tmp_path, 2000, 0)
    go(tmp_path)
    path = segments(tmp_path)[-2]
    data = bytearray(path.read_bytes())
    data[-9] ^= 1
    path.write_bytes(data)
    write(tmp_path, 1000, 2000)
    out = go(tmp_path)
    assert not out.problems
    assert out.records


def test_a_receive_time_that_no_crc_covers_is_no_other_log(tmp_path: Path) -> None:
    write(tmp_path, 2000, 0)
    go(tmp_path)
    archived_end = state_of(tmp_path).ends["flights"]
    write(tmp_path, 1500, 2000)
    left = [path for path in segments(tmp_path) if int(path.stem) >= archived_end]
    for path in set(segments(tmp_path)) - set(left):
        path.unlink()
    data = bytearray(left[0].read_bytes())
    data[24 + 7] ^= 1 << 4  # min_receive_ns: 36 years earlier
    before = log_of(tmp_path).segments[0].first_receive_ns
    left[0].write_bytes(data)
    after = log_of(tmp_path).segments[0].first_receive_ns
    assert before is not None and after is not None and after < before
    (problem,) = go(tmp_path).problems.values()
    assert "20 records) cannot be read" in problem  # its own batch, and nothing else


def test_a_log_that_begins_where_retention_had_been_is_another_one(tmp_path: Path) -> None:
    write(tmp_path, 1500, 0)
    go(tmp_path)
    write(tmp_path, 1000, 1500)
    middle = [path for path in segments(tmp_path) if int(path.stem) <= 1700]
    shutil.copytree(tmp_path / "data", tmp_path / "backup")
    write(tmp_path, 1000, 2500)
    for path in segments(tmp_path)[:-1]:
        path.unlink()
    assert go(tmp_path).lost  # all that was new: the anchor lies far below
    shutil.rmtree(tmp_path / "data")
    shutil.copytree(tmp_path / "backup", tmp_path / "data")
    for path in middle:
        path.unlink()
    write(tmp_path, 3000, LATER)
    assert log_of(tmp_path).log_start_offset > state_of(tmp_path).anchors["flights"].offset
    assert "and began at" in go(tmp_path).problems["flights"]


def test_merges_leave_the_anchors(tmp_path: Path) -> None:
    write(tmp_path, 2000, 0, days=1)
    files = open_files(tmp_path / "archive")
    run(str(tmp_path / "data"), files, replace(EAGER, unit_bytes=1, merge=False))
    before = load(files)
    assert before.anchors["flights"].offset == before.ends["flights"] - 1
    assert run(str(tmp_path / "data"), files, replace(EAGER, merge=True)).merged_to
    assert load(files).anchors == before.anchors


def test_checkpoints_have_the_anchors(tmp_path: Path) -> None:
    files = open_files(tmp_path)
    for number in range(CHECKPOINT_COMMITS + 1):
        name, end = f"p{number % 7}", 10 + number
        anchors = {name: Anchor(end - 1, number, f"{number:032x}")}
        added = data_file(end - 1, end, partition=name)
        state = load(files)
        assert isinstance(commit(files, state, Changes("s", add=[added], ends={name: end}, anchors=anchors)), State)
    before = load(files)
    assert before.anchors == {
        f"p{number % 7}": Anchor(9 + number, number, f"{number:032x}")
        for number in range(CHECKPOINT_COMMITS - 6, CHECKPOINT_COMMITS + 1)
    }
    for version in range(CHECKPOINT_COMMITS):
        files.remove(commit_path(version))
    assert load(files) == before
    files.remove(checkpoint_path(CHECKPOINT_COMMITS - 1))
    with pytest.raises(StorageError, match="is missing"):
        load(files)


def without_anchors(root: Path) -> None:
    """As commits were before there were any."""
    files = open_files(root / "archive")
    for version in range(load(files).version + 1):
        path = Path(files.address(commit_path(version)))
        made = decode(path.read_bytes())
        for each in made:
            if "add" in each:
                facts = json.loads(each["add"]["tags"]["radiator"])
                facts.pop("anchors", None)
                each["add"]["tags"]["radiator"] = json.dumps(facts)
        path.write_bytes(encode({"engineInfo": "radiator"}, made[1:]))


def test_commits_without_anchors_are_read_with_the_last_time_of_their_files(tmp_path: Path) -> None:
    write(tmp_path, 1500, 0)
    go(tmp_path)
    without_anchors(tmp_path)
    state = state_of(tmp_path)
    assert state.anchors == {}
    row = archive_rows(tmp_path / "archive")["flights", state.ends["flights"] - 1]
    assert LineageCheck(FileSystem(), state).anchor("flights") == Anchor(row["offset"], row["receive_ns"], "")
    shutil.copytree(tmp_path, tmp_path / "other")
    write(tmp_path, 1000, 1500)
    assert not go(tmp_path).problems
    assert state_of(tmp_path).anchors["flights"].digest
    shutil.rmtree(partition_path(str(tmp_path / "other/data"), "flights"))
    write(tmp_path / "other", 2500)
    assert "the log's one at" in go(tmp_path / "other").problems["flights"]


def test_killed_at_any_step_the_anchor_is_of_what_the_archive_has(tmp_path: Path) -> None:
    write(tmp_path, 900, 0, days=1)
    _, steps = run_until(None, tmp_path / "data", tmp_path / "whole")
    for step in range(0, steps, 3):
        archive = tmp_path / str(step)
        run_until(step, tmp_path / "data", archive)
        rows, state = archive_rows(archive), load(open_files(archive))
        for name, anchor in state.anchors.items():
            assert anchor.offset == state.ends[name] - 1
            assert rows[name, anchor.offset]["receive_ns"] == anchor.receive_ns
        assert run_until(None, tmp_path / "data", archive)[0] is not None
        shutil.rmtree(archive)


@pytest.mark.parametrize(
    "seed", [*sampled(range(6), 2), *(pytest.param(n, marks=pytest.mark.slow) for n in range(100, 300))]
)
def test_in_any_history_of_backups_a_run_refuses_what_is_other_and_nothing_else(tmp_path: Path, seed: int) -> None:
    """Each record has its own number; so what two histories have in common can be told."""
    dice = random.Random(seed)
    written, backups = 0, 0
    other = False  # whether the log has something else than the archive below the archive's end
    write(tmp_path, 100, 0, days=1)
    for _ in range(12):
        what = dice.choice(["write", "write", "run", "run", "back up", "restore", "born again", "retain", "rewrite"])
        if what == "write":
            written += 10_000
            write(tmp_path, dice.randrange(100, 900), written, destinations=dice.choice([1, 3]), days=1)
        elif what == "back up":
            shutil.copytree(tmp_path / "data", tmp_path / f"backup{backups}")
            backups += 1
        elif what == "restore" and backups:
            shutil.rmtree(tmp_path / "data")
            shutil.copytree(tmp_path / f"backup{dice.randrange(backups)}", tmp_path / "data")
        elif what == "born again" and not dice.randrange(3):
            shutil.rmtree(partition_path(str(tmp_path / "data"), "flights"))
            written += 10_000
            write(tmp_path, dice.randrange(100, 2500), written, days=1)
        elif what == "retain":
            end = archived.read(FileSystem(), partition_path(str(tmp_path / "data"), "flights"))
            for one, two in list(pairwise(segments(tmp_path)))[: dice.randrange(3)]:
                if int(two.stem) <= end:
                    one.unlink()
        elif what == "rewrite" and len(segments(tmp_path)) > 1:
            chosen = dice.choice(segments(tmp_path)[:-1])
            if not next(each for each in log_of(tmp_path).segments if each.path == str(chosen)).sparse:
                by = dice.choice([1, 2, 5])
                data = rewritten(chosen.read_bytes(), int(chosen.stem), lambda at, by=by: at % by == 0, 3, 40)
                chosen.write_bytes(data)
        elif what == "run":
            archive = tmp_path / "archive"
            had = archive_rows(archive) if archive.exists() else {}
            ends = state_of(tmp_path).ends if archive.exists() else {}
            log, end = log_rows(tmp_path / "data"), ends.get("flights", 0)
            other = log_of(tmp_path).next_offset < end or any(had[key] != row for key, row in log.items() if key in had)
            out = go(tmp_path)
            assert bool(out.problems) == other, out.problems
            if other:
                assert archive_rows(archive) == had
                assert archived.read(FileSystem(), partition_path(str(tmp_path / "data"), "flights")) == 0
