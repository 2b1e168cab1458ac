"""A bad day, as a store: what an operator should be able to tell from its report without knowing it.

The day before is an ordinary one: orders, two sensors, mail. On the bad day:

* at 10:00 somebody sends 2,000 mails within five minutes;
* the workers of the group ``billing`` stop at 10:30; orders go on coming, and nobody takes them;
* the sensor in the cellar is cut off at 11:00 and delivers all that it measured at 12:30;
* from 10:20 on mails and orders are given up, for each of the four causes there are, and lie among the dead letters;
* order 100 has come back to the workers four times;
* somebody sends ten orders a second time under their dedup-id;
* the sensor in the attic, there the day before, says nothing at all; one in the shed is new.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from tests.spark.deliveries import PARTITION, Delivery, records
from tests.spark.stores import Message, Writer

S = 1_000_000_000
MINUTE, HOUR, DAY = 60 * S, 3600 * S, 86_400 * S
MIDNIGHT = 1_700_006_400 * S  # 2023-11-15T00:00:00Z, where the bad day begins
BURST, STOPPED, CUT, BACK = (MIDNIGHT + int(hour * HOUR) for hour in (10, 10.5, 11, 12.5))
END = MIDNIGHT + 16 * HOUR


def write(root: object) -> Writer:
    writer = Writer(root)
    for name, messages in (
        ("/topic/orders", _orders()),
        ("sensors", _sensors()),
        ("/queue/mail", _mail()),
        ("/queue/dead", _dead()),
        ("/topic/ops.cursors", _samples()),
        (PARTITION, records(_deliveries())),
    ):
        writer.write(name, sorted(messages, key=lambda each: each.receive_ns), per_batch=1000)
    return writer


def _each(start: int, until: int, step: int) -> Iterator[int]:
    return iter(range(start, until, step))


def _orders() -> Iterator[Message]:
    for i, at in enumerate(_each(MIDNIGHT - DAY, END, MINUTE)):
        tags = f"tag-shop:{('berlin', 'oslo', 'rome')[i % 7 % 3]}\nuser:shop".encode()
        tags += f"\nproducer-id:shop-{i % 3}\npartition-key:customer-{_customer(i)}\ndedup-id:order-{i}".encode()
        message = Message("/topic/orders", b'{"order": %d}' % i, tags, at, at - 40 * S // 1000, at - 15 * S // 1000)
        yield from [message] * (2 if STOPPED <= at < STOPPED + 10 * MINUTE else 1)


def _customer(order: int) -> int:
    """One of forty; number 7 has a fifth of all."""
    return 7 if order % 5 == 0 else order * 13 % 40


def _sensors() -> Iterator[Message]:
    for at in _each(MIDNIGHT - DAY, END, MINUTE):
        yield _sensor("kitchen", at, at)
        if at < MIDNIGHT:
            yield _sensor("attic", at, at)
        else:
            yield _sensor("shed", at, at)
        held_back = CUT <= at < BACK
        yield _sensor("cellar", at, BACK + (at - CUT) // 1000 if held_back else at)


def _sensor(room: str, event: int, received: int) -> Message:
    block = f"tag-room:{room}\nuser:sensor-{room}".encode()
    sent = received - 3 * S // 1000
    return Message(f"/topic/sensors.{room}", b'{"degrees": 21.5}', block, received, min(event - S // 10, sent), sent)


def _mail() -> Iterator[Message]:
    for at in _each(MIDNIGHT - DAY, END, 5 * MINUTE):
        yield Message("/queue/mail", b"x" * 500, b"user:shop", at, at - S // 50, at - S // 100)
    for at in _each(BURST, BURST + 5 * MINUTE, 5 * MINUTE // 2000):
        yield Message("/queue/mail", b"x" * 500, b"user:newsletter", at, at - S // 50, at - S // 100)


def _dead() -> Iterator[Message]:
    for i, at in enumerate(_each(BURST + 20 * MINUTE, BURST + 60 * MINUTE, MINUTE)):
        reason, told = (
            ("max-deliveries", "mailbox full: 552 5.2.2 The recipient's mailbox exceeds its storage limit"),
            *[("rejected", "no such user")] * 3,
        )[i % 4]
        yield _letter(at, reason, "/queue/mail", i % 4 + 1, told)
    for at in _each(BURST + 90 * MINUTE, BURST + 100 * MINUTE, MINUTE):
        yield _letter(at, "expired", "/queue/mail", 0)
        yield _letter(at, "unacked", "/topic/orders", 3, subscription="billing")


def _letter(at: int, reason: str, origin: str, deliveries: int, told: str = "", subscription: str = "") -> Message:
    block = f"dlq-reason:{reason}\ndlq-destination:{origin}\ndlq-deliveries:{deliveries}\ndlq-time:{at}"
    block += f"\ndlq-received:{at - 14 * MINUTE}"
    block += f"\nerror:{told.replace(':', chr(92) + 'c')}" * bool(told)
    block += f"\ndlq-subscription:{subscription}" * bool(subscription)
    return Message("/queue/dead", b"x" * 500, block.encode(), at, at - 15 * MINUTE, at - 15 * MINUTE)


def _samples() -> Iterator[Message]:
    behind = list(_each(MIDNIGHT - DAY, END, MINUTE))
    for at in _each(MIDNIGHT + 8 * HOUR, END, 10 * MINUTE):
        end = sum(order <= at for order in behind)
        stopped = sum(order <= min(at, STOPPED) for order in behind)
        yield _sample(at, "group:billing", "/topic/orders", end, stopped, 2 if at < STOPPED else 0)
        yield _sample(at, "sub:dashboard", "/topic/orders", end, end - (at // MINUTE) % 3, 1)


def _deliveries() -> Iterator[Delivery]:
    for i, at in enumerate(_each(MIDNIGHT - DAY, STOPPED, MINUTE)):
        for number in range(5 if i == 100 else 1):
            now, outcome = at + (number + 1) * S, "acked" if i != 100 or number == 4 else "nacked"
            row = ("/topic/orders", "/topic/orders", i, "billing", f"till-{i % 2}/0", number + 1, now, outcome)
            yield Delivery(*row, now + (i % 20 + 1) * S // 100)


def _sample(at: int, cursor: str, destination: str, end: int, position: int, members: int) -> Message:
    row = {
        "time_ns": at, "cursor": cursor, "destination": destination, "partition": destination, "position": position,
        "end": end, "lag": end - position, "in_flight": min(members, end - position), "members": members,
    }  # fmt: skip
    return Message("/topic/ops.cursors", json.dumps(row).encode(), b"", at, at)
