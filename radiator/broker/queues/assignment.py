"""Owners: who alone may take from a source, where not everybody may.

Two things make owners. A consumer that is *exclusive* takes everything of its queue until it leaves, then the next one
does; it begins when the others hold nothing of the queue, in whichever of its logs. In a *group* each partition of a
destination that has several belongs to one member, so that the order of a key is kept; the members' shares differ by
one at most, and a partition moves only where it must.

A change never lets two work on one partition: what is to move is handed out to nobody until its last owner holds
nothing of it any more, by ACK, NACK or its end (Kafka's "eager" rebalancing stops everybody; this stops one partition).
Under ``ack:auto`` it holds what was not written to its socket yet: if it dies, that comes back. Whether somebody holds
something is not counted with each message; one that was found is *proof* for as long as it is there.

Knows: members, sources. Must not know: messages, windows.
Invariants: a source has at most one owner; an owner is a member; the owner changes only while nobody else holds
anything of the source.
"""

from __future__ import annotations

from heapq import heapify, heapreplace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from radiator.broker.queues.consumer import Consumer, UnwrittenRun


class Proof:
    """That a consumer holds something of a source: a delivery in flight, or (``ack:auto``) a run not written yet."""

    __slots__ = ("_consumer", "_number", "_run", "_source")

    def __init__(self, consumer: Consumer, source: Any, number: str, run: UnwrittenRun | None) -> None:
        self._consumer = consumer
        self._source = source
        self._number = number
        self._run = run

    @property
    def consumer(self) -> Consumer:
        """The consumer that holds it."""
        return self._consumer

    def stands(self, wanted: Consumer) -> bool:
        """Whether it does still, and that keeps the source from the ``wanted`` consumer."""
        consumer = self._consumer
        if self._run is not None:
            session = consumer.session  # what leaves through the same socket stays in order
            return not session.closed and session is not wanted.session and self._run.ends_at > session.written_total
        return consumer is not wanted and consumer.in_flight.get(self._number, (None,))[0] is self._source


class Assignment:
    """The owners of one queue's sources. ``wake`` is called when a source has got a new one."""

    __slots__ = ("_alone", "_free", "_owner", "_parting", "_proofs", "_shares", "_uneven", "_wake", "_wanted")

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._shares: dict[Consumer, dict[Any, None]] = {}  # what each member, as they came, is to own
        self._alone: dict[Consumer, None] = {}  # those that are exclusive
        self._free: dict[Any, None] = {}  # to be owned by one member each, and in no share yet
        self._wanted: dict[Any, Consumer] = {}  # in whose share each one is
        self._uneven = False  # the shares are made even when somebody asks: thousands may come at once
        self._owner: dict[Any, Consumer | None] = {}
        self._proofs: dict[Any, Proof] = {}  # why a source cannot move yet, as far as it was asked
        self._parting: Proof | None = None  # what an exclusive consumer that left was not sent yet

    def add(self, source: Any) -> None:
        """This source is owned from now on."""
        self._free[source] = None
        self._uneven = True

    def remove(self, source: Any) -> None:
        """The queue reads it no more."""
        self._free.pop(source, None)
        if source in self._wanted:
            del self._shares[self._wanted.pop(source)][source]
            self._uneven = True
        self._proofs.pop(source, None)
        self._owner.pop(source, None)

    def replaced(self, old: Any, new: Any) -> None:
        """Another cursor over the same log: it is owned as the old one was, once nobody holds anything of that."""
        if old in self._free:
            del self._free[old]
            self._free[new] = None
        elif old in self._wanted:
            member = self._wanted[new] = self._wanted.pop(old)
            del self._shares[member][old]
            self._shares[member][new] = None
        self._proofs.pop(old, None)
        self._owner.pop(old, None)

    def joined(self, member: Consumer, alone: bool) -> None:
        """One more consumer; ``alone``: it wants to be the only one."""
        self._shares[member] = {}
        if alone:
            self._alone[member] = None
        self._uneven = True

    def left(self, member: Consumer) -> None:
        """A consumer is gone; what it held is on its way back, but what is not written yet may still be."""
        for source in self._shares.pop(member, ()):
            del self._wanted[source]
            self._free[source] = None
        whole = self._alone.pop(member, self) is None
        self._uneven = True
        for source, owner in self._owner.items():
            if owner is member:
                self._owner[source] = None
                if member.ack == "auto" and (proof := holding(member, source, whole)) is not None:
                    self._proofs[source] = proof
                    self._parting = proof if whole else self._parting

    @property
    def active(self) -> Consumer | None:
        """The one exclusive consumer that has its turn."""
        return next(iter(self._alone), None)

    def takers(self, source: Any, consumers: Collection[Consumer]) -> Collection[Consumer]:
        """Who may be handed something from this source now."""
        if self._uneven:
            self._share()
        wanted = self.active or self._wanted.get(source)
        if wanted is None:
            self._owner.pop(source, None)
            return () if source in self._free else consumers
        if self._owner.get(source) is not wanted:
            if self._held(source, wanted, consumers):
                return ()
            self._owner[source] = wanted
            self._wake()
        return (wanted,)

    def holder(self, source: Any) -> Consumer | None:
        """The consumer that has to acknowledge or give back what it holds before this source has another owner; None:
        no consumer is known to hold anything of it."""
        proof = self._proofs.get(source)
        return None if proof is None else proof.consumer

    def _held(self, source: Any, wanted: Consumer, consumers: Iterable[Consumer]) -> bool:
        """Whether somebody else than who is ``wanted`` holds something of it."""
        if any(proof is not None and proof.stands(wanted) for proof in (self._proofs.get(source), self._parting)):
            return True
        self._proofs.pop(source, None)
        self._parting = None
        whole = wanted in self._alone
        for each in consumers:
            found = None if each is wanted else holding(each, source, whole)
            if found is not None and found.stands(wanted):
                self._proofs[source] = found
                return True
        return False

    def _share(self) -> None:
        """Give each member its share of the sources, moving as few as can be."""
        self._uneven = False
        shares, free, wanted = self._shares, self._free, self._wanted
        if not shares:
            return
        least, more = divmod(len(free) + len(wanted), len(shares))
        for share in sorted(shares.values(), key=len, reverse=True):  # those with most keep the shares that are larger
            keep = least + (more > 0 and len(share) > least)
            more -= keep > least
            for _ in range(len(share) - keep):
                source, _ = share.popitem()
                del wanted[source]
                free[source] = None
        smallest = [(len(share), number, member) for number, (member, share) in enumerate(shares.items())]
        heapify(smallest)
        for source in free:
            size, number, member = smallest[0]
            heapreplace(smallest, (size + 1, number, member))
            shares[member][source] = None
            wanted[source] = member
        free.clear()


def holding(consumer: Consumer, source: Any, whole: bool = False) -> Proof | None:
    """Proof that a message of this source, or of its ``whole`` queue, is with this consumer, if one is: the latest, as
    that is mostly the last to be acknowledged."""
    for number in reversed(consumer.in_flight):
        found = consumer.in_flight[number][0]
        if found is source or (whole and found is not None and found.queue is source.queue):
            return Proof(consumer, found, number, None)
    if consumer.ack == "auto":
        for run in reversed(consumer.session.auto_acks):
            held: Any = run.source
            if held is source or (whole and held.queue is source.queue):
                return Proof(consumer, held, "", run)
    return None
