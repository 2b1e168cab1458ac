"""Brokers with one deliberate bug each. The model must find every one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from radiator.broker.clients.receipts import ReceiptLine
from radiator.broker.clients.session import Reader, Session, Subscription
from radiator.broker.delivery import dispatch
from radiator.broker.delivery.ready import Ready
from radiator.broker.outcomes.redelivery import Returns
from radiator.broker.queues.queue import Queue, QueueSource
from radiator.broker.settling import settlement
from radiator.broker.transactions import transactions

Around = Callable[..., Any]
BROKEN: dict[str, tuple[Any, str, Callable[[Any], Around]]] = {}


def bug(owner: Any, name: str) -> Callable[[Callable[[Any], Around]], Callable[[Any], Around]]:
    """Register a bug. The decorated function gets the right function and returns a wrong one; its name is the bug's."""

    def add(make: Callable[[Any], Around]) -> Callable[[Any], Around]:
        BROKEN[make.__name__.replace("_", " ")] = (owner, name, make)
        return make

    return add


@contextmanager
def broken(name: str) -> Iterator[None]:
    owner, attribute, make = BROKEN[name]
    wrong = make(getattr(owner, attribute))
    with patch.object(owner, attribute, wrong):
        yield


@bug(Session, "__init__")
def a_window_of_two(right: Any) -> Around:
    def init(self: Session, *args: Any, **named: Any) -> None:
        right(self, *args, **named)
        self.window.size = 2

    return init


@bug(Subscription, "queue_credit")
def prefetch_off_by_one(right: Any) -> Around:
    def queue_credit(self: Subscription) -> int:
        return int(right(self)) + (self.window is not None and self.ack != "auto")

    return queue_credit


@bug(Subscription, "topic_credit")
def no_window_for_topics(right: Any) -> Around:
    return lambda self: 1_000


@bug(QueueSource, "give_back")
def what_comes_back_goes_to_the_end(right: Any) -> Around:
    def give_back(self: QueueSource, offsets: list[int]) -> None:
        if not self.returned and self.next_offset < self.feed.partition.high_watermark:
            right(self, [self.next_offset])  # one that was behind it comes first
            self.advance(self.next_offset + 1)
        right(self, offsets)
        self.returned.sort(reverse=True)

    return give_back


@bug(Returns, "back")
def one_of_several_is_lost(right: Any) -> Around:
    return lambda self, source, offsets, attempted=True: right(self, source, offsets[:1], attempted)


@bug(Returns, "back")
def nothing_wakes_the_queue(right: Any) -> Around:
    return lambda self, source, offsets, attempted=True: source.give_back(offsets) if offsets else None


@bug(QueueSource, "settle")
def a_settled_message_comes_again(right: Any) -> Around:
    def settle(self: QueueSource, offsets: list[int]) -> None:
        if offsets and offsets[0] % 7 == 3:
            self.give_back(offsets[:1])
        else:
            right(self, offsets)

    return settle


@bug(Subscription, "deliver")
def redeliveries_are_not_marked(right: Any) -> Around:
    return lambda self, feed, source, offsets, tails, extra=b"": right(self, feed, source, offsets, tails)


@bug(Subscription, "covered")
def client_mode_settles_only_one(right: Any) -> Around:
    return lambda self, message_id: [message_id]


@bug(settlement, "take_acked")
def client_mode_settles_all_subscriptions(right: Any) -> Around:
    def take_acked(broker: Any, subscription: Any, keys: Any) -> Any:
        settled = right(broker, subscription, keys)
        for other in list(subscription.session.subscriptions.by_id.values()):
            if other.ack == "client":
                settled += other.take_some(1_000_000)
        return settled

    return take_acked


@bug(dispatch, "_distribute")
def two_consumers_get_one_message(right: Any) -> Around:
    def spread(queue: Queue, source: Any, batch: Any, indexes: Any, credits: Any) -> None:
        right(queue, source, batch, indexes, credits)
        if len(credits) > 1 and credits[1][0].queue_credit() > 0:
            queue.send(source, batch, credits[1][0], list(indexes)[:1])

    return spread


@bug(Ready, "credit")
def an_ack_wakes_nobody(right: Any) -> Around:
    return lambda self, subscription: None


@bug(transactions, "hold")
def acks_do_not_wait_for_the_commit(right: Any) -> Around:
    def hold(broker: Any, session: Session, frame: Any, delivery: Any, settles: bool) -> Any:
        if frame.head.command == "ACK" and frame.head.headers["transaction"] in session.transactions.by_name:
            return settlement.settle(broker, session, delivery, frame.receipt)
        return right(broker, session, frame, delivery, settles)

    return hold


@bug(transactions, "committing")
def a_commit_forgets_its_last_frame(right: Any) -> Around:
    def committing(*args: Any) -> Any:
        transaction = right(*args)
        if len(transaction.frames) > 1 and transaction.frames.pop().head.command != "SEND":
            transaction.answers.pop()
        return transaction

    return committing


@bug(ReceiptLine, "now")
def receipts_do_not_wait_in_line(right: Any) -> Around:
    def now(self: ReceiptLine, receipt: bytes) -> None:
        self._out(b"RECEIPT\nreceipt-id:%b\n\n\0\n" % receipt)

    return now


@bug(Reader, "_pick")
def a_topic_reader_takes_messages_of_queues(right: Any) -> Around:
    def pick(self: Reader, batch: Any, start: int, stop: int) -> Any:
        queues, self.subscription.queues = self.subscription.queues, []
        try:
            return right(self, batch, start, stop)
        finally:
            self.subscription.queues = queues

    return pick


@bug(QueueSource, "pass_over")
def a_queue_takes_what_is_not_its_own(right: Any) -> Around:
    return lambda self, batch, firsts, index, stop: index


@bug(dispatch, "_blocks_lower_priority")
def a_priority_does_not_wait_for_the_one_above(right: Any) -> Around:
    return lambda source, consumer: False


@bug(Queue, "sort")
def the_lowest_priority_goes_first(right: Any) -> Around:
    def sort(queue: Queue) -> None:
        right(queue)
        queue.sources.reverse()

    return sort
