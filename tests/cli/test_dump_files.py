"""dump of every file of a data directory but the segments: what stands there, and what is damaged."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from radiator.cli.main import run
from radiator.storage import archived, layout
from radiator.storage.dedup_file import encode_block
from radiator.storage.files import FileSystem
from radiator.storage.header import decode_header
from radiator.upkeep.show import FILES, reader_of
from tests.storage import former_redo_log
from tests.storage.driving import ALWAYS, NOW, commit, opened, put


@pytest.fixture
def root(tmp_path: Path) -> Path:
    store, _ = opened(root=str(tmp_path / "data"))
    for number in range(4):
        put(store.partition("shared", ALWAYS), b"%d" % number * 30_000, destination=f"/topic/{number % 2}")
        commit(store)
    cursor = store.cursors.open("queue:/topic/0", "shared", 0)
    cursor.ack([0, 2])
    cursor.set_count(3, 4)
    cursor.delivered = 4
    commit(store)
    store.close()
    return tmp_path / "data"


def lines(path: Path, capfd: pytest.CaptureFixture[str], code: int = 0) -> list[dict[str, Any]]:
    assert run(["dump", str(path), "--json"]) == code
    return [json.loads(line) for line in capfd.readouterr().out.splitlines()]


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_every_file_of_a_data_directory_is_printed(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for path in root.rglob("*"):
        if path.is_file():
            assert run(["dump", str(path)]) == 0, path
            assert capfd.readouterr().out, path


def test_head_index_and_names_are_shown_with_their_places(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    directory = root / "partitions" / "shared"
    (head,) = lines(directory / "head", capfd)
    assert (head["segment_base"], head["next_offset"]) == (0, 4)
    assert head["position"] == (directory / f"{0:020}.rlog").stat().st_size
    base, *entries = lines(directory / f"{0:020}.idx", capfd)
    assert (base["what"], base["segment_base"]) == ("index", 0)
    assert [(each["base_offset"], each["start"]) for each in entries] == [(0, 32), (3, 64)]
    assert entries[0]["min_receive_ns"] == NOW
    found = lines(directory / "names", capfd)
    assert [each["destination"] for each in found] == ["/topic/0", "/topic/1"]


def test_the_files_of_the_cursors_are_shown(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (delivered,) = lines(root / "cursors" / "delivered", capfd)
    assert (delivered["slot"], delivered["offset"]) == (0, 4)
    snapshot, _, create, acked, counts, covers = lines(root / "cursors" / "snapshot", capfd)
    assert (create["what"], create["name"], create["partition"]) == ("create", "queue:/topic/0", "shared")
    assert (covers["what"], covers["cursors_to"], covers["entries_to"]) == ("covers", 1, 6)
    assert (
        snapshot["generation"] == 1
        and counts["deliveries"] == [[3, 4]]
        and create["floor"] == 1
        and acked["intervals"] == [[2, 3]]
    )
    assert run(["dump", str(root / "cursors" / "snapshot")]) == 0
    assert "acked cursor=1 intervals=2:3" in capfd.readouterr().out


def test_the_redo_log_of_transactions_is_shown(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    segment = (root / "partitions" / "shared" / f"{0:020}.rlog").read_bytes()
    batch = segment[: decode_header(segment).total_len]
    part = former_redo_log.encode_batch_part("shared", [batch])
    path = Path(layout.transactions_path(str(root)))
    entries = [former_redo_log.encode_entry(serial, [part]) for serial in (7, 8, 3)]
    path.write_bytes(b"".join(entries) + bytes(80))
    found = lines(path, capfd)
    assert [(each["what"], each.get("serial")) for each in found] == [
        ("entry", 7), ("batch", None), ("entry", 8), ("batch", None), ("left over", 3)
    ]  # fmt: skip
    assert (found[1]["partition"], found[1]["base_offset"], found[1]["records"]) == ("shared", 0, 1)
    flip(path, 40)
    assert [each.get("serial") for each in lines(path, capfd, 6) if each.get("what") == "entry"] == [8]


def test_a_file_of_the_journal_is_shown(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    store, _ = opened(root=str(tmp_path))
    logs = [store.partition(name, ALWAYS) for name in ("shared", "other")]
    cursor = store.cursors.open("c", "shared", 0)
    for number in range(3):
        for log in logs:
            put(log, b"%d" % number)
        store.together(logs, [(cursor, [number])], lambda holds: None)
        commit(store)
    cursor.set_count(2, 4)
    commit(store)
    path = Path(layout.journal_file_path(layout.journal_path(str(tmp_path)), 1))
    head, *found = lines(path, capfd)
    assert (head["what"], head["number"], head["first_entry"], head["epoch"]) == ("journal", 1, 1, 1)
    batches = ["entry", "batch", "batch"]
    assert [each["what"] for each in found] == [
        *batches, "create", "acked", "create", *batches, "create", "acked", *batches, "create", "acked",
        "entry", "counts",
    ]  # fmt: skip
    second = found[6]
    assert [each["number"] for each in found if each["what"] == "entry"] == [1, 2, 3, 4]
    assert [each["partition"] for each in found if each["what"] == "batch"] == ["shared", "other"] * 3
    path.write_bytes(path.read_bytes()[: found[-1]["end"]] + b"of an earlier use")
    assert lines(path, capfd)[-1]["what"] == "left over"
    flip(path, second["start"] + 50)
    told = lines(path, capfd, 6)
    assert [each["number"] for each in told if each.get("what") == "entry"] == [1, 3, 4]
    (damage,) = [each["damage"] for each in told if "damage" in each]
    assert (damage["position"], damage["end"]) == (second["start"], second["end"])
    flip(path, 9)
    assert len(lines(path, capfd, 6)) == 1
    store.close()


def test_ids_and_how_far_an_archive_is_are_shown(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    directory = root / "partitions" / "shared"
    row = bytes(range(16)) + (2).to_bytes(8, "little") + NOW.to_bytes(8, "little")
    (directory / "dedup").write_bytes(encode_block(0, 1, b"") + encode_block(1, 4, row))
    first, second, known = lines(directory / "dedup", capfd)
    assert (first["covered"], second["before"], second["covered"]) == (1, 1, 4)
    assert (known["id"], known["offset"], known["receive_time"]) == (bytes(range(16)).hex(), 2, NOW)
    (directory / "dedup").write_bytes(encode_block(0, 1, b"") + encode_block(1, 4, row)[:-1])
    assert len(lines(directory / "dedup", capfd, 6)) == 2
    archived.write(FileSystem(), str(directory), 3)
    assert lines(directory / "archived", capfd)[0]["next_offset"] == 3


@pytest.mark.parametrize(
    ("name", "at"),
    [
        ("salt", 10), ("partitions/shared/head", 9), ("partitions/shared/names", 30),
        ("partitions/shared/00000000000000000000.idx", 70), ("cursors/snapshot", 50),
    ],
)  # fmt: skip
def test_damage_is_told_and_has_its_exit_code(
    name: str, at: int, root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    opened(root=str(root))[0].close()
    flip(root / name, at)
    assert run(["dump", str(root / name), "--hex"]) == 6
    err = capfd.readouterr().err
    assert "damage at bytes" in err and "00000" in err


def test_the_head_of_a_damaged_range_is_shown_in_hex(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    segment = root / "partitions" / "shared" / f"{0:020}.rlog"
    flip(segment, 100)
    assert run(["dump", str(segment), "--batches", "--hex"]) == 6
    out, err = capfd.readouterr()
    assert "00000000  89 52 44 42 31 0d 0a 1a" in err and "|.RDB1..." in err
    assert len(err.splitlines()) == 1 + 16
    assert len(out.splitlines()) == 3 and "salt" in out and "flags no-event-time,no-transmit-time" in out
    assert run(["fsck", "--data", str(root), "--repair"]) == 0
    capfd.readouterr()
    (kept,) = (root / "quarantine").rglob("*.bin")
    assert run(["dump", str(kept)]) == 0
    assert capfd.readouterr().out.startswith("00000000  89 52 44 42 31")


def test_the_table_knows_the_files_by_their_names(root: Path) -> None:
    assert len({about for _, about, _ in FILES}) == len(FILES)
    assert reader_of("notes.txt") is None and reader_of("head") is not None
    for path in root.rglob("*"):
        known = reader_of(path.name) is not None or layout.segment_base(path.name) is not None
        assert known or path.is_dir() or path.name in os.listdir(root / "partitions"), path
