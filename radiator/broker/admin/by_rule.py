"""The sums of the queues, logs and messages of each rule, made in steps.

The number of rules bounds the sums, however many destinations and connections exist. A sum looks at every destination
once, so it is a generator: the caller decides how much of it one turn of the event loop does.

This module changes nothing, and runs on the event loop. ``TABLE`` has the entries; docs/metrics.md shows them.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final

from radiator.broker.stats import Metric
from radiator.routing import dead_letter
from radiator.routing.dead_letter import is_dead_letter
from radiator.routing.rules import DEFAULTS_LABEL, TEMPORARY_LABEL, label_of, label_of_rule

if TYPE_CHECKING:
    from collections.abc import Collection, Generator

    from radiator.broker.destinations.destination import Destination
    from radiator.broker.logs.feed import Feed
    from radiator.broker.queues.queue import Queue, QueueSource
    from radiator.broker.services import Services
    from radiator.clock import WallNs
    from radiator.config import Rule

LOOKED_TOGETHER = 16  # destinations
UNITS = 48  # of work for these, each about a microsecond

Sums = dict[str, dict[str, int]]  # by label of the rule, by name of the entry


def _counter(name: str, unit: str, help: str, prometheus: str) -> Metric:
    return Metric(name, unit, help, "counter", "rule", prometheus)


def _gauge(name: str, unit: str, help: str, prometheus: str) -> Metric:
    return Metric(name, unit, help, "gauge", "rule", prometheus)


TABLE: Final = (
    _counter(
        "published",
        "messages",
        "Messages that were stored for destinations of the rule, dead letters included.",
        "rule_messages_published",
    ),
    _counter(
        "delivered",
        "messages",
        "Messages of the rule that were sent for the first time.",
        "rule_messages_delivered{kind=new}",
    ),
    _counter(
        "redelivered",
        "messages",
        "Messages of the rule that queues sent again.",
        "rule_messages_delivered{kind=redelivered}",
    ),
    _counter(
        "acknowledged",
        "deliveries",
        "Deliveries of queues and durable subscriptions that clients acknowledged.",
        "rule_messages_acknowledged",
    ),
    _gauge("destinations", "destinations", "Destinations of the rule.", "rule_destinations"),
    _gauge("consumers", "consumers", "Consumers of queues and subscribers of topics.", "rule_consumers"),
    _gauge("ready", "messages", "Messages in queues that could be delivered now.", "queue_ready"),
    _gauge(
        "ready_without_consumer",
        "messages",
        "The part of these in queues without a consumer. Dead-letter queues do not count.",
        "queue_ready_without_consumer",
    ),
    _gauge(
        "unacknowledged",
        "messages",
        "Messages of queues that consumers have and have not acknowledged.",
        "queue_unacknowledged",
    ),
    _gauge("delayed", "messages", "Messages of queues that wait for their time.", "queue_delayed"),
    _gauge(
        "lag",
        "messages",
        "Messages that queues, durable subscriptions and consumer groups have not settled.",
        "consumer_lag_messages",
    ),
    _gauge("log_bytes", "bytes", "Size of the logs.", "log_bytes"),
)

GAUGES: Final = tuple(metric.name for metric in TABLE if metric.type == "gauge")
COUNTERS: Final = tuple(metric.name for metric in TABLE if metric.type == "counter")
_counts = attrgetter(*COUNTERS)


def sums(broker: Services) -> Generator[int, None, Sums]:
    """Return the sums by rule, in steps.

    Every rule of the configuration has an entry, so a rule without destinations is 0 and not missing. Queues whose log
    other destinations share count for ``lag`` only, because only a read would tell their messages apart.

    Yields:
        The units of work that were done since the last step (``broker.budget``).
    """
    rows: dict[str, _Row] = {}
    by_rule: dict[int, tuple[Rule, _Row]] = {}  # by identity: a rule is one object for all of its destinations

    def row_of(label: str) -> _Row:
        row = rows.get(label)
        if row is None:
            row = rows[label] = _Row()
        return row

    for label in (*map(label_of_rule, broker.config.rules), DEFAULTS_LABEL, TEMPORARY_LABEL):
        row_of(label)
    now_ns = broker.timing.shown_ns
    seen: set[Feed] = set()  # logs of several destinations
    templates = dead_letter.templates(broker.config)
    every = list(broker.destinations.values())
    for first in range(0, len(every), LOOKED_TOGETHER):
        for destination in every[first : first + LOOKED_TOGETHER]:
            policy = destination.policy
            known = by_rule.get(id(policy.rule))
            if known is None:
                known = by_rule[id(policy.rule)] = policy.rule, row_of(label_of(policy))
            known[1].add(destination, seen, templates, now_ns)
        yield UNITS
    for durable in list(broker.durable.by_key.values()):
        sources = durable.queue.sources
        for source in sources:
            row_of(source.policy.rule).lag += _unsettled(source)
        yield 1 + 2 * len(sources)
    traffic = broker.stats.traffic.by_rule
    for label in traffic:
        row_of(label)
    zeros = (0,) * len(COUNTERS)
    found: Sums = {}
    for label, row in rows.items():
        counted = _counts(traffic[label]) if label in traffic else zeros
        found[label] = dict(zip(COUNTERS, counted, strict=True)) | {name: getattr(row, name) for name in GAUGES}
    return found


class Waiting:
    """The messages of one queue that are not settled.

    Attributes:
        ready: Those that could be delivered now.
        unacknowledged: Those that consumers have.
        delayed: Those that wait for their time.
        lag: All of them, and in logs that other destinations share also the records of those.
    """

    __slots__ = ("delayed", "lag", "ready", "unacknowledged")

    def __init__(self, queue: Queue, now_ns: WallNs) -> None:
        waiting = delayed = dead_lettering = total = lag = 0
        for source in queue.sources:
            unsettled = _unsettled(source)
            lag += unsettled
            if unsettled and not source.shared:
                total += unsettled
                waiting += source.available + source.fresh + len(source.deferred)
                delayed += source.delayed(now_ns)
                dead_lettering += source.burying
        self.ready = max(0, waiting - delayed)
        self.delayed = delayed
        self.lag = lag
        self.unacknowledged = max(0, total - waiting - dead_lettering)


class _Row:
    """The gauges of one rule."""

    __slots__ = GAUGES

    def __init__(self) -> None:
        self.destinations = self.consumers = self.ready = self.ready_without_consumer = 0
        self.unacknowledged = self.delayed = self.lag = self.log_bytes = 0

    def add(self, destination: Destination, seen: set[Feed], templates: Collection[str], now_ns: WallNs) -> None:
        """Add a destination.

        Args:
            destination: The destination.
            seen: The logs of several destinations that were added before.
            templates: The templates of dead-letter queues.
            now_ns: The present time.
        """
        self.destinations += 1
        for feed in destination.feeds:
            if feed.destinations > 1:
                if feed in seen:
                    continue
                seen.add(feed)
            self.log_bytes += feed.partition.size_bytes
        queue = destination.queue
        if queue is None:
            self.consumers += destination.subscribers
            return
        consumers = len(queue.consumers)
        self.consumers += consumers
        lag = ready = unacknowledged = 0
        for source in queue.sources:
            unsettled = _unsettled(source)
            if not unsettled:
                continue
            lag += unsettled
            fresh = source.fresh_alone
            if fresh is None:  # it takes a closer look
                waiting = Waiting(queue, now_ns)
                self.delayed += waiting.delayed
                lag, ready, unacknowledged = waiting.lag, waiting.ready, waiting.unacknowledged
                break
            ready += fresh
            unacknowledged += unsettled - fresh
        if lag:
            self.lag += lag
            self.ready += ready
            self.unacknowledged += unacknowledged
            if ready and not consumers and not any(is_dead_letter(each, destination.name) for each in templates):
                self.ready_without_consumer += ready


def _unsettled(source: QueueSource) -> int:
    """Return the number of records that a cursor has not settled; in a shared log including those of others."""
    cursor = source.cursor
    left: int = source.feed.partition.next_offset - cursor.floor - cursor.settled_above - source.unflushed
    return left if left > 0 else 0
