r"""Orphaned partitions: logs that a changed rule no longer names, with unsettled messages of a queue or subscription.

A start finds them from the cursors alone, so a restart in the middle continues the work. Each orphaned partition is one
more source of its queue and gets no new messages. Its messages are delivered before those of the current logs. The
source is removed when everything in it is settled. Its cursor stays while the log has records: it records them as
settled, should a rule name the log again. Retention of the log follows the rule of its destination.

    found at a start -> a source of its queue -> settled to the end -> removed from the queue
                    \-> undelivered: no consumer can read it; it is reported, and nothing is removed

Invariants: no cursor has two sources; nothing unsettled is removed; a log that cannot be drained is reported at every
start and in the metrics.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from radiator.broker.destinations import priorities
from radiator.broker.destinations.orphaned import NAMES, UnreadablePartition, unsettled
from radiator.broker.logs import cursor_names
from radiator.broker.queues.queue import QueueSource

if TYPE_CHECKING:
    from radiator.broker.core import Core
    from radiator.broker.destinations.destination import Destination
    from radiator.broker.durable.subscriptions import DurableSubscriptions
    from radiator.storage.cursor import Cursor

log = logging.getLogger("radiator.broker")

REPORTED_MAX = 20  # log lines; a last one counts the rest


class OrphanedPartitions:
    """The orphaned partitions of one broker.

    Args:
        core: The core; all destinations are known and no client is connected.
        names: The durable subscriptions, all loaded.

    Attributes:
        ends: The sources that are drained, each with the offset at which it is done.
        undelivered: The logs with messages that no consumer can get.
    """

    def __init__(self, core: Core, names: DurableSubscriptions) -> None:
        self._core = core
        self._durable = names
        self.ends: dict[QueueSource, int] = {}
        self.undelivered: list[UnreadablePartition] = []
        self._owner: dict[QueueSource, Destination] = {}  # only for sources of queues
        cursors, partitions = core.store.cursors, core.store.partitions
        queues = [each.queue for each in core.destinations.values() if each.queue is not None]
        queues += [durable.queue for durable in self._durable.by_key.values()]
        read = {id(source.cursor) for queue in queues for source in queue.sources}
        for name, where in cursors.names():
            cursor, partition = cursors.get(name, where), partitions.get(where)
            if cursor is not None and partition is not None and id(cursor) not in read:
                if name.startswith(NAMES):
                    self._find_of_subscription(name, cursor, partition)
                else:
                    self._find_of_queue(name, cursor, partition)
        self._report()

    # --- finding ----------------------------------------------------------------------------------------------------

    def _find_of_queue(self, key: str, cursor: Cursor, partition: Any) -> None:
        core, name = self._core, key.removeprefix(cursor_names.QUEUE)
        destination = core.destinations.get(name)
        if destination is None or destination.queue is None:
            if name in partition.destinations:
                self._add_unreadable(key, cursor, partition, _reason(destination))
            return
        queue, registry = destination.queue, core.registry
        if not queue.filter.any_of(partition.destinations):
            if partition.whole and partition.destinations:  # the log of a fan-out source that the queue was bound to
                registry.cursors.delete(key, partition.name)
            return
        if partition.log_start_offset >= partition.next_offset:
            registry.cursors.delete(key, partition.name)
            return
        left = unsettled(cursor, partition)
        if not left and registry.feed_of(partition) is not None:
            return
        policy = destination.policy
        feed = registry.orphaned_feed(partition, policy)
        registry.cursors.open(key, partition.name, cursor.floor, policy.settings.sync)  # it exists; this sets its sync
        source = QueueSource(
            queue,
            feed,
            cursor,
            registry.dirty_sources,
            from_fan_out=name not in partition.destinations,
            orphaned=True,
            first=True,
            priority=priorities.priority_of_log(partition.name),
        )
        feed.join(source)
        if left:
            queue.add(source)
            queue.sort()
            self._owner[source] = destination
            for each in (destination, *destination.parents):
                if each is destination or each.name in partition.destinations:
                    each.orphaned.append(feed)
            self._drain(source, left)
        feed.pin()

    def _find_of_subscription(self, key: str, cursor: Cursor, partition: Any) -> None:
        core = self._core
        durable = self._durable.by_key.get(key)
        if durable is None:
            return
        there = [core.destinations[each] for each in sorted(partition.destinations) if each in core.destinations]
        wanted = [each for each in there if each in durable.destinations]
        left = unsettled(cursor, partition)
        if wanted:
            feed = core.registry.orphaned_feed(partition, wanted[0].policy)
            if left:
                self._drain(durable.add_orphaned(feed, wanted[0]), left)
            feed.pin()
        elif any(each.policy.kind == "queue" and durable.patterns.matches(each.name) for each in there):
            self._add_unreadable(key, cursor, partition, "the destination was a topic and is a queue now")

    def _drain(self, source: QueueSource, left: int) -> None:
        feed = source.feed
        feed.count_orphaned(1)
        self.ends[source] = feed.partition.next_offset
        if len(self.ends) <= REPORTED_MAX:
            log.info(
                "%s: up to %d messages are delivered first from the orphaned log %s, which its rule no longer names",
                source.queue.name,
                left,
                feed.partition.name,
            )

    # --- undelivered logs ---------------------------------------------------------------------------------------------

    def _add_unreadable(self, key: str, cursor: Cursor, partition: Any, why: str) -> None:
        left = unsettled(cursor, partition)
        if left:
            end = partition.high_watermark
            self.undelivered.append(UnreadablePartition(key, partition.name, cursor.floor, end, left, why))

    def _report(self) -> None:
        for each in self.undelivered[:REPORTED_MAX]:
            log.warning(
                "%s: no consumer can read the log %s, which has up to %d unsettled messages: %s. They are stored but "
                "not delivered. Change the rule back, let the consumers empty the log, then change the rule again",
                each.cursor,
                each.partition,
                each.lag,
                each.why,
            )
        if len(self.undelivered) > REPORTED_MAX:
            log.warning("%d more logs have messages that no consumer can read", len(self.undelivered) - REPORTED_MAX)

    # --- end of the drain ---------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Remove the sources that are drained. Called at intervals."""
        for source, end in list(self.ends.items()):
            wanted = source.orphaned and not source.closed
            if wanted and source.cursor.floor < end:
                continue
            if wanted:
                self._drained(source)
            del self.ends[source]
            self._owner.pop(source, None)
            source.feed.count_orphaned(-1)
            if source.feed.destinations:  # other destinations store here, and their retention must not wait
                source.feed.release_settled()
            source.feed.pin()

    def _drained(self, source: QueueSource) -> None:
        queue, feed = source.queue, source.feed
        log.info("%s has settled all messages of its orphaned log %s", queue.name, feed.partition.name)
        destination = self._owner.get(source)
        if destination is None:
            self._durable.by_key[queue.name].remove_orphaned(source)
            return
        queue.drop([source])
        for each in (destination, *destination.parents):
            if feed in each.orphaned:
                each.orphaned.remove(feed)

    def replaced(self, old: QueueSource, new: QueueSource) -> None:
        """Take over a source that was created again because its cursor was set."""
        if old in self.ends:
            self.ends[new] = self.ends.pop(old)
            self._owner[new] = self._owner.pop(old)


def _reason(destination: Destination | None) -> str:
    if destination is None:
        return "its rule does not allow the queue to exist"
    if destination.is_parent:
        return "the rule of the queue got fan_out and another log at the same time"
    return "the destination was a queue and is a topic now"
