"""Checks of each delivery when a client receives it, and of undelivered messages when nothing moves.

A client receives a delivery later than the broker decides it. So a delivery is right if it was right at any time since
the client last received something.
"""

from __future__ import annotations

from collections import deque

from tests.properties.flow.endings import Endings
from tests.properties.flow.parts import Backlog, Client, Entry, Message, Subscription, demand
from tests.properties.flow.rules import rule_of


class Promises(Endings):
    def consumers(self, backlog: Backlog) -> list[Subscription]:
        raise NotImplementedError

    def active(self, backlog: Backlog) -> Subscription | None:
        raise NotImplementedError

    # --- a delivery ---------------------------------------------------------------------------------------------------

    def delivered(
        self,
        client: Client,
        name: str,
        message: Message,
        destination: str,
        partition: str,
        delivery: int,
        count: int,
        marked: bool,
    ) -> Entry:
        self.counts["delivered"] += 1
        where = f"{message}, to {client.name}/{name}"
        demand(message.destination == destination, f"{where}: came from {destination}")
        demand(name in client.subscriptions, f"{where}: no such subscription")
        subscription = client.subscriptions[name]
        demand(subscription.wants(message), f"{where}: the selector {subscription.selector} does not take it")
        message.partition = partition
        entry = self._entry(subscription, message, count)
        is_queued = destination.startswith("/queue/") or subscription.named is not None or entry is not None
        if entry is None or entry.backlog is None:
            demand(not destination.startswith("/queue/"), f"{where}: it is not a consumer of that")
            demand(subscription.named is None, f"{where}: the name does not owe it")
            demand(subscription.matches(destination), f"{where}: the subscription does not match")
            entry, is_queued = Entry(message, None), False
        if subscription.mode != "auto":
            free = not subscription.is_durable and is_queued
            demand(subscription.room(free) > 0, f"{where}: there is no room in the window")
            subscription.held[entry.key] = entry
            entry.delivery = delivery
        if entry.backlog is None:
            self._of_topic(subscription, message, where)
            return entry
        self._may_be_given(subscription, entry, where)
        self._counted(entry, count, marked, where)
        self._in_order(subscription, entry.backlog, message)
        del entry.backlog.waiting[message.number]
        entry.age = 0
        if subscription.mode == "auto":
            entry.settled = True
        else:
            entry.holder = subscription
        return entry

    def _entry(self, subscription: Subscription, message: Message, count: int) -> Entry | None:
        """Return the entry of a delivery, from the backlog that it came from."""
        if subscription.named is not None:
            return subscription.named.entries.get(message.number)
        children = rule_of(message.destination).children
        names = children or ((message.destination,) if message.destination.startswith("/queue/") else ())
        found = [
            self.backlogs[name].entries[message.number]
            for name in names
            if name in self.backlogs and message.number in self.backlogs[name].entries
        ]
        mine = [each for each in found if each.backlog is not None and subscription.consumes(each.backlog)]
        if not mine or (subscription.matches(message.destination) and not message.destination.startswith("/queue/")):
            return None
        there = [each for each in mine if each.backlog is not None and message.number in each.backlog.waiting]
        return max(there or mine, key=lambda each: (each.is_due(self.now), each.deliveries + 1 == count))

    def _may_be_given(self, subscription: Subscription, entry: Entry, where: str) -> None:
        backlog, holder = entry.backlog, entry.holder
        assert backlog is not None
        demand(not entry.settled, f"{where}: it was settled before")
        demand(holder is None, f"{where}: it is held by {holder and holder.client.name}/{holder and holder.name}")
        demand(entry.message.number in backlog.waiting, f"{where}: it is not there to be given")
        demand(entry.is_due(self.now), f"{where}: came before its time")
        demand(not entry.is_lapsed(self.now), f"{where}: its time was over")
        active = self.active(backlog)
        if active is not None:
            demand(active is subscription or subscription.grace, f"{where}: {active.client.name} is served alone")
            other = backlog.held(subscription) if active is subscription else None
            demand(other is None, f"{where}: alone, and {other} is still held by another")
        elif backlog.naming and backlog.naming.is_group and rule_of(entry.message.destination).partitions > 1:
            other = backlog.held(subscription, entry.message.partition)
            demand(other is None, f"{where}: {other}, of the same partition, is still held by another member")

    def lost_on_the_way(
        self, client: Client, name: str, message: Message, partition: str, count: int, marked: bool
    ) -> None:
        """Requeue a delivery that was under way when the connection broke, like any other unacknowledged one. With
        ack:auto it counts as a delivery, but as not delivered."""
        subscription = client.subscriptions[name]
        entry = self._entry(subscription, message, count)
        if entry is None or entry.backlog is None:
            return
        self.counts["lost on the way"] += 1
        demand(not entry.settled and entry.holder is None, f"{entry}: it was not there to be given")
        self._counted(entry, count, marked, str(entry))
        message.partition = partition
        del entry.backlog.waiting[message.number]
        if subscription.mode == "auto":
            entry.unsent += 1
            entry.backlog.waiting[message.number] = entry
            entry.backlog.came_back.add(message.number)
        else:
            self.consumer_lost(entry)

    def _of_topic(self, subscription: Subscription, message: Message, where: str) -> None:
        due: deque[Message] | None = subscription.due.get(message.destination)
        demand(bool(due), f"{where}: came once too often, or before its time")
        assert due is not None
        if due[0] is not message:  # of several partitions each has an order of its own
            demand(rule_of(message.destination).partitions > 1, f"{where}: before {due[0]}")
        demand(message in due, f"{where}: came twice")
        due.remove(message)

    def _counted(self, entry: Entry, count: int, marked: bool, where: str) -> None:
        before, entry.deliveries = entry.deliveries, count
        right = count > before if entry.restarted else count == before + 1
        demand(right, f"{where}: delivery-count {count} after {before}")
        demand(marked == (count > 1), f"{where}: redelivered {marked} in delivery {count}")
        most = entry.rule.deliveries_max
        demand(most is None or count <= most + entry.unsent, f"{where}: delivery {count} of {most} at most")

    def _in_order(self, subscription: Subscription, backlog: Backlog, message: Message) -> None:
        number = message.number
        key = (subscription, f"{message.destination} {message.partition}")
        before = backlog.last.get(key, -1)
        if number not in backlog.came_back:
            demand(number > before, f"{message}, to {subscription.client.name}/{subscription.name}: after {before}")
        backlog.last[key] = max(before, number)
        if message.priority is not None:
            backlog.lowest[subscription] = min(message.priority, backlog.lowest.get(subscription, 9))

    # --- what waits ---------------------------------------------------------------------------------------------------

    def nobody_starves(self, backlog: Backlog) -> None:
        """Check that deliverable messages wait only for credit."""
        waiting = [each for each in backlog.waiting.values() if each.is_due(self.now) and not each.is_lapsed(self.now)]
        if not waiting:
            return
        active = self.active(backlog)
        for each in self.consumers(backlog) if active is None else [active]:
            if each.room(not each.is_durable) <= 0 or (active is not None and backlog.held(active)):
                continue
            hungry = [entry for entry in waiting if each.wants(entry.message) and self._free(each, entry)]
            stalled = f"{len(hungry)} messages of {backlog.name} wait, {each.client.name}/{each.name} has room: "
            demand(not hungry, stalled + ", ".join(map(str, hungry[:3])))

    def _free(self, subscription: Subscription, entry: Entry) -> bool:
        """Return False if its partition may be assigned to another member."""
        backlog = entry.backlog
        assert backlog is not None
        if backlog.naming is None or not backlog.naming.is_group:
            return True
        return rule_of(entry.message.destination).partitions == 1 or len(self.consumers(backlog)) == 1

    def oldest_went_first(self, backlog: Backlog) -> None:
        """Check that a message which waited all the time was not overtaken by a later one of the same partition."""
        patient = [
            each
            for number, each in backlog.waiting.items()
            if number in backlog.old and number not in backlog.came_back and not each.is_lapsed(self.now)
        ]
        for subscription, lowest in backlog.lowest.items():
            wanted = [each.message.priority or 0 for each in patient if subscription.wants(each.message)]
            demand(
                lowest >= max(wanted, default=0),
                f"{backlog.name}: {lowest} went before priority {max(wanted, default=0)}",
            )
        if backlog.lowest:
            return
        for (subscription, key), number in backlog.last.items():
            destination = key.split(" ")[0]
            if rule_of(destination).partitions > 1:  # the partition of a message that no client has received is unknown
                continue
            first = min(
                (
                    each.message.number
                    for each in patient
                    if each.message.destination == destination and subscription.wants(each.message)
                ),
                default=number + 1,
            )
            demand(number < first, f"{number} of {backlog.name} went out, and {first} still waits")
