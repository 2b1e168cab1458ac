"""The current values of the broker: one table, and how each is read.

Each value of ``now`` in ``/stats`` is one entry of ``NOW``: name, unit, help, and the function that reads it.
``STORE`` describes the values of ``Store.facts``. ``broker.stats`` has the table of the counters. docs/metrics.md shows
all three.

This module changes nothing, and runs on the event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from radiator.broker.stats import Metric
from radiator.clock import NS_PER_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from radiator.broker.services import Services


def _gauge(name: str, unit: str, help: str, label: str = "", prometheus: str = "") -> Metric:
    return Metric(name, unit, help, "gauge", label, prometheus)


def _now(
    name: str, unit: str, help: str, read: Callable[[Services], Any], label: str = "", prometheus: str = ""
) -> tuple[Metric, Callable[[Services], Any]]:
    return _gauge(name, unit, help, label, prometheus), read


NOW: Final = (
    _now(
        "sessions",
        "connections",
        "Connections that have a session.",
        lambda broker: len(broker.sessions),
        prometheus="connections",
    ),
    _now("destinations", "destinations", "Destinations that exist.", lambda broker: len(broker.destinations)),
    _now(
        "durable_subscriptions",
        "subscriptions",
        "Durable subscriptions and consumer groups that exist.",
        lambda broker: len(broker.durable.by_key),
    ),
    _now(
        "held_back",
        "connections",
        "Connections that wait: `on_full: block`, `rate_limit`, or `limits.memory`.",
        lambda broker: len(broker.throttle.held),
        prometheus="connections_waiting",
    ),
    _now(
        "orphaned_logs",
        "logs",
        "Logs that no rule names any more and that consumers empty first.",
        lambda broker: len(broker.orphaned.ends),
    ),
    _now(
        "undelivered_logs",
        "logs",
        "Logs with messages that the present rules do not deliver.",
        lambda broker: len(broker.orphaned.undelivered),
    ),
    _now(
        "stopped_by_selectors",
        "logs",
        "Logs of queues that wait because too many messages were skipped by selector.",
        lambda broker: len(broker.timing.skipped.stopped),
        prometheus="logs_stopped_by_selectors",
    ),
    _now(
        "skipped_runs",
        "runs",
        "Runs of messages that queues skip because no consumer with credit selects them.",
        lambda broker: broker.timing.skipped.runs,
    ),
    _now(
        "memory_full",
        "true or false",
        "Whether a share of `limits.memory` is used up.",
        lambda broker: bool(broker.memory.full),
    ),
    _now(
        "memory",
        "bytes",
        "Use of `limits.memory` by share, with `total` and `limit`.",
        lambda broker: broker.memory.figures(),
        label="share",
        prometheus="memory_used_bytes",
    ),
    _now(
        "longest_turn_ms",
        "milliseconds",
        "The longest turn of the event loop since the start.",
        lambda broker: broker.budget.longest_ns / NS_PER_MS,
        prometheus="event_loop_longest_turn_seconds",
    ),
    _now(
        "turn_work_peak",
        "units",
        "The most work of one turn since the start, in units of about a microsecond.",
        lambda broker: broker.budget.peak,
        prometheus="event_loop_turn_work_peak",
    ),
    _now(
        "clock_ahead_seconds",
        "seconds",
        "The size of a step forward of the clock that is not confirmed.",
        lambda broker: broker.timing.clock.ahead_seconds,
    ),
    _now(
        "logs_ahead",
        "logs",
        "Logs with receive times in the future.",
        lambda broker: len(broker.future_logs.at(broker.timing.now.wall)),
    ),
    _now(
        "outbox_bytes",
        "bytes",
        "Bytes that wait for sockets, over all connections.",
        lambda broker: sum(session.outbox_bytes for session in broker.sessions.values()),
    ),
)

STORE: Final[tuple[Metric, ...]] = (
    _gauge("tail_bytes", "bytes", "Recent messages of files in memory, bounded by `limits.tail`."),
    _gauge("cold_bytes", "bytes", "Messages in memory that were read from disk."),
    _gauge("memory_bytes", "bytes", "Messages of memory partitions.", prometheus="memory_partitions_bytes"),
    _gauge("partitions", "partitions", "Partitions that exist."),
    _gauge("partitions_failed", "partitions", "Partitions that cannot be written; the broker tries again."),
    Metric("syncs", "syncs", "Syncs of the journal and of files."),
    _gauge("journal_bytes", "bytes", "Size of the journal, which grows to 64 MiB and more before a checkpoint."),
    Metric("checkpoints", "checkpoints", "Checkpoints that were made."),
    Metric("maintenance_rewritten", "segments", "Sealed segments that background maintenance rewrote."),
    Metric("maintenance_removed_records", "records", "Records that these rewrites removed."),
    Metric("maintenance_saved_bytes", "bytes", "Bytes that these rewrites saved."),
    Metric("maintenance_failed", "jobs", "Jobs of background maintenance that failed and are tried again."),
    Metric("maintenance_damaged", "segments", "Segments that maintenance left as they are because of damage."),
)


def now(broker: Services) -> dict[str, Any]:
    """Return the current values by name."""
    return {metric.name: read(broker) for metric, read in NOW}
