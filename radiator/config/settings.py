"""The settings of a destination, the rule that gives them, and the limits: the one table of their keys.

Each setting is one entry below: the field and its Python type, the key, the type of the value with its unit and range,
the default, whether a running broker can take another value (if not, why), and what queues of its own kind have in its
place; then a line of documentation. Everything else is derived from the entry:
how the file is read (``schema``), what ``check-config --explain`` shows, which settings destinations that share a log
must have in common, and the comparison with docs/configuration.md.

The broker and the storage read ``Settings``. A ``Settings`` value never changes; all destinations of a rule share one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, Literal

from radiator import limits
from radiator.clock import NS_PER_SECOND
from radiator.config.keys import AT_CONNECT, AT_RUN_TIME, ONLY_OFF, REFUSED, Applies, To, keys_of, of_log, setting
from radiator.config.units import format_size
from radiator.config.values import (
    BOOLEAN,
    FSYNC,
    FUNCTION,
    RATE,
    TIME_OF_DAY,
    SyncPolicy,
    choice,
    count,
    duration,
    header,
    number,
    or_none,
    or_word,
    size,
    text,
)

Kind = Literal["queue", "topic"]
StoreKind = Literal["file", "memory"]
OnFull = Literal["reject", "block", "drop_oldest", "drop_newest"]
OnUnacked = Literal["requeue", "dead_letter", "delete"]
RateAction = Literal["block", "reject"]

EXA: Final = 1 << 60  # "no limit": larger than any disk, and fits 64 bits
DAY_MAX: Final = "36500d"
# Why a running broker cannot take another value of a key.
LOGS: Final = Applies("it decides which logs and cursors exist", To.NEW_DESTINATIONS)

IN_FLIGHT_MAX: Final = 1_000_000  # each delivery that is not acknowledged has an entry in memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What ``defaults:`` and each rule can set. Numbers are bytes or counts unless the name has another unit."""

    store: StoreKind = of_log(
        "store",
        choice(("file", "memory")),
        "file",
        Applies("a log begins in files or in memory", To.NEW_DESTINATIONS),
        temporary="memory",
    )
    """Where messages are stored."""
    sync: SyncPolicy = of_log(
        "fsync",
        FSYNC,
        "always",
        AT_RUN_TIME,
        in_memory=REFUSED,
        temporary="never",
    )
    """When a RECEIPT may be sent: after the sync, or after the write."""
    segment_bytes: int = of_log(
        "segment.size",
        size(limits.SEGMENT_BYTES_MIN, limits.SEGMENT_BYTES_MAX),
        format_size(limits.SEGMENT_BYTES),
        AT_RUN_TIME,
        in_memory=REFUSED,
    )
    """Size at which a new segment begins."""
    roll_at_seconds: int | None = of_log(
        "segment.roll_at", or_none(TIME_OF_DAY), "none", AT_RUN_TIME, in_memory=REFUSED
    )
    """Second of the UTC day at which a new segment begins."""
    retention_age_ns: int | None = of_log(
        "retention.age", or_none(duration("1s", DAY_MAX)), "none", AT_RUN_TIME, temporary="none"
    )
    """Segments are deleted when their last message is older."""
    retention_bytes: int | None = of_log("retention.size", or_none(size(1, EXA)), "none", AT_RUN_TIME, temporary="none")
    """The oldest segments are deleted while the others have this size."""
    retention_count: int | None = of_log(
        "retention.count", or_none(count(1, EXA)), "none", AT_RUN_TIME, temporary="none"
    )
    """The oldest segments are deleted while the others have so many messages."""
    reclaim_acked: bool = of_log("retention.acked", choice({"reclaim": True, "keep": False}), "reclaim", AT_RUN_TIME)
    """Whether the settled messages of a log that holds only queues are deleted."""
    retention_force: bool = of_log(
        "retention.force", BOOLEAN, "false", AT_RUN_TIME, in_memory=ONLY_OFF, temporary="false"
    )
    """Whether age, size and count delete messages that a queue has not settled."""
    wait_for_archive: bool = of_log(
        "retention.wait_for",
        choice({"none": False, "archive": True}),
        "none",
        AT_RUN_TIME,
        in_memory=ONLY_OFF,
        temporary="none",
    )
    """Whether segments are stored until the archive has them."""
    dedup_window_ns: int | None = of_log("dedup.window", or_none(duration("1s", DAY_MAX)), "10m", AT_RUN_TIME)
    """How long the ids of messages are remembered; none: they are ignored."""
    dedup_count: int = of_log("dedup.count", count(1, 10_000_000), str(limits.DEDUP_COUNT), AT_RUN_TIME)
    """How many ids a partition remembers at least."""
    compress: str | None = of_log(
        "compress", or_none(choice(("zstd",))), "none", AT_RUN_TIME, in_memory=ONLY_OFF, temporary="none"
    )
    """Compression of sealed segments."""
    merge_commits: bool = of_log("merge_commits", BOOLEAN, "true", AT_RUN_TIME, in_memory=REFUSED, temporary="false")
    """Whether the small batches of sealed segments are merged."""
    compact_by: str | None = of_log(
        "compact_by",
        or_none(header("is the key of a message")),
        "none",
        Applies("the keys of a log are collected by it", To.NEW_DESTINATIONS),
        in_memory=ONLY_OFF,
        temporary="none",
    )
    """Header whose value is the key: of each key the last message is stored."""
    prefetch: int | None = setting("prefetch", or_none(count(1, IN_FLIGHT_MAX)), "1", AT_RUN_TIME)
    """Unacknowledged messages that a new consumer may hold; none: limits.in_flight."""
    exclusive: bool = setting(
        "exclusive", BOOLEAN, "false", Applies("consumers have joined a queue with it", To.NEW_DESTINATIONS)
    )
    """Whether only one consumer of a queue is served."""
    cursor_expiry_ns: int | None = setting("cursor_expiry", or_none(duration("1s", DAY_MAX)), "none", AT_RUN_TIME)
    """Time after which an unused durable subscription is deleted."""
    idle_ns: int | None = setting(
        "expire.idle",
        or_none(duration("1s", DAY_MAX)),
        "none",
        AT_RUN_TIME,
        temporary="none",
    )
    """Time after which an unused destination is removed."""
    create: bool = setting("create", choice({"allow": True, "deny": False}), "allow", AT_RUN_TIME, temporary="allow")
    """Whether clients may create the destination by using it."""
    ack_timeout_ns: int | None = setting("ack_timeout", or_none(duration("10ms", DAY_MAX)), "none", AT_RUN_TIME)
    """Time after which an unacknowledged delivery goes back to the queue."""
    redeliver_max: int | None = setting(
        "redeliver.max", or_none(count(1, 1_000_000)), "none", AT_RUN_TIME, temporary="none", of_dead_letters="none"
    )
    """How often a message is delivered at most."""
    redeliver_delay_ns: int | None = setting(
        "redeliver.delay", or_word("auto", None, duration("0ms", DAY_MAX)), "auto", AT_RUN_TIME
    )
    """Pause before a refused message is delivered again."""
    redeliver_backoff: float = setting("redeliver.backoff", number(1.0, 100.0), "1.0", AT_RUN_TIME)
    """Factor by which each pause is longer than the one before."""
    redeliver_max_delay_ns: int = setting("redeliver.max_delay", duration("1ms", DAY_MAX), "5m", AT_RUN_TIME)
    """The longest pause, unless the delay is longer."""
    redeliver_jitter: float = setting("redeliver.jitter", number(0.0, 1.0), "0.0", AT_RUN_TIME)
    """Part by which each pause is randomly longer or shorter."""
    dead_letter: str | None = setting(
        "dead_letter", or_none(text("the name of a queue")), "none", AT_RUN_TIME, temporary="none"
    )
    """Template of the queue for messages that cannot be delivered."""
    dead_letter_expired: bool = setting("dead_letter_expired", BOOLEAN, "false", AT_RUN_TIME)
    """Whether expired messages go to the dead-letter queue."""
    on_unacked: OnUnacked = setting(
        "on_unacked",
        choice(("requeue", "dead_letter", "delete")),
        "requeue",
        AT_RUN_TIME,
        temporary="requeue",
        of_dead_letters="requeue",
    )
    """What is done with the unacknowledged messages of a lost consumer."""
    record_deliveries: bool = setting(
        "record",
        choice({"none": False, "deliveries": True}),
        "none",
        AT_RUN_TIME,
        in_memory=ONLY_OFF,
        temporary="none",
    )
    """Whether each delivery of a queue is recorded in /topic/radiator.deliveries."""
    message_ttl_ns: int | None = setting(
        "message_ttl",
        or_none(duration("1ms", DAY_MAX)),
        "none",
        AT_RUN_TIME,
        of_dead_letters="none",
    )
    """Time after which a message of a queue expires."""
    max_messages: int | None = setting("max_messages", or_none(count(1, EXA)), "none", AT_RUN_TIME)
    """Messages that a queue may have."""
    max_bytes: int | None = setting("max_bytes", or_none(size(1, EXA)), "none", AT_RUN_TIME)
    """Bytes that a queue may have."""
    on_full: OnFull = setting(
        "on_full", choice(("reject", "block", "drop_oldest", "drop_newest")), "reject", AT_RUN_TIME
    )
    """What is done with a SEND to a full queue."""
    block_timeout_ns: int | None = setting("block_timeout", or_none(duration("1ms", "1d")), "30s", AT_RUN_TIME)
    """How long a sender waits for room."""
    rate_messages: float | None = setting("rate_limit.messages", or_none(RATE), "none", AT_RUN_TIME)
    """Messages a second that one connection may send."""
    rate_burst: int | None = setting("rate_limit.burst", or_none(count(1, 1_000_000)), "none", AT_RUN_TIME)
    """Messages that one connection may send at once; none: those of a second."""
    rate_action: RateAction = setting("rate_limit.action", choice(("block", "reject")), "block", AT_RUN_TIME)
    """What is done with a SEND above the rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One entry of ``destinations:``: which names it matches, what it makes of a name, and their settings."""

    line: int = 0  # of the file; 0 for the rule that is not written there: the defaults
    settings: Settings = Settings()
    match: str | None = setting("match", text("a pattern such as /topic/weather.*"), "", AT_RUN_TIME)
    """Patterns of the destinations that the rule owns."""
    match_regex: str | None = setting("match_regex", text("a regular expression for the whole name"), "", AT_RUN_TIME)
    """The same as a regular expression."""
    kind: Kind | None = setting("kind", choice(("queue", "topic")), "", LOGS)
    """What the destinations are; default: by their names."""
    partition: str = setting("partition", text("a partition name such as {name} or weather-{1}"), "{name}", LOGS)
    """Template of the partition's name."""
    partitions: int = setting("partitions", count(1, limits.PARTITIONS_PER_DESTINATION_MAX), "1", LOGS)
    """Number of partitions of a destination."""
    partition_by: str | None = setting(
        "partition_by",
        or_none(header("chooses the partition")),
        "none",
        Applies("messages of a key would change their partition", To.NEW_DESTINATIONS),
    )
    """Header whose value selects the partition."""
    priority: bool = setting("priority", BOOLEAN, "false", LOGS)
    """Whether a queue has a log for each of ten priorities."""
    fan_out: tuple[str, ...] = setting(
        "fan_out", text("the name of a queue such as {name}.billing"), "", LOGS, many=True
    )
    """Templates of the queues that get the messages too."""
    schema: str | None = setting("schema", or_none(text("the path of a JSON Schema")), "none", AT_RUN_TIME)
    """JSON Schema that message bodies must match."""
    schema_changes_compatible: bool = setting(
        "schema_changes", choice({"compatible": True, "any": False}), "compatible", AT_RUN_TIME
    )
    """Whether a new schema must accept what earlier ones describe."""
    schema_column: str | None = setting(
        "schema_column", or_none(text("a name such as flight", r"[A-Za-z_][A-Za-z0-9_]{0,63}")), "none", AT_RUN_TIME
    )
    """Struct column of the fields of the bodies; none: by the title of the schema, or the name of its file."""
    decoder: str | None = setting("decoder", or_none(FUNCTION), "none", AT_RUN_TIME)
    """Function with which readers decode bodies that are not JSON."""
    middleware: tuple[str, ...] = setting("middleware", FUNCTION, "", AT_RUN_TIME, many=True)
    """Functions that see each SEND first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsConfig:
    """The limits that an operator may change. ``radiator/limits.py`` has their reasons."""

    message: int = setting(
        "limits.message", size(1, limits.BATCH_BYTES_MAX // 2), format_size(limits.FRAME_BODY_BYTES_MAX), AT_CONNECT
    )
    """Bytes of the body of a frame."""
    headers: int = setting(
        "limits.headers", size(256, limits.MIB), format_size(limits.HEADER_BLOCK_BYTES_MAX), AT_CONNECT
    )
    """Bytes of the header lines of a frame."""
    header_count: int = setting("limits.header_count", count(8, 10_000), str(limits.HEADER_COUNT_MAX), AT_CONNECT)
    """Header lines of a frame."""
    connections: int = setting("limits.connections", count(1, 1_000_000), str(limits.CONNECTIONS_MAX), AT_RUN_TIME)
    """Connections at the same time."""
    connect_timeout_seconds: float = setting(
        "limits.connect_timeout",
        duration("100ms", "1h", NS_PER_SECOND),
        f"{limits.CONNECT_TIMEOUT_SECONDS:.0f}s",
        AT_CONNECT,
    )
    """Time from the connection to CONNECT."""
    frame_timeout_seconds: float | None = setting(
        "limits.frame_timeout",
        or_none(duration("100ms", "1d", NS_PER_SECOND)),
        f"{limits.FRAME_TIMEOUT_SECONDS / 60:.0f}m",
        AT_RUN_TIME,
    )
    """Time that a part of a frame waits for the rest."""
    outbox: int = setting(
        "limits.outbox", size(4 * limits.KIB, limits.GIB), format_size(limits.OUTBOX_BYTES_MAX), AT_CONNECT
    )
    """Bytes that wait in memory for one socket."""
    in_flight: int = setting("limits.in_flight", count(1, IN_FLIGHT_MAX), str(limits.IN_FLIGHT_MAX), AT_CONNECT)
    """Unacknowledged deliveries of one subscription."""
    subscriptions: int = setting(
        "limits.subscriptions", count(1, 100_000), str(limits.SUBSCRIPTIONS_PER_SESSION_MAX), AT_CONNECT
    )
    """Subscriptions of one session."""
    joined: int = setting("limits.joined", count(1, 10_000_000), str(limits.JOINED_PER_SESSION_MAX), AT_CONNECT)
    """Destinations that the subscriptions of one session take part in."""
    joined_total: int = setting("limits.joined_total", count(1, 50_000_000), str(limits.JOINED_MAX), AT_RUN_TIME)
    """Destinations that all subscriptions take part in."""
    transactions: int = setting(
        "limits.transactions", count(1, 10_000), str(limits.TRANSACTIONS_PER_SESSION_MAX), AT_CONNECT
    )
    """Open transactions of one session."""
    transaction: int = setting(
        "limits.transaction",
        size(limits.KIB, limits.BATCH_BYTES_MAX),
        format_size(limits.TRANSACTION_BYTES_MAX),
        AT_CONNECT,
    )
    """Bytes of all open transactions of one session."""
    transaction_timeout_seconds: float | None = setting(
        "limits.transaction_timeout",
        or_none(duration("100ms", "1d", NS_PER_SECOND)),
        f"{limits.TRANSACTION_TIMEOUT_SECONDS / 60:.0f}m",
        AT_CONNECT,
    )
    """Time from BEGIN to COMMIT or ABORT."""
    destinations: int = setting("limits.destinations", count(1, 1_000_000), str(limits.DESTINATIONS_MAX), AT_RUN_TIME)
    """Destinations of the broker."""
    tail: int = setting(
        "limits.tail", size(limits.MIB, 64 * limits.GIB), format_size(limits.TAIL_BYTES_MAX), AT_RUN_TIME
    )
    """Bytes of recent messages in memory, over all partitions."""
    memory: int = setting("limits.memory", size(limits.MIB, 1 << 40), format_size(limits.MEMORY_BYTES_MAX), AT_RUN_TIME)
    """Bytes that all clients together can make the broker hold."""


LIMITS: Final = keys_of(LimitsConfig)
SETTINGS: Final = keys_of(Settings)
RULE_ONLY: Final = keys_of(Rule)
OF_LOG: Final = tuple(key for key in SETTINGS if key.of_log)

log_values: Callable[[Settings], tuple[object, ...]] = attrgetter(*(key.field for key in OF_LOG))
"""The settings of a log, as one value to compare."""
