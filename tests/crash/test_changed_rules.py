"""A broker that is killed, and comes back with other rules, while a consumer empties a queue.

Nobody loses a message that was receipted to its producer; none comes again after its ACK was receipted.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from radiator.client import connect
from tests.crash.killing import new_seed
from tests.running import BrokerProcess

QUEUE = "/queue/work"
RULES = ["", ", partitions: 3", ", priority: true", ", partition: elsewhere", ", partitions: 2, partition: elsewhere"]
ROUNDS = 6
EACH = 40


@pytest.mark.thorough
def test_a_queue_survives_kills_and_changes_of_its_rule(tmp_path: Path) -> None:
    seed = new_seed()
    chance = random.Random(seed)
    sent, acked = set(), set()
    broker = BrokerProcess(tmp_path, "destinations: []")
    config = tmp_path / "radiator.yaml"
    try:
        for each in range(ROUNDS):
            config.write_text(f"destinations: [{{match: {QUEUE}{chance.choice(RULES)}}}]")
            broker.start()
            connection = connect(broker.address, timeout=20)
            inbox = connection.subscribe(QUEUE, ack="client-individual", prefetch=chance.choice([1, 5, 50]))
            for number in range(EACH):
                body = b"%d-%d" % (each, number)
                connection.send(QUEUE, body, headers={"priority": str(number % 10)})
                sent.add(body)
            for _ in range(chance.randrange(EACH)):
                message = inbox.fetch(20)
                assert message is not None, f"seed {seed}"
                assert message.body not in acked, f"seed {seed}: {message.body!r} came again"
                message.ack(receipt=True)
                acked.add(message.body)
            broker.kill()
        broker.start()
        with connect(broker.address, timeout=20) as connection:
            inbox = connection.subscribe(QUEUE, ack="client-individual", prefetch=50)
            while acked != sent:
                message = inbox.fetch(20)
                assert message is not None, f"seed {seed}: {len(sent - acked)} are lost"
                assert message.body not in acked, f"seed {seed}: {message.body!r} came again"
                message.ack(receipt=True)
                acked.add(message.body)
        assert broker.stop() == 0
    finally:
        if broker.running:
            broker.kill()
