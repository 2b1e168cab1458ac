"""The command COMMIT: check everything before anything happens, then apply all of it in one turn.

    prepare     compute the effects, in as many turns as necessary (``prepared``)
    check       check whether they still hold and whether a limit refuses them; may wait for the disk (``waits``)
    apply       append a run to each log, settle the acknowledged deliveries, take the refused ones (NACK) from their
                consumers: a few calls for any number of messages
    finish      in the background: return refused messages, or move them to the dead letters; drop what exceeds queues

Only ``apply`` has to be one step: no client sees a part of it, and its writes to files are all or nothing. It is the
one step of the broker that may exceed the budget of a turn: it takes 10 to 20 ms for 65,536 frames, the most that
``limits.transaction`` allows.

This module knows prepared effects and limits. It knows no headers.

Invariant: a refused COMMIT has changed nothing, except that destinations exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from radiator.broker import admission
from radiator.broker.admission import Dropped
from radiator.broker.clients.receipts import AllOf
from radiator.broker.committing import waits
from radiator.broker.committing.prepared import Prepared
from radiator.broker.publishing.sending import append_run, is_split, is_stored, require_end
from radiator.broker.queues.recorder import ACKED
from radiator.broker.settling import settlement
from radiator.broker.transactions import transactional_acks, transactions
from radiator.errors import ProtocolError, StorageError
from radiator.routing.rules import TEMPORARY

if TYPE_CHECKING:
    from radiator.broker.budget import Steps
    from radiator.broker.clients.session import InFlight, Session, Subscription, Transaction
    from radiator.broker.committing.prepared import Messages
    from radiator.broker.headers.refusals import Refusal
    from radiator.broker.queues.queue import Queue, QueueSource
    from radiator.broker.services import Services
    from radiator.clock import MonoNs
    from radiator.routing.policy import Policy
    from radiator.stomp.frames import Frame
    from radiator.storage.partition import Partition
    from radiator.storage.turn import Place

DROP_UNITS = 4  # per message that is dropped
APPLIED_A_UNIT = 8  # messages, and acknowledged or refused deliveries


def commit(broker: Services, session: Session, frame: Frame, name: str) -> Steps:
    """Commit a transaction, in steps. The RECEIPT is sent once all effects are stored.

    Args:
        broker: The services of the broker.
        session: The session.
        frame: The COMMIT.
        name: The id of the transaction.

    Raises:
        ProtocolError: The transaction is refused.
        StorageError: A log cannot be written.
        Wait: A queue or a rate has no room; the frame is processed again later.
    """
    transaction = transactions.committing(broker, session, name)
    while True:
        prepared = Prepared(broker, session)
        yield from prepared.steps(transaction)
        if len(prepared) // APPLIED_A_UNIT > broker.budget.left:
            broker.budget.give_way()  # begin with a whole turn
            yield True
        while prepared.holds():
            unread = _check(broker, session, transaction, prepared)
            if unread is not None:
                transactions.end(broker, session, name)
                _apply(broker, session, frame, transaction, prepared, unread)
                return
            yield from waits.wait(transaction)


def _check(broker: Services, session: Session, transaction: Transaction, prepared: Prepared) -> set[Partition] | None:
    """Check whether the transaction can be applied now.

    Returns:
        The logs of temporary queues without a reader, whose messages are dropped; None if the COMMIT has to wait for
        the disk first.

    Raises:
        ProtocolError: The transaction is refused.
        StorageError: A log cannot be written.
        Wait: A queue or a rate has no room.
    """
    now, unread = broker.timing.now, set()
    for partition, messages in prepared.messages.items():
        plan = messages.plan
        if broker.files_refused is not None and messages.run and plan.destination.policy.settings.store == "file":
            raise broker.files_refused
        try:
            partition.check()
        except StorageError as error:
            mandatory = plan.destination in prepared.mandatory
            outcome = admission.not_stored(broker.memory_watch, plan.destination, partition, error, mandatory)
            if not isinstance(outcome, Dropped):
                raise outcome from error
            unread.add(partition)
        if messages.expected is not None:
            require_end(partition, messages.expected)
        for queue in messages.dues:
            admission.require_room_for_delay(queue)
    broker.delivery_log.check(prepared.settled)
    _check_dropping(prepared)
    for destination in prepared.mandatory:
        admission.require_subscriber(destination)
    places: dict[Place, None] = {}
    for partition, offset in prepared.repeated.items():
        place = partition.wait_point(offset, synced=True)
        if place is not None:
            places[place] = None
    if waits.request_syncs(transaction, places) or waits.request_files(transaction, prepared.messages):
        return None
    _check_limits(session, prepared, now.mono)
    return unread


def _check_dropping(prepared: Prepared) -> None:
    """Check that no queue drops new messages of a log in which messages have an ``expected-offset``.

    The offsets of the messages behind them would be others.

    Raises:
        ProtocolError: ``unsupported``.
    """
    conditional = {partition for partition, each in prepared.messages.items() if each.expected is not None}
    if not conditional:
        return
    for queue, messages_there in prepared.dropping.items():
        if queue.settings.on_full == "drop_newest" and any(each in conditional for each, _ in messages_there):
            raise ProtocolError(
                "unsupported",
                f"expected-offset is not allowed in a transaction with messages to {queue.name[:200]!r}",
                "Its rule has on_full: drop_newest, so the offsets of the transaction are not known.",
            )


def _check_limits(session: Session, prepared: Prepared, now_ns: MonoNs) -> None:
    """Check the messages against the limits of queues and the rates of rules. ``Wait`` concerns all of them."""
    rated: dict[int, tuple[Policy, int]] = {}
    for destination, (count, size) in prepared.sent.items():
        if destination.queue is not None:
            admission.require_room(destination.queue, count, size)
        policy = destination.policy
        if policy.settings.rate_messages is not None and not destination.name.startswith(TEMPORARY):
            _, before = rated.get(policy.rule_index, (policy, 0))
            rated[policy.rule_index] = (policy, before + count)
    if rated:
        admission.spend(session.buckets, rated, now_ns)


def _apply(
    broker: Services,
    session: Session,
    frame: Frame,
    transaction: Transaction,
    prepared: Prepared,
    unread: set[Partition],
) -> None:
    broker.budget.spend(len(prepared) // APPLIED_A_UNIT)
    broker.stats.count(duplicates=prepared.repeats)
    broker.stats.count(late_acks=prepared.late)
    _drop_newest(broker, prepared)
    firsts: dict[Partition, int] = {}  # offset of the first message there
    for partition, messages in prepared.messages.items():
        if partition in unread:
            broker.stats.count(dropped_replies=len(messages.run))
        elif messages.run:
            firsts[partition] = _append(broker, partition, messages)
    for subscription, acked in prepared.acked.items():
        settlement.take_acked(broker, subscription, acked.keys)
    refused = [(each, settlement.take_refused(broker, each, keys), why) for each, keys, why in prepared.refused]
    waited: list[list[object]] = [partition.open_batch.waiters for partition in firsts]
    for source, offsets in prepared.settled.items():
        source.traffic.settled(len(offsets))
    waited += _settle_together(broker, firsts, prepared.settled, transaction.name)
    given_back: list[Any] = []  # settled when the refused messages are returned
    if refused:
        waited.append(given_back)
    if frame.receipt is None:
        session.receipts.silently_after(waited)
    else:
        waited += broker.cursor_waiters(prepared.acked_late) + broker.dead_letters.waiter_lists()
        session.receipts.after(frame.receipt, waited)
    for queue, messages_there in prepared.dropping.items():
        if queue.settings.on_full == "drop_oldest":
            broker.background.add(_drop_oldest(broker, queue, messages_there[-1][0]))
    broker.background.add(_finish(broker, transaction, refused, given_back))


def _append(broker: Services, partition: Partition, messages: Messages) -> int:
    """Append the messages of a log, into one batch if possible, which is all or nothing on disk.

    Returns:
        The offset of the first.
    """
    run = messages.run
    partition.make_room(len(run), run.size_bytes)
    first = append_run(broker, partition, run, broker.timing.now.wall, messages.copies, messages.copied_bytes)
    for queue, count in messages.waiting.items():
        queue.appended(partition, count)
    for queue, (numbers, dues) in messages.dues.items():
        queue.note_delays(partition, [first + number for number in numbers], dues)
    return first


def _drop_newest(broker: Services, prepared: Prepared) -> None:
    """Remove the messages for which a queue with ``on_full: drop_newest`` has no room."""
    left_out: dict[Messages, set[int]] = {}
    for queue, messages_there in prepared.dropping.items():
        if queue.settings.on_full != "drop_newest":
            continue
        most, most_bytes = admission.room(queue)
        kept = 0
        for partition, number in messages_there:
            most -= 1
            most_bytes -= len(prepared.messages[partition].run.bodies[number])
            if most < 0 or most_bytes < 0:
                break  # later messages must not overtake a dropped one
            kept += 1
        for partition, number in messages_there[kept:]:
            messages = prepared.messages[partition]
            messages.waiting[queue] -= 1
            left_out.setdefault(messages, set()).add(number)
        broker.stats.count(dropped_newest=len(messages_there) - kept)
    for messages, numbers in left_out.items():
        broker.budget.spend(len(messages.run) // APPLIED_A_UNIT)
        messages.remove(numbers)


def _drop_oldest(broker: Services, queue: Queue, partition: Partition) -> Steps:
    """Drop the oldest messages of a queue beyond its limit, in steps, but not the newest, in ``partition``."""
    while admission.trim_one(queue, partition):
        broker.stats.count(dropped_oldest=1)
        broker.budget.spend(DROP_UNITS)
        yield True


def _finish(
    broker: Services,
    transaction: Transaction,
    refused: list[tuple[Subscription, list[InFlight], Refusal]],
    waiters: list[object],
) -> Steps:
    """Return the messages that the transaction refuses, in steps, also if the connection is lost meanwhile.

    The waiters are settled once that is stored.
    """
    done = AllOf(waiters)
    for subscription, taken, refusal in refused:
        for part in broker.budget.portions(taken):
            with broker.internal_errors:
                broker.returns.refused(subscription, part, refusal, transaction.name)
            done.wait_for(broker.cursor_waiters(False) + broker.dead_letters.waiter_lists())
            yield True
    done.settle()
    yield from transactional_acks.release(broker, transaction)
    transactions.free(broker, transaction)


def _settle_together(
    broker: Services, firsts: dict[Partition, int], acked: dict[QueueSource, list[int]], name: str
) -> list[list[object]]:
    """Apply acknowledgements: at once, or when the store has decided that the whole transaction holds.

    The store decides if cursors and messages of the transaction are in several files or batches.

    Returns:
        The lists to which a receipt adds itself to wait for the decision.
    """
    stored = {source: offsets for source, offsets in acked.items() if source.cursor.stored}
    files = [each for each in firsts if is_stored(each)]
    apart = len(files) + bool(stored) < 2 and not is_split(firsts)
    for source, offsets in acked.items():
        if apart or source not in stored:
            source.settle(offsets, ACKED, name)
    if apart:
        return []

    def decided(holds: bool) -> None:
        for source, offsets in stored.items():
            if holds:
                source.settled_in_journal(offsets)
            else:
                broker.returns.back(source, offsets)

    acks = [(source.cursor, offsets) for source, offsets in stored.items()]
    broker.delivery_log.add(stored, ACKED, name)
    broker.store.together(files, acks, decided)
    return [broker.store.transaction_waiters]
