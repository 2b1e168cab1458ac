"""A broker with ``record: deliveries`` that is killed at random moments: rows and cursors agree after each kill."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from radiator import clock
from radiator.client import Connection, Message, connect
from radiator.errors import RadiatorError
from radiator.storage.files import FileSystem
from radiator.storage.store import Store
from tests.broker.recorded import Row, disagreement, rows_of_log
from tests.running import BrokerProcess

CONFIG = """
defaults: {record: deliveries, redeliver: {delay: 0ms}}
destinations:
  - {match: /queue/work, redeliver: {max: 3}, dead_letter: /queue/dead, partitions: 2}
  - {match: /queue/short, max_messages: 20, on_full: drop_oldest, ack_timeout: 50ms}
"""
KILLS = 6


def answer(random: Random, client: Connection, message: Message, index: int) -> None:
    """One of the answers that a consumer may give."""
    kind = random.randrange(8)
    if kind == 0:
        message.nack()
    elif kind == 1:
        message.reject()
    elif kind == 2:
        with client.transaction() as transaction:
            transaction.ack(message)
            transaction.send("/queue/done", b"done %d" % index)
    elif kind == 3:
        message.ack(receipt=True)
    elif kind < 7:
        message.ack()


def load(address: str, seed: int) -> None:
    """Send and consume until the broker dies."""
    random = Random(seed)
    with contextlib.suppress(RadiatorError, OSError), connect(address, reconnect=False) as client:
        for turn in range(10_000):
            for queue in ("/queue/work", "/queue/short"):
                client.send_many([(queue, b"%d" % number, None) for number in range(random.randrange(1, 40))])
            queue = random.choice(["/queue/work", "/queue/short", "/queue/dead", "/queue/done"])
            mode = random.choice(["client-individual", "client-individual", "client", "auto"])
            with client.subscribe(queue, ack=mode, prefetch=random.choice([1, 10, 100])) as inbox:
                for index in range(random.randrange(60)):
                    message = inbox.fetch(0.02)
                    if message is None:
                        break
                    if mode != "auto":
                        answer(random, client, message, turn * 100 + index)


def inspect(data: Path) -> list[Row]:
    """Start the store alone, check it, and return its rows."""
    store = Store(str(data), FileSystem())
    store.open(clock.now())
    wrong, rows = disagreement(store), rows_of_log(store)
    store.close()
    assert wrong == ""
    return rows


@pytest.mark.thorough
def test_a_broker_killed_at_random_moments_has_one_final_row_for_each_settled_message(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    random = Random(23)
    broker = start_broker(CONFIG)
    outcomes: Counter[str] = Counter()
    for kill in range(KILLS):
        clients = [threading.Thread(target=load, args=(broker.address, 10 * kill + each)) for each in range(2)]
        for each in clients:
            each.start()
        threading.Event().wait(random.uniform(0.1, 0.9))  # a random moment, and no synchronisation
        broker.kill()
        for each in clients:
            each.join()
        outcomes = Counter(row["outcome"] for row in inspect(broker.data))
        broker.start()
    assert outcomes["acked"] > 50
    assert outcomes.keys() >= {"acked", "nacked", "dead_lettered", "requeued"}, outcomes
