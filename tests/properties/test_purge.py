"""Purge a queue in the middle of everything else: what waits is gone for ever, and nothing else is."""

from __future__ import annotations

from random import Random

import pytest

from tests.broker.admin.asking import done
from tests.broker.harness import Client, World

RULES = """
destinations:
  - {match: '/queue/shared.*', partition: shared}
  - {match: '/queue/all', fan_out: [/queue/one, /queue/two]}
  - {match: '/queue/parts', partitions: 3}
  - {match: '/queue/urgent', priority: true}
  - {match: '/queue/mem', store: memory}
"""
QUEUES = ("/queue/plain", "/queue/shared.a", "/queue/one", "/queue/parts", "/queue/urgent", "/queue/mem")
STEPS = 60


class Run:
    """One queue, its consumers, and what each message may do."""

    def __init__(self, name: str, seed: int) -> None:
        self.name, self.random = name, Random(f"{name} {seed}")
        self.world = World(RULES, tail_bytes_max=self.random.choice((0, 1 << 20)))
        self.sent = 0
        self.waiting: set[str] = set()  # not settled, and not with a consumer
        self.gone: set[str] = set()
        self.start()

    def start(self) -> None:
        self.sender, self.admin = self.world.connect(), self.world.connect()
        self.workers: list[Client] = []
        self.held: dict[str, tuple[Client, object]] = {}

    def hear(self) -> None:
        self.world.settle()
        for worker in self.workers:
            for message in worker.messages():
                body = message.body.decode()
                assert body not in self.gone, f"{body} comes again"
                self.waiting.remove(body)
                self.held[body] = (worker, message)

    def send(self) -> None:
        target = "/queue/all" if self.name == "/queue/one" else self.name
        for _ in range(self.random.randrange(1, 12)):
            body = f"{self.sent}"
            self.sent += 1
            more = {"priority": str(self.sent % 10), "kind": self.random.choice("ab")}
            if self.name != "/queue/one" and self.random.random() < 0.2:
                more["delay"] = self.random.choice(("1s", "1h"))
            self.sender.publish(target, body, **more)
            self.sender.publish("/queue/shared.b", "other")
            self.waiting.add(body)

    def subscribe(self) -> None:
        worker = self.world.connect()
        options = {"selector": "kind = 'a'"} if self.random.random() < 0.3 else {}
        worker.subscribe(self.name, prefetch_count=self.random.randrange(2, 9), **options)
        self.workers.append(worker)

    def answer(self) -> None:
        for body in self.random.sample(sorted(self.held), min(3, len(self.held))):
            worker, message = self.held.pop(body)
            way = self.random.randrange(3)
            if way == 0:
                worker.ack(message)
                self.gone.add(body)
            else:
                self.waiting.add(body)
                worker.nack(message, **({"delay": "2s"} if way == 1 else {}))

    def leave(self) -> None:
        if self.workers:
            worker = self.workers.pop(self.random.randrange(len(self.workers)))
            self.waiting |= {body for body, (who, _) in self.held.items() if who is worker}
            self.held = {body: pair for body, pair in self.held.items() if pair[0] is not worker}
            worker.drop()

    def tick(self) -> None:
        self.world.tick(self.random.choice((0.5, 3)))

    def purge(self) -> None:
        if not self.sent:
            return
        self.hear()
        answer = done(self.admin, "queues.purge", name=self.name)
        assert answer["purged"] == len(self.waiting)
        assert answer["in_flight"] in (None, len(self.held))
        self.gone |= self.waiting
        self.waiting.clear()

    def restart(self) -> None:
        if self.name == "/queue/mem":
            return
        self.world.restart() if self.random.random() < 0.5 else self.world.kill()
        self.waiting |= set(self.held)
        self.start()

    def run(self) -> None:
        steps = [self.send, self.send, self.subscribe, self.answer, self.answer, self.leave, self.tick, self.purge]
        for _ in range(STEPS):
            self.random.choice([*steps, self.restart] if self.random.random() < 0.3 else steps)()
            self.hear()
        while self.workers:
            self.leave()
            self.world.settle()
        self.world.tick(7200)
        client = self.world.connect()
        client.subscribe(self.name, prefetch_count=10_000)
        self.world.settle()
        assert sorted(client.bodies()) == sorted(self.waiting)
        other = self.world.connect()
        other.subscribe("/queue/shared.b", prefetch_count=10_000)
        self.world.settle()
        assert len(other.bodies()) == self.sent


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", QUEUES)
def test_a_purge_settles_what_waits_and_nothing_else(name: str, seed: int) -> None:
    Run(name, seed).run()
