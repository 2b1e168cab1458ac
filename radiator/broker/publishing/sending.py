"""The command SEND: the hot path.

The headers of a SEND are parsed once. The result, a *plan*, is stored in ``head.memo``, and all frames with the same
header block share their head (``radiator.stomp.heads``). So a repeated SEND costs one attribute look-up, an append to
the open batch and an entry in the receipt line (``send_plain``). Consecutive frames with the same head share even that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from radiator import limits
from radiator.broker import throttle
from radiator.broker.admin import channel
from radiator.broker.headers import scheduling
from radiator.broker.headers.flags import flag
from radiator.broker.headers.positions import parse_time
from radiator.broker.publishing import hooks, idempotence
from radiator.broker.queues import overflow
from radiator.broker.queues.overflow import Verdict
from radiator.broker.settling import settlement
from radiator.broker.subscribing import subscribing, temporary
from radiator.broker.throttle import Wait
from radiator.broker.transactions import transactions
from radiator.clock import NS_PER_MS, Now, WallNs
from radiator.errors import MemoryFull, ProtocolError, StorageError
from radiator.memory import MESSAGES
from radiator.routing.pattern import is_pattern
from radiator.routing.rules import TEMPORARY
from radiator.speed import accelerated
from radiator.stomp.headers import escape, stored_block
from radiator.stomp.ordinary import same_head_run
from radiator.storage.batch import RECORD_OVERHEAD_BYTES, Run

if TYPE_CHECKING:
    from radiator.broker.budget import Steps
    from radiator.broker.clients.receipts import ReceiptLine
    from radiator.broker.clients.session import Session
    from radiator.broker.destinations.destination import Destination
    from radiator.broker.logs.feed import Feed
    from radiator.broker.queues.queue import Queue
    from radiator.broker.services import Services
    from radiator.routing.rights import Rights
    from radiator.stomp.frames import Frame, Head
    from radiator.storage.dedup import Dedup
    from radiator.storage.partition import Partition

INDEXED_TOGETHER = 32  # message ids of a transaction that enter the index in one step
INDEXED_A_UNIT = 2
RESERVED_PREFIX = "/radiator/"
HEADERS = idempotence.HEADERS
PLAIN_MAX = 32  # messages between two checks of the time: about 60 us
RUN_MAX = 256  # the same for messages with one head


class Plan:
    """The meaning of a SEND's header block, under one generation of the rules.

    Args:
        generation: The generation of the rules.
        destination: The destination.
        head: The head of the SEND.
        rights: The rights of the session, which were checked.

    Attributes:
        name: The name of the destination.
        feed: The partition; None if each message goes to the next one.
        block: The stored header block.
        identity: For deduplication; None if the message has none.
        event_ns: ``event-time`` in nanoseconds since 1970, or None.
        transmit_ns: ``transmit-time`` in nanoseconds since 1970, or None.
        sync: The RECEIPT waits for fsync.
        mandatory: The destination needs a subscriber.
        counted: The queue whose limits apply; None if it has none.
        due_ns: The message is not delivered before this time, in nanoseconds since 1970; 0: at once.
        rated: The rule limits the rate.
        special: The SEND needs more than an append and a receipt.
        plain: ``send_plain`` may send it.

    Raises:
        ProtocolError: A header is bad.
    """

    __slots__ = (
        "block",
        "counted",
        "destination",
        "due_ns",
        "event_ns",
        "feed",
        "generation",
        "identity",
        "mandatory",
        "name",
        "plain",
        "rated",
        "rights",
        "special",
        "sync",
        "transmit_ns",
    )

    def __init__(self, generation: int, destination: Destination, head: Head, rights: Rights) -> None:
        headers = head.headers
        self.generation = generation
        self.rights = rights  # those that were checked last
        self.destination = destination
        self.name = destination.name
        self.feed: Feed | None = destination.choose(headers)
        self.identity: bytes | None = None
        if not HEADERS.isdisjoint(headers) and destination.policy.settings.dedup_window_ns is not None:
            self.identity = idempotence.identity_of(self.name, headers)
            if self.identity is not None:
                self.feed = self.feed or idempotence.feed_for(destination, headers)
        self.block = stored_block(head)
        self.event_ns = _time_header(headers, "event-time")
        self.transmit_ns = _time_header(headers, "transmit-time")
        self.sync = headers.get("durability") == "fsync"
        self.mandatory = flag(headers, "mandatory") is True
        policy = destination.policy
        limited = policy.settings.max_messages is not None or policy.settings.max_bytes is not None
        self.counted: Queue | None = destination.queue if limited else None
        self.due_ns = WallNs(0)
        self.rated = policy.settings.rate_messages is not None and not self.name.startswith(TEMPORARY)
        # Anything but an append with or without a receipt takes the slow path.
        self.special = self.sync or self.mandatory or limited or self.rated
        self.plain = not self.special and self.identity is None


def send(broker: Services, session: Session, frame: Frame, now: Now) -> None:
    """Process a SEND: append the message to the open batch of its partition. The RECEIPT waits for that batch.

    Args:
        broker: The services of the broker.
        session: The session that sends.
        frame: The SEND.
        now: The current time.

    Raises:
        ProtocolError: The message is refused.
        StorageError: The partition cannot be written.
        Wait: There is no room now; the frame is processed again later.
    """
    head = frame.head
    plan = head.memo
    if plan is None or plan.generation != broker.generation:
        if not session.connected:
            raise not_connected("SEND")
        if broker.hooks and frame is not broker.throttle.passed:
            passed = hooks.pass_through(broker, session, frame)
            if passed is None:
                return
            frame = passed
        plan = _plan(broker, session, frame, now)
        if plan is None:
            return
    elif plan.rights is not session.rights:  # the plan of another user: its meaning is the same, the right is not
        session.require("write", plan.name)
        plan.rights = session.rights
    if plan.identity is not None and _answer_duplicate(broker, session, plan, frame, now.wall):
        return
    if broker.files_refused is not None and plan.destination.policy.settings.store == "file":
        raise broker.files_refused
    if plan.special:
        try:
            verdict = _admit(plan, frame)
            if plan.rated:
                policy = plan.destination.policy
                throttle.spend(session.buckets, {policy.rule_index: (policy, 1)}, now.mono)
        except Wait as wait:
            wait.hold(frame)
            raise
        if verdict is not Verdict.STORE and not _make_room(broker, session, plan, frame, verdict):
            return
    feed = plan.feed or plan.destination.next_feed()
    try:
        offset = _append(broker, plan, feed.partition, frame.body, now.wall)
    except StorageError as error:
        if not plan.name.startswith(TEMPORARY):
            raise no_memory(broker, plan, feed.partition, error, frame) from error
        drop_reply(broker, session, frame)  # the owner of the queue does not read it; the sender is not at fault
        return
    batch = feed.partition.open_batch
    if frame.receipt is not None:
        suffix = plan.destination.receipt_suffix(feed, session.version)
        broker.count_pending(session.receipts.stored(frame.receipt, offset, batch, suffix))
    elif batch is not session.receipts.quiet:
        session.receipts.silently(batch)


def send_plain(broker: Services, session: Session, frames: list[Frame], start: int, now: Now) -> int:
    """Send frames whose plans are known and plain.

    Args:
        broker: The services of the broker.
        session: The session that the frames came from.
        frames: The received frames.
        start: The index of the first frame that has not been processed.
        now: The current time.

    Returns:
        The number of frames that were sent, as ``send`` would have sent each: those before the first that needs
        ``send``.
    """
    if broker.files_refused is not None:
        return 0
    generation, rights, version, receipts = broker.generation, session.rights, session.version, session.receipts
    stop = min(start + PLAIN_MAX, len(frames))
    index, body_bytes, weight = append_plain(frames, start, stop, generation, rights, version, receipts, now.wall)
    if start < index < len(frames) and frames[index].head is frames[index - 1].head:
        sent, size_bytes, weight_more = _append_same_head(frames, index, version, receipts, now.wall)
        index += sent
        body_bytes += size_bytes
        weight += weight_more
    broker.stats.add_messages(index - start, body_bytes)
    broker.count_pending(weight)
    return index - start


@accelerated
def append_plain(
    frames: list[Frame],
    start: int,
    stop: int,
    generation: int,
    rights: Rights,
    version: str,
    receipts: ReceiptLine,
    now_ns: WallNs,
) -> tuple[int, int, int]:
    """Append the messages of plain frames to the open batches. A compiled twin exists (``radiator/speed.py``).

    It ends before a frame without a plain plan or whose message is refused, and after a frame whose head the next frame
    shares.

    Args:
        frames: The received frames.
        start: The index of the first frame that has not been processed.
        stop: The index before which it ends.
        generation: The generation of the rules.
        rights: The rights of the session.
        version: The STOMP version of the session.
        receipts: The receipt line of the session.
        now_ns: The current time, in nanoseconds since 1970.

    Returns:
        The index of the first frame that was not appended, the bytes of the appended bodies, and the bytes of memory
        that messages and receipts take.
    """
    index, count = start, len(frames)
    body_bytes = weight = 0
    while index < stop:
        frame = frames[index]
        head = frame.head
        plan = head.memo
        if plan is None or not plan.plain or plan.generation != generation or plan.rights is not rights:
            break
        feed = plan.feed or plan.destination.only_feed
        if feed is None:
            break
        partition, body, block = feed.partition, frame.body, plan.block
        try:
            offset = partition.append(plan.name, block, body, now_ns, plan.event_ns, plan.transmit_ns)
        except (StorageError, ValueError):
            break  # ``send`` meets the same error and reports it
        weight += len(body) + len(block) + RECORD_OVERHEAD_BYTES
        body_bytes += len(body)
        place = partition.open_batch
        if frame.receipt is not None:
            weight += receipts.stored(frame.receipt, offset, place, plan.destination.receipt_suffix(feed, version))
        elif place is not receipts.quiet:
            receipts.silently(place)
        index += 1
        if index < count and frames[index].head is head:
            break
    return index, body_bytes, weight


def _append_same_head(
    frames: list[Frame], start: int, version: str, receipts: ReceiptLine, now_ns: WallNs
) -> tuple[int, int, int]:
    """Append the messages of frames with the same head as the frame before, which was appended.

    Returns:
        The number of messages, the bytes of their bodies, and the bytes of memory that they and their receipts take.
        All are 0 if the open batch has no room.
    """
    plan = frames[start].head.memo
    feed = plan.feed or plan.destination.only_feed
    partition, block = feed.partition, plan.block
    place = partition.open_batch
    bodies, ids, size_bytes = same_head_run(frames, start, RUN_MAX)
    first = partition.append_many(plan.name, block, bodies, size_bytes, now_ns, plan.event_ns, plan.transmit_ns)
    if first is None:
        return 0, 0, 0
    weight = size_bytes + len(bodies) * (len(block) + RECORD_OVERHEAD_BYTES)
    if ids:
        weight += receipts.stored_many(ids, first, place, plan.destination.receipt_suffix(feed, version))
    elif place is not receipts.quiet:
        receipts.silently(place)
    return len(bodies), size_bytes, weight


def _answer_duplicate(broker: Services, session: Session, plan: Plan, frame: Frame, now_ns: WallNs) -> bool:
    """Answer a repeated message with the receipt of the first one, once that is as durable as this one requires.

    Returns:
        False if the message is new.
    """
    feed, identity = plan.feed, plan.identity
    assert feed is not None and identity is not None
    partition = feed.partition
    first = partition.find_duplicate(identity, now_ns)
    if first is None:
        return False
    broker.stats.count(duplicates=1)
    place = partition.wait_point(first, synced=plan.sync)
    if frame.receipt is not None:
        if place is None:
            name = escape(partition.name, session.version).encode()
            session.receipts.now(b"%b\noffset:%d\npartition:%b\nduplicate:true" % (frame.receipt, first, name))
        else:
            suffix = plan.destination.duplicate_suffix(feed, session.version)
            broker.count_pending(session.receipts.stored(frame.receipt, first, place, suffix))
    elif place is not None:
        session.receipts.silently(place)
    return True


def no_memory(
    broker: Services, plan: Plan, partition: Partition, error: StorageError, frame: Frame | None = None
) -> Exception:
    """Return the error for a partition that has no room in memory.

    Args:
        broker: The services of the broker.
        plan: The plan of the message.
        partition: The partition.
        error: The error of the append.
        frame: The frame that waits; None for a COMMIT.

    Returns:
        A Wait if other clients may free the memory, or else ``error``.
    """
    if not isinstance(error, MemoryFull):
        return error
    if error.everywhere:
        broker.memory_watch.met(broker.memory.shares[MESSAGES])
    wait = overflow.no_memory(plan.destination.policy, partition, error, error.everywhere)
    if wait is None:
        return error
    wait.hold(frame)
    return wait


def _append(broker: Services, plan: Plan, partition: Partition, body: bytes, now_ns: WallNs) -> int:
    """Append a message to the open batch of its partition, and count it.

    Returns:
        Its offset.
    """
    offset = partition.append(plan.name, plan.block, body, now_ns, plan.event_ns, plan.transmit_ns)
    size = len(body)
    broker.stats.add_messages(1, size)
    broker.count_pending(size + len(plan.block) + RECORD_OVERHEAD_BYTES)
    if plan.identity is not None:
        partition.remember(plan.identity, offset)
    if plan.special:
        if plan.sync:
            partition.open_batch.request_sync()
        if plan.counted is not None:
            plan.counted.appended(partition, 1)
        if plan.due_ns and plan.destination.queue is not None:
            plan.destination.queue.note_delays(partition, [offset], [plan.due_ns])
    return offset


def append_run(broker: Services, partition: Partition, run: Run, now_ns: WallNs) -> int:
    """Append the messages of a transaction to one partition, and count them.

    Args:
        broker: The services of the broker.
        partition: The partition.
        run: The messages.
        now_ns: The current time, in nanoseconds since 1970.

    Returns:
        The offset of the first.
    """
    first = partition.extend(run, now_ns)
    count = len(run)
    broker.stats.add_messages(count, run.body_bytes)
    broker.count_pending(run.size_bytes + RECORD_OVERHEAD_BYTES * count)
    if run.ids and partition.dedup is not None:
        broker.background.add(_indexed(broker, partition.dedup))
    return first


def _indexed(broker: Services, dedup: Dedup) -> Steps:
    while dedup.index(INDEXED_TOGETHER):
        broker.budget.spend(INDEXED_TOGETHER // INDEXED_A_UNIT)
        yield True


def _plan(broker: Services, session: Session, frame: Frame, now: Now) -> Plan | None:
    """Return the plan of a SEND; None if the frame was processed here."""
    head = frame.head
    headers = head.headers
    name = headers.get("destination")
    if not name:
        raise ProtocolError("bad-destination", "SEND needs a destination", "Expected a header destination:<name>.")
    if name == settlement.TOUCH:
        session.run(broker.budget, settlement.touch(broker, session, session.locate(frame), frame.receipt))
        return None
    if name == channel.DESTINATION:
        session.run(broker.budget, channel.ask(broker, session, frame, now))
        return None
    transaction = headers.get("transaction")
    if transaction is not None:
        _check_send(session, name, headers)
        transactions.add(broker, session, transaction, frame)
        if frame.receipt is not None:
            session.receipts.now(frame.receipt)
        return None
    return plan_for(broker, session, frame, name)


def plan_for(broker: Services, session: Session, frame: Frame, name: str) -> Plan | None:
    """Return the plan of a SEND, and store it in the head if every SEND with this head has the same plan.

    Args:
        broker: The services of the broker.
        session: The session that sends.
        frame: The SEND.
        name: Its destination.

    Returns:
        None if the message was dropped, because its temporary queue does not exist.

    Raises:
        ProtocolError: The message is refused.
    """
    head = frame.head
    _check_send(session, name, head.headers)
    is_temporary = name.startswith(TEMPORARY)
    reply_to = head.headers.get("reply-to", "")
    if is_temporary:
        given, name = name, temporary.name_of(session, name)
        there = name in broker.destinations
        if not (temporary.may_send(broker, session, given) if there else temporary.is_own(session, given)):
            drop_reply(broker, session, frame)
            return None
        if not there:
            temporary.keep(broker, session, name)
    plan = Plan(broker.generation, broker.creation.receiver(name), head, session.rights)
    own = ""
    if reply_to.startswith(TEMPORARY):
        own = subscribing.own_reply_queue(broker, session, reply_to)
        if own:
            plan.block = _replace_header(plan.block, "reply-to", temporary.address_of(session, own))
    delay = _apply_schedule(plan, head.headers, broker.timing.shown_ns)
    if (
        not (delay or is_temporary or own)
        and plan.identity is None
        and "transaction" not in head.headers
        and plan.destination.policy.rule_index not in broker.hooks
    ):
        head.remember(plan)
    return plan


def no_route(name: str) -> ProtocolError:
    """Return the error of a mandatory message to a destination without a subscriber."""
    return ProtocolError(
        "no-route", f"nobody is subscribed to {name[:200]}", "The message has mandatory:true and was not stored."
    )


def _apply_schedule(plan: Plan, headers: Mapping[str, str], now_ns: WallNs) -> bool:
    """Apply the headers of a scheduled message to its plan.

    Returns:
        True if the due time depends on the current time, so the plan cannot be shared.
    """
    if scheduling.HEADERS.isdisjoint(headers):
        return False
    due_ms = scheduling.check(headers, now_ns)
    if due_ms is None:
        return False
    if plan.destination.queue is None and scheduling.is_none(headers):
        plan.block = scheduling.bare(plan.block)
        return False
    if plan.destination.queue is None:
        if plan.destination.policy.kind == "queue":
            raise ProtocolError(
                "unsupported",
                f"a delay has no meaning on {plan.name[:200]!r}, which is a queue with fan_out",
                "Its messages are read by the queues that it feeds; send those with a delay to these.",
            )
        raise ProtocolError(
            "unsupported",
            f"a delay has no meaning on {plan.name[:200]!r}, which is a topic",
            "A topic is a log that everybody reads in its order; delay and deliver-at are for queues.",
        )
    plan.block = scheduling.stamp(plan.block, due_ms)
    plan.due_ns = WallNs(due_ms * NS_PER_MS)
    plan.special = True
    return True


def drop_reply(broker: Services, session: Session, frame: Frame) -> None:
    """Count a message to a temporary queue that does not exist, or is full without a reader, and send its RECEIPT.

    Raises:
        ProtocolError: ``no-route``, if the message is mandatory.
    """
    if flag(frame.head.headers, "mandatory"):
        raise no_route(temporary.without_secret(frame.head.headers["destination"]))
    broker.stats.count(dropped_replies=1)
    if frame.receipt is not None and "transaction" not in frame.head.headers:
        session.receipts.now(frame.receipt + b"\ndropped:true")


def _check_send(session: Session, name: str, headers: Mapping[str, str]) -> None:
    name = temporary.without_secret(name)
    if is_pattern(name):
        raise ProtocolError(
            "bad-destination",
            f"a message cannot be sent to a pattern: {name[:200]!r}",
            "Expected one concrete name; *, > and # as whole segments, and commas, are for SUBSCRIBE.",
        )
    if name.startswith(RESERVED_PREFIX):
        raise ProtocolError("bad-destination", f"{name[:200]!r} is reserved", "Names under it are the broker's own.")
    if name != name.strip(" "):
        raise ProtocolError(
            "bad-destination",
            f"a destination has no blanks around it: {name[:200]!r}",
            f"STOMP 1.1 and 1.2 do not trim headers: write destination:{name.strip(' ')[:200]}, without a blank.",
        )
    if "\0" in name:
        raise ProtocolError("bad-destination", "a destination cannot contain NUL")
    session.require("write", name)
    flag(headers, "mandatory")
    durability = headers.get("durability")
    if durability not in (None, "fsync"):
        raise ProtocolError("bad-header", f"header durability: expected fsync, got {durability[:100]!r}")


def require_subscriber(destination: Destination) -> None:
    """Check that a mandatory message has a subscriber.

    Raises:
        ProtocolError: ``no-route``, if the destination has none.
    """
    if destination.subscribers == 0:
        raise no_route(destination.name)


def require_room_for_delay(queue: Queue) -> None:
    """Check that another message can be scheduled.

    Raises:
        ProtocolError: ``full``, if too many messages are scheduled in the broker.
    """
    if queue.timing.full:
        raise ProtocolError(
            "full",
            "too many messages wait for their time",
            f"The broker keeps {limits.DEFERRED_MAX} of them at most (DEFERRED_MAX), and takes no more with a delay.",
        )


def _admit(plan: Plan, frame: Frame) -> Verdict:
    """Check what only some destinations or messages need. Changes nothing.

    Raises:
        ProtocolError: The message is refused.
        Wait: The queue has no room.
    """
    if plan.mandatory:
        require_subscriber(plan.destination)
    if plan.due_ns and plan.destination.queue is not None:
        require_room_for_delay(plan.destination.queue)
    if plan.counted is None:
        return Verdict.STORE
    return overflow.judge(plan.counted, len(frame.body))


def _make_room(broker: Services, session: Session, plan: Plan, frame: Frame, verdict: Verdict) -> bool:
    """Apply a verdict of ``_admit`` that drops a message.

    Returns:
        False if this message is the dropped one; then it is counted and its RECEIPT is sent.
    """
    if verdict is Verdict.DROP_OLDEST and plan.counted is not None:
        broker.stats.count(dropped_oldest=overflow.make_room(plan.counted, len(frame.body)))
    elif verdict is Verdict.DROP_NEWEST:
        broker.stats.count(dropped_newest=1)
        if frame.receipt is not None and "transaction" not in frame.head.headers:  # a transaction has sent it already
            session.receipts.now(frame.receipt + b"\ndropped:true")
        return False
    return True


def _time_header(headers: Mapping[str, str], header: str) -> int | None:
    text = headers.get(header)
    if text is None:
        return None
    time_ns = parse_time(text)
    if time_ns is None:
        raise ProtocolError(
            "bad-time",
            f"header {header}: not a time: {text[:100]!r}",
            "Expected nanoseconds since 1970-01-01 UTC in decimal, or RFC 3339 such as 2013-01-01T05:15:00Z.",
        )
    return time_ns


def _replace_header(block: bytes, name: str, value: str) -> bytes:
    head = name.encode() + b":"
    line = head + escape(value, "1.2").encode()
    return b"\n".join([line if each.startswith(head) else each for each in block.split(b"\n")])


def not_connected(command: str) -> ProtocolError:
    """Return the error of a frame before CONNECT."""
    return ProtocolError(
        "bad-command", f"{command[:50]} before CONNECT", "Expected CONNECT or STOMP as the first frame."
    )


def goes_to_disk(frame: Frame) -> bool:
    """Return True if a frame may write to the disk, as far as its head shows."""
    if frame.head.command != "SEND":
        return frame.head.command == "COMMIT"
    plan = frame.head.memo
    return plan is None or plan.destination.policy.settings.store == "file"
