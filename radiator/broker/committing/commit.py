"""COMMIT: everything is checked before anything happens, then all of it happens in one turn.

    prepare     find out what it would do, in as many turns as that takes (``prepared``)
    check       whether that is still so, whether anything refuses it; here it may wait for the disk (``waits``)
    happen      append a run to each log, settle what is acknowledged, take what is refused (NACK) from its consumer:
                a few calls, however many messages
    afterwards  in the background: what is refused goes back, or to the dead letters; what queues have no room for goes

Only the third step has to be one: nobody sees a part of it, and what of it goes to files is all or nothing there. It is
the one step of the broker that may be larger than the budget of a turn: 10 to 20 ms for the 65,536 frames that
``limits.transaction`` lets in at most.

Knows: what was prepared, limits. Must not know: frames' headers.
Invariant: a COMMIT that is refused has changed nothing but that destinations exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from radiator.broker import throttle
from radiator.broker.clients.receipts import AllOf
from radiator.broker.committing import waits
from radiator.broker.committing.prepared import Prepared
from radiator.broker.publishing.sending import (
    append_run,
    no_memory,
    no_route,
    require_room_for_delay,
    require_subscriber,
)
from radiator.broker.queues import overflow
from radiator.broker.settling import settlement
from radiator.broker.transactions import transactional_acks, transactions
from radiator.errors import StorageError
from radiator.routing.rules import TEMPORARY
from radiator.storage.memory import MemoryPartition

if TYPE_CHECKING:
    from radiator.broker.budget import Steps
    from radiator.broker.clients.session import InFlight, Session, Subscription, Transaction
    from radiator.broker.committing.prepared import Messages
    from radiator.broker.outcomes.returning import Refusal
    from radiator.broker.queues.queue import Queue, QueueSource
    from radiator.broker.services import Services
    from radiator.clock import MonoNs
    from radiator.routing.policy import Policy
    from radiator.stomp.frames import Frame
    from radiator.storage.partition import Partition
    from radiator.storage.turn import Place

DROP_UNITS = 4  # of a message that is given up
APPLIED_A_UNIT = 8  # messages, and deliveries that are answered


def commit(broker: Services, session: Session, frame: Frame, name: str) -> Steps:
    """COMMIT of the transaction ``name``. The RECEIPT waits for all of it. Raises ProtocolError, or Wait: then it comes
    again."""
    transaction = transactions.committing(broker, session, name)
    while True:
        prepared = Prepared(broker, session)
        yield from prepared.steps(transaction)
        if len(prepared) // APPLIED_A_UNIT > broker.budget.left:
            broker.budget.give_way()  # as much of a turn as it needs
            yield True
        while prepared.holds():
            unread = _check(broker, session, transaction, prepared)
            if unread is not None:
                transactions.end(broker, session, name)
                _apply(broker, session, frame, transaction, prepared, unread)
                return
            yield from waits.wait(transaction)


def _check(broker: Services, session: Session, transaction: Transaction, prepared: Prepared) -> set[Partition] | None:
    """Whether it can happen now. Raises ProtocolError and StorageError if something refuses it, and Wait.

    Returns:
        The logs of temporary queues that nobody reads: what goes there is dropped. None: the COMMIT has to wait for the
        disk first.
    """
    now, unread = broker.timing.now, set()
    for partition, messages in prepared.messages.items():
        plan = messages.plan
        if broker.files_refused is not None and messages.run and plan.destination.policy.settings.store == "file":
            raise broker.files_refused
        try:
            partition.check()
        except StorageError as error:
            if not plan.name.startswith(TEMPORARY):
                raise no_memory(broker, plan, partition, error) from error
            if plan.destination in prepared.mandatory:
                raise no_route(plan.name) from error
            unread.add(partition)
        for queue in messages.dues:
            require_room_for_delay(queue)
    for destination in prepared.mandatory:
        require_subscriber(destination)
    places: dict[Place, None] = {}
    for partition, offset in prepared.repeated.items():
        place = partition.wait_point(offset, synced=True)
        if place is not None:
            places[place] = None
    if waits.request_syncs(transaction, places) or waits.request_files(transaction, prepared.messages):
        return None
    _check_limits(session, prepared, now.mono)
    return unread


def _check_limits(session: Session, prepared: Prepared, now_ns: MonoNs) -> None:
    """Check all that a COMMIT sends against the limits of destinations and rules. Raises ProtocolError, or Wait: then
    the whole transaction waits."""
    rated: dict[int, tuple[Policy, int]] = {}
    for destination, (count, size) in prepared.sent.items():
        if destination.queue is not None:
            overflow.require_room(destination.queue, count, size)
        policy = destination.policy
        if policy.settings.rate_messages is not None and not destination.name.startswith(TEMPORARY):
            _, before = rated.get(policy.rule_index, (policy, 0))
            rated[policy.rule_index] = (policy, before + count)
    if rated:
        throttle.spend(session.buckets, rated, now_ns)


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
    waited += _settle_together(broker, firsts, prepared.settled)
    given_back: list[Any] = []  # told when that is done
    if refused:
        waited.append(given_back)
    if frame.receipt is None:
        session.receipts.silently_after(waited)
    else:
        waited += broker.cursor_waiters(prepared.acked_late) + broker.dead_letters.waited()
        session.receipts.after(frame.receipt, waited)
    for queue, messages_there in prepared.dropping.items():
        if queue.settings.on_full == "drop_oldest":
            broker.background.add(_drop_oldest(broker, queue, messages_there[-1][0]))
    broker.background.add(_finish(broker, transaction, refused, given_back))


def _append(broker: Services, partition: Partition, messages: Messages) -> int:
    """Into one batch, if one can hold them: that is all or nothing on disk. Returns the offset of the first."""
    run = messages.run
    partition.make_room(len(run), run.size_bytes)
    first = append_run(broker, partition, run, broker.timing.now.wall)
    for queue, count in messages.waiting.items():
        queue.appended(partition, count)
    for queue, (numbers, dues) in messages.dues.items():
        queue.note_delays(partition, [first + number for number in numbers], dues)
    return first


def _drop_newest(broker: Services, prepared: Prepared) -> None:
    """The messages for which a queue that drops the newest has no room are none of the transaction's any more."""
    left_out: dict[Messages, set[int]] = {}
    for queue, messages_there in prepared.dropping.items():
        if queue.settings.on_full != "drop_newest":
            continue
        most, most_bytes = overflow.room(queue)
        kept = 0
        for partition, number in messages_there:
            most -= 1
            most_bytes -= len(prepared.messages[partition].run.bodies[number])
            if most < 0 or most_bytes < 0:
                break  # nothing overtakes what is left out
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
    """Give up the oldest messages of a queue that has taken more than it has room for, but not the newest, which is in
    ``partition``."""
    while overflow.trim_one(queue, partition):
        broker.stats.count(dropped_oldest=1)
        broker.budget.spend(DROP_UNITS)
        yield True


def _finish(
    broker: Services,
    transaction: Transaction,
    refused: list[tuple[Subscription, list[InFlight], Refusal]],
    waiters: list[object],
) -> Steps:
    """Give back what the transaction refuses, whether or not the connection is lost meanwhile. ``waiters`` are called
    once that is stored, as far as it has to be."""
    done = AllOf(waiters)
    for subscription, taken, refusal in refused:
        for part in broker.budget.portions(taken):
            with broker.internal_errors:
                broker.returns.refused(subscription, part, refusal)
            done.wait_for(broker.cursor_waiters(False) + broker.dead_letters.waited())
            yield True
    done.settle()
    yield from transactional_acks.ended(broker, transaction)
    transactions.free(broker, transaction)


def _settle_together(
    broker: Services, firsts: dict[Partition, int], acked: dict[QueueSource, list[int]]
) -> list[list[object]]:
    """Lets ACKs take effect: at once; or, where they and the messages of their transaction are kept in several files or
    batches, when the store has decided that all of it holds. Returns where a receipt has to wait for that."""
    stored = {source: offsets for source, offsets in acked.items() if source.cursor.stored}
    files = {each: first for each, first in firsts.items() if not isinstance(each, MemoryPartition)}
    split = any(each.open_batch.base_offset > first for each, first in files.items())
    apart = len(files) + bool(stored) < 2 and not split
    for source, offsets in acked.items():
        if apart or source not in stored:
            source.settle(offsets)
    if apart:
        return []

    def decided(holds: bool) -> None:
        for source, offsets in stored.items():
            if holds:
                source.settle(offsets)
                source.flush()  # a snapshot of the cursors, which may replace what the journal has, must have it
            else:
                broker.returns.back(source, offsets)

    acks = [(source.cursor, offsets) for source, offsets in stored.items()]
    broker.store.together(files, acks, decided)
    return [broker.store.transaction_waiters]
