"""Waits of a COMMIT: for the files of many new destinations, and for the sync of messages that it repeats.

Each new destination and each log that begins a file is work, and all receipts wait for it, because the parts of a
transaction are written in one group. So many destinations are created first, some in each turn, and then their files,
some in each group commit. None of the transaction is applied by that; it is decided afterwards, at once.

A message that the transaction repeats (``idempotence``) is synced first, whatever its rule says. Then a power cut that
preserves some of the transaction preserves that message, too.

This module knows transactions and which logs have files. It does not know messages.

Invariant: a refused COMMIT leaves behind only empty logs and destinations without messages.
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
    """Request the sync of messages that the transaction repeats.

    Args:
        transaction: The transaction; none of it has been applied.
        places: Where receipts for those messages wait, for those that are not synced.

    Returns:
        True if the COMMIT has to wait (``wait``).
    """
    if places:
        repeated = AllOf()
        repeated.wait_for([each.waiters for each in places])
        repeated.settle()
        transaction.wait_for_repeats(repeated)
    return bool(places)


def wait(transaction: Transaction) -> Steps:
    """Wait until the disk has finished the work of ``request_syncs`` and ``request_files``, in steps.

    Raises:
        ProtocolError: It has failed.
    """
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
    """Request files for logs that have none, if too many would begin one with this transaction.

    Args:
        transaction: The transaction; none of it has been applied.
        partitions: The logs that it writes to.

    Returns:
        True if the COMMIT has to wait (``wait``).
    """
    unmade = [each for each in partitions if isinstance(each, FilePartition) and _has_no_file(each)]
    if len(unmade) > limits.NEW_FILES_TOGETHER_MAX:
        for partition in unmade:
            partition.request_file()
        transaction.wait_for_files(unmade)
    return bool(transaction.waited)


def _has_no_file(partition: FilePartition) -> bool:
    """Return True if the log has no file yet."""
    return partition.failed is None and not partition.segments
