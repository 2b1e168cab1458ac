"""Names to destinations: which exist, and what a new one is made of.

The first message or subscription makes a destination: its rule gives its policy, the policy its partitions, each
partition its feed, and for a queue each feed a cursor. At start the registry is filled with what the log already holds,
so that patterns match destinations of earlier runs before anybody sends to them again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from radiator.broker.destinations import priorities
from radiator.broker.destinations.cursor_creation import CursorCreation
from radiator.broker.destinations.cursor_starts import CursorStarts
from radiator.broker.destinations.destination import Destination
from radiator.broker.destinations.orphaned import Left
from radiator.broker.logs import cursor_names
from radiator.broker.logs.destination_filter import QueueFilter
from radiator.broker.logs.feed import Feed
from radiator.broker.logs.wire import Whole
from radiator.broker.queues.policy import QueuePolicy
from radiator.broker.queues.queue import Queue, QueueSource
from radiator.broker.timers.timing import Timing
from radiator.config.settings import OF_LOG, log_values
from radiator.errors import ProtocolError
from radiator.routing.index import NameIndex
from radiator.routing.policy import Policy
from radiator.routing.rules import TEMPORARY, Rules
from radiator.storage.cursor import Cursor
from radiator.storage.layout import encode_name
from radiator.storage.memory import MemoryPartition
from radiator.storage.store import Store

log = logging.getLogger("radiator.broker")

Fed = dict[Feed, list[tuple[Destination, Cursor]]]  # the cursors of the queues of a fan_out, by log of the parent


class Registry:
    """The destinations of one broker.

    Args:
        rules: What gives a destination its policy.
        store: The logs and cursors.
        start_read: Runs the cold reads of a feed.
        on_lost: Called with what was lost, in words, and how many messages of a queue the log no longer had.
        timing: The present time and the timers.
    """

    def __init__(
        self,
        rules: Rules,
        store: Store,
        start_read: Callable[[Feed, Any], None],
        on_lost: Callable[[str, int], None],
        timing: Timing,
    ) -> None:
        self.destinations: dict[str, Destination] = {}
        self.names = NameIndex()  # of all that are not temporary
        self.dirty_sources: dict[QueueSource, None] = {}  # queues whose cursors have something to be told
        self.rules = rules
        self.cursors = store.cursors
        self.cursor_starts = CursorStarts(rules, store)
        self._store = store
        self._start_read = start_read
        self._whole = Whole()
        self._on_lost = on_lost
        self._on_created: Callable[[Destination], None]
        self._on_priority: Callable[[Destination, Feed], None]
        self._timing = timing
        self._feeds: dict[str, Feed] = {}

    def listen(
        self, on_created: Callable[[Destination], None], on_priority: Callable[[Destination, Feed], None]
    ) -> None:
        """Have new destinations (but for temporary queues), and new logs of priorities, reported: called once."""
        self._on_created = on_created
        self._on_priority = on_priority

    def revive(self) -> None:
        """The destinations that the log knows. Where its list may not be whole, a queue is also known by its cursor."""
        for cursor, partition_name in self._store.cursors.names():
            held = self._store.partitions.get(partition_name)
            if held is not None and not held.whole and cursor.startswith(cursor_names.QUEUE):
                held.destinations[cursor.removeprefix(cursor_names.QUEUE)] = None
        self.cursor_starts.look()
        left = Left(self._store)
        for partition in list(self._store.partitions.values()):
            for name in sorted(partition.destinations):
                if name in self.destinations:
                    continue
                try:
                    policy = self.rules.policy_for(name)
                    if partition.name in policy.partitions or left.concerns(name, policy, partition):
                        self.add(name, policy)
                except ProtocolError as error:  # the rules have changed; whoever uses it is told
                    log.warning("%s: %s %s", name, error.message, error.detail)
        for cursor, partition_name in self._store.cursors.names():
            if partition_name not in self._store.partitions:  # made by a subscription, and nothing was ever sent
                self._store.cursors.delete(cursor, partition_name)
            elif cursor.startswith(cursor_names.QUEUE) and self._released(cursor, partition_name):
                self._store.cursors.delete(cursor, partition_name)
                log.warning("%s gets the messages of %s no more: its cursor is deleted", cursor, partition_name)
        self.cursor_starts.made()

    def _released(self, cursor: str, partition_name: str) -> bool:
        """True if this is the cursor of a queue that a ``fan_out`` does not feed any more."""
        feed = self._feeds.get(partition_name)
        name = cursor.removeprefix(cursor_names.QUEUE)
        if feed is None or name in feed.partition.destinations or not feed.partition.whole:
            return False
        return not any(source.queue.name == name for source in feed.sources)

    def create(self, name: str) -> Destination:
        """A destination that does not exist yet. Raises ProtocolError if its rule forbids it or it cannot be stored."""
        policy = self.rules.policy_for(name)
        if not policy.settings.create:
            raise ProtocolError(
                "not-found",
                f"destination {name[:200]!r} does not exist, and may not be created",
                f"The rule on line {policy.rule.line} of the configuration says create: deny.",
            )
        most = self.rules.config.limits.destinations
        if len(self.destinations) >= most:
            raise ProtocolError("too-many", "too many destinations", f"limits.destinations in the YAML file is {most}.")
        return self.add(name, policy)

    def feed_of(self, partition: Any) -> Feed | None:
        """The feed of a partition, if anybody has asked for it."""
        return self._feeds.get(partition.name)

    def advance_idle_queues(self) -> None:
        """Queues in shared partitions do not hold back the retention of what is not theirs."""
        for feed in self._feeds.values():
            if feed.destinations > 1:
                for source in feed.sources:
                    source.advance_idle()
                feed.pin()

    def drop_unused(self, destination: Destination) -> bool:
        """Forget a destination that only subscriptions made, so that names of clients do not pile up for ever."""
        if destination.name not in self.destinations:
            return False
        if any(feed.readers or feed.loading for feed in destination.feeds if feed.destinations == 1):
            return False
        del self.destinations[destination.name]
        self.names.remove(destination.name)
        for feed in destination.feeds:
            feed.leave(destination.queue)
            feed.remove_destination(destination.policy.kind)
            feed.pin()
            if feed.destinations == 0 and not (feed.partition.next_offset or feed.partition.last_receive_ns):
                self._forget(feed)
        for feed in destination.feeds if destination.queue is not None else ():  # in a former log it is remembered
            self._store.cursors.delete(cursor_names.of_queue(destination.name), feed.partition.name)
        self._close(destination)
        return True

    def drop_temporary(self, name: str) -> None:
        """The connection that a temporary queue belonged to is gone."""
        destination = self.destinations.pop(name, None)
        if destination is not None:
            for feed in destination.feeds:
                self._forget(feed)
            self._close(destination)

    def _forget(self, feed: Feed) -> None:
        del self._feeds[feed.partition.name]
        self._store.forget(feed.partition)
        feed.close()

    def _close(self, destination: Destination) -> None:
        """Nothing is handed out any more. What refers in circles is taken apart, so that its memory is free at once:
        Python's collector looks through what has lived for some seconds only now and then."""
        if destination.queue is None:
            return
        sources = list(destination.queue.sources)
        destination.queue.drop(sources)
        for source in sources:
            self.dirty_sources.pop(source, None)
            source.close()

    def add(self, name: str, policy: Policy) -> Destination:
        """A destination that does not exist yet, whether its rule lets clients make it or not. Raises ProtocolError."""
        try:
            if name not in policy.partitions:  # those are checked by the store
                encode_name(name)
            names = priorities.first_logs(policy, self._store.partitions) if policy.priority else policy.partitions
            feeds = [self._feed(partition, policy) for partition in names]
        except ValueError as error:
            raise ProtocolError("bad-destination", f"the name cannot be stored: {error}") from None
        children = self._children_of(name, policy) if policy.fan_out else []
        destination = Destination(name, policy, feeds, self._open_priority)
        if policy.kind == "queue" and not policy.fan_out:
            destination.set_queue(Queue(name, QueueFilter(name), self._on_lost, self._timing, QueuePolicy.of(policy)))
        with CursorCreation(self.cursors) as opening:
            cursors = [self._cursor(opening, destination, feed) for feed in feeds]
            from_parent = self._cursors_of_children(opening, destination, children)
        for feed, cursor in zip(feeds, cursors, strict=True):
            self._attach(destination, feed, cursor)
        self.destinations[name] = destination
        if not name.startswith(TEMPORARY):
            self.names.add(name)
        if children:
            self._feed_children(destination, children, from_parent)
        if not name.startswith(TEMPORARY):
            self._on_created(destination)
        return destination

    def _open_priority(self, destination: Destination, partition_name: str) -> Feed:
        """A queue with priorities is sent the first message of one."""
        feed = self._feed(partition_name, destination.policy)
        with CursorCreation(self.cursors) as opening:
            cursor = self._cursor(opening, destination, feed)
        destination.feeds.append(feed)
        self._attach(destination, feed, cursor)
        self._on_priority(destination, feed)
        return feed

    def _attach(self, destination: Destination, feed: Feed, cursor: Cursor | None) -> None:
        policy, queue = destination.policy, destination.queue
        feed.add_destination(policy.kind)
        if queue is not None:
            priority = policy.partitions.index(feed.partition.name) if policy.priority else 0
            source = QueueSource(queue, feed, cursor, self.dirty_sources, first=policy.priority, priority=priority)
            queue.add(source)
            if policy.priority:
                queue.order_by_priority()
            feed.join(source)
        feed.pin()

    def orphaned_feed(self, partition: Any, policy: Policy) -> Feed:
        """The feed of a log that the rule of one who has something there does not name; if no other names it either,
        it is kept as that rule says."""
        feed = self._feeds.get(partition.name)
        if feed is None:
            partition.configure(replace(policy.settings, store="file"))
            feed = self._feeds[partition.name] = Feed(partition, self._start_read, self._whole)
        return feed

    def _feed(self, partition_name: str, policy: Policy) -> Feed:
        settings = policy.settings
        feed = self._feeds.get(partition_name)
        if feed is None:
            partition = self._store.partition(partition_name, settings)
            feed = self._feeds[partition_name] = Feed(partition, self._start_read, self._whole)
        elif feed.destinations == feed.orphaned and not isinstance(feed.partition, MemoryPartition):  # it was given up
            feed.partition.configure(settings)
            feed.release_settled()
        elif feed.partition.settings is not settings and log_values(feed.partition.settings) != log_values(settings):
            *keys, last = dict.fromkeys(key.section for key in OF_LOG)
            raise ProtocolError(
                "bad-destination",
                f"partition {partition_name[:200]!r} is kept in another way already",
                f"The rule on line {policy.rule.line} of the configuration and that of another destination store into "
                f"it, with different values of {', '.join(keys)} or {last}: make them agree, or name another.",
            )
        return feed

    def _cursor(self, opening: CursorCreation, destination: Destination, feed: Feed) -> Cursor | None:
        """None: it is no queue, or one whose messages only others hand out."""
        if destination.queue is None:
            return None
        return self.cursor_starts.open(opening, destination.name, destination.policy, feed.partition)

    # --- fan_out ------------------------------------------------------------------------------------------------------

    def _children_of(self, name: str, policy: Policy) -> list[Destination]:
        """The queues of a parent that is about to be; those that are new are made. Raises ProtocolError."""
        children = []
        for child in policy.fan_out:
            theirs = self.rules.policy_for(child)
            wrong = "is itself fed to others" if theirs.fan_out else "has priorities" if theirs.priority else ""
            wrong = wrong or ("" if theirs.kind == "queue" else "is a topic")
            if wrong or child == name:
                raise ProtocolError(
                    "bad-destination",
                    f"{name[:200]!r} cannot be fed to {child[:200]!r}: that {wrong or 'is the same'}",
                    f"The rule on line {policy.rule.line} of the configuration has it in fan_out; expected other "
                    "queues.",
                )
            children.append(self.destinations.get(child) or self.add(child, theirs))
        return children

    def _feed_children(self, parent: Destination, children: list[Destination], from_parent: Fed) -> None:
        """Let the children read the parent's logs, with these cursors."""
        for child in children:
            queue = child.queue
            assert queue is not None
            assert isinstance(queue.filter, QueueFilter)
            queue.filter.owned.add(parent.name)
            child.parents.append(parent)
            for consumer in queue.consumers:
                consumer.enter(parent)
        for feed in parent.feeds:
            for child, cursor in from_parent[feed]:
                queue = child.queue
                assert queue is not None
                there = next((each for each in queue.sources if each.feed is feed), None)
                if there is not None:  # that of another parent; or it has something of its own in the log, from before
                    if there.orphaned:
                        child.orphaned.remove(feed)
                    there.feed_from_parent()
                    continue
                source = QueueSource(queue, feed, cursor, self.dirty_sources, from_parent=True)
                queue.add(source)
                feed.join(source)
            if parent.policy.kind == "queue":
                self.cursors.delete(cursor_names.of_queue(parent.name), feed.partition.name)
            feed.pin()
        for child in children:
            assert child.queue is not None
            for source in child.queue.sources:  # in logs of its own too there may be messages of the parent
                source.feed.filters_changed()
                source.feed.pin()
        self.cursors.sync_soon()

    def _cursors_of_children(self, opening: CursorCreation, parent: Destination, children: list[Destination]) -> Fed:
        """The cursors of the children over the logs of a parent that is about to be. Raises StorageError."""
        feeding = {parent.name: parent.policy}
        return {
            feed: [
                (child, self.cursor_starts.open(opening, child.name, child.policy, feed.partition, feeding))
                for child in children
                if feed not in child.feeds
            ]
            for feed in parent.feeds
        }
