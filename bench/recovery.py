"""Measure how long a start takes: ``python -m bench.recovery [--quick]``.

    rebuild    walk an active segment without an index: MB/s, for batches of one record and for large ones; and the
               same without a list of names
    sparse     20 GiB in 160 sealed segments, which consist of a first header and a last batch
    many       2,000 partitions: after a clean stop; after a kill, each with a torn tail; and without their heads, so
               that everything counts as unsynced and is synced
    journal    the largest possible journal, messages of 100 B over 1 log, and over 1,000 with a batch for each message:
               with all segments, as after a kill; and with none, as possibly after a power failure

The files are in the page cache, so the program is measured and not the disk. All files are removed.
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import tempfile
import time
from collections.abc import Callable

from radiator import limits
from radiator.clock import now
from radiator.config import Settings, SyncPolicy
from radiator.server.app import GC_THRESHOLDS
from radiator.storage import layout
from radiator.storage.files import FileSystem
from radiator.storage.store import Store

NOW = 1_700_000_000_000_000_000
BLOCK = b"content-type:application/json"
NEVER = Settings(sync=SyncPolicy(None), segment_bytes=limits.SEGMENT_BYTES_MAX)
ROUNDS = 3


def commit(store: Store) -> None:
    for job in (jobs := store.take(now())):
        job.write()
    for job in jobs:
        if job.needs_sync:
            job.sync()
        job.done(now())


def fill(root: str, size_bytes: int, body_bytes: int, per_batch: int, names: int) -> str:
    """Write one partition with one segment, and return its directory."""
    store = Store(root, FileSystem())
    store.open(now())
    partition = store.partition("q", NEVER)
    body, written, number = os.urandom(body_bytes), 0, 0
    while written < size_bytes:
        for _ in range(per_batch):
            number += 1
            partition.append(f"/topic/{number % names}" if names > 1 else "q", BLOCK, body, NOW + number)
        commit(store)
        written = partition.segments[-1].size_bytes
    store.close()
    return partition.directory


def seconds_to_open(root: str, before: Callable[[], None] = lambda: None) -> tuple[float, float]:
    """Return the wall time and the CPU time of the fastest of a few starts."""
    times, spent = [], []
    for _ in range(ROUNDS):
        before()
        store = Store(root, FileSystem())
        begin, begun = time.perf_counter(), time.process_time()
        store.open(now())
        times.append(time.perf_counter() - begin)
        spent.append(time.process_time() - begun)
        store.close()
    return min(times), min(spent)


def rebuild(parent: str, size_bytes: int) -> None:
    shapes = [("1 record of 100 B", 100, 1), ("1 record of 1 KiB", 1_024, 1), ("500 records of 1 KiB", 1_024, 500)]
    for (what, body_bytes, per_batch), names in [(shape, names) for shape in shapes for names in (1, 10)]:
        root = tempfile.mkdtemp(dir=parent)
        directory = fill(root, size_bytes, body_bytes, per_batch, names)
        size = os.path.getsize(layout.segment_path(directory, 0))
        gone = [layout.index_path(directory, 0)] + ([layout.names_path(directory)] if names > 1 else [])

        def without(paths: list[str] = gone) -> None:
            for path in paths:
                if os.path.exists(path):
                    os.unlink(path)

        seconds, spent = seconds_to_open(root, without)
        which = "index and names" if names > 1 else "index"
        print(
            f"rebuild {which:16} batches of {what:21} {size / seconds / 1e6:6,.0f} MB/s, "
            f"of the processor {size / spent / 1e6:6,.0f}"
        )


def sparse(parent: str, segments: int) -> None:
    """Write sealed segments that have a first batch and a hole of 128 MiB; the last one is whole."""
    root = tempfile.mkdtemp(dir=parent)
    directory = fill(root, 8 << 20, 1_024, 100, 1)
    store = Store(root, FileSystem())
    store.open(now())
    partition = store.partitions["q"]
    for _ in range(segments):
        partition.append("q", BLOCK, b"x" * 1_024, NOW)
        partition.roll_wanted = True  # type: ignore[attr-defined]
        partition.queue()
        commit(store)
    store.close()
    for base in sorted(filter(None, map(layout.segment_base, os.listdir(directory))))[:-1]:
        os.truncate(layout.segment_path(directory, base), limits.SEGMENT_BYTES)
    size = sum(os.path.getsize(f"{directory}/{name}") for name in os.listdir(directory))
    print(
        f"sparse  {size / (1 << 30):.1f} GiB in {segments + 1} segments, stopped well: {seconds_to_open(root)[0]:.3f} s"
    )
    tail = layout.segment_path(directory, max(filter(None, map(layout.segment_base, os.listdir(directory)))))

    def killed() -> None:
        with open(tail, "ab") as file:
            file.write(os.urandom(64 * 1024))
        os.unlink(layout.head_path(directory))

    print(f"sparse  the same, killed in a write and without a head: {seconds_to_open(root, killed)[0]:.3f} s")


def many(parent: str, partitions: int) -> None:
    root = tempfile.mkdtemp(dir=parent)
    store = Store(root, FileSystem())
    store.open(now())
    for batch in range(20):
        for number in range(partitions):
            store.partition(f"/queue/{number}", NEVER).append(f"/queue/{number}", BLOCK, b"x" * 4_000, NOW + batch)
        while store.dirty:
            commit(store)
    store.close()
    print(f"many    {partitions} partitions, stopped well: {seconds_to_open(root)[0]:.2f} s")
    directories = [f"{root}/partitions/{name}" for name in os.listdir(f"{root}/partitions")]

    def killed() -> None:
        for directory in directories:
            with open(layout.segment_path(directory, 0), "ab") as file:
                file.write(os.urandom(1_000))

    print(f"many    the same, killed, each with a torn tail: {seconds_to_open(root, killed)[0]:.2f} s")

    def headless() -> None:
        for directory in directories:
            os.unlink(f"{directory}/head")

    print(f"many    the same, and no head: {seconds_to_open(root, headless)[0]:.2f} s")


def journal(parent: str, logs: int, part: int) -> None:
    root, opened = tempfile.mkdtemp(dir=parent), tempfile.mkdtemp(dir=parent)
    store = Store(root, FileSystem())
    store.open(now())
    partitions = [store.partition(f"/queue/{number}", Settings()) for number in range(logs)]
    messages = 0
    size_bytes = limits.JOURNAL_FILES_MAX * limits.JOURNAL_FILE_BYTES // part
    while store.journal.bytes < size_bytes and not store.journal.full:  # the measurement runs no checkpoints
        for partition in partitions:
            for _ in range(max(1_000 // logs, 1)):
                partition.append(partition.name, BLOCK, b"x" * 100, NOW + messages)
                messages += 1
        commit(store)
    store.release()
    size = store.journal.bytes

    def killed() -> None:
        shutil.rmtree(opened)
        shutil.copytree(root, opened)

    def without_segments() -> None:
        killed()
        shutil.rmtree(f"{opened}/partitions")

    for before, what in ((killed, "killed"), (without_segments, "no segments")):
        seconds, spent = seconds_to_open(opened, before)
        print(
            f"journal {size >> 20} MiB, {messages:9,} messages of {logs:5,} logs, {what:11}: {seconds:.2f} s, "
            f"{spent:.2f} s of the processor"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    parser.add_argument("--directory", help="where to write (default: a temporary directory)")
    options = parser.parse_args()
    part = 10 if options.quick else 1
    gc.set_threshold(*GC_THRESHOLDS)  # as the broker does
    with tempfile.TemporaryDirectory(dir=options.directory) as parent:
        rebuild(parent, (200 << 20) // part)
        sparse(parent, 160 // part)
        many(parent, 2_000 // part)
        for logs in (1, 1_000):
            journal(parent, logs, part)


if __name__ == "__main__":
    main()
