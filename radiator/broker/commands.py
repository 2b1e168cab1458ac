"""What each client frame does: one table from commands to functions. SEND, the hot path, is ``sending.send``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from radiator.broker import preparing, transactions
from radiator.broker.named import named_subscribing
from radiator.broker.publishing import idempotence, overflow, throttle
from radiator.broker.publishing.overflow import Verdict
from radiator.broker.publishing.sending import (
    Plan,
    admit,
    append,
    drop_reply,
    make_room,
    no_memory,
    not_connected,
    plan_for,
)
from radiator.broker.queues import pledges, settling
from radiator.broker.queues.settling import receipt_now, receipt_settled
from radiator.broker.subscriptions import subscribing, windows
from radiator.broker.subscriptions.subscription import InFlight, by_source
from radiator.errors import ProtocolError, StorageError
from radiator.routing.rules import TEMPORARY
from radiator.stomp import encoder
from radiator.stomp.spec import VERSIONS
from radiator.storage.memory import MemoryPartition

if TYPE_CHECKING:
    from radiator.broker.broker import Broker
    from radiator.broker.destinations.destination import Destination
    from radiator.broker.queues.source import QueueSource
    from radiator.broker.session import Session
    from radiator.routing.policy import Policy
    from radiator.stomp.frames import Frame
    from radiator.storage.partition import Partition


def dispatch(broker: Broker, session: Session, frame: Frame, now_ns: int) -> None:
    """Every command but SEND."""
    command = frame.head.command
    if not session.connected and command not in ("CONNECT", "STOMP"):
        raise not_connected(command)
    function = COMMANDS.get(command)
    if function is None:
        raise ProtocolError(
            "bad-command",
            f"unknown command {command[:50]!r}",
            f"Expected, in capital letters, one of: {', '.join(['SEND', *COMMANDS])}.",
        )
    function(broker, session, frame, now_ns)


def _required(frame: Frame, header: str) -> str:
    value = frame.head.headers.get(header)
    if not value:
        raise ProtocolError(
            "bad-header", f"{frame.head.command} needs a header {header}", f"Expected {header}:<value>, got none."
        )
    return value


def connect(broker: Broker, session: Session, frame: Frame, now_ns: int) -> None:
    """CONNECT, STOMP: the version was negotiated by ``ServerConnection``; the shell set it and the heart-beat."""
    if session.connected:
        raise ProtocolError("bad-command", "this connection is connected already")
    assert session.version in VERSIONS
    headers = frame.head.headers
    window = headers.get("max-in-flight")
    if window is not None:
        session.window = windows.count(window, "max-in-flight", session.limits.in_flight)
        session.capped = True

    session.client_id = headers.get("client-id", "")

    def welcome() -> None:
        session.connected = True
        session.since_ns = now_ns
        answer = [("server", broker.server_name), ("session", session.id), *_limits(broker)]
        if session.version == "1.0" and "accept-version" in headers:  # who asks for a version is told which it is
            answer.insert(0, ("version", "1.0"))
        session.send(encoder.connected(session.version, answer, session.heart_beat))

    broker.access.log_in(session, headers.get("login", ""), headers.get("passcode", ""), welcome, frame.receipt)


def _limits(broker: Broker) -> list[tuple[str, str]]:
    """What one frame may hold: told before a client finds out."""
    limits = broker.config.limits
    return [
        ("max-message-size", str(limits.message)),
        ("max-header-size", str(limits.headers)),
        ("max-header-count", str(limits.header_count)),
    ]


def disconnect(broker: Broker, session: Session, frame: Frame, now_ns: int) -> None:
    """DISCONNECT: what is held goes back at once; the RECEIPT comes once all that was sent is stored."""
    broker.release(session)
    receipt_settled(broker, session, frame)
    session.closing = True


def unsubscribe(broker: Broker, session: Session, frame: Frame, now_ns: int) -> None:
    """UNSUBSCRIBE by id (1.0: or by destination, also if SUBSCRIBE had an id), or by the name of a named subscription,
    which deletes that."""
    headers = frame.head.headers
    destination = headers.get("destination") if session.version == "1.0" and not headers.get("id") else None
    subscription_id = headers.get("id") or destination
    subscription = session.subscriptions.get(subscription_id) if subscription_id else None
    if subscription is None and destination is not None:
        subscription = next(
            (each for each in session.subscriptions.values() if each.patterns.text == destination), None
        )
    if named_subscribing.unsubscribe(broker, session, frame, subscription_id, subscription):
        return
    if not subscription_id:
        raise ProtocolError("bad-header", "UNSUBSCRIBE needs a header id", "Expected the id given on SUBSCRIBE.")
    if subscription is None and subscription_id in session.ended:  # it crossed the end of the replay on its way
        del session.ended[subscription_id]
        receipt_now(session, frame)
        return
    if subscription is None:
        raise ProtocolError("bad-subscription", f"no subscription {subscription_id[:200]!r} on this connection")
    broker.unsubscribe(subscription)
    receipt_settled(broker, session, frame)


def begin(broker: Broker, session: Session, frame: Frame, now_ns: int) -> None:
    """BEGIN."""
    transactions.begin(session, _required(frame, "transaction"))
    receipt_now(session, frame)


def abort(broker: Broker, session: Session, frame: Frame, now_ns: int) -> None:
    """ABORT: forget the transaction's frames."""
    pledges.end(transactions.end(session, _required(frame, "transaction")))
    receipt_now(session, frame)


def commit(broker: Broker, session: Session, frame: Frame, now_ns: int) -> None:
    """COMMIT: everything is checked before anything is applied; the RECEIPT waits for all of it."""
    name = _required(frame, "transaction")
    transaction = transactions.find(session, name)
    preparing.destinations(broker, session, transaction)
    steps = _check(broker, session, transaction, now_ns)
    pledges.end(transactions.end(session, name))
    waited: list[list[object]] = []
    firsts: dict[Partition, int] = {}  # offset of the first message there
    under_way: dict[Partition, int] = {}  # offset of the last message there that is repeated, and not yet committed
    acked: list[InFlight] = []
    late = False
    for each, plan, verdict in steps:
        if each.head.command == "ACK":
            taken = settling.take_acked(broker, session, each)
            late |= not taken
            acked += taken
        elif each.head.command == "NACK":
            settling.apply_nack(broker, session, each)
        elif plan is not None and verdict is Verdict.REPEAT:
            found = idempotence.repeated(broker, plan, now_ns)
            if found is not None:
                partition, offset, waiters = found
                under_way[partition] = max(offset, under_way.get(partition, 0))
                _wait(waited, waiters)
        elif plan is not None and make_room(broker, session, plan, each, verdict):
            assert plan.feed is not None
            offset = append(broker, plan, plan.feed.partition, each.body, now_ns)
            firsts.setdefault(plan.feed.partition, offset)
    for partition in firsts:
        _wait(waited, partition.open_batch.waiters)
    waited += _settle_together(broker, firsts, under_way, by_source(acked))
    if frame.receipt is None:
        session.receipts.silently_after(waited)
    else:
        waited += broker.cursor_waiters(late) + broker.dead_letters.waited()
        session.receipts.after(frame.receipt, waited)


def _settle_together(
    broker: Broker, firsts: dict[Partition, int], under_way: dict[Partition, int], acked: dict[QueueSource, list[int]]
) -> list[list[object]]:
    """Lets ACKs take effect: at once; or, where they and the messages of their transaction are kept in several files or
    batches, or hang on messages that are ``under_way``, when the store has decided that all of it holds. Returns where
    a receipt has to wait for that."""
    stored = {source: offsets for source, offsets in acked.items() if source.cursor.stored}
    files = {each: first for each, first in firsts.items() if not isinstance(each, MemoryPartition)}
    repeats = {each: offset for each, offset in under_way.items() if not isinstance(each, MemoryPartition)}
    split = any(each.open_batch.base_offset > first for each, first in files.items())
    changes = bool(files or stored)
    apart = not changes or (len(files.keys() | repeats.keys()) + bool(stored) < 2 and not split)
    for source, offsets in acked.items():
        if apart or source not in stored:
            source.settle(offsets)
    if apart:
        return []

    def decided(holds: bool) -> None:
        for source, offsets in stored.items():
            if holds:
                source.settle(offsets)
                source.flush()  # a snapshot of the cursors, which may replace the redo log, must have it
            else:
                broker.return_to(source, offsets)

    acks = [(source.cursor, offsets) for source, offsets in stored.items()]
    broker.store.together(files, repeats.items(), acks, decided)
    return [broker.store.transaction_waiters]


def _wait(waited: list[list[object]], waiters: list[object] | None) -> None:
    if waiters is not None and not any(waiters is known for known in waited):
        waited.append(waiters)


def _check(
    broker: Broker, session: Session, transaction: transactions.Transaction, now_ns: int
) -> list[tuple[Frame, Plan | None, Verdict]]:
    """Everything that could refuse a COMMIT, before anything of it is applied. Raises ProtocolError.

    Each partition is made to have room in one batch for all that the transaction sends to it, if one can hold that: a
    batch is all or nothing on disk.
    """
    steps: list[tuple[Frame, Plan | None, Verdict]] = []
    ahead: dict[Destination, tuple[int, int]] = {}
    room: dict[Partition, tuple[int, int]] = {}
    known: set[tuple[Partition, bytes]] = set()
    pledges.check(session, transaction)
    for each in transaction.frames:
        if each.head.command != "SEND":
            settling.locate(session, each)
            steps.append((each, None, Verdict.STORE))
            continue
        plan = plan_for(broker, session, each, each.head.headers["destination"])
        if plan is None:
            continue
        plan.feed = plan.feed or plan.destination.next_feed()
        partition = plan.feed.partition
        if plan.identity is not None:
            if (partition, plan.identity) in known or partition.first_of(plan.identity, now_ns) is not None:
                steps.append((each, plan, Verdict.REPEAT))
                continue
            known.add((partition, plan.identity))
        if broker.disk_full is not None and plan.destination.policy.store == "file":
            raise broker.disk_full
        try:
            partition.check()
        except StorageError as error:
            if not plan.name.startswith(TEMPORARY):
                raise no_memory(broker, plan, partition, error) from error
            drop_reply(broker, session, each)
            continue
        before = ahead.get(plan.destination, (0, 0))
        steps.append((each, plan, admit(plan, each, before)))
        ahead[plan.destination] = (before[0] + 1, before[1] + len(each.body))
        count, size = room.get(partition, (0, 0))
        room[partition] = (count + 1, size + len(each.body) + len(plan.block))
    preparing.files(transaction, room)
    _check_together(session, ahead, now_ns)
    for partition, (count, size) in room.items():
        partition.make_room(count, size)
    return steps


def _check_together(session: Session, sent: dict[Destination, tuple[int, int]], now_ns: int) -> None:
    """What destinations and rules say to all that a COMMIT sends there. Raises ProtocolError, or Wait: then the whole
    transaction waits."""
    rated: dict[int, tuple[Policy, int]] = {}
    for destination, (count, size) in sent.items():
        if destination.queue is not None:
            overflow.together(destination.queue, count, size)
        policy = destination.policy
        if policy.rule.rate_messages is not None and not destination.name.startswith(TEMPORARY):
            _, before = rated.get(policy.rule_index, (policy, 0))
            rated[policy.rule_index] = (policy, before + count)
    if rated:
        throttle.spend(session, rated, now_ns)


COMMANDS: dict[str, Callable[[Broker, Session, Frame, int], None]] = {
    "CONNECT": connect,
    "STOMP": connect,
    "SUBSCRIBE": subscribing.subscribe,
    "UNSUBSCRIBE": unsubscribe,
    "ACK": settling.ack,
    "NACK": settling.nack,
    "BEGIN": begin,
    "COMMIT": commit,
    "ABORT": abort,
    "DISCONNECT": disconnect,
}
