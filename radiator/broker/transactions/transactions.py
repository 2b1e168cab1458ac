"""Transactions: SEND, ACK and NACK frames that take effect together at COMMIT, in their order, or not at all.

Frames are stored here until COMMIT, bounded in number, in bytes (per connection, and for all under ``limits.memory``)
and in time. Each frame is checked before the first is applied, so a refused COMMIT changes nothing. ABORT and a lost
connection discard the frames.

``limits.transaction_timeout`` is counted from BEGIN, as in ActiveMQ Artemis and Kafka. A transaction that times out
ends its connection: the messages that it has acknowledged return to their queues, as after a lost connection.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from radiator import limits
from radiator.broker.clients.locating import may_have_lost
from radiator.broker.transactions import transactional_acks
from radiator.clock import NS_PER_SECOND
from radiator.errors import ProtocolError
from radiator.memory import TRANSACTIONS

if TYPE_CHECKING:
    from radiator.broker.budget import Steps
    from radiator.broker.clients.session import Delivery, Session, Transaction
    from radiator.broker.core import Core
    from radiator.broker.services import Services
    from radiator.stomp.frames import Frame


FRAME_OVERHEAD_BYTES = 256  # objects of a frame; also keeps a transaction below the record limit of one batch
TRANSACTION_BYTES = 1_024  # memory of a transaction without frames
FREED_TOGETHER = 250  # frames, or answers
FREED_A_UNIT = 5

assert min(limits.BATCH_BYTES_MAX, FRAME_OVERHEAD_BYTES * limits.BATCH_RECORDS_MAX) >= limits.TRANSACTION_BYTES_MAX


def begin(core: Core, session: Session, name: str) -> None:
    """Open a transaction.

    Raises:
        ProtocolError: The id is in use, the connection has too many transactions, or memory is used up.
    """
    session.transactions.check_begin(name)
    _require(core, TRANSACTION_BYTES)
    transaction = session.transactions.begin(name, partial(_timed_out, core, session))
    core.memory.shares[TRANSACTIONS].add(TRANSACTION_BYTES)
    seconds = session.limits.transaction_timeout_seconds
    if seconds is not None:
        core.timing.after(int(seconds * NS_PER_SECOND), transaction)


def _timed_out(core: Core, session: Session, transaction: Transaction) -> None:
    """Close the connection of a transaction that had neither COMMIT nor ABORT in time."""
    seconds = session.limits.transaction_timeout_seconds
    core.stats.count(transactions_timed_out=1)
    error = ProtocolError(
        "timeout",
        f"transaction {transaction.name[:100]!r} was open for too long",
        f"limits.transaction_timeout in the YAML file is {seconds:g} s, from BEGIN to COMMIT or ABORT. The "
        "transaction had no effect; messages that it acknowledged return to their queues.",
    )
    core.refuse(session, error)


def add(core: Core, session: Session, name: str, frame: Frame) -> Transaction:
    """Store a frame until COMMIT.

    Args:
        core: The core of the broker.
        session: The session.
        name: The id of the transaction.
        frame: The frame.

    Returns:
        The transaction.

    Raises:
        ProtocolError: The transaction is unknown or too large, or memory is used up.
    """
    transaction = session.transactions.find(name)
    size = len(frame.body) + len(frame.head.raw) + FRAME_OVERHEAD_BYTES
    session.transactions.check_add(size)
    _require(core, size)
    core.memory.shares[TRANSACTIONS].add(size)
    session.transactions.add(transaction, frame, size)
    return transaction


def hold(broker: Services, session: Session, frame: Frame, delivery: Delivery | None, settles: bool) -> Steps:
    """Store an ACK or NACK until COMMIT, and mark its deliveries as acknowledged by the transaction, in steps.

    If a delivery has returned to its queue already, that is noted for COMMIT.

    Args:
        broker: The services of the broker.
        session: The session.
        frame: The ACK or NACK.
        delivery: The delivery that it names; None if it is not in flight any more: the frame is late.
        settles: True for an ACK or a final NACK; False if the delivery returns to its queue.

    Raises:
        ProtocolError: The transaction is unknown or too large, or memory is used up.
    """
    transaction = add(broker, session, frame.head.headers["transaction"], frame)
    transaction.answers.append(None if delivery in transaction.answered else delivery)
    if delivery is not None:
        transaction.answered.add(delivery)
        yield from transactional_acks.mark(broker, transaction, delivery, settles)
    elif settles and may_have_lost(session, frame):
        transaction.note_late()
    if frame.receipt is not None:
        session.receipts.now(frame.receipt)


def committing(core: Core, session: Session, name: str) -> Transaction:
    """Return the transaction whose COMMIT has come, and stop its timeout.

    Raises:
        ProtocolError: There is none.
    """
    transaction = session.transactions.find(name)
    core.timing.forget(transaction)
    return transaction


def end(core: Core, session: Session, name: str) -> Transaction:
    """Close a transaction and return it with its frames.

    Raises:
        ProtocolError: There is none.
    """
    transaction = session.transactions.end(name)
    _close(core, transaction)
    return transaction


def discard(core: Core, session: Session) -> Steps:
    """Close all open transactions of a session that has ended, and return the steps that free their frames."""
    closed = session.transactions.take_all()
    for transaction in closed:
        _close(core, transaction)
    return _freeing(core, closed)


def free(core: Core, transaction: Transaction) -> None:
    """Free the frames of a closed transaction in the background, because each is several objects."""
    core.background.add(_freeing(core, [transaction]))


def _freeing(core: Core, transactions: list[Transaction]) -> Steps:
    for transaction in transactions:
        for objects in (transaction.frames, transaction.answers, transaction.acked):
            while objects:
                core.budget.spend(min(len(objects), FREED_TOGETHER) // FREED_A_UNIT)
                del objects[-FREED_TOGETHER:]
                yield True


def _close(core: Core, transaction: Transaction) -> None:
    core.timing.forget(transaction)
    core.memory.shares[TRANSACTIONS].add(-transaction.size_bytes - TRANSACTION_BYTES)


def _require(core: Core, size: int) -> None:
    remedy = "Try again later, or in smaller transactions."
    core.memory_watch.require(core.memory.shares[TRANSACTIONS], size, "the transaction", remedy)
