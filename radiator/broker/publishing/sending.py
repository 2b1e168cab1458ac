"""The command SEND: the hot path.

The headers of a SEND are parsed once. The result, a *plan*, is stored in ``head.memo``, and all frames with the same
header block share their head (``radiator.stomp.heads``). So a repeated SEND costs one attribute look-up, an append to
the open batch and an entry in the receipt line (``send_plain``). Consecutive frames with the same head share even that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from radiator.broker import admission
from radiator.broker.clients.receipts import PLAIN_SUFFIX
from radiator.broker.headers.send import DELAYS, IDENTITY, SendHeaders, identity_of
from radiator.broker.subscribing import subscribing, temporary
from radiator.clock import NS_PER_MS, Now, WallNs
from radiator.errors import Conflict, ProtocolError, StorageError
from radiator.routing.pattern import DELIVERIES
from radiator.routing.rules import TEMPORARY
from radiator.routing.template import DATE, dated
from radiator.speed import accelerated
from radiator.stomp.frames import Head
from radiator.stomp.headers import escape, join
from radiator.stomp.ordinary import same_head_run
from radiator.storage.batch import RECORD_OVERHEAD_BYTES, Run
from radiator.storage.memory import MemoryPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from radiator.broker.budget import Steps
    from radiator.broker.clients.receipts import ReceiptLine
    from radiator.broker.clients.session import Session
    from radiator.broker.destinations.destination import Destination
    from radiator.broker.logs.feed import Feed
    from radiator.broker.queues.queue import Queue
    from radiator.broker.services import Services
    from radiator.routing.rights import Rights
    from radiator.stomp.frames import Frame
    from radiator.storage.dedup import Dedup
    from radiator.storage.partition import Partition
    from radiator.storage.turn import Place

INDEXED_TOGETHER = 32  # message ids of a transaction that enter the index in one step
INDEXED_A_UNIT = 2
# Headers of a SEND that a copy does not have: conditions and times of the message itself, ids, and what the frame asks.
NOT_COPIED = frozenset(
    {
        "dedup-id",
        "sequence",
        "expected-offset",
        "durability",
        "expires",
        "message-ttl",
        "deliver-at",
        "mandatory",
        "partition",  # a number of the other log
        "transaction",
    }
).union(DELAYS)
PLAIN_MAX = 32  # messages between two checks of the time: about 60 us
RUN_MAX = 256  # the same for messages with one head


class Plan:
    """The meaning of a SEND's header block, under one generation of the rules.

    Args:
        generation: The generation of the rules.
        destination: The destination.
        headers: The headers of the SEND.
        reply_to: The address of the session's own queue for the answer; empty if the header is stored as it came.
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
        expected: The offset that the message must get, or None.
        due_ns: The message is not delivered before this time, in nanoseconds since 1970; 0: at once.
        rated: The rule limits the rate.
        special: The SEND needs more than an append and a receipt.
        plain: ``send_plain`` may send it.
        copies: The plans of the copies that ``archive:`` rules store.

    Raises:
        ProtocolError: The destination does not accept a header.
    """

    __slots__ = (
        "block",
        "copies",
        "counted",
        "destination",
        "due_ns",
        "event_ns",
        "expected",
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

    def __init__(
        self, generation: int, destination: Destination, headers: SendHeaders, reply_to: str, rights: Rights
    ) -> None:
        settings = destination.policy.settings
        identified = settings.dedup_window_ns is not None and not IDENTITY.isdisjoint(headers.fields)
        self.generation = generation
        self.rights = rights  # those that were checked last
        self.destination = destination
        self.name = destination.name
        due_ms = headers.due_ms
        if due_ms is not None and destination.queue is None:
            if not headers.at_once:
                raise destination.delay_refusal()
            due_ms = None
        self.identity = identity_of(self.name, headers.fields) if identified else None
        self.feed: Feed | None = destination.choose(headers.fields)
        if self.feed is None and self.identity is not None:
            self.feed = destination.feed_of(headers.identity_key)
        assert self.identity is None or self.feed is not None
        self.block = headers.block(due_ms, reply_to)
        self.event_ns = headers.event_ns
        self.transmit_ns = headers.transmit_ns
        self.sync = headers.sync
        self.mandatory = headers.mandatory
        counted = settings.max_messages is not None or settings.max_bytes is not None
        self.counted: Queue | None = destination.queue if counted else None
        self.due_ns = WallNs((due_ms or 0) * NS_PER_MS)
        self.rated = settings.rate_messages is not None and not self.name.startswith(TEMPORARY)
        self.expected = headers.expected
        if headers.expected is not None:
            self._check_expected(headers)
        # Anything but an append with or without a receipt takes the slow path.
        limited = self.counted is not None or self.rated
        self.special = self.sync or self.mandatory or limited or self.due_ns > 0 or self.expected is not None
        self.plain = not self.special and self.identity is None
        self.copies: tuple[Plan, ...] = ()

    def add_copies(self, copies: tuple[Plan, ...]) -> None:
        """Store copies with the message."""
        self.copies, self.plain = copies, False

    def _check_expected(self, headers: SendHeaders) -> None:
        """Check that the destination accepts ``expected-offset``: the broker knows which log the message goes to.

        Raises:
            ProtocolError: ``unsupported``.
        """
        name = self.name[:200]
        if self.destination.policy.fan_out:
            what, hint = f"{name!r}, which has fan_out", "Its log belongs to the queues in its fan_out."
        elif self.due_ns and not headers.at_once:
            what, hint = "a message with a delay", "Leave out the delay, or expected-offset."
        elif self.feed is None:
            what = f"{name!r}, which has {len(self.destination.feeds)} partitions, without a key"
            hint = "Send partition-key, or partition, so that the message has one log."
        else:
            return
        raise ProtocolError("unsupported", f"expected-offset is not allowed for {what}", hint)


def read_headers(broker: Services, session: Session, head: Head) -> SendHeaders:
    """Parse the headers of a SEND, and check the right of the session.

    Raises:
        ProtocolError: A header is bad, the destination is reserved, or the session may not send to it.
    """
    headers = SendHeaders(head, broker.timing.shown_ns, broker.timing.now.wall)
    if headers.name == DELIVERIES:
        raise ProtocolError(
            "bad-destination", f"{DELIVERIES!r} is reserved", "The broker writes it, for rules with record: deliveries."
        )
    session.identity.require("write", headers.name)
    return headers


def plan_for(broker: Services, session: Session, head: Head, headers: SendHeaders) -> Plan:
    """Return the plan of a SEND, and store it in the head if every SEND with this head has the same plan.

    Args:
        broker: The services of the broker.
        session: The session that sends.
        head: The head of the SEND.
        headers: Its headers (``read_headers``).

    Raises:
        Dropped: The temporary queue does not exist.
        ProtocolError: The message is refused.
    """
    name = temporary.receiver(broker, session, headers) if headers.is_temporary else headers.name
    reply_to = ""
    if headers.reply_to:
        own = temporary.reply_queue(broker, session, headers.reply_name)
        if own:
            reply_to = session.temporary.address_of(own)
            subscribing.take_replies(broker, session, headers.reply_to, own)
    plan = Plan(broker.generation, broker.creation.receiver(name), headers, reply_to, session.rights)
    if plan.destination.policy.copied_to:
        plan.add_copies(tuple(_plans_of_copies(broker, session, plan, head)))
    if (
        not (plan.due_ns or headers.expires_ms or headers.is_temporary or reply_to)
        and plan.identity is None
        and headers.transaction is None
        and "audit-log" not in headers.fields
        and plan.destination.policy.rule_index not in broker.hooks
        and not any(DATE in each for each in plan.destination.policy.copied_to)
    ):
        head.remember(plan)
    return plan


def _plans_of_copies(broker: Services, session: Session, plan: Plan, head: Head) -> Iterator[Plan]:
    """Yield the plan of each copy of a message, by the ``archive:`` rules that match its destination.

    Raises:
        ProtocolError: A target cannot be created, or does not accept a header.
    """
    fields = {name: value for name, value in head.headers.items() if name not in NOT_COPIED}
    targets = dict.fromkeys(dated(each, broker.timing.now.wall) for each in plan.destination.policy.copied_to)
    targets.pop(plan.name, None)  # the message itself was sent to the destination of the day
    for target in targets:
        own = {**fields, "destination": target, "archived-from": plan.name}
        copy = Head("SEND", own, join(own.items(), "1.2")[1:].encode(), "1.2", -1)
        headers = SendHeaders(copy, broker.timing.shown_ns, broker.timing.now.wall)
        yield Plan(plan.generation, broker.creation.receiver(target), headers, "", session.rights)


def send(broker: Services, session: Session, plan: Plan, frame: Frame, now: Now) -> None:
    """Store a message. The RECEIPT waits until it is stored; that of a repeated message waits for the first one.

    Args:
        broker: The services of the broker.
        session: The session that sends.
        plan: The plan of the SEND.
        frame: The SEND.
        now: The current time.

    Raises:
        Dropped: The message is dropped.
        ProtocolError: The message is refused.
        StorageError: The partition cannot be written.
        Wait: There is no room now; the frame is processed again later.
    """
    if plan.rights is not session.rights:  # the plan of another user: its meaning is the same, the right is not
        session.identity.require("write", plan.name)
        plan.rights = session.rights
    destination, feed, first = plan.destination, plan.feed, None
    place: Place | None
    if plan.identity is not None and feed is not None:
        first = feed.partition.find_duplicate(plan.identity, now.wall)
    if first is None and plan.copies:
        _send_with_copies(broker, session, plan, frame, now)
        return
    if first is None or feed is None:
        feed, offset = _append(broker, session, plan, frame.body, now)
        place, suffix = feed.partition.open_batch, destination.receipt_suffix
    else:
        broker.stats.count(duplicates=1)
        offset, place = first, feed.partition.wait_point(first, synced=plan.sync)
        suffix = destination.duplicate_suffix
    if frame.receipt is None:
        if place is not None and place is not session.receipts.quiet:
            session.receipts.silently(place)
    elif place is not None:
        weight = session.receipts.stored(frame.receipt, offset, place, suffix(feed, session.version))
        broker.count_pending(weight)
    else:  # the first one is stored already
        name = escape(feed.partition.name, session.version).encode()
        session.receipts.now(b"%b\noffset:%d\npartition:%b\nduplicate:true" % (frame.receipt, offset, name))


def _send_with_copies(broker: Services, session: Session, plan: Plan, frame: Frame, now: Now) -> None:
    """Store a message and its copies, all or none. The RECEIPT waits for all of them."""
    chosen: list[tuple[Plan, Partition]] = []
    for copy in plan.copies:
        destination, partition = copy.destination, (copy.feed or copy.destination.next_feed()).partition
        if broker.files_refused is not None and destination.policy.settings.store == "file":
            raise broker.files_refused
        try:
            partition.check()
        except StorageError as error:
            raise admission.not_stored(broker.memory_watch, destination, partition, error, False) from error
        chosen.append((copy, partition))
    feed, offset = _append(broker, session, plan, frame.body, now)
    firsts = {feed.partition: offset}
    for copy, partition in chosen:  # nothing can be refused any more
        number = partition.append(copy.name, copy.block, frame.body, now.wall, copy.event_ns, copy.transmit_ns)
        firsts.setdefault(partition, number)
        if copy.counted is not None:
            copy.counted.appended(partition, 1)
        broker.count_pending(len(frame.body) + len(copy.block) + RECORD_OVERHEAD_BYTES)
    broker.stats.count(messages_copied=len(chosen))
    waited = [partition.open_batch.waiters for partition in firsts]
    if is_split(firsts):
        broker.store.together([each for each in firsts if is_stored(each)], [], lambda _: None)
        waited.append(broker.store.transaction_waiters)
    if frame.receipt is None:
        session.receipts.silently_after(waited)
    else:
        suffix = plan.destination.receipt_suffix(feed, session.version).removesuffix(PLAIN_SUFFIX)
        session.receipts.after(b"%b\noffset:%d%b" % (frame.receipt, offset, suffix), waited)


def is_stored(partition: Partition) -> bool:
    """Return True if the messages of a log are on the disk."""
    return not isinstance(partition, MemoryPartition)


def is_split(firsts: Mapping[Partition, int]) -> bool:
    """Return True if messages that belong together are in several files or batches.

    Args:
        firsts: The offset of the first of them, by log.
    """
    files = [each for each in firsts if is_stored(each)]
    return len(files) > 1 or any(each.open_batch.base_offset > firsts[each] for each in files)


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


def _append(broker: Services, session: Session, plan: Plan, body: bytes, now: Now) -> tuple[Feed, int]:
    """Append a message to the open batch of its partition, if its limits admit it, and count it.

    Returns:
        The partition, and the offset of the message.
    """
    destination = plan.destination
    if broker.files_refused is not None and destination.policy.settings.store == "file":
        raise broker.files_refused
    size = len(body)
    if plan.special:
        if plan.expected is not None and plan.feed is not None:
            require_end(plan.feed.partition, plan.expected)
        buckets = session.buckets if plan.rated else None
        dropped = admission.admit(destination, size, plan.mandatory, plan.due_ns > 0, buckets, now.mono)
        if dropped:
            broker.stats.count(dropped_oldest=dropped)
    feed = plan.feed or destination.next_feed()
    partition = feed.partition
    try:
        offset = partition.append(plan.name, plan.block, body, now.wall, plan.event_ns, plan.transmit_ns)
    except StorageError as error:
        raise admission.not_stored(broker.memory_watch, destination, partition, error, plan.mandatory) from error
    broker.stats.add_messages(1, size)
    broker.count_pending(size + len(plan.block) + RECORD_OVERHEAD_BYTES)
    if plan.identity is not None:
        partition.remember(plan.identity, offset)
    if plan.special:
        if plan.sync:
            partition.open_batch.request_sync()
        if plan.counted is not None:
            plan.counted.appended(partition, 1)
        if plan.due_ns and destination.queue is not None:
            destination.queue.note_delays(partition, [offset], [plan.due_ns])
    return feed, offset


def require_end(partition: Partition, expected: int) -> None:
    """Check that the next message of a log gets the offset ``expected``.

    Messages that are accepted and not stored yet count: their offsets are assigned.

    Raises:
        Conflict: It gets another one.
    """
    if partition.next_offset != expected:
        raise Conflict(partition.name, expected, partition.next_offset)


def append_run(
    broker: Services, partition: Partition, run: Run, now_ns: WallNs, copies: int = 0, copied_bytes: int = 0
) -> int:
    """Append the messages of a transaction to one partition, and count them.

    Args:
        broker: The services of the broker.
        partition: The partition.
        run: The messages.
        now_ns: The current time, in nanoseconds since 1970.
        copies: How many of them are copies by ``archive:`` rules.
        copied_bytes: The bytes of the bodies of these copies.

    Returns:
        The offset of the first.
    """
    first = partition.extend(run, now_ns)
    count = len(run)
    broker.stats.add_messages(count - copies, run.body_bytes - copied_bytes)
    broker.stats.count(messages_copied=copies)
    broker.count_pending(run.size_bytes + RECORD_OVERHEAD_BYTES * count)
    if run.ids and partition.dedup is not None:
        broker.background.add(_indexed(broker, partition.dedup))
    return first


def _indexed(broker: Services, dedup: Dedup) -> Steps:
    while dedup.index(INDEXED_TOGETHER):
        broker.budget.spend(INDEXED_TOGETHER // INDEXED_A_UNIT)
        yield True


def goes_to_disk(frame: Frame) -> bool:
    """Return True if a frame may write to the disk, as far as its head shows."""
    if frame.head.command != "SEND":
        return frame.head.command == "COMMIT"
    plan = frame.head.memo
    return plan is None or bool(plan.copies) or plan.destination.policy.settings.store == "file"
