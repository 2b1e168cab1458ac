"""Waits of a COMMIT: for new destinations and their files, where they are many, and for syncs of what it repeats.

Each new destination is some work, and so is each log that begins a file, and everybody's receipts wait for it. All
parts of a transaction are written in one group; so where they are many, the destinations are made first, some in each
turn, and then the files, some in each group commit. Nothing of the transaction has been applied: whether it happens is
decided afterwards, at once.

A message that the transaction repeats (``idempotence``) is synced before, whatever its rule says. So a power cut that
leaves something of the transaction leaves that message, too.

Knows: transactions, names, which logs have files. Must not know: what the messages say.
Invariants: an empty log and a destination without a message are all that a COMMIT leaves behind that is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from radiator import limits
from radiator.broker.clients.receipts import AllOf
from radiator.storage.file_partition import FilePartition

if TYPE_CHECKING:
    from radiator.broker.budget import Steps
    from radiator.broker.clients.session import Transaction
    from radiator.storage.partition import Partition
    from radiator.storage.turn import Place


def request_syncs(transaction: Transaction, places: Collection[Place]) -> bool:
    """Have the messages that the transaction repeats synced.

    Args:
        transaction: which nothing of has been applied.
        places: where receipts for those messages wait, of those that are not synced.

    Returns:
        True if there is one, so that the COMMIT has to wait (``wait``).
    """
    if places:
        repeated = AllOf()
        repeated.wait_for([each.waiters for each in places])
        repeated.settle()
        transaction.wait_for_repeats(repeated)
    return bool(places)


def wait(transaction: Transaction) -> Steps:
    """Wait until the disk is done with what ``request_syncs`` and ``request_files`` have asked for. Raises if it
    failed."""
    if transaction.repeated is not None:
        while transaction.repeated.under_way():
            yield False
        transaction.wait_for_repeats(None)
    partitions = transaction.waited
    while partitions:
        if _has_no_file(partitions[-1]):
            yield False
        else:
            partitions.pop()


def request_files(transaction: Transaction, partitions: Iterable[Partition]) -> bool:
    """Where these are to have a message together, not too many of them begin a file with it. True if the COMMIT has to
    wait for that (``wait``)."""
    unmade = [each for each in partitions if isinstance(each, FilePartition) and _has_no_file(each)]
    if len(unmade) > limits.NEW_FILES_TOGETHER_MAX:
        for partition in unmade:
            partition.request_file()
        transaction.wait_for_files(unmade)
    return bool(transaction.waited)


def _has_no_file(partition: FilePartition) -> bool:
    """It has no file yet."""
    return partition.failed is None and not partition.segments
