"""Messages of one source that were skipped: no consumer that could be sent one wanted them.

A queue hands its messages out in order. Where consumers have selectors, a message that none of them wants, or whose
consumers have no credit, must not hold up the others: it is *skipped*. The offsets of skipped messages are stored as
runs; who wants which of them is not remembered but for a few. Instead each group of consumers with the same selector
has a *place*: how far among the skipped messages its selector was evaluated, and the next few that it wants. What lies
behind is read from the log again, in bounded steps (a *sweep*; groups at the same position share it). So any number
of messages may be skipped, no consumer starves behind them, and a selector is evaluated about once for each message.

    no place                  evaluated up to the front (``next_offset`` of the source), and wants none of it
    place, no position        evaluated up to the front, and wants what it has ``found``
    place with a position     evaluated up to there; goes on when it has none left that it found, and credit

Knows: offsets, how far each group is. Must not know: what a selector says, who has credit.
Invariants: what is here is unsettled, in nobody's hands and not in ``returned``; of the skipped messages below a
group's position, those that it wants are in its ``found``, which has none from the position on. Memory: 16 bytes and
two numbers for each run; a source has ``limits.SKIPPED_RUNS_MAX`` runs and all sources ``limits.SKIPPED_RUNS_ALL_MAX``
(then the source looks no further, ``SkippedTotals``). A group has found ``limits.SKIPPED_FOUND_MAX`` offsets, and those
that came back from consumers.
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
    """The cursor of a queue over one partition, as far as its skipped messages need it."""

    @property
    def closed(self) -> bool:
        """True once nothing reads at the cursor any more."""

    @property
    def feed(self) -> Feed:
        """The readers of the partition."""

    @property
    def queue_name(self) -> str:
        """The name of the queue, for people."""

    def lose(self, start: int, stop: int) -> None:
        """Count messages that the log has lost."""

    def removed_skipped(self, start: int, stop: int) -> None:
        """Settle skipped messages that were removed from the log on purpose."""


class Scan:
    """A reader of one source's log beside the fresh messages: the batch at its position, also from the disk.

    Args:
        source: Whose log.
        then: Called when a batch that had to be read from the disk is there.
    """

    __slots__ = ("_source", "_then", "batch", "loading")

    def __init__(self, source: SkippingCursor, then: Callable[[], None]) -> None:
        self._source = source
        self._then = then
        self.batch: RecordBatch | None = None
        self.loading = False

    def batch_at(self, offset: int) -> RecordBatch | None:
        """Return the batch that has this offset; None while it is read (``loading``), or if the message is gone."""
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
        """Let go of the batch in memory."""
        self.batch = None

    @property
    def waits(self) -> bool:
        """False if the answer of a cold read is not needed any more (``Waiter``)."""
        return not self._source.closed

    def loaded(self, offset: int, batch: RecordBatch | None, skip_to: int | None) -> None:
        """A cold read has ended (``Waiter``)."""
        self.loading = False
        if self._source.closed:
            return
        if batch is not None and len(batch) and batch.next_offset > offset:
            self.batch = batch
        elif skip_to is not None and skip_to > offset:
            self._source.lose(offset, skip_to)
        self._then()


class Sweep:
    """Groups that go on evaluating their selectors from the same position."""

    __slots__ = ("groups", "position")

    def __init__(self, position: int) -> None:
        self.position = position
        self.groups: dict[Group, Place] = {}


class Place:
    """How far one group is among the skipped messages. ``sweep`` is the one that it takes part in now."""

    __slots__ = ("_found", "_known", "_position", "sweep")

    def __init__(self, position: int | None) -> None:
        self._position = position
        self._found: list[int] = []  # a heap: what is wanted, and some that are skipped no more
        self._known: set[int] = set()
        self.sweep: Sweep | None = None

    @property
    def position(self) -> int | None:
        """The selector was evaluated for the skipped messages below; None: for all."""
        return self._position if self.sweep is None else self.sweep.position

    def rest(self, position: int | None) -> None:
        """Take part in no sweep from now on."""
        self.sweep = None
        self._position = position

    def go_back(self, position: int) -> None:
        """Evaluate the selector again from an earlier position on: what was found behind it is found again."""
        self._position = position
        self._known = {offset for offset in self._known if offset < position}
        self._found = sorted(self._known)

    def add(self, offset: int) -> None:
        """This skipped message is wanted."""
        if offset not in self._known:
            self._known.add(offset)
            heappush(self._found, offset)

    def full(self, runs: Runs) -> bool:
        """True if no more may be found before some of these are handed out."""
        if len(self._known) < limits.SKIPPED_FOUND_MAX:
            return False
        self._known.intersection_update([offset for offset in self._known if offset in runs])
        self._found = list(self._known)
        heapify(self._found)
        return len(self._known) >= limits.SKIPPED_FOUND_MAX

    def lowest(self, runs: Runs) -> int | None:
        """The lowest of these; None if there is none."""
        found = self._found
        while found and found[0] not in runs:
            self._known.discard(heappop(found))
        return found[0] if found else None


class Skipped:
    """See the top of the file.

    Attributes:
        runs: The offsets. To read; ``add`` and ``remove`` change them.
        scan: Reads what the sweeps and the consumers need.
        sweeps: By position, the one whose turn is next first.
        due: Groups that may be handed something that they found, or may go on sweeping, the one that is next first.
    """

    __slots__ = ("_places", "_totals", "_source", "due", "runs", "scan", "sweeps")

    def __init__(self, source: SkippingCursor, totals: SkippedTotals[SkippingCursor]) -> None:
        self._source = source
        self._totals = totals
        self.runs = Runs()
        self.scan = Scan(source, lambda: None)  # whoever loads wakes the queue
        self._places: dict[Group, Place] = {}
        self.sweeps: OrderedDict[int, Sweep] = OrderedDict()
        self.due: OrderedDict[Group, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self.runs)

    # --- messages -----------------------------------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """True if no more may be skipped."""
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
        """What keeps the consumers from the messages behind those that were skipped, in words."""
        source, runs = self._source, self.runs
        return (
            f"{source.queue_name}: the selectors of its consumers have skipped {len(runs)} messages in {runs.runs} "
            f"runs, and no more can be remembered: what lies behind offset {runs.last} of {source.feed.partition.name} "
            "waits until some of these are consumed or expire"
        )

    def add(self, start: int, stop: int) -> None:
        """These messages are skipped."""
        before = self.runs.runs
        self.runs.add(start, stop)
        self._totals.count(self.runs.runs - before)

    def remove(self, start: int, stop: int) -> int:
        """These are handed out, settled or lost. Returns how many of them were here."""
        before = self.runs.runs
        removed = self.runs.remove(start, stop)
        self._totals.count(self.runs.runs - before)
        return removed

    def close(self) -> None:
        """The source is gone, or has nothing skipped any more."""
        self._totals.count(-self.runs.runs)
        self.runs = Runs()
        self._totals.go_on(self._source, self._source.queue_name)

    # --- groups -------------------------------------------------------------------------------------------------------

    def place(self, group: Group) -> Place | None:
        """The place of a group; None if it wants none of what was skipped."""
        return self._places.get(group)

    def joined(self, selectors: Selectors) -> None:
        """These are the groups of the queue from now on."""
        for group in selectors:
            self.begin(group)

    def begin(self, group: Group) -> None:
        """A group is new: it has everything to evaluate."""
        first = self.runs.first(0)
        if first is not None:
            self._places[group] = Place(first)
            self.due[group] = None

    def forget(self, group: Group) -> None:
        """The last consumer of a group is gone."""
        place = self._places.pop(group, None)
        self.due.pop(group, None)
        if place is not None and place.sweep is not None:
            del place.sweep.groups[group]

    def pending(self, group: Group | None) -> bool:
        """True if something that was skipped may be for a consumer with credit: of this group; None: of any group."""
        if group is None:
            return bool(self.due or self.sweeps)
        place = self._places.get(group)
        return place is not None and (group in self.due or place.sweep is not None)

    def wake(self, group: Group) -> None:
        """A consumer of the group may have credit again."""
        if group in self._places:
            self.due[group] = None

    def awaits(self, group: Group) -> None:
        """A batch is being read for the group, which is asked first when it has come.

        Memory may have room for one batch only. If another group were asked first, it might have its own batch read in
        the place of this one, and the two would do that to each other for ever."""
        self.due[group] = None
        self.due.move_to_end(group, last=False)

    def may_take(self, group: Group, offset: int) -> bool:
        """True if the group wants nothing below ``offset`` that was skipped, as far as is known, and that is all."""
        place = self._places.get(group)
        if place is None:
            return True
        position, lowest = place.position, place.lowest(self.runs)
        if position is None and lowest is None:
            self.forget(group)
        return (position is None or position > offset) and (lowest is None or lowest > offset)

    def wanted(self, group: Group, offset: int) -> None:
        """This message was skipped, and the group wants it."""
        place = self._places.get(group)
        if place is None:
            place = self._places[group] = Place(None)
        position = place.position
        if position is not None and offset >= position:
            return  # it is found there
        if position is None and place.full(self.runs):
            place.go_back(offset)
            return
        place.add(offset)
        self.due[group] = None

    def go_on(self, group: Group, place: Place) -> None:
        """Let a group that has none left of what it found go on from its position; it is done if it is at the front."""
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
        """Let a group rest: it has no credit, has found enough, or (None) has come to the front."""
        place = sweep.groups.pop(group)
        place.rest(position)
        if position is None and place.lowest(self.runs) is None:
            self.forget(group)

    def move(self, sweep: Sweep, position: int) -> None:
        """A sweep has come to another position; the others have their turn first. One that is there goes along."""
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
