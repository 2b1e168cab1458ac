"""Transactions: SEND, ACK and NACK frames that take effect together at COMMIT, in their order, or not at all.

The frames are held here until COMMIT, bounded in number and bytes. Every one of them is checked before the first is
applied, so a COMMIT that is refused has changed nothing; ABORT and a lost connection discard them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from radiator import limits
from radiator.errors import ProtocolError

if TYPE_CHECKING:
    from radiator.broker.session import Session
    from radiator.broker.subscriptions.subscription import Subscription
    from radiator.stomp.frames import Frame
    from radiator.storage.file_partition import FilePartition


FRAME_OVERHEAD_BYTES = 256  # of a frame beside its bytes; also keeps a transaction below the records of one batch

assert min(limits.BATCH_BYTES_MAX, FRAME_OVERHEAD_BYTES * limits.BATCH_RECORDS_MAX) >= limits.TRANSACTION_BYTES_MAX


class Transaction:
    """The frames of one open transaction and what they weigh, in bytes."""

    __slots__ = ("acked", "frames", "late", "named", "patient", "pledging", "size_bytes", "waited")

    def __init__(self) -> None:
        self.acked: list[tuple[Subscription, bytes]] = []  # deliveries that it is to settle, as they were found
        self.late = False  # one that it is to settle had gone back before
        self.pledging: dict[Subscription, None] = {}  # where ``pledged`` may have something of it
        self.named = 0  # COMMIT has come: of so many frames the destination exists
        self.waited: list[FilePartition] = []  # logs whose files are made, or synced, one by one before
        self.patient = True  # until it has waited for syncs once
        self.frames: list[Frame] = []
        self.size_bytes = 0


def begin(session: Session, name: str) -> None:
    """Open a transaction. Raises ProtocolError when the id is in use or there are too many."""
    if name in session.transactions:
        raise ProtocolError("bad-transaction", f"transaction {name[:100]!r} is already open on this connection")
    if len(session.transactions) >= session.limits.transactions:
        raise ProtocolError(
            "too-many",
            "too many open transactions on this connection",
            f"limits.transactions in the YAML file is {session.limits.transactions}; COMMIT or ABORT one first.",
        )
    session.transactions[name] = Transaction()


def add(session: Session, name: str, frame: Frame) -> Transaction:
    """Hold a frame until COMMIT. Raises ProtocolError when the transaction is unknown or too large."""
    transaction = find(session, name)
    size = len(frame.body) + len(frame.head.raw) + FRAME_OVERHEAD_BYTES
    if session.transaction_bytes + size > session.limits.transaction:
        raise ProtocolError(
            "too-large",
            "the open transactions of this connection hold too much",
            f"limits.transaction in the YAML file is {session.limits.transaction} bytes; COMMIT more often.",
        )
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


def end(session: Session, name: str) -> Transaction:
    """Close a transaction and hand its frames over."""
    transaction = find(session, name)
    del session.transactions[name]
    session.transaction_bytes -= transaction.size_bytes
    return transaction
