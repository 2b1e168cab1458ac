"""The frames of all clients of one durable subscription or consumer group, and the checks of its promises.

A message is identified by its partition and offset, since everything is under ``fsync: always``.

    settled is settled     a message whose ACK was receipted is not delivered again, to any client
    one consumer           no client is sent a message that another client has in flight
    one user               after a takeover the former client gets nothing more
    begins anew            a deleted subscription leaves nothing behind
    order                  in a partition that is assigned to one member at a time, messages without ``redelivered``
                           come in order, whichever member gets them; no member gets a message while another has
                           one in flight; and a member with a window of one gets each message after all before it
                           were answered
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from radiator.stomp.frames import Frame
from tests.simulation.checkers import Checkers, Violation

Place = tuple[str, int]


def place_of(frame: Frame) -> Place:
    return frame.headers["partition"], int(frame.headers["offset"])


class Ledger:
    """The ledger of one subscription. ``owned``: the partitions that are assigned to one member at a time."""

    def __init__(self, name: str, checkers: Checkers, owned: Callable[[str], bool] = lambda partition: False) -> None:
        self.name = name
        self.selector = ""
        self.checkers = checkers
        self.owned = owned
        self.settled: set[Place] = set()
        self.maybe_settled: set[Place] = set()
        self.before: set[Place] = set()  # answered before the name was deleted, if it was
        self.lives = 0  # it has been deleted so often, or is about to be
        self.now = 0  # subscriptions and their receipts, counted
        self.users: list[Any] = []
        self.holders: dict[Place, Any] = {}
        self.assignment: dict[str, Any] = {}  # who had something of a partition last
        self.made = False  # a SUBSCRIBE was receipted: until then a full disk may end it, and it begins anew
        self.last: dict[str, int] = {}
        self.partition_of_key: dict[str, str] = {}

    def taken(self, who: Any, frame: Frame) -> None:
        """Check a message that has come to one of them, over a connection that the broker has not closed."""
        place = place_of(frame)
        if place in self.settled:
            raise Violation(f"{self.name}: {place} was settled, and came back to {who}")
        if "gap" in frame.headers:
            raise Violation(f"{self.name}: {who} was told of a gap at {place}")
        holder = self.holders.get(place)
        if holder is not None and holder is not who and holder.present:
            raise Violation(f"{self.name}: {place} is held by {holder}, and came to {who}")
        if self.owned(place[0]):
            self._owned(who, frame, place)
        self.holders[place] = who
        self.checkers.counts[f"for {self.name}"] += 1

    def _owned(self, who: Any, frame: Frame, place: Place) -> None:
        partition, offset = place
        for other, holder in self.holders.items():
            if other[0] == partition and holder is not who and holder.present:
                raise Violation(f"{self.name}: {place} came to {who}, while {holder} holds {other}")
        if "redelivered" not in frame.headers:
            if self.made and self.last.get(partition, -1) >= offset:
                raise Violation(f"{self.name}: {place} came to {who} behind {self.last[partition]}")
            self.last[partition] = offset
        if who.window == 1:
            passed = {(partition, each) for each in range(offset)} - self.maybe_settled
            if passed:
                raise Violation(f"{self.name}: {place} came to {who} before {min(passed)}")
        if self.assignment.setdefault(partition, who) is not who:
            self.assignment[partition] = who
            self.checkers.counts["moved"] += 1
        key = self.checkers.key_of.get(frame.body, "")
        if key and self.partition_of_key.setdefault(key, partition) != partition:
            raise Violation(f"{self.name}: {key} was in {self.partition_of_key[key]}, and is in {partition}")

    def answered(self, who: Any, places: Iterable[Place], settles: bool) -> None:
        for place in places:
            if self.holders.get(place) is who:
                del self.holders[place]
            if settles:
                self.maybe_settled.add(place)

    def receipted(self, places: Iterable[Place], life: int = 0) -> None:
        """Note the receipt for the ACK of these messages, which was sent in that life of the subscription."""
        if life == self.lives:
            self.settled.update(places)

    def tick(self) -> int:
        self.now += 1
        return self.now

    def joined(self) -> None:
        """Note that a SUBSCRIBE was receipted."""
        if not self.made:
            self.made = True
            self.last.clear()

    def deleting(self) -> int:
        """Note that a deletion was requested and may have happened, and return the life that begins then."""
        self.before |= self.settled | self.maybe_settled
        self.settled.clear()
        self.maybe_settled.clear()
        self.lives += 1
        return self.lives

    def deleted(self, life: int) -> None:
        """Note that the deletion has happened."""
        self.checkers.counts["deleted"] += 1
        if life == self.lives:
            self.before.clear()

    def left(self, who: Any) -> None:
        """Note that the client has nothing in flight any more."""
        self.holders = {place: holder for place, holder in self.holders.items() if holder is not who}

    def died(self) -> None:
        """Note the broker's death. The latest deliveries may be forgotten."""
        self.holders.clear()
        self.last.clear()

    def at_the_end(self, drained: list[Frame], stored: set[Place]) -> None:
        """Check that the ``stored`` messages came. ``drained``: those that came in the end."""
        places = list(map(place_of, drained))
        if len(places) != len(set(places)):
            raise Violation(f"{self.name}: a message came twice in the end")
        back = self.settled.intersection(places)
        if back:
            raise Violation(f"{self.name}: settled, and delivered in the end: {sorted(back)[:3]}")
        self.settled.update(places)
        missing = stored - self.settled - self.maybe_settled - self.before
        if missing:
            raise Violation(f"{self.name}: never settled, and not delivered in the end: {sorted(missing)[:3]}")
