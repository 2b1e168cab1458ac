"""Checks of the promises, from the frames of clients and from the log after each start.

    receipted is stored         a receipt under ``fsync: always`` survives everything, another one a killed broker
    offsets are dense, stable   an offset that a client has seen means the same message for ever
    order                       a partition has the messages of one producer in the order in which it sent them
    transactions                all or nothing of a transaction is stored, messages in any number of partitions and
                                acks; and nothing of it without the messages that it repeats
    windows                     no client has more messages in flight than it asked for
    one consumer                no client is sent a message that another client has in flight
    compaction                  the last message of each key is stored, and every message without a key
    stored once                 no message is in the log twice, however often it was sent with one id
    settled is settled          a message whose ACK was receipted is not delivered again
    unacked is redelivered      an unsettled message is delivered in the end
    in time                     no message is delivered before its time or after its expiry; all others are delivered

Messages are identified by their bodies. One exception: a dead letter under ``fsync: always`` may survive a power
failure that takes its original, in a queue under a weaker rule. Its producer has no receipt and sends that body
again. Then there are two messages, and the dead letter is identified by its place (``outlived``).

A *strong* partition is under ``fsync: always``. A power failure may take the end of the others. Then the checkers drop
what was promised and seen of that end. Messages in memory end with the process.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from radiator.routing.rules import DELIVERIES_PARTITION
from radiator.stomp.frames import Frame
from tests.simulation.delivery_times import Moments
from tests.storage.driving import read_all

COMPACTED = ("/topic/state",)
CAPPED, DEAD = ("/queue/capped", "/queue/capped-weak"), "/queue/dead"
RECLAIMED = ("/queue/strong", "/queue/done")


class Violation(AssertionError):
    """A promise was broken."""


def stored(partition: Any) -> dict[int, bytes]:
    """Return the messages of a log by offset: those in its files, and those that are decided and wait for room."""
    found: dict[int, bytes] = read_all(partition, memory=False)
    for batch in getattr(partition, "postponed", ()):
        found.update(zip(batch.offsets, batch.bodies, strict=True))
    return found


class Transaction:
    """The messages that one COMMIT sends to files, and those that it acknowledges; of the former those that may be
    stored already (``repeated``), and that certainly are (``known``), written or synced."""

    def __init__(
        self,
        name: str,
        sent: set[bytes],
        acked: set[bytes],
        repeated: set[bytes] = frozenset(),
        known: set[bytes] = frozenset(),
    ) -> None:
        self.name = name
        self.sent = sent
        self.acked = acked
        self.repeated = repeated
        self.known = known
        self.void = False  # something that it acknowledged has come to a client again

    def __repr__(self) -> str:
        return f"transaction {self.name}"


class Checkers:
    def __init__(self, strong: Any) -> None:
        self.strong = strong  # partition name -> bool
        self.partition_of: dict[bytes, str] = {}  # where a message was sent to, for those with one partition
        self.promised: dict[str, dict[int, bytes]] = defaultdict(dict)  # partition -> offset -> body
        self.kept: set[bytes] = set()  # must be in the log, at whatever offset
        self.synced: set[bytes] = set()  # in transactions over several files
        self.seen: dict[str, dict[int, bytes]] = defaultdict(dict)
        self.settled: set[bytes] = set()
        self.maybe_settled: set[bytes] = set()
        self.holders: dict[bytes, Any] = {}
        self.key_of: dict[bytes, str] = {}
        self.sent_again: set[bytes] = set()  # with the same identity
        self.transactions: dict[str, Transaction] = {}
        self.acked_in: dict[bytes, list[Transaction]] = defaultdict(list)
        self.moments = Moments()
        self.counts: Counter[str] = Counter()  # of what would otherwise not be seen to happen
        self.headers_of: dict[bytes, dict[str, str]] = {}  # those that selectors ask for
        self.outlived: dict[int, bytes] = {}  # offset of a dead letter -> what it is known by
        self.settled_before: set[bytes] = set()  # the power cut, where that may have taken the message
        self.crashed = False
        self.present: set[bytes] = set()  # after the last start

    def known_by(self, partition: str, offset: int, body: bytes) -> bytes:
        """Return the identity of this message."""
        return self.outlived.get(offset, body) if partition == DEAD else body

    def of(self, frame: Frame) -> bytes:
        """Return the identity of a delivered message."""
        return self.known_by(frame.headers["partition"], int(frame.headers["offset"]), frame.body)

    # --- what clients are told ----------------------------------------------------------------------------------------

    def receipted(self, partition: str, offset: int, body: bytes) -> None:
        self._same(partition, offset, body, "receipted")
        self.promised[partition][offset] = body

    def durable(self, body: bytes) -> None:
        """Note that it was receipted as synced, whatever its partition's rule is."""
        self.kept.add(body)
        self.synced.add(body)
        self.counts["durable"] += 1

    def begun(
        self, name: str, sent: list[bytes], acked: list[bytes] | None = None, repeated: list[bytes] | None = None
    ) -> None:
        """Note that a COMMIT was sent. Messages in memory are not covered by the promise."""
        in_files = {body for body in sent if "memory" not in self.partition_of[body]}
        stored = {body for body in acked or () if "memory" not in self.partition_of[body]}
        again = set(repeated or ())
        known = {body for body in again if body in self.kept or body in self.promised[self.partition_of[body]].values()}
        transaction = self.transactions[name] = Transaction(name, in_files, stored, again, known)
        for body in stored:
            self.acked_in[body].append(transaction)
        several = len({self.partition_of[body] for body in in_files}) + bool(stored) > 1
        if several:  # then it is synced, whatever the rules say
            self.synced |= in_files

    def committed(self, name: str) -> None:
        transaction = self.transactions[name]
        if transaction.void:
            raise Violation(f"{transaction} was receipted, and what it acknowledged has come back")
        self.kept |= transaction.sent
        self.settled |= transaction.acked
        for body in transaction.repeated if transaction.acked else transaction.known:
            self.durable(body)

    def observed(self, partition: str, offset: int, body: bytes) -> None:
        self._same(partition, offset, body, "delivered")

    def _same(self, partition: str, offset: int, body: bytes, how: str) -> None:
        known = self.seen[partition].setdefault(offset, body)
        if known != body:
            raise Violation(f"{partition}@{offset} was {known[:30]!r}, and {body[:30]!r} is {how}")

    def taken(self, who: Any, body: bytes) -> None:
        """Check a queue message that has come to a client which will answer it, over a connection that the broker has
        not closed. Otherwise it was sent before that, and another client may have it by now."""
        if body in self.settled:
            raise Violation(f"{body[:30]!r} was settled, and came back to {who}")
        holder = self.holders.get(body)
        if holder is not None and holder.present:
            raise Violation(f"{body[:30]!r} is held by {holder}, and came to {who}")
        self.holders[body] = who
        for transaction in self.acked_in[body]:
            transaction.void |= body in transaction.acked

    def answered(self, who: Any, body: bytes, settles: bool) -> None:
        if self.holders.get(body) is who:
            del self.holders[body]
        if settles:
            self.maybe_settled.add(body)

    def lost(self, who: Any) -> None:
        """Note that a client's connection is lost: its messages in flight belong to the queue again."""
        for body in [body for body, holder in self.holders.items() if holder is who]:
            del self.holders[body]

    # --- after each start ---------------------------------------------------------------------------------------------

    def died(self, power_cut: bool) -> None:
        self.holders.clear()
        for partition in [*self.seen, *self.promised]:
            if self._forgotten(partition, power_cut):
                self.promised.pop(partition, None)
                self.seen.pop(partition, None)
        gone = {body for body, partition in self.partition_of.items() if self._forgotten(partition, power_cut)}
        self.kept -= gone - self.synced
        self.settled_before = self.settled & gone
        self.settled -= gone

    def _forgotten(self, partition: str, power_cut: bool) -> bool:
        return "memory" in partition or (power_cut and not self.strong(partition))

    def started(self, store: Any, power_cut: bool = False) -> None:
        """Read the whole store after a start."""
        self.crashed |= power_cut
        logs = {name: stored(partition) for name, partition in store.partitions.items()}
        if power_cut:
            self._letters_alone(logs)
        present: set[bytes] = set()
        dead: set[bytes] = set()  # a dead letter may stand in its queue's log, too, settled
        for name, partition in store.partitions.items():
            found = logs[name]
            whole = (self.strong(name) or not (power_cut or self.crashed)) and name not in (*COMPACTED, *RECLAIMED)
            wanted = range(partition.log_start_offset, partition.next_offset)
            if whole and list(found) != list(wanted):
                raise Violation(f"{name}: offsets have holes: {sorted(set(wanted) - set(found))}")
            if name == DELIVERIES_PARTITION:  # ``deliveries`` checks its rows
                continue
            last: dict[bytes, int] = {}
            for offset, body in found.items():
                self._same(name, offset, body, "in the log")
                known, others = self.known_by(name, offset, body), dead if name == DEAD else present
                if known in others:
                    raise Violation(f"{name}: {body[:30]!r} is stored twice")
                others.add(known)
                if name == DEAD:  # in the order in which they were given up
                    continue
                if body in self.sent_again:  # it may have come behind what was sent later
                    continue
                if body.count(b":") < 2:
                    raise Violation(f"{name}: {body[:30]!r} was sent by nobody")
                producer, number = body.split(b":")[:2]
                if last.get(producer, -1) >= int(number):
                    raise Violation(f"{name}: {body[:30]!r} stands behind number {last[producer]}")
                last[producer] = int(number)
        in_place = set(present)
        present |= dead
        self.present = present
        for partition_name, promised in self.promised.items():
            known = self.seen[partition_name]
            logged = store.partitions.get(partition_name)
            end = logged.next_offset if logged is not None else 0
            for offset, body in promised.items():
                there = self.known_by(partition_name, offset, body) in present and known[offset] == body
                if offset >= end or not (there or self._may_be_gone(partition_name, offset, body, present)):
                    raise Violation(f"{partition_name}@{offset} {body[:30]!r} was receipted and is gone (end {end})")
        for partition_name, known in self.seen.items():
            for offset, body in known.items():
                there = self.known_by(partition_name, offset, body) in present
                if not there and not self._may_be_gone(partition_name, offset, body, present):
                    raise Violation(f"{partition_name}@{offset} {body[:30]!r} was seen and is gone")
        for body in self.kept:
            if body not in present and not self._given_back(body):
                raise Violation(f"{body[:30]!r} was committed with a receipt and is gone")
        for transaction in self.transactions.values():
            if power_cut:
                lost = {body for body in transaction.acked - present if not self.strong(self.partition_of[body])}
                transaction.acked -= lost  # sent again, it is another message
            there = {body for body in transaction.sent if body in in_place or self._given_back(body)}
            if there and there != transaction.sent:
                raise Violation(f"{transaction}: {len(there)} of {len(transaction.sent)} messages are there")
            if there and not transaction.repeated <= in_place:
                gone = sorted(transaction.repeated - in_place)
                raise Violation(f"{transaction} was done, and what it repeats is gone: {gone[:3]}")
            if there and transaction.void:
                raise Violation(f"{transaction} was done, and what it acknowledged had come back")
            if there:
                self.settled |= transaction.acked

    def _letters_alone(self, logs: dict[str, dict[int, bytes]]) -> None:
        """A power failure took a message and not its dead letter. From now on the dead letter has an identity of its
        own, as the body may be sent again. It takes over the message's history, because its log keeps all."""
        for offset, body in logs.get(DEAD, {}).items():
            if offset in self.outlived:
                continue
            origin = self.partition_of[body]
            if body in logs.get(origin, {}).values():
                self.settled |= self.settled_before & {body}
                continue
            if self.strong(origin):
                raise Violation(f"{body[:30]!r} is gone from {origin}, its dead letter is {DEAD}@{offset}")
            known = self.outlived[offset] = b"%b (%b@%d)" % (body, DEAD.encode(), offset)
            self.partition_of[known] = DEAD
            if body in self.settled_before:
                self.settled.add(known)
            if body in self.maybe_settled:
                self.maybe_settled.add(known)
            for transaction in self.acked_in.pop(body, ()):
                if body in transaction.acked:
                    transaction.acked = transaction.acked - {body} | {known}
                self.acked_in[known].append(transaction)

    def _may_be_gone(self, partition: str, offset: int, body: bytes, present: set[bytes]) -> bool:
        return self._given_back(body) or (partition in COMPACTED and self._replaced(partition, offset, body, present))

    def _replaced(self, partition: str, offset: int, body: bytes, present: set[bytes]) -> bool:
        """Return whether a later message of the same key is stored."""
        key = self.key_of.get(body)
        later = (known for at, known in self.seen[partition].items() if at > offset and known in present)
        return key is not None and any(self.key_of.get(known) == key for known in later)

    def _given_back(self, body: bytes) -> bool:
        """Return whether its queue's log may have dropped it, because it is settled."""
        if self.partition_of.get(body) not in RECLAIMED:
            return False
        acked = any(body in transaction.acked for transaction in self.acked_in[body])
        return acked or self.may_be_settled(body)

    def may_be_settled(self, body: bytes) -> bool:
        """Return whether a client has answered it, whether or not the broker received that, or it has expired."""
        return body in self.settled or body in self.maybe_settled or self.moments.over(body)

    def _made_into_another(self, body: bytes) -> bool:
        """Return whether a COMMIT without a receipt may have settled it, with an output that is stored."""
        return any(
            body in each.acked and each.repeated and each.repeated <= self.present for each in self.acked_in[body]
        )

    def at_the_end(self, drained: list[bytes], waiting: set[bytes]) -> None:
        """Check that ``drained``, the messages delivered in the end, has all ``waiting`` messages of the logs."""
        if len(drained) != len(set(drained)):
            raise Violation("a message was delivered twice in the end")
        back = set(drained) & self.settled
        if back:
            raise Violation(f"settled, and delivered in the end: {sorted(back)[:3]}")
        left = waiting - set(drained)
        missing = {body for body in left if not (self.may_be_settled(body) or self._made_into_another(body))}
        if missing:
            raise Violation(f"never settled, and not delivered in the end: {sorted(missing)[:3]}")
