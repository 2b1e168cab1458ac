"""Transactions: SEND, ACK and NACK frames that take effect together at COMMIT, in their order, or not at all.

The frames are held here until COMMIT, bounded in number, in bytes (of the connection, and of all under
``limits.memory``) and in time. Every one of them is checked before the first is applied, so a COMMIT that is refused
has changed nothing; ABORT and a lost connection discard them.

``limits.transaction_timeout`` is counted from BEGIN, as ActiveMQ Artemis and Kafka do it. The end of the transaction is
the end of its connection: the messages that it has acknowledged go back to their queues, as those of a client that died
do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from radiator import limits
from radiator.clock import NS_PER_SECOND, Now
from radiator.errors import ProtocolError
from radiator.memory import TRANSACTIONS

if TYPE_CHECKING:
    from radiator.broker.broker import Broker
    from radiator.broker.budget import Steps
    from radiator.broker.committing.waits import AllOf
    from radiator.broker.session import Session
    from radiator.broker.subscriptions.subscription import Delivery, Subscription
    from radiator.stomp.frames import Frame
    from radiator.storage.file_partition import FilePartition


FRAME_OVERHEAD_BYTES = 256  # of a frame beside its bytes; also keeps a transaction below the records of one batch
TRANSACTION_BYTES = 1_024  # of one without frames
FREED_TOGETHER = 250  # frames, or what they have answered
FREED_A_UNIT = 5

assert min(limits.BATCH_BYTES_MAX, FRAME_OVERHEAD_BYTES * limits.BATCH_RECORDS_MAX) >= limits.TRANSACTION_BYTES_MAX


Answer: TypeAlias = "Delivery | ProtocolError | None"  # what an ACK or NACK names; None: it was late


class Transaction:
    """The frames of one open transaction and what they weigh, in bytes. It waits in ``Timing`` for its time-out.

    Args:
        broker: the broker that ends it.
        session: the connection that has opened it.
        name: its id on that connection.
    """

    __slots__ = (
        "_broker",
        "_session",
        "acked",
        "answered",
        "answers",
        "frames",
        "late",
        "name",
        "pledging",
        "repeated",
        "size_bytes",
        "waited",
    )

    def __init__(self, broker: Broker, session: Session, name: str) -> None:
        self._broker = broker
        self._session = session
        self.name = name
        self.acked: list[Delivery] = []  # deliveries that it is to settle, as they were found
        self.answers: list[Answer] = []  # what each ACK and NACK names, in their order
        self.answered: set[Delivery] = set()  # the deliveries among them
        self.late = False  # one that it is to settle had gone back before
        self.pledging: dict[Subscription, None] = {}  # where ``pledged`` may have something of it
        self.waited: list[FilePartition] = []  # logs whose files are made, or synced, one by one before
        self.repeated: AllOf | None = None  # messages sent before that it has, and that are being synced
        self.frames: list[Frame] = []
        self.size_bytes = 0

    def due(self, now: Now) -> None:
        """End the connection: neither COMMIT nor ABORT came in time."""
        broker = self._broker
        seconds = broker.config.limits.transaction_timeout_seconds
        broker.stats.transactions_timed_out += 1
        error = ProtocolError(
            "timeout",
            f"transaction {self.name[:100]!r} was open for too long",
            f"limits.transaction_timeout in the YAML file is {seconds:g} s, from BEGIN to COMMIT or ABORT. Nothing of "
            "it was done; messages that it had acknowledged go back to their queues.",
        )
        broker.refuse(self._session, error)


def begin(broker: Broker, session: Session, name: str) -> None:
    """Open a transaction. Raises ProtocolError when the id is in use, there are too many, or memory is used up."""
    if name in session.transactions:
        raise ProtocolError("bad-transaction", f"transaction {name[:100]!r} is already open on this connection")
    if len(session.transactions) >= session.limits.transactions:
        raise ProtocolError(
            "too-many",
            "too many open transactions on this connection",
            f"limits.transactions in the YAML file is {session.limits.transactions}; COMMIT or ABORT one first.",
        )
    _require(broker, TRANSACTION_BYTES)
    session.transactions[name] = transaction = Transaction(broker, session, name)
    broker.memory.shares[TRANSACTIONS].add(TRANSACTION_BYTES)
    seconds = broker.config.limits.transaction_timeout_seconds
    if seconds is not None:
        broker.timing.after(int(seconds * NS_PER_SECOND), transaction)


def add(broker: Broker, session: Session, name: str, frame: Frame) -> Transaction:
    """Hold a frame until COMMIT. Raises ProtocolError when the transaction is unknown or too large, or memory is used
    up."""
    transaction = find(session, name)
    size = len(frame.body) + len(frame.head.raw) + FRAME_OVERHEAD_BYTES
    if session.transaction_bytes + size > session.limits.transaction:
        raise ProtocolError(
            "too-large",
            "the open transactions of this connection hold too much",
            f"limits.transaction in the YAML file is {session.limits.transaction} bytes; COMMIT more often.",
        )
    _require(broker, size)
    broker.memory.shares[TRANSACTIONS].add(size)
    session.transaction_bytes += size
    transaction.size_bytes += size
    transaction.frames.append(frame)
    return transaction


def find(session: Session, name: str) -> Transaction:
    """The open transaction of that name. Raises ProtocolError when there is none."""
    transaction = session.transactions.get(name)
    if transaction is None:
        raise ProtocolError(
            "bad-transaction",
            f"transaction {name[:100]!r} is not open on this connection",
            "Open it with BEGIN; COMMIT and ABORT end it.",
        )
    return transaction


def committing(broker: Broker, session: Session, name: str) -> Transaction:
    """The transaction whose COMMIT has come: it does not time out any more, however long that has to wait. Raises
    ProtocolError when there is none."""
    transaction = find(session, name)
    broker.timing.forget(transaction)
    return transaction


def end(broker: Broker, session: Session, name: str) -> Transaction:
    """Close a transaction and hand its frames over."""
    transaction = find(session, name)
    del session.transactions[name]
    _close(broker, session, transaction)
    return transaction


def discard(broker: Broker, session: Session) -> Steps:
    """Close all open transactions of a session that has ended, at once; the steps free their frames."""
    closed = list(session.transactions.values())
    for transaction in closed:
        _close(broker, session, transaction)
    session.transactions.clear()
    return _freed(broker, closed)


def free(broker: Broker, transaction: Transaction) -> None:
    """Let go of the frames of one that has ended, in the background: each is a few objects."""
    broker.background.add(_freed(broker, [transaction]))


def _freed(broker: Broker, transactions: list[Transaction]) -> Steps:
    for transaction in transactions:
        for objects in (transaction.frames, transaction.answers, transaction.acked):
            while objects:
                broker.budget.spend(min(len(objects), FREED_TOGETHER) // FREED_A_UNIT)
                del objects[-FREED_TOGETHER:]
                yield True


def _close(broker: Broker, session: Session, transaction: Transaction) -> None:
    broker.timing.forget(transaction)
    session.transaction_bytes -= transaction.size_bytes
    broker.memory.shares[TRANSACTIONS].add(-transaction.size_bytes - TRANSACTION_BYTES)


def _require(broker: Broker, size: int) -> None:
    remedy = "Try again later, or in smaller transactions."
    broker.memory_watch.require(broker.memory.shares[TRANSACTIONS], size, "the transaction", remedy)
