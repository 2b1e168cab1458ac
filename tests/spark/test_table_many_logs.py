"""``table`` and a replay over files with records of many logs: by destination, partition, time, offset and version."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from radiator.archive.manifest import load
from radiator.archive.opening import open_files
from radiator.archive.run import Options, run
from radiator.archive.split import Settings
from radiator.archive.versions import load_as_of
from radiator.columns.selection import Selection
from radiator.replay import archived, shelf
from radiator.replay.sources import Sources
from radiator.spark import table
from tests.archive.stores import log_rows, name_of, write_logs
from tests.spark.stores import START_NS, Writer

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

Keys = set[tuple[str, int]]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Fifteen logs; the archive has them in one merged file and some small ones, and the log has more."""
    root = tmp_path_factory.mktemp("many")
    writer = Writer(root / "data", 4096)
    options = Options(settings=Settings("", group_rows=50))
    for part in range(3):
        write_logs(writer, range(15), 40, first=1000 * part)
        if part < 2:
            run(str(root / "data"), open_files(root / "archive"), replace(options, merge=part == 0))
    writer.close()
    return writer.root, str(root / "archive")


def keys(df: Any) -> list[tuple[str, int]]:
    return sorted((row.partition, row.offset) for row in df.select("partition", "offset").collect())


def expected(store: tuple[str, str], wanted: Any) -> list[tuple[str, int]]:
    return sorted(key for key, row in log_rows(store[0]).items() if wanted(row))


CHOICES: list[tuple[dict[str, Any], Any]] = [
    ({}, lambda row: True),
    ({"destination": name_of(5)}, lambda row: row["destination"] == name_of(5)),
    ({"destination": f"{name_of(5)}.x,{name_of(6)}"},
     lambda row: row["destination"] in (f"{name_of(5)}.x", name_of(6))),
    ({"partition": name_of(7)}, lambda row: row["partition"] == name_of(7)),
    ({"partition": name_of(5), "destination": f"/topic/device0005.*,{name_of(6)}"},
     lambda row: row["destination"] == f"{name_of(5)}.x"),
    ({"end": START_NS + 20 * 10**6}, lambda row: row["receive_ns"] < START_NS + 20 * 10**6),
]  # fmt: skip


@pytest.mark.parametrize(("given", "wanted"), CHOICES)
def test_a_table_has_the_chosen_records_once(
    spark: Any, store: tuple[str, str], given: dict[str, Any], wanted: Any
) -> None:
    assert any(len(each.spans) > 1 for each in load(open_files(store[1])).files.values())
    found = keys(table(spark, *store, **given))
    assert found == expected(store, wanted)
    assert found


def test_an_earlier_version_of_the_archive_is_read(spark: Any, store: tuple[str, str]) -> None:
    files = open_files(store[1])
    for version in range(load(files).version + 1):
        ends = load_as_of(files, version).ends
        assert keys(table(spark, None, store[1], as_of=version)) == expected(
            store, lambda row, ends=ends: row["offset"] < ends.get(row["partition"], 0)
        )


def test_a_replay_has_each_record_in_the_order_of_receiving(
    store: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader keeps one file open at a time, whatever the number of its logs."""
    shutil.copytree(store[1], tmp_path / "archive")
    assert not run(store[0], open_files(tmp_path / "archive"), Options(merge=True, archive=False)).problems
    monkeypatch.setattr(archived, "FILES_MAX", 1)
    monkeypatch.setattr(shelf, "PIECE_BYTES", 5000)
    for choice in (
        Selection(),
        Selection().destination("in", name_of(5), name_of(6)),
        Selection().partition("in", name_of(10)).offsets(3, 50),
        Selection(starts={name_of(5): 20}),
    ):
        found, alone = (
            [
                (row.partition, row.offset, row.destination)
                for row in Sources(choice, store[0], place, lambda *_: None).rows()
            ]
            for place in (str(tmp_path / "archive"), None)
        )
        assert found == alone
        assert found
