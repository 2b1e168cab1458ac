"""A durable subscription: a queue over topics whose cursors outlive its subscribers.

``join`` adds topics from a position on, ``leave`` removes topics. A position that has to be looked up on disk is found
off the event loop, and its source waits for it (``start_positions``).

This module knows the queue, its destination filter and its cursors. It knows no sessions, headers or rights.

Invariants: there is one source per log of its topics. In a log in memory the source holds back no retention and has no
stored cursor. A position that was requested for some topics applies to no others.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from radiator.broker.clients.joined import JOINED_BYTES
from radiator.broker.clients.session import subscriptions_of
from radiator.broker.delivery import cold_reads
from radiator.broker.durable.start_positions import Make, PositionLookups
from radiator.broker.headers.positions import NEXT, Position
from radiator.broker.logs.destination_filter import TopicFilter
from radiator.broker.queues.policy import QueuePolicy, agreed
from radiator.broker.queues.queue import Queue, QueueSource
from radiator.clock import WallNs
from radiator.routing.rights import Permitted
from radiator.storage.cursor import Cursor
from radiator.storage.memory import MemoryPartition

if TYPE_CHECKING:
    from radiator.broker.budget import Budget, Steps
    from radiator.broker.clients.joined import JoinedOfAll
    from radiator.broker.delivery.cold_reads import ColdReads, Ends
    from radiator.broker.destinations.destination import Destination
    from radiator.broker.destinations.registry import Registry
    from radiator.broker.headers.subscribe import SubscriptionName
    from radiator.broker.logs.feed import Feed
    from radiator.broker.timers.timing import Timing
    from radiator.memory import MemoryShare
    from radiator.routing.pattern import PatternSet
    from radiator.routing.policy import Policy
    from radiator.storage.partition import EndOffsets

Starts = dict[str, dict[str, int]]  # partition name -> destination name -> offset
ENTER_UNITS = 2  # per topic that is added, checked or removed
BEGIN_UNITS = 35  # per log in which a cursor is made
CLOSE_UNITS = 20  # per log in which a cursor is deleted
ADJUSTED = b"start-adjusted:true\n"


class Dependencies(NamedTuple):
    """The parts of the broker that a durable subscription uses.

    Attributes:
        registry: Destinations and their partition readers.
        budget: The budget of the turn.
        moment: Takes the current end offsets of all logs.
        joined: Counts the destinations that all subscriptions have joined.
        joined_each: ``limits.joined``, the maximum for one subscription.
        memory: The memory share of subscriptions.
        timing: Timers, and the wake-up of queues.
        on_lost: Called with a queue's name and the number of messages that its log has lost.
        reading: Cold reads and look-ups.
        matches: Returns True if the patterns match this topic.
    """

    registry: Registry
    budget: Budget
    moment: Callable[[], EndOffsets]
    joined: JoinedOfAll
    joined_each: int
    memory: MemoryShare
    timing: Timing
    on_lost: Callable[[str, int], None]
    reading: ColdReads
    matches: Callable[[PatternSet, str], bool]


class DurableSubscription:
    """A durable subscription or consumer group.

    Args:
        dependencies: The parts of the broker that it uses.
        asked: Its name.
        user: The user who owns it.
        patterns: The topics that it is subscribed to.
        now_ns: The time of its creation, in nanoseconds since 1970.

    Attributes:
        key: The name of its cursors, unique among all durable subscriptions.
        queue: The queue that its subscribers consume.
        destinations: The topics that it has joined.
        starts: Offsets from which the destination filter takes messages, stored with the definition.
        requested: The same for an offset that the client gave, whether or not the log has it yet.
        position_lookups: Look-ups of start positions.
        used_ns: The time of its last use, in nanoseconds since 1970.
        deleted: True once it was deleted.
        declared: True if the configuration declares it, or did so when it was applied last.
    """

    def __init__(
        self, dependencies: Dependencies, asked: SubscriptionName, user: str, patterns: PatternSet, now_ns: WallNs
    ) -> None:
        self.asked = asked
        self.key = asked.key
        self.user = user
        self.patterns = patterns
        self.made_ns = self.used_ns = now_ns
        self.filter = TopicFilter(partial(dependencies.matches, patterns))
        self.queue = Queue(self.key, self.filter, dependencies.on_lost, dependencies.timing, QueuePolicy())
        self.destinations: dict[Destination, None] = {}
        self.joined = dependencies.joined.of_one(dependencies.joined_each)
        self._sources: dict[Feed, QueueSource] = {}
        self._delivered: dict[Feed, dict[int, int]] = {}
        self.starts: Starts = {}
        self.requested: Starts = {}
        self.position_lookups = PositionLookups(dependencies.reading)
        self.deleted = False
        self.declared = False
        self._dependencies = dependencies

    @property
    def active(self) -> bool:
        """True if it has a subscriber."""
        return any(not each.closed for each in subscriptions_of(self.queue))

    # --- topics -----------------------------------------------------------------------------------------------------

    def set_patterns(self, patterns: PatternSet) -> None:
        """Replace its patterns. The caller then lets it leave and join topics."""
        self.patterns = patterns
        self.filter.set_patterns(partial(self._dependencies.matches, patterns))

    def add_topic(self, destination: Destination) -> None:
        """Join a topic that was loaded at a start or just created.

        Existing cursors continue. Without one, the subscription begins with the topic's first message.
        """
        self._enter(destination)
        for feed in destination.feeds:
            if self._source(feed) is None:
                partition = feed.partition
                new = partition.whole and destination.name not in partition.destinations
                self._open(feed, partition.high_watermark if new else partition.log_start_offset, destination)

    def join(
        self, destinations: Iterable[Destination], position: Position, now_ns: WallNs, is_new: bool = False
    ) -> Steps:
        """Join topics from a position on, in steps.

        In a log that the subscription already reads its cursor continues: a new topic there is read from the cursor's
        position on, or with ``next`` from now on.

        Args:
            destinations: The topics.
            position: The start position.
            now_ns: The current time, in nanoseconds since 1970.
            is_new: The subscription has no topics yet. A time in the future then applies to topics that are created
                before it, too.

        Raises:
            ProtocolError: Too many destinations are joined.
        """
        to_come_ns = position.value if position.kind == "time" and position.value > now_ns else 0
        destinations = list(destinations)
        if position.kind != "offset" and (is_new or not to_come_ns):  # a silent topic joins at its first message
            destinations = [each for each in destinations if not each.silent or each.name in self.patterns.names]
        if is_new:
            self.filter.want_since(to_come_ns)
        elif to_come_ns or self.filter.since_ns:
            self.filter.want_since(to_come_ns, [each.name for each in destinations])
        names: dict[Feed, list[str]] = {}
        made_of: dict[Feed, Destination] = {}
        budget, moment = self._dependencies.budget, self._dependencies.moment()
        try:
            for destination in destinations:
                self._enter(destination)
                budget.spend(ENTER_UNITS)
                for feed in destination.feeds:
                    names.setdefault(feed, []).append(destination.name)
                    made_of[feed] = destination
                yield True
            new = {feed: made_of[feed] for feed in names if self._source(feed) is None}
            if position.kind == "last":
                yield from self._begin_at_last(new, (yield from cold_reads.parts(budget, destinations)), position.value)
            for feed, wanted in names.items():
                end = moment.end_of(feed.partition)
                if feed in new and position.kind != "last":
                    if self._source(feed) is None:  # a topic that was created meanwhile may have made the source
                        self._begin(feed, new[feed], wanted, position, now_ns, end)
                elif feed not in new and position == NEXT:
                    self._set_start(feed, wanted, end, self.starts)
                budget.spend(BEGIN_UNITS)
                yield True
        finally:
            moment.close()

    def leave(self, destinations: Iterable[Destination]) -> Generator[bool, None, list[Destination]]:
        """Leave topics, in steps.

        A log is closed if no other topic of the subscription is in it. In a log that stays open, messages of the topics
        that were left are passed over.

        Args:
            destinations: The topics; those that it has not joined are ignored.

        Returns:
            The topics that it has left, once all steps are done.
        """
        budget = self._dependencies.budget
        left = [destination for destination in destinations if destination in self.destinations]
        for destination in left:
            del self.destinations[destination]
            self.joined.remove(1)
            self._dependencies.memory.add(-JOINED_BYTES)
            destination.count_subscribers(-1)
            self.filter.since.pop(destination.name, None)
            budget.spend(ENTER_UNITS)
            yield True
        needed: set[Feed] = set()
        names: set[str] = set()
        for destination in list(self.destinations):
            needed.update(destination.feeds)
            names.add(destination.name)
            budget.spend(ENTER_UNITS)
            yield True
        closed = False
        for feed, source in list(self._sources.items()):
            if feed not in needed and not (source.orphaned and names & feed.partition.destinations.keys()):
                self.queue.release(source)
                self._close(source)
                closed = True
                budget.spend(CLOSE_UNITS)
            yield True
        if closed:
            self.queue.drop_closed()
        return left

    def end(self) -> Generator[bool, None, list[Destination]]:
        """Leave all topics for ever and delete the cursors, in steps.

        Returns:
            The topics that it has left, once all steps are done.
        """
        left = yield from self.leave(list(self.destinations))
        self._dependencies.registry.cursors.delete(self.key)
        self._dependencies.registry.cursors.sync_soon()
        self.position_lookups.report(None)
        return left

    def seek(self, destinations: Iterable[Destination], position: Position, now_ns: WallNs) -> Steps:
        """Set the whole subscription to a position, in steps.

        Args:
            destinations: All topics of the subscription.
            position: The new position.
            now_ns: The current time, in nanoseconds since 1970.
        """
        self.starts.clear()
        self.requested.clear()
        self.filter.begin_again()
        with self._rewinding():
            yield from self.leave(list(self.destinations))
            self._dependencies.registry.cursors.delete(self.key)
            yield from self.join(dict.fromkeys(destinations), position, now_ns, is_new=True)

    def seek_in(self, destinations: Iterable[Destination], position: Position, now_ns: WallNs) -> Steps:
        """Set the subscription to a position in some of its topics, in steps.

        Args:
            destinations: The topics.
            position: The new position.
            now_ns: The current time, in nanoseconds since 1970.
        """
        destinations = list(destinations)
        with self._rewinding():
            yield from self.leave(destinations)
            yield from self.join(destinations, position, now_ns)

    @contextmanager
    def _rewinding(self) -> Iterator[None]:
        """Let cursors that are made in this block take over the delivery counts of those that are closed."""
        self._delivered = {source.feed: source.unsettled_deliveries() for source in self.queue.sources}
        yield
        self._delivered = {}

    def _enter(self, destination: Destination) -> None:
        if destination not in self.destinations:
            self.joined.check()
            self.destinations[destination] = None
            self.joined.add()
            self._dependencies.memory.add(JOINED_BYTES)
            destination.count_subscribers(1)
            for feed in destination.feeds:
                source = self._source(feed)
                if source is not None:
                    source.agree(agreed([source.policy, self._policy(destination.policy)]))

    def agree_again(self) -> Steps:
        """Apply the present policies of its topics, in steps: the rules have changed."""
        registry, budget = self._dependencies.registry, self._dependencies.budget
        policies: dict[Feed, list[QueuePolicy]] = {}
        for destination in list(self.destinations):
            for feed in destination.feeds:
                policies.setdefault(feed, []).append(self._policy(destination.policy))
            budget.spend(ENTER_UNITS)
            yield True
        for feed, source in list(self._sources.items()):
            partition, found = feed.partition, policies.get(feed, [])
            if not found or len(partition.destinations) > 1:
                wanted = [each for each in partition.destinations if self.filter.wants(each)]
                found += [self._policy(registry.rules.policy_for(each)) for each in wanted]
                budget.spend(ENTER_UNITS * len(wanted))
            if found and not source.closed:
                source.agree(agreed(found))
                if source.cursor.stored:
                    registry.cursors.open(self.key, partition.name, source.cursor.floor, found[0].settings.sync)
                if feed.destinations == feed.orphaned:
                    partition.configure(replace(found[0].settings, store="file"))
            yield True

    def note_use(self, now_ns: WallNs) -> None:
        """Note the time of its last use."""
        self.used_ns = now_ns

    def note_declared(self) -> None:
        """Note that the configuration declares it."""
        self.declared = True

    def note_deleted(self) -> None:
        """Note that it was deleted."""
        self.deleted = True

    def restore_starts(self, starts: Starts, requested: Starts) -> None:
        """Set the start offsets that its stored definition has."""
        self.starts = {where: dict(each) for where, each in starts.items()}
        self.requested = {where: dict(each) for where, each in requested.items()}

    def permit(self, patterns: PatternSet | Permitted) -> None:
        """Limit its messages to those that its user may read."""
        self.filter.permit(patterns if isinstance(patterns, Permitted) else None)

    def _policy(self, policy: Policy) -> QueuePolicy:
        # A single subscriber gets its unacknowledged messages again when it reconnects.
        found = QueuePolicy.of(policy)
        return found if self.asked.is_group else found.requeuing()

    # --- cursors ----------------------------------------------------------------------------------------------------

    def add_orphaned(self, feed: Feed, destination: Destination) -> QueueSource:
        """Add an orphaned partition as a source. In a group one member at a time reads it.

        Args:
            feed: The partition reader of the log.
            destination: A topic that is stored in it.
        """
        return self._open(feed, feed.partition.high_watermark, destination, orphaned=True)

    def remove_orphaned(self, source: QueueSource) -> None:
        """Remove the source of an orphaned partition. Its cursor stays, should a rule name the log again."""
        self.queue.drop([source])
        del self._sources[source.feed]
        source.close()
        source.feed.leave(self.queue)
        source.feed.pin()

    def _source(self, feed: Feed) -> QueueSource | None:
        return self._sources.get(feed)

    def _open(self, feed: Feed, start: int, destination: Destination, orphaned: bool = False) -> QueueSource:
        partition = feed.partition
        in_memory = isinstance(partition, MemoryPartition)
        registry = self._dependencies.registry
        if in_memory:
            cursor = Cursor(start)
        else:
            cursor = registry.cursors.open(self.key, partition.name, start, destination.policy.settings.sync)
            registry.cursors.sync_soon()
        policy = self._policy(destination.policy)
        if len(partition.destinations) > 1:  # the settings of one topic must not decide about messages of another
            others = (registry.rules.policy_for(each) for each in partition.destinations if self.filter.wants(each))
            policy = agreed([policy, *map(self._policy, others)])
        first = orphaned and not self.asked.is_group
        source = QueueSource(self.queue, feed, cursor, registry.dirty_sources, policy, orphaned=orphaned, first=first)
        source.expect_again(self._delivered.get(feed, {}))
        self.queue.add(source)
        self._sources[feed] = source
        if self.asked.is_group and (orphaned or len(destination.feeds) > 1):
            self.queue.assign(source, partial(self._dependencies.timing.wake, self.queue))
        feed.join(source, pins=not in_memory)
        feed.pin()
        self._dependencies.timing.wake(self.queue)
        return source

    def _close(self, source: QueueSource) -> None:
        del self._sources[source.feed]
        source.close()
        source.feed.leave(self.queue)
        source.feed.pin()
        self._dependencies.registry.cursors.delete(self.key, source.feed.partition.name)
        self._dependencies.registry.dirty_sources.pop(source, None)
        self.position_lookups.drop(source)
        self.filter.forget(source.feed.partition.name)
        self.starts.pop(source.feed.partition.name, None)
        self.requested.pop(source.feed.partition.name, None)

    def _set_start(self, feed: Feed, names: Iterable[str], offset: int, kept: Starts | None) -> None:
        """Take messages of these destinations from ``offset`` on.

        Args:
            feed: The partition reader.
            names: The destinations.
            offset: The first offset.
            kept: The table of start offsets that also records it; None to record it nowhere.
        """
        starts = dict.fromkeys(names, offset)
        self.filter.want_from(feed.partition.name, starts)
        if kept is not None:
            kept.setdefault(feed.partition.name, {}).update(starts)

    # --- positions --------------------------------------------------------------------------------------------------

    def _begin(
        self, feed: Feed, destination: Destination, names: list[str], position: Position, now_ns: WallNs, end: int
    ) -> None:
        partition = feed.partition
        first, value = partition.log_start_offset, position.value
        if position.kind == "next" or (position.kind == "time" and value > now_ns):
            self._place(feed, destination, names, end)
        elif position.kind == "first":
            self._open(feed, first, destination)
        elif position.kind == "offset":
            if value < first:
                self.queue.send_next(ADJUSTED)
            self._place(feed, destination, names, max(value, first), self.requested)
        else:
            make = partial(partition.offset_for_time, value)
            self._look_up({feed: destination}, make, [], lambda job, feed: dict.fromkeys(names, job.offset))

    def _begin_at_last(self, new: dict[Feed, Destination], parts: list[cold_reads.Part], number: int) -> Steps:
        for whole in parts:
            self._dependencies.budget.spend(BEGIN_UNITS * len(whole))
            yield True
            part = {feed: names for feed, names in whole.items() if feed in new}
            at_once = cold_reads.from_offsets(part, number) if part else {}
            if at_once is None:
                make, ends = cold_reads.last_job(part, number)
                found_in = partial(self._found_in, part)
                self._look_up({feed: new[feed] for feed in part}, make, ends, found_in)
                continue
            for feed, names in part.items():
                self._place(feed, new[feed], list(names), at_once[feed.partition.name][next(iter(names))])

    @staticmethod
    def _found_in(part: cold_reads.Part, job: Any, feed: Feed) -> dict[str, int]:
        return cold_reads.found_in(job, feed, part[feed])

    def _place(
        self, feed: Feed, destination: Destination, names: list[str], offset: int, kept: Starts | None = None
    ) -> None:
        """Begin at an offset, which may not be stored yet."""
        high_watermark = feed.partition.high_watermark
        source = self._open(feed, min(offset, high_watermark), destination)
        if offset > high_watermark:
            source.want_from(min(offset, feed.partition.next_offset))
            self._set_start(feed, names, offset, kept)

    def _look_up(
        self,
        feeds: dict[Feed, Destination],
        make: Make,
        ends: Ends,
        found_in: Callable[[Any, Feed], dict[str, int]],
    ) -> None:
        """Begin in each of these logs at the position that a look-up finds.

        Args:
            feeds: The partition readers, each with a topic of the subscription.
            make: Makes the look-up job.
            ends: Partitions and end offsets below which everything has to be stored first.
            found_in: Returns the start offset of each topic in a log, from the finished job.
        """

        def found(finished: Any, source: QueueSource) -> None:
            starts = found_in(finished, source.feed)
            first = min(starts.values())
            for name, start in starts.items() if max(starts.values()) > first else ():
                self._set_start(source.feed, [name], start, self.starts)
            source.begin_at(first)
            self._dependencies.timing.wake(self.queue)

        sources = [self._open(feed, feed.partition.log_start_offset, made_of) for feed, made_of in feeds.items()]
        self.position_lookups.start(sources, ends, make, found)
