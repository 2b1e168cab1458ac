"""The current values of the broker: one table, and how each is read.

Each value of ``now`` in ``/stats`` is one entry of ``NOW``: name, unit, help, and the function that reads it.
``STORE`` describes the values of ``Store.facts``. ``broker.stats`` has the table of the counters. docs/metrics.md shows
them all. ``HISTOGRAMS`` has the measured durations, ``HOST`` what only ``/metrics`` shows.

This module changes nothing, and runs on the event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from radiator.broker.stats import Metric
from radiator.clock import NS_PER_MS, NS_PER_SECOND
from radiator.histogram import BOUNDS_SECONDS, Histogram

if TYPE_CHECKING:
    from collections.abc import Callable

    from radiator.broker.services import Services

QUANTILES: Final = (0.5, 0.9, 0.99, 1.0)


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
    _now(
        "destinations",
        "destinations",
        "Destinations that exist, temporary queues among them.",
        lambda broker: len(broker.destinations),
    ),
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
        "deliveries_waiting",
        "rows",
        "Rows about deliveries (`record: deliveries`) that wait to be stored, with their acknowledgements.",
        lambda broker: len(broker.recorder.blocks),
    ),
    _now(
        "stopped_by_deliveries",
        "queues",
        "Queues with consumers that deliver nothing because too many such rows wait.",
        lambda broker: len(broker.recorder.held),
        prometheus="queues_stopped_by_deliveries",
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
        lambda broker: sum(session.outbox.unsent_bytes for session in broker.sessions.values()),
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


HISTOGRAMS: Final[tuple[tuple[Metric, Callable[[Services], Histogram]], ...]] = (
    (
        Metric(
            "receipt",
            "seconds",
            "From the arrival of a message until it is stored as its rule says, so that its RECEIPT may be sent. All "
            "messages of a batch count as its first one.",
            "histogram",
            prometheus="receipt_seconds",
        ),
        lambda broker: broker.stats.histograms.receipt,
    ),
    (
        Metric(
            "sync",
            "seconds",
            "The duration of a sync of the journal, which the RECEIPTs of a group commit wait for.",
            "histogram",
            prometheus="sync_seconds",
        ),
        lambda broker: broker.store.journal.sync_durations,
    ),
    (
        Metric(
            "event_loop_lag",
            "seconds",
            "The delay of a timer of the event loop, measured 50 times per second.",
            "histogram",
            prometheus="event_loop_lag_seconds",
        ),
        lambda broker: broker.stats.histograms.event_loop_lag,
    ),
)

HOST: Final = (
    _gauge("ready", "true or false", "Whether the broker is ready, as `/ready` says."),
    _gauge("disk_free_bytes", "bytes", "Free bytes of the disk of `data_dir`."),
    _gauge("disk_size_bytes", "bytes", "Size of the disk of `data_dir`."),
    _gauge("build_info", "true", "Always 1; `mode` says whether compiled functions are in use.", "version,mode"),
)


def histograms(broker: Services) -> dict[str, dict[str, float]]:
    """Return the number, the sum in seconds, and the quantiles 0.5, 0.9, 0.99 and 1 of each histogram, by name."""
    return {metric.name: _summary(read(broker)) for metric, read in HISTOGRAMS}


def _summary(histogram: Histogram) -> dict[str, float]:
    quantiles = {f"p{round(share * 100)}": histogram.quantile(share) for share in QUANTILES}
    shown = {name: min(value, BOUNDS_SECONDS[-1]) for name, value in quantiles.items()}
    return {"count": histogram.count, "sum": histogram.sum_ns / NS_PER_SECOND, **shown}


def now(broker: Services) -> dict[str, Any]:
    """Return the current values by name."""
    return {metric.name: read(broker) for metric, read in NOW}
