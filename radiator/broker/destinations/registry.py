"""The registry of destinations: which exist, and how a new one is created.

The first message or subscription creates a destination. Its rule gives its policy, the policy its partitions, each
partition its feed, and for a queue each feed a cursor. At a start the registry creates the destinations that the logs
contain, so that patterns match them before the first message of this run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from radiator import limits
from radiator.broker.destinations import priorities
from radiator.broker.destinations.cursor_creation import CursorCreation
from radiator.broker.destinations.cursor_starts import CursorStarts
from radiator.broker.destinations.destination import Destination
from radiator.broker.destinations.orphaned import LastRunCursors
from radiator.broker.logs import cursor_names
from radiator.broker.logs.destination_filter import QueueFilter
from radiator.broker.logs.feed import Feed
from radiator.broker.logs.wire import Whole
from radiator.broker.queues.pauses import Pauses
from radiator.broker.queues.policy import QueuePolicy
from radiator.broker.queues.queue import Queue, QueueSource
from radiator.broker.timers.timing import Timing
from radiator.config.settings import OF_LOG, log_values
from radiator.errors import ProtocolError, StorageError
from radiator.routing.index import NameIndex
from radiator.routing.policy import Policy
from radiator.routing.rules import TEMPORARY, Rules, label_of
from radiator.storage.cursor import Cursor
from radiator.storage.layout import encode_name
from radiator.storage.memory import MemoryPartition
from radiator.storage.store import Store

log = logging.getLogger("radiator.broker")

BEING_REMOVED: Final = "a destination of this name is being removed"

BoundCursors = dict[Feed, list[tuple[Destination, Cursor]]]  # the cursors of bound queues, by log of the fan-out source


class BeingRemoved(ProtocolError):
    """The logs of an earlier destination of this name are being removed. The caller waits, or tries again later."""

    def __init__(self, failure: StorageError | None) -> None:
        super().__init__("storage", BEING_REMOVED, "Try again in a moment." if failure is None else str(failure))
        self.waits = failure is None


class Registry:
    """The destinations of one broker.

    Args:
        rules: The rules, which give each destination its policy.
        store: The logs and cursors.
        start_read: Runs the cold reads of a feed.
        on_lost: Called with a description and the number of messages that the log lost before a queue delivered them.
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
        self.names = NameIndex()  # of all destinations that are not temporary
        self.dirty_sources: dict[QueueSource, None] = {}  # sources with offsets to report to their cursors
        self.rules = rules
        self.cursors = store.cursors
        self.cursor_starts = CursorStarts(rules, store)
        self.pauses = Pauses(store.definitions)
        self._store = store
        self._start_read = start_read
        self._whole = Whole()
        self._on_lost = on_lost
        self._on_created: Callable[[Destination], None]
        self._on_priority: Callable[[Destination, Feed], None]
        self._timing = timing
        self._feeds: dict[str, Feed] = {}
        self._added: list[Destination] | None = None  # those created while a reload is decided
        self._on_adopted: Callable[[Destination], None] = lambda destination: None
        self.removing: dict[Destination, None] = {}  # those whose removal may still fail
        self._stale: dict[Destination, Policy] = {}  # the policies that destinations take after a reload

    def listen(
        self, on_created: Callable[[Destination], None], on_priority: Callable[[Destination, Feed], None]
    ) -> None:
        """Set the functions that are called for new destinations (except temporary queues) and new priority logs."""
        self._on_created = on_created
        self._on_priority = on_priority

    def revive(self) -> None:
        """Create the destinations of the last run. If the list of a log may be incomplete, a cursor names its queue."""
        for cursor, partition_name in self._store.cursors.names():
            held = self._store.partitions.get(partition_name)
            if held is not None and not held.whole and cursor.startswith(cursor_names.QUEUE):
                held.destinations[cursor.removeprefix(cursor_names.QUEUE)] = None
        self.cursor_starts.look()
        last_run = LastRunCursors(self._store)
        for partition in list(self._store.partitions.values()):
            for name in sorted(partition.destinations):
                if name in self.destinations:
                    continue
                try:
                    policy = self.rules.policy_for(name)
                    if partition.name in policy.partitions or last_run.needs(name, policy, partition):
                        self.add(name, policy, sent=True)
                except ProtocolError as error:  # the rules have changed; a client that uses it gets the error
                    log.warning("%s: %s %s", name, error.message, error.detail)
        self._create_paused()
        for cursor, partition_name in self._store.cursors.names():
            if partition_name not in self._store.partitions:  # created by a subscription; nothing was ever sent
                self._store.cursors.delete(cursor, partition_name)
            elif cursor.startswith(cursor_names.QUEUE) and self._released(cursor, partition_name):
                self._store.cursors.delete(cursor, partition_name)
                log.warning("%s no longer gets the messages of %s: its cursor is deleted", cursor, partition_name)
        self.cursor_starts.made()

    def _create_paused(self) -> None:
        """Create the paused queues that have no messages, so that they are listed."""
        for cursor in self.pauses.names():
            name = cursor.removeprefix(cursor_names.QUEUE)
            if name == cursor:
                continue
            try:
                destination = self.destinations.get(name) or self.add(name, self.rules.policy_for(name))
            except (ProtocolError, StorageError) as error:
                log.warning("%s is paused and cannot be created: %s", name, error)
            else:
                if destination.queue is None:
                    log.warning("%s is paused, but the rules do not make it a queue with messages of its own", name)

    # --- reload -------------------------------------------------------------------------------------------------------

    def note_added(self) -> list[Destination]:
        """Return a list to which new destinations are added, until ``use`` or ``forget_added``."""
        self._added = []
        return self._added

    def forget_added(self) -> None:
        """End ``note_added``."""
        self._added = None

    def use(self, rules: Rules, policies: dict[Destination, Policy]) -> None:
        """Create destinations by other rules from now on.

        Destinations that exist have other policies: each takes its own with the first frame that uses it, or with
        ``adopt_next``.

        Args:
            rules: The rules.
            policies: The policies of the destinations that exist.
        """
        self.rules = rules
        self.cursor_starts.use(rules)
        self._added, self._stale = None, policies

    @property
    def has_stale(self) -> bool:
        """True if a destination has not taken its new policy yet."""
        return bool(self._stale)

    def on_adopted(self, call: Callable[[Destination], None]) -> None:
        """Call ``call`` with each destination that has taken its new policy."""
        self._on_adopted = call

    def adopt_next(self) -> None:
        """Let one more destination take its new policy."""
        self._adopt(*self._stale.popitem())  # ``next(iter(...))`` would look at all that are gone, each time

    def adopt(self, destination: Destination) -> None:
        """Let a destination take its new policy, if it has not yet."""
        policy = self._stale.pop(destination, None)
        if policy is not None:
            self._adopt(destination, policy)

    def _adopt(self, destination: Destination, policy: Policy) -> None:
        if self.destinations.get(destination.name) is not destination:
            return
        before, settings = destination.policy.settings, policy.settings
        counters = self._timing.traffic
        counted, counts = counters.of(label_of(destination.policy)), counters.of(label_of(policy))
        destination.set_policy(policy)
        for feed in destination.feeds:
            if feed.traffic is counted:
                feed.count_for(counts)
            if log_values(feed.partition.settings) != log_values(settings):
                feed.partition.configure(settings)
        for feed in destination.orphaned:
            if feed.destinations == feed.orphaned:
                feed.partition.configure(replace(settings, store="file"))
        self._on_adopted(destination)
        queue = destination.queue
        if queue is None:
            return
        queue.agree(QueuePolicy.of(policy))
        if settings.sync != before.sync:
            for source in queue.sources:
                if source.cursor.stored:
                    self.cursors.open(cursor_names.of_queue(queue.name), source.feed.partition.name, 0, settings.sync)

    def _released(self, cursor: str, partition_name: str) -> bool:
        """Return True if this is the cursor of a queue that is not bound to the log any more."""
        feed = self._feeds.get(partition_name)
        name = cursor.removeprefix(cursor_names.QUEUE)
        if feed is None or name in feed.partition.destinations or not feed.partition.whole:
            return False
        return not any(source.queue.name == name for source in feed.sources)

    def create(self, name: str) -> Destination:
        """Create a destination.

        Args:
            name: The name of a destination that does not exist.

        Raises:
            ProtocolError: Its rule or a limit forbids it, or the name cannot be stored.
        """
        policy = self.rules.policy_for(name)
        if not policy.settings.create:
            raise ProtocolError(
                "not-found",
                f"destination {name[:200]!r} does not exist and may not be created",
                f"The rule on line {policy.rule.line} of the configuration sets create: deny.",
            )
        most = self.rules.config.limits.destinations
        spare = limits.TEMPORARY_SPARE if name.startswith(TEMPORARY) else 0
        if len(self.destinations) >= most + spare:
            raise ProtocolError("too-many", "too many destinations", f"limits.destinations in the YAML file is {most}.")
        return self.add(name, policy)

    def feed_of(self, partition: Any) -> Feed | None:
        """Return the feed of a partition, or None if the partition has none."""
        return self._feeds.get(partition.name)

    def advance_idle_queues(self) -> None:
        """Advance the cursors of idle queues in shared logs past other destinations' records, for their retention."""
        for feed in self._feeds.values():
            if feed.destinations > 1:
                for source in feed.sources:
                    source.advance_idle()
                feed.pin()

    def drop_unused(self, destination: Destination) -> bool:
        """Remove a destination that only subscriptions have created, so that names do not accumulate.

        Returns:
            False if the destination is still in use.
        """
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
        for feed in destination.feeds if destination.queue is not None else ():  # orphaned ones stay
            self._store.cursors.delete(cursor_names.of_queue(destination.name), feed.partition.name)
        self._close(destination)
        return True

    def removable(self, destination: Destination) -> bool:
        """Return whether nothing uses a destination or its logs now, so that ``remove`` may be called."""
        policy = destination.policy
        if destination.subscribers or destination.parents or destination.orphaned or policy.fan_out:
            return False
        if policy.settings.wait_for_archive:  # no message goes before an archive has it
            return False
        if destination.queue is not None and any(source.burying for source in destination.queue.sources):
            return False  # its dead letters are on their way
        for feed in destination.feeds:
            partition = feed.partition
            if feed.readers or feed.loading or feed.destinations != 1:
                return False
            if not isinstance(partition, MemoryPartition) and not partition.is_removable:
                return False
        return True

    def remove(self, destination: Destination, ended: Callable[[StorageError | None], None]) -> None:
        """Remove a destination with its messages. It is ``removable``.

        Args:
            destination: The destination.
            ended: Called once it is gone whatever happens; with the error if it stays, as a new object.
        """
        name, policy = destination.name, destination.policy
        del self.destinations[name]
        self.names.remove(name)
        for feed in destination.feeds:
            del self._feeds[feed.partition.name]
            feed.close()
        self._close(destination)
        self.removing[destination] = None

        def committed(error: StorageError | None) -> None:
            del self.removing[destination]
            if error is None:
                for feed in destination.feeds if policy.kind == "queue" else ():
                    self.cursors.delete(cursor_names.of_queue(name), feed.partition.name)
            else:
                self.add(name, self.rules.policy_for(name), sent=True)  # a reload meanwhile has decided about it, too
            ended(error)

        self._store.remove([feed.partition for feed in destination.feeds], committed)

    def being_removed(self, name: str) -> bool:
        """Return whether an earlier destination of this name is being removed, and will soon be gone."""
        removals = self._store.removals
        if not removals.names or removals.failed is not None or name in self.destinations:
            return False
        try:
            return not removals.names.isdisjoint(self.rules.policy_for(name).partitions)
        except ProtocolError:
            return False

    def drop_temporary(self, name: str) -> None:
        """Remove a temporary queue whose connection is gone."""
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
        """Drop the sources of a destination's queue.

        References in circles are cut, so that the memory is free at once: Python's collector seldom scans old objects.
        """
        if destination.queue is None:
            return
        sources = list(destination.queue.sources)
        destination.queue.drop(sources)
        for source in sources:
            self.dirty_sources.pop(source, None)
            source.close()

    def add(self, name: str, policy: Policy, sent: bool = False) -> Destination:
        """Create a destination, whether or not its rule lets clients create it.

        Args:
            name: The name.
            policy: The policy that the rules give the name.
            sent: True if a log has messages of it, maybe one that its rule does not name any more.

        Returns:
            The destination.

        Raises:
            ProtocolError: The name cannot be stored, or its rule conflicts with another rule.
        """
        removals = self._store.removals
        if removals.names and not removals.names.isdisjoint(policy.partitions):
            raise BeingRemoved(removals.failed)
        try:
            if name not in policy.partitions:  # the store checks names of partitions
                encode_name(name)
            names = priorities.first_logs(policy, self._store.partitions) if policy.priority else policy.partitions
            feeds = [self._feed(partition, policy) for partition in names]
        except ValueError as error:
            raise ProtocolError("bad-destination", f"the name cannot be stored: {error}") from None
        bound_queues = self._bound_queues_of(name, policy) if policy.fan_out else []
        destination = Destination(name, policy, feeds, self._open_priority)
        if sent:
            destination.note_sent()
        if policy.kind == "queue" and not policy.fan_out:
            queue = Queue(name, QueueFilter(name), self._on_lost, self._timing, QueuePolicy.of(policy))
            self.pauses.apply(cursor_names.of_queue(name), queue)
            destination.set_queue(queue)
        with CursorCreation(self.cursors) as opening:
            cursors = [self._cursor(opening, destination, feed) for feed in feeds]
            bound_cursors = self._cursors_of_bound_queues(opening, destination, bound_queues)
        for feed, cursor in zip(feeds, cursors, strict=True):
            self._attach(destination, feed, cursor)
        self.destinations[name] = destination
        if self._added is not None:
            self._added.append(destination)
        if not name.startswith(TEMPORARY):
            self.names.add(name)
        if bound_queues:
            self._bind(destination, bound_queues, bound_cursors)
        if not name.startswith(TEMPORARY):
            self._on_created(destination)
        return destination

    def _open_priority(self, destination: Destination, partition_name: str) -> Feed:
        """Create the log of a priority level of a queue."""
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
        """Return the feed of an orphaned partition.

        If no other rule names the log, it gets the settings of ``policy``, that of a destination with messages in it.
        """
        feed = self._feeds.get(partition.name)
        if feed is None:
            partition.configure(replace(policy.settings, store="file"))
            feed = self._feeds[partition.name] = self._new_feed(partition, policy)
        return feed

    def _new_feed(self, partition: Any, policy: Policy) -> Feed:
        return Feed(partition, self._start_read, self._whole, self._timing.traffic.of(label_of(policy)))

    def _feed(self, partition_name: str, policy: Policy) -> Feed:
        settings = policy.settings
        feed = self._feeds.get(partition_name)
        if feed is not None and self._stale:
            for each in [each for each in self._stale if feed in each.feeds]:
                self.adopt(each)
        if feed is None:
            partition = self._store.partition(partition_name, settings)
            feed = self._feeds[partition_name] = self._new_feed(partition, policy)
        elif feed.destinations == feed.orphaned and not isinstance(feed.partition, MemoryPartition):  # it was orphaned
            feed.partition.configure(settings)
            feed.release_settled()
        elif feed.partition.settings is not settings and log_values(feed.partition.settings) != log_values(settings):
            *keys, last = dict.fromkeys(key.section for key in OF_LOG)
            raise ProtocolError(
                "bad-destination",
                f"partition {partition_name[:200]!r} is already stored with other settings",
                f"The rule on line {policy.rule.line} of the configuration and the rule of another destination "
                f"store into it with different values of {', '.join(keys)} or {last}: use equal values, or another "
                "partition.",
            )
        return feed

    def _cursor(self, opening: CursorCreation, destination: Destination, feed: Feed) -> Cursor | None:
        """Return the cursor of a queue over a feed; None for a topic or a fan-out source."""
        if destination.queue is None:
            return None
        return self.cursor_starts.open(opening, destination.name, destination.policy, feed.partition)

    # --- fan_out ------------------------------------------------------------------------------------------------------

    def _bound_queues_of(self, name: str, policy: Policy) -> list[Destination]:
        """Return the bound queues of a fan-out source that is about to be created; create missing ones.

        Raises:
            ProtocolError: A bound queue cannot be created or bound.
        """
        bound_queues = []
        for bound in policy.fan_out:
            other = self.rules.policy_for(bound)
            wrong = "has fan_out itself" if other.fan_out else "has priorities" if other.priority else ""
            wrong = wrong or ("" if other.kind == "queue" else "is a topic")
            if wrong or bound == name:
                raise ProtocolError(
                    "bad-destination",
                    f"{name[:200]!r} cannot have fan_out to {bound[:200]!r}: that queue {wrong or 'is the same'}",
                    f"The rule on line {policy.rule.line} of the configuration lists it in fan_out; expected other "
                    "queues.",
                )
            bound_queues.append(self.destinations.get(bound) or self.add(bound, other))
        return bound_queues

    def _bind(self, parent: Destination, bound_queues: list[Destination], bound_cursors: BoundCursors) -> None:
        """Let the bound queues read the logs of the source with these cursors."""
        for bound in bound_queues:
            queue = bound.queue
            assert queue is not None
            assert isinstance(queue.filter, QueueFilter)
            queue.filter.owned.add(parent.name)
            bound.parents.append(parent)
            for consumer in queue.consumers:
                consumer.enter(parent)
        for feed in parent.feeds:
            for bound, cursor in bound_cursors[feed]:
                queue = bound.queue
                assert queue is not None
                existing = next((each for each in queue.sources if each.feed is feed), None)
                if existing is not None:  # of another source, or an orphaned partition of the queue
                    if existing.orphaned:
                        bound.orphaned.remove(feed)
                    existing.bind_to_fan_out()
                    continue
                source = QueueSource(queue, feed, cursor, self.dirty_sources, from_fan_out=True)
                queue.add(source)
                feed.join(source)
            if parent.policy.kind == "queue":
                self.cursors.delete(cursor_names.of_queue(parent.name), feed.partition.name)
            feed.pin()
        for bound in bound_queues:
            assert bound.queue is not None
            for source in bound.queue.sources:  # its own logs may contain messages of the source too
                source.feed.filters_changed()
                source.feed.pin()
        self.cursors.sync_soon()

    def _cursors_of_bound_queues(
        self, opening: CursorCreation, parent: Destination, bound_queues: list[Destination]
    ) -> BoundCursors:
        """Return the cursors of bound queues over the logs of a source that is about to be created.

        Raises:
            StorageError: A cursor could not be created.
        """
        feeding = {parent.name: parent.policy}
        return {
            feed: [
                (bound, self.cursor_starts.open(opening, bound.name, bound.policy, feed.partition, feeding))
                for bound in bound_queues
                if feed not in bound.feeds
            ]
            for feed in parent.feeds
        }
