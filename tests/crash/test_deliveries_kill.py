"""A broker with ``record: deliveries`` that is killed at random moments: rows and cursors agree after each kill."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

import pytest

from radiator import clock
from radiator.client import Connection, Message, ServerError, connect
from radiator.client.admin import ask
from radiator.errors import RadiatorError
from radiator.storage.files import FileSystem
from radiator.storage.store import Store
from tests.broker.recorded import FINAL_OUTCOMES, Row, disagreement, rows_of_log
from tests.running import BrokerProcess

CONFIG = """
defaults: {record: deliveries, redeliver: {delay: 0ms}}
destinations:
  - {match: /queue/work, redeliver: {max: 3}, dead_letter: /queue/dead, partitions: 2}
  - {match: /queue/short, max_messages: 20, on_full: drop_oldest, ack_timeout: 50ms}
"""
KILLS = 6
KILLS_MAX = 40  # on a busy machine a client may do little before it is killed
DONE = {"queues.pause", "queues.purge", "cursors.set", "config.reload", "broker.drain"}
OUTCOMES = {"acked", "nacked", "dead_lettered", "dropped", "purged", "requeued"}


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


def inspect(data: Path, checked: Callable[[str], bool] = bool) -> list[Row]:
    """Start the store alone, check its queues whose logs are to be checked, and return its rows."""
    store = Store(str(data), FileSystem())
    store.open(clock.now())
    wrong, rows = disagreement(store, checked), rows_of_log(store)
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


# --- the same while an operator works with the queues -----------------------------------------------------------------

OPERATED = """
defaults: {record: deliveries, redeliver: {delay: 0ms}}
destinations:
  - {match: /queue/work, redeliver: {max: 2}, dead_letter: /queue/dead, partitions: 2, segment: {size: 64KiB}}
  - {match: /queue/dead, max_messages: 10, on_full: drop_oldest, redeliver: {max: 1}, dead_letter: /queue/deeper}
  - {match: /queue/short, max_messages: 20, on_full: drop_oldest, ack_timeout: 50ms}
  - {match: /queue/brief, message_ttl: 30ms, dead_letter: /queue/deeper, dead_letter_expired: true}
  - {match: /queue/passing, expire: {idle: 1s}}
  - {match: /queue/toggled, record: deliveries}
"""
TOGGLED = "{match: /queue/toggled, record: "
SENT = ("/queue/work", "/queue/short", "/queue/brief", "/queue/set", "/queue/toggled", "/queue/passing")
CONSUMED = (*SENT, "/queue/dead", "/queue/deeper")
INEXACT = ("/queue/set", "/queue/toggled", "/queue/passing")  # settled again, settled without a row, other offsets


def traffic(client: Connection, random: Random) -> None:
    """Send and consume until the connection ends, also with COMMITs of many acknowledgements."""
    for turn in range(10_000):
        for queue in random.sample(SENT, 2):
            client.send_many([(queue, b"%d" % number, None) for number in range(random.randrange(1, 60))])
        mode = random.choice(["client-individual", "client-individual", "client", "auto"])
        with client.subscribe(random.choice(CONSUMED), ack=mode, prefetch=random.choice([1, 10, 100])) as inbox:
            messages = [each for _ in range(random.randrange(80)) if (each := inbox.fetch(0.01)) is not None]
            if mode != "auto" and random.random() < 0.4:
                with client.transaction() as transaction:
                    for message in messages:
                        transaction.ack(message)
            elif mode != "auto":
                for index, message in enumerate(messages):
                    answer(random, client, message, turn * 100 + index)


def operate(client: Connection, random: Random, config: Path, done: Counter[str]) -> None:
    """Give some orders of an operator."""
    positions = ["first", "next", "last:5"]
    for _ in range(20):
        order, args = random.choice(
            [
                ("queues.pause", {"name": random.choice(SENT)}),
                *[("queues.resume", {"name": each}) for each in random.sample(SENT, 2)],
                *[("queues.purge", {"name": each}) for each in random.sample(CONSUMED, 2)],
                ("cursors.set", {"name": "/queue/set", "position": random.choice(positions)}),
                ("maintenance.run", {}),
                ("broker.drain", {"seconds": 30}),
                ("config.reload", {}),
            ]
        )
        if order == "config.reload":
            before, _, after = config.read_text().partition(TOGGLED)
            kind = random.choice(["none", "deliveries"])
            config.write_text(f"{before}{TOGGLED}{kind}}}{after.partition('}')[2]}")
        with contextlib.suppress(ServerError):  # the queue does not exist yet, or is purged already
            ask(client, order, **args)
            done[order] += 1
            if order == "broker.drain":
                ask(client, order, cancel=True)


def until(stopped: threading.Event, address: str, work: Callable[[Connection], None]) -> None:
    """Work with one connection after another until ``stopped``."""
    while not stopped.is_set():
        with contextlib.suppress(RadiatorError, OSError), connect(address, reconnect=False) as client:
            work(client)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [1, 2])
def test_every_settled_message_has_one_final_row_whatever_operators_do(
    start_broker: Callable[..., BrokerProcess], seed: int
) -> None:
    random = Random(seed)
    broker = start_broker(OPERATED)
    config = broker.data.parent / "radiator.yaml"
    outcomes: Counter[str] = Counter()
    done: Counter[str] = Counter()
    for kill in range(KILLS_MAX):
        if kill >= KILLS and done.keys() >= DONE and outcomes.keys() >= OUTCOMES:
            break
        stopped = threading.Event()
        works: list[Callable[[Connection], None]] = [
            partial(traffic, random=Random(10 * kill + seed)),
            partial(traffic, random=Random(10 * kill + seed + 5)),
            partial(operate, random=Random(kill), config=config, done=done),
        ]
        threads = [threading.Thread(target=until, args=(stopped, broker.address, each)) for each in works]
        for each in threads:
            each.start()
        threading.Event().wait(random.uniform(0.3, 1.5))  # a random moment, and no synchronisation
        stopped.set()
        broker.kill()
        for each in threads:
            each.join()
        rows = inspect(broker.data, lambda log: not log.startswith(INEXACT))
        final = Counter(
            row["message-partition"] + row["message-offset"] for row in rows if row["outcome"] in FINAL_OUTCOMES
        )
        toggled = {key: count for key, count in final.items() if key.startswith("/queue/toggled")}
        assert set(toggled.values()) <= {1}, toggled
        outcomes = Counter(row["outcome"] for row in rows)
        broker.start()
    assert done.keys() >= DONE, done
    assert outcomes.keys() >= OUTCOMES, outcomes
