"""ls and dump of segments that were compressed and have holes: the sample of the format, as a broker leaves it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from radiator.cli.main import run

SAMPLE = Path(__file__).parents[1] / "formats" / "v1-rewritten"
LOG = "%2Ftopic%2Flog"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    shutil.copytree(SAMPLE, tmp_path / "data")
    return tmp_path / "data"


def lines(capfd: pytest.CaptureFixture[str], *args: str, code: int = 0) -> list[dict[str, Any]]:
    assert run([*args, "--json"]) == code
    return [json.loads(line) for line in capfd.readouterr().out.splitlines()]


def test_ls_counts_records_not_offsets(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (listed,) = lines(capfd, "ls", "--data", str(root))
    found = {each["partition"]: each for each in listed["partitions"]}
    assert (found["/topic/log"]["next_offset"], found["/topic/log"]["records"]) == (20, 15)
    assert (found["/queue/orders"]["next_offset"], found["/queue/orders"]["records"]) == (12, 9)
    assert found["/topic/log"]["newest_receive_ns"] - found["/topic/log"]["oldest_receive_ns"] == 16_000


def test_dump_shows_what_is_left_under_its_offsets(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = lines(capfd, "dump", str(root / "partitions" / LOG))
    assert [int(each["offset"]) for each in found] == [3, 4, 5, *range(8, 20)]
    assert all(each["body"] == f"line {each['offset']} " * 20 for each in found)


def test_dump_of_batches_says_what_they_cover(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = lines(capfd, "dump", "--batches", str(root / "partitions" / LOG))
    assert [(each["base_offset"], each["next_offset"], each["records"]) for each in found[:4]] == [
        (0, 5, 2),
        (5, 10, 3),
        (10, 13, 3),
        (13, 15, 2),
    ]
    assert [each["compressed"] for each in found] == [True] * 4 + [False] * 5
    assert run(["dump", "--batches", str(root / "partitions" / LOG)]) == 0
    first = capfd.readouterr().out.splitlines()[0]
    assert "offsets 0 to 4, 2 records" in first and "zstd" in first


def test_damage_between_removed_records_is_reported_and_skipped(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = root / "partitions" / LOG / f"{10:020}.rlog"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    damage, first, _ = lines(capfd, "dump", str(path), code=6)
    assert "crc" in damage["damage"]["reason"] and int(first["offset"]) == 13
