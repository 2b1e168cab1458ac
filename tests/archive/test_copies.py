"""Archiving from a backup or from a mirror's copy changes nothing there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from radiator.archive.opening import open_files
from radiator.archive.run import Watch, run
from radiator.cli.main import run as run_command
from radiator.client import connect
from radiator.mirror.copy import Copy, Record
from radiator.storage import archived
from radiator.storage.copies import kind_of_copy
from radiator.storage.files import FileSystem
from radiator.storage.layout import partition_path
from tests.archive.killing import EAGER
from tests.archive.stores import check_exact, fill, more
from tests.clocks import both
from tests.running import BrokerProcess
from tests.spark.stores import START_NS


def contents(root: Path) -> dict[str, bytes]:
    return {str(each.relative_to(root)): each.read_bytes() for each in root.rglob("*") if each.is_file()}


def test_a_backup_stays_as_it_is_and_can_be_restored(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    writer = fill(tmp_path / "data")
    to = open_files(tmp_path / "archive")
    run(str(tmp_path / "data"), to, EAGER)  # so that the backup has a mark, which is in its manifest
    more(writer, first=2000)
    writer.close()
    backup = tmp_path / "backup"
    assert run_command(["backup", "--data", str(tmp_path / "data"), "--to", str(backup)]) == 0
    before, told = contents(backup), list[str]()
    out = run(str(backup), to, EAGER, Watch(report=told.append))
    assert out.records and not out.problems
    assert any("is a backup" in text for text in told)
    assert contents(backup) == before
    check_exact(tmp_path / "archive", backup)
    export = ["export", "--data", str(backup), "--format", "jsonl", "--to", str(tmp_path / "out"), "--mark-archived"]
    assert run_command(export) == 2
    assert "is a backup" in capfd.readouterr().err
    assert run_command(["restore", str(backup), "--to", str(tmp_path / "restored")]) == 0
    run(str(tmp_path / "restored"), to, EAGER)
    assert archived.read(FileSystem(), partition_path(str(tmp_path / "restored"), "flights")) > 2000


def test_a_mirrors_copy_is_not_marked_until_a_broker_has_it(
    tmp_path: Path, start_broker: Callable[..., BrokerProcess]
) -> None:
    broker = start_broker()
    with connect(broker.address) as connection:
        connection.send("/topic/a", b"x", receipt=True)
    broker.stop()
    copy = Copy(str(broker.data))
    copy.open(both(START_NS))
    copy.add("p", Record(0, "/topic/p", START_NS, None, None, b"", b"x"))
    copy.close(both(START_NS))
    root = str(broker.data)
    assert kind_of_copy(FileSystem(), root) == "a mirror's copy"
    told: list[str] = []
    run(root, open_files(tmp_path / "archive"), EAGER, Watch(report=told.append))
    assert any("is a mirror's copy" in text for text in told)
    assert run_command(["fsck", "--data", root]) == 0
    broker.start()
    assert kind_of_copy(FileSystem(), root) is None


def test_no_mark_says_nothing_of_copies(tmp_path: Path) -> None:
    fill(tmp_path / "data").close()
    (tmp_path / "data" / "mirror").touch()
    told: list[str] = []
    run(str(tmp_path / "data"), open_files(tmp_path / "a"), replace(EAGER, mark=False), Watch(report=told.append))
    assert told == []
