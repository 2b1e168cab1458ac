"""The values that a configuration comes down to: frozen, complete, without YAML.

Numbers are bytes or counts unless their name says another unit. ``None`` means "no limit", "never" or "off" as the
name suggests; there is no "unset", since every default has been filled in.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

Kind = Literal["queue", "topic"]
StoreKind = Literal["file", "memory"]
OnFull = Literal["reject", "block", "drop_oldest", "drop_newest"]
OnUnacked = Literal["requeue", "dead_letter", "delete"]


class Tls(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a TLS listener, PEM. With ``client_ca`` clients must have a certificate that it vouches for."""

    cert: str
    key: str
    client_ca: str | None = None


class Listen(msgspec.Struct, frozen=True):
    """One place to listen: a port (0: any free one) of a host, or with ``unix`` a path. With ``ws`` and ``wss`` the
    path is that of the URL, empty: any, and ``origins`` are the web pages that may connect: exactly these, or those of
    the broker's own host and of the loopback (``own``), or any."""

    scheme: Literal["stomp", "stomp+tls", "ws", "wss", "unix"]
    host: str = ""
    port: int = 0
    path: str = ""
    tls: Tls | None = None  # None where there is none, and where the default of all is meant
    origins: tuple[str, ...] | Literal["own", "any"] = "own"

    @property
    def encrypted(self) -> bool:
        return self.scheme in ("stomp+tls", "wss")

    @property
    def web(self) -> bool:
        """WebSocket."""
        return self.scheme in ("ws", "wss")

    def __str__(self) -> str:
        if self.scheme == "unix":
            return f"unix:{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"


class AdminAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where health and figures are told over HTTP; port 0: any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"


class HeartBeat(NamedTuple):
    """What the broker offers and expects, 0 = none; a peer silent for ``expect_ms * grace`` is gone."""

    send_ms: int
    expect_ms: int
    grace: float


class AuthConfig(NamedTuple):
    """Who may connect. Without file and plug-in there are no users, and every login is as good as none."""

    users_file: str | None
    anonymous: Literal["loopback", "never", "always"]
    plugin: str | None  # an entry point of the group radiator.auth, or module:name
    plugin_timeout_ns: int  # of one call

    @property
    def has_users(self) -> bool:
        return self.users_file is not None or self.plugin is not None


class LimitsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The limits an operator may change (their reasons: ``radiator/limits.py``)."""

    message: int
    headers: int
    header_count: int
    connections: int
    connect_timeout_seconds: float
    frame_timeout_seconds: float | None
    outbox: int
    in_flight: int
    subscriptions: int
    joined: int
    joined_total: int
    transactions: int
    transaction: int
    transaction_timeout_seconds: float | None
    destinations: int
    tail: int
    memory: int


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of ``destinations:``, with the defaults already filled in."""

    line: int = 0  # of the file; 0 for the rule that is not written there: the defaults
    match: str | None = None
    match_regex: str | None = None
    kind: Kind | None = None  # None: by the name, /queue/... is a queue
    store: StoreKind
    partition: str
    partitions: int
    partition_by: str | None  # name of a header
    priority: bool  # queues: a log for each of ten priorities
    fsync_interval_ns: int | None  # 0: always, None: never
    segment_bytes: int
    roll_at_seconds: int | None  # second of the day, UTC
    retention_age_ns: int | None
    retention_bytes: int | None
    retention_count: int | None
    dedup_window_ns: int | None  # None: off
    dedup_count: int
    reclaim_acked: bool
    retention_force: bool
    wait_for_archive: bool
    compress: str | None
    merge_commits: bool
    compact_by: str | None  # name of a header
    prefetch: int | None  # None: limits.in_flight
    exclusive: bool
    cursor_expiry_ns: int | None
    create: bool
    ack_timeout_ns: int | None
    redeliver_max: int | None
    redeliver_delay_ns: int | None  # None: auto, see radiator/broker/backoff.py
    redeliver_backoff: float
    redeliver_max_delay_ns: int
    redeliver_jitter: float
    dead_letter: str | None  # a template
    dead_letter_expired: bool
    on_unacked: OnUnacked
    message_ttl_ns: int | None
    max_messages: int | None
    max_bytes: int | None
    on_full: OnFull
    fan_out: tuple[str, ...]  # names of queues, or templates of them
    block_timeout_ns: int | None
    rate_messages: float | None  # a second
    rate_burst: int | None  # None: what comes in a second
    rate_action: Literal["block", "reject"]
    schema: str | None  # path of a JSON Schema
    schema_changes_compatible: bool  # a new version must fit what earlier ones describe
    middleware: tuple[str, ...]  # module:function


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """A whole configuration. ``source`` is the file's path as given, None without a file."""

    source: str | None
    data_dir: str
    listen: tuple[Listen, ...]
    tls: Tls | None  # of listeners that have none of their own
    admin: AdminAddress | None
    admin_hosts: tuple[str, ...]
    auth: AuthConfig
    limits: LimitsConfig
    heart_beat: HeartBeat
    disk_min_free_bytes: int
    regex_subscriptions: bool
    defaults: Rule
    rules: tuple[Rule, ...]
