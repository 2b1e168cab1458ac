"""The loop: rows in, messages out when they are due.

Who waits does nothing else: before a pause all that is gathered is sent and its receipts are awaited, so that a refusal
is told at once, and then one wait lasts until the next message is due. Messages that are due within SLACK_NS go
together: no wait is that exact, and a fast replay would be nothing but waits.

Time and waiting are arguments. Not for several threads.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from radiator.client import Receipt
from radiator.client.reliable import OnReceipts, ReliableSender
from radiator.client.sending import Outgoing
from radiator.clock import NS_PER_SECOND
from radiator.export.rows import Row
from radiator.replay.messages import Targets, message
from radiator.replay.schedule import Schedule
from radiator.stopping import Stopping

SLACK_NS = 5_000_000


@dataclass
class Result:
    """``sent`` were handed over, ``stored`` of them for certain; ``repeats`` were there before, as far as asked."""

    sent: int = 0
    stored: int = 0
    repeats: int = 0
    body_bytes: int = 0
    targets: dict[str, int] = field(default_factory=dict)
    first_ns: int | None = None
    last_ns: int | None = None

    def count(self, row: Row, target: str) -> None:
        self.sent += 1
        self.body_bytes += len(row.body)
        self.targets[target] = self.targets.get(target, 0) + 1
        self.first_ns = row.receive_ns if self.first_ns is None else min(self.first_ns, row.receive_ns)
        self.last_ns = row.receive_ns if self.last_ns is None else max(self.last_ns, row.receive_ns)


class Replay:
    """``make_sender`` is given what wants to hear of receipts. ``name`` makes the ids, ``added`` are further headers.

    ``on_begin`` is called before the first message is sent, ``on_wait`` before a wait, with its seconds;
    ``on_stored`` is told partition and offset of what is stored, in order; ``on_step`` that something has happened.
    ``stopping`` ends it between two messages: an exception could come in the middle of a frame.
    """

    def __init__(
        self,
        make_sender: Callable[[OnReceipts], ReliableSender],
        targets: Targets,
        schedule: Schedule,
        *,
        name: str,
        by_event_time: bool = False,
        added: Mapping[str, str] | None = None,
        on_begin: Callable[[], None] | None = None,
        on_wait: Callable[[float], None] | None = None,
        on_stored: Callable[[str, int], None] | None = None,
        on_step: Callable[[Result, Row], None] | None = None,
        stopping: Stopping | None = None,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        self.result = Result()
        self._sender = make_sender(self._receipts)
        self._targets = targets
        self._schedule = schedule
        self._name = name
        self._by_event_time = by_event_time
        self._added = dict(added or {})
        self._on_begin = on_begin
        self._on_wait = on_wait
        self._on_stored = on_stored
        self._on_step = on_step
        self._monotonic_ns = monotonic_ns
        self._stopping = stopping or Stopping()
        self._wait = wait or self._stopping.wait
        self._under_way: deque[tuple[str, int]] = deque()

    def run(self, rows: Iterable[Row]) -> Result:
        """Returns when all is stored, or when ``stopping`` is set and what was sent until then is stored.

        Raises ClientError, ConfigError; ``result`` says how far it came."""
        sender = self._sender
        started_ns: int | None = None
        try:
            for row in rows:
                prepared = self._prepare(row)
                if started_ns is None:
                    if self._on_begin is not None:
                        self._on_begin()
                    started_ns = self._monotonic_ns()  # finding the first row may have taken its time
                due_ns = started_ns + self._schedule.due_ns(row.event_ns if self._by_event_time else row.receive_ns)
                self._wait_until(due_ns)
                if self._stopping.is_set():
                    break
                self._under_way.append((row.partition, row.offset))
                self.result.count(row, prepared.destination)
                sender.send(prepared)
                if self._on_step is not None:
                    self._on_step(self.result, row)
            sender.flush()
        except BaseException:
            sender.abandon()
            raise
        finally:
            sender.close()
        return self.result

    def _prepare(self, row: Row) -> Outgoing:
        return message(row, self._targets.of(row.destination), self._name, self._added)

    def _wait_until(self, due_ns: int) -> None:
        if due_ns - self._monotonic_ns() <= SLACK_NS:
            return
        self._sender.flush()
        left_ns = due_ns - self._monotonic_ns()
        if left_ns > 0:
            if self._on_wait is not None:
                self._on_wait(left_ns / NS_PER_SECOND)
            self._wait(left_ns / NS_PER_SECOND)

    def _receipts(self, count: int, receipts: list[Receipt]) -> None:
        self.result.stored += count
        self.result.repeats += sum(receipt.duplicate for receipt in receipts)
        for _ in range(count):
            partition, offset = self._under_way.popleft()
            if self._on_stored is not None:
                self._on_stored(partition, offset)
