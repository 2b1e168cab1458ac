"""Driving a store by hand: what the hub and the two threads do, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from radiator.clock import Now
from radiator.config import Settings, SyncPolicy
from radiator.errors import StorageError
from radiator.storage.file_partition import FilePartition
from radiator.storage.files import FileSystem
from radiator.storage.last_messages import LastJob, Wanted
from radiator.storage.partition import BatchBuilder, Partition
from radiator.storage.reads import PositionJob
from radiator.storage.store import RecoveryNote, Store
from tests.clocks import both

NOW = 1_700_000_000_000_000_000
ALWAYS = Settings()
NEVER = Settings(sync=SyncPolicy(None))
BLOCK = b"content-type:text/plain"
SNAPSHOT_SYNCS = 2  # of a checkpoint: the snapshot of the cursors stands there twice


def opened(fs: Any = None, root: str = "/data", **options: Any) -> tuple[Store, list[RecoveryNote]]:
    store = Store(root, fs if fs is not None else FileSystem(), **options)
    return store, store.open(both(NOW))


def commit(store: Store, now_ns: int | Now = NOW) -> list[Any]:
    """One group commit: hub, disk thread, hub. ``now_ns``: what the wall clock shows, or both clocks."""
    now = now_ns if isinstance(now_ns, Now) else both(now_ns)
    jobs = store.take(now)
    for job in jobs:
        job.write()
    for job in jobs:
        if job.needs_sync and job.error is None:
            job.sync()
    for job in jobs:
        job.done(now)
    return jobs


def checkpoint(store: Store, now_ns: int | Now = NOW) -> list[Any]:
    """A checkpoint, from its beginning to its end; the jobs of the groups that it takes."""
    store.journal.wants_checkpoint = True
    jobs = commit(store, now_ns)
    begun = store.checkpoints.take()
    if begun is not None:
        begun.run(threads=1)
        store.checkpoints.done(begun)
        jobs += commit(store, now_ns)
    return jobs


def appends(jobs: list[Any]) -> list[Any]:
    """Those of these jobs that bring messages."""
    return [job for job in jobs if job.batch is not None]


def put(partition: Partition, *bodies: bytes, at: int = NOW, destination: str = "/queue/a") -> list[int]:
    return [partition.append(destination, BLOCK, body, at) for body in bodies]


def add_record(
    builder: BatchBuilder, destination: str, block: bytes, body: bytes, receive_ns: int, event_ns: int | None,
    transmit_ns: int | None,
) -> None:  # fmt: skip
    number = builder.ids[destination] if destination in builder.ids else builder.name(destination)
    builder.add_columns(number, event_ns, transmit_ns)
    builder.receive_ns.append(receive_ns)
    builder.blocks.append(block)
    builder.bodies.append(body)
    builder.size_bytes += len(block) + len(body)


def read_all(partition: Partition, start: int | None = None, memory: bool = True) -> dict[int, bytes]:
    """Bodies by offset, as a reader finds them; holes are offsets that are not there."""
    offset = partition.log_start_offset if start is None else start
    found: dict[int, bytes] = {}
    while offset < partition.high_watermark:
        in_a_file = not isinstance(partition, FilePartition) or offset < partition.written_to
        batch = partition.read(offset) if memory or not in_a_file else None
        if batch is None:
            job = partition.fetch(offset)
            if not job.finished:
                job.run()
            job.done()
            if job.error is not None:
                raise job.error
            if job.result is None:
                assert job.skip_to is not None and job.skip_to > offset, "a cold read that leads nowhere"
                offset = job.skip_to
                continue
            batch = job.result
        assert batch.base_offset <= offset < batch.next_offset
        first = batch.index_at(offset)
        found.update(zip(batch.offsets[first:], batch.bodies[first:], strict=True))
        offset = batch.next_offset
    return found


def answer(job: PositionJob | LastJob | LastOf) -> int:
    while not job.finished:
        job.run()
    if job.error is not None:
        raise job.error
    return job.offset


class LastOf:
    """The last ``count`` of each destination of one log that matches; ``offset``: where the first of them stands."""

    def __init__(self, partition: Any, count: int, matches: Callable[[str], bool]) -> None:
        self.end = self.offset = partition.high_watermark
        names = {name: name for name in partition.destinations if matches(name)}
        self.job = LastJob([Wanted(partition, self.end, names)], count)
        self.starts: dict[str, int] = {}
        self.finished = False

    @property
    def error(self) -> StorageError | None:
        return self.job.error

    def run(self) -> None:
        while not self.job.finished:
            self.job.run()
        (found,) = self.job.starts.values()
        self.starts = {name: start for name, start in found.items() if start < self.end}
        self.offset = min(self.starts.values(), default=self.end)
        self.finished = True


def error_of(jobs: list[Any]) -> StorageError | None:
    return next((job.error for job in jobs if job.error is not None), None)
