"""What goes from the log into the archive while a replay runs: the archiver is the real one, and so is retention."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from radiator.archive import open_files, parquet
from radiator.archive.run import Options, run
from radiator.columns.selection import Selection
from radiator.replay import archived as replayed
from radiator.replay import sources
from radiator.replay.sources import Sources
from radiator.storage import archived
from radiator.storage.files import FileSystem
from radiator.storage.reader import list_partitions
from radiator.storage.sweep import EVERY_NS
from tests.clocks import both
from tests.spark.stores import MS, START_NS, Writer, numbered

COUNT = 2400
LATER_NS = START_NS + 3600 * 10**9


class Store:
    """1,200 records each of a and b in one log of many segments, and an archive of the first third of them."""

    def __init__(self, root: Path) -> None:
        self.data, self.archive = str(root / "data"), str(root / "archive")
        self.writer = Writer(self.data, 64 * 1024)
        self.writer.options = replace(self.writer.options, retention_count=1, wait_for_archive=True)
        a, b = numbered("/topic/a", COUNT // 2, step_ns=2 * MS), numbered("/topic/b", COUNT // 2, step_ns=2 * MS)
        records = [each._replace(body=each.body * 60) for pair in zip(a, b, strict=True) for each in pair]
        self.writer.write("p", records[: COUNT // 3], 10)
        self.archiver()
        self.writer.write("p", records[COUNT // 3 :], 10)

    def archiver(self, merge: bool | None = False) -> None:
        run(self.data, open_files(self.archive), Options(merge=merge))

    def retention(self) -> int:
        """All that it may take goes. The first offset that is left."""
        start, after = -1, self.start
        now_ns = LATER_NS
        while start < after:
            start = after
            for _ in range(5):
                now_ns += EVERY_NS  # each tick looks at all logs
                self.writer.store.tick(both(now_ns))
                self.writer.commit(now_ns)
            after = self.start
        return after

    @property
    def start(self) -> int:
        return list_partitions(self.data)[0].log_start_offset


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path)
    yield made
    made.writer.close()


def reading(store: Store, losses: list[Any], choice: Selection | None = None, archive: bool = True) -> Sources:
    def lost(*told: Any) -> None:
        losses.append(told)

    return Sources(choice or Selection(), store.data, store.archive if archive else None, lost)


def offsets(made: Sources, at: int, then: Any) -> list[int]:
    """All of them; something happens when so many rows have come."""
    found = []
    for row in made.rows():
        found.append(row.offset)
        if len(found) == at:
            then()
    return found


@pytest.mark.parametrize("log_first", [True, False])
def test_archiver_and_retention_around_the_look_at_the_log(
    store: Store, log_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(data: str) -> Any:
        found = list_partitions(data) if log_first else None
        store.archiver()
        assert store.retention() > COUNT // 3
        return found or list_partitions(data)

    monkeypatch.setattr(sources, "list_partitions", late)
    losses: list[Any] = []
    assert [row.offset for row in reading(store, losses).rows()] == list(range(COUNT))
    assert losses == []


@pytest.mark.parametrize("at", [1, COUNT // 2, COUNT - 500])
def test_what_goes_while_it_is_read_is_taken_from_the_archive_once_and_in_order(
    store: Store, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "HELD_BYTES", 1)
    losses: list[Any] = []

    def meanwhile() -> None:
        store.archiver()
        assert store.retention() > COUNT - 200

    assert offsets(reading(store, losses), at, meanwhile) == list(range(COUNT))
    assert losses == []


def test_what_goes_is_chosen_as_ever(store: Store) -> None:
    losses: list[Any] = []
    chosen = Selection().destination("pattern", "/topic/b").received(START_NS + 100 * MS).offsets(high=COUNT - 300)
    made = reading(store, losses, chosen)

    def meanwhile() -> None:
        store.archiver()
        store.retention()

    assert offsets(made, 1, meanwhile) == list(range(101, COUNT - 300, 2))
    assert losses == []


def test_files_that_are_merged_before_they_are_read_are_found_again(store: Store) -> None:
    losses: list[Any] = []
    made = reading(store, losses)

    def meanwhile() -> None:
        store.archiver()
        store.retention()
        store.archiver(merge=True)

    first = next(made.rows())
    meanwhile()
    assert first.offset == 0
    assert [row.offset for row in made.rows()] == list(range(COUNT))
    assert losses == []


def test_files_that_are_merged_while_they_are_read_are_found_again_where_an_open_file_keeps_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in an object store, whose driver says it in its own words."""
    store.archiver()
    store.retention()
    losses: list[Any] = []
    made, merged = reading(store, losses), list[str]()

    def reader(file: Any, **options: Any) -> Any:
        if not merged:
            store.archiver(merge=True)
            merged.append(file.name)
            os.unlink(file.name)  # as a later run does, when the retention of merged files ends
            raise OSError("NoSuchKey: the specified key does not exist")
        return parquet.reader(file, **options)

    monkeypatch.setattr(replayed, "reader", reader)
    assert [row.offset for row in made.rows()] == list(range(COUNT))
    assert losses == [] and not Path(merged[0]).exists()


def test_what_neither_has_is_reported_and_only_that(store: Store) -> None:
    losses: list[Any] = []
    made = reading(store, losses)
    (log,) = list_partitions(store.data)

    def somebody_else_says_that_it_is_safe() -> None:
        archived.write(FileSystem(), log.directory, log.next_offset)
        store.retention()

    found = offsets(made, 1, somebody_else_says_that_it_is_safe)
    ((partition, first, last, why),) = losses
    expected = "removed since this replay began, and the archive does not have them yet"
    assert (partition, last, why) == ("p", store.start - 1, expected)
    assert found == [*range(first), *range(store.start, COUNT)]
    assert 0 < first < log.next_offset - 500


def test_without_an_archive_the_loss_is_reported_too(store: Store) -> None:
    losses: list[Any] = []
    made, before = reading(store, losses, archive=False), store.start
    store.archiver()
    start = store.retention()
    assert [row.offset for row in made.rows()] == list(range(start, COUNT))
    assert losses == [("p", before, start - 1, "removed since this replay began")]
