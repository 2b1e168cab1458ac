"""Messages of one source that were skipped by selector: no consumer with credit matched them.

A queue delivers its messages in order. With selectors, a message that matches no consumer with credit must not block
the others: it is *skipped*. The offsets of skipped messages are stored as runs. Which consumer matches which of them
is stored only for a few. Instead each group of consumers with the same selector has a *place*: the position among the
skipped messages up to which its selector was evaluated, and the next few matching messages. Messages behind the
position are read from the log again, in bounded steps (a *sweep*, shared by groups at the same position). So any number
of messages may be skipped, no consumer starves, and a selector is evaluated about once for each message.

    no place                  evaluated up to ``next_offset`` of the source, no message matches
    place, no position        evaluated up to ``next_offset``; the messages in ``found`` match
    place with a position     evaluated up to there; continues when ``found`` is empty and the group has credit

The module knows offsets and the place of each group, but not selectors or credit.
Invariants: a message here is unsettled, not in flight and not in ``returned``. Of the skipped messages below a group's
position, the matching ones are in its ``found``, which has none from the position on. Memory: 16 bytes and two
numbers for each run. A source has at most ``limits.SKIPPED_RUNS_MAX`` runs and all sources
``limits.SKIPPED_RUNS_ALL_MAX``; then the source stops (``SkippedTotals``). A group has found at most
``limits.SKIPPED_FOUND_MAX`` offsets, and those that consumers have returned.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Protocol

from radiator import limits
from radiator.broker.queues.offset_runs import Runs

if TYPE_CHECKING:
    from radiator.broker.logs.feed import Feed
    from radiator.broker.queues.selectors import Group, Selectors
    from radiator.broker.skipping import SkippedTotals
    from radiator.storage.batch import RecordBatch


class SkippingCursor(Protocol):
    """The cursor of a queue over one partition, as far as this module uses it."""

    @property
    def closed(self) -> bool:
        """True once the cursor is not read any more."""

    @property
    def feed(self) -> Feed:
        """The feed of the partition."""

    @property
    def queue_name(self) -> str:
        """The name of the queue, for log lines."""

    def lose(self, start: int, stop: int) -> None:
        """Count messages that the log has lost."""

    def removed_skipped(self, start: int, stop: int) -> None:
        """Settle skipped messages that were removed from the log on purpose."""


class Scan:
    """A read position in one source's log besides its fresh messages.

    Args:
        source: The cursor of the queue.
        then: Called when a batch was read from the disk.
    """

    __slots__ = ("_source", "_then", "batch", "loading")

    def __init__(self, source: SkippingCursor, then: Callable[[], None]) -> None:
        self._source = source
        self._then = then
        self.batch: RecordBatch | None = None
        self.loading = False

    def batch_at(self, offset: int) -> RecordBatch | None:
        """Return the batch with this offset; None while it is read (``loading``), or if the message is gone."""
        source, partition = self._source, self._source.feed.partition
        if self.loading:
            return None
        if offset < partition.log_start_offset:
            source.lose(offset, partition.log_start_offset)
            return None
        batch = self.batch
        if batch is None or not batch.base_offset <= offset < batch.next_offset:
            batch = self.batch = partition.read(offset)
            if batch is None:
                self.loading = True
                source.feed.load(offset, self)
                return None
        found = batch.offsets[batch.index_at(offset)]
        if found == offset:
            return batch
        source.removed_skipped(offset, found)
        return None

    def drop_batch(self) -> None:
        """Drop the batch in memory."""
        self.batch = None

    @property
    def waits(self) -> bool:
        """False if the result of a cold read is not needed any more (``Waiter``)."""
        return not self._source.closed

    def loaded(self, offset: int, batch: RecordBatch | None, skip_to: int | None) -> None:
        """Handle the end of a cold read (``Waiter``)."""
        self.loading = False
        if self._source.closed:
            return
        if batch is not None and len(batch) and batch.next_offset > offset:
            self.batch = batch
        elif skip_to is not None and skip_to > offset:
            self._source.lose(offset, skip_to)
        self._then()


class Sweep:
    """Groups that continue the evaluation of their selectors from the same position."""

    __slots__ = ("groups", "position")

    def __init__(self, position: int) -> None:
        self.position = position
        self.groups: dict[Group, Place] = {}


class Place:
    """The place of one group among the skipped messages.

    Args:
        position: The selector was evaluated for the skipped messages below; None: for all.

    Attributes:
        sweep: The sweep that the group takes part in, if any.
    """

    __slots__ = ("_found", "_known", "_position", "sweep")

    def __init__(self, position: int | None) -> None:
        self._position = position
        self._found: list[int] = []  # a heap: matching offsets, and some that are not skipped any more
        self._known: set[int] = set()
        self.sweep: Sweep | None = None

    @property
    def position(self) -> int | None:
        """The selector was evaluated for the skipped messages below; None: for all."""
        return self._position if self.sweep is None else self.sweep.position

    def rest(self, position: int | None) -> None:
        """Leave the sweep."""
        self.sweep = None
        self._position = position

    def go_back(self, position: int) -> None:
        """Evaluate the selector again from an earlier position, and forget what was found behind it."""
        self._position = position
        self._known = {offset for offset in self._known if offset < position}
        self._found = sorted(self._known)

    def add(self, offset: int) -> None:
        """Add a skipped message that matches the group."""
        if offset not in self._known:
            self._known.add(offset)
            heappush(self._found, offset)

    def full(self, runs: Runs) -> bool:
        """Return True if no more may be found before some of the found messages are delivered."""
        if len(self._known) < limits.SKIPPED_FOUND_MAX:
            return False
        self._known.intersection_update([offset for offset in self._known if offset in runs])
        self._found = list(self._known)
        heapify(self._found)
        return len(self._known) >= limits.SKIPPED_FOUND_MAX

    def lowest(self, runs: Runs) -> int | None:
        """Return the lowest offset found that is still skipped; None if there is none."""
        found = self._found
        while found and found[0] not in runs:
            self._known.discard(heappop(found))
        return found[0] if found else None


class Skipped:
    """The skipped messages of one source.

    Args:
        source: The cursor of the queue.
        totals: The totals over all queues.

    Attributes:
        runs: The offsets. Read-only: ``add`` and ``remove`` change them.
        scan: Reads the batches that sweeps and consumers need.
        sweeps: The sweeps by position; the next one is first.
        due: Groups that may get a message they found, or may continue to sweep; the next one is first.
    """

    __slots__ = ("_places", "_totals", "_source", "due", "runs", "scan", "sweeps")

    def __init__(self, source: SkippingCursor, totals: SkippedTotals[SkippingCursor]) -> None:
        self._source = source
        self._totals = totals
        self.runs = Runs()
        self.scan = Scan(source, lambda: None)  # the feed wakes the queue after a read
        self._places: dict[Group, Place] = {}
        self.sweeps: OrderedDict[int, Sweep] = OrderedDict()
        self.due: OrderedDict[Group, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self.runs)

    # --- messages -----------------------------------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """True if no more messages may be skipped."""
        runs, totals = self.runs.runs, self._totals
        if runs >= limits.SKIPPED_RUNS_MAX or (
            totals.runs >= limits.SKIPPED_RUNS_ALL_MAX and runs >= limits.SKIPPED_RUNS_OWN
        ):
            totals.stop(self._source, self.why_stopped)
            return True
        if totals.stopped and runs < limits.SKIPPED_RUNS_MAX * 9 // 10:
            totals.go_on(self._source, self._source.queue_name)
        return False

    @property
    def why_stopped(self) -> str:
        """A description of the limit that keeps the consumers from further messages."""
        source, runs = self._source, self.runs
        return (
            f"{source.queue_name}: the selectors of its consumers have skipped {len(runs)} messages in {runs.runs} "
            f"runs, which is the limit: messages after offset {runs.last} of {source.feed.partition.name} wait until "
            "some of these are consumed or expire"
        )

    def add(self, start: int, stop: int) -> None:
        """Add the skipped messages in [start, stop)."""
        before = self.runs.runs
        self.runs.add(start, stop)
        self._totals.count(self.runs.runs - before)

    def remove(self, start: int, stop: int) -> int:
        """Remove the messages in [start, stop), which are delivered, settled or lost. Return how many were skipped."""
        before = self.runs.runs
        removed = self.runs.remove(start, stop)
        self._totals.count(self.runs.runs - before)
        return removed

    def close(self) -> None:
        """Remove all messages: the source is gone, or has no skipped messages any more."""
        self._totals.count(-self.runs.runs)
        self.runs = Runs()
        self._totals.go_on(self._source, self._source.queue_name)

    # --- groups -------------------------------------------------------------------------------------------------------

    def place(self, group: Group) -> Place | None:
        """Return the place of a group; None if it matches none of the skipped messages."""
        return self._places.get(group)

    def joined(self, selectors: Selectors) -> None:
        """Begin with all groups of the queue."""
        for group in selectors:
            self.begin(group)

    def begin(self, group: Group) -> None:
        """Add a new group, which has all skipped messages to evaluate."""
        first = self.runs.first(0)
        if first is not None:
            self._places[group] = Place(first)
            self.due[group] = None

    def forget(self, group: Group) -> None:
        """Remove a group without consumers."""
        place = self._places.pop(group, None)
        self.due.pop(group, None)
        if place is not None and place.sweep is not None:
            del place.sweep.groups[group]

    def pending(self, group: Group | None) -> bool:
        """Return True if a skipped message may be for a consumer with credit, of ``group`` or (None) of any group."""
        if group is None:
            return bool(self.due or self.sweeps)
        place = self._places.get(group)
        return place is not None and (group in self.due or place.sweep is not None)

    def wake(self, group: Group) -> None:
        """Note that a consumer of the group may have credit again."""
        if group in self._places:
            self.due[group] = None

    def awaits(self, group: Group) -> None:
        """Serve the group first when the batch that is being read for it has come.

        Memory may have room for one batch only. If another group were served first, its batch could replace this one,
        and the two groups could do that to each other for ever.
        """
        self.due[group] = None
        self.due.move_to_end(group, last=False)

    def may_take(self, group: Group, offset: int) -> bool:
        """Return True if the group is known to match no skipped message below ``offset``."""
        place = self._places.get(group)
        if place is None:
            return True
        position, lowest = place.position, place.lowest(self.runs)
        if position is None and lowest is None:
            self.forget(group)
        return (position is None or position > offset) and (lowest is None or lowest > offset)

    def wanted(self, group: Group, offset: int) -> None:
        """Note that a skipped message matches the group."""
        place = self._places.get(group)
        if place is None:
            place = self._places[group] = Place(None)
        position = place.position
        if position is not None and offset >= position:
            return  # the group will find it there
        if position is None and place.full(self.runs):
            place.go_back(offset)
            return
        place.add(offset)
        self.due[group] = None

    def go_on(self, group: Group, place: Place) -> None:
        """Let a group with nothing found continue from its position. A group at the end is removed."""
        position = place.position
        if position is None:
            self.forget(group)
        elif place.sweep is None:
            sweep = self.sweeps.get(position)
            if sweep is None:
                sweep = self.sweeps[position] = Sweep(position)
            sweep.groups[group] = place
            place.sweep = sweep

    def leave(self, sweep: Sweep, group: Group, position: int | None) -> None:
        """Take a group out of a sweep: no credit, enough found, or (``position`` None) at the end."""
        place = sweep.groups.pop(group)
        place.rest(position)
        if position is None and place.lowest(self.runs) is None:
            self.forget(group)

    def move(self, sweep: Sweep, position: int) -> None:
        """Move a sweep to another position, behind the other sweeps, and merge it with a sweep there."""
        del self.sweeps[sweep.position]
        if not sweep.groups:
            return
        sweep.position = position
        there = self.sweeps.get(position)
        if there is None:
            self.sweeps[position] = sweep
            return
        for group, place in sweep.groups.items():
            place.sweep = there
            there.groups[group] = place
