"""A backup of a store whose last transaction is decided, told, and not yet synced in each of its files."""

from __future__ import annotations

import pytest

from radiator.server.group import run_jobs
from radiator.storage.store import Store
from radiator.upkeep.backup import back_up
from radiator.upkeep.copying import Copier
from radiator.upkeep.restore import restore
from tests.storage.driving import NOW, opened, read_all
from tests.storage.faults import FaultyFileSystem
from tests.storage.test_deferred import LOGS, begun, decided, units

NAME = "queue:q"


def restored(fs: FaultyFileSystem) -> Store:
    back_up(fs, "/data", "/backup", now_ns=NOW, version="1")
    restore(fs, "/backup", "/other", Copier(fs))
    return opened(fs, "/other")[0]


@pytest.mark.parametrize("done", [0, 5, LOGS])
def test_it_has_all_of_it_and_what_was_settled_there_stays_settled(done: int) -> None:
    fs = FaultyFileSystem()
    store, logs = begun(fs)
    decided(store, logs)
    units(store, done)
    for log in logs:
        store.cursors.open(NAME, log.name, 0).ack([0, 1])
    store.cursors.hurry()
    for job in run_jobs(store.take(NOW, apart=True)):
        job.done(NOW)
    copy = restored(fs)
    assert len(copy.partitions) == LOGS
    for name, partition in copy.partitions.items():
        cursor = copy.cursors.get(NAME, name)
        assert list(read_all(partition, memory=False).values()) == [b"first", b"part"]
        assert cursor is not None and cursor.floor == 2
