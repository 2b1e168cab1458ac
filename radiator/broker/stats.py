"""The counters of the broker: one table, and the numbers since the start.

Each counter is one entry of ``Stats``: the field, the unit, and one line of help. ``/stats``, the log line at the stop
and docs/metrics.md show this table; ``admin.gauges`` has the table of the current values. No message is dropped
silently: each drop is an ERROR or a counter. ``Traffic`` has the counters of each rule, and ``Histograms`` the
durations.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, Final, Literal

from radiator.histogram import Histogram


@dataclass(frozen=True, slots=True)
class Metric:
    """An entry of a table of metrics.

    Attributes:
        name: The key in ``/stats``.
        unit: What is counted, or the unit of a measured value.
        help: One line that says what the number means.
        type: A counter only grows, from 0 at the start; a gauge is a current value; a histogram counts durations.
        label: What tells the values apart where the metric has several; empty for one value.
        prometheus: The name in ``/metrics`` without prefix and suffix, and perhaps a label: ``lost{reason=disk}``.
            Empty for ``name``.
    """

    name: str
    unit: str
    help: str
    type: Literal["counter", "gauge", "histogram"] = "counter"
    label: str = ""
    prometheus: str = ""

    @property
    def series(self) -> tuple[str, dict[str, str]]:
        """The name in ``/metrics`` without prefix and suffix, and the labels."""
        name, _, label = (self.prometheus or self.name).partition("{")
        key, _, value = label.rstrip("}").partition("=")
        return name, {key: value} if key else {}


FAMILIES: Final = {
    "messages_dropped": "Messages that were dropped, by reason.",
    "messages_lost": "Messages that were removed or lost before a queue had settled them, by reason.",
    "connections_refused": "Connections that were not served, by reason.",
    "connections_lost": "Connections that ended without DISCONNECT, by reason.",
    "dead_letters": "Messages that were moved to a dead-letter queue, by reason.",
    "messages_delivered": "Messages that were sent to consumers and subscribers, by kind.",
    "rule_messages_delivered": "Messages of the rule that were sent to consumers and subscribers, by kind.",
}
"""The help of the names in ``/metrics`` that several counters share."""


def counter(unit: str, help: str, prometheus: str = "") -> Any:
    """Return a field of ``Stats``, with its unit, its help and its name in ``/metrics`` as metadata."""
    return field(default=0, metadata={"unit": unit, "help": help, "prometheus": prometheus})


class RuleTraffic:
    """Messages of the destinations of one rule since the start.

    Attributes:
        published: Messages that were stored.
        sent_first: Messages that were sent to consumers and subscribers for the first time, as a list of one number. A
            delivery to a subscriber of a topic is so short that it adds to the list and does not call a method.
        redelivered: Messages that were sent again.
        acknowledged: Deliveries of queues and durable subscriptions that clients acknowledged.
    """

    __slots__ = ("acknowledged", "published", "redelivered", "sent_first")

    def __init__(self) -> None:
        self.published = self.redelivered = self.acknowledged = 0
        self.sent_first = [0]

    @property
    def delivered(self) -> int:
        """Messages that were sent for the first time."""
        return self.sent_first[0]

    def stored(self, messages: int) -> None:
        """Count stored messages."""
        self.published += messages

    def sent(self, messages: int) -> None:
        """Count messages that were sent for the first time."""
        self.sent_first[0] += messages

    def settled(self, deliveries: int) -> None:
        """Count acknowledged deliveries."""
        self.acknowledged += deliveries

    def sent_again(self) -> None:
        """Count a message that was sent again."""
        self.redelivered += 1


class Traffic:
    """The traffic of all rules, by the label of the rule (``routing.rules.label_of``)."""

    def __init__(self) -> None:
        self.by_rule: dict[str, RuleTraffic] = {}

    def of(self, label: str) -> RuleTraffic:
        """Return the counters of a rule, created at first use."""
        found = self.by_rule.get(label)
        if found is None:
            found = self.by_rule[label] = RuleTraffic()
        return found

    def total(self, name: str) -> int:
        """Return the sum of one counter over all rules."""
        return sum(getattr(each, name) for each in self.by_rule.values())


class Histograms:
    """The durations that the broker measures on the event loop.

    Attributes:
        receipt: From the arrival of a message until it is stored as its rule says.
        event_loop_lag: The delay of a timer of the event loop.
    """

    def __init__(self) -> None:
        self.receipt = Histogram()
        self.event_loop_lag = Histogram()


@dataclass(slots=True)
class Stats:
    """Counters since the start. A counter never decreases.

    Attributes:
        traffic: The messages of each rule.
        histograms: The durations that the event loop measures.
    """

    traffic: Traffic = field(default_factory=Traffic)
    histograms: Histograms = field(default_factory=Histograms)
    connections: int = counter("connections", "Connections that the broker accepted.", "connections_accepted")
    messages_in: int = counter(
        "messages", "Messages that clients sent and the broker accepted, without duplicates.", "messages_published"
    )
    messages_copied: int = counter("messages", "Copies of messages that `archive:` rules stored.")
    body_bytes_in: int = counter("bytes", "Bytes of the bodies of these messages.", "published_bytes")
    commits: int = counter("batches", "Batches of messages whose write has ended.", "batches_written")
    delivered: int = counter(
        "messages",
        "Messages that were sent to consumers and subscribers for the first time, once for each of them.",
        "messages_delivered{kind=new}",
    )
    redelivered: int = counter(
        "messages", "Messages that queues sent again after an earlier delivery.", "messages_delivered{kind=redelivered}"
    )
    acks: int = counter("deliveries", "Deliveries that clients acknowledged.", "messages_acknowledged")
    nacks: int = counter("deliveries", "Deliveries that clients refused by NACK.", "messages_refused")
    late_acks: int = counter(
        "frames", "ACK and NACK frames for deliveries that were no longer in flight; ignored.", "acks_late"
    )
    deliveries_recorded: int = counter("rows", "Rows about deliveries that `record: deliveries` stored.")
    returned: int = counter("messages", "Unacknowledged messages that returned to their queue.", "messages_requeued")
    lost_to_retention: int = counter(
        "messages",
        "Messages that forced retention or damage removed before a queue had settled them.",
        "messages_lost{reason=retention}",
    )
    destinations_removed: int = counter(
        "destinations", "Destinations that were removed because they were unused (`expire`, `auto-delete`)."
    )
    lost_with_destination: int = counter(
        "messages",
        "Unsettled messages of queues that were removed because they were unused.",
        "messages_lost{reason=destination_removed}",
    )
    lost_to_failures: int = counter(
        "messages",
        "Messages that a failed disk lost after their receipt, under `fsync: never` or an interval.",
        "messages_lost{reason=disk}",
    )
    damaged_ranges: int = counter("ranges", "Unreadable ranges of logs that readers met, each counted once.")
    duplicates: int = counter(
        "messages", "Messages with a known message id, which were not stored again.", "messages_deduplicated"
    )
    ack_timeouts: int = counter("deliveries", "Deliveries that `ack_timeout` returned to the queue.")
    joins_refused: int = counter(
        "subscriptions", "Subscriptions that ended because a new destination exceeded `limits.joined`."
    )
    delays_not_kept: int = counter(
        "messages", "Messages that returned without the delay of their NACK: too many were delayed."
    )
    dead_lettered_rejected: int = counter(
        "messages", "Dead letters because of NACK with `requeue:false`.", "dead_letters{reason=rejected}"
    )
    dead_lettered_max_deliveries: int = counter(
        "messages", "Dead letters after `redeliver.max` deliveries.", "dead_letters{reason=max_deliveries}"
    )
    dead_lettered_expired: int = counter(
        "messages", "Dead letters that expired before their delivery.", "dead_letters{reason=expired}"
    )
    dead_lettered_unacked: int = counter(
        "messages",
        "Dead letters because their consumer ended, under `on_unacked: dead_letter`.",
        "dead_letters{reason=unacked}",
    )
    dropped_rejected: int = counter(
        "messages",
        "Messages dropped by NACK with `requeue:false`, without `dead_letter` in the rule.",
        "messages_dropped{reason=refused}",
    )
    dropped_max_deliveries: int = counter(
        "messages",
        "Messages dropped after `redeliver.max` deliveries, without `dead_letter` in the rule.",
        "messages_dropped{reason=max_deliveries}",
    )
    dropped_unacked: int = counter(
        "messages",
        "Messages dropped because their consumer ended, under `on_unacked: delete`.",
        "messages_dropped{reason=consumer_ended}",
    )
    dropped_in_circles: int = counter(
        "messages",
        "Dead letters dropped because a cycle of dead-letter queues had moved them too often.",
        "messages_dropped{reason=dead_letter_cycle}",
    )
    expired: int = counter("messages", "Messages that expired before their delivery.", "messages_expired")
    taken_over: int = counter(
        "subscriptions", "Durable subscriptions that another connection took over.", "durable_subscriptions_taken_over"
    )
    cursors_refused: int = counter(
        "cursors", "Cursors of durable subscriptions that could not be created; their messages are missed."
    )
    names_expired: int = counter(
        "subscriptions", "Durable subscriptions that `cursor_expiry` deleted.", "durable_subscriptions_expired"
    )
    dropped_replies: int = counter(
        "messages", "Messages to a temporary queue that was gone or full.", "messages_dropped{reason=no_reply_queue}"
    )
    missed_by_slow: int = counter(
        "messages",
        "Messages that were removed before a slow subscriber of a topic reached them (header `gap`).",
        "messages_lost{reason=slow_subscriber}",
    )
    blocked: int = counter("frames", "Frames that waited for room in a queue or in memory.", "frames_blocked")
    selectors_stopped: int = counter(
        "events", "How often a queue reached its limit of messages skipped by selector.", "selector_limits_reached"
    )
    rate_limited: int = counter("frames", "Frames that waited because of `rate_limit`.", "frames_rate_limited")
    memory_pauses: int = counter("events", "How often `limits.memory` was reached.", "memory_limits_reached")
    journal_pauses: int = counter(
        "events",
        "How often the journal was full, so that publishers waited for a checkpoint.",
        "journal_limits_reached",
    )
    memory_refusals: int = counter("frames", "ERROR frames with `full` because `limits.memory` was used up.")
    transactions_timed_out: int = counter(
        "transactions", "Transactions that were open for longer than `limits.transaction_timeout`."
    )
    dropped_newest: int = counter(
        "messages", "Messages dropped by `on_full: drop_newest`.", "messages_dropped{reason=full_newest}"
    )
    dropped_oldest: int = counter(
        "messages", "Messages dropped by `on_full: drop_oldest`.", "messages_dropped{reason=full_oldest}"
    )
    dropped_by_middleware: int = counter(
        "messages", "Messages that middleware dropped.", "messages_dropped{reason=middleware}"
    )
    rejected: int = counter("messages", "Messages that a schema or middleware refused.", "messages_rejected")
    middleware_failures: int = counter("messages", "Messages that were refused because middleware failed.")
    refused: int = counter("frames", "ERROR frames that the broker sent.", "errors_sent")
    internal_errors: int = counter("errors", "Unexpected exceptions; the log has their tracebacks.")
    logins_refused: int = counter("logins", "Logins that were refused.")
    turned_away: int = counter(
        "connections",
        "Connections over `limits.connections`, or over the system's limit of open files.",
        "connections_refused{reason=limit}",
    )
    not_stomp: int = counter(
        "connections",
        "Connections of another protocol, or with a failed TLS or WebSocket handshake.",
        "connections_refused{reason=protocol}",
    )
    silent: int = counter(
        "connections",
        "Connections that were closed because no heart-beat came in time.",
        "connections_lost{reason=no_heart_beat}",
    )
    gone_unread: int = counter(
        "connections",
        "Connections that the client closed while the broker did not read them.",
        "connections_lost{reason=closed_by_peer}",
    )
    log_lines_dropped: int = counter("lines", "Lines that could not be written to the log, to stdout or to stderr.")
    read_errors: int = counter("reads", "Reads from disk that failed.")

    def add_messages(self, messages: int, body_bytes: int) -> None:
        """Count messages that were sent, and the bytes of their bodies."""
        self.messages_in += messages
        self.body_bytes_in += body_bytes

    def add_acks(self, number: int) -> None:
        """Count acknowledged deliveries."""
        self.acks += number

    def add_ack(self, traffic: RuleTraffic) -> None:
        """Count an acknowledged delivery of a queue, also for its rule."""
        self.acks += 1
        traffic.acknowledged += 1

    @property
    def dead_lettered(self) -> int:
        """The number of messages that were moved to a dead-letter queue, for all reasons."""
        return (
            self.dead_lettered_rejected
            + self.dead_lettered_max_deliveries
            + self.dead_lettered_expired
            + self.dead_lettered_unacked
        )

    def add_commit(self) -> None:
        """Count a stored batch."""
        self.commits += 1

    def count(self, **numbers: int) -> None:
        """Add to counters by name: ``stats.count(expired=1)``."""
        for name, number in numbers.items():
            setattr(self, name, getattr(self, name) + number)

    def set_log_lines_dropped(self, count: int) -> None:
        """Set the number of lines for stdout and stderr that could not be written since the start."""
        self.log_lines_dropped = count

    def as_dict(self) -> dict[str, int]:
        """Return all counters by name. Deliveries are counted by rule, so their sums are made here."""
        self.delivered = self.traffic.total("delivered")
        self.redelivered = self.traffic.total("redelivered")
        return dict(zip(_NAMES, _values(self), strict=True))


COUNTERS: Final = tuple(Metric(each.name, **each.metadata) for each in fields(Stats) if each.metadata)
"""The table of the counters, in the order of ``/stats``."""

_NAMES: Final = tuple(each.name for each in COUNTERS)
_values = attrgetter(*_NAMES)
