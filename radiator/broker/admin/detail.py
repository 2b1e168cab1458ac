"""The values of single queues, topics, durable subscriptions and partitions, made in steps.

Each *family* has a table of values and a label. A request names a family and a pattern, so a monitoring system gets the
series that an operator needs and not those of every destination. At most ``limits.METRICS_SERIES_MAX`` series are
returned, and those beyond are counted.

This module changes nothing, and runs on the event loop. docs/metrics.md shows the tables.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from radiator import limits
from radiator.broker.admin.by_rule import Waiting
from radiator.broker.monitoring import figures
from radiator.broker.stats import Metric
from radiator.errors import ProtocolError
from radiator.routing.pattern import parse_list
from radiator.routing.rules import TEMPORARY, label_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from radiator.broker.destinations.destination import Destination
    from radiator.broker.durable.subscription import DurableSubscription
    from radiator.broker.queues.queue import Queue
    from radiator.broker.services import Services
    from radiator.clock import WallNs

LOOKED_TOGETHER = 16  # entries
MATCH_CHARS_MAX = 1_000

Values = dict[str, float]
Row = tuple[dict[str, str], Values]


class Detail(NamedTuple):
    """A family of ``/metrics/detailed``.

    Attributes:
        labels: The labels of its series.
        table: Its values. The name in ``/metrics/detailed`` is ``radiator_detailed_<family>_<name>``.
        rows: Returns the entries that a pattern selects, each with a function that reads its row.
    """

    labels: tuple[str, ...]
    table: tuple[Metric, ...]
    rows: Callable[[Services, Callable[[str], bool]], Iterable[Callable[[], Row] | None]]


class Found(NamedTuple):
    """The result of a request.

    Attributes:
        rows: The labels and the values of each entry.
        series_left_out: The number of series over ``limits.METRICS_SERIES_MAX``.
    """

    rows: list[Row]
    series_left_out: int


def _metrics(family: str, *entries: tuple[str, str, str]) -> tuple[Metric, ...]:
    return tuple(
        Metric(
            name.removesuffix("_total"),
            unit,
            help,
            "counter" if name.endswith("_total") else "gauge",
            ",".join(LABELS[family]),
            f"detailed_{family}_{name.removesuffix('_total')}",
        )
        for name, unit, help in entries
    )


LABELS: Final = {
    "queue": ("destination", "rule"),
    "topic": ("destination", "rule"),
    "durable": ("subscription", "destination"),
    "partition": ("partition",),
}


def select(broker: Services, family: str, match: str) -> Generator[int, None, Found]:
    """Return the rows of a family that a pattern selects, in steps.

    Args:
        broker: The services of the broker.
        family: A key of ``FAMILIES``.
        match: Patterns as in a rule: of destinations, or of names of partitions. For durable subscriptions they must
            match a topic that is read.

    Yields:
        The number of entries that were looked at since the last step.

    Raises:
        ProtocolError: The family is unknown, or the pattern is not valid.
    """
    detail = FAMILIES.get(family)
    if detail is None:
        raise ProtocolError("bad-request", f"unknown family {family[:100]!r}", f"expected one of {', '.join(FAMILIES)}")
    if not 0 < len(match) <= MATCH_CHARS_MAX:
        raise ProtocolError("bad-request", "match", f"expected a pattern of 1 to {MATCH_CHARS_MAX} characters")
    matches = parse_list(match).matches
    return _select(broker, detail, matches)


def _select(broker: Services, detail: Detail, matches: Callable[[str], bool]) -> Generator[int, None, Found]:
    found: list[Row] = []
    series = len(detail.table)
    room, left_out = limits.METRICS_SERIES_MAX // series, 0
    for number, read in enumerate(detail.rows(broker, matches)):
        if read is None:
            pass
        elif len(found) < room:
            found.append(read())
        else:
            left_out += series
        if number % LOOKED_TOGETHER == LOOKED_TOGETHER - 1:
            yield LOOKED_TOGETHER
    return Found(found, left_out)


def _destinations(
    broker: Services, matches: Callable[[str], bool], kind: str, row: Callable[[Destination, WallNs], Row]
) -> Iterable[Callable[[], Row] | None]:
    now_ns = broker.timing.shown_ns
    for destination in list(broker.destinations.values()):
        if (
            (destination.policy.kind == kind)
            and matches(destination.name)
            and not destination.name.startswith(TEMPORARY)
        ):
            yield partial(row, destination, now_ns)
        else:
            yield None


def _queues(broker: Services, matches: Callable[[str], bool]) -> Iterable[Callable[[], Row] | None]:
    return _destinations(broker, matches, "queue", _queue)


def _topics(broker: Services, matches: Callable[[str], bool]) -> Iterable[Callable[[], Row] | None]:
    return _destinations(broker, matches, "topic", _topic)


def _queue(destination: Destination, now_ns: WallNs) -> Row:
    queue = destination.queue
    values = _of_log(destination)
    values |= _of_queue(queue, now_ns) if queue is not None else dict.fromkeys(_QUEUE_VALUES, 0)
    return _labels(destination), values


def _topic(destination: Destination, now_ns: WallNs) -> Row:
    return _labels(destination), {**_of_log(destination), "subscribers": destination.subscribers}


def _labels(destination: Destination) -> dict[str, str]:
    return {"destination": destination.name, "rule": label_of(destination.policy)}


def _of_log(destination: Destination) -> Values:
    own = [feed.partition for feed in destination.feeds if feed.destinations == 1]
    return {
        "messages": sum(partition.next_offset for partition in own),
        "log_bytes": sum(partition.size_bytes for partition in own),
    }


_QUEUE_VALUES = ("ready", "unacknowledged", "delayed", "lag", "consumers", "delivered", "settled")


def _of_queue(queue: Queue, now_ns: WallNs) -> Values:
    waiting = Waiting(queue, now_ns)
    values = (waiting.ready, waiting.unacknowledged, waiting.delayed, waiting.lag, len(queue.consumers))
    shared = any(source.shared for source in queue.sources)
    counted = (0, 0) if shared else (figures.delivered(queue), figures.settled(queue))
    return dict(zip(_QUEUE_VALUES, values + counted, strict=True))


def _durables(broker: Services, matches: Callable[[str], bool]) -> Iterable[Callable[[], Row] | None]:
    now_ns = broker.timing.shown_ns
    for durable in list(broker.durable.by_key.values()):
        selected = matches(durable.patterns.text)
        for destination in () if selected else list(durable.destinations):
            if matches(destination.name):
                selected = True
                break
            yield None
        yield partial(_durable, durable, now_ns) if selected else None


def _durable(durable: DurableSubscription, now_ns: WallNs) -> Row:
    return {"subscription": durable.key, "destination": durable.patterns.text}, _of_queue(durable.queue, now_ns)


def _partitions(broker: Services, matches: Callable[[str], bool]) -> Iterable[Callable[[], Row] | None]:
    for name, partition in list(broker.store.partitions.items()):
        yield partial(_partition, partition) if matches(name) else None


def _partition(partition: Any) -> Row:
    values = {
        "first_offset": partition.log_start_offset,
        "next_offset": partition.high_watermark,
        "bytes": partition.size_bytes,
        "segments": len(partition.segments),
        "failed": partition.failed is not None,
    }
    return {"partition": partition.name}, values


_LOG_ENTRIES = (
    (
        "messages_total",
        "messages",
        "Messages that were stored since the logs began; 0 for logs of several destinations.",
    ),
    ("log_bytes", "bytes", "Size of the logs; 0 for logs of several destinations."),
)
OF_LOGS: Final = "0 for logs of several destinations. Moving a cursor changes it."
_QUEUE_ENTRIES = (
    ("ready", "messages", "Messages that could be delivered now."),
    ("unacknowledged", "messages", "Messages that consumers have and have not acknowledged."),
    ("delayed", "messages", "Messages that wait for their time."),
    ("lag", "messages", "Messages that are not settled."),
    ("consumers", "consumers", "Consumers that are connected."),
    ("delivered_total", "messages", f"Messages that were delivered once, or passed over; {OF_LOGS}"),
    ("settled_total", "messages", f"Messages that were acknowledged, expired, dropped or dead-lettered; {OF_LOGS}"),
)

FAMILIES: Final = {
    "queue": Detail(LABELS["queue"], _metrics("queue", *_LOG_ENTRIES, *_QUEUE_ENTRIES), _queues),
    "topic": Detail(
        LABELS["topic"],
        _metrics("topic", *_LOG_ENTRIES, ("subscribers", "subscriptions", "Subscriptions that match the topic.")),
        _topics,
    ),
    "durable": Detail(LABELS["durable"], _metrics("durable", *_QUEUE_ENTRIES), _durables),
    "partition": Detail(
        LABELS["partition"],
        _metrics(
            "partition",
            ("first_offset", "offset", "The first offset that the log has."),
            ("next_offset", "offset", "The next offset that consumers get."),
            ("bytes", "bytes", "Size of the log."),
            ("segments", "segments", "Segments of the log."),
            ("failed", "true or false", "Whether the log cannot be written; the broker tries again."),
        ),
        _partitions,
    ),
}
"""The families of ``/metrics/detailed``."""

LEFT_OUT: Final = Metric(
    "series_left_out",
    "series",
    "Series that were left out, because an answer has a limited number.",
    "gauge",
    prometheus="detailed_series_left_out",
)
