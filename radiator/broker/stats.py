"""Counters of the broker since its start. No message is dropped silently: each drop is an ERROR or a counter."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(slots=True)
class Stats:
    """Counters since the start. A counter never decreases."""

    connections: int = 0
    messages_in: int = 0
    body_bytes_in: int = 0
    commits: int = 0
    acks: int = 0
    nacks: int = 0
    late_acks: int = 0  # acknowledgements of deliveries that were settled or returned before
    returned: int = 0  # unacknowledged messages that returned to their queue
    lost_to_retention: int = 0  # queue messages removed by forced retention or damage before they were settled
    lost_to_failures: int = 0  # messages lost by a disk after their receipt, under fsync: interval or never
    damaged_ranges: int = 0  # unreadable ranges of a log, counted once per reader or queue
    duplicates: int = 0  # messages with a known message id, not stored again
    ack_timeouts: int = 0  # deliveries not acknowledged within ack_timeout, returned to the queue
    joins_refused: int = 0  # subscriptions that ended because a new destination exceeded limits.joined
    delays_not_kept: int = 0  # messages returned without the delay of their NACK: too many delayed messages
    dead_lettered: int = 0  # messages moved to a dead-letter destination
    dropped_rejected: int = 0  # NACK with requeue:false, without dead_letter in the rule
    dropped_max_deliveries: int = 0  # delivered redeliver.max times, without dead_letter in the rule
    dropped_unacked: int = 0  # unacknowledged by a consumer that ended, under on_unacked: delete
    dropped_in_circles: int = 0  # dead letters that were moved too often, in a cycle of dead-letter destinations
    expired: int = 0  # messages that expired before their delivery
    taken_over: int = 0  # durable subscriptions taken over by another connection
    cursors_refused: int = 0  # cursors of durable subscriptions refused for want of room
    names_expired: int = 0  # durable subscriptions deleted because they were not used for too long
    dropped_replies: int = 0  # messages to a temporary queue that was gone or full
    missed_by_slow: int = 0  # records removed before a slow topic subscriber reached them (header gap)
    blocked: int = 0  # frames that waited for room in a queue or in memory
    selectors_stopped: int = 0  # how often a queue reached its limit of messages skipped by selector
    rate_limited: int = 0  # frames that waited because of rate_limit
    memory_pauses: int = 0  # how often limits.memory was reached
    memory_refusals: int = 0  # ERROR full because limits.memory was used up
    transactions_timed_out: int = 0  # open for longer than limits.transaction_timeout
    dropped_newest: int = 0
    dropped_oldest: int = 0
    dropped_by_middleware: int = 0
    rejected: int = 0  # messages refused by a schema or middleware
    middleware_failures: int = 0  # messages refused because middleware failed
    refused: int = 0  # ERROR frames sent
    internal_errors: int = 0  # unexpected exceptions; the log has their tracebacks
    logins_refused: int = 0
    turned_away: int = 0  # connections over limits.connections or the system's limit of open files
    not_stomp: int = 0  # connections of another protocol, or with a failed TLS or WebSocket handshake
    silent: int = 0  # connections closed because no heart-beat came in time
    gone_unread: int = 0  # connections found closed while they were not read
    log_lines_dropped: int = 0  # lines for stdout or stderr that could not be written; set by the server
    read_errors: int = 0

    def add_messages(self, messages: int, body_bytes: int) -> None:
        """Count messages that were sent, and the bytes of their bodies."""
        self.messages_in += messages
        self.body_bytes_in += body_bytes

    def add_acks(self, number: int) -> None:
        """Count acknowledged deliveries."""
        self.acks += number

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
        """Return all counters by name."""
        return asdict(self)
