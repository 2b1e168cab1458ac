"""A durable subscriber and two children of a fan_out, and a broker that is killed under them.

Nobody loses a message that was receipted to its producer; none comes again after its ACK was receipted; what comes
again says so.
"""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from radiator.client import ClientError, Message, connect
from tests.crash.killing import new_seed
from tests.running import BrokerProcess

CONFIG = "destinations: [{match: /queue/all, fan_out: [/queue/all.one, /queue/all.two]}]"
TOPICS = ("/topic/durable.a", "/topic/durable.b")
PARENT = "/queue/all"
MESSAGES = 300
KILLS = 4
NAMED = {"subscription-name": "follower"}
WHERE = [("/topic/durable.*", NAMED, TOPICS), ("/queue/all.one", {}, (PARENT,)), ("/queue/all.two", {}, (PARENT,))]


class Follower:
    """Takes messages, acknowledges some with a receipt, and comes back whenever its connection is lost."""

    def __init__(self, address: str, destination: str, headers: dict[str, str], seed: int) -> None:
        self.address, self.destination, self.headers = address, destination, headers
        self.acked: set[bytes] = set()  # and receipted
        self.maybe_acked: set[bytes] = set()
        self.faults: list[str] = []
        self.subscribed = threading.Semaphore(0)
        self.done = threading.Event()
        self._delivered: set[bytes] = set()
        self._random = random.Random(seed)
        self.thread = threading.Thread(target=self._run, name=destination)

    def _run(self) -> None:
        while not self.done.is_set():
            try:
                self.follow(until_quiet=False)
            except ClientError:
                self.done.wait(0.02)  # the broker is away; there is no other sign of its return

    def follow(self, until_quiet: bool) -> None:
        with connect(self.address, timeout=20) as connection:
            inbox = connection.subscribe(self.destination, ack="client-individual", prefetch=5, headers=self.headers)
            self.subscribed.release()
            while not self.done.is_set() or until_quiet:
                message = inbox.fetch(2.0 if until_quiet else 0.1)
                if message is None:
                    if until_quiet:
                        return
                    continue
                self._took(message)
                self.maybe_acked.add(message.body)
                receipt = until_quiet or self._random.random() < 0.5
                message.ack(receipt=receipt)
                if receipt:
                    self.acked.add(message.body)

    def _took(self, message: Message) -> None:
        if message.body in self.acked:
            self.faults.append(f"{message.body!r} came again, and its ACK was receipted")
        if message.body in self._delivered and not message.redelivered:
            self.faults.append(f"{message.body!r} came again without a mark")
        if message.gap:
            self.faults.append(f"a gap of {message.gap} before {message.body!r}")
        self._delivered.add(message.body)


@pytest.mark.thorough
def test_no_message_is_lost_and_only_unacknowledged_ones_come_again(tmp_path: Path) -> None:
    seed = new_seed()
    chance = random.Random(seed)
    broker = BrokerProcess(tmp_path, CONFIG)
    broker.start()
    followers = [
        Follower(broker.address, destination, headers, seed + number)
        for number, (destination, headers, _) in enumerate(WHERE)
    ]
    sent: dict[str, set[bytes]] = {name: set() for name in (*TOPICS, PARENT)}
    try:
        for follower in followers:
            follower.thread.start()
        for follower in followers:  # from here on the durable name is there, whatever happens
            assert follower.subscribed.acquire(timeout=60)
        number, kills, connection = 0, 0, connect(broker.address, timeout=20)
        while number < MESSAGES:
            name, body = chance.choice(list(sent)), b"%d" % number
            connection.send(name, body)  # waits for the receipt
            sent[name].add(body)
            number += 1
            if kills < KILLS and number == (kills + 1) * MESSAGES // (KILLS + 1):
                broker.kill()
                kills += 1
                broker.start()
                connection = connect(broker.address, timeout=20)
        connection.close()
        for follower in followers:
            follower.done.set()
            follower.thread.join(60)
        broker.kill()
        broker.start()
        for follower, (_, _, wanted) in zip(followers, WHERE, strict=True):
            follower.follow(until_quiet=True)
            assert follower.faults == [], f"seed {seed}"
            expected = set().union(*(sent[name] for name in wanted))
            assert expected - follower.maybe_acked == set(), f"seed {seed}: {follower.destination} has lost some"
            assert follower.maybe_acked <= expected
        assert broker.stop() == 0
    finally:
        for follower in followers:
            follower.done.set()
            if follower.thread.is_alive():
                follower.thread.join(60)
        if broker.running:
            broker.kill()
