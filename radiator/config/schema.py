"""The table of keys: one row per key that a file may hold, with its field, its reader and its default.

The loader walks a file by these tables and the tests walk the documents by them, so a key cannot exist that is not
read, documented and shown in conf/radiator.yaml. A reader takes the scalar's text and returns a value or raises
ValueError("expected ..."). ``None`` in a field means "no limit" or "off" and is written ``none``.

NOT_OFFERED holds the keys that radiator's interface reserves but this version does not implement: accepting one
silently would be a promise nobody keeps, and calling it unknown would send people looking for a typing error.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from radiator import limits
from radiator.clock import NS_PER_MS, NS_PER_SECOND
from radiator.config.model import AdminAddress
from radiator.config.units import format_size, parse_duration_ns, parse_size, parse_time_of_day

Reader = Callable[[str], Any]

DEFAULT_LISTEN: Final = "stomp://127.0.0.1:61613"
DEFAULT_PORTS: Final = {"stomp": 61613, "stomp+tls": 61614, "ws": 15674, "wss": 15673}
SCHEME_ALIASES: Final = {"stomps": "stomp+tls", "stomp+ssl": "stomp+tls"}  # as other brokers have it


class Key(NamedTuple):
    """``path`` is dotted within its table; ``default`` is written as in a file, and read by the same reader."""

    path: str
    field: str
    read: Reader
    default: str
    many: bool = False  # a list of such values, or one: the field is a tuple, by default an empty one


# --- readers ----------------------------------------------------------------------------------------------------------


def text(what: str, pattern: str = r"[^\x00]+") -> Reader:
    compiled = re.compile(pattern)

    def read(value: str) -> str:
        if not compiled.fullmatch(value):
            raise ValueError(f"expected {what}")
        return value

    return read


def choice(values: dict[str, Any] | tuple[str, ...]) -> Reader:
    table = values if isinstance(values, dict) else {value: value for value in values}

    def read(value: str) -> Any:
        if value not in table:
            raise ValueError(f"expected {' or '.join(table)}")
        return table[value]

    return read


def count(least: int, most: int) -> Reader:
    def read(value: str) -> int:
        if not re.fullmatch(r"0|[1-9][0-9_]{0,17}", value) or not least <= int(value) <= most:
            raise ValueError(f"expected a whole number, {least} to {most}")
        return int(value)

    return read


def size(least: int, most: int) -> Reader:
    def read(value: str) -> int:
        size_bytes = parse_size(value)
        if not least <= size_bytes <= most:
            raise ValueError(f"expected {format_size(least)} to {format_size(most)}")
        return size_bytes

    return read


def duration(least: str, most: str, unit_ns: int) -> Reader:
    def read(value: str) -> Any:
        duration_ns = parse_duration_ns(value)
        if not parse_duration_ns(least) <= duration_ns <= parse_duration_ns(most):
            raise ValueError(f"expected {least} to {most}")
        return duration_ns // unit_ns if duration_ns % unit_ns == 0 else duration_ns / unit_ns

    return read


def number(least: float, most: float) -> Reader:
    def read(value: str) -> float:
        if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", value) or not least <= float(value) <= most:
            raise ValueError(f"expected a number, {least} to {most}")
        return float(value)

    return read


def or_none(read: Reader, none: Any = None) -> Reader:
    """``none`` switches the thing off."""

    def read_or_none(value: str) -> Any:
        if value == "none":
            return none
        try:
            return read(value)
        except ValueError as error:
            raise ValueError(str(error).replace("expected ", "expected none or ", 1)) from None

    return read_or_none


def fsync(value: str) -> int | None:
    if value == "always":
        return 0
    if value == "never":
        return None
    try:
        interval_ns = parse_duration_ns(value)
    except ValueError as error:
        raise ValueError(str(error).replace("expected ", "expected always, never or ", 1)) from None
    if not NS_PER_MS <= interval_ns <= 3_600 * NS_PER_SECOND:
        raise ValueError("expected always, never or an interval of 1ms to 1h")
    return interval_ns


def rate(value: str) -> float:
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(?:/([smh]))?", value)
    a_second = float(match[1]) / {"s": 1, "m": 60, "h": 3_600}[match[2] or "s"] if match is not None else 0.0
    if not a_second:
        raise ValueError("expected messages a second such as 100, or 100/s, 600/m, 1000/h")
    return a_second


def pause(value: str) -> int | None:
    if value == "auto":
        return None
    try:
        return int(duration("0ms", DAY_MAX, 1)(value))
    except ValueError as error:
        raise ValueError(str(error).replace("expected ", "expected auto or ", 1)) from None


def header(what: str) -> Reader:
    """``header:NAME``; ``what`` says what its value is for."""

    def read(value: str) -> str:
        match = re.fullmatch(r"header:([^\x00\s:][^\x00:]*)", value)
        if match is None:
            raise ValueError(f"expected header:NAME, the header whose value {what}")
        return match[1]

    return read


def function(value: str) -> str:
    if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*", value):
        raise ValueError("expected MODULE:FUNCTION such as mypackage.hooks:stamp")
    return value


def plugin(value: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9_.-]+", value):
        return value
    try:
        return function(value)
    except ValueError:
        raise ValueError("expected the name of an entry point of the group radiator.auth, or MODULE:NAME") from None


def http_address(value: str) -> AdminAddress:
    match = re.fullmatch(r"http://([A-Za-z0-9._-]+|\*|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})/?", value)
    if match is None or int(match[2]) > 65_535:
        raise ValueError("expected http://HOST:PORT such as http://127.0.0.1:8161")
    return AdminAddress(host="0.0.0.0" if match[1] == "*" else match[1].strip("[]"), port=int(match[2]))


def origin(value: str) -> str:
    """The ``Origin`` that a browser sends: scheme, host, port if it is not the scheme's own, in lower case."""
    if value == "null":  # of pages that are files
        return value
    found = re.fullmatch(r"(https?)://([a-z0-9._-]+|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?/?", value.lower())
    if found is None:
        raise ValueError("expected the origin of a web page such as https://app.example or http://localhost:8080")
    port = found[3] if found[3] != {"http": "80", "https": "443"}[found[1]] else None
    return f"{found[1]}://{found[2]}" + (f":{port}" if port else "")


# --- the tables -------------------------------------------------------------------------------------------------------

EXA: Final = 1 << 60  # "as much as you like": far over any disk, far under what a 64 bit number holds
DAY_MAX: Final = "36500d"
IN_FLIGHT_MAX: Final = 1_000_000  # each delivery that is not acknowledged has an entry in memory

# At the top level, and in an entry of ``listen:``.
TLS: Final[tuple[Key, ...]] = (
    Key("tls.cert", "tls_cert", or_none(text("a file")), "none"),
    Key("tls.key", "tls_key", or_none(text("a file")), "none"),
    Key("tls.client_ca", "tls_client_ca", or_none(text("a file")), "none"),
)

TOP: Final[tuple[Key, ...]] = (
    Key("version", "version", choice({"1": 1}), "1"),
    Key("data_dir", "data_dir", text("a directory"), "./data"),
    Key("admin", "admin", or_none(http_address), "none"),
    Key("admin_hosts", "admin_hosts", text("a host name such as broker.example", r"[A-Za-z0-9._-]+"), "", many=True),
    *TLS,
    Key("auth.users_file", "users_file", or_none(text("the path of a users file")), "none"),
    Key("auth.anonymous", "anonymous", choice(("loopback", "never", "always")), "loopback"),
    Key("auth.plugin", "plugin", or_none(plugin), "none"),
    Key("auth.plugin_timeout", "plugin_timeout_ns", duration("100ms", "1h", 1), f"{limits.PLUGIN_SECONDS_MAX:.0f}s"),
    Key("regex_subscriptions", "regex_subscriptions", choice({"true": True, "false": False}), "false"),
    Key("limits.message", "message", size(1, limits.BATCH_BYTES_MAX // 2), format_size(limits.FRAME_BODY_BYTES_MAX)),
    Key("limits.headers", "headers", size(256, limits.MIB), format_size(limits.HEADER_BLOCK_BYTES_MAX)),
    Key("limits.header_count", "header_count", count(8, 10_000), str(limits.HEADER_COUNT_MAX)),
    Key("limits.connections", "connections", count(1, 1_000_000), str(limits.CONNECTIONS_MAX)),
    Key(
        "limits.connect_timeout",
        "connect_timeout_seconds",
        duration("100ms", "1h", NS_PER_SECOND),
        f"{limits.CONNECT_TIMEOUT_SECONDS:.0f}s",
    ),
    Key(
        "limits.frame_timeout",
        "frame_timeout_seconds",
        or_none(duration("100ms", "1d", NS_PER_SECOND)),
        f"{limits.FRAME_TIMEOUT_SECONDS / 60:.0f}m",
    ),
    Key("limits.outbox", "outbox", size(4 * limits.KIB, limits.GIB), format_size(limits.OUTBOX_BYTES_MAX)),
    Key("limits.in_flight", "in_flight", count(1, IN_FLIGHT_MAX), str(limits.IN_FLIGHT_MAX)),
    Key("limits.subscriptions", "subscriptions", count(1, 100_000), str(limits.SUBSCRIPTIONS_PER_SESSION_MAX)),
    Key("limits.joined", "joined", count(1, 10_000_000), str(limits.JOINED_PER_SESSION_MAX)),
    Key("limits.joined_total", "joined_total", count(1, 50_000_000), str(limits.JOINED_MAX)),
    Key("limits.transactions", "transactions", count(1, 10_000), str(limits.TRANSACTIONS_PER_SESSION_MAX)),
    Key(
        "limits.transaction",
        "transaction",
        size(limits.KIB, limits.BATCH_BYTES_MAX),
        format_size(limits.TRANSACTION_BYTES_MAX),
    ),
    Key(
        "limits.transaction_timeout",
        "transaction_timeout_seconds",
        or_none(duration("100ms", "1d", NS_PER_SECOND)),
        f"{limits.TRANSACTION_TIMEOUT_SECONDS / 60:.0f}m",
    ),
    Key("limits.destinations", "destinations", count(1, 1_000_000), str(limits.DESTINATIONS_MAX)),
    Key("limits.tail", "tail", size(limits.MIB, 64 * limits.GIB), format_size(limits.TAIL_BYTES_MAX)),
    Key("limits.memory", "memory", size(limits.MIB, 1 << 40), format_size(limits.MEMORY_BYTES_MAX)),
    Key("heart_beat.send", "send_ms", or_none(duration("100ms", "1d", NS_PER_MS), 0), "10s"),
    Key("heart_beat.expect", "expect_ms", or_none(duration("100ms", "1d", NS_PER_MS), 0), "10s"),
    Key("heart_beat.grace", "grace", number(1.0, 100.0), "2.0"),
    Key("disk.min_free", "min_free_bytes", or_none(size(0, EXA), 0), "1GiB"),
)

# In an entry of ``listen:`` that is a mapping, beside ``url`` and ``origins``.
LISTEN: Final[tuple[Key, ...]] = TLS

# Under ``defaults:`` and in every rule.
COMMON: Final[tuple[Key, ...]] = (
    Key("store", "store", choice(("file", "memory")), "file"),
    Key("fsync", "fsync_interval_ns", fsync, "always"),
    Key(
        "segment.size",
        "segment_bytes",
        size(limits.SEGMENT_BYTES_MIN, limits.SEGMENT_BYTES_MAX),
        format_size(limits.SEGMENT_BYTES),
    ),
    Key("segment.roll_at", "roll_at_seconds", or_none(parse_time_of_day), "none"),
    Key("retention.age", "retention_age_ns", or_none(duration("1s", DAY_MAX, 1)), "none"),
    Key("retention.size", "retention_bytes", or_none(size(1, EXA)), "none"),
    Key("retention.count", "retention_count", or_none(count(1, EXA)), "none"),
    Key("dedup.window", "dedup_window_ns", or_none(duration("1s", DAY_MAX, 1)), "10m"),
    Key("dedup.count", "dedup_count", count(1, 10_000_000), str(limits.DEDUP_COUNT)),
    Key("retention.acked", "reclaim_acked", choice({"reclaim": True, "keep": False}), "reclaim"),
    Key("retention.force", "retention_force", choice({"true": True, "false": False}), "false"),
    Key("retention.wait_for", "wait_for_archive", choice({"none": False, "archive": True}), "none"),
    Key("compress", "compress", or_none(choice(("zstd",))), "none"),
    Key("merge_commits", "merge_commits", choice({"true": True, "false": False}), "true"),
    Key("compact_by", "compact_by", or_none(header("is the key of a message")), "none"),
    Key("prefetch", "prefetch", or_none(count(1, IN_FLIGHT_MAX)), "1"),
    Key("exclusive", "exclusive", choice({"true": True, "false": False}), "false"),
    Key("cursor_expiry", "cursor_expiry_ns", or_none(duration("1s", DAY_MAX, 1)), "none"),
    Key("create", "create", choice({"allow": True, "deny": False}), "allow"),
    Key("ack_timeout", "ack_timeout_ns", or_none(duration("10ms", DAY_MAX, 1)), "none"),
    Key("redeliver.max", "redeliver_max", or_none(count(1, 1_000_000)), "none"),
    Key("redeliver.delay", "redeliver_delay_ns", pause, "auto"),
    Key("redeliver.backoff", "redeliver_backoff", number(1.0, 100.0), "1.0"),
    Key("redeliver.max_delay", "redeliver_max_delay_ns", duration("1ms", DAY_MAX, 1), "5m"),
    Key("redeliver.jitter", "redeliver_jitter", number(0.0, 1.0), "0.0"),
    Key("dead_letter", "dead_letter", or_none(text("the name of a queue")), "none"),
    Key("dead_letter_expired", "dead_letter_expired", choice({"true": True, "false": False}), "false"),
    Key("on_unacked", "on_unacked", choice(("requeue", "dead_letter", "delete")), "requeue"),
    Key("message_ttl", "message_ttl_ns", or_none(duration("1ms", DAY_MAX, 1)), "none"),
    Key("max_messages", "max_messages", or_none(count(1, EXA)), "none"),
    Key("max_bytes", "max_bytes", or_none(size(1, EXA)), "none"),
    Key("on_full", "on_full", choice(("reject", "block", "drop_oldest", "drop_newest")), "reject"),
    Key("block_timeout", "block_timeout_ns", or_none(duration("1ms", "1d", 1)), "30s"),
    Key("rate_limit.messages", "rate_messages", or_none(rate), "none"),
    Key("rate_limit.burst", "rate_burst", or_none(count(1, 1_000_000)), "none"),
    Key("rate_limit.action", "rate_action", choice(("block", "reject")), "block"),
)

# In a rule only.
RULE_ONLY: Final[tuple[Key, ...]] = (
    Key("match", "match", text("a pattern such as /topic/weather.*"), ""),
    Key("match_regex", "match_regex", text("a regular expression for the whole name"), ""),
    Key("kind", "kind", choice(("queue", "topic")), ""),
    Key("partition", "partition", text("a partition name such as {name} or weather-{1}"), "{name}"),
    Key("partitions", "partitions", count(1, limits.PARTITIONS_PER_DESTINATION_MAX), "1"),
    Key("partition_by", "partition_by", or_none(header("chooses the partition")), "none"),
    Key("fan_out", "fan_out", text("the name of a queue such as {name}.billing"), "", many=True),
    Key("priority", "priority", choice({"true": True, "false": False}), "false"),
    Key("schema", "schema", or_none(text("the path of a JSON Schema")), "none"),
    Key("schema_changes", "schema_changes_compatible", choice({"compatible": True, "any": False}), "compatible"),
    Key("middleware", "middleware", function, "", many=True),
)

RULE: Final[tuple[Key, ...]] = RULE_ONLY + COMMON

# Keys of the top level whose value is a list or a table; the loader reads each by its own function.
OTHERS: Final = ("listen", "defaults", "destinations")

NOT_OFFERED: Final[dict[str, str]] = {
    "archive": "further copies for analysis",
    "logging": "log configuration",
    "subscriptions": "durable names created by configuration",
}
RULE_NOT_OFFERED: Final[dict[str, str]] = {}
# The keys whose value is a boolean: there a bare true or false is what it says.
BOOLEANS: Final = frozenset(
    {"retention.force", "merge_commits", "dead_letter_expired", "priority", "exclusive", "regex_subscriptions"}
)

# What a bare yes/no/on/off/true/false most likely meant, by key.
MEANT: Final[dict[str, tuple[str, str]]] = {  # (for the affirmative, for the negative)
    "fsync": ("always", "never"),
    "create": ("allow", "deny"),
    "auth.anonymous": ("always", "never"),
}


def tree(keys: tuple[Key, ...]) -> dict[str, Any]:
    """``limits.message`` and ``limits.tail`` -> ``{"limits": {"message": ..., "tail": ...}}``."""
    found: dict[str, Any] = {}
    for key in keys:
        section, dot, name = key.path.partition(".")
        if dot:
            found.setdefault(section, {})[name] = key
        else:
            found[section] = key
    return found
