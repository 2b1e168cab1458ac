"""SEND and COMMIT with ``audit-log:true``: a line in ``radiator.audit`` says what the frame did.

The console and ``radiator dlq`` publish, and settle dead letters, with the frames that every client has. Rights, limits
and atomicity are those of any frame, and this header adds the line (``docs/adr/0049-audited-frames.md``).

The line is written when the RECEIPT is sent, so it says "ok" only of what is stored.

This module knows frames and the audit log. It changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from radiator.broker.admin import audit
from radiator.broker.admission import Dropped, Wait
from radiator.broker.headers.send import without_secret
from radiator.broker.headers.values import flag
from radiator.errors import ProtocolError, StorageError

if TYPE_CHECKING:
    from collections.abc import Generator

    from radiator.broker.budget import Steps
    from radiator.broker.clients.session import Session
    from radiator.broker.services import Services
    from radiator.stomp.frames import Frame

HEADER: Final = "audit-log"


def is_audited(frame: Frame) -> bool:
    """Return True if the client asks for a line in the audit log.

    Raises:
        ProtocolError: The header is neither true nor false, or the frame is a SEND in a transaction.
    """
    headers = frame.head.headers
    if not flag(headers, HEADER):
        return False
    if frame.head.command == "SEND" and "transaction" in headers:
        text = "header audit-log: a SEND in a transaction has no line of its own"
        raise ProtocolError("bad-header", text, "Send audit-log:true with COMMIT.")
    return True


def carry_out(broker: Services, session: Session, frame: Frame, work: Callable[[], Steps | None]) -> Steps:
    """Process a SEND or COMMIT in steps, and write the line when it has ended.

    Args:
        broker: The services of the broker.
        session: The session.
        frame: The frame.
        work: Processes the frame.

    Raises:
        Dropped: The message is dropped.
        ProtocolError: The frame is refused.
        StorageError: A log cannot be written.
        Wait: There is no room now; the frame is processed again later.
    """
    record = partial(audit.record, broker.peer_log, session, frame.head.command)
    args: dict[str, Any] = {}
    try:
        args = yield from _arguments(broker, session, frame)
        steps = work()
        if steps is not None:
            yield from steps
    except Wait:
        raise
    except Dropped:
        record(args, ProtocolError("dropped", "the message was dropped"))
        raise
    except ProtocolError as error:
        record(args, error)
        raise
    except StorageError as error:
        record(args, ProtocolError("storage", str(error)))
        raise
    except GeneratorExit:  # the connection is gone
        record(args, ProtocolError("timeout", audit.UNFINISHED))
        raise
    session.receipts.then(partial(record, args))


def refused(broker: Services, session: Session, frame: Frame, error: ProtocolError) -> None:
    """Write the line of a frame that has waited for too long, if it is audited."""
    if is_audited(frame):
        audit.record(broker.peer_log, session, frame.head.command, {}, error)


def _arguments(broker: Services, session: Session, frame: Frame) -> Generator[bool, None, dict[str, Any]]:
    """Return what the line says of a frame: destinations and numbers, no bodies."""
    headers = frame.head.headers
    if frame.head.command == "SEND":
        return {"destination": without_secret(headers.get("destination", "")), "bytes": len(frame.body)}
    transaction = session.transactions.by_name.get(headers.get("transaction", ""))
    if transaction is None:
        return {}
    sent: Counter[str] = Counter()
    settled: dict[str, Counter[str]] = {"ACK": Counter(), "NACK": Counter()}
    answers = iter(transaction.answers)
    for part in broker.budget.portions(transaction.frames):
        for each in part:
            if each.head.command == "SEND":
                sent[without_secret(each.head.headers["destination"])] += 1
            elif (delivery := next(answers)) is not None:
                settled[each.head.command][delivery[0].asked.text] += 1
        yield True
    found = {"sent": sent, "acknowledged": settled["ACK"], "refused": settled["NACK"]}
    return {name: [f"{count} {where}" for where, count in each.items()] for name, each in found.items() if each}
