"""How a message ends in the model, or is requeued: the promises of ``redeliver``, ``dead_letter`` and ``on_unacked``.

    rejected, timed out, its consumer lost     requeued in its place, after a pause if its rule or the NACK says so
    delivered ``redeliver.max`` times          a dead letter; dropped, if the rule has no dead-letter queue
    NACK with ``requeue:false``                the same
    its consumer lost, with ``on_unacked``     a dead letter, or deleted; of a durable subscription always requeued
    expired                                    not delivered; with ``dead_letter_expired`` a dead letter, once found

A dead letter is a new message of its dead-letter queue. The order of dead letters is not defined.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tests.properties.flow.parts import Backlog, Death, Entry, Message, demand

if TYPE_CHECKING:
    from collections.abc import Mapping


class Endings:
    now: int
    counts: Counter[str]
    messages: list[Message]
    backlogs: dict[str, Backlog]
    of_body: dict[tuple[bytes, str], Message]

    def enters(self, message: Message) -> None:
        raise NotImplementedError

    def returns(self, entry: Entry, pause: int) -> None:
        """Requeue a delivered message that is not settled, or end it after ``redeliver.max`` deliveries."""
        backlog, number = entry.backlog, entry.message.number
        assert backlog is not None
        most = entry.rule.deliveries_max
        if most is not None and entry.deliveries >= most:
            self.ends(entry, "max-deliveries")
            return
        self.counts["returned"] += 1
        entry.not_before = self.now + pause
        backlog.came_back.add(number)
        backlog.waiting[number] = entry

    def consumer_lost(self, entry: Entry) -> None:
        assert entry.backlog is not None
        what = "requeue" if entry.backlog.naming else entry.rule.on_unacked
        if what == "requeue":
            self.returns(entry, 0)
        elif what == "delete":
            entry.settled = True
            self.counts["deleted"] += 1
        else:
            self.ends(entry, "unacked")

    def owed(self, backlog: Backlog) -> list[Entry]:
        """Return the entries that must be delivered, here or as a dead letter."""
        return [each for each in backlog.waiting.values() if not each.is_lapsed(self.now) or each.rule.keeps_expired]

    def ends(self, entry: Entry, reason: str) -> None:
        """End a message: it is not delivered any more."""
        assert entry.backlog is not None
        self.counts[reason] += 1
        entry.settled = True
        entry.backlog.waiting.pop(entry.message.number, None)
        grave = entry.rule.dead_letter
        if grave is None:
            return
        origin = entry.message.destination if entry.backlog.naming else entry.backlog.name
        death = Death(reason, origin, entry.deliveries, not entry.restarted)
        old = entry.message
        body = self.name_of_dead(old.body, origin)
        self.enters(Message(len(self.messages), grave, body, old.priority, old.colour, born=self.now, death=death))

    @staticmethod
    def name_of_dead(body: bytes, origin: str) -> bytes:
        """Return the identity of a dead letter. Two bound queues of a fan-out may have one with the same body."""
        return b"%b from %b" % (body, origin.encode())

    def heard_dead(self, body: bytes, destination: str, headers: Mapping[str, str]) -> Message:
        """Return the message received from a dead-letter queue. It must be a dead letter by now, for that reason."""
        origin, reason = headers["dlq-destination"], headers["dlq-reason"]
        key = self.name_of_dead(body, origin), destination
        if key not in self.of_body:
            self._dies_unseen(body, origin, reason)
        message = self.of_body.get(key)
        demand(message is not None, f"{body!r} of {origin} came as a dead letter ({reason}), and is not dead")
        assert message is not None and message.death is not None
        death = message.death
        demand(reason == death.reason, f"{message}: died of {reason}, and not of {death.reason}")
        count = int(headers["dlq-deliveries"])
        right = count == death.deliveries or (not death.is_sure and count > death.deliveries)
        demand(right, f"{message}: was delivered {count} times, and not {death.deliveries}")
        return message

    def _dies_unseen(self, body: bytes, origin: str, reason: str) -> None:
        """Make a waiting message that has expired a dead letter; the broker may notice it at any time."""
        for backlog in self.backlogs.values():
            for entry in list(backlog.waiting.values()):
                there = entry.message.destination if backlog.naming else backlog.name
                if entry.message.body == body and there == origin and reason == "expired":
                    demand(entry.rule.keeps_expired and entry.is_lapsed(self.now), f"{entry}: had not expired")
                    self.ends(entry, reason)
                    return
