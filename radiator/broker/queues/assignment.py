"""Partition assignment: which single consumer may take messages from a source.

Sources are assigned in two cases. An *exclusive* consumer takes all messages of its queue until it leaves; then the
next exclusive consumer does. It starts when the other consumers hold no message of the queue. In a consumer *group*,
each partition of a destination with several partitions is assigned to one member, so that the order of a key is
preserved. The numbers of partitions per member differ by one at most, and a change moves as few partitions as possible.

Two consumers never work on one partition at the same time. A partition that moves delivers nothing until its previous
consumer holds no message of it, after ACK, NACK or its end. (Kafka's eager rebalancing stops all consumers. This stops
one partition.) Under ``ack:auto`` a consumer holds messages that were not written to its socket; they return if it
dies. Held messages are not counted. One that was found is a *proof* until it is settled or returned.

The module knows members and sources, but not messages or windows.
Invariants: a source has at most one owner. An owner is a member. The owner changes only while no other consumer holds a
message of the source.
"""

from __future__ import annotations

from heapq import heapify, heapreplace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from radiator.broker.queues.consumer import Consumer, UnwrittenRun


class Proof:
    """Proof that a consumer holds a message of a source: a delivery in flight, or an unwritten run (``ack:auto``)."""

    __slots__ = ("_consumer", "_number", "_run", "_source")

    def __init__(self, consumer: Consumer, source: Any, number: str, run: UnwrittenRun | None) -> None:
        self._consumer = consumer
        self._source = source
        self._number = number
        self._run = run

    @property
    def consumer(self) -> Consumer:
        """The consumer that holds the message."""
        return self._consumer

    def is_valid(self, wanted: Consumer) -> bool:
        """Return True if the message is still held and keeps the source from the consumer ``wanted``."""
        consumer = self._consumer
        if self._run is not None:
            session = consumer.session
            unwritten = not session.closed and self._run.ends_at > session.outbox.written_total
            return unwritten and session is not wanted.session  # one socket preserves the order
        return consumer is not wanted and consumer.in_flight.get(self._number, (None,))[0] is self._source


class Assignment:
    """The assignment of one queue's sources to its consumers.

    Args:
        wake: Called when a source has a new owner.
    """

    __slots__ = (
        "_exclusive",
        "_unassigned",
        "_owner",
        "_departing",
        "_proofs",
        "_assigned",
        "_unbalanced",
        "_wake",
        "_member_of",
    )

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._assigned: dict[Consumer, dict[Any, None]] = {}  # by member, in order of joining: its assigned sources
        self._exclusive: dict[Consumer, None] = {}  # exclusive consumers in order of joining
        self._unassigned: dict[Any, None] = {}  # sources to assign
        self._member_of: dict[Any, Consumer] = {}  # by source: the member that it is assigned to
        self._unbalanced = False  # lazily rebalanced, because thousands may join at once
        self._owner: dict[Any, Consumer | None] = {}
        self._proofs: dict[Any, Proof] = {}  # why a source cannot move yet, as far as known
        self._departing: Proof | None = None  # an unwritten run of an exclusive consumer that left

    def add(self, source: Any) -> None:
        """Assign a source to one member from now on."""
        self._unassigned[source] = None
        self._unbalanced = True

    def remove(self, source: Any) -> None:
        """Remove a source that the queue does not read any more."""
        self._unassigned.pop(source, None)
        if source in self._member_of:
            del self._assigned[self._member_of.pop(source)][source]
            self._unbalanced = True
        self._proofs.pop(source, None)
        self._owner.pop(source, None)

    def replaced(self, old: Any, new: Any) -> None:
        """Replace a source by another cursor over the same log, with the same member."""
        if old in self._unassigned:
            del self._unassigned[old]
            self._unassigned[new] = None
        elif old in self._member_of:
            member = self._member_of[new] = self._member_of.pop(old)
            del self._assigned[member][old]
            self._assigned[member][new] = None
        self._proofs.pop(old, None)
        self._owner.pop(old, None)

    def joined(self, member: Consumer, alone: bool) -> None:
        """Add a consumer; ``alone`` makes it exclusive."""
        self._assigned[member] = {}
        if alone:
            self._exclusive[member] = None
        self._unbalanced = True

    def left(self, member: Consumer) -> None:
        """Remove a consumer. Its messages in flight return to the queue; unwritten ones may still be held."""
        for source in self._assigned.pop(member, ()):
            del self._member_of[source]
            self._unassigned[source] = None
        whole = self._exclusive.pop(member, self) is None
        self._unbalanced = True
        for source, owner in self._owner.items():
            if owner is member:
                self._owner[source] = None
                if member.ack == "auto" and (proof := holding(member, source, whole)) is not None:
                    self._proofs[source] = proof
                    self._departing = proof if whole else self._departing

    @property
    def active(self) -> Consumer | None:
        """The exclusive consumer that takes all messages now, if any."""
        return next(iter(self._exclusive), None)

    def takers(self, source: Any, consumers: Collection[Consumer]) -> Collection[Consumer]:
        """Return the consumers that may take from a source now."""
        if self._unbalanced:
            self._rebalance()
        wanted = self.active or self._member_of.get(source)
        if wanted is None:
            self._owner.pop(source, None)
            return () if source in self._unassigned else consumers
        if self._owner.get(source) is not wanted:
            if self._held(source, wanted, consumers):
                return ()
            self._owner[source] = wanted
            self._wake()
        return (wanted,)

    def holder(self, source: Any) -> Consumer | None:
        """Return the consumer that must acknowledge or return its messages before the source has another owner.

        None if no consumer is known to hold a message.
        """
        proof = self._proofs.get(source)
        return None if proof is None else proof.consumer

    def _held(self, source: Any, wanted: Consumer, consumers: Iterable[Consumer]) -> bool:
        """Return True if another consumer than ``wanted`` holds a message of the source."""
        if any(proof is not None and proof.is_valid(wanted) for proof in (self._proofs.get(source), self._departing)):
            return True
        self._proofs.pop(source, None)
        self._departing = None
        whole = wanted in self._exclusive
        for each in consumers:
            found = None if each is wanted else holding(each, source, whole)
            if found is not None and found.is_valid(wanted):
                self._proofs[source] = found
                return True
        return False

    def _rebalance(self) -> None:
        """Rebalance the sources among the members with the fewest moves."""
        self._unbalanced = False
        shares, free, wanted = self._assigned, self._unassigned, self._member_of
        if not shares:
            return
        least, more = divmod(len(free) + len(wanted), len(shares))
        for share in sorted(shares.values(), key=len, reverse=True):  # the largest shares keep one source more
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
    """Return a proof that a consumer holds a message of a source, or of its ``whole`` queue; None if it does not.

    The latest delivery is preferred, because it is usually acknowledged last.
    """
    for number in reversed(consumer.in_flight):
        found = consumer.in_flight[number][0]
        if found is source or (whole and found is not None and found.queue is source.queue):
            return Proof(consumer, found, number, None)
    if consumer.ack == "auto":
        for run in reversed(consumer.session.outbox.auto_acks):
            held: Any = run.source
            if held is source or (whole and held.queue is source.queue):
                return Proof(consumer, held, "", run)
    return None
