"""Follow a broker: where to start, what to do with messages, and when to reconnect.

There is one subscription over all patterns, from the first message on, queues as browsers, so nothing is consumed.
``start-at`` contains, for each log that the copy has, its last record: that comes once more, is compared and skipped.
So a log that is not the followed one (restored from a backup, begun again) is detected before it is written.

This module knows the client and header lines. It does not know signals, or how progress is shown. One thread, beside
the client's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from radiator.broker.headers.values import parse_time
from radiator.client import ClientError, Connection, Message, ServerError
from radiator.clock import NS_PER_SECOND, monotonic_ns, now, now_ns
from radiator.errors import RadiatorError
from radiator.mirror.copy import Copy, Record
from radiator.stopping import Stopping
from radiator.storage.layout import message_id

SYNC_EVERY_NS = NS_PER_SECOND
WAIT_SECONDS = 0.2  # for a message, before it is looked whether to stop
BACKOFF_SECONDS = 0.1, 5.0  # first, and at most
TRY_AGAIN = {"draining", "shutting-down", "timeout", "storage", "too-many"}  # anything else will be refused again
START_AT_BYTES_MAX = 48 * 1024  # of a header block of 64 KiB; a name that does not fit starts at `first` and is skipped
TEMPORARY = ("/temp-queue/", "/temp-topic/")
REMEDY = "it was restored, lost its end, or is stored in memory. Mirror into a new directory, or leave it out"
_LENGTH = b"content-length:"


class Diverged(RadiatorError):
    """The source is not the store that this copy was made of."""


@dataclass
class Progress:
    """The progress of a mirror.

    ``behind_ns``: the age of the last message when it came, while there are more to come; 0 once caught up, None while
    that is unknown.
    """

    records: int
    lost: int
    removed: int
    behind_ns: int | None
    connected: bool
    trouble: str = ""


class Mirror:
    """``report`` is called for every change of the connection and, every second, for progress."""

    def __init__(
        self,
        copy: Copy,
        connect: Callable[[], Connection],
        patterns: Sequence[str],
        *,
        once: bool,
        report: Callable[[Progress], None],
    ) -> None:
        self.copy = copy
        self.stopping = Stopping()
        self._connect = connect
        self._patterns = list(patterns)
        self._once = once
        self._on_progress = report
        self._asked: set[str] = set()  # logs that continue at a given offset: nothing below is delivered
        self._compared: set[str] = set()
        self._synced_ns = 0
        self._behind_ns: int | None = None

    def run(self) -> None:
        """Follow until ``stopping`` is set; with ``once`` up to the present end.

        Raises:
            StorageError: The copy cannot be written.
            Diverged: The source is another store.
            ClientError: The broker refuses the mirror for good; with ``once`` for any error.
        """
        pause = BACKOFF_SECONDS[0]
        while not self.stopping.is_set():
            try:
                with self._connect() as connection:
                    pause = BACKOFF_SECONDS[0]
                    self._follow(connection)
                    if self._once:
                        return
            except ClientError as error:
                if self._once or (isinstance(error, ServerError) and error.code not in TRY_AGAIN):
                    raise
                self._report(False, str(error))
            self.copy.flush(now())
            self.copy.sync()
            self.stopping.wait(pause)
            pause = min(2 * pause, BACKOFF_SECONDS[1])

    def _follow(self, connection: Connection) -> None:
        subscription = connection.subscribe(
            self._patterns,
            ack="auto",
            start_position="first",
            stop_position="end" if self._once else None,
            headers=self.start_at(),
        )
        self._compared.clear()
        self._behind_ns = None
        self._report(True)
        while not self.stopping.is_set():
            message = subscription.fetch(WAIT_SECONDS)
            if message is None:
                self._behind_ns = 0
            while message is not None:
                self._take(message)
                if self.copy.full:
                    break
                message = subscription.fetch(0)
            self.copy.flush(now())
            if monotonic_ns() - self._synced_ns >= SYNC_EVERY_NS:
                self.copy.sync()
                self._report(True)
            if subscription.ended and not subscription.pending:
                return

    def start_at(self) -> dict[str, str]:
        """Return the header ``start-at``, with the longest logs first, as not all may fit."""
        ids: list[str] = []
        size = 0
        self._asked.clear()
        for name, end in sorted(self.copy.ends.items(), key=lambda each: -each[1]):
            text = message_id(name, end - 1)
            size += len(text) + 1
            if not end or size > START_AT_BYTES_MAX:
                break
            ids.append(text)
            self._asked.add(name)
        return {"start-at": ",".join(ids)} if ids else {}

    def _take(self, message: Message) -> None:
        name, offset, receive_ns = message.partition, message.offset, message.receive_time
        if name is None or offset is None or receive_ns is None:
            raise Diverged(f"{message!r} has no partition, offset or receive-time: the source is not a radiator broker")
        if message.destination.startswith(TEMPORARY):
            return
        record = Record(
            offset,
            message.destination,
            receive_ns,
            _time(message, "event-time"),
            _time(message, "transmit-time"),
            stored_block(message.raw),
            message.body,
            lost=message.gap > message.gap_removed,
            removed=bool(message.gap) or message.headers.get("start-adjusted") == "true",
        )
        if message.replayed:
            self._behind_ns = max(0, now_ns() - receive_ns)
        end = self.copy.ends.get(name, 0)
        if offset < end - 1 and name in self._asked:
            raise Diverged(f"{name}: started again at the source, but this copy has it up to {end - 1}; {REMEDY}")
        if offset == end - 1 and name not in self._compared:
            self._compared.add(name)
            if self.copy.last(name) not in (None, record.digest):
                raise Diverged(f"{name}: offset {offset} has another message at the source than in this copy; {REMEDY}")
        if offset >= end:
            self.copy.add(name, record)

    def _report(self, connected: bool, trouble: str = "") -> None:
        self._synced_ns = monotonic_ns()
        self._on_progress(
            Progress(self.copy.records, self.copy.lost, self.copy.removed, self._behind_ns, connected, trouble)
        )


def stored_block(raw: bytes) -> bytes:
    """Return the header block as the source has stored it.

    It follows the broker's own lines, of which the last is ``content-length``, byte for byte (STOMP 1.2).
    """
    at = 0 if raw.startswith(_LENGTH) else raw.find(b"\n" + _LENGTH) + 1
    end = raw.find(b"\n", at)
    return raw[end + 1 :] if end >= 0 else b""


def _time(message: Message, name: str) -> int | None:
    text = message.headers.get(name)
    return parse_time(text) if text is not None else None
