"""What the broker has counted since it started. Nothing is dropped silently: what is not an ERROR is a number here."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(slots=True)
class Stats:
    """Counters since start; every one only grows."""

    connections: int = 0
    messages_in: int = 0
    body_bytes_in: int = 0
    commits: int = 0
    acks: int = 0
    nacks: int = 0
    late_acks: int = 0  # acknowledgements of deliveries that were settled or returned before
    returned: int = 0  # messages that were in flight and went back to their queue
    lost_to_retention: int = 0  # queue messages that retention by force, or damage, took before they were settled
    lost_to_failures: int = 0  # messages that a disk took after they were told as stored, under an interval or never
    damaged_ranges: int = 0  # stretches of a log that could not be read, met by a reader or a queue, each once
    duplicates: int = 0  # messages whose id was known: not stored again
    ack_timeouts: int = 0  # deliveries that were not answered within ack_timeout and went back
    joins_refused: int = 0  # subscriptions that ended since a new destination was one too many for them: limits.joined
    delays_not_kept: int = 0  # messages that came back without the delay of their NACK: too many waited already
    dead_lettered: int = 0  # messages that went to a dead-letter destination
    dropped_rejected: int = 0  # refused with requeue:false, where the rule has no dead_letter
    dropped_max_deliveries: int = 0  # delivered redeliver.max times, where the rule has no dead_letter
    dropped_unacked: int = 0  # held by a consumer that was lost or left, where the rule says on_unacked: delete
    dropped_in_circles: int = 0  # dead letters that were moved so often, one place to the next, that it would not end
    expired: int = 0  # messages whose time was over before they were delivered
    taken_over: int = 0  # durable subscriptions that another connection went on with
    cursors_refused: int = 0  # cursors of named subscriptions for which there was no room
    names_expired: int = 0  # names of subscriptions that nobody used for so long that they were deleted
    dropped_replies: int = 0  # messages to a temporary queue that was gone, or full as nobody reads it
    missed_by_slow: int = 0  # records that were gone before a slow subscriber of a topic came to them: its gap tells it
    blocked: int = 0  # frames that had to wait for room in a queue or in memory
    selectors_stopped: int = 0  # how often a queue had skipped as many messages as it may for its consumers' selectors
    rate_limited: int = 0  # frames that had to wait since their client was too fast
    memory_pauses: int = 0  # how often limits.memory was reached
    memory_refusals: int = 0  # connections that were answered ERROR full since limits.memory was used up
    transactions_timed_out: int = 0  # open for longer than limits.transaction_timeout
    dropped_newest: int = 0
    dropped_oldest: int = 0
    dropped_by_middleware: int = 0
    rejected: int = 0  # messages that a schema or middleware refused
    middleware_failures: int = 0  # messages on which middleware failed: refused too
    refused: int = 0  # ERROR frames sent
    internal_errors: int = 0  # exceptions that nobody foresaw; the log has their tracebacks
    logins_refused: int = 0
    turned_away: int = 0  # connections over limits.connections, or over the open files of the system
    not_stomp: int = 0  # connections that spoke something else, or failed the handshake of TLS or WebSocket
    silent: int = 0  # connections that were closed since no heart-beat came in time
    gone_unread: int = 0  # connections that were found closed while they were not read
    log_lines_dropped: int = 0  # lines for stdout or stderr that could not be written; set by the shell
    read_errors: int = 0

    def add_messages(self, messages: int, body_bytes: int) -> None:
        """Count messages that were sent, and the bytes of their bodies."""
        self.messages_in += messages
        self.body_bytes_in += body_bytes

    def add_acks(self, number: int) -> None:
        """Count acknowledged deliveries."""
        self.acks += number

    def add_commit(self) -> None:
        """Count a batch that was stored."""
        self.commits += 1

    def count(self, **numbers: int) -> None:
        """Add to counters, by name: ``stats.count(expired=1)``."""
        for name, number in numbers.items():
            setattr(self, name, getattr(self, name) + number)

    def set_log_lines_dropped(self, count: int) -> None:
        """Set the number of lines for stdout and stderr that could not be written since the start."""
        self.log_lines_dropped = count

    def as_dict(self) -> dict[str, int]:
        """All counters by name."""
        return asdict(self)
