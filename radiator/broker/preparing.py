"""What a COMMIT to many new destinations needs is made before it, in portions.

Each new destination is some work, and each log that begins a file a millisecond of the disk's or many, for which
everybody's receipts wait. All parts of a transaction are written in one group; so where they are many, the destinations
are made first, some in each visit, and then the files, one by one between the group commits (``storage.apart``). Until
then the COMMIT comes again (``Unfinished``). Nothing of the transaction has been applied: whether it happens is decided
afterwards, at once.

Knows: transactions, names, which logs have files. Must not know: what the messages say.
Invariants: an empty log and a destination without a message are all that a COMMIT leaves behind that is refused; it
waits once for the syncs that others owe, however often they commit.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from radiator import limits
from radiator.broker.subscriptions.searching import Unfinished
from radiator.routing.rules import TEMPORARY
from radiator.storage.file_partition import FilePartition

if TYPE_CHECKING:
    from radiator.broker.broker import Broker
    from radiator.broker.session import Session
    from radiator.broker.transactions import Transaction
    from radiator.storage.partition import Partition

BIRTHS_WORK = 1_500  # of one visit: as long as this has not been spent, there is a next destination


def destinations(broker: Broker, session: Session, transaction: Transaction) -> None:
    """Those that the transaction sends to exist afterwards, and what was waited for is done with. Raises Unfinished,
    and ProtocolError."""
    frames, there = transaction.frames, broker.destinations
    while transaction.named < len(frames):
        if broker.work > BIRTHS_WORK:
            broker.give_way()
            raise Unfinished
        head = frames[transaction.named].head
        transaction.named += 1
        if head.command == "SEND":
            name = head.headers["destination"]
            if name not in there and not name.startswith(TEMPORARY):
                session.require("write", name)
                broker.births.receiver(name)
    waited = transaction.waited
    while waited and not _unready(waited[-1]):
        waited.pop()
    if waited:
        raise Unfinished(at_once=False)


def files(transaction: Transaction, partitions: Iterable[Partition]) -> None:
    """Where these are to have a message together, not too many of them begin a file with it, or have to be synced
    before it. Raises Unfinished."""
    unready = [each for each in partitions if isinstance(each, FilePartition) and _unready(each)]
    unmade = [each for each in unready if not each.segments]
    if len(unmade) > limits.NEW_FILES_TOGETHER_MAX:
        for partition in unmade:
            partition.want_file()
        transaction.waited = unmade
    elif len(unready) > limits.TOGETHER_SYNCED_MAX and transaction.patient:
        transaction.waited = [each for each in unready if each.segments]
        transaction.patient = False  # others may owe them again by then, for ever
    if transaction.waited:
        raise Unfinished(at_once=False)


def _unready(partition: FilePartition) -> bool:
    """It has no file, or its last batch is to be synced before anything is written behind it (``transaction_job``)."""
    return partition.failed is None and (not partition.segments or bool(partition.owed))
