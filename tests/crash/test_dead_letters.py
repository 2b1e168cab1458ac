"""A broker that is killed again and again while it buries: every message is in one of the two queues, and in one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from radiator.client import connect
from radiator.errors import ClientError
from tests.running import BrokerProcess

CONFIG = "destinations: [{match: /queue/work, redeliver: {max: 3, delay: 0ms}, dead_letter: /queue/dead}]"
MESSAGES, KILLS = 400, 6


def bodies(broker: BrokerProcess, queue: str) -> Counter[bytes]:
    with connect(broker.address) as client:
        return Counter(message.body for message in client.subscribe(queue, headers={"browser": "true"}))


def refuse_some(broker: BrokerProcess, count: int) -> None:
    """A consumer that refuses, in one way or the other, until it has refused so many; its broker may die of it."""
    with connect(broker.address) as client, client.subscribe("/queue/work", prefetch=20) as inbox:
        for number in range(count):
            message = inbox.fetch(5)
            if message is None:
                return
            if number % 3:
                message.nack()
            else:
                message.reject()


@pytest.mark.thorough
def test_a_broker_killed_while_it_buries_loses_and_doubles_nothing(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    random = Random(7)
    broker = start_broker(CONFIG)
    sent = [b"%d" % number for number in range(MESSAGES)]
    with connect(broker.address) as client:
        client.send_many([("/queue/work", body, None) for body in sent])
    for _ in range(KILLS):
        try:
            refuse_some(broker, random.randrange(20, 120))
        except ClientError:
            pass
        broker.kill()
        broker.start()
        with connect(broker.address) as client:
            client.send("/queue/other", b"the broker has had its turn")
        found = bodies(broker, "/queue/work") + bodies(broker, "/queue/dead")
        assert found == Counter(sent)
    refuse_some(broker, 4 * MESSAGES)
    assert bodies(broker, "/queue/dead") == Counter(sent)
    with connect(broker.address) as client:
        letters = list(client.subscribe("/queue/dead", headers={"browser": "true"}))
    assert {message.headers["dlq-reason"] for message in letters} == {"max-deliveries", "rejected"}
    assert {message.headers["dlq-deliveries"] for message in letters} <= {"1", "2", "3"}
