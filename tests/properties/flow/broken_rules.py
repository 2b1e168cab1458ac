"""More brokers with one deliberate bug each: in rules, durable subscriptions, selectors and time. See ``broken``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from radiator.broker.clients import locating
from radiator.broker.clients.session import Session, Subscription
from radiator.broker.delivery import selective
from radiator.broker.durable.subscriptions import DurableSubscriptions
from radiator.broker.headers import refusals
from radiator.broker.headers.refusals import Refusal
from radiator.broker.logs.delivery_times import EXPIRED, NOW
from radiator.broker.logs.selection import Selection
from radiator.broker.outcomes import dead_letters
from radiator.broker.outcomes.dead_letters import DeadLetters
from radiator.broker.outcomes.redelivery import Returns
from radiator.broker.queues import ack_timeouts, end_reasons, queue
from radiator.broker.queues.assignment import Assignment
from radiator.broker.queues.deferred import Deferred
from radiator.broker.queues.policy import QueuePolicy
from radiator.broker.queues.queue import QueueSource
from radiator.broker.queues.selectors import Wanted
from radiator.broker.settling import settlement
from radiator.broker.transactions import transactional_acks
from tests.properties.flow.broken import BROKEN, Around, bug

# --- how messages end -----------------------------------------------------------------------------------------------


@bug(Returns, "_below_delivery_limit")
def once_more_than_the_rule_allows(right: Any) -> Around:
    def may_go_on(self: Returns, source: QueueSource, offsets: list[int], transaction: str = "") -> list[int]:
        most = source.settings.redeliver_max
        if most is None:
            return offsets
        allowed = [offset for offset in offsets if source.deliveries(offset) == most]
        return allowed + list(right(self, source, [offset for offset in offsets if offset not in allowed], transaction))

    return may_go_on


@bug(Returns, "_below_delivery_limit")
def a_message_ends_one_delivery_early(right: Any) -> Around:
    def may_go_on(self: Returns, source: QueueSource, offsets: list[int], transaction: str = "") -> list[int]:
        most = source.settings.redeliver_max
        early = [offset for offset in offsets if most is not None and source.deliveries(offset) == most - 1]
        if early:
            self.ended(source, early, end_reasons.MAX_DELIVERIES, transaction)
        return list(right(self, source, [offset for offset in offsets if offset not in early], transaction))

    return may_go_on


@bug(transactional_acks, "check")
def a_commit_happens_without_what_it_acknowledges(right: Any) -> Around:
    return lambda broker, session, transaction: iter(())


@bug(Subscription, "is_timed")
def the_time_to_answer_runs_on_in_a_transaction(right: Any) -> Around:
    return lambda self, key: False


@bug(refusals, "read_refusal")
def what_is_rejected_comes_back(right: Any) -> Around:
    return lambda frame: Refusal(True, right(frame).delay_ns)


@bug(Returns, "ended")
def every_death_has_the_same_reason(right: Any) -> Around:
    return lambda self, source, offsets, reason, transaction="": right(
        self, source, offsets, end_reasons.MAX_DELIVERIES, transaction
    )


@bug(DeadLetters, "decided")
def a_dead_letter_is_delivered_where_it_was(right: Any) -> Around:
    def decided(self: DeadLetters, letter: Any, together: bool, holds: bool) -> None:
        letter.source.give_back([letter.offset])
        letter.end(not together)

    return decided


@bug(DeadLetters, "bury")
def one_of_two_dead_letters_is_lost(right: Any) -> Around:
    def bury(self: DeadLetters, letters: list[Any]) -> None:
        for letter in letters:
            if letter.offset % 2:
                letter.source.settle([letter.offset])
        right(self, [letter for letter in letters if letter.offset % 2 == 0])

    return bury


@bug(dead_letters, "stamp")
def a_dead_letter_forgets_how_often_it_was_delivered(right: Any) -> Around:
    return lambda block, letter, *more: right(block, letter._replace(deliveries=1), *more)


@bug(Returns, "left")
def on_unacked_means_nothing(right: Any) -> Around:
    return lambda self, source, offsets: self.back(source, offsets)


# --- time -----------------------------------------------------------------------------------------------------------


@bug(Returns, "timed_out")
def nobody_minds_who_does_not_answer(right: Any) -> Around:
    return lambda self, source, subscription, offsets: None


@bug(ack_timeouts.Timeouts, "start")
def a_redelivery_may_take_for_ever(right: Any) -> Around:
    def start(self: Any, subscription: Subscription, offsets: Any, numbers: Any) -> None:
        first = [
            each for each in zip(offsets, numbers, strict=False) if self._on_overdue.__self__.deliveries(each[0]) == 1
        ]
        right(self, subscription, [offset for offset, _ in first], [number for _, number in first])

    return start


@bug(settlement, "touch")
def a_touch_means_nothing(right: Any) -> Around:
    return lambda broker, session, delivery, receipt: right(broker, session, None, receipt)


@bug(queue, "judge")
def what_has_expired_is_delivered(right: Any) -> Around:
    def judge(*args: Any) -> int:
        verdict = int(right(*args))
        return NOW if verdict == EXPIRED else verdict

    return judge


@bug(queue, "judge")
def nothing_waits_for_its_moment(right: Any) -> Around:
    def judge(*args: Any) -> int:
        verdict = int(right(*args))
        return verdict if verdict == EXPIRED else NOW

    return judge


@bug(Deferred, "due")
def a_moment_passes_unnoticed(right: Any) -> Around:
    return lambda self, now_ns: None


@bug(QueuePolicy, "pause_ns")
def the_pause_of_the_rule_means_nothing(right: Any) -> Around:
    return lambda self, deliveries, offset: 0


@bug(Returns, "_requeue_after_backoff")
def the_delay_of_a_nack_means_nothing(right: Any) -> Around:
    return lambda self, source, offsets, delay_ns, transaction="": right(self, source, offsets, None, transaction)


# --- who gets it ----------------------------------------------------------------------------------------------------


@bug(Selection, "verdicts")
def a_selector_takes_everything(right: Any) -> Around:
    return lambda self, wire, batch, start, stop: bytearray([1]) * len(batch)


@bug(Wanted, "by")
def a_queue_takes_every_selector_for_true(right: Any) -> Around:
    def by(self: Any, index: int) -> list[Any]:
        keyed = [group for _, groups in self._keyed for each in groups.values() for group in each]
        return [group for group, _ in self._evaluated] + keyed

    return by


@bug(selective.Call, "skip")
def what_nobody_wants_is_forgotten(right: Any) -> Around:
    return lambda self, batch, index, groups: None


@bug(Assignment, "takers")
def an_exclusive_consumer_is_one_of_many(right: Any) -> Around:
    return lambda self, source, consumers: consumers


@bug(Assignment, "_held")
def a_new_owner_does_not_wait_for_the_last(right: Any) -> Around:
    return lambda self, source, wanted, consumers: False


@bug(Assignment, "active")
def the_exclusive_consumer_that_came_last_is_served(right: Any) -> Around:
    return property(lambda self: next(reversed(self._exclusive), None))  # type: ignore[return-value]


@bug(DurableSubscriptions, "_take_over")
def two_use_one_durable_name(right: Any) -> Around:
    return lambda self, named: iter(())


@bug(DurableSubscriptions, "delete")
def a_name_that_was_deleted_keeps_its_place(right: Any) -> Around:
    return lambda self, named: []


@bug(DurableSubscriptions, "subscribe")
def a_name_begins_again_each_time(right: Any) -> Around:
    def subscribe(self: DurableSubscriptions, subscription: Any, headers: Any, *args: Any) -> Any:
        return right(self, subscription, replace(headers, reset=headers.name.key in self.by_key), *args)

    return subscribe


@bug(DurableSubscriptions, "subscribe")
def the_selector_of_a_name_means_nothing(right: Any) -> Around:
    def subscribe(self: DurableSubscriptions, subscription: Subscription, *args: Any) -> Any:
        subscription.selection = None
        return right(self, subscription, *args)

    return subscribe


@bug(QueueSource, "settle")
def what_one_child_settles_is_settled_for_all(right: Any) -> Around:
    def settle(self: QueueSource, offsets: list[int]) -> None:
        right(self, offsets)
        for each in list(self.feed.sources) if self.from_fan_out else ():
            if each is not self:
                for offset in set(offsets).intersection(each.returned):
                    right(each, [offset])

    return settle


@bug(locating, "locate")
def a_late_ack_is_taken_for_one_of_what_is_held(right: Any) -> Around:
    def locate(session: Session, frame: Any) -> Any:
        held = [(each, number) for each in session.subscriptions.by_id.values() for number in each.in_flight]
        return right(session, frame) or next(iter(held), None)

    return locate


__all__ = ["BROKEN"]
