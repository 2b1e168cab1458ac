"""Maintenance on request: retention, compaction and a checkpoint now, for all logs or those of some destinations.

A run visits the logs one after another, a few at a time, from a timer of the event loop. It only asks the store to plan
the work; the disk thread, the maintenance thread and the checkpoint thread do it, as always. So a run delays no client
more than the maintenance that the broker does by itself.

This module knows the store and the timers. It does not know requests or the wire.

Invariants: one run at a time. A run ends: what it waits for in one log is bounded by the log's segments at its start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from radiator.clock import NS_PER_MS, Now
from radiator.errors import ProtocolError
from radiator.storage.file_partition import FilePartition

if TYPE_CHECKING:
    from radiator.broker.core import Core
    from radiator.routing.pattern import PatternSet
    from radiator.storage.partition import Partition

log = logging.getLogger("radiator.broker")

RETENTION: Final = "retention"  # remove sealed segments that the rule does not keep
COMPACTION: Final = "compaction"  # rewrite sealed segments: compact_by, settled messages, compress, small commits
CHECKPOINT: Final = "checkpoint"  # sync the segments, and free the journal
TASKS: Final = (RETENTION, COMPACTION, CHECKPOINT)

LOOK_NS = 50 * NS_PER_MS  # between two steps of a run
LOOKED_AT_MAX = 2_000  # logs of one step: a few milliseconds
NAMES_A_LOOK = 4  # destinations that are compared, instead of one log
AT_ONCE_MAX = 16  # logs with unfinished work
REWRITES_SPARE = 16  # rewritten segments of one log, besides twice its number of segments, before the run goes on

Progress = dict[str, Any]


class LogWork:
    """The work of a run for one log.

    Args:
        partition: The log.
        rewritten: The number of its segments that were rewritten before, since the start of the broker.
    """

    def __init__(self, partition: FilePartition, rewritten: int) -> None:
        self.partition = partition
        self.bases = [segment.base_offset for segment in partition.segments[:-1]]
        self.rewritten = rewritten

    @property
    def rewrites_max(self) -> int:
        """The number of rewritten segments at which the run does not wait for more."""
        return self.rewritten + 2 * len(self.bases) + REWRITES_SPARE

    @property
    def removed(self) -> int:
        """The number of segments that are not in the log any more."""
        segments = self.partition.segments
        first = segments[0].base_offset if segments else 0
        return sum(base < first for base in self.bases)


class MaintenanceRun:
    """Runs maintenance on request, once at a time.

    Args:
        core: The core of the broker.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._tasks: tuple[str, ...] = ()
        self._patterns: PatternSet | None = None
        self._logs: Iterator[FilePartition | None] = iter(())
        self._active: list[LogWork] = []
        self._on_end: Callable[[Progress], None] | None = None
        self._checkpointing = False
        self._checkpoints_before = self._failed_before = 0
        self._done: dict[str, int] = {}
        self._looked_at = self._logs_total = 0
        self._result: Progress | None = None
        self.running = False

    def begin(
        self, tasks: tuple[str, ...], patterns: PatternSet | None, on_end: Callable[[Progress], None] | None
    ) -> None:
        """Begin a run.

        Args:
            tasks: What to do, of ``TASKS``.
            patterns: The destinations whose logs are maintained; None for all logs. A checkpoint is one of all logs.
            on_end: Called with the result, once the run has ended; or None.

        Raises:
            ProtocolError: A run is in progress (too-many).
        """
        if self.running:
            raise ProtocolError("too-many", "maintenance is running already", "Wait until it has ended.")
        store = self._core.store
        logs = list(store.partitions.values())
        works = RETENTION in tasks or COMPACTION in tasks
        self.running = True
        self._tasks, self._patterns, self._on_end = tasks, patterns, on_end
        self._logs = self._find(logs if works else [])
        self._looked_at, self._logs_total = 0, len(logs) if works else 0
        self._done = dict.fromkeys(tasks, 0)
        self._checkpointing = False
        self._failed_before, self._checkpoints_before = store.maintenance.counts["failed"], store.checkpoints.made
        self._result = None
        log.info("maintenance on request begins: %s", ", ".join(tasks))
        self._core.timing.after(0, self)

    def progress(self) -> Progress:
        """Return how far the run is, or the result of the last one.

        ``done`` has a number for each task: removed segments, rewritten segments, checkpoints. ``failed`` counts jobs
        that failed and are tried again later.
        """
        if self._result is not None:
            return self._result
        return {
            "running": self.running,
            "logs": self._logs_total,
            "logs_done": self._looked_at - len(self._active),
            "done": dict(self._done),
            "failed": self._core.store.maintenance.counts["failed"] - self._failed_before if self.running else 0,
        }

    def due(self, now: Now) -> None:
        """Do one step of the run, and set the timer for the next one."""
        maintenance = self._core.store.maintenance
        self._active = [work for work in self._active if self._exists(work.partition)]
        if COMPACTION in self._tasks:
            maintenance.sweep(now, [work.partition for work in self._active])
        unfinished = []
        for work in self._active:
            if self._is_finished(work):
                self._add(work)
            else:
                unfinished.append(work)
        self._active = unfinished
        self._start_logs(now)
        if self._active or self._looked_at < self._logs_total or not self._is_checkpointed():
            self._core.timing.after(LOOK_NS, self)
            return
        self._result = self.progress() | {"running": False}
        self.running = False
        on_end, self._on_end = self._on_end, None
        log.info(
            "maintenance on request has ended: %s", ", ".join(f"{task} {count}" for task, count in self._done.items())
        )
        if on_end is not None:
            on_end(self._result)

    def _start_logs(self, now: Now) -> None:
        """Start the work of the next logs, as many as a step allows."""
        maintenance = self._core.store.maintenance
        for _ in range(LOOKED_AT_MAX):
            if len(self._active) >= AT_ONCE_MAX:
                return
            partition = next(self._logs, None)
            if partition is None or not self._exists(partition):
                continue
            self._active.append(LogWork(partition, maintenance.rewritten_in(partition)))
            if RETENTION in self._tasks:
                partition.want_retention()
            if COMPACTION in self._tasks:
                maintenance.plan_now(partition, now)

    def _find(self, logs: Sequence[Partition]) -> Iterator[FilePartition | None]:
        """Yield the logs with sealed segments that the run is for, and None in between, after some comparisons."""
        for partition in logs:
            found = None
            if isinstance(partition, FilePartition) and len(partition.segments) > 1:
                found = partition if (yield from self._is_wanted(partition)) else None
            self._looked_at += 1
            yield found

    def _is_wanted(self, partition: FilePartition) -> Generator[None, None, bool]:
        """Return whether a destination of the log matches, and yield None after some comparisons."""
        if self._patterns is None:
            return True
        for number, name in enumerate(list(partition.destinations), 1):
            if self._patterns.matches(name):
                return True
            if number % NAMES_A_LOOK == 0:
                yield None
        return False

    def _exists(self, partition: FilePartition) -> bool:
        """Return whether a log is still there: its destination may be removed during the run."""
        return self._core.store.partitions.get(partition.name) is partition

    def _is_finished(self, work: LogWork) -> bool:
        maintenance, partition = self._core.store.maintenance, work.partition
        if partition.retention.wanted and RETENTION in self._tasks:
            return False
        if COMPACTION not in self._tasks or not maintenance.is_busy(partition):
            return True
        return maintenance.rewritten_in(partition) > work.rewrites_max

    def _add(self, work: LogWork) -> None:
        if RETENTION in self._tasks:
            self._done[RETENTION] += work.removed
        if COMPACTION in self._tasks:
            self._done[COMPACTION] += self._core.store.maintenance.rewritten_in(work.partition) - work.rewritten

    def _is_checkpointed(self) -> bool:
        """Request the checkpoint if it is wanted, and return whether it has ended."""
        checkpoints = self._core.store.checkpoints
        if CHECKPOINT in self._tasks and not self._checkpointing:
            self._checkpointing = True
            checkpoints.request()
        if checkpoints.requested:
            return False
        if CHECKPOINT in self._tasks:
            self._done[CHECKPOINT] = checkpoints.made - self._checkpoints_before
        return True
