"""A broker with a fault on purpose: ``python -m tests.crash.faulty_broker LIE serve ...``. The judge must notice.

Nothing in the product knows of this; the process replaces a function of it before it starts.
"""

from __future__ import annotations

import mmap
import queue
import sys
import threading
import time
from typing import Any

from radiator.broker.committing import commit
from radiator.cli.main import main
from radiator.server.driver import Driver
from radiator.server.group_commit import InlineCommit
from radiator.storage.cursor_store import CursorJob, CursorStore
from radiator.storage.file_partition import AppendJob
from radiator.storage.files import FileSystem
from radiator.storage.journal.group import GroupJob

LATE_SECONDS = 0.02


def receipts_before_the_write() -> None:
    """Jobs come back at once, and are done a moment later. (Not those that bring facts back: a new log, for one.)"""
    honest = Driver._run_group
    late: queue.Queue[tuple[Driver, list[Any]]] = queue.Queue()

    def work() -> None:
        while True:
            driver, jobs = late.get()
            time.sleep(LATE_SECONDS)
            honest(driver, jobs)
            late.task_done()

    threading.Thread(target=work, daemon=True).start()

    def lie(self: Driver, jobs: list[Any]) -> list[Any]:
        known = all(job.partition is not None and job.partition.segments for job in jobs if job.batch is not None)
        if known and not any(isinstance(job, GroupJob) and job.is_transaction for job in jobs):
            late.put((self, jobs))
            return jobs
        late.join()
        return honest(self, jobs)

    Driver._run_group = lie  # type: ignore[method-assign]
    InlineCommit.allows = lambda *_: False  # type: ignore[method-assign]


def acks_that_are_not_stored() -> None:
    """They are receipted, and in no entry."""
    honest = CursorJob.__init__

    def forgetful(self: CursorJob, store: CursorStore, told: bytes, *rest: Any) -> None:
        honest(self, store, b"", *rest)

    CursorJob.__init__ = forgetful  # type: ignore[method-assign,assignment]


def deliveries_without_a_mark() -> None:
    """What was handed out is remembered by this process only."""

    def private(self: FileSystem, fd: int, size: int) -> memoryview:
        return memoryview(mmap.mmap(fd, size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE))

    FileSystem.map = private  # type: ignore[method-assign]


def transactions_file_by_file() -> None:
    """A COMMIT goes to each of its files as if there were no others. Writes are slow, for the kill to come between."""

    def apart(_broker: Any, _partitions: Any, acked: dict[Any, list[int]], _transaction: str) -> list[Any]:
        for source, offsets in acked.items():
            source.settle(offsets)
        return []

    def slow(self: AppendJob) -> None:
        time.sleep(LATE_SECONDS)
        honest(self)

    honest = AppendJob.write
    AppendJob.write = slow  # type: ignore[method-assign]
    commit._settle_together = apart


LIES = {
    "receipts-before-the-write": receipts_before_the_write,
    "acks-that-are-not-stored": acks_that_are_not_stored,
    "deliveries-without-a-mark": deliveries_without_a_mark,
    "transactions-file-by-file": transactions_file_by_file,
}

if __name__ == "__main__":
    LIES[sys.argv.pop(1)]()
    main()
