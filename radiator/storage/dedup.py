"""The message ids that a partition remembers, to recognise repeated messages: 128 bits to an offset.

Ids are stored in two *generations*, so no id is deleted by itself: a generation that is full (``count`` ids, or its
first id older than the window) becomes the previous one, and the previous one is dropped. A look-up checks the time
too. So an id is known until it is exactly ``window_ns`` old, or until ``count`` others at least, and twice as many at
most, have come after it; the ids of one transaction are not divided, so it may be more by their number.

A generation has columns in the order of arrival, that is of rising offsets: taking back the last offsets of a partition
truncates the columns. An index with open addressing grows a few entries at each insertion, so no insertion is slow. The
ids of a transaction come as a run with an index of its own, a dict, which serves look-ups until a few entries at a time
have moved to the large index. An id takes 32 bytes in the columns and at most 18 in the index; 64 with preallocation.

This module knows ids, offsets and times. It does not know headers or files (``dedup_file``). The event loop owns it.
Invariants: offsets rise; at most two thirds of the slots of an index are used, so each search ends; a slot that points
behind the columns, or to another id, is ignored (truncation leaves such slots); an entry that is in no index is in a
run that waits for it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator
from itertools import repeat
from struct import Struct
from typing import TypeAlias

from radiator.clock import WallNs
from radiator.storage.turn import Place

Columns: TypeAlias = "tuple[array[int], array[int], array[int], array[int]]"  # id in two halves, offset, receive time

SLOTS_MIN = 16
MOVED_PER_ADD = 4  # a new index is twice as large, or more: it is complete long before it is full itself

_HALVES = Struct("<QQ")


class Ids:
    """Ids of messages that are appended together, in the order of their offsets, each id once."""

    __slots__ = ("first", "numbers", "places", "second")

    def __init__(self) -> None:
        self.first = array("Q")
        self.second = array("Q")
        self.numbers = array("Q")  # of the messages, counted from the first of the run, which need not have an id
        self.places: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self.numbers)

    def __contains__(self, identity: object) -> bool:
        return identity in self.places

    def add(self, identity: bytes, number: int) -> None:
        """Add the id of message ``number``, which must be higher than all before."""
        first, second = _HALVES.unpack(identity)
        self.places[identity] = len(self.numbers)
        self.first.append(first)
        self.second.append(second)
        self.numbers.append(number)


class Generation:
    """Ids in the order of arrival.

    Args:
        salt: A secret of the process (odd, 64 bits). It decides the slot of an id, so no client can choose ids that
            collide.
    """

    __slots__ = (
        "_limit",
        "_moved",
        "_old",
        "_runs",
        "_runs_moved",
        "_salt",
        "_slots",
        "_used",
        "first",
        "offsets",
        "receive_ns",
        "second",
    )

    def __init__(self, salt: int) -> None:
        self.first = array("Q")  # the halves of each id
        self.second = array("Q")
        self.offsets = array("Q")
        self.receive_ns = array("q")
        self._salt = salt
        self._slots = array("I", bytes(4 * SLOTS_MIN))  # number of the entry + 1, or 0
        self._used = 0
        self._old = array("I")  # the index before the last growth, until its entries have moved
        self._moved = self._limit = 0
        # Of those that are not in our index: the first entry, the one behind the last, and an index of their own.
        self._runs: deque[tuple[int, int, dict[bytes, int]]] = deque()
        self._runs_moved = 0  # entries of the first of these that are in ours

    def __len__(self) -> int:
        return len(self.offsets)

    def find(self, first: int, second: int) -> int:
        """Return the number of the latest entry with an id; -1 if there is none."""
        found, end, firsts, seconds = -1, len(self.offsets), self.first, self.second
        hashed = first * self._salt >> 32
        for slots in (self._slots, self._old):
            mask = len(slots) - 1
            place = hashed & mask
            while mask >= 0 and (entry := slots[place]):
                if found < entry - 1 < end and firsts[entry - 1] == first and seconds[entry - 1] == second:
                    found = entry - 1
                place = (place + 1) & mask
        if self._runs:
            identity = _HALVES.pack(first, second)
            for start, _, places in self._runs:
                entry = start + places.get(identity, end)
                if found < entry < end and firsts[entry] == first and seconds[entry] == second:
                    found = entry
        return found

    def add(self, first: int, second: int, offset: int, receive_ns: WallNs) -> None:
        """Add an id; ``offset`` must be higher than all before. It replaces an equal id."""
        self.first.append(first)
        self.second.append(second)
        self.offsets.append(offset)
        self.receive_ns.append(receive_ns)
        self._put(first, len(self.offsets))
        self.move(MOVED_PER_ADD)

    def extend(self, ids: Ids, offset: int, receive_ns: WallNs) -> None:
        """Add the ids of a run at once. Call ``move`` until ``is_indexing`` is False.

        Args:
            ids: The ids.
            offset: The offset of the first message of the run.
            receive_ns: When they were received.
        """
        self._runs.append((len(self.offsets), len(self.offsets) + len(ids), ids.places))
        self.first.extend(ids.first)
        self.second.extend(ids.second)
        self.offsets.extend(map(offset.__add__, ids.numbers))
        self.receive_ns.extend(repeat(receive_ns, len(ids)))

    @property
    def is_indexing(self) -> bool:
        """Whether some entries are not in the index yet."""
        return bool(self._runs)

    def move(self, entries: int) -> None:
        """Move up to ``entries`` entries to the index: while it grows, or from a run."""
        if self._moved < self._limit:
            stop = min(self._moved + entries, self._limit)
            for entry in range(self._moved + 1, stop + 1):
                self._put(self.first[entry - 1], entry)
            self._moved = stop
        elif len(self._old):
            self._old = array("I")
            while self._runs and self._runs[0][1] <= self._limit:
                self._runs.popleft()
            self._runs_moved = 0
        elif self._runs:
            self._take_up(entries)
        elif 3 * self._used > 2 * len(self._slots):
            self._grow()

    def _take_up(self, entries: int) -> None:
        start, end, _ = self._runs[0]
        if 3 * (self._used + end - start) > 2 * len(self._slots):
            self._grow()  # it takes them up as well
            return
        first = start + self._runs_moved
        for entry in range(first, min(first + entries, end)):
            self._put(self.first[entry], entry + 1)
        self._runs_moved += entries
        if first + entries >= end:
            self._runs.popleft()
            self._runs_moved = 0

    def _put(self, first: int, entry: int) -> None:
        slots = self._slots
        mask = len(slots) - 1
        place = (first * self._salt >> 32) & mask
        while slots[place]:
            place = (place + 1) & mask
        slots[place] = entry
        self._used += 1

    def _grow(self) -> None:
        size = SLOTS_MIN
        while 2 * size < 5 * len(self.offsets):  # at least 2.5 slots for each
            size *= 2
        self._old, self._slots = self._slots, array("I", bytes(4 * size))
        self._used = self._moved = 0
        self._limit = len(self.offsets)

    def load(self, columns: Columns) -> None:
        """Fill a new generation."""
        self.first, self.second, self.offsets, self.receive_ns = columns
        self._grow()
        for entry, first in enumerate(self.first, 1):
            self._put(first, entry)
        self._moved = self._limit
        self._old = array("I")

    def columns(self, low: int, high: int) -> Columns:
        """Return the entries with offsets from ``low`` up to, not including, ``high``."""
        part = slice(bisect_left(self.offsets, low), bisect_left(self.offsets, high))
        return self.first[part], self.second[part], self.offsets[part], self.receive_ns[part]

    def forget(self, offset: int) -> None:
        """Drop the ids at ``offset`` and above."""
        keep = bisect_left(self.offsets, offset)
        for column in (self.first, self.second, self.offsets, self.receive_ns):
            del column[keep:]
        self._limit = min(self._limit, keep)
        self._moved = min(self._moved, keep)
        while self._runs and self._runs[-1][1] > keep:
            start, _, places = self._runs.pop()
            if start < keep:
                self._runs.append((start, keep, places))
                break
        if not self._runs:
            self._runs_moved = 0

    def lose(self, low: int, high: int) -> None:
        """Drop the ids of the offsets from ``low`` to ``high``, both included."""
        for entry in range(bisect_left(self.offsets, low), bisect_right(self.offsets, high)):
            self.first[entry] = self.second[entry] = 0  # no hash is all zeros


class InFlightBatch:
    """A batch with ids that is not committed yet. ``synced``: its commit syncs it."""

    __slots__ = ("base_offset", "place", "synced")

    def __init__(self, base_offset: int, place: Place) -> None:
        self.base_offset = base_offset
        self.place = place
        self.synced = False


class Dedup:
    """The ids that one partition remembers."""

    __slots__ = ("_in_flight", "_salt", "added", "count", "current", "previous", "taken_back", "window_ns")

    def __init__(self, window_ns: int, count: int, salt: int) -> None:
        self.window_ns = window_ns
        self.count = count
        self.added = 0  # ids that have come in this run
        self.taken_back = 0  # how often some have gone again before their time
        self.current = Generation(salt)
        self.previous = Generation(salt)
        self._salt = salt
        self._in_flight: deque[InFlightBatch] = deque()

    def __len__(self) -> int:
        """Ids in memory, some of them maybe too old to count."""
        return len(self.previous) + len(self.current)

    def set_limits(self, window_ns: int, count: int) -> None:
        """Change the window and the number of ids to remember."""
        self.window_ns, self.count = window_ns, count

    def find(self, identity: bytes, now_ns: WallNs) -> int | None:
        """Return the offset of the message with an id that came less than the window before ``now_ns``, or None."""
        first, second = _HALVES.unpack(identity)
        for generation in (self.current, self.previous):
            number = generation.find(first, second)
            if number >= 0:
                recent = now_ns - generation.receive_ns[number] < self.window_ns
                return generation.offsets[number] if recent else None
        return None

    def add(self, identity: bytes, offset: int, receive_ns: WallNs) -> None:
        """Add the id of an appended message; ``offset`` must be higher than all before."""
        self._begin(receive_ns)
        first, second = _HALVES.unpack(identity)
        self.current.add(first, second, offset, receive_ns)
        self.added += 1

    def _begin(self, receive_ns: WallNs) -> None:
        """Begin a new generation if the current one is full."""
        current = self.current
        if len(current) and (len(current) >= self.count or receive_ns - current.receive_ns[0] >= self.window_ns):
            self.previous = current
            self.current = Generation(self._salt)

    def extend(self, ids: Ids, offset: int, receive_ns: WallNs) -> None:
        """Add the ids of messages that were appended together, the first of the run at ``offset``."""
        self._begin(receive_ns)
        self.current.extend(ids, offset, receive_ns)
        self.added += len(ids)

    def index(self, entries: int) -> bool:
        """Index up to ``entries`` ids that ``extend`` has added. Return False if none are left."""
        for generation in (self.current, self.previous):
            if generation.is_indexing:
                generation.move(entries)
                return True
        return False

    def since(self, added: int) -> Iterator[bytes]:
        """Yield the remembered ids that came after ``added`` had this value."""
        count = self.added - added
        for generation, most in ((self.current, count), (self.previous, count - len(self.current))):
            start = max(0, len(generation) - max(0, most))
            yield from map(_HALVES.pack, generation.first[start:], generation.second[start:])

    def columns(self, low: int, high: int) -> Columns:
        """Return the ids of the offsets from ``low`` up to, not including, ``high``."""
        older, newer = self.previous.columns(low, high), self.current.columns(low, high)
        for old, new in zip(older, newer, strict=True):
            old.extend(new)
        return older

    def restore(self, columns: Columns, now_ns: WallNs) -> None:
        """Restore the ids of an earlier run that are still within the limits."""
        recent = bisect_right(columns[3], now_ns - self.window_ns)
        middle = max(len(columns[3]) - self.count, recent)
        for generation, start, stop in (
            (self.previous, max(middle - self.count, recent), middle),
            (self.current, middle, len(columns[3])),
        ):
            first, second, offsets, receive_ns = (column[start:stop] for column in columns)
            generation.load((first, second, offsets, receive_ns))

    def forget(self, offset: int) -> None:
        """Drop the ids at ``offset`` and above, which were taken back."""
        self.taken_back += 1
        self.current.forget(offset)
        self.previous.forget(offset)
        while self._in_flight and self._in_flight[-1].base_offset >= offset:
            self._in_flight.pop()

    def lose(self, low: int, high: int) -> None:
        """Drop the ids of lost messages, so that they are stored if they are sent again."""
        self.taken_back += 1
        self.current.lose(low, high)
        self.previous.lose(low, high)

    # --- what is not committed yet ------------------------------------------------------------------------------------

    def appended(self, base_offset: int, place: Place, high_watermark: int) -> None:
        """Note that an id was added to the open batch with this base offset; receipts for it wait at ``place``."""
        in_flight = self._in_flight
        if in_flight and in_flight[-1].place is place:
            return
        while in_flight and in_flight[0].base_offset < high_watermark:
            in_flight.popleft()
        in_flight.append(InFlightBatch(base_offset, place))

    def to_be_synced(self, place: Place) -> None:
        """Note that the batch at ``place`` will be synced before it is committed."""
        for batch in reversed(self._in_flight):
            if batch.place is place:
                batch.synced = True
                return

    def in_flight_at(self, offset: int) -> InFlightBatch | None:
        """Return the uncommitted batch that contains ``offset``, or None."""
        for batch in reversed(self._in_flight):
            if batch.base_offset <= offset:
                return batch
        return None
