"""Who gets how much of a queue, over real sockets: equal consumers get equal shares.

``tests/broker/queues/test_fair_dispatch.py`` says how equal: to within one. Here a busy machine may slow one down.
"""

from __future__ import annotations

import select

import pytest

from tests.running import BrokerProcess
from tests.server.wire import Wire

MESSAGES = 300


def consume(consumers: list[Wire], number: int) -> list[int]:
    """Each acknowledges whatever it hears, as soon as it hears it; how many each has got."""
    counts = [0] * len(consumers)
    while sum(counts) < number:
        ready = [each for each in consumers if each.inbox]
        if not ready:
            sockets = select.select([each.socket for each in consumers], [], [], 30)[0]
            assert sockets, f"nobody hears anything after {counts}"
            ready = [each for each in consumers if each.socket in sockets]
        for consumer in ready:
            message = consumer.hear("MESSAGE")
            counts[consumers.index(consumer)] += 1
            consumer.say("ACK", id=message.headers["ack"])
    return counts


def filled(broker: BrokerProcess, queue: str, number: int) -> None:
    with Wire(broker) as sender:
        sender.open()
        for _ in range(number):
            sender.say("SEND", b"x" * 100, destination=queue)
        sender.say("SEND", b"", destination="/topic/end", receipt="r")
        sender.hear("RECEIPT")


def joined(broker: BrokerProcess, queue: str, prefetch: int) -> Wire:
    wire = Wire(broker).open()
    more = {"prefetch_count": prefetch} if prefetch > 1 else {}
    wire.say("SUBSCRIBE", destination=queue, id="0", ack="client-individual", receipt="s", **more)
    return wire


@pytest.mark.parametrize("prefetch", [1, 10])
@pytest.mark.parametrize("order", ["consumers first", "messages first"])
def test_three_equal_consumers_get_a_third_each(shared_broker: BrokerProcess, prefetch: int, order: str) -> None:
    queue = f"/queue/fair.{prefetch}.{order.replace(' ', '.')}"
    if order == "messages first":
        filled(shared_broker, queue, MESSAGES)
    consumers = [joined(shared_broker, queue, prefetch) for _ in range(3)]
    for each in consumers:
        each.hear("RECEIPT")
    if order == "consumers first":
        filled(shared_broker, queue, MESSAGES)
    counts = consume(consumers, MESSAGES)
    for each in consumers:
        each.close()
    assert all(85 <= count <= 115 for count in counts), counts


@pytest.mark.parametrize("prefetch", [1, 10])
def test_a_late_consumer_gets_an_equal_part_of_the_rest(shared_broker: BrokerProcess, prefetch: int) -> None:
    queue = f"/queue/late.{prefetch}"
    filled(shared_broker, queue, MESSAGES)
    consumers = [joined(shared_broker, queue, prefetch)]
    consumers[0].hear("RECEIPT")
    consume(consumers, 60)
    for _ in range(2):
        consumers.append(joined(shared_broker, queue, prefetch))
        consumers[-1].hear("RECEIPT")
    counts = consume(consumers, 240)
    for each in consumers:
        each.close()
    assert all(65 <= count <= 95 for count in counts), counts
