"""The log of deliveries: what queues with ``record: deliveries`` have done, as records of a topic.

At the end of a turn the rows of the turn (``queues.recorder``) are appended as one run, and stored with the settled
offsets in one entry of the journal: all or nothing. A COMMIT or a dead letter that is a transaction of several logs has
its rows in that transaction.

While the log cannot be written, rows and settled offsets wait here: the messages are settled for consumers, the
receipts of their ACKs wait, and a killed broker delivers them again. COMMITs and dead letters that need a row are
refused meanwhile. Queues with recorded deliveries deliver nothing while the rows take as much memory as they may
(``Recorder.full``).

This module knows rows, the store and the destination. It does not know what the outcomes mean.
Invariant: the journal has a settled offset of such a queue only in an entry with its row.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from radiator.clock import NS_PER_SECOND
from radiator.errors import ProtocolError, StorageError
from radiator.routing.pattern import DELIVERIES
from radiator.storage.batch import RECORD_OVERHEAD_BYTES, Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from radiator.broker.core import Core
    from radiator.broker.destinations.destination import Destination
    from radiator.broker.queues.queue import QueueSource
    from radiator.broker.queues.recorder import Rows
    from radiator.clock import Now
    from radiator.storage.partition import Partition

log = logging.getLogger("radiator.broker")

PAUSE_NS = NS_PER_SECOND  # before rows that could not be stored are tried again


class DeliveryLog:
    """The log of deliveries of one broker.

    Args:
        core: The core of the broker.
        receiver: Returns the destination of a name, created if need be, for a message that is about to be sent to it.
    """

    __slots__ = ("_core", "_full_logged", "_pausing", "_receiver", "_recorder")

    def __init__(self, core: Core, receiver: Callable[[str], Destination]) -> None:
        self._core = core
        self._receiver = receiver
        self._recorder = core.recorder
        self._pausing = False
        self._full_logged = False

    def write(self) -> None:
        """Append the rows that wait, and let the store settle their offsets with them."""
        core, recorder = self._core, self._recorder
        if not recorder.blocks:
            if not recorder.under_way:  # an earlier ACK has settled everything
                for waiter in recorder.take_waiters():
                    waiter.settle()
            return
        if self._pausing:
            self._log_full()
            return
        try:
            partition = self._partition()
        except (ProtocolError, StorageError) as error:
            self._pause(str(error))
            return
        rows = recorder.take(core.timing.now.wall)
        self._append(partition, rows.blocks)
        for source, (_, spans) in rows.settled.items():
            if source.cursor.stored:
                core.store.cursors.together(source.cursor, spans)
        core.store.together([partition], [], partial(self._decided, rows))

    def _decided(self, rows: Rows, holds: bool) -> None:
        recorder = self._recorder
        if not holds:
            recorder.put_back(rows)
            self._pause("the journal did not take them")
            return
        for queue in recorder.stored(rows):
            self._core.timing.wake(queue)
        if self._full_logged and not recorder.full:
            self._full_logged = False
            log.warning("%s: rows are stored again, and queues with record: deliveries deliver again", DELIVERIES)
        self._core.stats.count(deliveries_recorded=len(rows.blocks))
        for source, settled in rows.settled.items():
            source.rows_stored(settled, self._core.store.cursors.decided)
        for waiter in rows.waiters:
            waiter.settle()

    def _pause(self, why: str) -> None:
        core = self._core
        self._pausing = True
        core.timing.after(PAUSE_NS, self)
        core.peer_log.line(
            logging.WARNING,
            "rows of deliveries that wait",
            DELIVERIES,
            "%s: %d rows cannot be stored now, and the acknowledgements with them wait: %s",
            DELIVERIES,
            len(self._recorder.blocks),
            why,
            logger=log,
        )
        self._log_full()

    def _log_full(self) -> None:
        if self._recorder.full and not self._full_logged:
            self._full_logged = True
            log.error("%s", self.why_full())

    def why_full(self) -> str:
        """Return why such queues deliver nothing now; empty if they deliver, or only wait for the disk."""
        if not self._full_logged:
            return ""
        what = f"{DELIVERIES}: {len(self._recorder.blocks)} rows wait to be stored, the most that memory may hold"
        return f"{what}: queues with record: deliveries deliver nothing until its log can be written"

    def due(self, now: Now) -> None:
        """Try again: the pause is over."""
        self._pausing = False

    # --- transactions of several logs ---------------------------------------------------------------------------------

    def check(self, sources: Iterable[QueueSource]) -> None:
        """Check that rows can be stored now, if one of these sources records its deliveries.

        Raises:
            ProtocolError: The destination cannot be created.
            StorageError: The log cannot be written.
        """
        if any(source.record is not None for source in sources):
            self._partition()

    def add(self, settled: Mapping[QueueSource, list[int]], outcome: bytes, transaction: str = "") -> None:
        """Append the rows of messages that a transaction of several logs settles.

        The caller has called ``check``. It calls ``Store.together`` for the rest of the transaction in this turn, and
        ``QueueMessages.settled_in_journal`` when the transaction is stored.

        Args:
            settled: The offsets by source.
            outcome: Their outcome.
            transaction: The id of the transaction of a client; empty if it is not one.
        """
        core = self._core
        blocks: list[bytes] = []
        for source, offsets in settled.items():
            if source.record is not None:
                blocks += source.record.rows(offsets, outcome, transaction)
        if not blocks:
            return
        partition = self._partition()
        self._append(partition, blocks)
        core.store.together([partition], [], lambda holds: core.stats.count(deliveries_recorded=holds * len(blocks)))

    # --- the log ------------------------------------------------------------------------------------------------------

    def _partition(self) -> Partition:
        """Return the log that gets the next rows. Raises ProtocolError or StorageError if there is none."""
        core = self._core
        if DELIVERIES not in core.destinations:  # whatever create: and limits.destinations say
            core.registry.add(DELIVERIES, core.rules.policy_for(DELIVERIES))
        destination = self._receiver(DELIVERIES)
        partition: Any = (destination.only_feed or destination.next_feed()).partition
        partition.check()
        found: Partition = partition
        return found

    def _append(self, partition: Partition, blocks: list[bytes]) -> None:
        run = Run.of_blocks(DELIVERIES, blocks)
        partition.extend(run, self._core.timing.now.wall)
        self._core.count_pending(run.size_bytes + RECORD_OVERHEAD_BYTES * len(blocks))
