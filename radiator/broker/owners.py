"""Owners: who alone may take from a source, where not everybody may.

Two things make owners. A consumer that is *exclusive* takes everything of its queue until it leaves, then the next one
does. In a *group* each partition of a destination that has several belongs to one member, so that the order of a key is
kept; the members' shares differ by one at most, and a partition moves only where it must.

A change never lets two work on one partition: what is to move is handed out to nobody until its last owner holds
nothing of it any more, by ACK, NACK or its end (Kafka's "eager" rebalancing stops everybody; this stops one partition).
Under ``ack:auto`` what was sent is settled, so there is nothing to wait for.

Knows: members, sources. Must not know: messages, windows.
Invariants: a source has at most one owner; an owner is a member; the owner changes only while nobody else holds
anything of the source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from radiator.broker.subscription import Subscription


class Owners:
    """The owners of one queue's sources. ``wake`` is called when a source has got a new one."""

    __slots__ = ("_alone", "_members", "_owner", "_sources", "_wake", "_wanted")

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._members: dict[Subscription, None] = {}  # as they came
        self._alone: dict[Subscription, None] = {}  # those that are exclusive
        self._sources: dict[Any, None] = {}  # to be owned by one member each
        self._wanted: dict[Any, Subscription] = {}
        self._owner: dict[Any, Subscription | None] = {}

    def add(self, source: Any) -> None:
        """This source is owned from now on."""
        self._sources[source] = None
        self._share()

    def remove(self, source: Any) -> None:
        """The queue reads it no more."""
        self._sources.pop(source, None)
        self._owner.pop(source, None)
        self._share()

    def replaced(self, old: Any, new: Any) -> None:
        """Another cursor over the same log: it is owned as the old one was, once nobody holds anything of that."""
        if old in self._sources:
            self._sources = {new if source is old else source: None for source in self._sources}
        if old in self._wanted:
            self._wanted[new] = self._wanted.pop(old)
        self._owner.pop(old, None)

    def joined(self, member: Subscription, alone: bool) -> None:
        """One more consumer; ``alone``: it wants to be the only one."""
        self._members[member] = None
        if alone:
            self._alone[member] = None
        self._share()

    def left(self, member: Subscription) -> None:
        """A consumer is gone; what it held is back already."""
        self._members.pop(member, None)
        self._alone.pop(member, None)
        for source, owner in self._owner.items():
            if owner is member:
                self._owner[source] = None
        self._share()

    @property
    def active(self) -> Subscription | None:
        """The one exclusive consumer that has its turn."""
        return next(iter(self._alone), None)

    def owner(self, source: Any) -> Subscription | None:
        """Who has it now; None where it is nobody's, or everybody's."""
        return self._owner.get(source)

    def takers(self, source: Any, consumers: Iterable[Subscription]) -> Iterable[Subscription]:
        """Who may be handed something from this source now."""
        wanted = self.active or self._wanted.get(source)
        if wanted is None:
            self._owner.pop(source, None)
            return () if source in self._sources else consumers
        if self._owner.get(source) is not wanted:
            if any(holds(each, source) for each in consumers if each is not wanted):
                return ()
            self._owner[source] = wanted
            self._wake()
        return (wanted,)

    def _share(self) -> None:
        """Give each member its share of the sources, moving as few as can be."""
        members = self._members
        if not members:
            self._wanted.clear()
            return
        least, more = divmod(len(self._sources), len(members))
        shares: dict[Subscription, list[Any]] = {member: [] for member in members}
        free = []
        for source in self._sources:
            owner = self._wanted.get(source)
            if owner in shares:
                shares[owner].append(source)
            else:
                free.append(source)
        for share in sorted(shares.values(), key=len, reverse=True):  # those with most keep the shares that are larger
            keep = least + (more > 0 and len(share) > least)
            more -= keep > least
            free += share[keep:]
            del share[keep:]
        for source in free:
            min(shares.values(), key=len).append(source)
        self._wanted = {source: member for member, share in shares.items() for source in share}


def holds(consumer: Subscription, source: Any) -> bool:
    """True if a message of this source is with this consumer, unacknowledged."""
    return any(held is source for held, _ in consumer.in_flight.values())
