"""The policy of one destination: what its rule says, with names filled in.

Plain values, so that the broker can hand them on to storage without either knowing the other.
"""

from __future__ import annotations

import msgspec

from radiator.config import Rule
from radiator.config.model import Kind, OnFull, OnUnacked, StoreKind


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """See ``radiator.config.Rule`` for the units and for what None means."""

    destination: str
    kind: Kind
    rule_index: int  # in Config.rules; -1: no rule matched, the defaults hold
    rule: Rule
    partitions: tuple[str, ...]  # names, one per partition, in order of their number
    partition_by: str | None
    priority: bool  # the partitions are lanes, from 0 to 9, made when they are first used
    store: StoreKind
    fsync_interval_ns: int | None
    segment_bytes: int
    roll_at_seconds: int | None
    retention_age_ns: int | None
    retention_bytes: int | None
    retention_count: int | None
    dedup_window_ns: int | None
    dedup_count: int
    reclaim_acked: bool
    retention_force: bool
    wait_for_archive: bool
    compress: str | None
    merge_commits: bool
    compact_by: str | None
    prefetch: int | None
    exclusive: bool
    cursor_expiry_ns: int | None
    create: bool
    ack_timeout_ns: int | None
    redeliver_max: int | None
    redeliver_delay_ns: int | None
    redeliver_backoff: float
    redeliver_max_delay_ns: int
    redeliver_jitter: float
    dead_letter_name: str | None
    dead_letter_expired: bool
    on_unacked: OnUnacked
    message_ttl_ns: int | None
    max_messages: int | None
    max_bytes: int | None
    on_full: OnFull
    fan_out: tuple[str, ...]  # the queues that get what is sent here


NAMED = ("partitions", "kind", "fan_out", "priority")  # their values depend on the name

# Fields that stand in both under one name.
SHARED_FIELDS = tuple(name for name in Policy.__struct_fields__ if name in Rule.__struct_fields__ and name not in NAMED)
