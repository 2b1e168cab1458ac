"""The loop of a replay: read rows, and send messages when they are due.

Before a pause all buffered messages are sent and their receipts are awaited, so that a refusal is reported at once;
then one wait lasts until the next message is due. Messages that are due within SLACK_NS are sent together: no wait is
more exact, and a fast replay would only wait.

Time and waiting are arguments. Not for several threads.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from radiator.client import Receipt
from radiator.client.reliable import OnReceipts, ReliableSender
from radiator.clock import NS_PER_SECOND
from radiator.export.rows import Row
from radiator.replay.messages import Targets, message
from radiator.replay.progress import Progress
from radiator.replay.schedule import Schedule
from radiator.stopping import Stopping

SLACK_NS = 5_000_000


@dataclass
class Result:
    """``sent`` messages were sent, ``stored`` of them receipted; ``repeats`` were stored before, if that is known."""

    sent: int = 0
    stored: int = 0
    repeats: int = 0
    body_bytes: int = 0
    targets: dict[str, int] = field(default_factory=dict)
    first_ns: int | None = None
    last_ns: int | None = None

    def count(self, row: Row, target: str) -> None:
        """Count a sent message."""
        self.sent += 1
        self.body_bytes += len(row.body)
        self.targets[target] = self.targets.get(target, 0) + 1
        self.first_ns = row.receive_ns if self.first_ns is None else min(self.first_ns, row.receive_ns)
        self.last_ns = row.receive_ns if self.last_ns is None else max(self.last_ns, row.receive_ns)


class Replay:
    """A replay.

    Args:
        make_sender: Makes the sender, with a function to be called with receipts.
        targets: Returns the new destination of a record.
        schedule: Returns when a record is due.
        progress: How far the replay came; its name makes the ids of messages.
        by_event_time: Use event times instead of receive times.
        added: Further headers.
        on_step: Called after each message.
        stopping: Ends the replay between two messages: an exception could come in the middle of a frame.
        monotonic_ns: The clock.
        wait: Waits for some seconds.
    """

    def __init__(
        self,
        make_sender: Callable[[OnReceipts], ReliableSender],
        targets: Targets,
        schedule: Schedule,
        progress: Progress,
        *,
        by_event_time: bool = False,
        added: Mapping[str, str] | None = None,
        on_step: Callable[[Result, Row], None] | None = None,
        stopping: Stopping | None = None,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        self.result = Result()
        self._sender = make_sender(self._receipts)
        self._targets = targets
        self._schedule = schedule
        self._progress = progress
        self._by_event_time = by_event_time
        self._added = dict(added or {})
        self._on_step = on_step
        self._monotonic_ns = monotonic_ns
        self._stopping = stopping or Stopping()
        self._wait = wait or self._stopping.wait
        self._under_way: deque[tuple[str, int]] = deque()

    def run(self, rows: Iterable[Row]) -> Result:
        """Send all rows. Return when all are stored, or when ``stopping`` is set and the sent ones are stored.

        Raises:
            ClientError: The broker cannot be reached or refuses a message; ``result`` has what was sent.
            ConfigError: A template does not fit a destination.
        """
        sender = self._sender
        started_ns: int | None = None
        try:
            for row in rows:
                prepared = message(row, self._targets.of(row.destination), self._progress.name, self._added)
                if started_ns is None:
                    self._progress.write()
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

    def _wait_until(self, due_ns: int) -> None:
        if due_ns - self._monotonic_ns() <= SLACK_NS:
            return
        self._sender.flush()
        left_ns = due_ns - self._monotonic_ns()
        if left_ns > 0:
            self._progress.pause(left_ns / NS_PER_SECOND)
            self._wait(left_ns / NS_PER_SECOND)

    def _receipts(self, count: int, receipts: list[Receipt]) -> None:
        self.result.stored += count
        self.result.repeats += sum(receipt.duplicate for receipt in receipts)
        for _ in range(count):
            partition, offset = self._under_way.popleft()
            self._progress.stored(partition, offset)
